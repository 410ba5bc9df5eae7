"""Coalesces calls with the same key: one runs, the others wait for it or get its stored result (docs/guard.md)."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import msgspec

from ...schemas.tool_envelopes import CacheHit, DedupeMode, ResultError, ResultStatus
from ...schemas.vocabulary import BreakerState
from ...security.redaction import redact, redact_text
from ..attempts import attempt_limit_ms, failure_of_thread
from ..clock import Clock, new_id
from ..errors import Passthrough, is_control_flow
from ..json_view import is_big
from ..log import log_call
from ..metrics import CACHE_SIZE, CACHE_TTL, HITS, Metrics
from ..privacy import Privacy
from ..request import NO_SESSION, Call
from ..result import ToolResult, refusal
from ..settings import DedupePolicy
from ..tool_threads import BLOCKED, HELD
from . import keys
from .fallback import FallbackDedupeStore
from .memory import InMemoryDedupeStore
from .record import (
    MAX_RESULT_BYTES,
    Claim,
    DedupeRecord,
    DedupeState,
    DedupeStore,
    Kept,
    copied_exception,
    kept_copy,
)

if TYPE_CHECKING:
    from ..tool_threads import Function, Outcome

TRANSIENT_MS = 5_000
"""Milliseconds that the result of a run is kept for calls that were waiting, if it is not kept for later ones."""

_DEADLOCK = (
    "the same call is running already and cannot end before this one: it is made within it, or without await on its "
    "event loop; give this call a key of its own, or call it in a thread (asyncio.to_thread)"
)

Run = Callable[[], Awaitable[ToolResult]]


class Coalescer:
    """Coalesces the calls of one guard with all guards that share its store."""

    def __init__(
        self,
        store: DedupeStore,
        policy: DedupePolicy,
        privacy: Privacy,
        clock: Clock,
        metrics: Metrics,
        passthrough: Passthrough = (),
    ) -> None:
        """Keep keys in `store`; control-flow exceptions, `passthrough` included, release them."""
        self._passthrough = passthrough
        self._own_store = store
        self._elsewhere: WeakKeyDictionary[asyncio.AbstractEventLoop, DedupeStore] = WeakKeyDictionary()
        self._held: dict[asyncio.AbstractEventLoop, dict[str, tuple[Call, DedupeRecord]]] = {}
        self._loops: dict[str, asyncio.AbstractEventLoop] = {}
        self._waits: dict[object, tuple[frozenset[str], str]] = {}
        self._policy = policy
        self._privacy = privacy
        self._clock = clock
        self._metrics = metrics
        self._threads: dict[str, Future[None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None

    def after_fork(self) -> None:
        """Forget threads and tasks, which stay in the parent process."""
        self._loop = None
        self._elsewhere.clear()
        self._held, self._loops, self._waits = {}, {}, {}
        self._threads = {}
        self._tasks = set()

    @property
    def _store(self) -> DedupeStore:
        """The store over connections of this loop; takes over the store's own connections if their loop is gone."""
        if self._own_store.in_process:
            return self._own_store
        loop = asyncio.get_running_loop()
        if self._loop is loop:
            return self._own_store
        if self._loop is not None and self._loop.is_running():
            if loop not in self._elsewhere:
                self._elsewhere[loop] = self._own_store.on_another_loop()
            return self._elsewhere[loop]
        if self._loop is not None:
            self._own_store.after_fork()
        self._loop = loop
        return self._own_store

    async def close_connections(self) -> None:
        """Close the connections of this loop, which is about to end."""
        loop = asyncio.get_running_loop()
        store = self._elsewhere.pop(loop, None)
        if self._loop is loop:
            store, self._loop = self._own_store, None
        if store is not None:
            await store.close()

    def key_for(self, call: Call, function: Function) -> str | None:
        """Return the key under which a call is coalesced; None if it runs alone.

        Only calls with a given key, and those of tools declared `read_only` or `dedupe`, are coalesced.
        """
        if call.given_key is not None:
            call.receives_key = keys.receives_key(call, function)
        if self.mode_of(call) is DedupeMode.DISABLED:
            return None
        scope = call.scope or call.tool.scope or self._policy.scope
        key = call.given_key
        if key is None:
            if not call.tool.joins or not self._policy.derive_keys:
                return None
            # Without a session, calls of different conversations could not be distinguished.
            if call.session_id == NO_SESSION and scope == "session":
                return None
            key = keys.computed_key(call, self._privacy, scope)
            if key is None:
                return None
        made = keys.store_key(call, key, self._privacy, scope)
        call.notes["key_fingerprint"] = made[:16]
        return made

    def mode_of(self, call: Call) -> DedupeMode:
        """Dedupe mode of a call: its own, else its tool's, else the guard's."""
        return call.dedupe_mode or call.tool.dedupe_mode or self._policy.mode

    def remembers(self, call: Call) -> bool:
        """Whether the result of a call answers later ones: it has a given key, or its tool is declared `dedupe`."""
        return call.given_key is not None or bool(call.tool.dedupe)

    async def coalesce(self, call: Call, key: str, run: Run) -> ToolResult:
        """Run a call, or answer it from a call with the same key.

        If the store cannot be reached, the call runs alone: a lost store must not stop the tools.
        """
        record = DedupeRecord(
            key=key,
            tool=call.name,
            state=DedupeState.INFLIGHT,
            holder=new_id(self._clock.now_ms()),
            # A computed key already includes the parameters.
            params_digest="" if call.given_key is None else keys.params_digest(call, self._privacy),
            request_id=call.request_id if self._store.in_process else redact_text(call.request_id),
        )
        waited = False
        while True:
            late = await self._wait_for_thread(call, key)
            if late is not None:
                return late
            try:
                claim = await self._store.claim(record, self._policy.lease_ms)
            except Exception as error:  # noqa: BLE001 - whatever a store's client raises
                self._log_store_failure(call, "claim", error)
                return await run()
            if claim.mine:
                return await self._run_and_store(call, claim.record, run)
            if claim.record.params_digest != record.params_digest:
                return await self._conflict(call, claim.record, record, run)
            if claim.record.state is not DedupeState.INFLIGHT:
                return await self._answer(call, claim.record, claim.age_ms, run, inflight=waited)
            self._count_hit(call, "inflight")
            if self.mode_of(call) is DedupeMode.BEST_EFFORT:
                message = "the same call is running already; wait for it (409)"
                return call.result(ResultStatus.ERROR, error=refusal("in_flight", message))
            if self._would_deadlock(claim.record.holder):
                return call.result(ResultStatus.ERROR, error=refusal("in_flight", _DEADLOCK))
            waited = True
            this = object()
            if held := HELD.get():
                self._waits[this] = held, claim.record.holder
            try:
                ended = await self._wait(call, claim, run)
            finally:
                self._waits.pop(this, None)
            if ended is not None:
                return ended

    async def claim_once(self, key: str, call: Call, lease_ms: int) -> DedupeRecord | None:
        """Claim a key for `lease_ms`; None if another call holds it, or a shared store cannot answer."""
        holder = new_id(self._clock.now_ms())
        record = DedupeRecord(
            key=key, tool=call.name, state=DedupeState.INFLIGHT, holder=holder, params_digest="", request_id=""
        )
        store = self._store
        claims = store.claim_shared if isinstance(store, FallbackDedupeStore) else store.claim
        try:
            claim = await claims(record, lease_ms)
        except Exception as error:  # noqa: BLE001 - whatever a store's client raises
            self._log_store_failure(call, "claim", error)
            return None
        return claim.record if claim.mine else None

    async def release(self, call: Call, claimed: Iterable[DedupeRecord]) -> None:
        """Release keys of `claim_once` that were not used."""
        for record in claimed:
            last = self._finish(call, msgspec.structs.replace(record, state=DedupeState.CANCELLED), 1)
            if type(self._store) is InMemoryDedupeStore:
                await last  # does not suspend, so it cannot be cancelled
            else:
                self._in_background(last)

    def inflight(self) -> dict[tuple[str, ...], float]:
        """Number of calls that hold a key now, by tool and age: `stale` if they have run for longer than a lease."""
        counts: dict[tuple[str, ...], float] = {}
        oldest = self._clock.monotonic_ms() - self._policy.lease_ms
        for held in list(self._held.values()):
            for call, _ in list(held.values()):
                place = self._metrics.tool(call.name), "stale" if call.began_ms < oldest else "fresh"
                counts[place] = counts.get(place, 0) + 1
        return counts

    def _would_deadlock(self, holder: str) -> bool:
        """Whether the holder cannot end before this call does (deadlock).

        True if this call is made within the holder, or within a call that waits for it, or blocks the holder's event
        loop.
        """
        held, blocked = HELD.get(), BLOCKED.get()
        if blocked is not None and self._loops.get(holder) is blocked:
            return True
        seen: set[str] = set()
        reached = {holder}
        while reached:
            if not held.isdisjoint(reached):
                return True
            seen |= reached
            waits = list(self._waits.values())
            reached = {target for waiting, target in waits if not waiting.isdisjoint(reached)} - seen
        return False

    async def _wait(self, call: Call, claim: Claim, run: Run) -> ToolResult | None:
        """Wait for the call that holds the key; return its result, or None if the key became free."""
        began = self._clock.monotonic_ms()
        while True:
            left = self._policy.lease_ms if call.deadline_ms is None else call.deadline_ms - self._clock.monotonic_ms()
            if left <= 0:
                return self._too_late(call, "the deadline passed while the same call was running")
            try:
                now = await self._store.wait(claim.record.key, claim.record.version, min(left, self._policy.lease_ms))
            except Exception as error:  # noqa: BLE001 - as above; the next claim finds out
                self._log_store_failure(call, "wait", error)
                return None
            if now is None or now.holder != claim.record.holder or now.state is DedupeState.CANCELLED:
                return None
            if now.state is not DedupeState.INFLIGHT:
                age = claim.age_ms + self._clock.monotonic_ms() - began
                return await self._answer(call, now, age, run, inflight=True)

    async def _wait_for_thread(self, call: Call, key: str) -> ToolResult | None:
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
        return self._too_late(call, "an earlier run of the same call took too long and cannot be stopped")

    def _too_late(self, call: Call, message: str) -> ToolResult:
        error = ResultError(code="timeout", message=message, retriable=True, terminal=False)
        return call.result(ResultStatus.TIMEOUT, error=error)

    async def _run_and_store(self, call: Call, record: DedupeRecord, run: Run) -> ToolResult:
        """Run a call while extending its lease, and store its result for the others."""
        self._keep_alive(call, record)
        self._loops[record.holder] = loop = asyncio.get_running_loop()
        within = HELD.set(HELD.get() | {record.holder})
        try:
            result = await run()
        except GeneratorExit:  # the loop is gone; the lease will expire
            raise
        except BaseException:
            # If the tool has run, its result is kept even if its caller was cut off; else the next caller may run it.
            await self._store_end(call, record, call.ended)
            raise
        finally:
            self._stop_extending(loop, record)
            self._loops.pop(record.holder, None)
            with contextlib.suppress(ValueError):  # closed from a foreign context
                HELD.reset(within)
        await self._store_end(call, record, result)
        return result

    async def _store_end(self, call: Call, record: DedupeRecord, result: ToolResult | None) -> None:
        """Store the result of a run for the others, even if its caller is cancelled meanwhile."""
        thread = call.running
        if thread is not None and not thread.done():
            self._await_thread_in_background(call, record, thread)
        if call.stream is not None:
            self._in_background(self._follow_stream(call, record, call.stream))
            return
        if result is not None:
            last = self._store_result(call, record, result)
        else:
            cancelled = msgspec.structs.replace(record, state=DedupeState.CANCELLED)
            last = self._finish(call, cancelled, self._policy.failed_ms)
        if type(self._store) is InMemoryDedupeStore and (result is None or not is_big(result.output)):
            await last  # does not suspend, so it cannot be cancelled
        else:
            await asyncio.shield(self._in_background(last))

    def _await_thread_in_background(self, call: Call, record: DedupeRecord, thread: Future[Outcome]) -> None:
        """Keep the key of a function that continues in its thread, and use its late result."""
        over: Future[None] = Future()
        over.set_running_or_notify_cancel()  # waiters may be cancelled, this future may not
        self._threads[record.key] = over
        self._in_background(self._await_thread(call, record, thread, over))

    async def _await_thread(
        self, call: Call, record: DedupeRecord, thread: Future[Outcome], over: Future[None]
    ) -> None:
        """Hold the key until the thread ends; then its return value is the result of the call."""
        again = msgspec.structs.replace(record, holder=new_id(self._clock.now_ms()))
        claimed: Claim | None = None
        try:
            # The result of the abandoned attempt is stored first; calls that waited for it share it.
            await asyncio.sleep(0)
            while claimed is None or not claimed.mine:
                claimed = await self._store.claim(again, self._policy.lease_ms)
                if not claimed.mine:
                    if claimed.record.state is not DedupeState.INFLIGHT or thread.done():
                        break
                    await self._store.wait(record.key, claimed.record.version, 50.0)
            if claimed.mine:
                self._keep_alive(call, claimed.record)
            outcome = await asyncio.wrap_future(thread)
            if not claimed.mine:
                return
            if outcome.error is not None and is_control_flow(
                outcome.error, (*self._passthrough, *call.tool.passthrough)
            ):
                cancelled = msgspec.structs.replace(claimed.record, state=DedupeState.CANCELLED)
                await self._finish(call, cancelled, self._policy.failed_ms)
            else:
                await self._store_result(call, claimed.record, self._late_result(call, outcome))
        except Exception as error:  # noqa: BLE001 - whatever a store's client raises
            self._log_store_failure(call, "follow", error)
        finally:
            self._stop_extending(asyncio.get_running_loop(), again)
            if self._threads.get(record.key) is over:
                del self._threads[record.key]
            if not over.done():
                over.set_result(None)

    def _late_result(self, call: Call, outcome: Outcome) -> ToolResult:
        """Return the result of a function whose call was given up."""
        failure = failure_of_thread(call, outcome, self._clock.now_ms())
        if failure is None:
            return call.result(ResultStatus.SUCCESS, output=outcome.output)
        status = ResultStatus.RETRIABLE_ERROR if failure.retriable else ResultStatus.ERROR
        return call.result(status, error=failure.error(), exception=failure.exception)

    async def _follow_stream(self, call: Call, record: DedupeRecord, stream: asyncio.Future[ToolResult]) -> None:
        """Hold the key until a generator that was handed over has ended."""
        self._keep_alive(call, record)
        try:
            # Items that were read cannot be read again.
            await self._store_result(call, record, await stream, keep_output=False)
        finally:
            self._stop_extending(asyncio.get_running_loop(), record)

    def _in_background(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _keep_alive(self, call: Call, record: DedupeRecord) -> None:
        """Extend the lease of a key until `_stop_extending`; one task serves all keys of an event loop."""
        loop = asyncio.get_running_loop()
        held = self._held.get(loop)
        if held is None:
            held = self._held[loop] = {}
            self._in_background(self._extend_leases(loop, held))
        held[record.holder] = call, record

    def _stop_extending(self, loop: asyncio.AbstractEventLoop, record: DedupeRecord) -> None:
        if (held := self._held.get(loop)) is not None:
            held.pop(record.holder, None)

    async def _extend_leases(self, loop: asyncio.AbstractEventLoop, held: dict[str, tuple[Call, DedupeRecord]]) -> None:
        never: asyncio.Future[None] = loop.create_future()
        try:
            while True:
                await self._clock.wait(never, self._policy.lease_ms / 3)
                if not held:
                    return
                for call, record in list(held.values()):
                    await self._extend_lease(call, record)
        finally:
            self._held.pop(loop, None)

    async def _extend_lease(self, call: Call, record: DedupeRecord) -> None:
        try:
            still_held = await self._store.extend(record, self._policy.lease_ms)
        except Exception as error:  # noqa: BLE001 - the next sign may get through
            self._log_store_failure(call, "extend", error)
            return
        held = self._held.get(asyncio.get_running_loop(), {})
        if not still_held and held.pop(record.holder, None) is not None:
            log_call(logging.WARNING, "tool_call_lease_lost", call)

    async def _store_result(
        self, call: Call, record: DedupeRecord, result: ToolResult, *, keep_output: bool = True
    ) -> None:
        error = result.error
        keep = self.remembers(call) and (error is None or error.terminal)
        ttl = (self._policy.done_ms if error is None else self._policy.failed_ms) if keep else TRANSIENT_MS
        kept = await self._kept(result) if error is None and keep_output else Kept()
        changed = msgspec.structs.replace(
            record,
            state=DedupeState.DONE if error is None else DedupeState.FAILED,
            payload=kept.payload,
            kept=kept.whole,
            size=kept.size,
            attempts=result.attempts,
            transient=not keep,
            error=None if error is None else self._error(call, result.status, error),
            exception=copied_exception(result.exception) if self._store.in_process else None,
        )
        await self._finish(call, changed, ttl)

    async def _kept(self, result: ToolResult) -> Kept:
        """Return the result as it is stored: a copy in this process; elsewhere only JSON without secrets."""
        output = result.output
        if self._store.in_process:
            return await asyncio.to_thread(kept_copy, output) if is_big(output) else kept_copy(output)
        try:
            encoded = msgspec.json.encode(output)
            plain = msgspec.json.decode(encoded)
            if plain != output or type(plain) is not type(output) or redact(plain) != plain:
                return Kept()
        except Exception:  # noqa: BLE001 - no JSON, or objects that cannot even be compared
            return Kept()
        return Kept(plain, len(encoded), whole=True) if len(encoded) <= MAX_RESULT_BYTES else Kept()

    def _error(self, call: Call, status: ResultStatus, error: ResultError) -> dict[str, Any]:
        code, message = error.code, error.message
        if not self._store.in_process:  # only what an event may carry
            code, message = self._privacy.word(code, call.args), self._privacy.message(message, call.args)
        return {
            "status": str(status),
            "code": code,
            "message": message,
            "retriable": error.retriable,
            "terminal": error.terminal,
            "breaker_state": error.breaker_state,
        }

    async def _finish(self, call: Call, record: DedupeRecord, ttl_ms: int) -> None:
        try:
            await self._store.finish(record, ttl_ms)
            size = await self._store.size() if self._store.in_process else 0  # elsewhere it takes a request
            self._metrics.put(CACHE_SIZE, "", "store", value=size)
        except Exception as error:  # noqa: BLE001 - the lease will end
            self._log_store_failure(call, "finish", error)
        tool = self._metrics.tool(call.name)
        self._metrics.put(CACHE_TTL, tool, record.state, value=ttl_ms / 1000)

    async def _conflict(self, call: Call, known: DedupeRecord, own: DedupeRecord, run: Run) -> ToolResult:
        self._count_hit(call, "conflict")
        log_call(logging.WARNING, "tool_call_key_conflict", call)
        if self._policy.conflict == "independent":
            return await run()
        if keys.is_comparable(own.params_digest) and keys.is_comparable(known.params_digest):
            message = "the idempotency key was used before with other parameters; give this call a key of its own"
        else:
            message = (
                "the idempotency key was used before, and parameters that are no JSON cannot be compared; "
                "name those that do not count in volatile_params, or give this call a key of its own"
            )
        error = refusal("key_conflict", message)
        return call.result(ResultStatus.ERROR, error=msgspec.structs.replace(error, terminal=True))

    async def _answer(self, call: Call, record: DedupeRecord, age_ms: float, run: Run, *, inflight: bool) -> ToolResult:
        """Return the result of the other run as the result of this call."""
        if not inflight:
            self._count_hit(call, record.state)
        hit = CacheHit(
            matched_on="inflight" if inflight else "completed", age_ms=age_ms, key_fingerprint=record.key[:16]
        )
        if record.error is not None:
            fields = dict(record.error)
            status = ResultStatus(fields.pop("status"))
            state = fields.pop("breaker_state", None)
            error = ResultError(**fields, breaker_state=BreakerState(state) if state else None)
            return call.result(status, error=error, cache=hit, from_cache=True, exception=record.exception)
        if not record.kept:
            if not self.remembers(call):  # a read may be repeated
                return await run()
            message = (
                "the same call is done, but its result was not kept: it cannot be copied, is big, or holds a secret"
            )
            return call.result(
                ResultStatus.ERROR, error=refusal("result_unavailable", message), cache=hit, from_cache=True
            )
        return call.result(ResultStatus.SUCCESS, output=record.payload, cache=hit, from_cache=True)

    def _count_hit(self, call: Call, state: str) -> None:
        self._metrics.add(HITS, self._metrics.tool(call.name), str(state))

    def _log_store_failure(self, call: Call, what: str, error: Exception) -> None:
        log_call(logging.ERROR, "dedupe_store_failed", call, operation=what, errorCode=type(error).__name__)
