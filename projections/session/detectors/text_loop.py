"""Detector of a text block that is repeated within one message or across messages.

A block is a sentence or a line of prose. Code, tables, lists, headings, quotes and rules are exempt, because they
repeat by nature. Only checksums are kept; a new result of a call or a user message resets the counts.
"""

from __future__ import annotations

import re
from collections import Counter
from zlib import crc32

from ....schemas.events import ModelText
from ....schemas.vocabulary import PatternType
from ...emitter import MAX_CAUSES
from ..records import ActivePattern, EventContext, PatternSighting
from .detector import PatternDetector, SpokenText

MAX_TEXT_BLOCKS = 64  # Maximum number of text blocks remembered, as digests

# Only the last characters of a longer message are read: a model that repeats itself does so until it is cut off
MAX_TEXT_CHARS = 20_000

MIN_BLOCK_CHARS = 20  # Shorter blocks ("Done.") are ignored. Characters.
CHUNK_CHARS = 50  # Number of last characters of a long block whose repeats are counted in it

LONG_BLOCK_CHARS = 4 * CHUNK_CHARS
MAX_REPEATS = 100

_CODE = re.compile(r"^[^\S\n]*(```|~~~).*?(?:^[^\S\n]*\1|\Z)", re.MULTILINE | re.DOTALL)
_STRUCTURE = re.compile(r"[-*+•‣·>#|=_~`]|\d{1,4}[.):]|[a-zA-Z][.)]\s|[─━│┃┌├└╭╰═║]")
_BREAK = re.compile(r"[.!?;:…。！？](?:\s+|$)|\n")  # End of a sentence, or of a line


class TextLoop(PatternDetector, array_like=True):
    """Detector of a text block that is repeated within a message or across messages, thoughts included.

    Holds when a sentence or line of prose stands several times in what the model wrote since the last news or input.
    Code, tables, lists, headings and quotes may repeat.

    Ends with a message that repeats another text or none, with a result that brings news, and with anybody who speaks.

    Known false alarms: none seen.
    """

    pattern = PatternType.TEXT_LOOP
    ends_with = "another message, or news"
    notice = "The agent has written the same text {count} times."
    texts = (
        "You have written the same text {count} times. Say what is new, or take the next step.",
        "The same text stands in your messages {count} times. Take the next step instead of writing it again; if you "
        "are waiting or done, end your turn.",
        "Stopped after the same text was written {count} times. Make no further calls. Say what you tried and what you "
        "need.",
    )
    ended_by_progress = True

    said: dict[int, int] = {}  # number of occurrences by digest of the block, most recent last
    event_ids: list[str] = []  # ids of the latest messages that repeated a block
    since_ms: int = 0  # time of the first block, milliseconds
    repeated: int = 0  # digest of the block that the latest message repeated; 0 none

    def is_over(self, active: ActivePattern, ctx: EventContext) -> bool:
        """Whether the latest message repeats a different block or none."""
        del ctx
        return self.repeated != active.fingerprint

    def on_news(self) -> None:
        """Reset the counts."""
        if self.said:
            self.said = {}
            self.event_ids = []
            self.repeated = 0

    def on_input(self) -> None:
        """Reset the counts."""
        self.on_news()

    def on_text(self, message: SpokenText, ctx: EventContext) -> None:
        """Count the blocks of a message, and report the block that was repeated most often since the last reset."""
        said, event = self.said, message.event
        if not said:
            self.since_ms = ctx.emit.at
        worst = most = 0
        for block, times in _blocks(event):
            count = said.pop(block, 0) + times
            said[block] = count
            if count > most:
                worst, most = block, count
        while len(said) > MAX_TEXT_BLOCKS:
            del said[next(iter(said))]
        if most < 2:
            self.repeated = 0
            return
        self.event_ids = [*self.event_ids[1 - MAX_CAUSES :], event.id]
        severity = ctx.rules.behaviour.text_loop.step(most)
        self.repeated = worst if severity else 0
        if severity:
            seen = PatternSighting(
                self.pattern, severity, worst, most, (), self.event_ids, "say something new or act",
                since_ms=self.since_ms, proven=True,
            )  # fmt: skip
            ctx.sightings.append(seen)


def _blocks(event: ModelText) -> list[tuple[int, int]]:
    """Checksums of the blocks of a message with their numbers of occurrences; CRC-32 is enough for MAX_TEXT_BLOCKS blocks."""
    if event.text is None:
        return [(crc32(event.text_digest.encode()), 1)] if event.text_digest else []
    text = event.text[-MAX_TEXT_CHARS:]
    if "```" in text or "~~~" in text:
        text = _CODE.sub("", text)
    whole = "\n".join(_lines(text)).lower()
    prose = [part for part in _BREAK.split(whole) if len(part) >= MIN_BLOCK_CHARS]
    if len(set(prose)) == len(prose) and max(map(len, prose), default=0) <= LONG_BLOCK_CHARS:
        return [(crc32(block.encode("utf-8", "replace")), 1) for block in prose[-MAX_TEXT_BLOCKS:]]  # the usual case
    blocks = []
    for block, times in list(Counter(prose).items())[-MAX_TEXT_BLOCKS:]:
        chunk = block[-CHUNK_CHARS:]
        if len(block) > LONG_BLOCK_CHARS and (repeats := _count(chunk, block)) > times:
            blocks.append((crc32(chunk.encode(errors="replace")), repeats))
        else:
            blocks.append((crc32(block.encode(errors="replace")), times))
    chunk = whole[-CHUNK_CHARS:]  # a repeated text may begin and end within sentences
    if (repeats := _count(chunk, whole)) > max(times for _, times in blocks):
        blocks.append((crc32(chunk.encode(errors="replace")), repeats))
    return blocks


def _count(chunk: str, block: str) -> int:
    """Number of occurrences of a chunk, overlaps included (a repeated text may be shorter than the chunk)."""
    count, at = 0, block.find(chunk)
    while at >= 0 and count < MAX_REPEATS:
        count, at = count + 1, block.find(chunk, at + 1)
    return count


def _lines(text: str) -> list[str]:
    """The lines that are prose, stripped."""
    return [
        line for raw in text.splitlines() if len(line := raw.strip()) >= MIN_BLOCK_CHARS and not _STRUCTURE.match(line)
    ]
