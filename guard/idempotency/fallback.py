"""Dedupe store over a shared store that may be slow or down, and the memory of this process.

Theory of operation. Calls of this process are claimed in memory as well as in the shared store, so an outage never runs
a call of this process twice.

A change must be claimed in the shared store: it waits for that as long as it is told, and is not made without it.

Any other call waits for the store for `BUDGET_MS` in all, before and after it runs, and then continues with memory; the
pending request completes in the background. If the store fails, or answers no request for `PATIENCE_MS`, a circuit
opens: only memory is used, and a background task probes the store until it answers. Results of the meantime are then
written to it. Time is counted in turns of the event loop, so that a busy loop is not mistaken for a slow store. See
docs/guard.md, What leaves the process.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

import msgspec

from ..clock import GuardClock
from ..log import log_event
from .memory import InMemoryDedupeStore
from .record import ClaimResult, DedupeRecord, DedupeState, DedupeStore, StoreEmptied

BUDGET_MS = 45.0
"""Milliseconds that one call waits for the store in all; the target is 50."""

CLAIM_MS = 40.0
"""Milliseconds that it waits for the answer to its claim; the rest of the budget is for storing its result."""

PATIENCE_MS = 40.0
"""Milliseconds without any answer after which the shared store counts as down."""

FIRST_PATIENCE_MS = 1_000.0
"""Same before the store's first answer, as connecting takes longer; waited once, see `connect`."""

PULSE_MS = 5.0
"""Milliseconds between two pings of the store while calls wait for calls of other processes."""

_TURN_MS = 5.0

FIRST_PROBE_S = 0.25
LAST_PROBE_S = 5.0
"""Seconds between two probes of a store that is down; doubles from the first to this value."""

MAX_PENDING = 10_000
"""Number of results that wait to be written to the store; beyond it the oldest leases expire."""

FIRST_TRY_S = 0.05
LAST_TRY_S = 1.0
"""Seconds between two tries to claim a change; doubles from the first to this value."""

CLAIM_AGAIN_MS = 10_000
"""Lease in milliseconds of a key that is claimed only to store its result."""

T = TypeVar("T")
Tried = tuple[ClaimResult | None, Exception | None]


class _StoreDown(Exception):
    """The shared store did not answer in time, or failed."""


class StoreUnavailable(Exception):
    """A claim could not be made in the shared store in time."""


class FallbackDedupeStore:
    """Shared store with a memory store as fallback.

    Attributes:
        down: only memory is used.
    """

    in_process = False

    def __init__(self, shared: DedupeStore, clock: GuardClock) -> None:
        """Use `shared` while it answers in time."""
        self.down = False
        self._shared = shared
        self._clock = clock
        self._memory = InMemoryDedupeStore(clock=clock)
        self._answers = 0
        self._pending: OrderedDict[str, tuple[DedupeRecord, int]] = OrderedDict()
        self._claiming: dict[str, asyncio.Future[ClaimResult | None]] = {}
        self._late: dict[str, asyncio.Task[ClaimResult]] = {}
        self._budgets: OrderedDict[str, float] = OrderedDict()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._went_down: asyncio.Event = asyncio.Event()
        self._waiters = 0
        self._probing: asyncio.Task[None] | None = None
        self._connecting: asyncio.Task[Any] | None = None

    async def connect(self) -> None:
        """Wait for the store's first answer, at most `FIRST_PATIENCE_MS`; otherwise the first call waits for it.

        Without this, a key could be taken for free while the process is still connecting.
        """
        if self._answers or self.down:
            return
        if self._connecting is None:
            self._connecting = self._in_background(self._answer(lambda: self._shared.get("probe")))
        await asyncio.wait({self._connecting})
        if not self._connecting.cancelled():
            self._connecting.exception()

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
            request = self._in_background(_tried(self._shared.claim(record, lease_ms)))
            try:
                await asyncio.wait({request}, timeout=max(0.0, until - _time_ms()) / 1000)
            finally:
                if not request.done():
                    self._in_background(self._release_late(request, record))
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
        await self.connect()
        if self.down:
            return None
        request = self._in_background(self._answer(lambda: self._shared.claim(record, lease_ms)))
        try:
            waited = await self._wait_for(request, CLAIM_MS)
            self._budgets[record.holder] = BUDGET_MS - waited
            if len(self._budgets) > MAX_PENDING:
                self._budgets.popitem(last=False)
            if not request.done():
                self._late[record.holder] = request
                request.add_done_callback(lambda _: self._late.pop(record.holder, None))
                return None
        except BaseException:  # the call is cancelled: release the key if it is granted later
            self._in_background(self._release(request, record))
            raise
        with contextlib.suppress(_StoreDown):
            return request.result()
        return None

    async def _release(self, request: asyncio.Task[ClaimResult], record: DedupeRecord) -> None:
        with contextlib.suppress(_StoreDown):
            if (await request).mine:
                gone = msgspec.structs.replace(record, state=DedupeState.CANCELLED)
                await self._answer(lambda: self._shared.finish(gone, 1))

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
            return await self._ask(lambda: self._shared.extend(record, lease_ms), PATIENCE_MS) or here
        except (_StoreDown, TimeoutError):
            return here

    async def finish(self, record: DedupeRecord, ttl_ms: int) -> bool:
        """Store the call's end in memory and in the store; in the store later if it is slow or down.

        One that was claimed surely is awaited for `FIRST_PATIENCE_MS`, whatever the store answered to others.
        """
        here = await self._memory.finish(record, ttl_ms)
        left_ms = self._budgets.pop(record.holder, BUDGET_MS - CLAIM_MS)
        if self.down and not record.sure:
            self._queue_write(record, ttl_ms)
            return here
        writing = self._in_background(self._write_or_keep(record, ttl_ms))
        if record.sure:
            await asyncio.wait({writing}, timeout=FIRST_PATIENCE_MS / 1000)
        else:
            await self._wait_for(writing, left_ms)
        return writing.result() if writing.done() else here

    async def _write_or_keep(self, record: DedupeRecord, ttl_ms: int) -> bool:
        if (late := self._late.get(record.holder)) is not None:
            await asyncio.wait({late})  # in the order of the requests
        try:
            if record.sure:
                return await self._write(record, ttl_ms)
            return await self._answer(lambda: self._write(record, ttl_ms))
        except Exception as error:  # noqa: BLE001 - whatever a store's client raises
            self._mark_down(error)
            self._queue_write(record, ttl_ms)
            return True

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
            return await self._ask(lambda: self._shared.get(key), CLAIM_MS)
        except _StoreDown:
            return known

    async def wait(self, key: str, version: int, timeout_ms: float, *, sure: bool = False) -> DedupeRecord | None:
        """Wait in memory for a record of this process, in the store for a record of another."""
        known = await self._memory.get(key)
        if known is not None:
            return await self._memory.wait(key, known.version, timeout_ms)
        if sure:
            return await self._wait_surely(key, version, timeout_ms)
        if self.down:
            return None
        waiting = asyncio.ensure_future(self._shared.wait(key, version, timeout_ms))
        went_down = asyncio.ensure_future(self._went_down.wait())
        self._waiters += 1
        if self._waiters == 1:
            self._in_background(self._ping_store())
        try:
            await asyncio.wait({waiting, went_down}, return_when=asyncio.FIRST_COMPLETED)
            return waiting.result() if waiting.done() else None
        except asyncio.CancelledError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever a store's client raises
            self._mark_down(error)
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
        with contextlib.suppress(_StoreDown):
            while self._waiters:
                await self._answer(lambda: self._shared.get("probe"))
                await asyncio.sleep(PULSE_MS / 1000)

    async def clear(self, tool: str | None = None) -> int:
        """Delete all records, or all records of one tool."""
        here = await self._memory.clear(tool)
        return here if self.down else await self._shared.clear(tool)

    async def size(self) -> int:
        """Return the number of records."""
        return await (self._memory.size() if self.down else self._shared.size())

    async def close(self) -> None:
        """Complete pending writes, and close both stores."""
        if self._probing is not None:
            self._probing.cancel()
        if self._tasks and not self.down:
            await asyncio.wait(self._tasks, timeout=1.0)
        for task in self._tasks:
            task.cancel()
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
        self._claiming, self._late, self._tasks, self._went_down = {}, {}, set(), asyncio.Event()
        self._budgets.clear()
        self._answers, self._waiters, self._probing, self._connecting, self.down = 0, 0, None, None, False

    # --- asking -------------------------------------------------------------------------------------------------------

    async def _ask(self, operation: Callable[[], Awaitable[T]], within_ms: float) -> T:
        """Return the shared store's answer; a late answer is awaited in the background.

        Raises:
            _Down: it failed or did not answer in time, now or a moment ago.
        """
        if self.down:
            raise _StoreDown
        request = self._in_background(self._answer(operation))
        await self._wait_for(request, within_ms)
        if not request.done():
            raise _StoreDown
        return request.result()

    async def _wait_for(self, request: asyncio.Task[Any], most_ms: float) -> float:
        """Wait up to `most_ms` milliseconds until the store answers or is down; return the time waited."""
        waited_ms = 0.0
        while waited_ms < most_ms and not request.done():
            await asyncio.wait({request}, timeout=_TURN_MS / 1000)
            waited_ms += _TURN_MS
        return waited_ms

    async def _answer(self, operation: Callable[[], Awaitable[T]]) -> T:
        """Wait for an answer until the store counts as down.

        Raises:
            _Down: the store is down.
        """
        if self.down:
            raise _StoreDown
        request = asyncio.ensure_future(operation())
        try:
            answers, waited_ms = self._answers, 0.0
            while not request.done():
                await asyncio.wait({request}, timeout=_TURN_MS / 1000)
                if self.down:
                    raise _StoreDown
                waited_ms = waited_ms + _TURN_MS if answers == self._answers else 0.0
                answers = self._answers
                if waited_ms >= (PATIENCE_MS if answers else FIRST_PATIENCE_MS) and not request.done():
                    self._mark_down(TimeoutError())
                    raise _StoreDown
            try:
                answer = request.result()
            except Exception as error:
                self._mark_down(error)
                raise _StoreDown from error
            self._answers += 1
            return answer
        finally:
            request.cancel()

    def _in_background(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._finished)
        return task

    def _finished(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # a late failure has been reported already

    def _mark_down(self, error: Exception) -> None:
        """Mark the store as down until it answers again; logged once."""
        if self.down:
            return
        self.down = True
        self._went_down.set()
        log_event(
            logging.WARNING, "dedupe_store_lost", errorCode=type(error).__name__, instead="memory of this process"
        )
        self._probing = asyncio.get_running_loop().create_task(self._probe())

    async def _probe(self) -> None:
        pause = FIRST_PROBE_S
        while True:
            await asyncio.sleep(pause)
            pause = min(LAST_PROBE_S, 2 * pause)
            try:
                async with asyncio.timeout(FIRST_PATIENCE_MS / 1000):
                    await self._shared.get("probe")
                while self._pending:
                    record, ttl_ms = next(iter(self._pending.values()))
                    async with asyncio.timeout(FIRST_PATIENCE_MS / 1000):
                        await self._write(record, ttl_ms)
                    self._pending.pop(record.key, None)
            except Exception:  # noqa: BLE001, S112 - it is still down
                continue
            self.down = False
            self._went_down.clear()
            log_event(logging.WARNING, "dedupe_store_back")
            return


async def _tried(work: Awaitable[T]) -> tuple[T | None, Exception | None]:
    """Return an answer or the error in its place: a task that is left behind must not end with one."""
    try:
        return await work, None
    except Exception as error:  # noqa: BLE001 - whatever a store's client raises
        return None, error


def _time_ms() -> float:
    return asyncio.get_running_loop().time() * 1000
