"""Detector of a call that is repeated with the same result."""

from __future__ import annotations

from ....rules.behaviour import BehaviourRules
from ....schemas.vocabulary import Pattern, ToolClass
from ...emitter import MAX_CAUSES
from ..records import Context, Sighting
from ..steps import MAY_HAVE_CHANGED, NEWS, PAUSED, WAITED, FinishedStep
from .detector import Detector, Finished


class RepetitiveCalls(Detector, array_like=True):
    """Detector of a call that is repeated with the same result; it searches the window of steps, and counts nothing.

    Holds when the same call gave the same result in several steps since the last progress, with other steps between or
    without. Two unknown results are never the same. Where calls between brought news, the pattern holds a step later;
    where calls of unknown effect lie between, which may have changed what is asked about, it stays a hint.

    Ends with another result of the call, or progress. A repetition with a wait between, or a minute without a call, is a
    poll. With pauses of twenty seconds, in which the model may have thought or waited, it is a hint where a fast
    poll is guidance.

    Known false alarms: a status that is asked for again because somebody else works on it, without a wait between;
    a switch that is turned to and fro between other readings.
    """

    pattern = Pattern.REPETITIVE_CALLS
    ends_with = "another result, or progress"
    texts = (
        "{request} was called {count} times and gave the same result each time. Use what it said, or ask for something "
        "else. If you are waiting or done, end your turn.",
        "{request} has given the same result {count} times. Calling it again will not bring anything new: look at what "
        "you have, say what is still missing, and take another step. If you are waiting or done, end your turn.",
        "Stopped after {count} equal calls of {request} with equal results. Make no further calls. Say what you tried "
        "and what you need.",
    )
    reported = 2
    ended_by_progress = ended_by_call = outgrown = True
    finishes = "repeated"

    def on_finish(self, done: Finished, ctx: Context) -> None:
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
        severity = _severity(len(repeats), between, rules)
        if severity:
            repeats.reverse()
            seen = Sighting(
                self.pattern, severity, last.call, len(repeats), [one.tool_name for one in repeats[-MAX_CAUSES:]],
                [one.event_id for one in repeats], "use the result, or take another step", since_ms=repeats[0].at_ms,
                proven=not between & (MAY_HAVE_CHANGED | PAUSED), hint_only=bool(between & MAY_HAVE_CHANGED),
            )  # fmt: skip
            ctx.sightings.append(seen)


def _severity(count: int, between: int, rules: BehaviourRules) -> int:
    """Severity of this many equal calls with steps between that have these marks."""
    if between & WAITED:
        return 0
    if between & PAUSED:
        return max(0, rules.poll.step(count) - 1)
    if between & MAY_HAVE_CHANGED:
        return rules.repetitive_calls_with_effects.step(count)
    return (rules.repetitive_calls_with_news if between & NEWS else rules.repetitive_calls).step(count)
