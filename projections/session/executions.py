"""Recursive executions: limits on their cost, duration and recursion, and results that need review.

See docs/design/semantics.md#guarantees and docs/design/semantics.md#confidence.

An execution begins with a session's first recursive call, or when the session is given limits, and ends with the
session. Limits apply only to executions: a plain conversation may last for hours (docs/subsystems/behaviour.md). A
warning is emitted at 80 % of a limit, a violation with a degradation plan beyond the limit; each once, until an
override sets a new limit.
"""

from __future__ import annotations

from typing import NamedTuple

from ...rules.rules import GuaranteeRules
from ...schemas import events as ev
from ...schemas.decisions import ConfidenceLow, DegradationPlan, GuaranteeViolated, GuaranteeWarned
from ..confidence import WEIGHTS, tool_success
from ..emitter import MAX_CAUSES
from .records import MAX_OVERRIDES, EventContext, GuaranteeRecord, SessionRecord

# Names of the limits, in the order used for all tuples and bits in this file
GUARANTEES = ("max_cost_usd", "max_duration_seconds", "max_recursive_calls")

_VIOLATED = len(GUARANTEES)  # Offset of the bits of violations in `emitted`, after those of the warnings

_TOLERANCE = 1e-9
_WORDS = (("cost", "cost limit"), ("time", "time limit"), ("recursive calls", "limit of recursive calls"))
_ADVICE = (
    ("narrow the request, or use a cheaper model for the recursive calls", "override the cost limit and confirm it"),
    ("split the request into smaller ones", "override the time limit and confirm it"),
    (
        "ask a narrower question that needs fewer recursive calls",
        "override the limit of recursive calls and confirm it",
    ),
)


def limits_of(record: GuaranteeRecord, rules: GuaranteeRules) -> tuple[float, float, float]:
    """Limits of an execution in US dollars, seconds and recursive calls: overridden, else those of the rules."""
    cost, duration, calls = record.limits
    return (
        rules.max_cost_usd if cost is None else cost,
        rules.max_duration_seconds if duration is None else duration,
        rules.max_recursive_calls if calls is None else calls,
    )


def spent_by(record: GuaranteeRecord, at: int) -> tuple[float, float, float]:
    """US dollars, seconds and recursive calls spent by an execution at a time in milliseconds."""
    return record.cost_usd, max(0, at - record.started_at) / 1000, float(record.recursive_calls)


def is_beyond(used: float, limit: float) -> bool:
    """Whether a limit is exceeded; reaching it exactly is allowed."""
    return used > limit + _TOLERANCE


def call_started(event: ev.ToolCallStarted, ctx: EventContext) -> None:
    """Count a call that starts; a recursive one begins an execution."""
    state, rules = ctx.state, ctx.rules.guarantees
    record = state.guarantees
    if record is None:
        if rules.sessions == "off" or (rules.sessions == "recursive" and not event.recursion_depth):
            return
        record = state.guarantees = GuaranteeRecord(started_at=ctx.emit.at)
    if event.recursion_depth:
        record.recursive_calls += 1
    _judge(record, ctx)


def call_finished(event: ev.ToolCallFinished, ctx: EventContext, *, succeeded: bool) -> None:
    """Add the cost and success of a finished call to the execution; where all sessions are limited it may begin one."""
    state = ctx.state
    record = state.guarantees
    if record is None:
        if ctx.rules.guarantees.sessions != "all":
            return
        record = state.guarantees = GuaranteeRecord(started_at=ctx.emit.at - int(event.duration_ms or 0))
    record.cost_usd += event.cost_usd or 0.0
    record.completed += succeeded
    _judge(record, ctx)


def overridden(event: ev.GuaranteeOverridden, ctx: EventContext) -> None:
    """Apply an override once: the limits it names hold from now on, for this execution."""
    state = ctx.state
    named = [getattr(event.limits, name) for name in GUARANTEES]
    if ctx.rules.guarantees.sessions == "off" or all(limit is None for limit in named):
        return
    record = state.guarantees
    if record is None:
        record = state.guarantees = GuaranteeRecord(started_at=ctx.emit.at)
    if event.id in record.overrides:
        return
    record.overrides.append(event.id)
    del record.overrides[:-MAX_OVERRIDES]
    for number, limit in enumerate(named):
        if limit is not None:
            record.limits[number] = float(limit)
            record.emitted &= ~(1 << number | 1 << number + _VIOLATED)
    _judge(record, ctx)


class _LimitUse(NamedTuple):
    """Use of one limit: its index in GUARANTEES, the used amount and the limit."""

    number: int
    used: float
    limit: float


def _judge(record: GuaranteeRecord, ctx: EventContext) -> None:
    """Emit each warning and violation that has been reached, once."""
    rules = ctx.rules.guarantees
    limits = limits_of(record, rules)
    for number, (used, limit) in enumerate(zip(spent_by(record, ctx.emit.at), limits, strict=True)):
        warned, violated = 1 << number, 1 << number + _VIOLATED
        if is_beyond(used, limit):
            if not record.emitted & violated:
                record.emitted |= warned | violated
                _emit(record, _LimitUse(number, used, limit), ctx, violated=True)
        elif limit and used >= rules.warn_at * limit - _TOLERANCE and not record.emitted & warned:
            record.emitted |= warned
            _emit(record, _LimitUse(number, used, limit), ctx, violated=False)


def _emit(record: GuaranteeRecord, measured: _LimitUse, ctx: EventContext, *, violated: bool) -> None:
    state, emit = ctx.state, ctx.emit
    number, used, limit = measured
    figures = f"{_figure(number, used)} of {_figure(number, limit)}"
    what, limit_name = _WORDS[number]
    fields = {
        "session_id": ctx.session_id,
        "workspace_id": state.workspace_id or None,
        "user_id": state.user_id or None,
        "caused_by": tuple(dict.fromkeys([*record.overrides, emit.cause]))[-MAX_CAUSES:],
        "guarantee": GUARANTEES[number],
        "used": round(used, 6),
        "limit": limit,
    }
    if not violated:
        message = f"Most of the {limit_name} is spent: {figures}"
        emit.decision("suggestions", ctx.session_id, GuaranteeWarned, message=message, **fields)
        return
    message = f"The {limit_name} is exceeded: {figures}"
    plan = _plan(record, emit.at, number, f"Stopped because the {what} went beyond its limit ({figures}).")
    emit.decision("suggestions", ctx.session_id, GuaranteeViolated, message=message, plan=plan, **fields)


def _plan(record: GuaranteeRecord, at: int, number: int, why: str) -> DegradationPlan:
    """Degradation plan: the basis of the partial result, recommendations, and the amounts spent."""
    cost, duration, calls = spent_by(record, at)
    done = record.completed
    basis = f"rests on the {done} calls that succeeded" if done > 1 else "rests on one call" if done else "is empty"
    return DegradationPlan(
        partial_result=f"{why} The result so far {basis}.",
        recommendations=("use the partial result as it is", *_ADVICE[number]),
        cost_usd=round(cost, 6),
        duration_s=round(duration, 3),
        recursive_calls=int(calls),
    )


def _figure(number: int, value: float) -> str:
    """Amount with its unit as text: `$0.81`, `240 s`, `16`."""
    if number == 0:
        return f"${value:.2f}" if not value or value >= 0.01 else f"${value:.2g}"
    return f"{value:g} s" if number == 1 else f"{value:g}"


def synthesis_completed(event: ev.SynthesisCompleted, ctx: EventContext) -> None:
    """Flag a synthesis whose confidence, or that of a result in it, lies below the threshold."""
    state = ctx.state
    low = ctx.rules.confidence.low
    used = [result.confidence for result in event.results if result.included is not False]
    below = [confidence for confidence in used if confidence < low]
    if event.confidence >= low and not below:
        return
    if event.confidence < low:
        confidence, what = event.confidence, "The result"
    else:
        confidence, what = min(below), f"{len(below)} of {len(used)} results that went into it"
    ctx.emit.decision(
        "suggestions",
        event.session_id,
        ConfidenceLow,
        session_id=event.session_id,
        workspace_id=state.workspace_id or None,
        user_id=state.user_id or None,
        caused_by=(event.id,),
        confidence=confidence,
        threshold=low,
        strategy=event.strategy,
        signals=_signals(state, event),
        message=f"{what} should be reviewed: confidence {confidence:.0%}, below {low:.0%}",
    )


def _signals(state: SessionRecord, event: ev.SynthesisCompleted) -> dict[str, float]:
    """Signals given by the publisher; `tool_success` is computed from the session's calls if it is missing."""
    given = event.signals
    signals = {name: value for name in WEIGHTS if given is not None and (value := getattr(given, name)) is not None}
    judged = state.calls - state.neutral_calls
    if judged and "tool_success" not in signals:
        signals["tool_success"] = round(tool_success(judged - state.failed_calls, judged), 4)
    return signals
