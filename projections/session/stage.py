"""The session stage: one fold over all events of one session.

Pairs calls, tells the tool stage their outcomes, runs every behaviour detector on every finished call, message and
turn, and nudges. Order inside one event: what has fallen due, the event itself, patterns cleared, patterns seen, nudges
judged, one nudge.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...schemas import events as ev
from ...schemas.codec import decode_event
from ...schemas.outcomes import DEFAULT_WORKSPACE, US, CallOutcome, ProbeRequest
from ...schemas.rules import Rules
from ...schemas.vocabulary import Pattern, ToolClass
from ..calls.keys import has_scope
from ..emit import Emitter
from . import announcements, blame, guarantees, nudges, patterns, repetition, streaks
from .calls import append_timeouts, close_call, is_our_timeout, open_call
from .identity import mark_of, remember, seen_before
from .patterns import Sighting
from .reports import reported_outcomes
from .state import ActivePattern, OpenCall, SessionState
from .synthesis import synthesis_completed
from .verdicts import Verdict, judge, tell_tools

_Handler = Callable[[SessionState, Any, int, Rules, Emitter], None]


class SessionStage:
    """Stage of the topology that is keyed by session."""

    name = "session"
    sources = ("events",)
    state_type = SessionState
    state_version = 1

    def decode(self, topic: str, value: bytes) -> ev.Event:
        """Read one input event."""
        del topic
        return decode_event(value)

    def envelope(self, event: ev.Event) -> tuple[str, str, int]:
        """Session id, event id and time of an event."""
        return event.session_id, event.id, ev.epoch_ms(event.time)

    def fold(self, state: SessionState, event: ev.Event, at: int, rules: Rules, emit: Emitter) -> None:
        """Fold one event; a repeated one changes nothing and emits nothing."""
        mark = mark_of(event.id)
        if seen_before(state, mark):
            return
        if state.next_deadline and state.next_deadline <= at and not _is_echo(event):
            self._fall_due(state, event.session_id, at, rules, emit)
        if event.workspace_id:
            state.workspace_id = event.workspace_id
        if event.user_id:
            state.user_id = event.user_id
        if event.model:
            state.model = event.model
        if event.model_tier:
            state.model_tier = event.model_tier
        if event.turn_index is not None:
            state.turn_index = event.turn_index
        handler = _HANDLERS.get(type(event))
        if handler is not None:
            handler(state, event, at, rules, emit)
        remember(state, mark)

    def due_at(self, state: SessionState) -> int | None:
        """Earliest deadline of a call in flight."""
        return state.next_deadline or None

    def due(self, state: SessionState, key: str, now: int, rules: Rules, emit: Emitter) -> None:
        """Append the finish of every call whose deadline has passed; it is folded when it is read back."""
        del rules
        append_timeouts(state, key, now, emit)

    def _fall_due(self, state: SessionState, session_id: str, at: int, rules: Rules, emit: Emitter) -> None:
        """The session's own next event reveals deadlines that have passed: fold each at its own time."""
        cause, now, traceparent = emit.cause, emit.at, emit.traceparent
        for finish in append_timeouts(state, session_id, at, emit):
            remember(state, mark_of(finish.id))
            emit.begin(finish.id, ev.epoch_ms(finish.time))
            _finished(state, finish, emit.at, rules, emit)
        emit.begin(cause, now, traceparent)


def _is_echo(event: ev.Event) -> bool:
    """Whether this is a deadline's own appended finish: it says what has fallen due, so nothing need be revealed."""
    return isinstance(event, ev.ToolCallFinished) and is_our_timeout(event)


def _started(state: SessionState, event: ev.ToolCallStarted, at: int, rules: Rules, emit: Emitter) -> None:
    call = open_call(state, event, at, rules)
    if call is not None:
        _followed_up(state, event.session_id, call, rules, emit)
        if event.recursion_depth or state.guarantees is not None or rules.guarantees.sessions == "all":
            guarantees.call_started(state, event, at, rules, emit)


def _followed_up(state: SessionState, session_id: str, call: OpenCall, rules: Rules, emit: Emitter) -> None:
    """An announcement is followed up by any call but a look at the tools, whatever comes of it."""
    if state.announced and call.tool_class is not ToolClass.INTROSPECTION:
        announcements.fulfilled(state)
        gone = [active for active in state.active if active.pattern == Pattern.ANNOUNCE_NO_ACTION]
        if gone:
            _conclude(state, session_id, [], gone, rules, emit)


def _finished(state: SessionState, event: ev.ToolCallFinished, at: int, rules: Rules, emit: Emitter) -> None:
    call = close_call(state, event, at, rules)
    if call is None:
        return
    verdict = judge(event, call, rules)
    tell_tools(state, event, call, verdict, emit)
    state.calls += 1
    if verdict.word != "success":
        state.neutral_calls += verdict.neutral
        state.failed_calls += verdict.failed
    if state.guarantees is not None or call.event_id == event.id:
        guarantees.call_finished(state, event, at, rules, emit, succeeded=verdict.word == "success")
    if call.event_id == event.id:  # no start was seen: this is the whole call
        _followed_up(state, event.session_id, call, rules, emit)
    step_done = repetition.finish_in_step(state, call, verdict)
    if _detecting(state, rules):
        _behaviour(state, event, call, verdict, rules, emit, step_done=step_done)


def _behaviour(
    state: SessionState,
    event: ev.ToolCallFinished,
    call: OpenCall,
    verdict: Verdict,
    rules: Rules,
    emit: Emitter,
    *,
    step_done: bool,
) -> None:
    limits = rules.behaviour
    cycle = repetition.alternating_loop(state, limits) if step_done else None
    if verdict.neutral:
        if cycle is not None:
            fresh = blame.newly_seen(state, [cycle])
            _conclude(state, event.session_id, [cycle], [], rules, emit)
            blame.tell_tool(state, event, call, verdict, fresh, emit)
        return
    same = repetition.remember(state, call, verdict, event.id, limits)
    news = repetition.is_news(same, verdict)
    if news and not verdict.failed and call.tool_class is ToolClass.ACTION:
        state.progress_step = call.step
        state.retries = []
        streaks.forget_reads(state)
        gone = list(state.active)
    else:
        gone = []
    seen = [
        repetition.error_retry_loop(state, call, verdict, event.id, limits),
        cycle,
        repetition.repetitive_calls(state, call, same, limits),
        streaks.introspection_loop(state, call, event.id, limits),
        streaks.read_only_loop(state, call, event.id, limits, failed=verdict.failed, news=news),
    ]
    sightings = [sighting for sighting in seen if sighting is not None]
    if state.active:
        gone = gone or _broken_out_of(state, call, sightings, rules)
    if gone or sightings or state.pending_nudges:
        fresh = blame.newly_seen(state, sightings)
        _conclude(state, event.session_id, sightings, gone, rules, emit)
        blame.tell_tool(state, event, call, verdict, fresh, emit)


def _broken_out_of(state: SessionState, call: OpenCall, sightings: list[Sighting], rules: Rules) -> list[ActivePattern]:
    """Open streaks that the call just finished has ended."""
    seen = {(sighting.pattern, sighting.fingerprint) for sighting in sightings}
    limits = rules.behaviour
    ended = {
        Pattern.ALTERNATING_LOOP: not any(state.cycle_runs[1:]),
        Pattern.INTROSPECTION_LOOP: state.introspection_count == 0,
        Pattern.READ_ONLY_LOOP: not streaks.reading_on(state, limits),
    }
    outgrown = patterns.outgrown(state, rules)
    return [
        active
        for active in state.active
        if (active.pattern, active.fingerprint) not in seen
        and (
            ended.get(active.pattern)  # type: ignore[call-overload]
            or (active.fingerprint == call.fingerprint and active.pattern in _OF_ONE_CALL)
            or active in outgrown
        )
    ]


_OF_ONE_CALL = frozenset({Pattern.REPETITIVE_CALLS, Pattern.ERROR_RETRY_LOOP})


def _conclude(
    state: SessionState,
    session_id: str,
    sightings: list[Sighting],
    gone: list[ActivePattern],
    rules: Rules,
    emit: Emitter,
) -> None:
    """Emit what an event's detectors found: cleared, detected, judged, nudged."""
    cleared = patterns.clear(state, session_id, gone, emit)
    active = [patterns.sight(state, session_id, sighting, emit) for sighting in sightings]
    nudges.judge_repeat(state, session_id, active, emit)
    nudges.judge_cleared(state, session_id, cleared, emit)
    nudges.judge_time(state, session_id, rules, emit)
    nudges.nudge_one(state, session_id, active, rules, emit)


def _text(state: SessionState, event: ev.ModelText, at: int, rules: Rules, emit: Emitter) -> None:
    del at
    if not _detecting(state, rules):
        return
    own = rules.behaviour.announce_phrases
    says = event.announces if event.announces is not None else announcements.announces(event.text or "", own)
    if says:
        sighting = announcements.announced(state, event.id, rules.behaviour)
        if sighting is not None:
            _conclude(state, event.session_id, [sighting], [], rules, emit)


def _turn_started(state: SessionState, event: ev.TurnStarted, at: int, rules: Rules, emit: Emitter) -> None:
    if state.turn_open:
        _turn_over(state, event, at, rules, emit)
    state.turn_open = True


def _turn_ended(state: SessionState, event: ev.TurnEnded, at: int, rules: Rules, emit: Emitter) -> None:
    if state.turn_open:
        _turn_over(state, event, at, rules, emit)
    state.turn_open = False


def _turn_over(state: SessionState, event: ev.TurnStarted | ev.TurnEnded, at: int, rules: Rules, emit: Emitter) -> None:
    del at
    if _detecting(state, rules):
        sighting = announcements.silent_turn(state, event.id, rules.behaviour)
        if sighting is not None:
            _conclude(state, event.session_id, [sighting], [], rules, emit)


def _user(state: SessionState, event: ev.UserMessage, at: int, rules: Rules, emit: Emitter) -> None:
    """A user message ends every streak; nudges whose effect was open stay unjudged."""
    del at, rules
    state.pending_nudges = []
    patterns.clear(state, event.session_id, list(state.active), emit)
    state.nudged = []
    _forget_streaks(state)


def _forget_streaks(state: SessionState) -> None:
    announcements.fulfilled(state)
    streaks.forget_reads(state)
    state.retries = []
    state.window = []
    state.cycle_tail = []
    state.cycle_runs = [0] * len(state.cycle_runs)
    state.introspections = []
    state.introspection_count = 0
    state.progress_step = state.step


def _session_ended(state: SessionState, event: ev.SessionEnded, at: int, rules: Rules, emit: Emitter) -> None:
    _user(state, event, at, rules, emit)  # type: ignore[arg-type]
    state.turn_open = False
    state.guarantees = None


def _settings(
    state: SessionState, event: ev.SessionSettingsChanged | ev.SessionStarted, at: int, rules: Rules, emit: Emitter
) -> None:
    """Session overrides: null inherits, an explicit false wins."""
    del at, rules, emit
    overrides = event.settings
    if not overrides:
        return
    state.nudge_level = str(overrides.nudge_level or "")
    state.nudge_enabled = overrides.nudge_enabled
    state.detection_enabled = overrides.pattern_detection_enabled
    state.model_switch = overrides.model_switch_strategy


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


def _permission(state: SessionState, event: ev.PermissionResolved, at: int, rules: Rules, emit: Emitter) -> None:
    """A denial is counted for the key ("the user declines this often"), never as a failure."""
    del rules
    if event.granted:
        return
    workspace = event.workspace_id or state.workspace_id or DEFAULT_WORKSPACE
    call = next((open_ for open_ in reversed(state.open_calls) if open_.call_id == event.call_id), None)
    outcome = CallOutcome(
        id=f"{event.id}/tool",
        time_ms=at,
        workspace_id=workspace,
        scope=f"tool:{event.tool_name}",
        session_id=event.session_id,
        cause=event.id,
        origin_partition=emit.origin_partition,
        origin=emit.next_origin(),
        call_id=event.call_id,
        tool_name=event.tool_name,
        fine_key=call.fine_key if call else event.tool_name,
        verdict="neutral",
        denied=True,
        user_id=event.user_id or state.user_id,
    )
    emit.record("outcomes", outcome.key, outcome, outcome.id)


def _detecting(state: SessionState, rules: Rules) -> bool:
    return rules.behaviour.enabled if state.detection_enabled is None else state.detection_enabled


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
    ev.BreakerProbeRequested: _probe_requested,
    ev.FailureReported: _reported,
    ev.SuccessReported: _reported,
    ev.PermissionResolved: _permission,
    ev.GuaranteeOverridden: guarantees.overridden,
    ev.SynthesisCompleted: synthesis_completed,
}
"""Events that mean something here; the others (feedback) pass through to history."""
