"""Detector of a call repeated with the same result in several steps since progress; a changed result ends it."""

from __future__ import annotations

from ....schemas.vocabulary import Pattern, ToolClass
from ...emitter import MAX_CAUSES
from ..records import Context, Sighting
from ..steps import FinishedStep
from .detector import Detector, Finished


class RepetitiveCalls(Detector, array_like=True):
    """Detector that searches the window of steps for the same call and result; it keeps no counts of its own."""

    pattern = Pattern.REPETITIVE_CALLS
    ends_with = "another result, or progress"
    texts = (
        "You've called {tool_name} {count} times with the same result. Consider if you have the information needed to proceed.",
        "NOTICE: You are in a loop: {count} identical calls of {tool_name}, the same result each time. Stop and take action on what you've learned.",
        "PAUSED: {count} identical calls of {tool_name} brought nothing new. The session waits for the user.",
    )
    reported = 2
    ended_by_progress = ended_by_call = outgrown = True

    def on_finish(self, done: Finished, ctx: Context) -> None:
        """Count the steps in which the call gave this result, back to a different result or to progress."""
        if not done.same or not done.verdict.result:
            return
        rules, steps = ctx.rules.behaviour, ctx.state.steps
        ladder = rules.poll_no_progress if done.call.tool_class is ToolClass.POLL else rules.repetitive_calls
        last = steps.window[-1]
        repeats: list[FinishedStep] = []
        step = -1
        for one in (last, *reversed(done.same)):
            if one.result != last.result or one.step < steps.progress:
                break
            if one.step != step:
                repeats.append(one)
                step = one.step
        severity = ladder.step(len(repeats))
        if not severity:
            return
        repeats.reverse()
        seen = Sighting(
            self.pattern, severity, last.call, len(repeats), [one.tool_name for one in repeats[-MAX_CAUSES:]],
            [one.event_id for one in repeats], since_ms=repeats[0].at_ms,
        )  # fmt: skip
        ctx.sightings.append(seen)
