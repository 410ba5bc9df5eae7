"""Detector of a cycle of steps that repeats without a break."""

from __future__ import annotations

from collections.abc import Sequence

from ....schemas.vocabulary import PatternType
from ...calls.fingerprints import digest
from ...calls.tool_class import moves_on
from ...emitter import MAX_CAUSES
from ..records import ActivePattern, EventContext, PatternSighting
from ..steps import ACTED, FAILED, MAX_CYCLE, MAY_HAVE_CHANGED, PAUSED, WAITED, AgentSteps, FinishedStep
from .detector import PatternDetector


class AlternatingLoop(PatternDetector, array_like=True):
    """Detector of a cycle of two to six steps that repeats with the same results; the steps keep its counters.

    Holds when the same calls come round in the same order with the same results; edits that undo each other are
    included. A cycle with a wait in it is a look from time to time, and not reported; nor is one of keys or steps. It is proven waste only if a step
    of it looks or fails, or it ends with a command line: steps that only act may all be meant.

    Ends with a step outside the cycle.

    Known false alarms: none seen.
    """

    pattern = PatternType.ALTERNATING_LOOP
    ends_with = "a step out of the cycle"
    texts = (
        "The same calls have come round {count} times with the same results, the last one {request}. Look at what they "
        "said and take a step that is not among them. If you are waiting or done, end your turn.",
        "You are going round in a circle: {count} laps of the same calls with the same results, the last one {request}. "
        "Leave the circle: say what you are trying to find out, and take another way or end your turn.",
        "Stopped after {count} laps of the same calls with the same results. Make no further calls. Say what you tried "
        "and what you need.",
    )
    ended_by_progress = outgrown = True

    laps: int = 0  # laps of the cycle at the latest step

    def is_over(self, active: ActivePattern, ctx: EventContext) -> bool:
        """Whether a step outside the cycle has ended it."""
        del active, ctx
        return not self.laps

    def on_finish(self, done: object, ctx: EventContext) -> None:
        """Forget the cycle, until `on_cycle` finds that the step continues one."""
        del done, ctx
        self.laps = 0

    def on_compacted(self) -> None:
        """Forget the cycle: the model may look at all of it again."""
        self.laps = 0

    def on_cycle(self, runs: Sequence[int], ctx: EventContext) -> None:
        """Report the shortest cycle that this step completes."""
        steps, ladder = ctx.state.steps, ctx.rules.behaviour.alternating_loop
        for period in range(2, MAX_CYCLE + 1):
            run = runs[period - 1]
            laps = run // period + 1
            if not run or not ladder.step(laps):
                continue
            if any(period % shorter == 0 and runs[shorter - 1] >= run for shorter in range(1, period)):
                continue  # the repetition has a shorter period; one repeated call is not a cycle
            done = [one for one in steps.window if one.step > steps.number - period]
            marks = 0
            looks = ctx.call is not None and ctx.call.runs == "shell"
            for one in done:
                marks |= one.marks
                looks = looks or not one.marks & (ACTED | MAY_HAVE_CHANGED) or bool(one.marks & FAILED)
            if marks & WAITED or all(moves_on(one.tool_name) for one in done):
                return
            self.laps = laps
            if run % period:
                continue
            cycle = sorted([*steps.cycle_tail, steps.mix][-period:])
            evidence = _latest(steps, period * min(laps, MAX_CAUSES // period or 1))
            seen = PatternSighting(
                self.pattern, ladder.step(laps), digest(b"".join(part.to_bytes(8, "big") for part in cycle)), laps,
                [one.tool_name for one in evidence], [one.event_id for one in evidence], "leave the circle",
                since_ms=evidence[0].at_ms if evidence else 0, proven=looks and not marks & PAUSED,
            )  # fmt: skip
            ctx.sightings.append(seen)
            return


def _latest(steps: AgentSteps, count: int) -> list[FinishedStep]:
    """Calls of the latest `count` steps, at most MAX_CAUSES."""
    return [one for one in steps.window if one.step > steps.number - count][-MAX_CAUSES:]
