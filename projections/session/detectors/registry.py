"""Registry of the detectors: their order of precedence, and the detectors of each hook."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import get_type_hints

import msgspec

from .alternating_loop import AlternatingLoop
from .announce_no_action import AnnounceNoAction
from .call_budget import CallBudget
from .detector import PatternDetector
from .error_retry_loop import ErrorRetryLoop
from .failure_streaks import FailureStreak, SameErrorLoop
from .missing_environment import MissingEnvironment
from .one_class_loops import IntrospectionLoop, PlanningLoop
from .poll import PollDetector
from .prerequisite_violated import PrerequisiteViolated
from .repetitive_calls import RepetitiveCalls
from .stale_results import RereadDetector, SelfAppending, StagnationDetector
from .stalls import StalledCall, StalledTurn
from .talk import MonologueDetector, RestatedDetector
from .text_loop import TextLoop
from .tool_avoidance import ToolAvoidance
from .unknown_tool import UnknownTool
from .unproven_claim import UnprovenClaim


class AgentDetectors(msgspec.Struct):
    """The detectors of one agent and of its session, with their counts.

    The field order is the precedence: where one event raises several patterns, only the first of them is nudged. A
    missing prerequisite, an unknown tool and a missing environment come first, because they name a single remedy. A
    repeated call comes before the same error with other arguments, which is weaker evidence; special cases come before
    the general ones. Stalls and budgets come last, because they do not name a cause.

    Each field has the name of its pattern. A snapshot stores the fields by name, so their order may change.
    """

    prerequisite_violated: PrerequisiteViolated = msgspec.field(default_factory=PrerequisiteViolated)
    unknown_tool: UnknownTool = msgspec.field(default_factory=UnknownTool)
    missing_environment: MissingEnvironment = msgspec.field(default_factory=MissingEnvironment)
    error_retry_loop: ErrorRetryLoop = msgspec.field(default_factory=ErrorRetryLoop)
    same_error_loop: SameErrorLoop = msgspec.field(default_factory=SameErrorLoop)
    failure_streak: FailureStreak = msgspec.field(default_factory=FailureStreak)
    alternating_loop: AlternatingLoop = msgspec.field(default_factory=AlternatingLoop)
    repetitive_calls: RepetitiveCalls = msgspec.field(default_factory=RepetitiveCalls)
    self_appending: SelfAppending = msgspec.field(default_factory=SelfAppending)
    introspection_loop: IntrospectionLoop = msgspec.field(default_factory=IntrospectionLoop)
    tool_avoidance: ToolAvoidance = msgspec.field(default_factory=ToolAvoidance)
    reread: RereadDetector = msgspec.field(default_factory=RereadDetector)
    stagnation: StagnationDetector = msgspec.field(default_factory=StagnationDetector)
    poll: PollDetector = msgspec.field(default_factory=PollDetector)
    planning_loop: PlanningLoop = msgspec.field(default_factory=PlanningLoop)
    announce_no_action: AnnounceNoAction = msgspec.field(default_factory=AnnounceNoAction)
    text_loop: TextLoop = msgspec.field(default_factory=TextLoop)
    restated: RestatedDetector = msgspec.field(default_factory=RestatedDetector)
    monologue: MonologueDetector = msgspec.field(default_factory=MonologueDetector)
    unproven_claim: UnprovenClaim = msgspec.field(default_factory=UnprovenClaim)
    stalled_call: StalledCall = msgspec.field(default_factory=StalledCall)
    stalled_turn: StalledTurn = msgspec.field(default_factory=StalledTurn)
    call_budget: CallBudget = msgspec.field(default_factory=CallBudget)

    def forget(self) -> None:
        """Clear the counts of the agent's own detectors, not those of the session's."""
        for name, new in _NEW.items():
            if getattr(self, name) != new:  # most have counted nothing, and comparing is faster than making
                setattr(self, name, type(new)())


# Detector class by pattern, in the order of precedence
KINDS: dict[str, type[PatternDetector]] = get_type_hints(AgentDetectors)

FIELDS: dict[type, str] = {kind: name for name, kind in KINDS.items()}  # Pattern by detector class

# Position in the order of precedence, by pattern
PRECEDENCE: dict[str, int] = {name: place for place, name in enumerate(KINDS)}

# Patterns that a user message does not end
OUTLIVES_USER = frozenset(name for name, kind in KINDS.items() if kind.outlives_user)

# Patterns whose detectors are shared by all agents of a session
OF_SESSION = tuple(name for name, kind in KINDS.items() if kind.of_session)

# New detector by pattern, where each agent has its own and it keeps counts
_NEW = {name: kind() for name, kind in KINDS.items() if kind.__struct_fields__ and not kind.of_session}


def _names(hook: str) -> list[str]:
    """Patterns whose detectors override a hook, sorted by `reported`."""
    kinds = [kind for kind in KINDS.values() if getattr(kind, hook) is not getattr(PatternDetector, hook)]
    return [FIELDS[kind] for kind in sorted(kinds, key=lambda kind: kind.reported)]


def _interested_in(hook: str) -> Callable[[AgentDetectors], tuple[PatternDetector, ...]]:
    """Getter of the detectors that override a hook, sorted by `reported`."""
    names = _names(hook)
    if len(names) == 1:
        [alone] = names
        return lambda detectors: (getattr(detectors, alone),)
    return attrgetter(*names)


ON_CALL = _interested_in("on_call")
ON_SUCCESS = _interested_in("on_success")
ON_PROGRESS = _interested_in("on_progress")
ON_EFFECT = _interested_in("on_effect")
ON_COMPACTED = _interested_in("on_compacted")
ON_INPUT = _interested_in("on_input")
ON_NEWS = _interested_in("on_news")
ON_FAILURE = _interested_in("on_failure")
ON_CYCLE = _interested_in("on_cycle")
ON_MESSAGE = _interested_in("on_message")
ON_TEXT = _interested_in("on_text")
ON_TURN = _interested_in("on_turn")
ON_ACT = _interested_in("on_act")
ON_TURN_START = _interested_in("on_turn_start")
ON_TURN_OVER = _interested_in("on_turn_over")
ON_USER = _interested_in("on_user")
ON_DUE = _interested_in("on_due")
ON_OVERDUE = _interested_in("on_overdue")

# Getter by what the call is: repeated or waiting, and a program; most detectors concern only some calls
FINISH_HOOKS: dict[tuple[bool, bool], Callable[[AgentDetectors], tuple[PatternDetector, ...]]] = {
    (repeated, program): attrgetter(
        *(
            name
            for name in _names("on_finish")
            if {"repeated": repeated, "programs": program}.get(KINDS[name].finishes, True)
        )
    )
    for repeated in (False, True)
    for program in (False, True)
}
