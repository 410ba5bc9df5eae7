"""Dedupe store over a shared store that may be slow or down, and the memory of this process.

Theory of operation. Calls of this process are claimed in memory as well as in the shared store, so an outage never runs
a call of this process twice.

A change must be claimed in the shared store: it waits for that as long as it is told, and is not made without it.

Any other call waits for the store for `BUDGET_MS` in all, before and after it runs, and then continues with memory; the
pending request completes in the background. While the store's circuit is open (`store_circuit`) only memory is used;
results of that time are written to the store when it answers again. See docs/guard.md, What leaves the process.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import OrderedDict
from collections.abc import Awaitable
from typing import TypeVar

import msgspec

from ..clock import GuardClock
from .memory import InMemoryDedupeStore
from .record import ClaimResult, DedupeRecord, DedupeState, DedupeStore, StoreEmptied
from .store_circuit import FIRST_PATIENCE_MS, PATIENCE_MS, StoreCircuit, StoreDown

BUDGET_MS = 45.0
"""Milliseconds that one call waits for the store in all; the target is 50."""

CLAIM_MS = 40.0
"""Milliseconds that it waits for the answer to its claim; the rest of the budget is for storing its result."""

PULSE_MS = 5.0
"""Milliseconds between two pings of the store while calls wait for calls of other processes."""

MAX_PENDING = 10_000
"""Number of results that wait to be written to the store; beyond it the oldest leases expire."""

FIRST_TRY_S = 0.05
LAST_TRY_S = 1.0
"""Seconds between two tries to claim a change; doubles from the first to this value."""

CLAIM_AGAIN_MS = 10_000
"""Lease in milliseconds of a key that is claimed only to store its result."""

T = TypeVar("T")
Tried = tuple[ClaimResult | None, Exception | None]


class StoreUnavailable(Exception):
    """A claim could not be made in the shared store in time."""


class FallbackDedupeStore:
    """Shared store with a memory store as fallback.

    Attributes:
        circuit: whether the shared store answers; while it is down, only memory is used.
    """

    in_process = False

    def __init__(self, shared: DedupeStore, clock: GuardClock) -> None:
        """Use `shared` while it answers in time."""
        self.circuit = StoreCircuit(shared, self._write_pending)
        self._shared = shared
        self._clock = clock
        self._memory = InMemoryDedupeStore(clock=clock)
        self._pending: OrderedDict[str, tuple[DedupeRecord, int]] = OrderedDict()
        self._claiming: dict[str, asyncio.Future[ClaimResult | None]] = {}
        self._late: dict[str, asyncio.Task[ClaimResult]] = {}
        self._budgets: OrderedDict[str, float] = OrderedDict()
        self._waiters = 0

    async def claim(self, record: DedupeRecord, lease_ms: int, within_ms: float | None = None) -> ClaimResult:
        """Claim a key if it is free here and in the store.

        Args:
            record: the record.
            lease_ms: lease.
            within_ms: the key must be claimed in the store, within so many milliseconds; None: only while it answers.

        Raises:
            StoreUnavailable: it could not be claimed in the store in time; a key that is granted later is released.
            StoreEmptied: the store has lost its records.
        """
        key = record.key
        until = None if within_ms is None else _time_ms() + within_ms
        while True:
            known = await self._memory.get(key)
            if known is not None and known.state is DedupeState.UNKNOWN and await self._is_settled(known):
                self._memory.forget(key)
            elif known is not None and not known.is_free:  # what ran here counts
                return await self._memory.claim(record, lease_ms)
            under_way = self._claiming.get(key)
            if under_way is None:
                break
            await asyncio.wait({under_way}, timeout=None if until is None else max(0.0, until - _time_ms()) / 1000)
            if not under_way.done():
                raise StoreUnavailable
            other = under_way.result()
            if other is not None:
                return other
        claimed: asyncio.Future[ClaimResult | None] = asyncio.get_running_loop().create_future()
        self._claiming[key] = claimed
        held_elsewhere: ClaimResult | None = None
        try:
            if until is None:
                claim = await self._claim_in_shared(record, lease_ms)
            else:
                claim = await self._claim_surely(record, lease_ms, until)
            if claim is not None and not claim.mine:
                held_elsewhere = claim
                return claim
            return await self._memory.claim(record, lease_ms)
        finally:
            del self._claiming[key]
            claimed.set_result(held_elsewhere)

    async def _is_settled(self, unknown: DedupeRecord) -> bool:
        """Whether another process has settled an outcome that is unknown here; a store without its record has not."""
        if unknown.key in self._pending:
            return False
        try:
            known = await asyncio.wait_for(self._shared.get(unknown.key), FIRST_PATIENCE_MS / 1000)
        except Exception:  # noqa: BLE001 - whatever a store's client raises
            return False
        return known is not None and known.state is not DedupeState.UNKNOWN

    async def _claim_surely(self, record: DedupeRecord, lease_ms: int, until: float) -> ClaimResult:
        """Claim a key in the shared store, however long it takes; tries again while there is time."""
        pause = FIRST_TRY_S
        while True:
            request = self.circuit.in_background(_tried(self._shared.claim(record, lease_ms)))
            try:
                await asyncio.wait({request}, timeout=max(0.0, until - _time_ms()) / 1000)
            finally:
                if not request.done():
                    self.circuit.in_background(self._release_late(request, record))
            if not request.done():
                raise StoreUnavailable
            claim, error = request.result()
            if claim is not None:
                return claim
            if isinstance(error, StoreEmptied):
                raise error
            if until - _time_ms() <= pause * 1000:
                raise StoreUnavailable from error
            await asyncio.sleep(pause)
            pause = min(LAST_TRY_S, 2 * pause)

    async def _claim_in_shared(self, record: DedupeRecord, lease_ms: int) -> ClaimResult | None:
        """Return the store's answer to a claim; None without an answer in time."""
        await self.circuit.connect()
        if self.circuit.down:
            return None
        request = self.circuit.in_background(self.circuit.answer(lambda: self._shared.claim(record, lease_ms)))
        try:
            waited = await self.circuit.wait_for(request, CLAIM_MS)
            self._budgets[record.holder] = BUDGET_MS - waited
            if len(self._budgets) > MAX_PENDING:
                self._budgets.popitem(last=False)
            if not request.done():
                self._late[record.holder] = request
                request.add_done_callback(lambda _: self._late.pop(record.holder, None))
                return None
        except BaseException:  # the call is cancelled: release the key if it is granted later
            self.circuit.in_background(self._release(request, record))
            raise
        with contextlib.suppress(StoreDown):
            return request.result()
        return None

    async def _release(self, request: asyncio.Task[ClaimResult], record: DedupeRecord) -> None:
        with contextlib.suppress(StoreDown):
            if (await request).mine:
                gone = msgspec.structs.replace(record, state=DedupeState.CANCELLED)
                await self.circuit.answer(lambda: self._shared.finish(gone, 1))

    async def _release_late(self, request: asyncio.Task[Tried], record: DedupeRecord) -> None:
        """Release a key that was granted after its call had given up; if that fails, its outcome is unknown."""
        claim, _ = await request
        if claim is not None and claim.mine:
            await _tried(self._shared.finish(msgspec.structs.replace(record, state=DedupeState.CANCELLED), 1))

    async def extend(self, record: DedupeRecord, lease_ms: int) -> bool:
        """Extend the holder's lease in memory and in the store; a key claimed only in memory is extended only there."""
        here = await self._memory.extend(record, lease_ms)
        try:
            if record.sure:
                return await asyncio.wait_for(self._shared.extend(record, lease_ms), FIRST_PATIENCE_MS / 1000) or here
            return await self.circuit.ask(lambda: self._shared.extend(record, lease_ms), PATIENCE_MS) or here
        except (StoreDown, TimeoutError):
            return here

    async def finish(self, record: DedupeRecord, ttl_ms: int) -> bool:
        """Store the call's end in memory and in the store; in the store later if it is slow or down.

        One that was claimed surely is awaited for `FIRST_PATIENCE_MS`, whatever the store answered to others.
        """
        here = await self._memory.finish(record, ttl_ms)
        left_ms = self._budgets.pop(record.holder, BUDGET_MS - CLAIM_MS)
        if self.circuit.down and not record.sure:
            self._queue_write(record, ttl_ms)
            return here
        writing = self.circuit.in_background(self._write_or_keep(record, ttl_ms))
        if record.sure:
            await asyncio.wait({writing}, timeout=FIRST_PATIENCE_MS / 1000)
        else:
            await self.circuit.wait_for(writing, left_ms)
        return writing.result() if writing.done() else here

    async def _write_or_keep(self, record: DedupeRecord, ttl_ms: int) -> bool:
        if (late := self._late.get(record.holder)) is not None:
            await asyncio.wait({late})  # in the order of the requests
        try:
            if record.sure:
                return await self._write(record, ttl_ms)
            return await self.circuit.answer(lambda: self._write(record, ttl_ms))
        except Exception as error:  # noqa: BLE001 - whatever a store's client raises
            self.circuit.mark_down(error)
            self._queue_write(record, ttl_ms)
            return True

    async def _write_pending(self) -> None:
        """Write the results of the time in which the store was down."""
        while self._pending:
            record, ttl_ms = next(iter(self._pending.values()))
            async with asyncio.timeout(FIRST_PATIENCE_MS / 1000):
                await self._write(record, ttl_ms)
            self._pending.pop(record.key, None)

    def _queue_write(self, record: DedupeRecord, ttl_ms: int) -> None:
        """Queue a result until it can be written."""
        self._pending[record.key] = record, ttl_ms
        if len(self._pending) > MAX_PENDING:
            self._pending.popitem(last=False)

    async def _write(self, record: DedupeRecord, ttl_ms: int) -> bool:
        """Write a result to the store; first claims the key if it was claimed only in memory."""
        if await self._shared.finish(record, ttl_ms):
            return True
        if record.is_free:
            return False
        bare = msgspec.structs.replace(
            record, state=DedupeState.INFLIGHT, payload=None, kept=False, error=None, change=False, sure=False
        )
        claim = await self._shared.claim(bare, CLAIM_AGAIN_MS)
        return claim.mine and await self._shared.finish(record, ttl_ms)

    async def get(self, key: str) -> DedupeRecord | None:
        """Return the current record."""
        known = await self._memory.get(key)
        if known is not None and not known.is_free:
            return known
        try:
            return await self.circuit.ask(lambda: self._shared.get(key), CLAIM_MS)
        except StoreDown:
            return known

    async def wait(self, key: str, version: int, timeout_ms: float, *, sure: bool = False) -> DedupeRecord | None:
        """Wait in memory for a record of this process, in the store for a record of another."""
        known = await self._memory.get(key)
        if known is not None:
            return await self._memory.wait(key, known.version, timeout_ms)
        if sure:
            return await self._wait_surely(key, version, timeout_ms)
        if self.circuit.down:
            return None
        waiting = asyncio.ensure_future(self._shared.wait(key, version, timeout_ms))
        went_down = asyncio.ensure_future(self.circuit.went_down.wait())
        self._waiters += 1
        if self._waiters == 1:
            self.circuit.in_background(self._ping_store())
        try:
            await asyncio.wait({waiting, went_down}, return_when=asyncio.FIRST_COMPLETED)
            return waiting.result() if waiting.done() else None
        except asyncio.CancelledError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever a store's client raises
            self.circuit.mark_down(error)
            return None
        finally:
            self._waiters -= 1
            waiting.cancel()
            went_down.cancel()

    async def _wait_surely(self, key: str, version: int, timeout_ms: float) -> DedupeRecord | None:
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                return await self._shared.wait(key, version, timeout_ms)
        except Exception:  # noqa: BLE001 - whatever a store's client raises; the next claim finds out
            await asyncio.sleep(FIRST_TRY_S)
            return None

    async def _ping_store(self) -> None:
        """Ping the store while calls wait: a wait may be long and gives no answers meanwhile."""
        with contextlib.suppress(StoreDown):
            while self._waiters:
                await self.circuit.answer(lambda: self._shared.get("probe"))
                await asyncio.sleep(PULSE_MS / 1000)

    async def clear(self, tool: str | None = None) -> int:
        """Delete all records, or all records of one tool."""
        here = await self._memory.clear(tool)
        return here if self.circuit.down else await self._shared.clear(tool)

    async def size(self) -> int:
        """Return the number of records."""
        return await (self._memory.size() if self.circuit.down else self._shared.size())

    async def close(self) -> None:
        """Complete pending writes, and close both stores."""
        await self.circuit.close()
        with contextlib.suppress(Exception):  # closing a store that is down fails
            async with asyncio.timeout(1.0):
                await self._shared.close()

    def on_another_loop(self) -> FallbackDedupeStore:
        """Return a store with the same keys and the same memory, over connections of its own."""
        made = FallbackDedupeStore(self._shared.on_another_loop(), self._clock)
        made._memory = self._memory
        return made

    def after_fork(self) -> None:
        """Reset in a child process or on another event loop: pending requests belong to the old one."""
        self._shared.after_fork()
        self._memory.after_fork()
        self.circuit.reset()
        self._claiming, self._late, self._waiters = {}, {}, 0
        self._budgets.clear()


async def _tried(work: Awaitable[T]) -> tuple[T | None, Exception | None]:
    """Return an answer or the error in its place: a task that is left behind must not end with one."""
    try:
        return await work, None
    except Exception as error:  # noqa: BLE001 - whatever a store's client raises
        return None, error


def _time_ms() -> float:
    return asyncio.get_running_loop().time() * 1000
