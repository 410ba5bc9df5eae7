"""Nudges: when a pattern is told to the model, how strongly, and whether it helped (docs/design/semantics.md#nudges).

minor → gentle, moderate → direct, severe → interrupt; clamped down to the allowed level, never dropped. The same
streak is not nudged twice within the cooldown unless it has grown more severe; an ignored nudge raises the next one.
"""

from __future__ import annotations

from collections.abc import Iterable

from ...rules.rules import Rules
from ...schemas.decisions import NudgeIssued, NudgeJudged
from ...schemas.vocabulary import Lane, NudgeLevel, NudgeType, Pattern
from ..emit import Emitter
from . import feedback, profile
from .nudge_texts import text_for
from .patterns import PRECEDENCE, SEVERITIES, known
from .state import ActivePattern, PendingNudge, SessionState

_TYPES = (NudgeType.GENTLE, NudgeType.DIRECT, NudgeType.INTERRUPT)
_LANES = {
    NudgeType.GENTLE: Lane.CONTEXT_HINT,
    NudgeType.DIRECT: Lane.SYSTEM_GUIDANCE,
    NudgeType.INTERRUPT: Lane.PAUSE,
}
_STRONGEST = {NudgeLevel.OFF: 0, NudgeLevel.GENTLE: 1, NudgeLevel.DIRECT: 2, NudgeLevel.FULL: 3}
_ACTION_PATTERNS = frozenset(
    {
        Pattern.ANNOUNCE_NO_ACTION,
        Pattern.READ_ONLY_LOOP,
        Pattern.INTROSPECTION_LOOP,
        Pattern.PLANNING_LOOP,
        Pattern.PAGING_LOOP,
        Pattern.TOOL_AVOIDANCE,
        Pattern.PREREQUISITE_VIOLATED,
        Pattern.MONOLOGUE,
        Pattern.STALLED_TURN,
        Pattern.STALLED_CALL,
        Pattern.CALL_BUDGET,
    }
)
"""Patterns that are only over when the model has done something, be it to end its turn."""

MAX_PENDING = 8


def strongest_allowed(rules: Rules) -> int:
    """Strongest nudge that the rules allow: 0 none, 1 gentle, 2 direct, 3 interrupt."""
    return _STRONGEST[rules.nudges.level] if rules.nudges.enabled else 0


def _rank(active: ActivePattern) -> int:
    return PRECEDENCE.index(Pattern(active.pattern))


def nudge_one(
    state: SessionState, session_id: str, sighted: Iterable[ActivePattern], rules: Rules, emit: Emitter
) -> None:
    """Issue at most one nudge for the patterns that the current event raised or repeated.

    The first by precedence speaks for all of them; while it cools down, the others, which are its consequences, wait.
    One that was judged a false alarm is passed over.
    """
    allowed = strongest_allowed(rules)
    if state.muted:
        sighted = [active for active in sighted if not feedback.is_muted(state, active)]
    active = min(sighted, key=_rank, default=None)
    if active is None or not allowed or not _may_nudge(state, active, rules):
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
        session_id,
        NudgeIssued,
        session_id=session_id,
        workspace_id=state.workspace_id or None,
        caused_by=(emit.cause,),
        nudge_type=nudge_type,
        message=text_for(active, strength, rules, seconds=(emit.at - active.first_ms) // 1000),
        pattern=Pattern(active.pattern),
        severity=SEVERITIES[active.severity - 1],
        pattern_id=active.pattern_id,
        lane=_LANES[nudge_type],
        duration_ms=emit.at - active.first_ms,
        **known(state, emit),
    )
    profile.nudged(state, session_id, emit)
    state.pending_nudges.append(
        PendingNudge(made, active.pattern, active.fingerprint, state.calls, active.pattern in _ACTION_PATTERNS)
    )
    del state.pending_nudges[:-MAX_PENDING]
    feedback.remember_issued(state, made, active)


def _may_nudge(state: SessionState, active: ActivePattern, rules: Rules) -> bool:
    if active.nudged_at < 0 or active.severity > active.nudged_severity:
        return True
    return state.calls - active.nudged_at >= rules.nudges.cooldown_calls


def judge_repeat(state: SessionState, session_id: str, sighted: Iterable[ActivePattern], emit: Emitter) -> None:
    """A nudged pattern repeated: the nudge was ignored, and the next one is a step stronger."""
    for active in sighted:
        for pending in state.pending_nudges[:]:
            if pending.pattern != active.pattern or pending.fingerprint != active.fingerprint:
                continue
            _judge(state, session_id, pending, emit, effective=False)
            active.raised = 1


def judge_time(state: SessionState, session_id: str, rules: Rules, emit: Emitter) -> None:
    """Nudges whose calls have passed without a repeat: effective, unless the pattern asked for an action."""
    for pending in state.pending_nudges[:]:
        if state.calls - pending.at_call >= rules.nudges.effective_within_calls:
            _judge(state, session_id, pending, emit, effective=not pending.wants_action)


def judge_cleared(state: SessionState, session_id: str, cleared: Iterable[ActivePattern], emit: Emitter) -> None:
    """The model broke out of nudged patterns: their nudges worked."""
    for active in cleared:
        for pending in state.pending_nudges[:]:
            if pending.pattern == active.pattern and pending.fingerprint == active.fingerprint:
                _judge(state, session_id, pending, emit, effective=True)


def _judge(state: SessionState, session_id: str, pending: PendingNudge, emit: Emitter, *, effective: bool) -> None:
    state.pending_nudges.remove(pending)
    profile.judged(state, session_id, emit, effective=effective)
    emit.decision(
        "nudges",
        session_id,
        NudgeJudged,
        session_id=session_id,
        workspace_id=state.workspace_id or None,
        caused_by=(emit.cause,),
        nudge_id=pending.nudge_id,
        effective=effective,
    )
