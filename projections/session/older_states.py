"""Decoder of session states stored by older versions."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, TypeVar, get_type_hints

import msgspec

from .detectors.registry import KINDS, Detectors
from .records import Feedback, Turn
from .state import AgentState, SessionState
from .steps import Steps

_Old = Mapping[str, Any]
"""Fields of an older state by name; a shorter state has fewer."""

StructT = TypeVar("StructT", bound=msgspec.Struct)

_SESSION_2 = """positions clock workspace_id user_id model turn_index recent_ids open_calls closed_calls lone_calls
    next_deadline calls step step_open step_sealed step_mix progress_step window retries cycle_tail cycle_runs
    introspections introspection_step introspection_count stale_reads reads read_step read_ids announced announce_ids
    announced_this_turn active pending_nudges nudged turn_open guarantees failed_calls neutral_calls planning_step
    planning_count plannings error_streaks unknown_calls unknown_step unknown_tools unknown_ids paging spoken spoken_ids
    said said_ids text_loop tools turn_calls named_tools prerequisites ends_turns leaves_turns_open last_sign
    silent_since silence_told turn_since turn_event turn_told user_at overdue stall_due issued false_alarms muted
    turn_stalled overrides explores asked models agent agents turn_known introspection_since planning_since stale_since
    reads_since announced_since unknown_since spoken_since said_since unconfirmed unconfirmed_since phrased unphrased
    arrived""".split()

_AGENT_2 = """calls step step_open step_sealed step_mix progress_step window retries cycle_tail cycle_runs
    introspections introspection_step introspection_count introspection_since planning_step planning_count
    plannings planning_since stale_reads stale_since reads reads_since read_step read_ids explores
    announced announce_ids announced_this_turn announced_since unconfirmed unconfirmed_since phrased
    unphrased active pending_nudges nudged error_streaks unknown_calls unknown_step unknown_tools
    unknown_ids unknown_since paging spoken spoken_ids spoken_since said said_ids said_since text_loop
    named_tools""".split()

_STEPS_2 = {
    "number": "step",
    "open_calls": "step_open",
    "sealed": "step_sealed",
    "mix": "step_mix",
    "progress": "progress_step",
    "window": "window",
    "cycle_tail": "cycle_tail",
    "cycle_runs": "cycle_runs",
}
_TURN_2 = {
    "index": "turn_index",
    "known": "turn_known",
    "open": "turn_open",
    "stalled": "turn_stalled",
    "ends_published": "ends_turns",
    "since_ms": "turn_since",
    "event_id": "turn_event",
}
_DETECTORS_2: dict[str, dict[str, str]] = {
    "error_retry_loop": {"retries": "retries"},
    "introspection_loop": {
        "count": "introspection_count",
        "step": "introspection_step",
        "event_ids": "introspections",
        "since_ms": "introspection_since",
    },
    "planning_loop": {
        "count": "planning_count",
        "step": "planning_step",
        "event_ids": "plannings",
        "since_ms": "planning_since",
    },
    "read_only_loop": {
        "reads": "reads",
        "reads_since": "reads_since",
        "step": "read_step",
        "stale": "stale_reads",
        "stale_since": "stale_since",
        "stale_ids": "read_ids",
        "explores": "explores",
    },
    "announce_no_action": {
        "count": "announced",
        "event_ids": "announce_ids",
        "this_turn": "announced_this_turn",
        "since_ms": "announced_since",
        "unconfirmed": "unconfirmed",
        "unconfirmed_since": "unconfirmed_since",
        "phrased": "phrased",
        "unphrased": "unphrased",
    },
    "same_error_loop": {"streaks": "error_streaks"},
    "unknown_tool": {
        "calls": "unknown_calls",
        "step": "unknown_step",
        "tools": "unknown_tools",
        "event_ids": "unknown_ids",
        "since_ms": "unknown_since",
    },
    "paging_loop": {"series": "paging"},
    "monologue": {"spoken": "spoken", "event_ids": "spoken_ids", "since_ms": "spoken_since"},
    "text_loop": {"said": "said", "event_ids": "said_ids", "since_ms": "said_since", "repeated": "text_loop"},
    "tool_avoidance": {"named": "named_tools"},
    "prerequisite_violated": {"policies": "prerequisites"},
    "call_budget": {"calls": "turn_calls"},
    "stalled_call": {"overdue": "overdue", "ignored_before": "user_at"},
    "stalled_turn": {
        "last_sign": "last_sign",
        "silent_since": "silent_since",
        "silence_reported": "silence_told",
        "duration_reported": "turn_told",
    },
}
"""Names of the detectors' fields in version 2, where all of them were fields of the state, by pattern and field."""

_SAME_2 = {
    name: name
    for name in """positions clock workspace_id user_id model models overrides arrived recent_ids open_calls
        closed_calls lone_calls asked next_deadline calls failed_calls neutral_calls guarantees tools stall_due agent
        active pending_nudges nudged""".split()
}


def of_version_2(stored: memoryview) -> SessionState:
    """Decode a session state of version 2, in which the counts of all detectors were fields of the state.

    Raises:
        msgspec.DecodeError: `stored` is not such a state.
    """
    old = dict(zip(_SESSION_2, msgspec.msgpack.decode(stored), strict=False))
    state = _made(SessionState, old, _SAME_2)
    state.turn = _made(Turn, old, _TURN_2)
    state.feedback = _made(Feedback, old, {name: name for name in ("issued", "false_alarms", "muted")})
    state.steps = _made(Steps, old, _STEPS_2)
    state.detectors = _detectors(old)
    state.agents = {name: _agent(fields) for name, fields in old.get("agents", {}).items()}
    return state


def _agent(fields: list[Any]) -> AgentState:
    old = dict(zip(_AGENT_2, fields, strict=False))
    agent = _made(AgentState, old, {name: name for name in ("calls", "active", "pending_nudges", "nudged")})
    agent.steps = _made(Steps, old, _STEPS_2)
    agent.detectors = _detectors(old)
    return agent


def _detectors(old: _Old) -> Detectors:
    made = Detectors()
    for pattern, fields in _DETECTORS_2.items():
        setattr(made, pattern, _made(KINDS[pattern], old, fields))
    return made


def _made(kind: type[StructT], old: _Old, fields: Mapping[str, str]) -> StructT:
    """New struct with those of its `fields` that the older state has, read by their older names."""
    made, types = kind(), _types_of(kind)
    for name, older in fields.items():
        if older in old:
            setattr(made, name, msgspec.convert(old[older], types[name]))
    return made


@cache
def _types_of(kind: type[msgspec.Struct]) -> dict[str, Any]:
    return get_type_hints(kind)
