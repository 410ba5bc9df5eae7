"""Nudges: when a pattern causes one, how strong it is, and whether it was effective (docs/design/semantics.md#nudges).

minor → gentle, moderate → direct, severe → interrupt where the waste is proven, else direct; limited to the allowed
level, never dropped. The same streak is not nudged twice within the cooldown unless it has become more severe; an
ignored nudge raises the next one by a step, beyond direct only where the waste is proven. Of a publisher that tells
deliveries, a nudge counts from its delivery on.
"""

from __future__ import annotations

from collections.abc import Iterable

from ...schemas.decisions import NudgeIssued, NudgeJudged, NudgeWithdrawn, SessionRestored
from ...schemas.events import FeedbackFalseAlarm, NudgeDelivered
from ...schemas.vocabulary import NudgeLane, NudgeLevel, NudgeType, PatternType
from ..calls.fingerprints import digest
from .call_outcomes import emit_behaviour
from .detectors.registry import KINDS, PRECEDENCE
from .patterns import close_nudge, decide, filled_text, nudges_of
from .records import (
    MAX_FALSE_ALARMS,
    MAX_ISSUED,
    ActivePattern,
    EventContext,
    FalseAlarm,
    IssuedNudge,
    PendingNudge,
    SessionRecord,
)
from .session_state import AgentState, SessionContext, SessionState

_TYPES = (NudgeType.GENTLE, NudgeType.DIRECT, NudgeType.INTERRUPT)
_LANES = {
    NudgeType.GENTLE: NudgeLane.CONTEXT_HINT,
    NudgeType.DIRECT: NudgeLane.SYSTEM_GUIDANCE,
    NudgeType.INTERRUPT: NudgeLane.PAUSE,
}
_STRONGEST = {NudgeLevel.OFF: 0, NudgeLevel.GENTLE: 1, NudgeLevel.DIRECT: 2, NudgeLevel.FULL: 3}
MAX_PENDING = 8


def nudge_one(sighted: Iterable[ActivePattern], ctx: EventContext) -> None:
    """Issue at most one nudge for the patterns that the current event raised or repeated.

    Only the first by precedence is nudged; during its cooldown the others, which are its consequences, are not nudged
    either. Patterns marked as false alarms are skipped.
    """
    state, rules = ctx.state, ctx.rules
    feedback = state.feedback
    if feedback.muted:
        sighted = [active for active in sighted if (active.pattern, active.fingerprint) not in feedback.muted]
    active = min(sighted, key=lambda one: PRECEDENCE[one.pattern], default=None)
    allowed = _STRONGEST[rules.nudges.level] if rules.nudges.enabled else 0
    if active is None or not allowed:
        return
    severity, strongest = active.severity, _strongest(active)
    waiting = next((one for one in nudges_of(active, state) if one.waiting), None)
    last = (waiting.at_call, waiting.waiting) if waiting else (active.nudged_at, active.nudged_severity)
    if last[0] >= 0 and severity <= last[1]:
        if state.calls - last[0] < rules.nudges.cooldown_calls:
            return
        severity = max(severity, min(strongest, last[1] + active.raised))
    active.raised = 0
    if waiting:
        close_nudge(NudgeWithdrawn, waiting, ctx)
    _issue(active, severity, min(severity, allowed, strongest), ctx)


def _strongest(active: ActivePattern) -> int:
    """Return the highest strength of a nudge about a streak: 3 interrupt, 2 direct, 1 gentle."""
    return 3 if active.proven else 1 if active.hint_only else 2


def _issue(active: ActivePattern, severity: int, strength: int, ctx: EventContext) -> None:
    """Issue a nudge about a streak; its severity counts for the next one, its strength gives type and text."""
    state, rules = ctx.state, ctx.rules
    feedback = state.feedback
    nudge_type = _TYPES[strength - 1]
    nudge_id = decide(
        NudgeIssued,
        active,
        severity,
        ctx,
        caused_by=(ctx.emit.cause,),
        nudge_type=nudge_type,
        message=filled_text(KINDS[active.pattern].template(active, severity, strength, rules), active, ctx),
        pattern_id=active.pattern_id,
        lane=_LANES[nudge_type],
        request=active.request or None,
    )
    pattern, fingerprint = active.pattern, active.fingerprint
    pending = PendingNudge(nudge_id, pattern, fingerprint, state.calls, KINDS[pattern].wants_action, severity)
    state.pending_nudges.append(pending)
    while len(state.pending_nudges) > MAX_PENDING:
        _drop(state.pending_nudges[0], ctx)
    if not feedback.tells_deliveries:
        _counts(pending, active, state.calls, ctx)
    issued = IssuedNudge(digest(nudge_id.encode()), pattern, fingerprint, active.tool_name)
    feedback.issued = [*feedback.issued[1 - MAX_ISSUED :], issued]


def restore_session(ctx: SessionContext, *, settings_restored: bool) -> None:
    """Reissue the undelivered nudges of a session that was started again, and report what was kept of it, if any.

    The process that was to show them may be gone. Each is withdrawn first, so that none is shown twice.
    """
    state, rules = ctx.state, ctx.rules
    allowed = _STRONGEST[rules.nudges.level] if rules.nudges.enabled else 0
    active_patterns = pending_nudges = 0
    for _ in state.each_agent(everyone=True):
        active_patterns += len(state.active)
        for active in state.active if allowed else ():
            for pending in nudges_of(active, state):
                if pending.waiting:
                    pending_nudges += 1
                    close_nudge(NudgeWithdrawn, pending, ctx)
                    _issue(active, pending.waiting, min(pending.waiting, allowed, _strongest(active)), ctx)
    turn_index = state.turn.index if state.turn.known else None
    if turn_index is None and not (active_patterns or settings_restored):
        return
    ctx.emit.decision(
        "nudges",
        ctx.session_id,
        SessionRestored,
        session_id=ctx.session_id,
        workspace_id=state.workspace_id or None,
        caused_by=(ctx.emit.cause,),
        turn_index=turn_index,
        active_patterns=active_patterns,
        pending_nudges=pending_nudges,
        settings_restored=settings_restored,
    )


def delivered(event: NudgeDelivered, ctx: SessionContext) -> None:
    """Let a nudge count from now on, as an answer has carried it; a withdrawn or unknown one is ignored."""
    agents: tuple[SessionState | AgentState, ...] = (ctx.state, *ctx.state.agents.values())
    for agent in agents:
        for pending in agent.pending_nudges:
            if pending.nudge_id == event.nudge_id and pending.waiting:
                for active in agent.active:
                    if (active.pattern, active.fingerprint) == (pending.pattern, pending.fingerprint):
                        _counts(pending, active, agent.calls, ctx)


def _counts(pending: PendingNudge, active: ActivePattern, calls: int, ctx: EventContext) -> None:
    """Begin the cooldown of a delivered nudge, and the calls by which it is judged."""
    active.nudged_at = pending.at_call = calls
    active.nudged_severity, pending.waiting = pending.waiting, 0
    emit_behaviour(ctx, nudges_sent=1)


def judge(
    ended: Iterable[ActivePattern], repeated: Iterable[ActivePattern], ctx: EventContext, *, failed: bool = False
) -> None:
    """Judge delivered nudges by the streaks that the current event ended or repeated, and by the calls made since.

    A nudge about a repeated pattern was ignored, and the next one is a step stronger; so was one about a request that
    has failed again, whatever the text of its error. A nudge about an ended pattern was effective, and so is one
    without a repeat in `effective_within_calls` calls, unless an action was expected.
    """
    state = ctx.state
    if failed and ctx.call is not None:
        for pending in _delivered(state):
            if pending.fingerprint == ctx.call.fingerprint:  # of the patterns that are about one request
                _judge(pending, ctx, effective=False)
                for active in state.active:
                    if (active.pattern, active.fingerprint) == (pending.pattern, pending.fingerprint):
                        active.raised = 1
    for streaks, effective in ((repeated, False), (ended, True)):
        for active in streaks:
            for pending in nudges_of(active, state):
                if not pending.waiting:
                    _judge(pending, ctx, effective=effective)
                    active.raised = 0 if effective else 1
    for pending in _delivered(state):
        if state.calls - pending.at_call >= ctx.rules.nudges.effective_within_calls:
            _judge(pending, ctx, effective=not pending.wants_action)


def _judge(pending: PendingNudge, ctx: EventContext, *, effective: bool) -> None:
    emit_behaviour(ctx, nudges_judged=1, nudges_effective=int(effective))
    close_nudge(NudgeJudged, pending, ctx, effective=effective)


def _drop(pending: PendingNudge, ctx: EventContext) -> None:
    """Judge a nudge no more; one that no answer has carried yet is withdrawn."""
    if pending.waiting:
        close_nudge(NudgeWithdrawn, pending, ctx)
    else:
        ctx.state.pending_nudges.remove(pending)


def withdraw_waiting(ctx: SessionContext) -> None:
    """Withdraw the nudges of all agents that no answer has carried, as none will."""
    for _ in ctx.state.each_agent(everyone=True):
        for pending in [one for one in ctx.state.pending_nudges if one.waiting]:
            close_nudge(NudgeWithdrawn, pending, ctx)


def _delivered(state: SessionRecord) -> list[PendingNudge]:
    return [one for one in state.pending_nudges if not one.waiting]


def false_alarm(event: FeedbackFalseAlarm, ctx: SessionContext) -> None:
    """Count a nudge, or an open pattern, as a false alarm: a person or a platform marks it as wrong.

    False alarms are counted per pattern and tool in the session. The streak is still reported, for history, but is not
    nudged again in this session. Repeated feedback and unknown ids are ignored; feedback about an escalation is only
    kept in history.
    """
    state = ctx.state
    feedback = state.feedback
    agents: tuple[SessionState | AgentState, ...] = (state, *state.agents.values())
    wrong = digest(event.output_id.encode())
    alarm = next((one for one in feedback.issued if one.id_digest == wrong), None)
    if alarm is None:
        patterns = (one for agent in agents for one in agent.active if one.pattern_id == event.output_id)
        active = next(patterns, None)
        if active is None or (active.pattern, active.fingerprint) in feedback.muted:
            return
        alarm = IssuedNudge(wrong, active.pattern, active.fingerprint, active.tool_name)
    feedback.issued = [one for one in feedback.issued if one.id_digest != wrong]
    mute = (alarm.pattern, alarm.fingerprint)
    for _ in state.each_agent(everyone=True):  # the effect of a false alarm is not judged
        for pending in [one for one in state.pending_nudges if (one.pattern, one.fingerprint) == mute]:
            _drop(pending, ctx)
    if mute not in feedback.muted:
        feedback.muted = [*feedback.muted[1 - MAX_FALSE_ALARMS :], mute]
    counts = feedback.false_alarms
    known = next((one for one in counts if (one.pattern, one.tool_name) == (alarm.pattern, alarm.tool_name)), None)
    if known is None:
        known = FalseAlarm(alarm.pattern, alarm.tool_name)
        feedback.false_alarms = [*counts[1 - MAX_FALSE_ALARMS :], known]
    known.count += 1
    emit_behaviour(ctx, false_alarm=PatternType(alarm.pattern))
