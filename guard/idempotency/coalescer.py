"""Coalesces calls with the same key: one runs, the others wait for it or get its stored result (docs/guard.md).

Theory of operation. A call claims its key. Who gets it runs the call and stores how it ended; who does not waits for
that, or is answered from it. A change, whose repetition might do harm, is not made without a claim, and if its run is
cut off the key stays taken until somebody knows the outcome (`unknown`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

import msgspec

from ...schemas.tool_envelopes import DedupeMode, ResultError, ResultStatus
from ...security.redaction import redact_text
from ..attempts import attempt_limit_ms, failure_of_thread
from ..clock import GuardClock, new_id
from ..errors import Passthrough, is_control_flow
from ..json_view import is_big
from ..log import log_call
from ..metrics import CACHE_SIZE, CACHE_TTL, HITS, GuardMetrics
from ..privacy import PrivacyFilter
from ..request import NO_SESSION, GuardedCall
from ..result import ToolResult, refusal
from ..settings import DedupePolicy
from . import keys, outcomes
from .deadlocks import WaitGraph
from .fallback import CLAIM_MS, FIRST_PATIENCE_MS, FallbackDedupeStore
from .leases import HeldLeases
from .loop_stores import LoopStores
from .memory import InMemoryDedupeStore
from .record import KEEP_UNKNOWN_MS, ClaimResult, DedupeRecord, DedupeState, DedupeStore, StoreEmptied
from .unknown import ChangeSettlement, is_change, leaves_free, may_have_happened, reconciled

if TYPE_CHECKING:
    from ..tool_threads import Function, FunctionOutcome

STORE_WAIT_MS = 30_000.0
"""Milliseconds that a change without a deadline waits for a store that is away."""

_DEADLOCK = (
    "the same call is running already and cannot end before this one: it is made within it, or without await on its "
    "event loop; give this call a key of its own, or call it in a thread (asyncio.to_thread)"
)
_RUNNING = "the same call is running already; wait for it (409)"
_UNAVAILABLE = (
    "the shared store of idempotency keys cannot be reached, so nobody knows whether this call was made before; "
    "try again later, or register the tool with on_store_down='local'"
)
_EMPTIED = (
    "the shared store of idempotency keys was emptied, so nobody knows whether this call was made before; an operator "
    "may accept that (accept_loss() of the store)"
)

Run = Callable[[], Awaitable[ToolResult]]


class CallCoalescer:
    """Coalesces the calls of one guard with all guards that share its store."""

    def __init__(
        self,
        store: DedupeStore,
        policy: DedupePolicy,
        privacy: PrivacyFilter,
        clock: GuardClock,
        metrics: GuardMetrics,
        passthrough: Passthrough = (),
    ) -> None:
        """Keep keys in `store`; control-flow exceptions, `passthrough` included, release them."""
        self._passthrough = passthrough
        self._stores = LoopStores(store)
        self._leases = HeldLeases(self._stores, policy.lease_ms, clock, metrics)
        self._policy = policy
        self._privacy = privacy
        self._clock = clock
        self._metrics = metrics
        self.inflight = self._leases.inflight
        self.close_connections = self._stores.close_here
        self._reset()

    def _reset(self) -> None:
        self._graph = WaitGraph()
        self._threads: dict[str, Future[None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def after_fork(self) -> None:
        """Forget threads and tasks, which stay in the parent process."""
        self._stores.after_fork()
        self._leases.after_fork()
        self._reset()

    # --- keys ---------------------------------------------------------------------------------------------------------

    def key_for(self, call: GuardedCall, function: Function) -> str | None:
        """Return the key under which a call is coalesced; None if it runs alone.

        Only calls with a given key, and those of tools declared `read_only` or `dedupe`, are coalesced.
        """
        if call.given_key is not None:
            call.receives_key = keys.receives_key(call, function)
        if self._mode_of(call) is DedupeMode.DISABLED:
            return None
        scope = call.scope or call.tool.scope or self._policy.scope
        key = call.given_key
        if key is None:
            if not call.tool.joins or not self._policy.derive_keys:
                return None
            # Without a session, reads of different conversations could not be distinguished.
            if call.session_id == NO_SESSION and scope == "session" and not call.tool.dedupe:
                return None
            key = keys.computed_key(call, self._privacy, scope)
            if key is None:
                return None
        made = keys.store_key(call, key, self._privacy, scope)
        call.notes.key_fingerprint = made[:16]
        return made

    def _mode_of(self, call: GuardedCall) -> DedupeMode:
        return call.dedupe_mode or call.tool.dedupe_mode or self._policy.mode

    def _record_of(self, call: GuardedCall, key: str) -> DedupeRecord:
        change = is_change(call, remembers=outcomes.remembers(call))
        return DedupeRecord(
            key=key,
            tool=call.name,
            state=DedupeState.INFLIGHT,
            holder=new_id(self._clock.now_ms()),
            # A computed key already includes the parameters.
            params_digest="" if call.given_key is None else keys.params_digest(call, self._privacy),
            request_id=call.request_id if self._stores.here.in_process else redact_text(call.request_id),
            change=change,
            sure=change and self._on_store_down(call) != "local",
        )

    def _on_store_down(self, call: GuardedCall) -> str:
        return call.tool.on_store_down or self._policy.on_store_down

    # --- a call -------------------------------------------------------------------------------------------------------

    async def coalesce(self, call: GuardedCall, key: str, run: Run) -> ToolResult:
        """Run a call, or answer it from a call with the same key."""
        record = self._record_of(call, key)
        waited = False
        while True:
            late = await self._wait_for_thread(call, key)
            if late is not None:
                return late
            try:
                claim = await self._claim(call, record)
            except Exception as error:  # noqa: BLE001 - whatever a store's client raises
                return await self._without_store(call, record, error, run)
            known = claim.record
            if claim.mine:
                return await self._run_and_store(call, known, run)
            if known.params_digest != record.params_digest:
                return await self._conflict(call, known, record, run)
            if known.state is DedupeState.UNKNOWN and await self._reconcile(call, known):
                continue
            if known.state is not DedupeState.INFLIGHT:
                if not waited:
                    self._count_hit(call, known.state)
                return outcomes.answer(call, known, claim.age_ms, waited=waited) or await run()
            self._count_hit(call, "inflight")
            if self._mode_of(call) is DedupeMode.BEST_EFFORT:
                return call.result(ResultStatus.ERROR, error=refusal("in_flight", _RUNNING))
            if self._graph.would_deadlock(known.holder):
                return call.result(ResultStatus.ERROR, error=refusal("in_flight", _DEADLOCK))
            waited = True
            with self._graph.waiting_for(known.holder):
                answered = await self._wait(call, claim, run, sure=record.sure)
            if answered is not None:
                return answered

    async def _without_store(self, call: GuardedCall, record: DedupeRecord, error: Exception, run: Run) -> ToolResult:
        """Refuse a change that could not be claimed; a lost store must not stop the other tools."""
        self._log_store_failure(call, "claim", error.__cause__ or error)
        if not record.sure:
            return await run()
        message = _EMPTIED if isinstance(error, StoreEmptied) else _UNAVAILABLE
        return call.result(ResultStatus.ERROR, error=refusal("store_unavailable", message))

    async def _conflict(self, call: GuardedCall, known: DedupeRecord, own: DedupeRecord, run: Run) -> ToolResult:
        self._count_hit(call, "conflict")
        log_call(logging.WARNING, "tool_call_key_conflict", call)
        return await run() if self._policy.conflict == "independent" else outcomes.conflict(call, known, own)

    async def _claim(self, call: GuardedCall, record: DedupeRecord) -> ClaimResult:
        store = self._stores.here
        if not record.sure or not isinstance(store, FallbackDedupeStore):
            return await store.claim(record, self._policy.lease_ms)
        if self._on_store_down(call) == "refuse":
            within = FIRST_PATIENCE_MS
        elif call.deadline_ms is None:
            within = STORE_WAIT_MS
        else:
            within = max(0.0, call.deadline_ms - self._clock.monotonic_ms())
        return await store.claim(record, self._policy.lease_ms, within)

    async def _wait(self, call: GuardedCall, claim: ClaimResult, run: Run, *, sure: bool) -> ToolResult | None:
        """Wait for the call that holds the key; return its result, or None if the key is to be claimed again."""
        began, record, store = self._clock.monotonic_ms(), claim.record, self._stores.here
        while True:
            left = self._policy.lease_ms if call.deadline_ms is None else call.deadline_ms - self._clock.monotonic_ms()
            if left <= 0:
                return _too_late(call, "the deadline passed while the same call was running")
            most = min(left, self._policy.lease_ms)
            try:
                if sure and isinstance(store, FallbackDedupeStore):
                    now = await store.wait(record.key, record.version, most, sure=True)
                else:
                    now = await store.wait(record.key, record.version, most)
            except Exception as error:  # noqa: BLE001 - as above; the next claim finds out
                self._log_store_failure(call, "wait", error)
                return None
            if now is None or now.holder != record.holder or now.state is DedupeState.CANCELLED:
                return None
            if now.state is not DedupeState.INFLIGHT:
                unknown = now.state is DedupeState.UNKNOWN and now.error is None
                if unknown and (call.tool.reconcile is not None or record.key in self._threads):
                    return None
                age = claim.age_ms + self._clock.monotonic_ms() - began
                return outcomes.answer(call, now, age, waited=True) or await run()

    async def _wait_for_thread(self, call: GuardedCall, key: str) -> ToolResult | None:
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
        return _too_late(call, "an earlier run of the same call took too long and cannot be stopped")

    # --- its end ------------------------------------------------------------------------------------------------------

    async def _run_and_store(self, call: GuardedCall, record: DedupeRecord, run: Run) -> ToolResult:
        """Run a call while extending its lease, and store its result for the others."""
        self._leases.hold(call, record)
        loop = asyncio.get_running_loop()
        try:
            with self._graph.running(record.holder):
                result = await run()
        except GeneratorExit:  # the loop is gone; the lease will expire
            raise
        except BaseException as error:
            # If the tool has run, its result is kept even if its caller was cut off.
            free = call.ended is None and leaves_free(call, error, self._passthrough)
            await self._store_end(call, record, call.ended, free=free)
            raise
        finally:
            self._leases.release(record, loop)
        await self._store_end(call, record, result)
        return result

    async def _store_end(
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
            self._log_store_failure(call, "finish", error)
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

    def _in_background(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    # --- unknown outcomes ---------------------------------------------------------------------------------------------

    async def settle(self, call: GuardedCall, key: str, settlement: ChangeSettlement) -> bool:
        """Settle the unknown outcome of a key; return False if it has none."""
        known = await self._stores.here.get(key)
        if known is None or known.state is not DedupeState.UNKNOWN:
            return False
        return await self._settle(call, known, settlement)

    async def _reconcile(self, call: GuardedCall, unknown: DedupeRecord) -> bool:
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

    # --- approvals ----------------------------------------------------------------------------------------------------

    async def claim_once(self, key: str, call: GuardedCall, lease_ms: int) -> DedupeRecord | None:
        """Claim a key for `lease_ms`; None if another call holds it, or a shared store cannot answer."""
        record = DedupeRecord(
            key=key, tool=call.name, state=DedupeState.INFLIGHT, holder=new_id(self._clock.now_ms()), params_digest=""
        )
        store = self._stores.here
        try:
            if isinstance(store, FallbackDedupeStore):
                claim = await store.claim(record, lease_ms, CLAIM_MS)
            else:
                claim = await store.claim(record, lease_ms)
        except Exception as error:  # noqa: BLE001 - whatever a store's client raises
            self._log_store_failure(call, "claim", error)
            return None
        return claim.record if claim.mine else None

    async def release(self, call: GuardedCall, claimed: Iterable[DedupeRecord]) -> None:
        """Release keys of `claim_once` that were not used."""
        for record in claimed:
            last = self._finish(call, msgspec.structs.replace(record, state=DedupeState.CANCELLED), 1)
            if type(self._stores.here) is InMemoryDedupeStore:
                await last  # does not suspend, so it cannot be cancelled
            else:
                self._in_background(last)

    def _count_hit(self, call: GuardedCall, state: str) -> None:
        self._metrics.add(HITS, self._metrics.tool(call.name), str(state))

    def _log_store_failure(self, call: GuardedCall, what: str, error: BaseException) -> None:
        log_call(logging.ERROR, "dedupe_store_failed", call, operation=what, errorCode=type(error).__name__)


def _too_late(call: GuardedCall, message: str) -> ToolResult:
    error = ResultError(code="timeout", message=message, retriable=True, terminal=False)
    return call.result(ResultStatus.TIMEOUT, error=error)
