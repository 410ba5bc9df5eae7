"""Retries a tool call until success, deadline or open circuit (docs/design/guard.md#retries).

The probe of a half-open circuit has one attempt. A plain function that exceeds its time limit cannot be stopped: it
continues in its thread, and the call is not retried beside it.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import CoroutineType
from typing import Any

from ..schemas.tool_envelopes import ResultStatus, RetryRecord
from .clock import GuardClock
from .errors import Passthrough, is_control_flow
from .failure import CallFailure, fits, of_exception, of_result, timeout_failure
from .interface import GuardServices
from .log import log_call
from .metrics import RETRIES
from .nesting import await_nested
from .request import GuardedCall
from .result import ToolResult
from .settings import RetryPolicy
from .streams import is_stream
from .tool_threads import Function, FunctionOutcome, Runner, run_in_thread


@dataclass(slots=True)
class AttemptResult:
    """Result of the attempts of one call.

    Attributes:
        count: attempts made.
        output: return value of the last attempt.
        failure: failure of the last attempt; None on success.
        done: no further attempt follows.
        retried: attempts that were followed by another.
        gave_up: a retry was possible, but attempts or time were used up, or a circuit opened.
        too_late: a hook before the first attempt took until after the deadline, so that there was none.
    """

    count: int = 0
    output: Any = None
    failure: CallFailure | None = None
    done: bool = False
    retried: list[RetryRecord] = field(default_factory=list)
    gave_up: bool = False
    too_late: bool = False


def delay_ms(policy: RetryPolicy, retry: int, draw: Callable[[float, float], float] = random.uniform) -> float:
    """Return the delay before a retry in milliseconds, drawn evenly from 0 to its bound; the first retry is 0."""
    return draw(0.0, min(policy.max_delay_ms, policy.base_ms * 2.0**retry))


class AttemptRunner:
    """Runs the attempts of calls of one guard."""

    def __init__(self, services: GuardServices, draw: Callable[[float, float], float]) -> None:
        """Use `draw` to draw delays; `random.uniform` outside of tests."""
        self._passthrough = services.settings.passthrough
        self._clock = services.clock
        self._gate = services.gate
        self._hooks = services.hooks
        self._metrics = services.metrics
        self._tracing = services.tracing
        self._draw = draw

    async def run(
        self, call: GuardedCall, function: Function, policy: RetryPolicy, runner: Runner | None, made: AttemptResult
    ) -> None:
        """Attempt a call until success or until no retry is allowed; the result is written into `made`.

        Raises:
            BaseException: an exception that is control flow, not a failure; see `errors.is_control_flow`.
        """
        while True:
            made.count += 1
            began = self._clock.monotonic_ms()
            await self._hooks.before(call, made.count)
            if made.count == 1 and call.deadline_ms is not None and call.deadline_ms <= self._clock.monotonic_ms():
                made.count, made.too_late = 0, True
                await self._hooks.after(call, 1, "deadline_exceeded")
                return
            try:
                made.output, made.failure = await self._attempt(call, function, runner)
            except (Exception, asyncio.CancelledError):
                await self._hooks.after(call, made.count, "cancelled")
                raise
            failure = made.failure
            made.done = failure is None or not self._may_retry(call, failure, made, policy)
            await self._hooks.after(call, made.count, "success" if failure is None else failure.code)
            if failure is None or made.done:
                return
            wait = max(delay_ms(policy, made.count - 1, self._draw), failure.retry_after_ms)
            made.done = True  # until the next attempt begins
            if not self._fits(call, policy, wait):
                made.gave_up = True
                return
            latency = self._clock.monotonic_ms() - began
            made.retried.append(
                RetryRecord(attempt=made.count, delay_ms=wait, reason_code=failure.code, latency_ms=latency)
            )
            self._report_retry(call, failure, made.count, wait)
            with self._tracing.retry(call, made.count, wait):
                await self._clock.sleep(wait)
            if self._gate.refusing_circuit(call) is not None:
                made.gave_up = True
                return
            made.done = False

    def _may_retry(self, call: GuardedCall, failure: CallFailure, made: AttemptResult, policy: RetryPolicy) -> bool:
        if not failure.retriable or not call.may_repeat or (call.running is not None and not call.running.done()):
            return False
        if call.settled_scopes:  # it is a probe
            return False
        if made.count >= policy.max_attempts or self._gate.refusing_circuit(call) is not None:
            made.gave_up = True
            return False
        return True

    def _fits(self, call: GuardedCall, policy: RetryPolicy, wait: float) -> bool:
        """Whether an attempt after this wait would start before the deadline and within the policy's elapsed time."""
        then = self._clock.monotonic_ms() + wait
        if then - call.began_ms > policy.max_elapsed_ms:
            return False
        return call.deadline_ms is None or then < call.deadline_ms

    async def _attempt(
        self, call: GuardedCall, function: Function, runner: Runner | None
    ) -> tuple[Any, CallFailure | None]:
        """Run one attempt; return its output and its failure."""
        limit = attempt_limit_ms(call, self._clock)
        call.running = None
        call.notes.began = call.notes.began or limit is None or limit > 0
        if limit is None:
            try:
                outcome = await invoke(function, call.args, runner, call)
            except Exception as error:  # noqa: BLE001 - whatever a tool raises is its answer
                outcome = FunctionOutcome(None, error)
        elif limit <= 0:
            return None, timeout_failure(0)
        else:
            scope = asyncio.timeout(limit / 1000)
            try:
                async with scope:
                    # A function in the caller's own thread cannot be cut off.
                    outcome = await invoke(function, call.args, None, call)
            except Exception as error:  # noqa: BLE001 - as above
                if isinstance(error, TimeoutError) and scope.expired():
                    return None, timeout_failure(limit)
                outcome = FunctionOutcome(None, error)
        if outcome.error is not None:
            if is_control_flow(outcome.error, (*self._passthrough, *call.tool.passthrough)):
                raise outcome.error
            failure = of_exception(outcome.error, call.program, now_ms=self._clock.now_ms())
            if type(outcome.error) is TypeError and not fits(function, call.args):
                failure = failure._replace(rejected=True, retriable=False)
            return None, failure
        return outcome.output, _reported(call, outcome.output, self._clock.now_ms())

    def _report_retry(self, call: GuardedCall, failure: CallFailure, attempt: int, wait: float) -> None:
        self._metrics.add(RETRIES, self._metrics.tool(call.name), self._metrics.reason(failure.code))
        log_call(
            logging.INFO,
            "tool_call_retry",
            call,
            attempt=attempt,
            delayMs=round(wait, 1),
            errorCode=failure.code,
            retriable=True,
        )


def attempt_limit_ms(call: GuardedCall, clock: GuardClock) -> float | None:
    """Time limit of the next attempt in milliseconds: its own limit and what the deadline leaves; None: unlimited."""
    hinted = call.hints.timeout_ms if call.hints is not None else None
    own = hinted if hinted is not None else call.tool.timeout_ms
    if call.deadline_ms is None:
        return own
    left = call.deadline_ms - clock.monotonic_ms()
    return left if own is None else min(own, left)


def failure_of_thread(call: GuardedCall, outcome: FunctionOutcome, now_ms: int) -> CallFailure | None:
    """Failure of a function that ended after its call was given up; None if it succeeded."""
    if outcome.error is None:
        return _reported(call, outcome.output, now_ms)
    return of_exception(outcome.error, call.program, now_ms=now_ms)


def _reported(call: GuardedCall, output: Any, now_ms: int) -> CallFailure | None:
    """Failure that a returned value reports; None if it reports none."""
    if is_stream(output):
        return None
    failure = of_result(output, now_ms=now_ms)  # most results report none, whatever the program
    return failure if failure is None else of_result(output, call.program, now_ms=now_ms)


async def invoke(
    function: Function, args: dict[str, Any], runner: Runner | None, call: GuardedCall | None = None
) -> FunctionOutcome:
    """Call a function of any kind; a plain function may block, so it runs in a thread, which is stored on `call`."""
    if inspect.iscoroutinefunction(function):
        return FunctionOutcome(await await_nested(function, args))
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        return FunctionOutcome(function(**args))  # creating a coroutine runs none of its code yet
    if runner is not None:
        return await runner(function, args)
    thread = run_in_thread(function, args)
    if call is not None:
        call.running = thread
    outcome = await asyncio.wrap_future(thread)
    return FunctionOutcome(await outcome.output) if outcome.error is None and is_awaitable(outcome.output) else outcome


def is_awaitable(output: object) -> bool:
    """Whether a result can be awaited; checks the type only, as instances may have misleading attributes."""
    kind = type(output)
    return kind is CoroutineType or hasattr(kind, "__await__")


async def call_unguarded(
    tool_name: str, function: Function, args: Mapping[str, Any], runner: Runner | None, passthrough: Passthrough
) -> ToolResult:
    """Kill switch: call a function unguarded and once, publish nothing, and return its result.

    Raises:
        BaseException: control flow instead of a failure.
    """
    made = ToolResult(request_id="", tool_name=tool_name, status=ResultStatus.SUCCESS, attempts=1)
    try:
        made.output, error = await invoke(function, dict(args), runner)
    except Exception as raised:  # noqa: BLE001 - it is raised again where the caller asks for a plain value
        error = raised
    if error is not None:
        if is_control_flow(error, passthrough):
            raise error
        made.status, made.exception, made.error = ResultStatus.ERROR, error, of_exception(error).error()
    return made
