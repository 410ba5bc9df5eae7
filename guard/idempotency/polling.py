"""Waiting for a record of a store that tells nobody of its changes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from .record import DedupeRecord, DedupeState

_FIRST_PAUSE_S = 0.010
_LAST_PAUSE_S = 0.200


class SharedPolls:
    """Polls of one store; calls of this process that wait for the same key share one."""

    def __init__(self, get: Callable[[str], Awaitable[DedupeRecord | None]]) -> None:
        """Read records with `get`."""
        self._get = get
        self._tasks: dict[tuple[str, int], asyncio.Task[None]] = {}

    async def wait(self, key: str, version: int, timeout_ms: float) -> DedupeRecord | None:
        """Poll with growing pauses until the record changes, at most `timeout_ms`; return the current record."""
        task = self._tasks.get((key, version))
        if task is None:
            task = self._tasks[key, version] = asyncio.create_task(self._poll(key, version))
            task.add_done_callback(lambda _: self._tasks.pop((key, version), None))
        # A poll that fails raises in all calls that wait for it.
        done, _ = await asyncio.wait({task}, timeout=max(0.0, timeout_ms) / 1000)
        for finished in done:
            finished.result()
        return await self._get(key)

    async def _poll(self, key: str, version: int) -> None:
        pause = _FIRST_PAUSE_S
        while True:
            now = await self._get(key)
            if now is None or now.version != version or now.state is not DedupeState.INFLIGHT:
                return
            await asyncio.sleep(pause)
            pause = min(_LAST_PAUSE_S, pause * 1.5)

    def close(self) -> None:
        """End all polls."""
        for task in self._tasks.values():
            task.cancel()
