"""The life of a detected pattern: raised once per severity step, repeated, cleared.

See docs/design/semantics.md#behaviour.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from ...rules.rules import Rules
from ...schemas.decisions import PatternCleared, PatternDetected
from ...schemas.vocabulary import Pattern, PatternSeverity
from ..emit import MAX_CAUSES, Emitter
from . import profile
from .state import MAX_ACTIVE_PATTERNS, MAX_NUDGE_MARKS, ActivePattern, NudgeMark, SessionState

SEVERITIES = (PatternSeverity.MINOR, PatternSeverity.MODERATE, PatternSeverity.SEVERE)

PRECEDENCE = (
    Pattern.PREREQUISITE_VIOLATED,
    Pattern.UNKNOWN_TOOL,
    Pattern.ERROR_RETRY_LOOP,
    Pattern.SAME_ERROR_LOOP,
    Pattern.ALTERNATING_LOOP,
    Pattern.REPETITIVE_CALLS,
    Pattern.INTROSPECTION_LOOP,
    Pattern.TOOL_AVOIDANCE,
    Pattern.PAGING_LOOP,
    Pattern.READ_ONLY_LOOP,
    Pattern.PLANNING_LOOP,
    Pattern.ANNOUNCE_NO_ACTION,
    Pattern.TEXT_LOOP,
    Pattern.MONOLOGUE,
    Pattern.STALLED_CALL,
    Pattern.STALLED_TURN,
    Pattern.CALL_BUDGET,
)
"""One nudge at a time: where one event raises several patterns, the first of these is nudged.

The order is that of docs/detection.md: a pattern stands before those whose nudge says less about what to do: an
operator's rule and a tool that does not exist name the one thing to do; the same error with other arguments is the
weaker form of the same call; paging is a special case of reading, chanting one of talking. Time and budget say nothing
about why, so they come last.
"""

OUTGROWN = frozenset(
    {
        Pattern.REPETITIVE_CALLS,
        Pattern.ERROR_RETRY_LOOP,
        Pattern.ALTERNATING_LOOP,
        Pattern.PAGING_LOOP,
        Pattern.UNKNOWN_TOOL,
    }
)
"""Patterns that are over when they have not repeated for a whole window of steps; the others end otherwise."""


class Sighting(NamedTuple):
    """A detector saw its pattern at some severity (1 minor to 3 severe), now.

    Attributes:
        fingerprint: what repeats; 0 for patterns without one. With the pattern it names the streak.
        repetitions: how often so far.
        tools: tools of the repetition, oldest first.
        event_ids: evidence, newest last.
        expected_action: what the model should do instead, if the pattern knows.
        required_tool: the tool that it should call, if the pattern knows.
        text: names the nudge texts, where they are not those of the pattern.
        since_ms: when the first of the repetitions began, milliseconds; 0: with the event that shows it.
    """

    pattern: Pattern
    severity: int
    fingerprint: int
    repetitions: int
    tools: Sequence[str]
    event_ids: Sequence[str]
    expected_action: str = ""
    required_tool: str = ""
    since_ms: int = 0
    text: str = ""


def find(state: SessionState, pattern: str, fingerprint: int) -> ActivePattern | None:
    """The open streak of a pattern and fingerprint."""
    for active in state.active:
        if active.pattern == pattern and active.fingerprint == fingerprint:
            return active
    return None


def sight(state: SessionState, session_id: str, sighting: Sighting, emit: Emitter) -> ActivePattern:
    """Record a sighting; emits `pattern.detected` when it is new or has grown more severe."""
    active = find(state, sighting.pattern, sighting.fingerprint)
    if active is None:
        active = ActivePattern(
            pattern=sighting.pattern,
            fingerprint=sighting.fingerprint,
            pattern_id="",
            severity=0,
            count=0,
            first_ms=sighting.since_ms or emit.at,
            last_step=state.step,
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
    active.text = sighting.text
    active.last_step = state.step
    profile.stuck(state, active.pattern, session_id, emit, new=not active.severity)
    if sighting.severity > active.severity:
        active.severity = sighting.severity
        active.pattern_id = emit.decision(
            "nudges",
            session_id,
            PatternDetected,
            session_id=session_id,
            workspace_id=state.workspace_id or None,
            caused_by=tuple(sighting.event_ids[-MAX_CAUSES:]),
            pattern=sighting.pattern,
            severity=SEVERITIES[active.severity - 1],
            repetitions=sighting.repetitions,
            tool_sequence=tuple(sighting.tools[-MAX_CAUSES:]),
            fingerprint=f"{sighting.fingerprint:016x}",
            duration_ms=emit.at - active.first_ms,
            **known(state, emit),
            expected_action=sighting.expected_action or None,
        )
    return active


def clear(state: SessionState, session_id: str, gone: Iterable[ActivePattern], emit: Emitter) -> list[ActivePattern]:
    """Close streaks the model has broken out of; emits `pattern.cleared` for each."""
    closed = list(gone)
    for active in closed:
        state.active.remove(active)
        if active.nudged_at >= 0:
            state.nudged.append(NudgeMark(active.pattern, active.fingerprint, active.nudged_at, active.nudged_severity))
            del state.nudged[:-MAX_NUDGE_MARKS]
        emit.decision(
            "nudges",
            session_id,
            PatternCleared,
            session_id=session_id,
            workspace_id=state.workspace_id or None,
            caused_by=(emit.cause,),
            pattern=Pattern(active.pattern),
            severity=SEVERITIES[active.severity - 1],
            repetitions=active.count,
            fingerprint=f"{active.fingerprint:016x}",
            duration_ms=emit.at - active.first_ms,
            **known(state, emit),
        )
    return closed


def known(state: SessionState, emit: Emitter) -> dict[str, Any]:
    """Fields of every output about a pattern: agent, turn and correlation, as far as they are known."""
    return {
        "agent_id": state.agent or None,
        "turn_index": state.turn_index if state.turn_known else None,
        "model": state.model or None,
        "correlation_id": emit.correlation_id,
    }


def outgrown(state: SessionState, rules: Rules) -> list[ActivePattern]:
    """Streaks that have not repeated for a whole window of steps."""
    oldest = state.step - rules.behaviour.window_steps
    return [active for active in state.active if active.last_step < oldest and active.pattern in OUTGROWN]
