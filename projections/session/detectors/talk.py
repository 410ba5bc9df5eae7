"""Detectors of talk: messages in a row without a call, and messages that say again what was said."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from typing import ClassVar, Self
from zlib import crc32

import msgspec

from ....schemas.vocabulary import PatternType
from ...emitter import MAX_CAUSES
from ...snapshot import PackedValue
from ..novelty import RecentHashes
from ..records import ActivePattern, CallRecord, EventContext, PatternSighting
from .detector import PatternDetector, SpokenText

SHINGLE_WORDS = 4
MIN_WORDS = 8
MAX_TEXT_CHARS = 400  # Number of characters of a message that are compared with what was said before


class SaidWords(RecentHashes):
    """Sequences of words that an agent has said; all of them, because a share of a message is judged."""

    __slots__ = ()

    generation: ClassVar[int] = 512


class LatestWords(PackedValue):
    """The beginning of the latest message, of which nothing but hashes gets into a snapshot.

    Hashes are made when they are asked for: most messages are followed by a call, and are compared with nothing.
    """

    __slots__ = ("_sequences", "_text")

    def __init__(self, text: str = "", sequences: Iterable[int] = ()) -> None:
        """Take a text, or the hashes of its sequences of words."""
        self._text = text[:MAX_TEXT_CHARS]
        self._sequences = set(sequences)

    def __eq__(self, other: object) -> bool:
        """Whether both have the same sequences of words."""
        return isinstance(other, LatestWords) and self.sequences() == other.sequences()

    __hash__ = None  # type: ignore[assignment]

    def sequences(self) -> set[int]:
        """Hashes of the sequences of words; none of a text of few words."""
        if self._text:
            words = self._text.lower().encode(errors="replace").split()
            self._text = ""
            if len(words) >= MIN_WORDS:
                joined = map(b" ".join, zip(words, words[1:], words[2:], words[3:], strict=False))
                self._sequences = set(map(crc32, joined))
        return self._sequences

    def pack(self) -> bytes:
        """Return the hashes as numbers of 32 bits, sorted."""
        return array("I", sorted(self.sequences())).tobytes()

    @classmethod
    def unpack(cls, packed: bytes) -> Self:
        """Return the words of a packed form."""
        return cls("", array("I", packed))


_NO_WORDS = LatestWords()


class MonologueDetector(PatternDetector, array_like=True):
    """Detector of messages in a row without a call or any input.

    Holds when the model writes messages and nobody speaks between: no user, report, other agent, timer or hook.
    Thoughts and empty texts do not count.

    Ends with any call, and with anybody who speaks.

    Known false alarms: several speakers under one agent id, who write one after another; answers to reports of background
    work that the publisher does not send (`input.received`).
    """

    pattern = PatternType.MONOLOGUE
    ends_with = "any call, or anybody who speaks"
    notice = "The agent has written {count} messages without a call."
    texts = (
        "You have written {count} messages without a call. If there is work left, make the call that does the next "
        "step; if you are waiting or done, end your turn.",
        "{count} messages in a row without a call. Writing more does not move the work: make the next call, or end your "
        "turn and say what you need.",
    )
    reported = 3
    wants_action = True
    ended_by_progress = True

    spoken: int = 0  # messages since the last call
    event_ids: list[str] = []  # ids of the latest of them
    since_ms: int = 0  # time of the first of them, milliseconds

    def is_over(self, active: ActivePattern, ctx: EventContext) -> bool:
        """Whether a call or an input has reset the count."""
        del active, ctx
        return not self.spoken

    def on_act(self, call: CallRecord) -> None:
        """Reset the count."""
        del call
        self.spoken = 0

    def on_input(self) -> None:
        """Reset the count."""
        self.spoken = 0

    def on_message(self, message: SpokenText, ctx: EventContext) -> None:
        """Count a message."""
        if not self.spoken:
            self.since_ms, self.event_ids = ctx.emit.at, []
        self.spoken += 1
        self.event_ids = [*self.event_ids[1 - MAX_CAUSES :], message.event.id]
        severity = ctx.rules.behaviour.monologue.step(self.spoken)
        if severity:
            seen = PatternSighting(
                self.pattern, severity, 0, self.spoken, (), self.event_ids, "call a tool, or hand over to the user",
                since_ms=self.since_ms,
            )  # fmt: skip
            ctx.sightings.append(seen)


class RestatedDetector(PatternDetector, array_like=True):
    """Detector of messages that say again what was said, and are followed by another message instead of a call.

    Holds for messages of eight words and more of which a share (`restated_share`) of the sequences of four words was
    said before in such a message, since somebody spoke.

    Ends with a message that says something new, a call after the latest restatement, and anybody who speaks.

    Known false alarms: an orchestrator that hands the same instruction to one helper after another.
    """

    pattern = PatternType.RESTATED
    ends_with = "a message that says something new, a call, or anybody who speaks"
    texts = (
        "Your last messages say again what you have said before, {count} times now, and no call followed. Take the next "
        "step by a call, or end your turn.",
        "{count} messages repeated what was said before, with no call after them. Repeating it changes nothing: make "
        "the next call, or end your turn and say what you need.",
    )
    reported = 13
    wants_action = True

    # hashes of the sequences of words that were said and followed by a message
    said: SaidWords = msgspec.field(default_factory=SaidWords)
    count: int = 0  # restatements that were followed by a message
    latest_id: str = ""  # id of the latest message; empty if a call has followed it
    event_ids: list[str] = []
    since_ms: int = 0  # time of the first restatement, milliseconds
    latest: LatestWords = _NO_WORDS  # words of that message

    def is_over(self, active: ActivePattern, ctx: EventContext) -> bool:
        """Whether the count was reset."""
        del active, ctx
        return not self.count

    def on_act(self, call: CallRecord) -> None:
        """Drop the latest message: a call has followed it."""
        del call
        if self.latest_id:
            self.latest_id, self.latest = "", _NO_WORDS

    def on_input(self) -> None:
        """Reset the count; what was said stays known."""
        if self.latest_id:
            self.said.add(self.latest.sequences())
        self.count, self.latest_id, self.event_ids, self.latest = 0, "", [], _NO_WORDS

    def on_message(self, message: SpokenText, ctx: EventContext) -> None:
        """Count the message before if it was a restatement, now that no call has followed it."""
        event = message.event
        if self.latest_id:
            self._judge_latest(ctx)
        self.latest_id, self.latest = event.id, LatestWords(event.text or "")

    def _judge_latest(self, ctx: EventContext) -> None:
        """Compare the latest message with what was said before it."""
        sequences = self.latest.sequences()
        known = len(sequences) - len(self.said.new_of(sequences))
        self.said.add(sequences)
        if not sequences or known < ctx.rules.behaviour.restated_share * len(sequences):
            return
        if not self.count:
            self.since_ms = ctx.emit.at
        self.count += 1
        self.event_ids = [*self.event_ids[1 - MAX_CAUSES :], self.latest_id]
        severity = ctx.rules.behaviour.restated.step(self.count)
        if severity:
            seen = PatternSighting(
                self.pattern, severity, 0, self.count, (), self.event_ids, "make the next call, or end the turn",
                since_ms=self.since_ms,
            )  # fmt: skip
            ctx.sightings.append(seen)
