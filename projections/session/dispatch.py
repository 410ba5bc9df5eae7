"""Dispatch of a session's calls, messages and turns to the detectors, and emission of the results.

Every detector that overrides an event's hook is called, independently of the others. Order at the end of an event:
patterns cleared, patterns seen, nudges judged, one nudge.
"""

from __future__ import annotations

from itertools import chain

from ...schemas import events as ev
from ...schemas.vocabulary import CallStatus, InputSource, PatternType, ToolClass
from ..calls.fingerprints import digest
from . import nudges, patterns
from .announcing import announcing
from .call_outcomes import emit_patterns
from .detectors.announce_no_action import AnnounceNoAction
from .detectors.detector import FinishedCall, PatternDetector, SpokenText
from .detectors.registry import (
    FINISH_HOOKS,
    ON_ACT,
    ON_CALL,
    ON_COMPACTED,
    ON_CYCLE,
    ON_DUE,
    ON_EFFECT,
    ON_FAILURE,
    ON_INPUT,
    ON_MESSAGE,
    ON_NEWS,
    ON_OVERDUE,
    ON_PROGRESS,
    ON_SUCCESS,
    ON_TEXT,
    ON_TURN,
    ON_TURN_OVER,
    ON_TURN_START,
    ON_USER,
    OUTLIVES_USER,
)
from .records import ActivePattern, CallRecord, PatternSighting
from .session_state import SessionContext
from .steps import ACTED, FAILED, MAY_HAVE_CHANGED, NEWS, PAUSE_MS, PAUSED, WAIT_MS, WAITED, FinishedStep
from .verdicts import FinishVerdict


def call_started(call: CallRecord, ctx: SessionContext) -> None:
    """Dispatch a started call."""
    state = ctx.state
    detectors = state.detectors
    ctx.call = call
    for detector in ON_ACT(detectors):
        detector.on_act(call)
    if detectors.stalled_call.overdue:
        detectors.stalled_call.stop_tracking_agent(state.agent)
    if ctx.rules.behaviour.enabled:
        for detector in ON_CALL(detectors):
            detector.on_call(call, ctx)
    if state.active or ctx.sightings:
        close_ended(ctx)


def call_finished(event: ev.ToolCallFinished, call: CallRecord, verdict: FinishVerdict, ctx: SessionContext) -> None:
    """Dispatch a finished call."""
    state, rules, neutral = ctx.state, ctx.rules, verdict.neutral
    steps, detectors = state.steps, state.detectors
    # Two unknown results are never the same.
    result = 0 if neutral else verdict.result or digest(call.event_id.encode())
    cycle_runs = steps.call_finished(call.step, call.fingerprint, result)
    paused_ms = call.started_ms - state.finished_ms if state.finished_ms else 0
    state.finished_ms = ctx.emit.at
    if not rules.behaviour.enabled:
        return
    ctx.call = call
    if rules.policies and event.status is CallStatus.SUCCESS and not verdict.failed:  # from a cache will do
        succeeded(call.tool_name, ctx)
    progress = False
    if not neutral:
        done = _finished(event, call, verdict, ctx, paused_ms)
        progress = _take_evidence(done, ctx)
        for detector in FINISH_HOOKS[done.equal or call.waits, bool(call.runs)](detectors):
            detector.on_finish(done, ctx)
        for detector in ON_FAILURE(detectors) if verdict.failed else ():
            detector.on_failure(done, ctx)
    elif event.status is CallStatus.CANCELLED and call.has_effect and not verdict.denied:
        for detector in ON_EFFECT(detectors):  # nobody knows how far it came
            detector.on_effect("")
    for detector in ON_CYCLE(detectors) if cycle_runs else ():
        detector.on_cycle(cycle_runs, ctx)
    ended = _ended(ctx, call, progress=progress) if state.active and not neutral else []
    if ended or ctx.sightings or (state.pending_nudges and not neutral):
        raised = conclude(ended, ctx, failed=verdict.failed)
        if raised:
            emit_patterns(event, call, verdict, raised, ctx)


def _finished(
    event: ev.ToolCallFinished, call: CallRecord, verdict: FinishVerdict, ctx: SessionContext, paused_ms: int
) -> FinishedCall:
    """Compare a result with what the agent has seen, and remember it."""
    steps, failed, result = ctx.state.steps, verdict.failed, verdict.result
    shown = verdict.shown
    judged = new = 0
    if shown:
        judged, new = steps.seen.look(shown.hashes())
    elif shown.only_echo:
        judged = 1
    same = ctx.same
    equal = False
    if same and result:
        equal = any(one.result == result for one in same)
    news = new > 0 if judged else not equal and not failed
    marks = FAILED if failed else NEWS if news else 0
    if call.tool_class is ToolClass.ACTION:
        marks |= ACTED
    elif call.tool_class is ToolClass.UNKNOWN and not failed:
        marks |= MAY_HAVE_CHANGED
    if call.tool_class is ToolClass.READ and not failed and not call.runs:  # a look that takes its time waits for news
        paused_ms = max(paused_ms, ctx.emit.at - call.started_ms - call.waited_ms)
    if call.waits or steps.woken or paused_ms >= WAIT_MS:
        marks |= WAITED
        steps.woken = False
    elif paused_ms >= PAUSE_MS:
        marks |= PAUSED
    steps.window.append(
        FinishedStep(call.step, call.fingerprint, result, call.tool_name, event.id, call.started_ms, marks)
    )
    return FinishedCall(event, call, verdict, same, equal, news, judged > 0 and not new)


_WAKING = frozenset({InputSource.TIMER, InputSource.REPORT, InputSource.AGENT})


def _take_evidence(done: FinishedCall, ctx: SessionContext) -> bool:
    """Dispatch what a call may have changed, and news; returns whether it is progress: something has surely changed."""
    call, steps, detectors = done.call, ctx.state.steps, ctx.state.detectors
    moved = not done.verdict.failed and not done.equal
    progress = moved and call.tool_class is ToolClass.ACTION
    by = call.tool_name
    if state := done.event.workspace_digest:
        before, steps.workspace = steps.workspace, digest(state.encode())
        if not progress and before not in {0, steps.workspace}:
            progress, by = True, ""  # somebody else may have changed it
    if progress:
        steps.progress = call.step if moved else call.step - 1
        for detector in ON_PROGRESS(detectors):
            detector.on_progress(by)
    elif moved and call.may_change:
        for detector in ON_EFFECT(detectors):
            detector.on_effect(call.tool_name)
    for detector in ON_NEWS(detectors) if done.news and not done.verdict.failed else ():
        detector.on_news()
    return progress


def succeeded(tool_name: str, ctx: SessionContext) -> None:
    """Dispatch a success of a tool, also from a cache or after its deadline."""
    for detector in ON_SUCCESS(ctx.state.detectors):
        detector.on_success(tool_name, ctx)


def text(event: ev.ModelText, ctx: SessionContext) -> None:
    """Dispatch a message or thought of the model."""
    state, rules = ctx.state, ctx.rules.behaviour
    detectors = state.detectors
    if detectors.stalled_call.overdue:
        detectors.stalled_call.stop_tracking_agent(state.agent)
    if rules.enabled and (event.text is None or event.text.strip()):
        message = _message(event, rules.announce_phrases)
        if not event.thought:
            for detector in ON_MESSAGE(detectors):
                detector.on_message(message, ctx)
        for detector in ON_TEXT(detectors):
            detector.on_text(message, ctx)
    close_ended(ctx)


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
    close_ended(ctx)


def user_message(ctx: SessionContext, words: int | None = None) -> None:
    """End the streaks of every agent at a user message of this many words; pending nudges stay unjudged.

    A turn that ends with an announcement counts on if the user says no more than "continue".
    """
    state = ctx.state
    detectors = state.detectors
    enabled = ctx.rules.behaviour.enabled
    if enabled:
        detectors.unproven_claim.on_turn(ctx)
    announcing = detectors.announce_no_action.before_user(words, ctx) if enabled else AnnounceNoAction()
    if ctx.sightings:
        conclude([], ctx)
    if state.active or state.agents:
        for _ in state.each_agent():
            goes_on = announcing.turns and state.detectors is detectors
            patterns.clear(
                [
                    one
                    for one in state.active
                    if one.pattern not in OUTLIVES_USER
                    and not (goes_on and one.pattern == PatternType.ANNOUNCE_NO_ACTION and not one.variant)
                ],
                ctx,
            )
        state.agents = {}
    state.pending_nudges = [one for one in state.pending_nudges if one.waiting]  # of streaks that go on
    state.nudged = []
    state.asked = []
    state.steps.forget()
    detectors.forget()
    detectors.announce_no_action = announcing
    for detector in ON_USER(detectors):
        detector.on_user(ctx)


def input_received(source: InputSource, ctx: SessionContext) -> None:
    """Dispatch that something other than the user spoke to the model; what woke it is a wait between two calls."""
    state = ctx.state
    for _ in state.each_agent(everyone=True):
        state.steps.woken = state.steps.woken or source in _WAKING
        for detector in ON_INPUT(state.detectors):
            detector.on_input()
        close_ended(ctx)


def context_compacted(ctx: SessionContext) -> None:
    """Dispatch the shortening of the context: everything may be read again, failures count on."""
    state = ctx.state
    for _ in state.each_agent(everyone=True):
        state.steps.compacted()
        for detector in ON_COMPACTED(state.detectors):
            detector.on_compacted()
        close_ended(ctx)


def session_ended(ctx: SessionContext) -> None:
    """End the open turn at the end of the session; `user_message` ends the streaks."""
    for detector in ON_TURN_OVER(ctx.state.detectors):
        detector.on_turn_over(ctx, ended=True)


def time_passed(ctx: SessionContext) -> None:
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
            close_ended(ctx)


def schedule(ctx: SessionContext) -> None:
    """Set the time of the detectors' next report, at least one millisecond after now even if it was due earlier."""
    due = 0
    for detector in ON_DUE(ctx.state.detectors):
        when = detector.due(ctx)
        if when and (not due or when < due):
            due = when
    ctx.state.stall_due = max(due, ctx.emit.at + 1) if due else 0


def close_ended(ctx: SessionContext) -> None:
    """Conclude an event that may have ended patterns besides those it shows."""
    ended = _ended(ctx) if ctx.state.active else []
    if ctx.sightings or ended:
        conclude(ended, ctx)


def conclude(ended: list[ActivePattern], ctx: SessionContext, *, failed: bool = False) -> list[PatternSighting]:
    """Emit the results of an event: patterns cleared, patterns seen, nudges judged, one nudge.

    Args:
        ended: patterns that have ended.
        ctx: context of the event.
        failed: whether it is the finish of a failed call.

    Returns:
        The sightings of patterns that are new or more severe.
    """
    sightings, ctx.sightings = ctx.sightings, []
    if ended:
        patterns.clear(ended, ctx)
    sighted, raised = [], []
    for sighting in sightings:
        active, is_raised = patterns.record_sighting(sighting, ctx)
        sighted.append(active)
        if is_raised:
            raised.append(sighting)
    if ctx.state.pending_nudges:
        nudges.judge(ended, sighted, ctx, failed=failed)
    if sighted:
        nudges.nudge_one([one for one in sighted if one.for_model], ctx)
    return raised


def _message(event: ev.ModelText, phrases: tuple[str, ...]) -> SpokenText:
    if event.thought:
        return SpokenText(event, announces=False, sentences=iter(()))
    sentences = announcing(event.text or "", phrases)
    if event.announces is not None:
        return SpokenText(event, event.announces, sentences)
    first = next(sentences, None)
    if first is None:
        return SpokenText(event, announces=False, sentences=sentences)
    return SpokenText(event, announces=True, sentences=chain((first,), sentences))


def _ended(ctx: SessionContext, call: CallRecord | None = None, *, progress: bool = False) -> list[ActivePattern]:
    """Open patterns that have ended, by their detectors; `call` is the call that has just finished."""
    state = ctx.state
    seen = {(sighting.pattern, sighting.fingerprint) for sighting in ctx.sightings}
    oldest = state.steps.number - ctx.rules.behaviour.window_steps
    ended = []
    for active in state.active:
        if (active.pattern, active.fingerprint) in seen:
            continue
        detector: PatternDetector = getattr(state.detectors, active.pattern)
        by_call = call is not None and (
            (progress and detector.ended_by_progress)
            or (detector.outgrown and active.last_step < oldest)
            or (detector.ended_by_call and active.fingerprint == call.fingerprint)
        )
        if by_call or detector.is_over(active, ctx):
            ended.append(active)
    return ended
