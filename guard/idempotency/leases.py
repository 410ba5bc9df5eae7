"""Leases of keys whose calls run in this process: extended until the call ends, by one timer for each event loop."""

from __future__ import annotations

import asyncio
import logging

from ..clock import GuardClock
from ..log import log_call, log_store_failure
from ..metrics import GuardMetrics
from ..request import GuardedCall
from .loop_stores import LoopStores
from .record import DedupeRecord

_Held = dict[str, tuple[GuardedCall, DedupeRecord]]


class HeldLeases:
    """Leases that one guard holds."""

    def __init__(self, stores: LoopStores, lease_ms: int, clock: GuardClock, metrics: GuardMetrics) -> None:
        """Extend leases three times as often as they would end."""
        self._stores = stores
        self._lease_ms = lease_ms
        self._clock = clock
        self._metrics = metrics
        self.after_fork()

    def after_fork(self) -> None:
        """Forget the calls of the parent process."""
        self._held: dict[asyncio.AbstractEventLoop, _Held] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def hold(self, call: GuardedCall, record: DedupeRecord) -> None:
        """Extend the lease of a key until `release`."""
        loop = asyncio.get_running_loop()
        held = self._held.get(loop)
        if held is None:
            for gone in [one for one in self._held if one.is_closed()]:
                del self._held[gone]
            held = self._held[loop] = {}
            self._clock.later(self._lease_ms / 3, lambda: self._tick(loop, held))
        held[record.holder] = call, record

    def release(self, record: DedupeRecord, loop: asyncio.AbstractEventLoop | None = None) -> None:
        """Let the lease of a key end; `loop` is where it was held, by default the running one."""
        if (held := self._held.get(loop or asyncio.get_running_loop())) is not None:
            held.pop(record.holder, None)

    def inflight(self) -> dict[tuple[str, ...], float]:
        """Number of calls that hold a key now, by tool and age: `stale` if they have run for longer than a lease."""
        counts: dict[tuple[str, ...], float] = {}
        oldest = self._clock.monotonic_ms() - self._lease_ms
        for held in list(self._held.values()):
            for call, _ in list(held.values()):
                place = self._metrics.tool(call.name), "stale" if call.began_ms < oldest else "fresh"
                counts[place] = counts.get(place, 0) + 1
        return counts

    def _tick(self, loop: asyncio.AbstractEventLoop, held: _Held) -> None:
        if not held:
            self._held.pop(loop, None)
            return
        self._clock.later(self._lease_ms / 3, lambda: self._tick(loop, held))
        task = loop.create_task(self._extend(held))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _extend(self, held: _Held) -> None:
        for call, record in list(held.values()):
            try:
                still_held = await self._stores.here.extend(record, self._lease_ms)
            except Exception as error:  # noqa: BLE001 - whatever a store's client raises; the next sign may get through
                log_store_failure(call, "extend", error)
                continue
            if not still_held and held.pop(record.holder, None) is not None:
                log_call(logging.WARNING, "tool_call_lease_lost", call)
