"""Joins calls with the same key: one runs, the others wait for it, or are answered from it (seed 3 §1.2; design 4)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from ...schemas.tool_envelopes import CacheHit, DedupeMode, ResultError, ResultStatus
from ...schemas.vocabulary import BreakerState
from ..clock import Clock, new_id
from ..log import say
from ..metrics import CACHE_SIZE, CACHE_TTL, HITS, Metrics
from ..privacy import Privacy
from ..redaction import redact, redact_text
from ..request import NO_SESSION, Call
from ..result import ToolResult, refusal
from ..settings import DedupePolicy
from . import keys
from .record import Claim, DedupeRecord, DedupeState, DedupeStore

TRANSIENT_MS = 5_000
"""How long the end of a run that is kept for nobody waits for those who waited for it."""

Run = Callable[[], Awaitable[ToolResult]]


class Joiner:
    """Joins the calls of one guard with all who share its store."""

    def __init__(
        self, store: DedupeStore, policy: DedupePolicy, privacy: Privacy, clock: Clock, metrics: Metrics
    ) -> None:
        """Keep keys in `store`."""
        self._store = store
        self._policy = policy
        self._privacy = privacy
        self._clock = clock
        self._metrics = metrics

    def key_for(self, call: Call) -> str | None:
        """Key under which a call is joined with others; None where it runs by itself."""
        if self.mode_of(call) is DedupeMode.DISABLED:
            return None
        key = call.given_key
        if key is None:
            # Without a session nothing tells one conversation's call from another's.
            if not self._policy.derive_keys or call.session_id == NO_SESSION:
                return None
            key = keys.computed_key(call, self._privacy)
        made = keys.store_key(call, key, self._privacy)
        call.notes["key_fingerprint"] = made[:16]
        return made

    def mode_of(self, call: Call) -> DedupeMode:
        """How a call is joined: its own word, its tool's, the guard's."""
        return call.dedupe_mode or call.tool.dedupe_mode or self._policy.mode

    def keeps(self, call: Call) -> bool:
        """Whether the end of a call is kept for later ones.

        One with a given key, and one that changes something. A read is asked again because things may have changed.
        """
        return call.given_key is not None or call.tool.read_only is False

    async def join(self, call: Call, key: str, run: Run) -> ToolResult:
        """Run a call, or answer it from its twin.

        Where the store cannot be reached, the call runs by itself: a lost store must not stop the tools.
        """
        record = DedupeRecord(
            key=key,
            tool=call.name,
            state=DedupeState.INFLIGHT,
            holder=new_id(self._clock.now_ms()),
            params_digest=keys.params_digest(call, self._privacy),
            request_id=call.request_id if self._store.in_process else redact_text(call.request_id),
        )
        waited: Claim | None = None
        while True:
            try:
                claim = await self._store.claim(record, self._policy.lease_ms)
            except Exception as error:  # noqa: BLE001 - whatever a store's client raises
                self._complain(call, "claim", error)
                return await run()
            if claim.mine:
                return await self._hold(call, claim.record, run)
            if claim.record.params_digest != record.params_digest:
                return await self._conflict(call, run)
            if claim.record.state is not DedupeState.INFLIGHT:
                return self._answer(call, claim.record, claim.age_ms, inflight=waited is not None)
            self._hit(call, "inflight")
            if self.mode_of(call) is DedupeMode.BEST_EFFORT:
                message = "the same call is running already; wait for it (409)"
                return self._result(call, ResultStatus.ERROR, error=refusal("in_flight", message))
            waited = claim
            ended = await self._wait(call, claim)
            if ended is not None:
                return ended

    async def _wait(self, call: Call, claim: Claim) -> ToolResult | None:
        """Wait for the twin; its end, or None where the key has become free."""
        began = self._clock.monotonic_ms()
        while True:
            left = self._policy.lease_ms if call.deadline_ms is None else call.deadline_ms - self._clock.monotonic_ms()
            if left <= 0:
                error = ResultError(
                    code="timeout", message="the deadline passed while the same call was running",
                    retriable=True, terminal=False,
                )  # fmt: skip
                return self._result(call, ResultStatus.TIMEOUT, error=error)
            try:
                now = await self._store.wait(claim.record.key, claim.record.version, min(left, self._policy.lease_ms))
            except Exception as error:  # noqa: BLE001 - as above; the next claim finds out
                self._complain(call, "wait", error)
                return None
            if now is None or now.holder != claim.record.holder or now.state is DedupeState.CANCELLED:
                return None
            if now.state is not DedupeState.INFLIGHT:
                age = claim.age_ms + self._clock.monotonic_ms() - began
                return self._answer(call, now, age, inflight=True)

    async def _hold(self, call: Call, record: DedupeRecord, run: Run) -> ToolResult:
        """Run a call while giving signs of life, and leave its end for the others."""
        alive = asyncio.create_task(self._give_signs(call, record))
        try:
            result = await run()
        except BaseException:
            # Cancelled, most likely: the next caller may run it.
            cancelled = msgspec.structs.replace(record, state=DedupeState.CANCELLED)
            await asyncio.shield(self._finish(call, cancelled, self._policy.failed_ms))
            raise
        finally:
            alive.cancel()
        await self._leave(call, record, result)
        return result

    async def _give_signs(self, call: Call, record: DedupeRecord) -> None:
        never: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        while True:
            await self._clock.wait(never, self._policy.lease_ms / 3)
            try:
                held = await self._store.extend(record, self._policy.lease_ms)
            except Exception as error:  # noqa: BLE001 - the next sign may get through
                self._complain(call, "extend", error)
                continue
            if not held:
                say(logging.WARNING, "tool_call_lease_lost", requestId=call.request_id, toolName=call.name)
                return

    async def _leave(self, call: Call, record: DedupeRecord, result: ToolResult) -> None:
        error = result.error
        terminal = error is not None and error.terminal
        keep = self.keeps(call) and (error is None or terminal)
        ttl = (self._policy.done_ms if error is None else self._policy.failed_ms) if keep else TRANSIENT_MS
        payload, kept = self._payload(result) if error is None else (None, False)
        changed = msgspec.structs.replace(
            record,
            state=DedupeState.DONE if error is None else DedupeState.FAILED,
            payload=payload,
            kept=kept,
            attempts=result.attempts,
            transient=not keep,
            error=None if error is None else self._error(call, result.status, error),
        )
        await self._finish(call, changed, ttl)

    def _payload(self, result: ToolResult) -> tuple[Any, bool]:
        """The result as it is kept: whole in this process; elsewhere only what is JSON and holds no secret."""
        if self._store.in_process:
            return result.output, True
        try:
            plain = msgspec.json.decode(msgspec.json.encode(result.output))
        except (TypeError, ValueError, RecursionError):
            return None, False
        if plain != result.output or redact(plain) != plain:
            return None, False
        return plain, True

    def _error(self, call: Call, status: ResultStatus, error: ResultError) -> dict[str, Any]:
        code, message = error.code, error.message
        if not self._store.in_process:  # nothing that an event would not carry
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
            self._metrics.put(CACHE_SIZE, "", "store", value=await self._size())
        except Exception as error:  # noqa: BLE001 - the lease will end
            self._complain(call, "finish", error)
        tool = self._metrics.tool(call.name)
        self._metrics.put(CACHE_TTL, tool, record.state, value=ttl_ms / 1000)

    async def _size(self) -> int:
        """Records in the store, where that is known without asking around."""
        return await self._store.size() if self._store.in_process else 0

    async def _conflict(self, call: Call, run: Run) -> ToolResult:
        self._hit(call, "conflict")
        say(
            logging.WARNING,
            "tool_call_key_conflict",
            requestId=call.request_id,
            toolName=call.name,
            sessionKey=call.session_id,
            idempotencyKeyHash=call.notes.get("key_fingerprint"),
        )
        if self._policy.conflict == "independent":
            return await run()
        message = "the idempotency key was used before with other parameters; give this call a key of its own"
        error = refusal("key_conflict", message)
        return self._result(call, ResultStatus.ERROR, error=msgspec.structs.replace(error, terminal=True))

    def _answer(self, call: Call, record: DedupeRecord, age_ms: float, *, inflight: bool) -> ToolResult:
        """The end of a twin, as the end of this call."""
        if not inflight:
            self._hit(call, record.state)
        hit = CacheHit(
            matched_on="inflight" if inflight else "completed", age_ms=age_ms, key_fingerprint=record.key[:16]
        )
        if record.error is not None:
            fields = dict(record.error)
            status = ResultStatus(fields.pop("status"))
            state = fields.pop("breaker_state", None)
            error = ResultError(**fields, breaker_state=BreakerState(state) if state else None)
            return self._result(call, status, error=error, cache=hit)
        if not record.kept:
            message = "the same call is done, but its result was not kept: it is no JSON, or holds a secret"
            return self._result(call, ResultStatus.ERROR, error=refusal("result_unavailable", message), cache=hit)
        return self._result(call, ResultStatus.SUCCESS, output=record.payload, cache=hit)

    def _result(
        self,
        call: Call,
        status: ResultStatus,
        *,
        output: Any = None,
        error: ResultError | None = None,
        cache: CacheHit | None = None,
    ) -> ToolResult:
        return ToolResult(
            request_id=call.request_id,
            tool_name=call.name,
            status=status,
            output=output,
            error=error,
            from_cache=cache is not None,
            cache=cache,
        )

    def _hit(self, call: Call, state: str) -> None:
        self._metrics.add(HITS, self._metrics.tool(call.name), str(state))

    def _complain(self, call: Call, what: str, error: Exception) -> None:
        say(
            logging.ERROR,
            "dedupe_store_failed",
            requestId=call.request_id,
            toolName=call.name,
            operation=what,
            errorCode=type(error).__name__,
        )
