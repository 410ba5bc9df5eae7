"""Execution of a guarded call: its attempts, and its end, classified and published."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import Any

from ..schemas.tool_envelopes import ResultError, ResultStatus
from ..schemas.vocabulary import CallStatus
from .attempts import AttemptResult, AttemptRunner
from .clock import resolve
from .errors import is_control_flow
from .failure import of_exception
from .idempotency.unknown import may_have_happened
from .interface import GuardServices
from .json_view import is_big
from .log import log_call
from .publisher import CallEnding, Digest
from .refusals import RefusalWriter
from .request import GuardedCall
from .result import ToolResult, deadline_passed
from .settings import RetryPolicy
from .streams import is_stream, relay
from .tool_threads import Function, Runner

_SINGLE_ATTEMPT = RetryPolicy(max_attempts=1)


class ExecutionStep:
    """Last step of a call that nothing refused."""

    def __init__(self, services: GuardServices, refusals: RefusalWriter, runner: AttemptRunner) -> None:
        """Use `runner` to run attempts."""
        self._settings = services.settings
        self._clock = services.clock
        self._publisher = services.publisher
        self._gate = services.gate
        self._refusals = refusals
        self._attempts = runner

    async def run(self, call: GuardedCall, function: Function, runner: Runner | None) -> ToolResult:
        """Make a call and return its result.

        Raises:
            BaseException: control flow instead of a failure.
        """
        policy = self._policy(call)
        call.notes.claimed = []  # its approvals are consumed
        self._publisher.started(call, self._time_allowed(call, policy))
        log_call(logging.DEBUG, "tool_call_start", call)
        made = AttemptResult()
        try:
            await self._attempts.run(call, function, policy, runner, made)
            if made.too_late:
                self._gate.settle(call, failed=False)
                return self._refusals.refused(call, deadline_passed(call.name))
            if is_stream(made.output):
                return self._return_stream(call, made)
            digest = await self._digest(made)
            workspace = await self._workspace_after(call)
        except BaseException:
            if made.done and not is_stream(made.output):
                # The call was cut off after the tool had run for the last time: its result still counts.
                call.ended = self._conclude(call, made, None)
            else:
                self._publish_cancelled(call, made.count)
            raise
        return self._conclude(call, made, digest, workspace)

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

    def _return_stream(self, call: GuardedCall, made: AttemptResult) -> ToolResult:
        """Return a generator to the caller; the call ends when the generator ends."""
        loop = asyncio.get_running_loop()
        call.stream = over = loop.create_future()

        def end(error: BaseException | None) -> None:
            if error is None:
                result = self._conclude(call, made, None)
            elif is_control_flow(error, (*self._settings.passthrough, *call.tool.passthrough)):
                self._publish_cancelled(call, made.count)
                result = self._unfinished(call, made)
            else:
                made.failure = of_exception(error, call.program, now_ms=self._clock.now_ms())
                result = self._conclude(call, made, None)
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
        digest: Digest | None,
        workspace: str | None = None,
    ) -> ToolResult:
        """Classify the end of a call and publish it."""
        failure = made.failure
        call.notes.cut_off = failure is not None and call.notes.began and may_have_happened(failure)
        status = _status_of(made)
        cost = _cost_of(call, made)
        if call.spending is not None:
            call.spending.cost_usd += cost or 0.0
            call.spending.completed += failure is None
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


def _status_of(made: AttemptResult) -> ResultStatus:
    failure = made.failure
    if failure is None:
        return ResultStatus.SUCCESS
    if made.gave_up and made.count > 1:
        return ResultStatus.RETRY_EXHAUSTED
    if failure.timed_out and failure.http_status is None:
        return ResultStatus.TIMEOUT
    return ResultStatus.RETRIABLE_ERROR if failure.retriable else ResultStatus.ERROR


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
