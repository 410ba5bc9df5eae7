"""When a pattern is over: one rule for each, read from the session's state (docs/detection.md).

A user's message ends them all. A successful action that is new ends those about going nowhere (`ENDED_BY_PROGRESS`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ...rules.rules import Rules
from ...schemas.vocabulary import Pattern
from . import streaks
from .budget import tool_fingerprint
from .failures import streak_fingerprint
from .patterns import Sighting
from .prerequisites import policy_fingerprint
from .stalls import SILENCE
from .state import ActivePattern, SessionState

ENDED_BY_PROGRESS = frozenset(
    {
        Pattern.REPETITIVE_CALLS,
        Pattern.ERROR_RETRY_LOOP,
        Pattern.ALTERNATING_LOOP,
        Pattern.INTROSPECTION_LOOP,
        Pattern.READ_ONLY_LOOP,
        Pattern.PAGING_LOOP,
        Pattern.PLANNING_LOOP,
        Pattern.ANNOUNCE_NO_ACTION,
        Pattern.MONOLOGUE,
        Pattern.TEXT_LOOP,
    }
)
"""A new, successful action is what these lack; the others lack something of their own: a certain tool, an end."""


def ended(state: SessionState, sightings: Iterable[Sighting], rules: Rules) -> list[ActivePattern]:
    """Open patterns that the model has broken out of, as the state stands after the current event."""
    seen = {(sighting.pattern, sighting.fingerprint) for sighting in sightings}
    return [
        active
        for active in state.active
        if (active.pattern, active.fingerprint) not in seen and ENDS[Pattern(active.pattern)](state, active, rules)
    ]


def _by_its_own_call(state: SessionState, active: ActivePattern, rules: Rules) -> bool:
    """Judged where the call finishes: only the same call with another outcome says that these are over."""
    del state, active, rules
    return False


def _stalled_turn(state: SessionState, active: ActivePattern, rules: Rules) -> bool:
    del rules
    return not (state.silence_told if active.fingerprint == SILENCE else state.turn_told)


def _call_budget(state: SessionState, active: ActivePattern, rules: Rules) -> bool:
    """Over with the turn: its counts start afresh."""
    ladder = rules.behaviour.call_budget
    if not active.fingerprint:
        return not ladder.step(state.turn_calls)
    counts = (count for tool, count in state.tools.items() if tool_fingerprint(tool) == active.fingerprint)
    return not ladder.step(next(counts, 0))


ENDS: dict[Pattern, Callable[[SessionState, ActivePattern, Rules], bool]] = {
    Pattern.REPETITIVE_CALLS: _by_its_own_call,
    Pattern.ERROR_RETRY_LOOP: _by_its_own_call,
    Pattern.SAME_ERROR_LOOP: lambda state, active, _: all(
        streak_fingerprint(streak) != active.fingerprint for streak in state.error_streaks
    ),
    Pattern.ALTERNATING_LOOP: lambda state, _active, _rules: not any(state.cycle_runs[1:]),
    Pattern.INTROSPECTION_LOOP: lambda state, _active, _rules: not state.introspection_count,
    Pattern.READ_ONLY_LOOP: lambda state, _active, rules: not streaks.reading_on(state, rules.behaviour),
    Pattern.PAGING_LOOP: lambda state, active, rules: all(
        page.shape != active.fingerprint or not rules.behaviour.paging_loop.step(page.count) for page in state.paging
    ),
    Pattern.PLANNING_LOOP: lambda state, _active, _rules: not state.planning_count,
    Pattern.ANNOUNCE_NO_ACTION: lambda state, _active, _rules: not state.announced,
    Pattern.TOOL_AVOIDANCE: lambda state, active, _: all(
        tool_fingerprint(one.tool_name) != active.fingerprint for one in state.named_tools
    ),
    Pattern.PREREQUISITE_VIOLATED: lambda state, active, _: (
        not any(
            record.violations and policy_fingerprint(name) == active.fingerprint
            for name, record in state.prerequisites.items()
        )
    ),
    Pattern.UNKNOWN_TOOL: lambda state, _active, _rules: not state.unknown_calls,
    Pattern.MONOLOGUE: lambda state, _active, _rules: not state.spoken,
    Pattern.TEXT_LOOP: lambda state, active, _: state.text_loop != active.fingerprint,
    Pattern.STALLED_TURN: _stalled_turn,
    Pattern.STALLED_CALL: lambda state, active, _: all(
        late.fingerprint != active.fingerprint for late in state.overdue
    ),
    Pattern.CALL_BUDGET: _call_budget,
}
"""Pattern → whether one open streak of it is over."""
