"""Detectors of stalls: silence, turns that take too long, calls past their deadline (docs/detection.md).

They are driven by time. What falls due is told at its due time, whether the session's own next event reveals it or a
tick does: either way a `time.passed` event is appended to the log, and its id, from which the ids of the outputs
follow, derives from the session and the due time (docs/design/contracts.md#time-and-order; decision 0011).

The model owes a sign of life while a turn is open, no call is, and no person is asked; but only where the publisher is
known to end its turns. Otherwise an open turn means nothing: the session, or the recording of it, may just be over.

A call is overdue at the deadline that its publisher stated, and is closed then; without one it is overdue after
`calls.overdue_after_ms` and stays open. The time in which it waits for a person never counts. Where turns are
published, a call without a stated deadline is reported only if their ends are, too: elsewhere most of them were just
left open.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from ...rules.rules import BehaviourRules
from ...schemas import events as ev
from ...schemas.envelope import output_id
from ...schemas.vocabulary import Pattern, Status
from ..calls.errors import neutral_reason
from ..emit import Emitter
from .agents import act_as
from .calls import ends_when_due, is_our_finish, schedule
from .patterns import Sighting
from .state import MAX_OVERDUE, OpenCall, OverdueCall, SessionState

SILENCE = 0
DURATION = 1
"""Fingerprints of the two kinds of stalled turn."""

SIGNS_OF_LIFE: frozenset[type] = frozenset(
    {
        ev.ToolCallStarted,
        ev.ToolCallFinished,
        ev.ModelText,
        ev.UserMessage,
        ev.TurnStarted,
        ev.TurnEnded,
        ev.PermissionRequested,
        ev.PermissionResolved,
        ev.SessionEnded,
    }
)
"""Events that end a silence. A guard's question, feedback and changed settings do not come from the conversation."""

_TYPE = "time.passed"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def watch(state: SessionState, event: ev.Event, at: int, rules: BehaviourRules) -> None:
    """After an event of the conversation: what will fall due if nothing comes after it."""
    state.last_sign = event.id
    if state.open_calls and not state.overdue and rules.max_turn_duration_seconds is None:
        state.silent_since = state.stall_due = 0  # a call is open, and nothing else is watched: the usual case
        return
    owes = state.turn_open and state.ends_turns and not (state.open_calls or state.overdue or state.asked)
    if owes and isinstance(event, ev.ToolCallFinished):
        owes = _was_answered(event)
    elif owes and isinstance(event, ev.PermissionResolved):
        owes = event.granted
    state.silent_since = at if owes else 0
    state.stall_due = _next_due(state, at, rules)


def _was_answered(event: ev.ToolCallFinished) -> bool:
    """Whether the model has got a result to go on with.

    After a refusal or an interruption the word is with the user; a call that we closed may still be out there.
    """
    error = event.error
    if error is not None and error.type and neutral_reason(error.type):
        return False
    return event.status is not Status.CANCELLED and not is_our_finish(event)


def turn_started(state: SessionState, event_id: str, at: int) -> None:
    """A turn is open from now on."""
    state.turn_since = at
    state.turn_event = event_id
    state.turn_told = 0
    cut_off(state, at)


def turn_over(state: SessionState, at: int) -> None:
    """No turn is open any more."""
    state.turn_since = 0
    state.turn_told = 0
    cut_off(state, at + 1)


def cut_off(state: SessionState, at: int) -> None:
    """Whatever began before this time was cut off by the user or by the end of the turn; nobody waits for it."""
    state.user_at = at
    state.overdue = []
    state.asked = []


def overdue(state: SessionState, call: OpenCall, event_id: str, rules: BehaviourRules) -> Sighting | None:
    """A call is past its deadline. Unless the model has moved on, its real finish is waited for."""
    if call.started_ms < state.user_at or state.step > call.step or state.spoken:
        return None
    if state.turn_open and not (call.deadline_stated or state.ends_turns):
        return None
    late = OverdueCall(
        call.call_id, call.event_id, call.tool_name, call.fingerprint, call.started_ms + call.waited_ms,
        call.deadline_ms, multiple=1, agent_id=call.agent_id,
    )  # fmt: skip
    state.overdue.append(late)
    del state.overdue[:-MAX_OVERDUE]
    return _late_call(late, event_id, rules)


def arrived(state: SessionState, call_id: str) -> bool:
    """Whether a call that has finished, or that a person is asked about, was waited for past its deadline."""
    waited_for = next((late for late in state.overdue if late.call_id == call_id), None)
    if waited_for is None:
        return False
    state.overdue = [late for late in state.overdue if late.call_id != call_id]
    act_as(state, waited_for.agent_id)
    return True


def moved_on(state: SessionState) -> None:
    """The agent that acts does not wait for its overdue calls any more."""
    state.overdue = [late for late in state.overdue if late.agent_id != state.agent]


def is_due_event(event: ev.TimePassed) -> bool:
    """Whether we appended this event: its id follows from its session and time."""
    return event.id == _due_id(event.session_id, ev.epoch_ms(event.time))


def append_due(state: SessionState, session_id: str, now: int, emit: Emitter) -> ev.TimePassed | None:
    """Emit onto the log that the time of the next stall or overdue call has come, if it has."""
    overdue_at = min((call.deadline_ms for call in state.open_calls if not ends_when_due(call)), default=0)
    due = _earlier(state.stall_due, overdue_at)
    if not due or due > now:
        return None
    event = ev.TimePassed(
        schema_version="1.0",
        id=_due_id(session_id, due),
        time=_EPOCH + timedelta(milliseconds=due),
        session_id=session_id,
        workspace_id=state.workspace_id or None,
    )
    emit.begin(event.id, due)
    emit.record("events", session_id, event, event.id, own_partition=True)
    return event


def fall_due(state: SessionState, event_id: str, at: int, rules: BehaviourRules) -> dict[str, list[Sighting]]:
    """Everything that is due by this time, each a step further than when it was last reported, by agent."""
    seen: list[Sighting | None] = []
    if 0 < _silence_due(state, rules) <= at:
        state.silence_told = rules.stalled_turn.rung_after(state.silence_told)
        seen.append(_stalled_turn(state, SILENCE, state.silence_told, event_id, rules))
    if 0 < _turn_due(state, rules) <= at:
        state.turn_told = rules.stalled_turn.rung_after(state.turn_told)
        seen.append(_stalled_turn(state, DURATION, state.turn_told, event_id, rules))
    found = {state.agent: [sighting for sighting in seen if sighting is not None]}
    late_calls: list[tuple[str, Sighting | None]] = []
    for late in state.overdue:
        if 0 < _call_due(late, rules) <= at:
            late.multiple = rules.stalled_call.rung_after(late.multiple)
            late_calls.append((late.agent_id, _late_call(late, event_id, rules)))
    if 0 < state.next_deadline <= at:
        for call in state.open_calls:
            if call.deadline_ms <= at and not ends_when_due(call):
                call.overdue_seen = True
                act_as(state, call.agent_id)
                late_calls.append((call.agent_id, overdue(state, call, event_id, rules)))
        schedule(state)
    state.stall_due = _next_due(state, at, rules)
    for agent_id, sighting in late_calls:
        if sighting is not None:
            found.setdefault(agent_id, []).append(sighting)
    return found


def _due_id(session_id: str, due: int) -> str:
    return output_id(f"{session_id}@{due}", _TYPE, 0)


def _next_due(state: SessionState, at: int, rules: BehaviourRules) -> int:
    """When something is to be told next, later than `at`: under other rules it may have been due long ago."""
    due = _silence_due(state, rules) if state.silent_since else 0
    if rules.max_turn_duration_seconds is not None:
        due = _earlier(due, _turn_due(state, rules))
    for late in state.overdue:
        due = _earlier(due, _call_due(late, rules))
    return max(due, at + 1) if due else 0


def _earlier(one: int, other: int) -> int:
    return min(one, other) if one and other else one or other


def _silence_due(state: SessionState, rules: BehaviourRules) -> int:
    multiple = rules.stalled_turn.rung_after(state.silence_told)
    if not state.silent_since or not multiple:
        return 0
    return state.silent_since + int(rules.max_silence_seconds * 1000) * multiple


def _turn_due(state: SessionState, rules: BehaviourRules) -> int:
    limit = rules.max_turn_duration_seconds
    multiple = rules.stalled_turn.rung_after(state.turn_told)
    if limit is None or not state.turn_since or not multiple:
        return 0
    return state.turn_since + int(limit * 1000) * multiple


def _call_due(late: OverdueCall, rules: BehaviourRules) -> int:
    multiple = rules.stalled_call.rung_after(late.multiple)
    return late.started_ms + (late.deadline_ms - late.started_ms) * multiple if multiple else 0


def _stalled_turn(
    state: SessionState, kind: int, multiple: int, event_id: str, rules: BehaviourRules
) -> Sighting | None:
    severity = rules.stalled_turn.step(multiple)
    if not severity:
        return None
    since, cause = (state.silent_since, state.last_sign) if kind == SILENCE else (state.turn_since, state.turn_event)
    return Sighting(
        Pattern.STALLED_TURN, severity, kind, multiple, [done.tool_name for done in state.window[-1:]],
        [cause, event_id], "go on, or end the turn", since_ms=since,
    )  # fmt: skip


def _late_call(late: OverdueCall, event_id: str, rules: BehaviourRules) -> Sighting | None:
    severity = rules.stalled_call.step(late.multiple)
    if not severity:
        return None
    return Sighting(
        Pattern.STALLED_CALL, severity, late.fingerprint, late.multiple, [late.tool_name],
        [late.event_id, event_id], "stop waiting for the call", since_ms=late.started_ms,
    )  # fmt: skip
