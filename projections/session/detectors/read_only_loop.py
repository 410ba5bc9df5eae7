"""Reads since the last action that bring nothing new; beyond a cap, reads in a row whatever they bring."""

from __future__ import annotations

from ....rules.rules import BehaviourRules
from ....schemas.vocabulary import Pattern, ToolClass
from ...emitter import MAX_CAUSES
from ..context import Context, Sighting
from ..records import ActivePattern
from .detector import Detector, Finished

_WITH_NEWS = "read_only_loop with news"
"""Names the texts for reads that go on beyond the cap although they bring news."""


class ReadOnlyLoop(Detector, array_like=True):
    """Counts steps with reads: all of them in a row, and those since the last news.

    A read with news is work and starts the count of stale ones afresh; an unknown call with news breaks the row. What
    another read has just brought is no news: a search that is only worded anew finds the same nothing.

    Attributes:
        reads: steps with reads in a row, news or not.
        reads_since: when the first of them started, milliseconds.
        step: step of the latest read.
        stale: of the reads, those since the last news.
        stale_since: when the first of these started, milliseconds.
        stale_ids: the latest of them.
        explores: nothing but reads since the user spoke.
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
        """When neither count makes a pattern any more."""
        del active
        rules = ctx.rules.behaviour
        return not (rules.read_only_loop.step(self.stale) or rules.read_only_cap.step(self.reads))

    def on_finish(self, done: Finished, ctx: Context) -> None:
        """Count a read; another call may break the row."""
        call, news = done.call, done.news
        if call.tool_class is not ToolClass.READ:
            self.explores = False
            if news and self.reads and not done.verdict.failed:
                self.on_progress()
            return
        result = done.verdict.result
        if news and result:
            news = result not in [one.result for one in ctx.state.steps.window[:-1]]
        if self._count(done, news=news):
            self._report(done, ctx)

    def _count(self, done: Finished, *, news: bool) -> bool:
        """Count a read; False when its step has been counted."""
        call = done.call
        if news:  # one of a batch is enough to make the step news
            self.stale = 0
            self.stale_ids = []
        if self.step == call.step and self.reads:
            return False
        self.step = call.step
        if not self.reads:
            self.reads_since = call.started_ms
        self.reads += 1
        if not news:
            if not self.stale:
                self.stale_since = call.started_ms
            self.stale += 1
            self.stale_ids = [*self.stale_ids[1 - MAX_CAUSES :], done.event.id]
        return True

    def _report(self, done: Finished, ctx: Context) -> None:
        rules = ctx.rules.behaviour
        stale, capped = rules.read_only_loop.step(self.stale), self._beyond_cap(rules)
        if not stale and not capped:
            return
        tools, action = [done.call.tool_name], "act on what has been read"
        if capped > stale:
            seen = Sighting(
                self.pattern, capped, 0, self.reads, tools, [done.event.id], action, since_ms=self.reads_since,
                variant=_WITH_NEWS,
            )  # fmt: skip
        else:
            seen = Sighting(
                self.pattern, stale, 0, self.stale, tools, self.stale_ids, action, since_ms=self.stale_since
            )
        ctx.sightings.append(seen)

    def _beyond_cap(self, rules: BehaviourRules) -> int:
        """Severity of the reads in a row."""
        return 0 if rules.cold_start_exempt and self.explores else rules.read_only_cap.step(self.reads)

    def on_progress(self) -> None:
        """Start the counts afresh."""
        self.stale = self.reads = 0
        self.stale_ids = []
