"""Dispatch of a session's calls, messages and turns to the detectors, and emission of the results.

Every detector that overrides an event's hook is called, independently of the others. Order at the end of an event:
patterns cleared, patterns seen, nudges judged, one nudge.
"""

from __future__ import annotations

from itertools import chain

from ...schemas import events as ev
from ...schemas.vocabulary import Status, ToolClass
from ..calls.fingerprints import digest
from . import model_outcomes, nudges, patterns
from .announcing import announcing
from .calls import Args
from .context import Context
from .detectors.detector import Finished, Message
from .detectors.registry import (
    OF_SESSION,
    ON_ACT,
    ON_CALL,
    ON_DUE,
    ON_FAILURE,
    ON_FINISH,
    ON_MESSAGE,
    ON_OVERDUE,
    ON_PROGRESS,
    ON_STEP,
    ON_SUCCESS,
    ON_TEXT,
    ON_TURN,
    ON_TURN_OVER,
    ON_TURN_START,
    ON_USER,
    Detectors,
)
from .records import ActivePattern, OpenCall
from .state import SessionState
from .steps import Done, fingerprint_of
from .verdicts import Verdict


class SessionContext(Context, gc=False):
    """Context of the fold of one event, with the complete session state."""

    state: SessionState


def call_begun(call: OpenCall, args: Args, ctx: SessionContext) -> None:
    """Dispatch a started call."""
    state = ctx.state
    detectors = state.detectors
    for detector in ON_ACT(detectors):
        detector.on_act(call)
    if detectors.stalled_call.overdue:
        detectors.stalled_call.moved_on(state.agent)
    if ctx.rules.behaviour.enabled:
        for detector in ON_CALL(detectors):
            detector.on_call(call, args, ctx)
    if state.active or ctx.sightings:
        break_out(ctx)


def call_finished(event: ev.ToolCallFinished, call: OpenCall, verdict: Verdict, ctx: SessionContext) -> None:
    """Dispatch a finished call."""
    state, neutral = ctx.state, verdict.neutral
    steps, detectors = state.steps, state.detectors
    # Two unknown results are never the same.
    said = 0 if neutral else fingerprint_of(call.fingerprint, verdict.result or digest(call.event_id.encode()))
    step_done = steps.call_finished(call.step, said)
    if not ctx.rules.behaviour.enabled:
        return
    if ctx.rules.policies and event.status is Status.SUCCESS and not verdict.failed:  # from a cache will do
        succeeded(call.tool_name, ctx)
    progress = False
    if not neutral:
        done = _done(event, call, verdict, ctx)
        progress = done.news and not verdict.failed and call.tool_class is ToolClass.ACTION
        if progress:
            steps.progress = call.step
            for detector in ON_PROGRESS(detectors):
                detector.on_progress()
        for detector in ON_FINISH(detectors):
            detector.on_finish(done, ctx)
        if verdict.failed:
            for detector in ON_FAILURE(detectors):
                detector.on_failure(done, ctx)
    if step_done:
        for detector in ON_STEP(detectors):
            detector.on_step(ctx)
    gone = _ended_by_call(call, ctx, progress=progress) if state.active and not neutral else []
    if gone or ctx.sightings or (state.pending_nudges and not neutral):
        fresh = model_outcomes.newly_seen(state, ctx.sightings)
        conclude(gone, ctx)
        model_outcomes.tell_tool(event, call, verdict, fresh, ctx)


def succeeded(tool_name: str, ctx: SessionContext) -> None:
    """Dispatch a success of a tool, also from a cache or after its deadline."""
    for detector in ON_SUCCESS(ctx.state.detectors):
        detector.on_success(tool_name, ctx)


def text(event: ev.ModelText, ctx: SessionContext) -> None:
    """Dispatch a message or thought of the model."""
    state, rules = ctx.state, ctx.rules.behaviour
    detectors = state.detectors
    if detectors.stalled_call.overdue:
        detectors.stalled_call.moved_on(state.agent)
    if rules.enabled:
        message = _message(event, rules.announce_phrases)
        if not event.thought:
            for detector in ON_MESSAGE(detectors):
                detector.on_message(message, ctx)
        for detector in ON_TEXT(detectors):
            detector.on_text(message, ctx)
    break_out(ctx)


def turn_started(ctx: SessionContext) -> None:
    """Dispatch the start of a turn."""
    for detector in ON_TURN_START(ctx.state.detectors):
        detector.on_turn_start(ctx)


def turn_over(ctx: SessionContext, *, ended: bool) -> None:
    """Dispatch the end of the open turn; `ended` is False if the start of the next one ended it."""
    detectors = ctx.state.detectors
    for detector in ON_TURN_OVER(detectors):
        detector.on_turn_over(ctx, ended=ended)
    if ctx.rules.behaviour.enabled:
        for detector in ON_TURN(detectors):
            detector.on_turn(ctx)
    break_out(ctx)


def user_spoke(ctx: SessionContext) -> None:
    """End every streak of every agent at a user message; pending nudges stay unjudged."""
    state = ctx.state
    if state.active or state.agents:
        for _ in state.each_agent():
            patterns.clear(list(state.active), ctx)
        state.agents = {}
    state.pending_nudges = []
    state.nudged = []
    state.asked = []
    state.steps.forget()
    old = state.detectors
    state.detectors = Detectors(**{name: getattr(old, name) for name in OF_SESSION})
    for detector in ON_USER(old):
        detector.on_user(ctx)


def session_ended(ctx: SessionContext) -> None:
    """End the open turn at the end of the session; `user_spoke` ends the streaks."""
    for detector in ON_TURN_OVER(ctx.state.detectors):
        detector.on_turn_over(ctx, ended=True)


def time_came(ctx: SessionContext) -> None:
    """Report what is due, for each agent that it concerns."""
    state, at = ctx.state, ctx.emit.at
    acting = state.agent
    for detector in ON_DUE(state.detectors):
        detector.on_due(ctx)
    if 0 < state.next_deadline <= at:
        for call in state.open_calls:
            if call.deadline_ms <= at and not call.ends_when_due:
                call.overdue_seen = True
                state.act_as(call.agent_id)
                for detector in ON_OVERDUE(state.detectors):
                    detector.on_overdue(call, ctx)
        state.schedule()
    schedule(ctx)
    seen, ctx.sightings = ctx.sightings, []
    if ctx.rules.behaviour.enabled:
        agents = dict.fromkeys([acting, *(one.agent_id for one in seen if one.agent_id is not None)])
        for agent_id in agents:
            state.act_as(agent_id)
            ctx.sightings = [one for one in seen if (acting if one.agent_id is None else one.agent_id) == agent_id]
            break_out(ctx)


def schedule(ctx: SessionContext) -> None:
    """Set the time of the detectors' next report, at least one millisecond after now even if it was due earlier."""
    due = 0
    for detector in ON_DUE(ctx.state.detectors):
        when = detector.due(ctx)
        if when and (not due or when < due):
            due = when
    ctx.state.stall_due = max(due, ctx.emit.at + 1) if due else 0


def break_out(ctx: SessionContext) -> None:
    """Conclude an event that may have ended patterns besides those it shows."""
    gone = _ended(ctx) if ctx.state.active else []
    if ctx.sightings or gone:
        conclude(gone, ctx)


def conclude(gone: list[ActivePattern], ctx: SessionContext) -> None:
    """Emit the results of an event: patterns cleared, patterns seen, nudges judged, one nudge."""
    seen, ctx.sightings = ctx.sightings, []
    cleared = patterns.clear(gone, ctx)
    active = [patterns.sight(sighting, ctx) for sighting in seen]
    nudges.judge_repeat(active, ctx)
    nudges.judge_cleared(cleared, ctx)
    nudges.judge_time(ctx)
    nudges.nudge_one(active, ctx)


def _done(event: ev.ToolCallFinished, call: OpenCall, verdict: Verdict, ctx: SessionContext) -> Finished:
    """A finished call, put into the window of steps."""
    result = verdict.result
    done = Done(call.step, call.fingerprint, result, call.tool_name, event.id, call.started_ms)
    same = ctx.state.steps.remember(done, ctx.rules.behaviour.window_steps)
    news = not same or not result or all(one.result != result for one in same)
    return Finished(event, call, verdict, same, news)


def _message(event: ev.ModelText, phrases: tuple[str, ...]) -> Message:
    if event.thought:
        return Message(event, announces=False, sentences=iter(()))
    sentences = announcing(event.text or "", phrases)
    if event.announces is not None:
        return Message(event, event.announces, sentences)
    first = next(sentences, None)
    if first is None:
        return Message(event, announces=False, sentences=sentences)
    return Message(event, announces=True, sentences=chain((first,), sentences))


def _ended(ctx: SessionContext) -> list[ActivePattern]:
    """Open patterns that have ended, by their detectors."""
    seen = {(sighting.pattern, sighting.fingerprint) for sighting in ctx.sightings}
    detectors = ctx.state.detectors
    return [
        active
        for active in ctx.state.active
        if (active.pattern, active.fingerprint) not in seen and getattr(detectors, active.pattern).is_over(active, ctx)
    ]


def _ended_by_call(call: OpenCall, ctx: SessionContext, *, progress: bool) -> list[ActivePattern]:
    """Open patterns that the call just finished has ended."""
    state = ctx.state
    seen = {(sighting.pattern, sighting.fingerprint) for sighting in ctx.sightings}
    oldest = state.steps.number - ctx.rules.behaviour.window_steps
    gone = []
    for active in state.active:
        if (active.pattern, active.fingerprint) in seen:
            continue
        detector = getattr(state.detectors, active.pattern)
        if (
            (progress and detector.ended_by_progress)
            or (detector.outgrown and active.last_step < oldest)
            or (detector.ended_by_call and active.fingerprint == call.fingerprint)
            or detector.is_over(active, ctx)
        ):
            gone.append(active)
    return gone
