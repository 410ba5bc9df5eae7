"""Current state in memory: public states, open patterns, the ranking of both, and the latest decisions.

A source applies every record in commit order. Records are parsed only when the state is read, so a flood of records
between two reads costs little.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import orjson

from ...projections.topology import DECISION_TOPICS
from ...streams.embedded.store_views import session_of
from .ranking import Ranking, subject_of

Record = dict[str, Any]

MAX_FEED = 200
"""Number of decisions kept for the live feed."""

MAX_OPEN = 10_000
"""Maximum open patterns kept; the least recently updated are evicted first."""

_MOVES = {"escalations": "trust:", "breakers": "breaker:"}
"""Topics of decisions that change a state, and the prefix of its key on the `state` topic."""


class Change(NamedTuple):
    """Record of an output topic.

    Attributes:
        topic: catalogue name, without prefix.
        key: record key.
        value: the record; None for a tombstone.
    """

    topic: str
    key: str
    value: bytes | None


class Board:
    """States, open patterns and decisions; not thread-safe.

    Attributes:
        listeners: called with the changed topics and their numbers of records: `now` (a state or a pattern), `feed` (a
            decision), `tool:NAME` and `session:ID`.
        watched: topics with listeners, and the number of listeners.
    """

    def __init__(self) -> None:
        """Start empty."""
        self.listeners: list[Callable[[Mapping[str, int]], None]] = []
        self.watched: Counter[str] = Counter()
        self._states: dict[str, Record] = {}
        self._new: dict[str, bytes | None] = {}
        self._feed: deque[bytes] = deque(maxlen=MAX_FEED)
        self._behaviour: list[bytes] = []
        self._open: dict[str, dict[tuple[str, str], Record]] = {}
        self._moved: dict[str, bytes] = {}
        self._ranking = Ranking()

    def apply(self, changes: Iterable[Change]) -> None:
        """Apply records in order."""
        topics: Counter[str] = Counter()
        for topic, key, value in changes:
            if topic == "state":
                self._new[key] = value
                topics["now"] += 1
                topics[f"tool:{subject_of(key.rpartition(chr(31))[2])}"] += 1
            elif topic == "events":  # appended by the engine itself: a call that was lost
                topics[f"session:{key}"] += 1
            elif topic in DECISION_TOPICS and value is not None:
                self._feed.append(value)
                topics["feed"] += 1
                if session := session_of(value):
                    topics[f"session:{session}"] += 1
                if topic == "nudges":
                    self._behaviour.append(value)
                    topics["now"] += 1
                elif topic in _MOVES:
                    self._moved[_MOVES[topic] + key] = value
                    if len(self._moved) > MAX_OPEN:
                        del self._moved[next(iter(self._moved))]
        self.tell(topics)

    def forget(self, topic: str) -> None:
        """Drop the state from records of a topic, and all latest decisions."""
        self._take(0)
        self._feed.clear()
        if topic == "nudges":
            for key in self._open:
                self._ranking.put(key, None, 0)
            self._open.clear()
        elif topic in _MOVES:
            self._moved = {key: value for key, value in self._moved.items() if not key.startswith(_MOVES[topic])}
        elif topic == "state":
            self.apply([Change("state", key, None) for key in self._states])

    def tell(self, topics: Mapping[str, int]) -> None:
        """Notify the listeners of changed topics."""
        if topics:
            for listener in self.listeners:
                listener(topics)

    @property
    def states(self) -> Mapping[str, Record]:
        """Public records (`StateUpdated` on the wire) of every key that differs from its default, by record key."""
        self._take(0)
        return self._states

    def ranking(self, now_ms: int) -> Ranking:
        """Current ranking of all keys and stuck sessions by urgency."""
        self._take(now_ms)
        self._ranking.ranked(now_ms)
        return self._ranking

    def open_patterns(self) -> list[Record]:
        """Open patterns, as last detected."""
        self._take(0)
        return [record for patterns in self._open.values() for record in patterns.values()]

    def feed(self, limit: int = 30) -> list[Record]:
        """Latest decisions, newest first."""
        return [orjson.loads(value) for value in list(self._feed)[: -limit - 1 : -1]]

    def moved_by(self, key: str) -> Record | None:
        """Decision that caused the current state, by its key on the `state` topic; None if unknown."""
        found = self._moved.get(key)
        return orjson.loads(found) if found is not None else None

    def _take(self, now_ms: int) -> None:
        """Parse new records."""
        for key, value in self._new.items():
            state = orjson.loads(value) if value is not None else None
            if state is None:
                self._states.pop(key, None)
                self._moved.pop(key, None)
            else:
                self._states[key] = state
            self._ranking.put(key, state, now_ms)
        self._new.clear()
        for value in self._behaviour:
            self._hear(orjson.loads(value), now_ms)
        self._behaviour.clear()

    def _hear(self, decision: Record, now_ms: int) -> None:
        """Apply a decision about behaviour: a pattern opens, grows or ends."""
        if decision["type"] not in {"pattern.detected", "pattern.cleared"}:
            return
        session, agent = str(decision.get("session_id", "")), str(decision.get("agent_id", ""))
        key = f"stuck:{session}\x1f{agent}"
        patterns = self._open.pop(key, {})
        name = (str(decision["pattern"]), str(decision.get("fingerprint", "")))
        patterns.pop(name, None)
        if decision["type"] == "pattern.detected":
            patterns[name] = decision
        if patterns:
            self._open[key] = patterns
        self._ranking.put(key, _stuck(session, agent, patterns) if patterns else None, now_ms)
        if len(self._open) > MAX_OPEN:
            oldest = next(iter(self._open))
            del self._open[oldest]
            self._ranking.put(oldest, None, now_ms)


_SEVERITIES = ("minor", "moderate", "severe")


def _stuck(session: str, agent: str, patterns: Mapping[tuple[str, str], Record]) -> Record:
    """Summary of a stuck session: its worst pattern, and the number of patterns."""
    worst = max(patterns.values(), key=lambda one: (_SEVERITIES.index(one["severity"]), one["repetitions"]))
    return worst | {
        "kind": "stuck",
        "key": session,
        "agent": agent,
        "since": worst["time"],
        "time": max(str(one["time"]) for one in patterns.values()),
        "patterns": len(patterns),
    }
