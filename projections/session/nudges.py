"""Nudges: when a pattern causes one, how strong it is, and whether it was effective (docs/design/semantics.md#nudges).

minor → gentle, moderate → direct, severe → interrupt; limited to the allowed level, never dropped. The same streak is
not nudged twice within the cooldown unless it has become more severe; an ignored nudge raises the next one by a step.
"""

from __future__ import annotations

from collections.abc import Iterable

from ...rules.behaviour import filled
from ...rules.rules import Rules
from ...schemas.decisions import NudgeIssued, NudgeJudged
from ...schemas.vocabulary import Lane, NudgeLevel, NudgeType, Pattern
from . import feedback, profile
from .context import Context
from .detectors.registry import KINDS, PRECEDENCE
from .patterns import SEVERITIES, known
from .records import ActivePattern, PendingNudge

_TYPES = (NudgeType.GENTLE, NudgeType.DIRECT, NudgeType.INTERRUPT)
_LANES = {
    NudgeType.GENTLE: Lane.CONTEXT_HINT,
    NudgeType.DIRECT: Lane.SYSTEM_GUIDANCE,
    NudgeType.INTERRUPT: Lane.PAUSE,
}
_STRONGEST = {NudgeLevel.OFF: 0, NudgeLevel.GENTLE: 1, NudgeLevel.DIRECT: 2, NudgeLevel.FULL: 3}
MAX_PENDING = 8


def strongest_allowed(rules: Rules) -> int:
    """Strongest nudge that the rules allow: 0 none, 1 gentle, 2 direct, 3 interrupt."""
    return _STRONGEST[rules.nudges.level] if rules.nudges.enabled else 0


def text_for(active: ActivePattern, strength: int, rules: Rules, *, seconds: int) -> str:
    """Text of a nudge with a strength from 1 minor to 3 severe, about a pattern that has lasted for `seconds`.

    The detector's `own_text` takes precedence, then the operator's text, then the detector's default text.
    """
    word, kind = SEVERITIES[strength - 1], KINDS[active.pattern]
    usual = kind.variants[active.variant] if active.variant else kind.texts
    template = (
        kind.own_text(active, word, rules) or rules.nudges.texts.get(f"{active.pattern}.{word}") or usual[strength - 1]
    )
    return filled(
        template,
        tool_name=active.tool_name or "the tool",
        count=active.count,
        pattern=active.pattern.replace("_", " "),
        seconds=seconds,
        required_tool=active.required_tool or "the tool",
    )


def nudge_one(sighted: Iterable[ActivePattern], ctx: Context) -> None:
    """Issue at most one nudge for the patterns that the current event raised or repeated.

    Only the first by precedence is nudged; during its cooldown the others, which are its consequences, are not nudged
    either. Patterns marked as false alarms are skipped.
    """
    state, rules, emit = ctx.state, ctx.rules, ctx.emit
    allowed = strongest_allowed(rules)
    if state.feedback.muted:
        sighted = [active for active in sighted if not feedback.is_muted(state.feedback, active)]
    active = min(sighted, key=lambda one: PRECEDENCE[one.pattern], default=None)
    if active is None or not allowed or not _may_nudge(active, ctx):
        return
    severity = active.severity
    if severity <= active.nudged_severity:
        severity = min(3, active.nudged_severity + active.raised)
    strength = min(severity, allowed)
    nudge_type = _TYPES[strength - 1]
    active.nudged_at = state.calls
    active.nudged_severity = severity
    active.raised = 0
    made = emit.decision(
        "nudges",
        ctx.session_id,
        NudgeIssued,
        session_id=ctx.session_id,
        workspace_id=state.workspace_id or None,
        caused_by=(emit.cause,),
        nudge_type=nudge_type,
        message=text_for(active, strength, rules, seconds=(emit.at - active.first_ms) // 1000),
        pattern=Pattern(active.pattern),
        severity=SEVERITIES[active.severity - 1],
        pattern_id=active.pattern_id,
        lane=_LANES[nudge_type],
        duration_ms=emit.at - active.first_ms,
        **known(ctx),
    )
    profile.nudged(ctx)
    wants_action = KINDS[active.pattern].wants_action
    state.pending_nudges.append(PendingNudge(made, active.pattern, active.fingerprint, state.calls, wants_action))
    del state.pending_nudges[:-MAX_PENDING]
    feedback.remember_issued(state.feedback, made, active)


def _may_nudge(active: ActivePattern, ctx: Context) -> bool:
    if active.nudged_at < 0 or active.severity > active.nudged_severity:
        return True
    return ctx.state.calls - active.nudged_at >= ctx.rules.nudges.cooldown_calls


def judge_repeat(sighted: Iterable[ActivePattern], ctx: Context) -> None:
    """Judge nudges of repeated patterns as ignored, and make their next nudge a step stronger."""
    for active in sighted:
        for pending in ctx.state.pending_nudges[:]:
            if pending.pattern != active.pattern or pending.fingerprint != active.fingerprint:
                continue
            _judge(pending, ctx, effective=False)
            active.raised = 1


def judge_time(ctx: Context) -> None:
    """Judge nudges without a repeat in `effective_within_calls` calls: effective, unless an action was expected."""
    for pending in ctx.state.pending_nudges[:]:
        if ctx.state.calls - pending.at_call >= ctx.rules.nudges.effective_within_calls:
            _judge(pending, ctx, effective=not pending.wants_action)


def judge_cleared(cleared: Iterable[ActivePattern], ctx: Context) -> None:
    """Judge the nudges of cleared patterns as effective."""
    for active in cleared:
        for pending in ctx.state.pending_nudges[:]:
            if pending.pattern == active.pattern and pending.fingerprint == active.fingerprint:
                _judge(pending, ctx, effective=True)


def _judge(pending: PendingNudge, ctx: Context, *, effective: bool) -> None:
    ctx.state.pending_nudges.remove(pending)
    profile.judged(ctx, effective=effective)
    ctx.emit.decision(
        "nudges",
        ctx.session_id,
        NudgeJudged,
        session_id=ctx.session_id,
        workspace_id=ctx.state.workspace_id or None,
        caused_by=(ctx.emit.cause,),
        nudge_id=pending.nudge_id,
        effective=effective,
    )
