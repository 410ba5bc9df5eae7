"""Lifecycle of a detected pattern: reported once per severity step, repeated, cleared.

See docs/design/semantics.md#behaviour.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ...rules.behaviour import filled
from ...schemas.decisions import NudgeIssued, NudgeJudged, NudgeWithdrawn, PatternCleared, PatternDetected
from ...schemas.vocabulary import PatternType
from ..emitter import MAX_CAUSES
from .call_outcomes import emit_behaviour
from .detectors.registry import KINDS
from .records import (
    MAX_ACTIVE_PATTERNS,
    MAX_NUDGE_MARKS,
    SEVERITIES,
    ActivePattern,
    EventContext,
    NudgeMark,
    PatternSighting,
    PendingNudge,
    SessionRecord,
)


def record_sighting(sighting: PatternSighting, ctx: EventContext) -> tuple[ActivePattern, bool]:
    """Record a sighting; emits `pattern.detected` if its streak is new or has become more severe.

    Returns:
        The streak, and whether that was emitted.
    """
    state = ctx.state
    pattern, fingerprint = sighting.pattern, sighting.fingerprint
    active = next((one for one in state.active if (one.pattern, one.fingerprint) == (pattern, fingerprint)), None)
    if active is None:
        since = sighting.since_ms or ctx.emit.at
        active = ActivePattern(pattern, fingerprint, "", 0, 0, since, state.steps.number, "")
        active.required_tool = sighting.required_tool
        for mark in state.nudged:
            if (mark.pattern, mark.fingerprint) == (pattern, fingerprint):
                active.nudged_at, active.nudged_severity = mark.nudged_at, mark.severity
        state.active.append(active)
        del state.active[:-MAX_ACTIVE_PATTERNS]
    active.count = sighting.repetitions
    if sighting.tools:
        active.tool_name = sighting.tools[-1]
    active.variant = sighting.variant
    active.proven = sighting.proven
    active.for_model, active.hint_only = sighting.for_model, sighting.hint_only
    if sighting.required_tool:
        active.required_tool = sighting.required_tool
    if ctx.call is not None and sighting.agent_id is None:
        active.request = ctx.call.request.summary()
        active.asked = "" if ctx.call.runs else ctx.call.tool_name
    active.last_step = state.steps.number
    state.turn.stalled = True
    if not active.severity:
        emit_behaviour(ctx, pattern=PatternType(pattern))
    raised = sighting.severity > active.severity
    if raised:
        active.severity = sighting.severity
        notify_user = sighting.for_user or sighting.severity == len(SEVERITIES)
        active.pattern_id = decide(
            PatternDetected,
            active,
            active.severity,
            ctx,
            caused_by=tuple(sighting.event_ids[-MAX_CAUSES:]),
            repetitions=sighting.repetitions,
            tool_sequence=tuple(sighting.tools[-MAX_CAUSES:]),
            fingerprint=f"{fingerprint:016x}",
            expected_action=sighting.expected_action or None,
            request=active.request or None,
            notify_user=notify_user,
            message=filled_text(_notice(active), active, ctx) if notify_user else None,
        )
    return active, raised


def _notice(active: ActivePattern) -> str:
    """Text for a person about a pattern."""
    kind = KINDS[active.pattern]
    return kind.notices.get(active.variant, kind.notice)


def filled_text(template: str, active: ActivePattern, ctx: EventContext) -> str:
    """Text about a streak from a template with placeholders."""
    request = f"`{active.request}`" if active.request else ""
    return filled(
        template,
        tool_name=active.tool_name or "the tool",
        count=active.count,
        pattern=active.pattern.replace("_", " "),
        seconds=(ctx.emit.at - active.first_ms) // 1000,
        request=" ".join(filter(None, (active.asked, request))) or active.tool_name or "the call",
        required_tool=active.required_tool or "the tool",
    )


def clear(ended: Iterable[ActivePattern], ctx: EventContext) -> None:
    """Close streaks that have ended; emits `pattern.cleared` for each, and withdraws nudges that no answer carried."""
    state = ctx.state
    for active in ended:
        state.active.remove(active)
        for pending in nudges_of(active, state):
            if pending.waiting:
                close_nudge(NudgeWithdrawn, pending, ctx)
        if active.nudged_at >= 0:
            state.nudged.append(NudgeMark(active.pattern, active.fingerprint, active.nudged_at, active.nudged_severity))
            del state.nudged[:-MAX_NUDGE_MARKS]
        decide(
            PatternCleared,
            active,
            active.severity,
            ctx,
            caused_by=(ctx.emit.cause,),
            repetitions=active.count,
            fingerprint=f"{active.fingerprint:016x}",
            request=active.request or None,
        )


def nudges_of(active: ActivePattern, state: SessionRecord) -> list[PendingNudge]:
    """Nudges about a streak that have not been judged."""
    place = active.pattern, active.fingerprint
    return [one for one in state.pending_nudges if (one.pattern, one.fingerprint) == place]


def close_nudge(
    kind: type[NudgeJudged | NudgeWithdrawn], pending: PendingNudge, ctx: EventContext, **fields: Any
) -> None:
    """Judge or withdraw a nudge."""
    state, emit = ctx.state, ctx.emit
    state.pending_nudges.remove(pending)
    emit.decision(
        "nudges",
        ctx.session_id,
        kind,
        session_id=ctx.session_id,
        workspace_id=state.workspace_id or None,
        caused_by=(emit.cause,),
        nudge_id=pending.nudge_id,
        **fields,
    )


def decide(
    kind: type[PatternDetected | PatternCleared | NudgeIssued],
    active: ActivePattern,
    severity: int,
    ctx: EventContext,
    /,
    **fields: Any,
) -> str:
    """Emit a decision about a streak; agent, turn and model are filled in where they are known. Returns its id."""
    state, emit = ctx.state, ctx.emit
    return emit.decision(
        "nudges",
        ctx.session_id,
        kind,
        session_id=ctx.session_id,
        workspace_id=state.workspace_id or None,
        agent_id=state.agent or None,
        turn_index=state.turn.index if state.turn.known else None,
        model=state.model or None,
        correlation_id=emit.correlation_id,
        pattern=PatternType(active.pattern),
        severity=SEVERITIES[severity - 1],
        duration_ms=emit.at - active.first_ms,
        **fields,
    )
