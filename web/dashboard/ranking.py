"""Ranking by urgency: a sorted list with one place per state and per stuck session, updated as they change.

Theory of operation. Every key has a place that sorts: first by what is wrong, then by how new that is. Places are put
into a sorted list one by one as records come, so a page of fifty rows costs the same with ten keys as with ten
thousand. A few places change with time alone (an open circuit becomes half-open): these are made again when their time
has come.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Mapping, Sequence
from heapq import heappop, heappush
from typing import Any, NamedTuple

from ...history.sessions.timeline import millis
from ...projections.calls.keys import tool_of_key

Record = Mapping[str, Any]

WORDS = ("blocked", "escalated", "stuck", "open", "half-open", "degraded", "recovering", "ok", "handled")
"""Words of places, worst first. `handled`: a person has dealt with it; shown only on request."""

TROUBLE = WORDS[:7]
"""Words of places that need, or may need, a person."""

RANK = {word: number for number, word in enumerate(WORDS)}

STUCK_MS = 3_600_000
"""Milliseconds after the last news of a pattern in which its session still counts as stuck."""

FOR_EVER = 1 << 62


class Place(NamedTuple):
    """Sortable place of a key in the ranking.

    Attributes:
        rank: of its word.
        age: negative milliseconds since 1970 of its newest change, so that the newest comes first.
        key: record key: of the `state` topic, or `stuck:SESSION`, U+001F, agent.
        word: one of `WORDS`.
        workspace: where it holds; for a user everywhere, `user:ID`.
        tool: tool, service or tier that it is about; of a stuck session, the session.
        until: milliseconds since 1970 at which it changes by itself.
    """

    rank: int
    age: int
    key: str
    word: str
    workspace: str
    tool: str
    until: int = FOR_EVER


def place_of(key: str, record: Record, now_ms: int) -> Place | None:
    """Place of a record; None for records that are not ranked, such as a model's profile."""
    kind = record["kind"]
    if kind == "model":
        return None
    word, until = _KINDS[kind](record, now_ms)
    changed = millis(record.get("since") or record["time"])
    workspace = (
        f"user:{record.get('user_id')}" if record.get("scope") == "user" else str(record.get("workspace_id", ""))
    )
    tool = str(record["key"])
    return Place(RANK[word], -changed, key, word, workspace, tool if kind == "stuck" else subject_of(tool), until)


def subject_of(key: str) -> str:
    """Tool, service or tier that a key is about: `bash` for `bash|command=git` and `tool:bash`."""
    return key.removeprefix("tool:") if key.startswith("tool:") else tool_of_key(key)


def _trust(record: Record, _now_ms: int) -> tuple[str, int]:
    state = str(record["state"])
    if state == "removed":
        return "handled", FOR_EVER
    if state == "recovering":
        return ("escalated" if record.get("recovery_pending") else "recovering"), FOR_EVER
    return (state if state in {"blocked", "escalated"} else "ok"), FOR_EVER


def _breaker(record: Record, now_ms: int) -> tuple[str, int]:
    state = str(record["state"])
    if (record.get("mode") or "enforce") != "enforce" or state == "forced_open":
        return "handled", FOR_EVER
    if state == "open":
        until = millis(record["open_until"]) if record.get("open_until") else FOR_EVER
        return ("open", until) if until > now_ms else ("half-open", FOR_EVER)
    return ("half-open" if state == "half_open" else "ok"), FOR_EVER


def _quality(record: Record, _now_ms: int) -> tuple[str, int]:
    score, whole = record.get("score"), record.get("registered_score")
    low = score is not None and whole is not None and score < whole / 2
    return ("degraded" if low or record.get("tags") else "ok"), FOR_EVER


def _stuck(record: Record, now_ms: int) -> tuple[str, int]:
    until = millis(record["time"]) + STUCK_MS
    return ("stuck", until) if until > now_ms else ("handled", FOR_EVER)


_KINDS = {"trust": _trust, "breaker": _breaker, "quality": _quality, "stuck": _stuck}


class Ranking:
    """Sorted list of all places.

    Attributes:
        counts: how many places have each word.
        tools: how many places each tool has, by workspace and tool.
    """

    def __init__(self) -> None:
        """Begin with nothing."""
        self.counts: Counter[str] = Counter()
        self.tools: Counter[tuple[str, str]] = Counter()
        self._ranked: list[Place] = []
        self._places: dict[str, Place] = {}
        self._records: dict[str, Record] = {}
        self._due: list[tuple[int, str]] = []

    def put(self, key: str, record: Record | None, now_ms: int) -> None:
        """Set the place of a key by its newest record; None removes it."""
        place = place_of(key, record, now_ms) if record is not None else None
        known = self._places.get(key)
        if known is not None:
            if known == place:
                self._records[key] = record or {}
                return
            del self._ranked[bisect_left(self._ranked, known)]
            del self._places[key]
            del self._records[key]
            self.counts[known.word] -= 1
            self.tools[known.workspace, known.tool] -= 1
            if not self.tools[known.workspace, known.tool]:
                del self.tools[known.workspace, known.tool]
        if place is None or record is None:
            return
        insort(self._ranked, place)
        self._places[key] = place
        self._records[key] = record
        self.counts[place.word] += 1
        self.tools[place.workspace, place.tool] += 1
        if place.until < FOR_EVER:
            heappush(self._due, (place.until, key))

    def ranked(self, now_ms: int) -> Sequence[Place]:
        """All places as they are at a time, worst first. Not to be changed, and valid until the next `put`."""
        while self._due and self._due[0][0] <= now_ms:
            _, key = heappop(self._due)
            if (record := self._records.get(key)) is not None:
                self.put(key, record, now_ms)
        return self._ranked

    def record(self, key: str) -> Record:
        """The newest record of a key that has a place."""
        return self._records[key]
