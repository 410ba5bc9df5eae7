"""Detector of reads without new results since the last action, and of too many reads in a row whatever they return."""

from __future__ import annotations

from ....schemas.vocabulary import Pattern, ToolClass
from ...emitter import MAX_CAUSES
from ..records import ActivePattern, Context, Sighting
from .detector import Detector, Finished

_WITH_NEWS = "read_only_loop with news"
"""Variant of the nudge texts for reads beyond the cap that return new results."""


class ReadOnlyLoop(Detector, array_like=True):
    """Detector that counts steps with reads: all of them in a row, and those since the last new result.

    A read with a new result resets the count of stale reads; a successful call of another class with a new result
    resets both counts. A result that another read in the window has given is not new, so a reworded search with the
    same result is stale.

    Attributes:
        reads: consecutive steps with reads, whatever their results.
        reads_since: start of the first of them, milliseconds.
        step: number of the step of the latest read.
        stale: reads since the last new result.
        stale_since: start of the first stale read, milliseconds.
        stale_ids: event ids of the latest stale reads.
        explores: whether there were only reads since the last user message.
    """

    pattern = Pattern.READ_ONLY_LOOP
    ends_with = "news, or progress"
    texts = (
        "The last {count} reads brought nothing new. Consider acting on what you have read.",
        "NOTICE: {count} reads without anything new. Act on what you know, or say what is missing.",
        "PAUSED: {count} reads without an action. The session waits for the user.",
    )
    variants = {
        _WITH_NEWS: (
            "That makes {count} reads in a row. Consider acting on what you have read.",
            "NOTICE: {count} reads in a row without an action. Act on what you know, or say what is missing.",
            "PAUSED: {count} reads in a row without an action. The session waits for the user.",
        )
    }
    reported = 5
    wants_action = True
    ended_by_progress = True

    reads: int = 0
    reads_since: int = 0
    step: int = -1
    stale: int = 0
    stale_since: int = 0
    stale_ids: list[str] = []
    explores: bool = True

    def is_over(self, active: ActivePattern, ctx: Context) -> bool:
        """Whether neither count reaches a step of its ladder any more."""
        del active
        rules = ctx.rules.behaviour
        return not (rules.read_only_loop.step(self.stale) or rules.read_only_cap.step(self.reads))

    def on_finish(self, done: Finished, ctx: Context) -> None:
        """Count a read; a call of another class may reset the counts."""
        call, news = done.call, done.news
        if call.tool_class is not ToolClass.READ:
            self.explores = False
            if news and self.reads and not done.verdict.failed:
                self.on_progress()
            return
        result = done.verdict.result
        if news and result:
            news = result not in [one.result for one in ctx.state.steps.window[:-1]]
        if news:  # one read with a new result is enough for the whole batch
            self.stale = 0
            self.stale_ids = []
        if self.step == call.step and self.reads:
            return  # its step was counted already
        self.step = call.step
        if not self.reads:
            self.reads_since = call.started_ms
        self.reads += 1
        if not news:
            if not self.stale:
                self.stale_since = call.started_ms
            self.stale += 1
            self.stale_ids = [*self.stale_ids[1 - MAX_CAUSES :], done.event.id]
        rules = ctx.rules.behaviour
        stale = rules.read_only_loop.step(self.stale)
        capped = 0 if rules.cold_start_exempt and self.explores else rules.read_only_cap.step(self.reads)
        tools, action = [call.tool_name], "act on what has been read"
        if capped > stale:
            seen = Sighting(
                self.pattern, capped, 0, self.reads, tools, [done.event.id], action, since_ms=self.reads_since,
                variant=_WITH_NEWS,
            )  # fmt: skip
            ctx.sightings.append(seen)
        elif stale:
            seen = Sighting(
                self.pattern, stale, 0, self.stale, tools, self.stale_ids, action, since_ms=self.stale_since
            )
            ctx.sightings.append(seen)

    def on_progress(self) -> None:
        """Reset both counts."""
        self.stale = self.reads = 0
        self.stale_ids = []
