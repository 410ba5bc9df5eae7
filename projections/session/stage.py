"""The session stage: one fold over all events of one session.

Pairs calls, tells the tool stage their outcomes, and has every call, message and turn watched for behaviour that leads
nowhere. Order inside one event: what has fallen due, the event itself, patterns cleared, patterns seen, nudges judged,
one nudge.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...rules.rules import Rules
from ...schemas import events as ev
from ...schemas.codec import decode_event
from ...schemas.fields import LARGEST_COUNT
from ...schemas.outcomes import DEFAULT_WORKSPACE, US, ProbeRequest
from ...schemas.vocabulary import Status
from ..calls.keys import has_scope
from ..emit import Emitter
from ..idle import HOUR_MS, Rest
from ..rule_source import session_overrides
from . import (
    agents,
    announcements,
    behaviour,
    budget,
    feedback,
    guarantees,
    patterns,
    prerequisites,
    profile,
    repetition,
    stalls,
    talk,
)
from .agents import act_as
from .calls import (
    append_finishes,
    append_lost,
    args_of,
    close_call,
    denial_of,
    is_our_finish,
    open_call,
    wait_begins,
    wait_ends,
)
from .identity import mark_of, remember, seen_before
from .reports import reported_outcomes
from .state import SessionState
from .synthesis import synthesis_completed
from .verdicts import judge, tell_tools

_Handler = Callable[[SessionState, Any, int, Rules, Emitter], None]


class SessionStage:
    """Stage of the topology that is keyed by session."""

    name = "session"
    sources = ("events",)
    state_type = SessionState
    state_version = 2
    by_arrival = True
    late_ms = HOUR_MS

    def idle_ms(self, rules: Rules) -> int:
        """Milliseconds without an event after which a session is over."""
        return int(rules.idle.session_idle_hours * HOUR_MS)

    def decode(self, topic: str, value: bytes) -> ev.Event:
        """Read one input event."""
        del topic
        return decode_event(value)

    def envelope(self, event: ev.Event) -> tuple[str, str, int]:
        """Session id, event id and time of an event."""
        return event.session_id, event.id, ev.epoch_ms(event.time)

    def scopes(self, state: SessionState, event: ev.Event) -> tuple[str, str, str]:
        """Workspace and user as far as they are known by now, and what the session overrides."""
        workspace = event.workspace_id or state.workspace_id or DEFAULT_WORKSPACE
        return workspace, event.user_id or state.user_id, state.overrides

    def fold(self, state: SessionState, event: ev.Event, at: int, rules: Rules, emit: Emitter) -> None:
        """Fold one event; a repeated one changes nothing and emits nothing."""
        mark = mark_of(event.id)
        if seen_before(state, mark):
            return
        deadline, stall = state.next_deadline, state.stall_due
        if ((deadline and deadline <= at) or (stall and stall <= at)) and not _is_echo(event):
            self._fall_due(state, event.session_id, at, rules, emit)
        correlation = event.correlation_id
        if correlation is None or not _is_echo(event):  # what we appended says only what was known then
            if workspace := event.workspace_id:
                state.workspace_id = workspace
            if user := event.user_id:
                state.user_id = user
            if model := event.model:
                state.model = model
            if (turn := event.turn_index) is not None:
                state.turn_index, state.turn_known = turn, True
            if correlation is not None:
                emit.correlation_id = correlation
        kind = type(event)
        alive = kind in stalls.SIGNS_OF_LIFE
        if alive and state.silence_told:
            state.silence_told = 0
            behaviour.break_out(state, event.session_id, [], rules, emit)
        handler = _HANDLERS.get(kind)
        if handler is not None:
            handler(state, event, at, rules, emit)
        if alive and (state.turn_open or state.stall_due or state.overdue):
            stalls.watch(state, event, at, rules.behaviour)
        remember(state, mark)

    def renews(self, event: ev.Event) -> bool:
        """Whether the session itself is heard of: not in what we appended because time has passed."""
        return not _is_echo(event)

    def rest(self, state: SessionState) -> Rest:
        """A call in flight, or a silence that is still to be told, keeps a session."""
        return Rest.NOTHING if self.due_at(state) is None else Rest.STANDS

    def part_with(self, state: SessionState, key: str, at: int, rules: Rules, emit: Emitter) -> bool:
        """Tell what has fallen due in the old session by the time its id comes up again; False: a call is in flight."""
        self._fall_due(state, key, at, rules, emit)
        return self.rest(state) is Rest.NOTHING

    def pass_time(self, state: SessionState, key: str, at: int, emit: Emitter) -> None:
        """Nobody follows a session's state, so nobody is told of its end."""

    def due_at(self, state: SessionState) -> int | None:
        """When something next falls due: the deadline of a call in flight, or a stall that is to be told."""
        deadline, stall = state.next_deadline, state.stall_due
        if not stall:
            return deadline or None
        return min(deadline, stall) if deadline else stall

    def due(self, state: SessionState, key: str, now: int, rules: Rules, emit: Emitter) -> None:
        """Append what is due: the finish of every call whose deadline has passed, and that time has passed.

        Both are folded when they are read back.
        """
        del rules
        append_finishes(state, key, now, emit)
        stalls.append_due(state, key, now, emit)

    def _fall_due(self, state: SessionState, session_id: str, at: int, rules: Rules, emit: Emitter) -> None:
        """The session's own next event reveals what has fallen due: fold each at its own time, in the order of time."""
        cause, now, traceparent = emit.cause, emit.at, emit.traceparent
        while (due := self.due_at(state)) is not None and due <= at:
            finishes = append_finishes(state, session_id, due, emit)
            _fold_ours(state, finishes, rules, emit)
            passed = None if finishes else stalls.append_due(state, session_id, due, emit)
            if passed is not None:
                remember(state, mark_of(passed.id))
                _time_passed(state, passed, due, rules, emit)
        emit.begin(cause, now, traceparent)


def _fold_ours(state: SessionState, finishes: list[ev.ToolCallFinished], rules: Rules, emit: Emitter) -> None:
    """Fold the finishes that we have just appended; when they are read back they are duplicates."""
    for finish in finishes:
        remember(state, mark_of(finish.id))
        emit.begin(finish.id, ev.epoch_ms(finish.time))
        _finished(state, finish, emit.at, rules, emit)
        if state.turn_open or state.overdue:
            stalls.watch(state, finish, emit.at, rules.behaviour)


def _is_echo(event: ev.Event) -> bool:
    """Whether we appended this event: it says itself what has fallen due, so nothing need be revealed."""
    if isinstance(event, ev.ToolCallFinished):
        return is_our_finish(event)
    return isinstance(event, ev.TimePassed) and stalls.is_due_event(event)


def _started(state: SessionState, event: ev.ToolCallStarted, at: int, rules: Rules, emit: Emitter) -> None:
    args = args_of(event)
    call = open_call(state, event, args, at, rules)
    if call is not None:
        behaviour.call_begun(state, event, call, args, rules, emit)
        if event.recursion_depth or state.guarantees is not None or rules.guarantees.sessions == "all":
            guarantees.call_started(state, event, at, rules, emit)


def _finished(state: SessionState, event: ev.ToolCallFinished, at: int, rules: Rules, emit: Emitter) -> None:
    call = close_call(state, event, at, rules)
    if state.overdue:
        _arrived(state, event, rules, emit, late=call is None)
    if call is None:
        return
    verdict = judge(event, call, rules)
    tell_tools(state, event, call, verdict, rules, emit)
    state.calls += 1
    if verdict.word != "success":
        state.neutral_calls += verdict.neutral
        state.failed_calls += verdict.failed
    if state.guarantees is not None or call.event_id == event.id:
        guarantees.call_finished(state, event, at, rules, emit, succeeded=verdict.word == "success")
    if call.event_id == event.id:  # no start was seen: this is the whole call
        behaviour.call_begun(state, event, call, {}, rules, emit)
    step_done = repetition.finish_in_step(state, call, verdict)
    if rules.behaviour.enabled:
        behaviour.call_finished(state, event, call, verdict, rules, emit, step_done=step_done)


def _arrived(
    state: SessionState, event: ev.ToolCallFinished, rules: Rules, emit: Emitter, *, late: bool = False
) -> None:
    """A call past its deadline is over: nobody waits for it. One that was closed may still have done what it should."""
    if stalls.arrived(state, event.call_id):
        if late and event.status is Status.SUCCESS and rules.behaviour.enabled:
            prerequisites.call_succeeded(state, event.tool_name, rules)
        behaviour.break_out(state, event.session_id, [], rules, emit)


def _text(state: SessionState, event: ev.ModelText, at: int, rules: Rules, emit: Emitter) -> None:
    agent = event.agent_id or ""
    if agent != state.agent:
        act_as(state, agent)
    if state.overdue:
        stalls.moved_on(state)
    sightings = talk.heard(state, event, at, rules.behaviour) if rules.behaviour.enabled else []
    behaviour.break_out(state, event.session_id, sightings, rules, emit)


def _turn_started(state: SessionState, event: ev.TurnStarted, at: int, rules: Rules, emit: Emitter) -> None:
    if event.agent_id:
        act_as(state, event.agent_id)
    if state.turn_open:
        _turn_over(state, event, at, rules, emit)
    announcements.turn_begun(state)
    state.turn_open = True
    state.turn_stalled = False
    if event.turn_index is None and state.turn_index < LARGEST_COUNT:
        state.turn_index += 1  # a publisher that does not count its turns
        state.turn_known = True
    stalls.turn_started(state, event.id, at)


def _turn_ended(state: SessionState, event: ev.TurnEnded, at: int, rules: Rules, emit: Emitter) -> None:
    state.ends_turns = True
    if event.agent_id:
        act_as(state, event.agent_id)
    if state.turn_open:
        _turn_over(state, event, at, rules, emit)
    state.turn_open = False


def _turn_over(state: SessionState, event: ev.TurnStarted | ev.TurnEnded, at: int, rules: Rules, emit: Emitter) -> None:
    if isinstance(event, ev.TurnEnded):
        stalls.turn_over(state, at)
    budget.turn_over(state)
    sighting = None
    if rules.behaviour.enabled:
        sighting = announcements.turn_over(state, event.id, at, rules.behaviour)
    behaviour.break_out(state, event.session_id, [sighting] if sighting is not None else [], rules, emit)
    if rules.behaviour.enabled:
        profile.turn_over(state, event.session_id, emit, stalled=bool(getattr(event, "stalled", False)))


def _time_passed(state: SessionState, event: ev.TimePassed, at: int, rules: Rules, emit: Emitter) -> None:
    """Tell the stall that is due now; an event that comes when it has been told, or is over, tells nothing."""
    if at not in {state.stall_due, state.next_deadline} or not stalls.is_due_event(event):
        return
    for agent_id, sightings in stalls.fall_due(state, event.id, at, rules.behaviour).items():
        if rules.behaviour.enabled:
            act_as(state, agent_id)
            behaviour.break_out(state, event.session_id, sightings, rules, emit)


def _user(state: SessionState, event: ev.UserMessage, at: int, rules: Rules, emit: Emitter) -> None:
    """A user message ends every streak of every agent; nudges whose effect was open stay unjudged."""
    del rules
    stalls.cut_off(state, at)
    if state.active or state.agents:
        for _ in agents.each(state):
            patterns.clear(state, event.session_id, list(state.active), emit)
        state.agents = {}
    state.pending_nudges = []
    state.nudged = []
    behaviour.forget_streaks(state)


def _session_ended(state: SessionState, event: ev.SessionEnded, at: int, rules: Rules, emit: Emitter) -> None:
    if state.open_calls:
        cause, traceparent, correlation_id = emit.cause, emit.traceparent, emit.correlation_id
        _fold_ours(state, append_lost(state, event.session_id, at, emit), rules, emit)
        emit.begin(cause, at, traceparent)
        emit.correlation_id = correlation_id
    _user(state, event, at, rules, emit)  # type: ignore[arg-type]
    if state.turn_open and rules.behaviour.enabled:
        profile.turn_over(state, event.session_id, emit, stalled=False)
    state.turn_open = False
    state.guarantees = None
    stalls.turn_over(state, at)


def _settings(
    state: SessionState, event: ev.SessionSettingsChanged | ev.SessionStarted, at: int, rules: Rules, emit: Emitter
) -> None:
    """Session overrides, replaced as a whole; they hold from the next event on. A start without any keeps them."""
    if isinstance(event, ev.SessionStarted) and event.reports_turn_ends:
        state.ends_turns = True
    if event.settings is not None:
        state.overrides = session_overrides(event.settings, rules)
    if isinstance(event, ev.SessionStarted) and event.models is not None:
        _models_available(state, event, at, rules, emit)


def _models_available(
    state: SessionState, event: ev.ModelsAvailable | ev.SessionStarted, at: int, rules: Rules, emit: Emitter
) -> None:
    """Remember which models may be suggested in the session from now on."""
    del at, rules, emit
    state.models = event.models


def _probe_requested(
    state: SessionState, event: ev.BreakerProbeRequested, at: int, rules: Rules, emit: Emitter
) -> None:
    del rules
    workspace = event.workspace_id or state.workspace_id or DEFAULT_WORKSPACE
    scope = event.breaker_key if has_scope(event.breaker_key) else f"tool:{event.breaker_key}"
    request = ProbeRequest(
        id=f"{event.id}/probe",
        time_ms=at,
        workspace_id=workspace,
        scope=scope,
        session_id=event.session_id,
        cause=event.id,
        origin_partition=emit.origin_partition,
        origin=emit.next_origin(),
        guard_id=event.guard_id,
        call_id=event.call_id,
    )
    emit.record("outcomes", f"{workspace}{US}{scope}", request, request.id)


def _reported(
    state: SessionState, event: ev.FailureReported | ev.SuccessReported, at: int, rules: Rules, emit: Emitter
) -> None:
    for outcome in reported_outcomes(state, event, at, rules, emit):
        emit.record("outcomes", outcome.key, outcome, outcome.id)


def _permission_requested(
    state: SessionState, event: ev.PermissionRequested, at: int, rules: Rules, emit: Emitter
) -> None:
    wait_begins(state, event.call_id, at)
    if state.overdue and stalls.arrived(state, event.call_id):  # it is not the tool that takes so long
        behaviour.break_out(state, event.session_id, [], rules, emit)


def _permission_resolved(
    state: SessionState, event: ev.PermissionResolved, at: int, rules: Rules, emit: Emitter
) -> None:
    """The wait is over. A denial closes the call; it is counted for the key, never as a failure."""
    if event.granted:
        wait_ends(state, event.call_id, at)
    else:
        _finished(state, denial_of(event), at, rules, emit)


def _feedback(state: SessionState, event: ev.FeedbackFalseAlarm, at: int, rules: Rules, emit: Emitter) -> None:
    del at, rules
    pattern = feedback.false_alarm(state, event.output_id)
    if pattern:
        profile.called_wrong(state, pattern, event.session_id, emit)


_HANDLERS: dict[type, _Handler] = {
    ev.ToolCallStarted: _started,
    ev.ToolCallFinished: _finished,
    ev.ModelText: _text,
    ev.UserMessage: _user,
    ev.TurnStarted: _turn_started,
    ev.TurnEnded: _turn_ended,
    ev.SessionStarted: _settings,
    ev.SessionEnded: _session_ended,
    ev.SessionSettingsChanged: _settings,
    ev.ModelsAvailable: _models_available,
    ev.BreakerProbeRequested: _probe_requested,
    ev.FailureReported: _reported,
    ev.SuccessReported: _reported,
    ev.PermissionRequested: _permission_requested,
    ev.PermissionResolved: _permission_resolved,
    ev.GuaranteeOverridden: guarantees.overridden,
    ev.SynthesisCompleted: synthesis_completed,
    ev.FeedbackFalseAlarm: _feedback,
    ev.TimePassed: _time_passed,
}
"""Every event that means something here."""
