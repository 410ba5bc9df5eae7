"""Flow of one guarded call from request to result (docs/guard.md, What happens in one call).

limits → trust and permission → idempotency → circuits → attempts → classification → publication. In shadow mode every
step is computed and its effect is noted on the result and counted, but the call is made once, unchanged.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Any

import msgspec

from ..schemas.events import GuaranteeOverridden, PermissionRequested, PermissionResolved
from ..schemas.tool_envelopes import ResultError, ResultStatus
from ..schemas.vocabulary import CallStatus
from ..security.redaction import redact_text
from .attempts import AttemptResult, AttemptRunner
from .clock import resolve
from .errors import is_control_flow
from .failure import of_exception
from .guarantees import SpendingCounter
from .idempotency.coalescer import CallCoalescer
from .idempotency.unknown import may_have_happened
from .interface import GuardServices
from .json_view import is_big
from .log import LOGGER, log_call
from .metrics import CALLS, SHADOW
from .permission import PermissionAnswer, PermissionWrapper, is_refused, must_ask, refusal_message, way_out
from .policy import held_by_danger
from .publisher import CallEnding, Digest
from .request import GuardedCall
from .result import ToolResult, refusal
from .settings import RetryPolicy
from .state_cache import DANGER_SCOPE, SESSION_SCOPE, TrustEntry
from .streams import is_stream, relay
from .tool_threads import Function, Runner

_STATUS_OF_REFUSAL = {"circuit_open": ResultStatus.CIRCUIT_OPEN, "deadline_exceeded": ResultStatus.TIMEOUT}
_SINGLE_ATTEMPT = RetryPolicy(max_attempts=1)


class CallFlow:
    """Runs the flow of calls of one guard."""

    def __init__(self, services: GuardServices, coalescer: CallCoalescer, executor: AttemptRunner) -> None:
        """Use `coalescer` to coalesce calls and `executor` to run attempts; `permission` is consulted if it is set."""
        self.permission: PermissionWrapper | None = None
        self._backend = services.backend
        self._settings = services.settings
        self._clock = services.clock
        self._publisher = services.publisher
        self._gate = services.gate
        self._coalescer = coalescer
        self._executor = executor
        self._hooks = services.hooks
        self._metrics = services.metrics
        self._tracing = services.tracing

    async def run(
        self,
        call: GuardedCall,
        function: Function,
        *,
        spending: SpendingCounter | None = None,
        trust: Callable[[GuardedCall], TrustEntry | None],
        runner: Runner | None = None,
    ) -> ToolResult:
        """Run one call from request to result.

        Raises:
            BaseException: control flow instead of a failure: the caller's cancellation, an interrupt; see
                `errors.is_control_flow`.
        """
        with self._tracing.call(call) as span:
            call.notes.traceparent = self._tracing.traceparent(span, call)
            try:
                result = await self._run(call, function, spending, trust, runner)
            finally:  # control-flow exceptions pass here, too
                await self._release_approvals(call)
                if spending is not None:
                    spending.reserved_usd -= call.notes.reserved_usd or 0.0
            result.duration_ms = self._clock.monotonic_ms() - call.began_ms
            notes = call.notes
            if notes.shadow:
                result.metadata["shadow"] = notes.shadow
            if notes.approval is not None:
                result.metadata["approval"] = notes.approval
            if notes.cut_off and notes.key_fingerprint is not None and not call.may_repeat:
                result.metadata["outcome"] = "unknown"
            if spending is not None and notes.reserved_usd is not None:
                spending.recursive_calls -= bool(call.recursion_depth and result.attempts == 0)
            self._count_and_log(call, result)
            self._tracing.ended(span, call, result)
        return result

    async def _run(
        self,
        call: GuardedCall,
        function: Function,
        spending: SpendingCounter | None,
        trust: Callable[[GuardedCall], TrustEntry | None],
        runner: Runner | None,
    ) -> ToolResult:
        if spending is not None:
            refused = self._within_limits(call, spending)
            if refused is not None:
                return await self._refuse(call, refused)
        known = trust(call)
        if known is not None or self.permission is not None or call.approved is False:
            error = await self._permitted(call, known)
            if error is not None:
                return await self._refuse(call, error, by_user=error.code == "denied")
        if call.given_key is None:
            call.given_key = self._hooks.key_of(call)
        key = self._coalescer.key_for(call, function)

        async def make_call() -> ToolResult:
            return await self._make_call(call, function, spending, runner)

        if key is None or call.shadow:
            return await make_call()
        result = await self._coalescer.coalesce(call, key, make_call)
        await self._release_approvals(call)  # another run has answered
        if result.from_cache or (result.attempts == 0 and not call.notes.refused):
            await self._hooks.around(call, "cached" if result.from_cache else result.error.code if result.error else "")
            if result.from_cache:
                status = CallStatus.SUCCESS if result.ok else CallStatus(str(result.status))
                self._publisher.finished(call, CallEnding(status, from_cache=True))
            else:
                self._publisher.refused(call, result.error.code if result.error is not None else "")
        return result

    # --- refusals -----------------------------------------------------------------------------------------------------

    def _within_limits(self, call: GuardedCall, spending: SpendingCounter) -> ResultError | None:
        cost = _expected_cost(call)
        checked = spending.check(self._clock.monotonic_ms(), cost_usd=cost, recursive=bool(call.recursion_depth))
        for one in checked.violations:
            log_call(
                logging.WARNING,
                "guarantee_violated",
                call,
                guarantee=one.limit,
                kind=one.kind,
                used=one.used,
                limit=one.allowed,
                overridden=one.overridden,
            )
        if checked.allowed or self._shadowed(call, "guarantee_exceeded"):
            spending.reserved_usd += cost  # released when the call ends: other calls may be checked meanwhile
            spending.recursive_calls += bool(call.recursion_depth)
            call.notes.reserved_usd = cost
            if checked.overridden:
                self._publisher.event(
                    GuaranteeOverridden,
                    call.session_id,
                    workspace_id=call.workspace_id,
                    user_id=call.user_id,
                    **spending.last_override(),
                )
            until = spending.deadline_ms()
            overtime = any(one.limit == "max_duration_seconds" for one in checked.violations)
            if until is not None and not overtime and not call.shadow:
                call.deadline_ms = until if call.deadline_ms is None else min(call.deadline_ms, until)
            return None
        call.notes.plan = checked.plan
        return msgspec.structs.replace(refusal("guarantee_exceeded", checked.message), terminal=True)

    async def _permitted(self, call: GuardedCall, trust: TrustEntry | None) -> ResultError | None:
        """Check trust, and the permission plugin if there is one."""
        if trust is not None and is_refused(trust):
            code = str(trust.state)
            if self._shadowed(call, code):
                return None
            return msgspec.structs.replace(refusal(code, refusal_message(call.name, trust)), terminal=True)
        if call.approved is not None and not call.shadow and (must_ask(trust) or not call.approved):
            if must_ask(trust):
                self._publish_permission(PermissionRequested, call)
            return self._answered(call, trust, PermissionAnswer(call.approved, {"method": "user"}))
        if (refused := self._refused_by_circuit(call, trust)) is not None:
            return refused
        if trust is not None and await self._approved(call, trust):
            return None
        if self.permission is None or not self.permission.decides(trust):
            return self._unattended(call, trust)
        if call.shadow:
            # The platform's own plugin decides as it would without trustfold.
            if must_ask(trust):
                self._shadowed(call, "approval_required")
            trust = None
        if must_ask(trust):
            self._publish_permission(PermissionRequested, call)
        try:
            answer = await self.permission.decide(call.name, call.args, trust, call_id=call.call_id)
        except Exception as error:  # noqa: BLE001 - a plugin that cannot answer has not said yes
            log_call(logging.ERROR, "permission_failed", call, errorCode=type(error).__name__)
            why = redact_text(f"{type(error).__name__}: {error}"[:200])
            return refusal("denied", f"'{call.name}' was not permitted: the permission plugin failed: {why}")
        return self._answered(call, trust, answer)

    def _refused_by_circuit(self, call: GuardedCall, trust: TrustEntry | None) -> ResultError | None:
        """Return the refusal of an open circuit, where somebody would be asked about the call first."""
        asks = must_ask(trust) or (self.permission is not None and self.permission.decides(trust))
        if not asks or call.shadow or not self._settings.enforce_breakers:
            return None
        refusing = self._gate.refusing_circuit(call)
        if refusing is None:
            return None
        return msgspec.structs.replace(refusal("circuit_open", refusing.message), breaker_state=refusing.state)

    def _answered(self, call: GuardedCall, trust: TrustEntry | None, answer: PermissionAnswer) -> ResultError | None:
        """Publish a person's or plugin's answer to a permission request; return a refusal if it denies the call."""
        if must_ask(trust):
            call.notes.approval = {"needed": True, "granted": answer.allowed}
        if not answer.allowed:
            self._publisher.started(call, None)  # its start event gives the denial its key
        method = str(answer.info.get("method") or "plugin")[:256]
        self._publish_permission(PermissionResolved, call, granted=answer.allowed, method=method)
        if answer.allowed:
            return None
        why = str(answer.info.get("reason") or "the user or a policy said no")
        return msgspec.structs.replace(refusal("denied", f"'{call.name}' was not permitted: {why}"), terminal=True)

    async def _approved(self, call: GuardedCall, trust: TrustEntry) -> bool:
        """Whether an operator approved this call (`trust.approve`); consumes that approval.

        A call that is not made consumes none. Guards with a shared store consume each approval once among them; if that
        store cannot answer, the call is not approved.
        """
        if call.shadow or not must_ask(trust) or trust.record.scope == SESSION_SCOPE:
            return False
        now = self._clock.now_ms()
        view = self._backend.view
        held = held_by_danger(call, view, now)
        given = view.approvals(call.workspace_id, call.trust_keys, call.user_id, now, call.session_id, held)
        if not given or self._gate.refusing_circuit(call) is not None:
            return False
        claimed = call.notes.claimed = []
        for approval in (one for one in given if one.once):
            record = await self._coalescer.claim_once(f"approval:{approval.id}", call, approval.until_ms - now)
            if record is None:
                await self._release_approvals(call)
                return False
            claimed.append(record)
        call.notes.approval = {"needed": True, "granted": True, "by": "operator"}
        call.notes.approvals = tuple(approval.id for approval in given if approval.once)
        return True

    async def _release_approvals(self, call: GuardedCall) -> None:
        """Release the approvals that a call claimed but did not use."""
        if claimed := call.notes.claimed:
            call.notes.claimed, call.notes.approvals, call.notes.approval = [], (), None
            await self._coalescer.release(call, claimed)

    def _unattended(self, call: GuardedCall, trust: TrustEntry | None) -> ResultError | None:
        """Decide about a call that needs approval where nobody can be asked."""
        if trust is None or not must_ask(trust):
            return None
        call.notes.approval = {"needed": True, "key": trust.record.key, "reason": trust.record.reason}
        waived = self._settings.unattended == "allow" and trust.record.scope != DANGER_SCOPE
        if waived or self._shadowed(call, "approval_required"):
            return None
        message = f"{refusal_message(call.name, trust)}; nobody is here to approve it{way_out(trust)}"
        return refusal("approval_required", message)

    def _publish_permission(
        self, kind: type[PermissionRequested | PermissionResolved], call: GuardedCall, **fields: Any
    ) -> None:
        """Publish a permission request, or the answer to one."""
        who = {"workspace_id": call.workspace_id, "user_id": call.user_id}
        self._publisher.event(kind, call.session_id, **who, call_id=call.call_id, tool_name=call.name, **fields)

    def _shadowed(self, call: GuardedCall, code: str) -> bool:
        """Whether a refusal is only noted (shadow mode)."""
        if not call.shadow:
            return False
        call.notes.shadow.append(code)
        self._metrics.add(SHADOW, self._metrics.tool(call.name), code)
        log_call(logging.INFO, "tool_call_blocked", call, errorCode=code, shadow=True)
        return True

    async def _refuse(self, call: GuardedCall, error: ResultError, *, by_user: bool = False) -> ToolResult:
        """Answer a call without making it."""
        await self._release_approvals(call)
        await self._hooks.around(call, error.code)
        return self._refused(call, error, by_user=by_user)

    def _refused(self, call: GuardedCall, error: ResultError, *, by_user: bool = False) -> ToolResult:
        """Publish and return the answer to a call that was not made."""
        call.notes.refused = True
        self._publisher.refused(call, error.code, by_user=by_user)
        status = _STATUS_OF_REFUSAL.get(error.code, ResultStatus.ERROR)
        log_call(logging.WARNING, "tool_call_blocked", call, errorCode=error.code, breakerState=error.breaker_state)
        made = call.result(status, error=error)
        if call.notes.plan is not None:
            made.metadata["plan"] = call.notes.plan
        return made

    # --- the call itself ----------------------------------------------------------------------------------------------

    async def _make_call(
        self, call: GuardedCall, function: Function, spending: SpendingCounter | None, runner: Runner | None
    ) -> ToolResult:
        if call.deadline_ms is not None and call.deadline_ms <= self._clock.monotonic_ms():
            return await self._refuse(call, _spent(call))
        if self._settings.enforce_breakers:
            if call.shadow:
                refusing = self._gate.refusing_circuit(call)
                if refusing is not None:
                    self._shadowed(call, "circuit_open")
            else:
                refusing = await self._gate.enter(call)
                if refusing is not None:
                    error = refusal("circuit_open", refusing.message)
                    return await self._refuse(call, msgspec.structs.replace(error, breaker_state=refusing.state))
        policy = self._policy(call)
        call.notes.claimed = []  # its approvals are consumed
        self._publisher.started(call, self._time_allowed(call, policy))
        log_call(logging.DEBUG, "tool_call_start", call)
        made = AttemptResult()
        try:
            await self._executor.run(call, function, policy, runner, made)
            if made.too_late:
                self._gate.settle(call, failed=False)
                return self._refused(call, _spent(call))
            if is_stream(made.output):
                return self._return_stream(call, made, spending)
            digest = await self._digest(made)
            workspace = await self._workspace_after(call)
        except BaseException:
            if made.done and not is_stream(made.output):
                # The call was cut off after the tool had run for the last time: its result still counts.
                call.ended = self._conclude(call, made, spending, None)
            else:
                self._publish_cancelled(call, made.count)
            raise
        return self._conclude(call, made, spending, digest, workspace)

    async def _workspace_after(self, call: GuardedCall) -> str | None:
        """State of the workspace after a call; None if the tool has no function for it, or it fails."""
        if call.tool.workspace_digest is None:
            return None
        try:
            return await asyncio.to_thread(call.tool.workspace_digest)
        except Exception as error:  # noqa: BLE001 - the caller's own function must not break the call
            log_call(logging.ERROR, "workspace_digest_failed", call, errorCode=type(error).__name__)
            return None

    async def _digest(self, made: AttemptResult) -> Digest | None:
        """Digest and size of the output; computed in a thread if it is big."""
        if made.failure is not None or made.output is None:
            return None
        if not is_big(made.output):
            return self._publisher.digest_of(made.output)
        return await asyncio.to_thread(self._publisher.digest_of, made.output)

    def _publish_cancelled(self, call: GuardedCall, attempts: int) -> None:
        """Publish that a call was cut off, or raised a control-flow exception: neither success nor failure."""
        self._gate.settle(call, failed=False)
        took = self._clock.monotonic_ms() - call.began_ms
        self._publisher.finished(call, CallEnding(CallStatus.CANCELLED, attempts=attempts, duration_ms=took))

    def _return_stream(self, call: GuardedCall, made: AttemptResult, spending: SpendingCounter | None) -> ToolResult:
        """Return a generator to the caller; the call ends when the generator ends."""
        loop = asyncio.get_running_loop()
        call.stream = over = loop.create_future()

        def end(error: BaseException | None) -> None:
            if error is None:
                result = self._conclude(call, made, spending, None)
            elif is_control_flow(error, (*self._settings.passthrough, *call.tool.passthrough)):
                self._publish_cancelled(call, made.count)
                result = self._unfinished(call, made)
            else:
                made.failure = of_exception(error, call.program, now_ms=self._clock.now_ms())
                result = self._conclude(call, made, spending, None)
            with contextlib.suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(resolve, over, result)

        def leave() -> None:
            self._publish_cancelled(call, made.count)
            resolve(over, self._unfinished(call, made))

        def ended(error: BaseException | None, left: bool) -> None:  # noqa: FBT001 - see `streams.Ended`
            if not left:
                end(error)
                return
            # The garbage collector may call this, at any point of other code.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(leave)

        stream, made.output = relay(made.output, ended), None
        return call.result(ResultStatus.SUCCESS, output=stream, attempts=made.count, retried_by=tuple(made.retried))

    def _unfinished(self, call: GuardedCall, made: AttemptResult) -> ToolResult:
        """Settle a stream that was not read to its end: calls with the same key may run it again."""
        call.notes.cut_off = True
        message = "the stream was not read to its end"
        error = ResultError(code="cancelled", message=message, retriable=True, terminal=False)
        return call.result(ResultStatus.ERROR, error=error, attempts=made.count)

    def _policy(self, call: GuardedCall) -> RetryPolicy:
        if call.shadow:
            return _SINGLE_ATTEMPT
        policy = call.tool.retry or self._settings.retry
        if call.max_attempts is None and call.max_elapsed_ms is None:
            return policy
        return RetryPolicy(
            max_attempts=policy.max_attempts if call.max_attempts is None else call.max_attempts,
            base_ms=policy.base_ms,
            max_delay_ms=policy.max_delay_ms,
            max_elapsed_ms=policy.max_elapsed_ms if call.max_elapsed_ms is None else call.max_elapsed_ms,
        )

    def _time_allowed(self, call: GuardedCall, policy: RetryPolicy) -> float | None:
        """Milliseconds until no further attempt can succeed; None without a limit."""
        if call.deadline_ms is not None:
            return call.deadline_ms - self._clock.monotonic_ms() + 1000
        own = call.hints.timeout_ms if call.hints is not None and call.hints.timeout_ms else call.tool.timeout_ms
        return None if own is None else policy.max_elapsed_ms + own + 1000

    def _conclude(
        self,
        call: GuardedCall,
        made: AttemptResult,
        spending: SpendingCounter | None,
        digest: Digest | None,
        workspace: str | None = None,
    ) -> ToolResult:
        """Classify the end of a call and publish it."""
        failure = made.failure
        call.notes.cut_off = failure is not None and call.notes.began and may_have_happened(failure)
        status = _status_of(made)
        cost = _cost_of(call, made)
        if spending is not None:
            spending.cost_usd += cost or 0.0
            spending.completed += failure is None
        self._gate.settle(call, failed=failure is not None and not failure.answer and not failure.rejected)
        if failure is not None and failure.reclassified is not None:
            log_call(
                logging.INFO,
                "tool_call_reclassified",
                call,
                errorCode=failure.code,
                fromSeverity=failure.reclassified,
                severity=failure.severity,
            )
        ending = CallEnding(
            CallStatus.REJECTED if failure is not None and failure.rejected else CallStatus(str(status)),
            failure=failure,
            digest=digest,
            attempts=made.count,
            duration_ms=self._clock.monotonic_ms() - call.began_ms,
            cost_usd=cost,
            workspace_digest=workspace,
        )
        self._publisher.finished(call, ending)
        refusing = self._gate.refusing_circuit(call) if failure is not None else None
        return call.result(
            status,
            output=made.output,
            error=failure.error(refusing.state if refusing is not None else None) if failure is not None else None,
            attempts=made.count,
            retried_by=tuple(made.retried),
            exception=failure.exception if failure is not None else None,
        )

    def _count_and_log(self, call: GuardedCall, result: ToolResult) -> None:
        scope = "cached" if result.from_cache else "refused" if result.refused else "called"
        tool, status = self._metrics.tool(call.name), str(result.status)
        self._metrics.add(CALLS, tool, status, scope)
        self._metrics.observe(result.duration_ms, tool, status)
        if not LOGGER.isEnabledFor(logging.DEBUG):
            return
        log_call(
            logging.DEBUG,
            "tool_call_end",
            call,
            state=status,
            attempt=result.attempts,
            elapsedMs=round(result.duration_ms, 3),
            fromCache=result.from_cache,
            errorCode=result.error.code if result.error is not None else None,
            retriable=result.error.retriable if result.error is not None else None,
        )


def _status_of(made: AttemptResult) -> ResultStatus:
    failure = made.failure
    if failure is None:
        return ResultStatus.SUCCESS
    if made.gave_up and made.count > 1:
        return ResultStatus.RETRY_EXHAUSTED
    if failure.timed_out and failure.http_status is None:
        return ResultStatus.TIMEOUT
    return ResultStatus.RETRIABLE_ERROR if failure.retriable else ResultStatus.ERROR


def _spent(call: GuardedCall) -> ResultError:
    message = f"the deadline of '{call.name}' passed before it ran; it was not called"
    return msgspec.structs.replace(refusal("deadline_exceeded", message), terminal=True)


def _expected_cost(call: GuardedCall) -> float:
    """Expected cost of a call in US dollars: the caller's estimate, else the tool's registered cost."""
    if call.cost_usd is not None:
        return call.cost_usd
    own = call.tool.cost_usd
    return float(own) if isinstance(own, int | float) else 0.0


def _cost_of(call: GuardedCall, made: AttemptResult) -> float | None:
    """Cost of a call in US dollars: the tool's cost function, the result's own figure, or the expected cost."""
    cost: Any = call.tool.cost_usd
    if callable(cost):
        try:
            cost = cost(made.output)
        except Exception as error:  # noqa: BLE001 - a tool's own reckoning must not break its call
            log_call(logging.ERROR, "cost_failed", call, errorCode=type(error).__name__)
            return call.cost_usd
    elif call.cost_usd is not None:
        cost = None
    if cost is None and type(made.output) is dict:
        cost = made.output.get("cost_usd")
    if not isinstance(cost, int | float) or isinstance(cost, bool):
        return call.cost_usd
    try:
        number = float(cost)
    except (ArithmeticError, ValueError):  # e.g. 10**400
        return call.cost_usd
    return number if 0 <= number < 1e12 else call.cost_usd
