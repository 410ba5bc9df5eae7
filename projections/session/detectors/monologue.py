"""Detector of consecutive messages without a call or a user message between them."""

from __future__ import annotations

from ....schemas.vocabulary import Pattern
from ...emitter import MAX_CAUSES
from ..records import ActivePattern, Context, OpenCall, Sighting
from .detector import Detector, Message


class Monologue(Detector, array_like=True):
    """Detector that counts consecutive messages.

    Attributes:
        spoken: messages since the last call.
        event_ids: ids of the latest of them.
        since_ms: time of the first of them, milliseconds.
    """

    pattern = Pattern.MONOLOGUE
    ends_with = "any call"
    texts = (
        "You've written {count} messages without calling a tool. If there is work left, take the next step; if not, end your turn.",
        "NOTICE: {count} messages in a row and no tool call. Call the tool you need NOW, or hand over to the user.",
        "PAUSED: {count} messages without a tool call. The session waits for the user.",
    )
    reported = 3
    wants_action = True
    ended_by_progress = True

    spoken: int = 0
    event_ids: list[str] = []
    since_ms: int = 0

    def is_over(self, active: ActivePattern, ctx: Context) -> bool:
        """Whether a call has reset the count."""
        del active, ctx
        return not self.spoken

    def on_act(self, call: OpenCall) -> None:
        """Reset the count."""
        del call
        if self.spoken:
            self._forget()

    def on_message(self, message: Message, ctx: Context) -> None:
        """Count a message."""
        if not self.spoken:
            self.since_ms = ctx.emit.at
        self.spoken += 1
        self.event_ids = [*self.event_ids[1 - MAX_CAUSES :], message.event.id]
        severity = ctx.rules.behaviour.monologue.step(self.spoken)
        if severity:
            seen = Sighting(
                self.pattern, severity, 0, self.spoken, (), self.event_ids, "call a tool, or hand over to the user",
                since_ms=self.since_ms,
            )  # fmt: skip
            ctx.sightings.append(seen)

    def _forget(self) -> None:
        self.spoken = 0
        self.event_ids = []
