"""MCP server with reliability tools for any agent (extra `mcp`).

    python -m trustfold.guard.mcp_server kafka://localhost:9092

`reliability_status` and `reliability_history` only read. `reliability_reset` restores the trust of a tool and closes
its circuit. It needs the operator's token in this server's environment (`TRUSTFOLD_OPERATOR_TOKEN`), never as an
argument, and the user's approval, which the client requests (MCP elicitation): a model must not be able to reset its
own tools. See docs/guard.md, MCP server.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from ..projections.calls.keys import in_quotes, scope_of_key, tool_of_key
from ..schemas import commands as cmd
from ..schemas.outcomes import US
from ..schemas.public_state import BreakerUpdated, QualityUpdated, StateUpdated, TrustUpdated
from ..schemas.vocabulary import TrustState
from .permission import recovery_hint
from .state_cache import TrustEntry

if TYPE_CHECKING:
    from mcp.server.mcpserver import MCPServer

    from .guard import ToolGuard

MAX_ROWS = 200
_SHOWN = (TrustUpdated, BreakerUpdated, QualityUpdated)
_FIELDS = (
    "reason", "failures", "threshold", "open_until", "recovery_at", "expires_at", "successes", "successes_needed",
    "failure_rate", "measured", "score", "last_failure_at", "tags",
)  # fmt: skip


def status(guard: ToolGuard, tool_name: str = "", *, include_history: bool = False) -> dict[str, Any]:
    """Return the states of a tool, or of all tools, in the guard's workspace."""
    records = [
        record
        for record in guard.view.records(workspace=guard.settings.workspace_id)
        if isinstance(record, _SHOWN) and (not tool_name or _is_about(record.key, tool_name))
    ]
    answer: dict[str, Any] = {
        "connected": guard.connected,
        "workspace": guard.settings.workspace_id,
        "tools": [_row(record) for record in records[:MAX_ROWS]],
    }
    if not records:
        answer["note"] = f"nothing is held against {tool_name or 'any tool'}: it is trusted and its circuit is closed"
    if include_history:
        answer["history"] = history(guard, tool_name)
    return answer


def history(guard: ToolGuard, tool_name: str = "", limit: int = 50) -> list[dict[str, Any]]:
    """Return the latest state changes that the guard has seen, newest first."""
    rows = []
    for place, record in reversed(guard.view.changes):
        kind, _, rest = place.partition(":")
        workspace, _, key = rest.partition(US)
        if workspace != guard.settings.workspace_id or (tool_name and not _is_about(key, tool_name)):
            continue
        if record is None:
            rows.append({"kind": kind, "key": key, "state": "trusted" if kind == "trust" else "default"})
        elif isinstance(record, _SHOWN):
            rows.append(_row(record))
        if len(rows) >= max(1, min(limit, MAX_ROWS)):
            break
    return rows


def reset(guard: ToolGuard, tool_name: str) -> dict[str, Any]:
    """Send the commands that reset a tool's trust and close its circuit."""
    guard.order(cmd.TrustReset, key=tool_name, reason="reliability_reset over MCP")
    guard.order(cmd.BreakerClose, key=scope_of_key(tool_name), reason="reliability_reset over MCP")
    return {"ordered": ["trust.reset", "breaker.close"], "key": tool_name}


def make_server(guard: ToolGuard, token: str | None = None) -> MCPServer:
    """Create the server of a guard; `token` is the operator's, by default `TRUSTFOLD_OPERATOR_TOKEN`."""
    from mcp.server.mcpserver import Elicit, ElicitationResult, MCPServer, Resolve  # extra `mcp`
    from mcp.server.mcpserver.exceptions import ToolError  # as above
    from mcp.types import ToolAnnotations  # as above
    from pydantic import create_model  # comes with it

    expected = os.environ.get("TRUSTFOLD_OPERATOR_TOKEN", "") if token is None else token
    server: MCPServer = MCPServer(
        "trustfold", instructions="Ask before you rely on a tool that has failed, or when you seem to be stuck."
    )
    reads = ToolAnnotations(read_only_hint=True, idempotent_hint=True, open_world_hint=False)

    @server.tool(annotations=reads)
    def reliability_status(tool_name: str = "", include_history: bool = False) -> dict[str, Any]:  # noqa: FBT001, FBT002 - arguments of an MCP tool
        """Check the reliability status of tools: all that are not fully trusted, or one."""
        return status(guard, tool_name, include_history=include_history)

    @server.tool(annotations=reads)
    def reliability_history(tool_name: str = "", limit: int = 50) -> list[dict[str, Any]]:
        """List the latest changes of trust, circuits and quality, newest first."""
        return history(guard, tool_name, limit)

    approval = create_model("Approval", approve=(bool, ...))

    def asked(tool_name: str) -> Any:
        if not expected:
            raise ToolError("this server has no operator token; set TRUSTFOLD_OPERATOR_TOKEN where it runs")
        return Elicit(f"Trust {tool_name} again and close its circuit?", approval)

    async def reliability_reset(tool_name: str, answer: Any) -> dict[str, Any]:
        """Reset the reliability state of a tool; the user is asked for approval."""
        if answer.action != "accept" or not answer.data.approve:
            raise ToolError(f"the user did not approve; an operator can run `trustfold reset {in_quotes(tool_name)}`")
        made = reset(guard, tool_name)
        made["delivered"] = await guard.flush(5.0)
        return made

    # Annotations in this module are strings, and these types are unknown before the import.
    asked.__annotations__["return"] = Elicit[approval]  # type: ignore[valid-type]
    reliability_reset.__annotations__["answer"] = Annotated[ElicitationResult[approval], Resolve(asked)]  # type: ignore[valid-type]
    changes = ToolAnnotations(read_only_hint=False, destructive_hint=False, idempotent_hint=True)
    server.tool(annotations=changes)(reliability_reset)

    return server


def _is_about(key: str, tool_name: str) -> bool:
    """Whether a key belongs to a tool or to one of its targets."""
    return key in {tool_name, f"tool:{tool_name}"} or tool_of_key(key) == tool_name


def _row(record: StateUpdated) -> dict[str, Any]:
    """Return the fields of a record that the model sees."""
    plain: dict[str, Any] = msgspec.to_builtins(record)
    row = {"kind": record.kind, "key": record.key, "state": plain.get("state")}
    row |= {name: plain[name] for name in _FIELDS if name in plain}
    if isinstance(record, TrustUpdated) and record.state is not TrustState.TRUSTED:
        row["recovery_hint"] = recovery_hint(TrustEntry(record.state, record))
    return row


def main(argv: list[str] | None = None) -> int:
    """Serve over standard input and output until the client disconnects."""
    parser = argparse.ArgumentParser(prog="python -m trustfold.guard.mcp_server", description=__doc__)
    parser.add_argument("address", help="kafka://host:9092 or http://127.0.0.1:8321")
    parser.add_argument("--workspace", default=None, help="workspace to speak about")
    arguments = parser.parse_args(argv)
    asyncio.run(_serve(arguments.address, arguments.workspace))
    return 0


async def _serve(address: str, workspace: str | None) -> None:
    from .guard import ToolGuard  # imported after the arguments were checked

    async with await ToolGuard.connect(address, workspace_id=workspace) as guard:
        await make_server(guard).run_stdio_async()


if __name__ == "__main__":
    sys.exit(main())
