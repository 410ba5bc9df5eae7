"""Ends of the calls that claimed a key: stored for the others, also when they come late, and settled when unknown."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Iterable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

import msgspec

from ...schemas.tool_envelopes import ResultStatus
from ..attempts import attempt_limit_ms, failure_of_thread
from ..clock import GuardClock
from ..errors import Passthrough, is_control_flow
from ..json_view import is_big
from ..log import log_call, log_store_failure
from ..metrics import CACHE_SIZE, CACHE_TTL, GuardMetrics
from ..privacy import PrivacyFilter
from ..request import GuardedCall
from ..result import ToolResult
from ..settings import DedupePolicy
from . import outcomes
from .leases import HeldLeases
from .loop_stores import LoopStores
from .memory import InMemoryDedupeStore
from .record import KEEP_UNKNOWN_MS, DedupeRecord, DedupeState
from .unknown import ChangeSettlement, may_have_happened, reconciled

if TYPE_CHECKING:
    from ..tool_threads import FunctionOutcome


class KeySettler:
    """Stores the ends of one guard's calls under the keys that they claimed."""

    def __init__(
        self,
        stores: LoopStores,
        leases: HeldLeases,
        policy: DedupePolicy,
        privacy: PrivacyFilter,
        clock: GuardClock,
        metrics: GuardMetrics,
        passthrough: Passthrough,
    ) -> None:
        """Control-flow exceptions, `passthrough` included, release keys."""
        self._stores = stores
        self._leases = leases
        self._policy = policy
        self._privacy = privacy
        self._clock = clock
        self._metrics = metrics
        self._passthrough = passthrough
        self.after_fork()

    def after_fork(self) -> None:
        """Forget threads and tasks, which stay in the parent process."""
        self._threads: dict[str, Future[None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def runs_on(self, key: str) -> bool:
        """Whether a function with this key still runs in a thread although its call was given up."""
        return key in self._threads

    async def wait_for_thread(self, call: GuardedCall, key: str) -> ToolResult | None:
        """Wait while the key's function still runs in an abandoned thread, at most as long as an attempt may take."""
        done = self._threads.get(key)
        if done is None:
            return None
        limit = attempt_limit_ms(call, self._clock)
        waiting = asyncio.wrap_future(done)
        # In real time, as attempts are cut off in real time.
        await asyncio.wait({waiting}, timeout=None if limit is None else max(0.0, limit) / 1000)
        if waiting.done():
            return None
        waiting.cancel()
        return outcomes.too_late(call, "an earlier run of the same call took too long and cannot be stopped")

    async def store_end(
        self, call: GuardedCall, record: DedupeRecord, result: ToolResult | None, *, free: bool = False
    ) -> None:
        """Store the result of a run for the others, even if its caller is cancelled meanwhile.

        Args:
            call: the call.
            record: record of its claim.
            result: its result; None if it was cut off.
            free: a call that was cut off, but certainly did nothing.
        """
        thread = call.running
        if thread is not None and not thread.done():
            self._await_thread_in_background(call, record, thread)
        if call.stream is not None:
            self._leases.hold(call, record)
            self._in_background(self._follow_stream(call, record, call.stream))
            return
        if result is not None:
            last = self._store_result(call, record, result)
        elif free or not record.change:
            last = self._finish(
                call, msgspec.structs.replace(record, state=DedupeState.CANCELLED), self._policy.failed_ms
            )
        else:
            last = self._finish(call, msgspec.structs.replace(record, state=DedupeState.UNKNOWN), KEEP_UNKNOWN_MS)
        if type(self._stores.here) is InMemoryDedupeStore and (result is None or not is_big(result.output)):
            await last  # does not suspend, so it cannot be cancelled
        else:
            await asyncio.shield(self._in_background(last))

    async def _store_result(self, call: GuardedCall, record: DedupeRecord, result: ToolResult) -> None:
        in_process = self._stores.here.in_process
        await self._finish(
            call, *await outcomes.ended(call, record, result, self._policy, self._privacy, in_process=in_process)
        )

    async def _finish(self, call: GuardedCall, record: DedupeRecord, ttl_ms: int) -> None:
        store = self._stores.here
        try:
            await store.finish(record, ttl_ms)
            size = await store.size() if store.in_process else 0  # elsewhere it takes a request
            self._metrics.put(CACHE_SIZE, "", "store", value=size)
        except Exception as error:  # noqa: BLE001 - the lease will end
            log_store_failure(call, "finish", error)
        self._metrics.put(CACHE_TTL, self._metrics.tool(call.name), record.state, value=ttl_ms / 1000)

    def _await_thread_in_background(
        self, call: GuardedCall, record: DedupeRecord, thread: Future[FunctionOutcome]
    ) -> None:
        """Keep other calls of this process waiting for a function that goes on in its thread."""
        over: Future[None] = Future()
        over.set_running_or_notify_cancel()  # waiters may be cancelled, this future may not
        self._threads[record.key] = over
        self._in_background(self._await_thread(call, record, thread, over))

    async def _await_thread(
        self, call: GuardedCall, record: DedupeRecord, thread: Future[FunctionOutcome], over: Future[None]
    ) -> None:
        """Settle the outcome of a call that was given up by what its function achieves after all."""
        try:
            outcome = await asyncio.wrap_future(thread)
            passthrough = (*self._passthrough, *call.tool.passthrough)
            if outcome.error is not None and is_control_flow(outcome.error, passthrough):
                cancelled = msgspec.structs.replace(record, state=DedupeState.CANCELLED)
                await self._finish(call, cancelled, self._policy.failed_ms)
            else:
                await self._store_result(call, record, self._late_result(call, outcome))
        finally:
            if self._threads.get(record.key) is over:
                del self._threads[record.key]
            if not over.done():
                over.set_result(None)

    def _late_result(self, call: GuardedCall, outcome: FunctionOutcome) -> ToolResult:
        """Return the result of a function whose call was given up."""
        failure = failure_of_thread(call, outcome, self._clock.now_ms())
        call.notes.cut_off = failure is not None and may_have_happened(failure)
        if failure is None:
            return call.result(ResultStatus.SUCCESS, output=outcome.output)
        status = ResultStatus.RETRIABLE_ERROR if failure.retriable else ResultStatus.ERROR
        return call.result(status, error=failure.error(), exception=failure.exception)

    async def _follow_stream(self, call: GuardedCall, record: DedupeRecord, stream: asyncio.Future[ToolResult]) -> None:
        """Hold the key until a generator that was handed over has ended; items that were read cannot be read again."""
        try:
            await self._store_result(call, record, await stream)
        finally:
            self._leases.release(record)

    async def release(self, call: GuardedCall, claimed: Iterable[DedupeRecord]) -> None:
        """Release claimed keys that were not used."""
        for record in claimed:
            last = self._finish(call, msgspec.structs.replace(record, state=DedupeState.CANCELLED), 1)
            if type(self._stores.here) is InMemoryDedupeStore:
                await last  # does not suspend, so it cannot be cancelled
            else:
                self._in_background(last)

    async def settle(self, call: GuardedCall, key: str, settlement: ChangeSettlement) -> bool:
        """Settle the unknown outcome of a key; return False if it has none."""
        known = await self._stores.here.get(key)
        if known is None or known.state is not DedupeState.UNKNOWN:
            return False
        return await self._settle(call, known, settlement)

    async def reconcile(self, call: GuardedCall, unknown: DedupeRecord) -> bool:
        """Settle an unknown outcome by the tool's own function; return False if that cannot tell."""
        settlement = await reconciled(call, self._clock)
        if settlement is None:
            return False
        log_call(logging.WARNING, "outcome_reconciled", call, outcome=settlement.outcome)
        await self._settle(call, unknown, settlement)
        return True

    async def _settle(self, call: GuardedCall, unknown: DedupeRecord, settlement: ChangeSettlement) -> bool:
        """End an unknown record; one of several who try succeeds."""
        if settlement.outcome == "failed":
            # Kept as long as another process may remember the outcome as unknown.
            free = msgspec.structs.replace(unknown, state=DedupeState.CANCELLED, error=None)
            return await self._stores.here.finish(free, KEEP_UNKNOWN_MS)
        call.notes.cut_off = False
        result = call.result(ResultStatus.SUCCESS, output=settlement.output, attempts=unknown.attempts)
        in_process = self._stores.here.in_process
        made, ttl_ms = await outcomes.ended(call, unknown, result, self._policy, self._privacy, in_process=in_process)
        return await self._stores.here.finish(made, ttl_ms)

    def _in_background(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task
