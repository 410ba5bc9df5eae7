"""Coalesces calls with the same key: one runs, the others wait for it or get its stored result (docs/guard.md).

Theory of operation. A call claims its key. Who gets it runs the call and stores how it ended; who does not waits for
that, or is answered from it. A change, whose repetition might do harm, is not made without a claim, and if its run is
cut off the key stays taken until somebody knows the outcome (`unknown`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from ...schemas.tool_envelopes import DedupeMode, ResultStatus
from ...security.redaction import redact_text
from ..clock import GuardClock, new_id
from ..errors import Passthrough
from ..log import log_call, log_store_failure
from ..metrics import HITS, GuardMetrics
from ..privacy import PrivacyFilter
from ..request import NO_SESSION, GuardedCall
from ..result import ToolResult, refusal
from ..settings import DedupePolicy
from . import keys, outcomes
from .deadlocks import WaitGraph
from .fallback import CLAIM_MS, FallbackDedupeStore
from .leases import HeldLeases
from .loop_stores import LoopStores
from .record import ClaimResult, DedupeRecord, DedupeState, DedupeStore, StoreEmptied
from .settler import KeySettler
from .store_circuit import FIRST_PATIENCE_MS
from .unknown import is_change, leaves_free

if TYPE_CHECKING:
    from ..tool_threads import Function

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
    """Coalesces the calls of one guard with all guards that share its store.

    Attributes:
        settler: stores how calls ended, and settles unknown outcomes.
    """

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
        self._graph = WaitGraph()
        self.settler = KeySettler(self._stores, self._leases, policy, privacy, clock, metrics, passthrough)
        self.inflight = self._leases.inflight
        self.close_connections = self._stores.close_here

    def after_fork(self) -> None:
        """Forget threads and tasks, which stay in the parent process."""
        self._stores.after_fork()
        self._leases.after_fork()
        self.settler.after_fork()
        self._graph = WaitGraph()

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
            late = await self.settler.wait_for_thread(call, key)
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
            if known.state is DedupeState.UNKNOWN and await self.settler.reconcile(call, known):
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
        log_store_failure(call, "claim", error.__cause__ or error)
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
                return outcomes.too_late(call, "the deadline passed while the same call was running")
            most = min(left, self._policy.lease_ms)
            try:
                if sure and isinstance(store, FallbackDedupeStore):
                    now = await store.wait(record.key, record.version, most, sure=True)
                else:
                    now = await store.wait(record.key, record.version, most)
            except Exception as error:  # noqa: BLE001 - as above; the next claim finds out
                log_store_failure(call, "wait", error)
                return None
            if now is None or now.holder != record.holder or now.state is DedupeState.CANCELLED:
                return None
            if now.state is not DedupeState.INFLIGHT:
                unknown = now.state is DedupeState.UNKNOWN and now.error is None
                if unknown and (call.tool.reconcile is not None or self.settler.runs_on(record.key)):
                    return None
                age = claim.age_ms + self._clock.monotonic_ms() - began
                return outcomes.answer(call, now, age, waited=True) or await run()

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
            await self.settler.store_end(call, record, call.ended, free=free)
            raise
        finally:
            self._leases.release(record, loop)
        await self.settler.store_end(call, record, result)
        return result

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
            log_store_failure(call, "claim", error)
            return None
        return claim.record if claim.mine else None

    def _count_hit(self, call: GuardedCall, state: str) -> None:
        self._metrics.add(HITS, self._metrics.tool(call.name), str(state))
