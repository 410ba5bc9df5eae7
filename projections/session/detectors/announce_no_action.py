"""Detector of work that is announced and not carried out (docs/detection.md, Announcements)."""

from __future__ import annotations

from ....schemas.vocabulary import PatternType, ToolClass
from ...emitter import MAX_CAUSES
from ..announcing import awaits_user
from ..records import ActivePattern, CallRecord, EventContext, PatternSighting
from .detector import PatternDetector, SpokenText

# A user message of fewer words ("continue") answers nothing: turns that ended with an announcement count on
BARE_WORDS = 5

_IN_TURN = "announce_no_action in turn"
_BY_STRUCTURE = "announce_no_action by structure"


class AnnounceNoAction(PatternDetector, array_like=True):
    """Detector of messages that announce work and are followed by no call.

    Holds in three ways, each with a ladder of its own. *Turns*: a turn ends with a message that announces work by a
    known phrase, or after such turns only looks at the tools; the next turns count on across a user's bare "continue".
    *In a turn*: messages with a known phrase,
    with no call between; two progress notes are no loop. *By structure*, in any language: messages that were followed
    by another message, with no call and nobody speaking between, unless they hand over to the user.

    Ends with any call but a look at the tools, and with anybody who speaks: a user, a report, another agent, a timer.

    Known false alarms: several speakers under one agent id, who write one after another; answers to reports of background
    work that the publisher does not send (`input.received`).
    """

    pattern = PatternType.ANNOUNCE_NO_ACTION
    ends_with = "any call but looking at the tools, or anybody who speaks"
    notice = "The agent has announced work {count} times and made no call."
    texts = (
        "{count} turns in a row ended with an announcement of work and no call. Make the call now, in this turn; or "
        "tell the user what keeps you from it.",
        "{count} turns in a row ended with an announcement and no call, so nothing has happened. Call the tool that does "
        "the announced work before you write another message, or say that you cannot.",
        "Stopped after {count} turns that ended with an announcement and no call. Make the announced call, or say what "
        "keeps you from it and what you need.",
    )
    variants = {
        _IN_TURN: (
            "Your last {count} messages announced work, and no call followed. Make the call, or end your turn if you "
            "are waiting or done.",
            "{count} messages announced work and no call followed, so nothing has happened yet. Call the tool that does "
            "it, or end your turn and say what keeps you from it.",
        ),
        _BY_STRUCTURE: (
            "Your last {count} messages were each followed by another message and by no call. If there is work left, "
            "make the call that does it; if you are waiting or done, end your turn.",
            "{count} messages in a row without a call. Writing more does not move the work: make the call that does it, "
            "or end your turn and say what you need.",
        ),
    }
    reported = 1
    wants_action = True
    ended_by_progress = True

    turns: int = 0  # turns in a row that ended with an announcement
    answered: bool = False  # whether the user spoke between them
    ends_so: bool = False  # whether the latest message of the turn announces work by a phrase, and no call has followed
    phrased: int = 0  # messages with a known phrase in this turn since the last call
    followed: int = 0  # messages without one that were followed by another message
    pending: bool = False  # whether the latest message counts as soon as another one follows
    event_ids: list[str] = []  # ids of the latest announcements
    since_ms: int = 0  # time of the first announcement, milliseconds
    # whether the turn holds nothing but looks at the tools; None as long as it holds nothing
    only_looks: bool | None = None

    def is_over(self, active: ActivePattern, ctx: EventContext) -> bool:
        """Whether a call other than introspection, or somebody who spoke, has reset the counts."""
        del active, ctx
        return not (self.turns or self.phrased or self.followed)

    def on_act(self, call: CallRecord) -> None:
        """Reset the counts, unless the call is introspection."""
        if call.tool_class is ToolClass.INTROSPECTION:
            if self.only_looks is None:
                self.only_looks = True
        elif self.turns or self.phrased or self.pending or self.followed or self.ends_so:
            self._forget()

    def on_message(self, message: SpokenText, ctx: EventContext) -> None:
        """Count a message that announces work, or that follows one which handed over to nobody."""
        event, rules = message.event, ctx.rules.behaviour
        self.ends_so, self.only_looks = message.announces, False
        if message.announces:
            self.phrased += 1
            self.pending = False
            self._add(ctx)
            self._report(rules.announce_no_action_in_turn.step(self.phrased), self.phrased, _IN_TURN, ctx)
        else:
            if self.pending:
                self.followed += 1
                self._add(ctx)
            self.pending = event.announces is None and not (
                awaits_user(event.text) if event.text is not None else not event.text_digest
            )
        if self.followed:
            count = self.followed + self.phrased
            self._report(rules.announce_no_action_by_structure.step(count), count, _BY_STRUCTURE, ctx)

    def on_turn_over(self, ctx: EventContext, *, ended: bool) -> None:
        """After turns with an announcement, one that only looks at the tools has not carried it out."""
        del ctx, ended
        self.ends_so = self.ends_so or (self.turns > 0 and self.only_looks is True)
        self.only_looks = None

    def on_turn(self, ctx: EventContext) -> None:
        """Count a turn that ends with an announcement; the next turn's messages count anew."""
        if self.ends_so:
            self.turns += 1
            severity = ctx.rules.behaviour.announce_no_action.step(self.turns)
            # What the messages of a turn have shown is no proof: the turns themselves must be so many.
            self._report(severity, self.turns, "", ctx, proven=severity == 3 and not self.answered)
        self.ends_so = self.pending = False
        self.phrased = self.followed = 0

    def on_input(self) -> None:
        """Reset the counts: a message that answers a report is an answer."""
        self._forget()

    def before_user(self, words: int | None, ctx: EventContext) -> AnnounceNoAction:
        """End the turn, and return the detector for what follows a user message of this many words."""
        self.on_turn(ctx)
        if words is None or words >= BARE_WORDS:
            return AnnounceNoAction()
        return AnnounceNoAction(self.turns, True, event_ids=self.event_ids, since_ms=self.since_ms)  # noqa: FBT003

    def _add(self, ctx: EventContext) -> None:
        if not self.event_ids:
            self.since_ms = ctx.emit.at
        self.event_ids = [*self.event_ids[1 - MAX_CAUSES :], ctx.emit.cause]

    def _report(self, severity: int, count: int, variant: str, ctx: EventContext, *, proven: bool = False) -> None:
        if severity:
            tools = [done.tool_name for done in list(ctx.state.steps.window)[-3:]]
            seen = PatternSighting(
                self.pattern, severity, 0, count, tools, self.event_ids,
                "call the tool that does what was announced", since_ms=self.since_ms, variant=variant, proven=proven,
            )  # fmt: skip
            ctx.sightings.append(seen)

    def _forget(self) -> None:
        self.turns = self.phrased = self.followed = 0
        self.ends_so = self.pending = self.answered = False
        self.event_ids = []
