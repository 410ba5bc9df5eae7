"""Makes the call, as often as it is worth it (seed 3 §1.4; design 4, Retry).

An attempt may be followed by another when the failure might pass, the call may be made twice, attempts and time are
left, and no circuit of the call is open. The probe of a half-open circuit has one attempt. Delays are drawn with full
jitter, and are never shorter than the answer's `Retry-After`.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from ..schemas.tool_envelopes import RetryRecord
from .breaker import BreakerGate
from .clock import Clock
from .failure import CallFailure, cut_off, of_exception, of_result
from .hooks import Hooks
from .log import say
from .metrics import RETRIES, Metrics
from .request import Call
from .settings import RetryPolicy
from .tracing import Tracing

Function = Callable[..., Any]
Runner = Callable[[Function, dict[str, Any]], Awaitable[Any]]


@dataclass(slots=True)
class Attempts:
    """What became of a call.

    Attributes:
        count: attempts made.
        output: what the last one returned.
        failure: of the last one; None on success.
        retried: attempts that were followed by another.
        gave_up: it might have been tried once more, but attempts or time were used up, or a circuit opened.
        barred: it might have passed, but the call may not be made twice.
    """

    count: int = 0
    output: Any = None
    failure: CallFailure | None = None
    retried: list[RetryRecord] = field(default_factory=list)
    gave_up: bool = False
    barred: bool = False


def delay_ms(policy: RetryPolicy, retry: int, draw: Callable[[float, float], float] = random.uniform) -> float:
    """Milliseconds before a retry, the first one being 0: anything from 0 up to its bound, all equally likely."""
    return draw(0.0, min(policy.max_delay_ms, policy.base_ms * 2.0**retry))


class Executor:
    """Makes calls for one guard."""

    def __init__(
        self,
        clock: Clock,
        gate: BreakerGate,
        hooks: Hooks,
        metrics: Metrics,
        tracing: Tracing,
        draw: Callable[[float, float], float],
    ) -> None:
        """Draw delays with `draw`, which is `random.uniform` outside of tests."""
        self._clock = clock
        self._gate = gate
        self._hooks = hooks
        self._metrics = metrics
        self._tracing = tracing
        self._draw = draw

    async def run(self, call: Call, function: Function, policy: RetryPolicy, runner: Runner | None) -> Attempts:
        """Make a call until it succeeds or is not worth another attempt."""
        made = Attempts()
        while True:
            made.count += 1
            began = self._clock.monotonic_ms()
            await self._hooks.before(call, made.count)
            made.output, made.failure = await self._attempt(call, function, runner)
            failure = made.failure
            await self._hooks.after(call, made.count, "success" if failure is None else failure.code)
            if failure is None or not self._is_worth_another(call, failure, made, policy):
                return made
            wait = max(delay_ms(policy, made.count - 1, self._draw), failure.retry_after_ms)
            if not self._fits(call, policy, wait):
                made.gave_up = True
                return made
            latency = self._clock.monotonic_ms() - began
            made.retried.append(
                RetryRecord(attempt=made.count, delay_ms=wait, reason_code=failure.code, latency_ms=latency)
            )
            self._tell(call, failure, made.count, wait)
            with self._tracing.retry(call, made.count, wait):
                await self._clock.sleep(wait)
            if self._gate.is_open(call):
                made.gave_up = True
                return made

    def _is_worth_another(self, call: Call, failure: CallFailure, made: Attempts, policy: RetryPolicy) -> bool:
        if not failure.retriable:
            return False
        if not call.may_repeat:
            made.barred = True
            return False
        if call.settled_scopes:  # it is a probe
            return False
        if made.count >= policy.max_attempts or self._gate.is_open(call):
            made.gave_up = True
            return False
        return True

    def _fits(self, call: Call, policy: RetryPolicy, wait: float) -> bool:
        """Whether an attempt after a wait would begin in time."""
        then = self._clock.monotonic_ms() + wait
        if then - call.began_ms > policy.max_elapsed_ms:
            return False
        return call.deadline_ms is None or then < call.deadline_ms

    async def _attempt(self, call: Call, function: Function, runner: Runner | None) -> tuple[Any, CallFailure | None]:
        """What one attempt returned, and how it failed."""
        limit = self._limit(call)
        if limit is not None and limit <= 0:
            return None, cut_off(0)
        scope = asyncio.timeout(limit / 1000) if limit is not None else None
        try:
            if scope is None:
                output = await _invoke(function, call.args, runner)
            else:
                async with scope:
                    output = await _invoke(function, call.args, runner)
        except Exception as error:  # noqa: BLE001 - whatever a tool raises is its answer
            if scope is not None and isinstance(error, TimeoutError) and scope.expired():
                return None, cut_off(limit or 0)
            return None, of_exception(error, dangerous=call.dangerous, now_ms=self._clock.now_ms())
        failure = of_result(output, now_ms=self._clock.now_ms())
        if failure is not None and call.dangerous:
            failure = of_result(output, dangerous=True, now_ms=self._clock.now_ms())
        return output, failure

    def _limit(self, call: Call) -> float | None:
        """Milliseconds that an attempt may take: its own limit, and what the deadline leaves."""
        hinted = call.hints.timeout_ms if call.hints is not None else None
        own = hinted if hinted is not None else call.tool.timeout_ms
        if call.deadline_ms is None:
            return own
        left = call.deadline_ms - self._clock.monotonic_ms()
        return left if own is None else min(own, left)

    def _tell(self, call: Call, failure: CallFailure, attempt: int, wait: float) -> None:
        self._metrics.add(RETRIES, self._metrics.tool(call.name), self._metrics.reason(failure.code))
        say(
            logging.INFO,
            "tool_call_retry",
            requestId=call.request_id,
            toolName=call.name,
            sessionKey=call.session_id,
            attempt=attempt,
            delayMs=round(wait, 1),
            errorCode=failure.code,
            retriable=True,
        )


async def _invoke(function: Function, args: dict[str, Any], runner: Runner | None) -> Any:
    """Call a function of any kind; a plain one runs in a thread, as it may block."""
    if inspect.iscoroutinefunction(function):
        return await function(**args)
    if runner is not None:
        return await runner(function, args)
    output = await asyncio.to_thread(function, **args)
    return await output if inspect.isawaitable(output) else output
