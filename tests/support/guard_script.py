"""A guard in a process of its own, told what to do by lines of JSON on standard input; answers with one line each."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from guard_kit import fails, works
from trustfold.guard import ToolGuard


async def hangs() -> None:
    """A tool that never answers; says that it was called."""
    print(json.dumps({"entered": True}), flush=True)
    await asyncio.sleep(600)


async def obey(guard: ToolGuard, order: dict[str, Any]) -> dict[str, Any]:
    """Carry out one order."""
    match order["do"]:
        case "call":
            began = guard.clock.monotonic_ms()
            tool = {"works": works, "fails": fails, "hangs": hangs}[order["tool_is"]]
            result = await guard.call(order["tool"], tool, {}, session_id=order["session"], dedupe_mode="disabled")
            return {"status": str(result.status), "attempts": result.attempts, "ms": guard.clock.monotonic_ms() - began}
        case "check":
            return {"code": guard.check(order["tool"]).code, "connected": guard.connected}
        case "buffered":
            return {"buffered": guard.backend.undelivered, "dropped": guard.backend.buffer.dropped}  # type: ignore[attr-defined]
        case "flush":
            return {"flushed": await guard.flush(order["timeout"])}
    raise ValueError(order)


async def main(address: str, prefix: str) -> None:
    """Obey until standard input ends."""
    guard = await ToolGuard.connect(
        address, topic_prefix=prefix, workspace_id="w1", wait_s=30, buffer_events=1000, probe_wait_ms=5000
    )
    print(json.dumps({"connected": guard.connected, "guard": guard.guard_id}), flush=True)
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        print(json.dumps(await obey(guard, json.loads(line))), flush=True)
    await guard.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2]))
