"""Detector of a call that is repeated with the same result."""

from __future__ import annotations

from ....rules.behaviour import BehaviourRules
from ....schemas.vocabulary import PatternType, ToolClass
from ...calls.tool_class import moves_on
from ...emitter import MAX_CAUSES
from ..records import EventContext, PatternSighting
from ..steps import MAY_HAVE_CHANGED, NEWS, PAUSED, WAITED, FinishedStep
from .detector import FinishedCall, PatternDetector

EMPTY_BYTES = 2  # Length of an empty text in JSON: such a result says nothing of what was done
BARE_BYTES = 80  # A shorter result of a call that moves something on says no more than that it has done so


class RepetitiveCalls(PatternDetector, array_like=True):
    """Detector of a call that is repeated with the same result; it searches the window of steps, and counts nothing.

    Holds when the same call gave the same result in several steps since the last progress, with other steps between or
    without. Two unknown results are never the same. Where calls between brought news, the pattern holds a step later;
    where calls of unknown effect lie between, which may have changed what is asked about, it stays a hint. It is proven
    waste only if the call has no effect of its own: it looks, it is a command line, or the publisher's state of the
    workspace stays equal. Other tools that act, or may have acted, may be meant to be called again: guidance at most, and
    a hint where they say nothing.

    Ends with another result of the call, or progress. A repetition with a wait between, or a minute without a call, is a
    poll. With pauses of twenty seconds, in which the model may have thought or waited, it is a hint where a fast
    poll is guidance.

    Known false alarms: a status that is asked for again because somebody else works on it, without a wait between;
    a switch that is turned to and fro between other readings.
    """

    pattern = PatternType.REPETITIVE_CALLS
    ends_with = "another result, or progress"
    texts = (
        "{request} was called {count} times and gave the same result each time. Use what it said, or ask for something "
        "else. If you are waiting or done, end your turn.",
        "{request} has given the same result {count} times. Calling it again will not bring anything new: look at what "
        "you have, say what is still missing, and take another step. If you are waiting or done, end your turn.",
        "Stopped after {count} equal calls of {request} with equal results. Make no further calls. Say what you tried "
        "and what you need.",
    )
    variants = {
        "effects": (
            "{request} was called {count} times and gave the same result each time. If every call is meant to do "
            "something, go on; else use what it said, or take another step. If you are done, end your turn.",
            "{request} has given the same result {count} times. If every call is meant to do something, say so and go on; "
            "else look at what you have, say what is still missing, and take another step, or end your turn.",
        )
    }
    reported = 2
    ended_by_progress = ended_by_call = outgrown = True
    finishes = "repeated"

    def on_finish(self, done: FinishedCall, ctx: EventContext) -> None:
        """Count the steps in which the call gave this result, since a different result or progress."""
        verdict, call = done.verdict, done.call
        if call.waits or (verdict.failed and not (verdict.answer and call.runs)):
            return
        steps, rules = ctx.state.steps, ctx.rules.behaviour
        last = steps.window[-1]
        # An action is progress when it is new; what is repeated of it begins with that one.
        progress = steps.progress - (call.tool_class is ToolClass.ACTION)
        repeats: list[FinishedStep] = []
        step = -1
        for one in (last, *reversed(done.same)):
            if one.result != last.result or one.step <= progress:
                break
            if one.step != step:
                repeats.append(one)
                step = one.step
        if len(repeats) < min(rules.repetitive_calls.minor, rules.repetitive_calls_with_effects.minor):
            return
        between = 0
        for one in steps.window:
            if one.step > step:
                between |= one.marks if one.call != call.fingerprint else one.marks & (WAITED | PAUSED)
        has_effect = call.has_effect and call.runs != "shell" and not done.event.workspace_digest
        if _moves_on(done):
            between |= PAUSED
        elif has_effect and verdict.size <= EMPTY_BYTES:
            between |= MAY_HAVE_CHANGED
        severity = _severity(len(repeats), between, rules)
        if severity:
            repeats.reverse()
            seen = PatternSighting(
                self.pattern, severity, last.call, len(repeats),
                [one.tool_name for one in repeats[-MAX_CAUSES:]], [one.event_id for one in repeats],
                "use the result, or take another step", since_ms=repeats[0].at_ms,
                variant="effects" if has_effect else "",
                proven=not has_effect and not between & (MAY_HAVE_CHANGED | PAUSED),
                hint_only=bool(between & MAY_HAVE_CHANGED),
            )  # fmt: skip
            ctx.sightings.append(seen)


def _moves_on(done: FinishedCall) -> bool:
    """Whether each call moves something on by one, and the result says no more than that."""
    call = done.call
    return done.verdict.size <= BARE_BYTES and not call.runs and moves_on(call.tool_name, call.request.shown)


def _severity(count: int, between: int, rules: BehaviourRules) -> int:
    """Severity of this many equal calls with steps between that have these marks."""
    if between & WAITED:
        return 0
    if between & PAUSED:
        return max(0, rules.poll.step(count) - 1)
    if between & MAY_HAVE_CHANGED:
        return rules.repetitive_calls_with_effects.step(count)
    return (rules.repetitive_calls_with_news if between & NEWS else rules.repetitive_calls).step(count)
