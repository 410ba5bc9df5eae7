"""Detector of a cycle of two to six steps that repeats without a break, each time with the same results."""

from __future__ import annotations

from ....schemas.vocabulary import Pattern
from ...calls.fingerprints import digest
from ...emitter import MAX_CAUSES
from ..records import ActivePattern, Context, Sighting
from ..steps import MAX_CYCLE, FinishedStep, Steps
from .detector import Detector


class AlternatingLoop(Detector, array_like=True):
    """Detector that reads the cycle counters of the steps (`Steps.cycle_runs`); it keeps no counts of its own."""

    pattern = Pattern.ALTERNATING_LOOP
    ends_with = "a step out of the cycle"
    texts = (
        "The same calls have come round {count} times with the same results. Consider what is missing to move on.",
        "NOTICE: You are going in a circle ({count} laps, last {tool_name}). Break it: use the results you have or try something new.",
        "PAUSED: The same cycle of calls has run {count} times. The session waits for the user.",
    )
    ended_by_progress = outgrown = True

    def is_over(self, active: ActivePattern, ctx: Context) -> bool:
        """Whether a step outside the cycle has ended it."""
        del active
        return not any(ctx.state.steps.cycle_runs[1:])

    def on_cycle(self, ctx: Context) -> None:
        """Report the shortest cycle that this step completes."""
        steps, ladder = ctx.state.steps, ctx.rules.behaviour.alternating_loop
        runs = steps.cycle_runs
        for period in range(2, MAX_CYCLE + 1):
            run = runs[period - 1]
            laps = run // period + 1
            if not run or run % period or not ladder.step(laps):
                continue
            if any(period % shorter == 0 and runs[shorter - 1] >= run for shorter in range(1, period)):
                continue  # the repetition has a shorter period; one repeated call is not a cycle
            cycle = sorted(steps.cycle_tail[-period:])
            done = _latest(steps, period * min(laps, MAX_CAUSES // period or 1))
            seen = Sighting(
                self.pattern, ladder.step(laps), digest(b"".join(part.to_bytes(8, "big") for part in cycle)), laps,
                [one.tool_name for one in done], [one.event_id for one in done], since_ms=done[0].at_ms if done else 0,
            )  # fmt: skip
            ctx.sightings.append(seen)
            return


def _latest(steps: Steps, count: int) -> list[FinishedStep]:
    """Calls of the latest `count` steps, at most MAX_CAUSES."""
    return [one for one in steps.window if one.step > steps.number - count][-MAX_CAUSES:]
