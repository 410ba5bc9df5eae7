"""The present in memory: public states, patterns that are open, and the latest decisions.

A source applies every record to it in the order of its commits. Reading parses what is new since the last reading, so a
flood of records between two looks costs little.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import orjson

from ...projections.topology import DECISION_TOPICS

Record = dict[str, Any]

MAX_FEED = 200
"""Latest decisions kept for the live feed."""


class Change(NamedTuple):
    """A record of an output topic.

    Attributes:
        topic: catalogue name, without prefix.
        key: record key.
        value: the record; None for a tombstone.
        offset: its place among the outputs; 0 where the source has none.
    """

    topic: str
    key: str
    value: bytes | None
    offset: int = 0


class Board:
    """States by record key, open patterns, and the feed; for one thread.

    Attributes:
        listeners: are told which topics changed: `now` (a state or an open pattern), `feed` (a decision),
            `session:ID` and `key:KEY`.
    """

    def __init__(self) -> None:
        """Begin with nothing."""
        self.listeners: list[Callable[[Mapping[str, int]], None]] = []
        self._states: dict[str, Record] = {}
        self._raw: dict[str, bytes | None] = {}
        self._feed: deque[Change] = deque(maxlen=MAX_FEED)

    def apply(self, changes: Iterable[Change]) -> None:
        """Take records in order."""
        topics: dict[str, int] = {}
        for change in changes:
            if change.topic == "state":
                self._raw[change.key] = change.value
                topics["now"] = topics.get("now", 0) + 1
            elif change.topic in DECISION_TOPICS and change.value is not None:
                self._feed.append(change)
                topics["feed"] = topics.get("feed", 0) + 1
        if topics:
            for listener in self.listeners:
                listener(topics)

    @property
    def states(self) -> Mapping[str, Record]:
        """Public records (`StateUpdated` on the wire) of every key away from its default, by record key."""
        for key, value in self._raw.items():
            if value is None:
                self._states.pop(key, None)
            else:
                self._states[key] = orjson.loads(value)
        self._raw.clear()
        return self._states

    def feed(self, limit: int = 30) -> list[Record]:
        """Latest decisions, newest first."""
        return [orjson.loads(change.value or b"{}") for change in list(self._feed)[: -limit - 1 : -1]]
