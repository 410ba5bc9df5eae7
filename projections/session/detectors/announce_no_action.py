"""Announcing work and not doing it, across turns (docs/detection.md, Announcements).

The signal is structural, in any language: a message that is followed by another message, with no call and no user
between, promised something. Reads, plans and refused edits follow an announcement up; whether they lead anywhere is
for the other detectors. Phrases (announcing.py) only make it surer: a message with one of them counts at once.
"""

from __future__ import annotations

from ....schemas.vocabulary import Pattern, ToolClass
from ...emitter import MAX_CAUSES
from ..announcing import hands_over
from ..context import Context, Sighting
from ..records import ActivePattern, OpenCall
from .detector import Detector, Message

_BY_STRUCTURE = "announce_no_action by structure"
"""Names the texts for messages that announce by what follows them alone."""


class AnnounceNoAction(Detector, array_like=True):
    """Counts announcements that no call has followed up.

    Attributes:
        count: announcements.
        event_ids: the latest of them.
        this_turn: one of them is of this turn.
        since_ms: when the first was made, milliseconds.
        unconfirmed: id of the latest message if it announces work in case another message follows; empty if not.
        unconfirmed_since: when it was said, milliseconds.
        phrased: one of the announcements said so in words.
        unphrased: a message that said nothing of the kind has been followed by another one.
    """

    pattern = Pattern.ANNOUNCE_NO_ACTION
    ends_with = "any call but looking at the tools"
    texts = (
        "You mentioned proceeding but haven't called an action tool yet. Please execute the planned action.",
        "NOTICE: You've announced action {count} times without executing. Call the appropriate tool NOW.",
        "PAUSED: Repeated announcements without action. The session waits for the user.",
    )
    variants = {
        _BY_STRUCTURE: (
            "Your last messages were followed by no call. If you announced work, please carry it out; if not, end your turn.",
            "NOTICE: Message after message, and no call of a tool that does the work. Call it NOW, or hand over to the user.",
            "PAUSED: Message after message without an action. The session waits for the user.",
        )
    }
    reported = 1
    wants_action = True
    ended_by_progress = True

    count: int = 0
    event_ids: list[str] = []
    this_turn: bool = False
    since_ms: int = 0
    unconfirmed: str = ""
    unconfirmed_since: int = 0
    phrased: bool = False
    unphrased: bool = False

    def is_over(self, active: ActivePattern, ctx: Context) -> bool:
        """After any call but a look at the tools."""
        del active, ctx
        return not self.count

    def on_act(self, call: OpenCall) -> None:
        """The model does something: what was announced no longer counts."""
        if (self.count or self.unconfirmed) and call.tool_class is not ToolClass.INTROSPECTION:
            self._forget()

    def on_message(self, message: Message, ctx: Context) -> None:
        """One more message, with no call that followed up the last.

        The message before it announced something, too, whatever its words, unless it handed over to the user. Within a
        turn the first of these does not count: one message more, before the call, is how people talk.
        """
        before, event = self.count, message.event
        if self.unconfirmed:
            if self.unphrased:
                self._confirm()
            self.unphrased, self.unconfirmed = True, ""
        if message.announces:
            self.phrased = True
            self._add(event.id, ctx.emit.at)
        elif event.announces is None and not (
            hands_over(event.text) if event.text is not None else not event.text_digest
        ):
            self.unconfirmed, self.unconfirmed_since = event.id, ctx.emit.at
        self._report(before, ctx)

    def on_turn_start(self, ctx: Context) -> None:
        """No user has spoken: the message with which the last turn ended was an announcement."""
        del ctx
        if self.unconfirmed:
            self._confirm()

    def on_turn(self, ctx: Context) -> None:
        """After an announcement in an earlier turn the last message of a turn is another one, whatever its words.

        A turn without a message and without an action counts as one more where the stall was already clear.
        """
        before = self.count
        if self.unconfirmed and before:
            self._confirm()
        elif not self.this_turn and before >= ctx.rules.behaviour.announce_no_action.moderate:
            self._add(ctx.emit.cause, ctx.emit.at)
        self.this_turn = False
        self._report(before, ctx)

    def _confirm(self) -> None:
        self._add(self.unconfirmed, self.unconfirmed_since)
        self.unconfirmed = ""

    def _add(self, event_id: str, at: int) -> None:
        if not self.count:
            self.since_ms = at
        self.count += 1
        self.this_turn = True
        self.event_ids = [*self.event_ids[1 - MAX_CAUSES :], event_id]

    def _report(self, before: int, ctx: Context) -> None:
        severity = ctx.rules.behaviour.announce_no_action.step(self.count) if self.count > before else 0
        if severity:
            tools = [done.tool_name for done in ctx.state.steps.window[-3:]]
            seen = Sighting(
                self.pattern, severity, 0, self.count, tools, self.event_ids,
                "call the tool that does what was announced", since_ms=self.since_ms,
                variant="" if self.phrased else _BY_STRUCTURE,
            )  # fmt: skip
            ctx.sightings.append(seen)

    def _forget(self) -> None:
        self.count = 0
        self.this_turn = False
        self.event_ids = []
        self.unconfirmed = ""
        self.phrased = self.unphrased = False
