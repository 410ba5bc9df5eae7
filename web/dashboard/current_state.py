"""The present in memory: public states, patterns that are open, the ranking of both, and the latest decisions.

A source applies every record to it in the order of its commits. Reading parses what is new since the last reading, so a
flood of records between two looks costs little.
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
"""Latest decisions kept for the live feed."""

MAX_OPEN = 10_000
"""Open patterns remembered; those heard of longest ago go first."""

_MOVES = {"escalations": "trust:", "breakers": "breaker:"}
"""Topics of decisions that move a state, and what stands before its key on the `state` topic."""


class Change(NamedTuple):
    """A record of an output topic.

    Attributes:
        topic: catalogue name, without prefix.
        key: record key.
        value: the record; None for a tombstone.
    """

    topic: str
    key: str
    value: bytes | None


class Board:
    """States, open patterns and decisions; for one thread.

    Attributes:
        listeners: are told which topics changed and by how many records: `now` (a state or a pattern), `feed` (a
            decision), `tool:NAME` and `session:ID`.
        watched: topics that somebody listens to at present, with the number of listeners.
    """

    def __init__(self) -> None:
        """Begin with nothing."""
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
        """Take records in order."""
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
        """Drop what records of a topic have told; the latest decisions, too, whatever topic they came from."""
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
        """Tell the listeners that topics have changed."""
        if topics:
            for listener in self.listeners:
                listener(topics)

    @property
    def states(self) -> Mapping[str, Record]:
        """Public records (`StateUpdated` on the wire) of every key away from its default, by record key."""
        self._take(0)
        return self._states

    def ranking(self, now_ms: int) -> Ranking:
        """All keys and stuck sessions in order of need, as of now."""
        self._take(now_ms)
        self._ranking.ranked(now_ms)
        return self._ranking

    def open_patterns(self) -> list[Record]:
        """Every pattern that a session has not broken out of, as it was last detected."""
        self._take(0)
        return [record for patterns in self._open.values() for record in patterns.values()]

    def feed(self, limit: int = 30) -> list[Record]:
        """Latest decisions, newest first."""
        return [orjson.loads(value) for value in list(self._feed)[: -limit - 1 : -1]]

    def moved_by(self, key: str) -> Record | None:
        """The decision that moved a state to where it is, by its key on the `state` topic; None where unknown."""
        found = self._moved.get(key)
        return orjson.loads(found) if found is not None else None

    def _take(self, now_ms: int) -> None:
        """Parse what is new."""
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
        """Take a decision about behaviour: a pattern opens, grows or is over."""
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
    """What is known of a stuck session: its worst pattern, and how many there are."""
    worst = max(patterns.values(), key=lambda one: (_SEVERITIES.index(one["severity"]), one["repetitions"]))
    return worst | {
        "kind": "stuck",
        "key": session,
        "agent": agent,
        "since": worst["time"],
        "time": max(str(one["time"]) for one in patterns.values()),
        "patterns": len(patterns),
    }
