"""The session stage: one fold over all events of one session.

Pairs calls, emits their outcomes to the tool stage, and passes every call, message and turn to the detectors. Order
within one event: due events, the event itself, patterns cleared, patterns seen, nudges judged, one nudge.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from ...rules.rules import RuleSet
from ...schemas import events as ev
from ...schemas.codec import decode_event
from ...schemas.fields import LARGEST_COUNT
from ...schemas.outcomes import DEFAULT_WORKSPACE
from ...schemas.vocabulary import CallStatus
from ..emitter import OutputEmitter
from ..rule_source import session_overrides
from ..stage import HOUR_MS, IdleRule, StateRetention
from . import call_outcomes, dispatch, executions, nudges
from .appended import append_finishes, append_lost, append_timer_event, is_appended
from .calls import close_call, denial_of, open_call, wait_begins, wait_ends
from .executions import synthesis_completed
from .records import ID_BYTES, MAX_RECENT_IDS, PREPARED_HASH, id_digest, place_of
from .session_state import SessionContext, SessionState
from .verdicts import judge

# Events that end a silence. Probe requests, feedback and settings are left out: they are not the conversation's.
_SIGNS_OF_LIFE: frozenset[type] = frozenset(
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


class SessionStage:
    """Topology stage keyed by session."""

    name = "session"
    sources: ClassVar[Mapping[str, Callable[[bytes], ev.Event]]] = {"events": decode_event}
    state_type = SessionState
    state_version = 5
    idle_rule: IdleRule = "session_idle_hours"
    by_arrival = True
    late_ms = HOUR_MS
    is_appended = staticmethod(is_appended)

    def envelope(self, event: ev.Event) -> tuple[str, str, int]:
        """Session id, event id and time of an event."""
        return event.session_id, event.id, ev.epoch_ms(event.time)

    def republish(self, state: SessionState, at: int, rules: RuleSet, emit: OutputEmitter) -> None:
        """Emit nothing: sessions have no public state."""

    def scopes(self, state: SessionState, event: ev.Event) -> tuple[str, str, str]:
        """Workspace and user, where known, and the settings that the session overrides (JSON)."""
        workspace = event.workspace_id or state.workspace_id or DEFAULT_WORKSPACE
        return workspace, event.user_id or state.user_id, state.overrides

    def fold(self, state: SessionState, event: ev.Event, at: int, rules: RuleSet, emit: OutputEmitter) -> None:  # noqa: C901 - the hot path
        """Fold one event; a repeated one changes nothing and emits nothing."""
        recent, hashed = state.recent_ids, PREPARED_HASH.copy()
        hashed.update(event.id.encode())
        mark = hashed.digest()
        if place_of(mark, recent) >= 0:
            emit.late = False
            return
        if emit.late and not is_appended(event):  # an appended event has the time at which it was due
            emit.count("late")
        emit.late = False
        ctx = SessionContext(state, event.session_id, rules, emit)
        deadline, stall = state.next_deadline, state.stall_due
        if ((deadline and deadline <= at) or (stall and stall <= at)) and not is_appended(event):
            self._fall_due(ctx, at)
        correlation = event.correlation_id
        if correlation is None or not is_appended(event):  # an appended event holds only values known when it was made
            if workspace := event.workspace_id:
                state.workspace_id = workspace
            if user := event.user_id:
                state.user_id = user
            if model := event.model:
                state.model = model
            if (index := event.turn_index) is not None:
                turn = state.turn
                turn.index, turn.known = index, True
            if correlation is not None:
                emit.correlation_id = correlation
        kind = type(event)
        alive = kind in _SIGNS_OF_LIFE
        if alive and (stalled := state.detectors.stalled_turn).silence_reported:
            stalled.silence_reported = 0
            dispatch.close_ended(ctx)
        handler = _HANDLERS.get(kind)
        if handler is not None:
            handler(event, ctx)
        if alive and (state.turn.open or state.stall_due or state.detectors.stalled_call.overdue):
            _wait(event, ctx)
        recent += mark  # after the fold, so that an event whose fold failed may be repeated
        del recent[:-_KEPT]

    def retention(self, state: SessionState) -> StateRetention:
        """Part of an idle session that must be kept: everything while a call is in flight or a stall is due."""
        return StateRetention.DROP if self.due_at(state) is None else StateRetention.KEEP

    def expire(self, state: SessionState, key: str, at: int, rules: RuleSet, emit: OutputEmitter) -> bool:
        """Fold what is due in an old session whose id is used again; returns False if something is still due later."""
        self._fall_due(SessionContext(state, key, rules, emit), at)
        return self.retention(state) is StateRetention.DROP

    def append_timer(self, state: SessionState, key: str, at: int, emit: OutputEmitter) -> None:
        """Do nothing, as the state of a session is not published."""

    def due_at(self, state: SessionState) -> int | None:
        """Next due time, milliseconds: the deadline of a call in flight or a stall; None if there is none."""
        deadline, stall = state.next_deadline, state.stall_due
        if not stall:
            return deadline or None
        return min(deadline, stall) if deadline else stall

    def due(self, state: SessionState, key: str, now: int, rules: RuleSet, emit: OutputEmitter) -> None:
        """Append what is due: finishes of calls whose deadline has passed, and a `TimePassed`.

        Both are folded when they are read back.
        """
        ctx = SessionContext(state, key, rules, emit)
        append_finishes(ctx, now)
        append_timer_event(ctx, now)

    def _fall_due(self, ctx: SessionContext, at: int) -> None:
        """Append and fold everything due before the current event, each at its due time, in the order of time."""
        state, emit = ctx.state, ctx.emit
        cause, now, traceparent = emit.cause, emit.at, emit.traceparent
        while (due := self.due_at(state)) is not None and due <= at:
            finishes = append_finishes(ctx, due)
            _fold_appended(finishes, ctx)
            passed = None if finishes else append_timer_event(ctx, due)
            if passed is not None:
                _remember(state, passed)
                _time_passed(passed, ctx)
        emit.begin(cause, now, traceparent)


# --- repeated events --------------------------------------------------------------------------------------------------

_KEPT = MAX_RECENT_IDS * ID_BYTES


def _remember(state: SessionState, appended: ev.Event) -> None:
    """Remember an appended event that is folded at once; when it is read back it is a duplicate."""
    state.recent_ids += id_digest(appended.id)
    del state.recent_ids[:-_KEPT]


# --- what falls due ---------------------------------------------------------------------------------------------------


def _fold_appended(finishes: list[ev.ToolCallFinished], ctx: SessionContext) -> None:
    """Fold finishes that were just appended."""
    state = ctx.state
    for finish in finishes:
        _remember(state, finish)
        ctx.emit.begin(finish.id, ev.epoch_ms(finish.time))
        _finished(finish, ctx)
        ctx.call = None  # what follows is not about this call
        if state.turn.open or state.detectors.stalled_call.overdue:
            _wait(finish, ctx)


def _wait(event: ev.Event, ctx: SessionContext) -> None:
    """Schedule the next stall after an event of the conversation."""
    state = ctx.state
    detectors = state.detectors
    stalled, overdue = detectors.stalled_turn, detectors.stalled_call.overdue
    if state.open_calls and not overdue and ctx.rules.behaviour.max_turn_duration_seconds is None:
        # A call is open, and nothing else is watched: the usual case.
        stalled.last_sign, stalled.silent_since, state.stall_due = event.id, 0, 0
        return
    stalled.restart_silence(event, ctx, waits=state.open_calls or overdue or state.asked)
    if stalled.silent_since or overdue or ctx.rules.behaviour.max_turn_duration_seconds is not None:
        dispatch.schedule(ctx)
    else:
        state.stall_due = 0


# --- events -----------------------------------------------------------------------------------------------------------


def _started(event: ev.ToolCallStarted, ctx: SessionContext) -> None:
    call = open_call(event, ctx)
    if call is not None:
        dispatch.call_started(call, ctx)
        if event.recursion_depth or ctx.state.guarantees is not None or ctx.rules.guarantees.sessions == "all":
            executions.call_started(event, ctx)


def _finished(event: ev.ToolCallFinished, ctx: SessionContext) -> None:
    state = ctx.state
    call = close_call(event, ctx)
    if state.detectors.stalled_call.overdue:
        _overdue_finished(event, ctx, late=call is None)
    if call is None:
        return
    verdict = judge(event, call, ctx.rules)
    behaviour = ctx.rules.behaviour
    observed = behaviour.enabled and not verdict.neutral
    ctx.same = state.steps.earlier(call.fingerprint, behaviour.window_steps) if observed else ()
    call_outcomes.emit_finished_call(event, call, verdict, ctx)
    state.calls += 1
    if verdict.word != "success":
        ran = not (verdict.neutral or verdict.rejected)
        state.neutral_calls += not ran
        state.failed_calls += verdict.failed and ran and not verdict.expected
    if state.guarantees is not None or call.event_id == event.id:
        executions.call_finished(event, ctx, succeeded=verdict.word == "success")
    if call.event_id == event.id:  # no start was seen: this is the whole call
        dispatch.call_started(call, ctx)
    dispatch.call_finished(event, call, verdict, ctx)


def _overdue_finished(event: ev.ToolCallFinished, ctx: SessionContext, *, late: bool = False) -> None:
    """Stop tracking an overdue call that has finished; a late success still satisfies policies."""
    waited_for = ctx.state.detectors.stalled_call.stop_tracking(event.call_id)
    if waited_for is not None:
        ctx.state.act_as(waited_for.agent_id)
        if late and event.status is CallStatus.SUCCESS and ctx.rules.behaviour.enabled:
            dispatch.succeeded(event.tool_name, ctx)
        dispatch.close_ended(ctx)


def _text(event: ev.ModelText, ctx: SessionContext) -> None:
    agent = event.agent_id or ""
    if agent != ctx.state.agent:
        ctx.state.act_as(agent)
    dispatch.text(event, ctx)


def _turn_started(event: ev.TurnStarted, ctx: SessionContext) -> None:
    state = ctx.state
    if event.agent_id:
        state.act_as(event.agent_id)
    turn = state.turn
    if turn.open:
        _turn_over(event, ctx)
    turn.open = True
    turn.stalled = False
    if event.turn_index is None and turn.index < LARGEST_COUNT:
        turn.index += 1  # a publisher that does not count its turns
        turn.known = True
    turn.since_ms = ctx.emit.at
    turn.event_id = event.id
    state.asked = []
    dispatch.turn_started(ctx)


def _turn_ended(event: ev.TurnEnded, ctx: SessionContext) -> None:
    turn = ctx.state.turn
    turn.ends_published = True
    if event.agent_id:
        ctx.state.act_as(event.agent_id)
    if turn.open:
        turn.since_ms = 0
        ctx.state.asked = []
        _turn_over(event, ctx)
    turn.open = False


def _turn_over(event: ev.TurnStarted | ev.TurnEnded, ctx: SessionContext) -> None:
    dispatch.turn_over(ctx, ended=isinstance(event, ev.TurnEnded))
    _count_turn(ctx, stalled=isinstance(event, ev.TurnEnded) and bool(event.stalled))


def _count_turn(ctx: SessionContext, *, stalled: bool) -> None:
    """Emit an ended turn; it counts as stalled once if a pattern was seen in it or the platform marks it so."""
    if ctx.rules.behaviour.enabled:
        turn = ctx.state.turn
        call_outcomes.emit_behaviour(ctx, turns=1, stalled_turns=int(stalled or turn.stalled))
        turn.stalled = False


def _time_passed(event: ev.TimePassed, ctx: SessionContext) -> None:
    """Report the stall that is due now; ignored if it has been reported or is over."""
    state = ctx.state
    if ctx.emit.at in {state.stall_due, state.next_deadline} and is_appended(event):
        dispatch.time_passed(ctx)


def _user(event: ev.UserMessage, ctx: SessionContext) -> None:
    dispatch.user_message(ctx, event.words)


def _input(event: ev.InputReceived, ctx: SessionContext) -> None:
    dispatch.input_received(event.source, ctx)


def _compacted(event: ev.ContextCompacted, ctx: SessionContext) -> None:
    del event
    dispatch.context_compacted(ctx)


def _session_ended(event: ev.SessionEnded, ctx: SessionContext) -> None:
    del event
    state, emit = ctx.state, ctx.emit
    if state.open_calls:
        cause, at, traceparent, correlation_id = emit.cause, emit.at, emit.traceparent, emit.correlation_id
        _fold_appended(append_lost(ctx), ctx)
        emit.begin(cause, at, traceparent)
        emit.correlation_id = correlation_id
    dispatch.user_message(ctx)
    if state.turn.open:
        _count_turn(ctx, stalled=False)
    state.guarantees = None
    state.turn.open = False
    state.turn.since_ms = 0
    dispatch.session_ended(ctx)
    nudges.withdraw_waiting(ctx)


def _settings(event: ev.SessionSettingsChanged | ev.SessionStarted, ctx: SessionContext) -> None:
    """Replace all session overrides, effective from the next event; a start without settings keeps them."""
    if event.settings is not None:
        ctx.state.overrides = session_overrides(event.settings, ctx.rules)
    if isinstance(event, ev.SessionStarted):
        turn, feedback = ctx.state.turn, ctx.state.feedback
        turn.ends_published = turn.ends_published or bool(event.reports_turn_ends)
        feedback.tells_deliveries = feedback.tells_deliveries or bool(event.reports_deliveries)
        if event.models is not None:
            _models_available(event, ctx)
        if ctx.state.recent_ids:  # not the first event of the session
            nudges.restore_session(ctx, settings_restored=event.settings is None and bool(ctx.state.overrides))


def _models_available(event: ev.ModelsAvailable | ev.SessionStarted, ctx: SessionContext) -> None:
    """Remember which models may be suggested in the session from now on."""
    ctx.state.models = event.models


def _permission_requested(event: ev.PermissionRequested, ctx: SessionContext) -> None:
    state = ctx.state
    wait_begins(state, event.call_id, ctx.emit.at)
    waited_for = state.detectors.stalled_call.stop_tracking(event.call_id)
    if waited_for is not None:  # the call waits for a person, not for the tool
        state.act_as(waited_for.agent_id)
        dispatch.close_ended(ctx)


def _permission_resolved(event: ev.PermissionResolved, ctx: SessionContext) -> None:
    """End the wait of a call; a denial closes it and is counted for the key, never as a failure."""
    if event.granted:
        wait_ends(ctx.state, event.call_id, ctx.emit.at)
    else:
        _finished(denial_of(event), ctx)


# Handler by event type; other events are ignored
_HANDLERS: dict[type, Callable[[Any, SessionContext], None]] = {
    ev.ToolCallStarted: _started,
    ev.ToolCallFinished: _finished,
    ev.ModelText: _text,
    ev.UserMessage: _user,
    ev.InputReceived: _input,
    ev.ContextCompacted: _compacted,
    ev.TurnStarted: _turn_started,
    ev.TurnEnded: _turn_ended,
    ev.SessionStarted: _settings,
    ev.SessionEnded: _session_ended,
    ev.SessionSettingsChanged: _settings,
    ev.ModelsAvailable: _models_available,
    ev.BreakerProbeRequested: call_outcomes.emit_probe_request,
    ev.FailureReported: call_outcomes.emit_reported_call,
    ev.SuccessReported: call_outcomes.emit_reported_call,
    ev.PermissionRequested: _permission_requested,
    ev.PermissionResolved: _permission_resolved,
    ev.GuaranteeOverridden: executions.overridden,
    ev.SynthesisCompleted: synthesis_completed,
    ev.NudgeDelivered: nudges.delivered,
    ev.FeedbackFalseAlarm: nudges.false_alarm,
    ev.TimePassed: _time_passed,
}
