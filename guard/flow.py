"""Flow of one guarded call from request to result (docs/guard.md, What happens in one call).

Each step answers a call, or passes it to the next one: limits, approval, idempotency, circuits, execution. In shadow
mode every step is computed and its effect is noted on the result and counted, but the call is made once, unchanged.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

import msgspec

from ..schemas.vocabulary import CallStatus
from .approvals import ApprovalStep
from .attempts import AttemptRunner
from .execution import ExecutionStep
from .idempotency.coalescer import CallCoalescer
from .interface import GuardServices
from .limits import LimitStep
from .log import LOGGER, log_call
from .metrics import CALLS
from .publisher import CallEnding
from .refusals import RefusalWriter
from .request import GuardedCall
from .result import ToolResult, deadline_passed, refusal
from .state_cache import TrustEntry
from .tool_threads import Function, Runner


class CallFlow:
    """Runs the flow of calls of one guard.

    Attributes:
        approval: the step that asks the platform's permission plugin.
    """

    def __init__(
        self,
        services: GuardServices,
        coalescer: CallCoalescer,
        attempts: AttemptRunner,
        trust: Callable[[GuardedCall], TrustEntry | None],
    ) -> None:
        """Use `coalescer` to coalesce calls, `attempts` to run them, and `trust` for the strictest trust of a call."""
        self._settings = services.settings
        self._clock = services.clock
        self._publisher = services.publisher
        self._gate = services.gate
        self._hooks = services.hooks
        self._metrics = services.metrics
        self._tracing = services.tracing
        self._refusals = RefusalWriter(services, coalescer.settler)
        self._limits = LimitStep(services, self._refusals)
        self.approval = ApprovalStep(services, self._refusals, coalescer, trust)
        self._coalescer = coalescer
        self._execution = ExecutionStep(services, self._refusals, attempts)

    async def run(self, call: GuardedCall, function: Function, *, runner: Runner | None = None) -> ToolResult:
        """Run one call from request to result.

        Raises:
            BaseException: control flow instead of a failure: the caller's cancellation, an interrupt; see
                `errors.is_control_flow`.
        """
        notes = call.notes
        with self._tracing.call(call) as span:
            notes.traceparent = self._tracing.traceparent(span, call)
            try:
                result = await self._answer(call, function, runner)
            finally:  # control-flow exceptions pass here, too
                await self._refusals.release_approvals(call)
                self._limits.settle(call)
            result.duration_ms = self._clock.monotonic_ms() - call.began_ms
            if notes.shadow:
                result.metadata["shadow"] = notes.shadow
            if notes.approval is not None:
                result.metadata["approval"] = notes.approval
            if notes.cut_off and notes.key_fingerprint is not None and not call.may_repeat:
                result.metadata["outcome"] = "unknown"
            self._limits.uncount(call, result)
            self._count_and_log(call, result)
            self._tracing.ended(span, call, result)
        return result

    async def _answer(self, call: GuardedCall, function: Function, runner: Runner | None) -> ToolResult:
        """Take a call through limits, approval and idempotency."""
        error = self._limits.check(call)
        if error is None:
            error = await self.approval.check(call)
        if error is not None:
            return await self._refusals.refuse(call, error)
        if call.given_key is None:
            call.given_key = self._hooks.key_of(call)
        key = self._coalescer.key_for(call, function)

        async def make_call() -> ToolResult:
            return await self._make_call(call, function, runner)

        if key is None or call.shadow:
            return await make_call()
        result = await self._coalescer.coalesce(call, key, make_call)
        await self._refusals.release_approvals(call)  # another run has answered
        if result.from_cache or (result.attempts == 0 and not call.notes.refused):
            await self._hooks.around(call, "cached" if result.from_cache else result.error.code if result.error else "")
            if result.from_cache:
                status = CallStatus.SUCCESS if result.ok else CallStatus(str(result.status))
                self._publisher.finished(call, CallEnding(status, from_cache=True))
            else:
                self._publisher.refused(call, result.error.code if result.error is not None else "")
        return result

    async def _make_call(self, call: GuardedCall, function: Function, runner: Runner | None) -> ToolResult:
        """Take a call through circuits and make it."""
        if call.deadline_ms is not None and call.deadline_ms <= self._clock.monotonic_ms():
            return await self._refusals.refuse(call, deadline_passed(call.name))
        if self._settings.enforce_breakers:
            if call.shadow:
                if self._gate.refusing_circuit(call) is not None:
                    self._refusals.shadowed(call, "circuit_open")
            elif (refusing := await self._gate.enter(call)) is not None:
                error = refusal("circuit_open", refusing.message)
                return await self._refusals.refuse(call, msgspec.structs.replace(error, breaker_state=refusing.state))
        return await self._execution.run(call, function, runner)

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
