"""Lifecycle of a detected pattern: reported once per severity step, repeated, cleared.

See docs/design/semantics.md#behaviour.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ...schemas.decisions import PatternCleared, PatternDetected
from ...schemas.vocabulary import Pattern, PatternSeverity
from ..emitter import MAX_CAUSES
from . import profile
from .context import Context, Sighting
from .records import MAX_ACTIVE_PATTERNS, MAX_NUDGE_MARKS, ActivePattern, NudgeMark, SessionRecord

SEVERITIES = (PatternSeverity.MINOR, PatternSeverity.MODERATE, PatternSeverity.SEVERE)


def find(state: SessionRecord, pattern: str, fingerprint: int) -> ActivePattern | None:
    """Open streak of a pattern and fingerprint; None if there is none."""
    for active in state.active:
        if active.pattern == pattern and active.fingerprint == fingerprint:
            return active
    return None


def sight(sighting: Sighting, ctx: Context) -> ActivePattern:
    """Record a sighting; emits `pattern.detected` if its streak is new or has become more severe."""
    state, emit = ctx.state, ctx.emit
    active = find(state, sighting.pattern, sighting.fingerprint)
    if active is None:
        active = ActivePattern(
            pattern=sighting.pattern,
            fingerprint=sighting.fingerprint,
            pattern_id="",
            severity=0,
            count=0,
            first_ms=sighting.since_ms or emit.at,
            last_step=state.steps.number,
            tool_name="",
            required_tool=sighting.required_tool,
        )
        for mark in state.nudged:
            if mark.pattern == active.pattern and mark.fingerprint == active.fingerprint:
                active.nudged_at, active.nudged_severity = mark.nudged_at, mark.severity
        state.active.append(active)
        del state.active[:-MAX_ACTIVE_PATTERNS]
    active.count = sighting.repetitions
    if sighting.tools:
        active.tool_name = sighting.tools[-1]
    active.variant = sighting.variant
    active.last_step = state.steps.number
    profile.stuck(active.pattern, ctx, new=not active.severity)
    if sighting.severity > active.severity:
        active.severity = sighting.severity
        active.pattern_id = emit.decision(
            "nudges",
            ctx.session_id,
            PatternDetected,
            session_id=ctx.session_id,
            workspace_id=state.workspace_id or None,
            caused_by=tuple(sighting.event_ids[-MAX_CAUSES:]),
            pattern=sighting.pattern,
            severity=SEVERITIES[active.severity - 1],
            repetitions=sighting.repetitions,
            tool_sequence=tuple(sighting.tools[-MAX_CAUSES:]),
            fingerprint=f"{sighting.fingerprint:016x}",
            duration_ms=emit.at - active.first_ms,
            **known(ctx),
            expected_action=sighting.expected_action or None,
        )
    return active


def clear(gone: Iterable[ActivePattern], ctx: Context) -> list[ActivePattern]:
    """Close streaks that have ended; emits `pattern.cleared` for each."""
    state, emit = ctx.state, ctx.emit
    closed = list(gone)
    for active in closed:
        state.active.remove(active)
        if active.nudged_at >= 0:
            state.nudged.append(NudgeMark(active.pattern, active.fingerprint, active.nudged_at, active.nudged_severity))
            del state.nudged[:-MAX_NUDGE_MARKS]
        emit.decision(
            "nudges",
            ctx.session_id,
            PatternCleared,
            session_id=ctx.session_id,
            workspace_id=state.workspace_id or None,
            caused_by=(emit.cause,),
            pattern=Pattern(active.pattern),
            severity=SEVERITIES[active.severity - 1],
            repetitions=active.count,
            fingerprint=f"{active.fingerprint:016x}",
            duration_ms=emit.at - active.first_ms,
            **known(ctx),
        )
    return closed


def known(ctx: Context) -> dict[str, Any]:
    """Common fields of outputs about a pattern: agent, turn, model and correlation, where known."""
    state = ctx.state
    return {
        "agent_id": state.agent or None,
        "turn_index": state.turn.index if state.turn.known else None,
        "model": state.model or None,
        "correlation_id": ctx.emit.correlation_id,
    }
