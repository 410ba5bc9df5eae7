"""Detector of chanting: the same text block over and over, in one message or across messages (docs/detection.md).

A block is a sentence or a line of prose. Code, tables, lists, headings, quotes and rules repeat by nature and are
exempt. Only checksums are kept; news from a call and the user's word start the count afresh.
"""

from __future__ import annotations

import re
from collections import Counter
from zlib import crc32

from ...rules.rules import BehaviourRules
from ...schemas.events import ModelText
from ...schemas.vocabulary import Pattern
from ..emit import MAX_CAUSES
from .patterns import Sighting
from .state import MAX_SAID, SessionState

MAX_TEXT_CHARS = 20_000
"""Of a longer message its end is read: a model that chants does so until it is cut off."""

MIN_BLOCK_CHARS = 20
"""Shorter blocks ("Done.") may come as often as they like."""

CHUNK_CHARS = 50
"""A long block without sentences is searched for repeats of its last characters."""

LONG_BLOCK_CHARS = 4 * CHUNK_CHARS
MAX_REPEATS = 100

_CODE = re.compile(r"^[^\S\n]*(```|~~~).*?(?:^[^\S\n]*\1|\Z)", re.MULTILINE | re.DOTALL)
_STRUCTURE = re.compile(r"[-*+•‣·>#|=_~`]|\d{1,4}[.):]|[a-zA-Z][.)]\s|[─━│┃┌├└╭╰═║]")
_SENTENCE_END = re.compile(r"[.!?;:…。！？](?:\s+|$)")


def text_loop(state: SessionState, event: ModelText, at: int, rules: BehaviourRules) -> Sighting | None:
    """The block that the message repeats most often, counting the messages since the last news."""
    said = state.said
    if not said:
        state.said_since = at
    worst = most = 0
    for block, times in _blocks(event):
        count = said.pop(block, 0) + times
        said[block] = count
        if count > most:
            worst, most = block, count
    while len(said) > MAX_SAID:
        del said[next(iter(said))]
    if most < 2:
        state.text_loop = 0
        return None
    state.said_ids = [*state.said_ids[1 - MAX_CAUSES :], event.id]
    severity = rules.text_loop.step(most)
    state.text_loop = worst if severity else 0
    if not severity:
        return None
    return Sighting(
        Pattern.TEXT_LOOP, severity, worst, most, (), state.said_ids, "say something new or act",
        since_ms=state.said_since,
    )  # fmt: skip


def forget_texts(state: SessionState) -> None:
    """Start the count afresh: there was news, or the user spoke."""
    state.said = {}
    state.said_ids = []
    state.text_loop = 0


def _blocks(event: ModelText) -> list[tuple[int, int]]:
    """Checksums of the blocks of a message, and how often each stands in it; few are remembered, so these will do."""
    if event.text is None:
        return [(crc32(event.text_digest.encode()), 1)] if event.text_digest else []
    text = event.text[-MAX_TEXT_CHARS:]
    if "```" in text or "~~~" in text:
        text = _CODE.sub("", text)
    lines = _lines(text)
    prose = _sentences(lines)
    if len(set(prose)) == len(prose) and max(map(len, prose), default=0) <= LONG_BLOCK_CHARS:
        return [(crc32(block.encode("utf-8", "replace")), 1) for block in prose[-MAX_SAID:]]  # the usual case
    blocks = []
    for block, times in list(Counter(prose).items())[-MAX_SAID:]:
        chunk = block[-CHUNK_CHARS:]
        if len(block) > LONG_BLOCK_CHARS and (repeats := _count(chunk, block)) > times:
            blocks.append((crc32(chunk.encode(errors="replace")), repeats))
        else:
            blocks.append((crc32(block.encode(errors="replace")), times))
    whole = "\n".join(lines)  # what is chanted may begin and end within sentences
    chunk = whole[-CHUNK_CHARS:]
    if (repeats := _count(chunk, whole)) > max(times for _, times in blocks):
        blocks.append((crc32(chunk.encode(errors="replace")), repeats))
    return blocks


def _count(chunk: str, block: str) -> int:
    """How often a chunk occurs, overlaps included: what is chanted may be shorter than the chunk."""
    count, at = 0, block.find(chunk)
    while at >= 0 and count < MAX_REPEATS:
        count, at = count + 1, block.find(chunk, at + 1)
    return count


def _lines(text: str) -> list[str]:
    """The lines that are prose, in lower case, without what stands at the margins."""
    return [
        line.lower()
        for raw in text.splitlines()
        if len(line := raw.strip()) >= MIN_BLOCK_CHARS and not _STRUCTURE.match(line)
    ]


def _sentences(lines: list[str]) -> list[str]:
    """Sentences of lines; shorter ones than a block are left out."""
    return [part for line in lines for part in _SENTENCE_END.split(line) if len(part) >= MIN_BLOCK_CHARS]
