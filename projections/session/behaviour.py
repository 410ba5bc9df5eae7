"""What the detectors make of an event: which patterns it shows, which it ends, and what the model is told.

Every detector runs on every finished call; none hides another. Order at the end of an event: patterns cleared,
patterns seen, nudges judged, one nudge.
"""

from __future__ import annotations

from ...rules.rules import BehaviourRules, Rules
from ...schemas import events as ev
from ...schemas.vocabulary import Pattern, Status, ToolClass
from ..emit import Emitter
from . import (
    announcements,
    avoidance,
    blame,
    budget,
    endings,
    failures,
    nudges,
    patterns,
    prerequisites,
    repetition,
    stalls,
    streaks,
    talk,
    text_loop,
)
from .calls import Args, is_our_finish, telling
from .paging import paging_loop
from .patterns import Sighting
from .state import ActivePattern, Done, OpenCall, SessionState
from .verdicts import Verdict


def call_begun(
    state: SessionState,
    event: ev.ToolCallStarted | ev.ToolCallFinished,
    call: OpenCall,
    args: Args,
    rules: Rules,
    emit: Emitter,
) -> None:
    """A call has begun, whatever comes of it: talk is over, and some things are seen from the call alone."""
    if (state.announced or state.unconfirmed) and call.tool_class is not ToolClass.INTROSPECTION:
        announcements.fulfilled(state)
    if state.spoken:
        talk.interrupted(state)
    if state.named_tools:
        avoidance.called(state, call.tool_name)
    if state.overdue:
        stalls.moved_on(state)
    sightings: list[Sighting] = []
    if rules.behaviour.enabled:
        limits = rules.behaviour
        sightings = budget.call_budget(state, call.tool_name, event.id, limits)
        if rules.policies:
            sightings += prerequisites.call_started(state, call, event.id, rules)
        if isinstance(event, ev.ToolCallStarted):
            if rules.tools.volatile_args:
                args = telling(call.tool_name, args, rules)
            paging = paging_loop(state, event.id, call, args, limits)
            if paging is not None:
                sightings.append(paging)
    break_out(state, event.session_id, sightings, rules, emit)


def break_out(state: SessionState, session_id: str, sightings: list[Sighting], rules: Rules, emit: Emitter) -> None:
    """Conclude an event that may have ended patterns besides those it shows."""
    gone = endings.ended(state, sightings, rules) if state.active else []
    if sightings or gone:
        conclude(state, session_id, sightings, gone, rules, emit)


def call_finished(
    state: SessionState,
    event: ev.ToolCallFinished,
    call: OpenCall,
    verdict: Verdict,
    rules: Rules,
    emit: Emitter,
    *,
    step_done: bool,
) -> None:
    """A call has finished: run the detectors over it. `step_done`: it was the last of its step."""
    limits = rules.behaviour
    if rules.policies and event.status is Status.SUCCESS and not verdict.failed:  # from a cache will do
        prerequisites.call_succeeded(state, call.tool_name, rules)
    if verdict.neutral:
        cycle = repetition.alternating_loop(state, limits) if step_done else None
        if cycle is not None:
            fresh = blame.newly_seen(state, [cycle])
            conclude(state, event.session_id, [cycle], [], rules, emit)
            blame.tell_tool(state, event, call, verdict, fresh, rules, emit)
        return
    same = repetition.remember(state, call, verdict, event.id, limits)
    cycle = repetition.alternating_loop(state, limits) if step_done else None  # its evidence ends with this call
    news = repetition.is_news(same, verdict)
    progress = news and not verdict.failed and call.tool_class is ToolClass.ACTION
    if progress:
        state.progress_step = call.step
        state.retries = []
        state.paging = []
        streaks.forget_reads(state)
    if news and state.said:
        text_loop.forget_texts(state)
    sightings = _seen_in(state, event, call, verdict, same, limits, news=news)
    if cycle is not None:
        sightings.append(cycle)
    gone = _broken_out_of(state, call, sightings, rules, progress=progress) if state.active else []
    if gone or sightings or state.pending_nudges:
        fresh = blame.newly_seen(state, sightings)
        conclude(state, event.session_id, sightings, gone, rules, emit)
        blame.tell_tool(state, event, call, verdict, fresh, rules, emit)


def _seen_in(
    state: SessionState,
    event: ev.ToolCallFinished,
    call: OpenCall,
    verdict: Verdict,
    same: list[Done],
    limits: BehaviourRules,
    *,
    news: bool,
) -> list[Sighting]:
    """What the detectors of single calls see. One that has nothing to count or to forget is not asked."""
    kind = call.tool_class
    seen: list[Sighting | None] = []
    if verdict.failed or state.retries:
        seen.append(repetition.error_retry_loop(state, call, verdict, event.id, limits))
    if same:
        seen.append(repetition.repetitive_calls(state, call, same, limits))
    if kind is ToolClass.INTROSPECTION or state.introspection_count:
        seen.append(streaks.introspection_loop(state, call, event.id, limits))
    if kind is ToolClass.PLANNING or state.planning_count:
        seen.append(streaks.planning_loop(state, call, event.id, limits))
    if kind is ToolClass.READ or state.reads or state.explores:
        seen.append(streaks.read_only_loop(state, call, event.id, limits, verdict, news=news))
    if verdict.failed or state.error_streaks:
        seen.append(failures.same_error_loop(state, call, verdict, event.id, limits))
    if verdict.failed:
        seen.append(failures.unknown_tool(state, event, call, limits))
        if is_our_finish(event):
            seen.append(stalls.overdue(state, call, event.id, limits))
    return [sighting for sighting in seen if sighting is not None] if seen else []


def _broken_out_of(
    state: SessionState, call: OpenCall, sightings: list[Sighting], rules: Rules, *, progress: bool
) -> list[ActivePattern]:
    """Open streaks that the call just finished has ended."""
    seen = {(sighting.pattern, sighting.fingerprint) for sighting in sightings}
    over = endings.ended(state, sightings, rules) + patterns.outgrown(state, rules)
    return [
        active
        for active in state.active
        if (active.pattern, active.fingerprint) not in seen
        and (
            active in over
            or (active.fingerprint == call.fingerprint and active.pattern in _OF_ONE_CALL)
            or (progress and active.pattern in endings.ENDED_BY_PROGRESS)
        )
    ]


_OF_ONE_CALL = frozenset({Pattern.REPETITIVE_CALLS, Pattern.ERROR_RETRY_LOOP})


def conclude(
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


def forget_streaks(state: SessionState) -> None:
    """The user spoke: every count starts afresh."""
    announcements.fulfilled(state)
    talk.interrupted(state)
    text_loop.forget_texts(state)
    budget.turn_over(state)
    prerequisites.forgive(state)
    failures.forget_unknown(state)
    streaks.forget_reads(state)
    state.explores = True
    state.error_streaks = []
    state.paging = []
    state.named_tools = []
    state.planning_count = 0
    state.plannings = []
    state.retries = []
    state.window = []
    state.cycle_tail = []
    state.cycle_runs = [0] * len(state.cycle_runs)
    state.introspections = []
    state.introspection_count = 0
    state.progress_step = state.step
