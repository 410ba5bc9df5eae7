"""Detector of work that is announced and not carried out, across turns (docs/detection.md, Announcements).

The signal is structural and works in any language: a message that is followed by another message, with no call and no
user message between them, counts as an announcement. Reads, plans and refused edits follow up an announcement; other
detectors decide whether they lead to progress. A message with a known phrase (announcing.py) counts at once.
"""

from __future__ import annotations

from ....schemas.vocabulary import Pattern, ToolClass
from ...emitter import MAX_CAUSES
from ..announcing import awaits_user
from ..records import ActivePattern, Context, OpenCall, Sighting
from .detector import Detector, Message

_BY_STRUCTURE = "announce_no_action by structure"
"""Variant of the nudge texts where messages counted by structure alone, without a known phrase."""


class AnnounceNoAction(Detector, array_like=True):
    """Detector that counts announcements without a follow-up call.

    Attributes:
        count: number of announcements.
        event_ids: ids of the latest announcements.
        this_turn: whether one of them was made in this turn.
        since_ms: time of the first announcement, milliseconds.
        unconfirmed: id of the latest message if it counts as soon as another message follows; else empty.
        unconfirmed_since: time of that message, milliseconds.
        phrased: whether one of the announcements contains a known phrase.
        unphrased: whether a message without a known phrase has been followed by another message.
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
        """Whether a call other than introspection has reset the count."""
        del active, ctx
        return not self.count

    def on_act(self, call: OpenCall) -> None:
        """Reset the count, unless the call is introspection."""
        if (self.count or self.unconfirmed) and call.tool_class is not ToolClass.INTROSPECTION:
            self._forget()

    def on_message(self, message: Message, ctx: Context) -> None:
        """Count a message that announces work, and confirm the message before it.

        The previous message counts as an announcement too, whatever its words, unless it handed over to the user. The
        first such message of a turn does not count, because one extra message before a call is normal.
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
            awaits_user(event.text) if event.text is not None else not event.text_digest
        ):
            self.unconfirmed, self.unconfirmed_since = event.id, ctx.emit.at
        self._report(before, ctx)

    def on_turn_start(self, ctx: Context) -> None:
        """Count the last message of the previous turn as an announcement, as no user message came after it."""
        del ctx
        if self.unconfirmed:
            self._confirm()

    def on_turn(self, ctx: Context) -> None:
        """Count the last message of a turn, whatever its words, if there was an announcement before it.

        A turn without a message or an action counts as one more once the count has reached the moderate step.
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
