"""Current state in memory: public states, open patterns, the ranking of both, and the latest decisions.

A source applies every record in commit order. Records are decoded when the state is read, or some thousands at a time,
so a flood of records for the same keys costs little.
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import NamedTuple

from ...errors import EventRejected
from ...projections.topology import DECISION_TOPICS
from ...schemas.codec import decode_decision
from ...schemas.decisions import PatternCleared, PatternDetected
from ...schemas.public_state import (
    BreakerUpdated,
    DecisionBase,
    ModelUpdated,
    PublicState,
    QualityUpdated,
    TrustUpdated,
)
from ...schemas.vocabulary import PatternSeverity
from ...streams.embedded.store_views import session_of
from .ranking import Ranking, StuckSession, subject_of

log = logging.getLogger(__name__)

MAX_FEED = 200
"""Number of decisions kept for the live feed."""

MAX_WAITING = 2_000
"""Number of records after which they are decoded, even if nobody reads the state."""

MAX_OPEN = 10_000
"""Maximum open patterns kept; the least recently updated are evicted first."""

_MOVES = {"escalations": "trust:", "breakers": "breaker:"}
"""Topics of decisions that change a state, and the prefix of its key on the `state` topic."""


class Change(NamedTuple):
    """Record of an output topic.

    Attributes:
        topic: catalogue name, without prefix.
        key: record key.
        value: the record, or a decision that has been decoded; None for a tombstone.
        place: partition and offset of the record, or its offset in a store; empty if unknown.
    """

    topic: str
    key: str
    value: bytes | DecisionBase | None
    place: tuple[int, ...] = ()


class Unreadable(Exception):
    """A record is malformed, or of a kind that only a later version knows; the message says why."""


def read_decision(value: bytes) -> DecisionBase:
    """Decode a record of an output topic; unknown fields are ignored.

    Raises:
        Unreadable: it has no type of this version, a field is missing or wrong, or a time is not RFC 3339 with a zone.
    """
    try:
        decision = decode_decision(value)
    except EventRejected as rejected:
        raise Unreadable(f"{rejected.path}: {rejected.message}") from rejected
    for name in _TIMES:
        if time := getattr(decision, name, None):
            try:
                zone = datetime.fromisoformat(time).utcoffset()
            except ValueError:
                zone = None
            if zone is None:
                raise Unreadable(f"$.{name}: {time[:40]!r} is not a time with a zone")
    if not isinstance(decision, DecisionBase):
        raise Unreadable("$.type: a dead letter is no decision")
    return decision


_TIMES = ("time", "since", "open_until", "recovery_at", "expires_at")
"""Fields with times that pages compute with."""


class Board:
    """States, open patterns and decisions; not thread-safe.

    A record that cannot be read is logged and skipped: the state before it stays.

    Attributes:
        skipped: number of records skipped so far.
        skipped_last: topic and place of the last of them, as `Change` has them; None before the first one.
        listeners: called with the changed topics and their numbers of records: `now` (a state or a pattern), `feed` (a
            decision), `tool:NAME` and `session:ID`.
        watched: topics with listeners, and the number of listeners.
    """

    def __init__(self) -> None:
        """Start empty."""
        self.listeners: list[Callable[[Mapping[str, int]], None]] = []
        self.watched: Counter[str] = Counter()
        self.skipped = 0
        self.skipped_last: tuple[str, tuple[int, ...]] | None = None
        self._states: dict[str, PublicState] = {}
        self._new: dict[str, Change] = {}
        self._decided: list[Change] = []
        self._feed: deque[DecisionBase] = deque(maxlen=MAX_FEED)
        self._open: dict[str, dict[tuple[str, str], PatternDetected]] = {}
        self._moved: dict[str, str] = {}
        self._ranking = Ranking()

    def apply(self, changes: Iterable[Change]) -> None:
        """Apply records in order."""
        topics: Counter[str] = Counter()
        for change in changes:
            topic, key, value, _ = change
            if topic == "state":
                self._new[key] = change
                topics["now"] += 1
                topics[f"tool:{subject_of(key.rpartition(chr(31))[2])}"] += 1
            elif topic == "events":  # appended by the engine itself: a call that was lost
                topics[f"session:{key}"] += 1
            elif topic in DECISION_TOPICS and value is not None:
                self._decided.append(change)
                topics["feed"] += 1
                if topic == "nudges":
                    topics["now"] += 1
                if session := session_of(value) if isinstance(value, bytes) else value.session_id:
                    topics[f"session:{session}"] += 1
        if len(self._decided) + len(self._new) > MAX_WAITING:
            self._take(0)
        self.notify(topics)

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

    def notify(self, topics: Mapping[str, int]) -> None:
        """Notify the listeners of changed topics."""
        if topics:
            for listener in self.listeners:
                listener(topics)

    @property
    def states(self) -> Mapping[str, PublicState]:
        """Public state of every key that differs from its default, by record key."""
        self._take(0)
        return self._states

    def ranking(self, now_ms: int) -> Ranking:
        """Current ranking of all keys and stuck sessions by urgency."""
        self._take(now_ms)
        self._ranking.ranked(now_ms)
        return self._ranking

    def open_patterns(self) -> list[PatternDetected]:
        """Open patterns, as last detected."""
        self._take(0)
        return [pattern for patterns in self._open.values() for pattern in patterns.values()]

    def feed(self, limit: int = 30) -> list[DecisionBase]:
        """Latest decisions, newest first, at most `limit`."""
        self._take(0)
        return list(self._feed)[: -limit - 1 : -1]

    def moved_by(self, key: str) -> str:
        """Id of the decision that caused the current state, by its key on the `state` topic; empty if unknown."""
        self._take(0)
        return self._moved.get(key, "")

    def read(self, change: Change) -> DecisionBase | None:
        """Decode a record; None for a tombstone, or if it cannot be read, which is logged and counted."""
        if not isinstance(change.value, bytes):
            return change.value
        try:
            return read_decision(change.value)
        except Unreadable as fault:
            self.skipped += 1
            self.skipped_last = change.topic, change.place
            log.warning("a record was skipped: %s: %s", place_in_words(change.topic, change.place), fault)
            return None

    def _take(self, now_ms: int) -> None:
        """Decode the records that have come since."""
        decided, self._decided = self._decided, []
        latest = {_MOVES[one.topic] + one.key: at for at, one in enumerate(decided) if one.topic in _MOVES}
        for at, change in enumerate(decided):
            topic, key = change.topic, change.key
            moved = _MOVES.get(topic, "") + key
            if topic != "nudges" and latest.get(moved) != at and at < len(decided) - MAX_FEED:
                continue  # neither shown nor part of a state
            decision = self.read(change)
            if decision is None:
                continue
            self._feed.append(decision)
            if isinstance(decision, PatternDetected | PatternCleared):
                self._hear(decision, now_ms)
            elif topic in _MOVES:
                self._moved[moved] = decision.id
                if len(self._moved) > MAX_OPEN:
                    del self._moved[next(iter(self._moved))]
        states, self._new = self._new, {}
        for key, change in states.items():
            state = self.read(change)
            if isinstance(state, TrustUpdated | BreakerUpdated | QualityUpdated | ModelUpdated):
                self._states[key] = state
            elif change.value is None:
                self._states.pop(key, None)
                self._moved.pop(key, None)
            self._ranking.put(key, self._states.get(key), now_ms)

    def _hear(self, decision: PatternDetected | PatternCleared, now_ms: int) -> None:
        """Apply a decision about behaviour: a pattern opens, grows or ends."""
        key = f"stuck:{decision.session_id or ''}\x1f{decision.agent_id or ''}"
        patterns = self._open.pop(key, {})
        name = (decision.pattern, decision.fingerprint or "")
        patterns.pop(name, None)
        if isinstance(decision, PatternDetected):
            patterns[name] = decision
        if patterns:
            self._open[key] = patterns
        self._ranking.put(key, _stuck(patterns) if patterns else None, now_ms)
        if len(self._open) > MAX_OPEN:
            oldest = next(iter(self._open))
            del self._open[oldest]
            self._ranking.put(oldest, None, now_ms)


def place_in_words(topic: str, place: tuple[int, ...]) -> str:
    """Name of a topic and place of a record in it, as `Change` has it, in words."""
    named = ("partition", "offset")[-len(place) :] if place else ()
    return ", ".join([f"topic {topic}", *(f"{name} {number}" for name, number in zip(named, place, strict=True))])


_SEVERITIES = list(PatternSeverity)


def _stuck(patterns: Mapping[tuple[str, str], PatternDetected]) -> StuckSession:
    """Summary of an agent's open patterns."""
    worst = max(patterns.values(), key=lambda one: (_SEVERITIES.index(one.severity), one.repetitions))
    return StuckSession(worst, len(patterns), max(one.time for one in patterns.values()))
