"""Current state in memory: public states, sessions with trouble, the ranking of both, and the latest decisions.

A source applies every record in commit order. Records are decoded when the state is read, or some thousands at a time,
so a flood of records for the same keys costs little.
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import NamedTuple

import msgspec

from ...errors import EventRejected
from ...projections.incidents import CALM, IncidentRecord, OpenAsk, OpenPattern, SessionNews, news_of, pattern_of
from ...projections.tool.failure_counts import HOUR_MS
from ...projections.topology import DECISION_TOPICS
from ...schemas.codec import UNREADABLE, decode_decision
from ...schemas.decisions import PatternCleared, PatternDetected
from ...schemas.events import epoch_ms
from ...schemas.outcomes import DEFAULT_WORKSPACE, US
from ...schemas.public_state import DecisionBase, PublicState
from ...schemas.vocabulary import CallStatus
from ...streams.embedded.store_views import MAX_PAGE, StoreViews, session_of
from .incident_ranking import IncidentRanking, Owner, owner_of, subject_of

log = logging.getLogger(__name__)

MAX_FEED = 200  # Number of decisions kept for the live feed
# Number of events of each partition that a board of Kafka reads first, for questions to people and lost calls
FIRST_EVENTS = 5_000
MAX_WAITING = 2_000  # Number of records after which they are decoded, even if nobody reads the state
MAX_OPEN = 10_000  # Maximum sessions with trouble kept; the least recently updated are evicted first
MAX_KEPT = 100  # Maximum questions, and maximum lost calls, kept of a session; the latest stay
MAX_FAILED = 100_000  # Maximum failed calls kept; the first that came are dropped first
MAX_ENDED = 1_000  # Number of sessions that ended last, whose lost calls are no news

# Topics of decisions that change a state, and the prefix of its key on the `state` topic
_MOVES = {"escalations": "trust:", "breakers": "breaker:"}


class OutputRecord(NamedTuple):
    """Record of an output topic."""

    topic: str  # catalogue name, without prefix
    key: str  # record key
    value: bytes | DecisionBase | None  # the record, or a decision that has been decoded; None for a tombstone
    place: tuple[int, ...] = ()  # partition and offset of the record, or its offset in a store; empty if unknown


class _TroubleEvent(msgspec.Struct):
    """Fields of an event that tell of its session's trouble."""

    type: str
    time: datetime
    session_id: str
    workspace_id: str = ""
    agent_id: str = ""
    call_id: str = ""
    tool_name: str = ""
    status: str = ""


class _FailedCall(msgspec.Struct):
    """Fields of the record of a failed call."""

    time_ms: int
    workspace_id: str
    tool_name: str
    service: str = ""
    call_id: str = ""  # empty for a report of a plugin
    ended_ms: int = 0
    expected: bool = False


_failed_decoder = msgspec.json.Decoder(_FailedCall)

_HEARD = "heard"  # Topic of input events among the records that wait to be decoded

_event_decoder = msgspec.json.Decoder(_TroubleEvent)


class UnreadableRecord(Exception):
    """A record is malformed, or of a kind that only a later version knows; the message says why."""


def read_decision(value: bytes) -> DecisionBase:
    """Decode a record of an output topic; unknown fields are ignored."""
    try:
        decision = decode_decision(value)
    except EventRejected as rejected:
        raise UnreadableRecord(f"{rejected.path}: {rejected.message}") from rejected
    for name in _TIMES:
        if time := getattr(decision, name, None):
            try:
                zone = datetime.fromisoformat(time).utcoffset()
            except ValueError:
                zone = None
            if zone is None:
                raise UnreadableRecord(f"$.{name}: {time[:40]!r} is not a time with a zone")
    if not isinstance(decision, DecisionBase):
        raise UnreadableRecord("$.type: a dead letter is no decision")
    return decision


# Fields with times that pages compute with
_TIMES = ("time", "since", "open_until", "recovery_at", "expires_at", "last_failure_at")


class StateBoard:
    """States, sessions with trouble, and decisions; not thread-safe.

    A record that cannot be read is logged and skipped: the state before it stays.
    """

    def __init__(self) -> None:
        """Start empty."""
        # called with the changed topics and their numbers of records: `now` (a state or a pattern), `feed` (a
        # decision), `tool:NAME` and `session:ID`
        self.listeners: list[Callable[[Mapping[str, int]], None]] = []
        self.watched: Counter[str] = Counter()  # topics with listeners, and the number of listeners
        self.skipped = 0  # number of records skipped so far
        # topic and place of the last of them, as `OutputRecord` has them; None before the first one
        self.skipped_last: tuple[str, tuple[int, ...]] | None = None
        self._states: dict[str, PublicState] = {}
        self._new: dict[str, OutputRecord] = {}
        self._decided: list[OutputRecord] = []
        self._feed: deque[DecisionBase] = deque(maxlen=MAX_FEED)
        self._sessions: dict[str, SessionNews] = {}
        self._ended: deque[str] = deque(maxlen=MAX_ENDED)
        self._moved: dict[str, str] = {}
        self._failed: deque[tuple[int, Owner]] = deque(maxlen=MAX_FAILED)
        self._ranking = IncidentRanking()

    def apply(self, changes: Iterable[OutputRecord]) -> None:
        """Apply records in order."""
        topics: Counter[str] = Counter()
        for change in changes:
            topic, key, value, _ = change
            if topic == "state":
                self._new[key] = change
                topics["now"] += 1
                topics[f"tool:{subject_of(key.rpartition(chr(31))[2])}"] += 1
            elif topic == "events":  # appended by the engine itself
                topics[f"session:{key}"] += 1
                if isinstance(value, bytes) and b'"lost"' in value:
                    self.hear([value])
            elif topic == "outcomes" and isinstance(value, bytes):
                if b'"verdict":"failure"' in value and b'"outcome":' in value:  # records of other scopes have none
                    self._fail(value)
                    topics["now"] += 1
            elif topic in DECISION_TOPICS and value is not None:
                self._decided.append(change)
                topics["feed"] += 1
                if topic == "nudges":
                    topics["now"] += 1
                if session := session_of(value) if isinstance(value, bytes) else value.session_id:
                    topics[f"session:{session}"] += 1
        if len(self._decided) + len(self._new) > MAX_WAITING:
            self._take()
        self.notify(topics)

    def forget(self, topic: str) -> None:
        """Drop the state from records of a topic, and all latest decisions."""
        self._take()
        self._feed.clear()
        if topic == "nudges":
            for session in list(self._sessions):
                self._set(session, None)
        elif topic in _MOVES:
            self._moved = {key: value for key, value in self._moved.items() if not key.startswith(_MOVES[topic])}
        elif topic == "state":
            self.apply([OutputRecord("state", key, None) for key in self._states])

    def notify(self, topics: Mapping[str, int]) -> None:
        """Notify the listeners of changed topics."""
        if topics:
            for listener in self.listeners:
                listener(topics)

    @property
    def states(self) -> Mapping[str, PublicState]:
        """Public state of every key that differs from its default, by record key."""
        self._take()
        return self._states

    def ranking(self, now_ms: int) -> IncidentRanking:
        """Current ranking of all keys and stuck sessions by urgency."""
        self._take()
        self._ranking.ranked(now_ms)
        return self._ranking

    def incidents(self, now_ms: int) -> list[IncidentRecord]:
        """All incidents, most urgent first, without what is well or handled."""
        return [one for one in self.ranking(now_ms).ranked(now_ms) if one.state not in CALM]

    @property
    def sessions(self) -> Mapping[str, SessionNews]:
        """Sessions with open patterns, questions or lost calls, by id."""
        self._take()
        return self._sessions

    def hear(self, values: Iterable[bytes | None]) -> None:
        """Apply events: questions to people and their answers, lost calls, ends of sessions, and that one works on."""
        matters = bool(self._sessions or self._decided)
        self._decided += (
            OutputRecord(_HEARD, "", value)
            for value in values
            if value and (matters or b'"permission.' in value or b'"lost"' in value)
        )
        if len(self._decided) > MAX_WAITING:
            self._take()

    def seed(self, sessions: Iterable[SessionNews]) -> None:
        """Take over what the states of all open sessions say, with what decisions have said of their patterns."""
        self._take()
        told, self._sessions = self._sessions, {}
        for session in told:
            self._ranking.hear(session, None)
        for news in sessions:
            known = told.get(news.session_id, news)
            named = {one[:3]: one for one in known.patterns}
            lost = known.lost if news.news_ms <= max(known.lost, default=0) else ()
            patterns = tuple(_grown(named.get(one[:3], one), one) for one in news.patterns)
            self._set(news.session_id, news._replace(patterns=patterns, lost=lost))

    def detail(self, sessions: Iterable[SessionNews]) -> None:
        """Take over what decisions and events do not tell: the present counts of patterns, and what asks are for."""
        for news in sessions:
            if (told := self.sessions.get(news.session_id)) is not None:
                grown, asked = {one[:3]: one for one in news.patterns}, {one.call_id: one for one in news.asks}
                patterns = tuple(_grown(one, grown.get(one[:3], one)) for one in told.patterns)
                asks = tuple(asked.get(one.call_id, one) for one in told.asks)
                if (patterns, asks) != (told.patterns, told.asks):
                    self._set(news.session_id, told._replace(patterns=patterns, asks=asks))

    def failed(self, now_ms: int) -> dict[Owner, list[int]]:
        """Times of the failed calls of the last hour, expected ones left out, by tool and by service."""
        while self._failed and self._failed[0][0] <= now_ms - HOUR_MS:
            self._failed.popleft()
        found: dict[Owner, list[int]] = {}
        for at_ms, owner in self._failed:
            if now_ms - HOUR_MS < at_ms <= now_ms:
                found.setdefault(owner, []).append(at_ms)
        return found

    def _fail(self, value: bytes) -> None:
        """Keep a failed call."""
        try:
            call = _failed_decoder.decode(value)
        except UNREADABLE:
            return
        if call.call_id and not call.expected:
            names = (call.tool_name, *([f"service:{call.service}"] if call.service else []))
            self._failed += ((call.ended_ms or call.time_ms, (call.workspace_id, name)) for name in names)

    def _happened(self, value: bytes) -> None:
        """Apply an input event, or the finish of a call that the engine has closed as lost."""
        try:
            event = _event_decoder.decode(value)
        except UNREADABLE:
            return
        session, at_ms = event.session_id, epoch_ms(event.time)
        known = self._sessions.get(session)
        if event.type == "session.ended":
            self._ended.append(session)
            self._set(session, None)
        elif event.status == CallStatus.LOST:
            if session not in self._ended:
                news = known or SessionNews(session, event.workspace_id or DEFAULT_WORKSPACE, news_ms=at_ms)
                asks = news.heard(0, event.call_id).asks
                self._set(session, news._replace(asks=asks, lost=(*news.lost, at_ms)[-MAX_KEPT:]))
        elif event.type == "permission.requested":
            news = self._known(session, event.workspace_id).heard(at_ms, event.call_id)
            ask = OpenAsk(event.call_id, event.agent_id, event.tool_name, at_ms)
            self._set(session, news._replace(asks=(*news.asks, ask)[-MAX_KEPT:]))
        elif known is not None:
            ends = event.type in {"permission.resolved", "tool_call.finished"}
            news = known.heard(at_ms, event.call_id if ends else "")
            self._set(session, news._replace(asks=()) if event.type == "user.message" else news)

    def _known(self, session: str, workspace: str) -> SessionNews:
        return self._sessions.get(session) or SessionNews(session, workspace or DEFAULT_WORKSPACE)

    def _set(self, session: str, news: SessionNews | None) -> None:
        """Keep what is known of a session with trouble; the last one set is evicted last."""
        known = self._sessions.pop(session, None)
        if news is not None and (news.patterns or news.asks or news.lost):
            self._sessions[session] = news
            self._ranking.hear(session, news)
            if len(self._sessions) > MAX_OPEN:
                self._set(next(iter(self._sessions)), None)
        elif known is not None:
            self._ranking.hear(session, None)

    def feed(self, limit: int = 30) -> list[DecisionBase]:
        """Latest decisions, newest first, at most `limit`."""
        self._take()
        return list(self._feed)[: -limit - 1 : -1]

    def moved_by(self, state: PublicState) -> str:
        """Id of the decision that caused a current state; empty if unknown."""
        self._take()
        where, _ = owner_of(state)
        return self._moved.get(f"{state.kind}:{where}{US}{state.key}", "")

    def read(self, change: OutputRecord) -> DecisionBase | None:
        """Decode a record; None for a tombstone, or if it cannot be read, which is logged and counted."""
        if not isinstance(change.value, bytes):
            return change.value
        try:
            return read_decision(change.value)
        except UnreadableRecord as fault:
            self.skipped += 1
            self.skipped_last = change.topic, change.place
            log.warning("a record was skipped: %s: %s", place_in_words(change.topic, change.place), fault)
            return None

    def _take(self) -> None:
        """Decode the records that have come since."""
        decided, self._decided = self._decided, []
        told = sum(one.topic != _HEARD for one in decided)
        latest = {_MOVES[one.topic] + one.key: at for at, one in enumerate(decided) if one.topic in _MOVES}
        for at, change in enumerate(decided):
            topic, key = change.topic, change.key
            if topic == _HEARD:
                self._happened(change.value if isinstance(change.value, bytes) else b"")
                continue
            told -= 1
            moved = _MOVES.get(topic, "") + key
            if topic != "nudges" and latest.get(moved) != at and told >= MAX_FEED:
                continue  # neither shown nor part of a state
            decision = self.read(change)
            if decision is None:
                continue
            self._feed.append(decision)
            if isinstance(decision, PatternDetected | PatternCleared):
                self._follow(decision)
            elif topic in _MOVES:
                self._moved[moved] = decision.id
                if len(self._moved) > MAX_OPEN:
                    del self._moved[next(iter(self._moved))]
        states, self._new = self._new, {}
        for key, change in states.items():
            state = self.read(change)
            if isinstance(state, PublicState):
                self._states[key] = state
            elif change.value is None:
                self._states.pop(key, None)
                self._moved.pop(key, None)
            self._ranking.put(key, self._states.get(key))

    def _follow(self, decision: PatternDetected | PatternCleared) -> None:
        """Apply a decision about behaviour: a pattern opens, grows or ends."""
        found = pattern_of(decision) if isinstance(decision, PatternDetected) else None
        ident = decision.agent_id or "", decision.pattern, decision.fingerprint or ""
        news = self._known(decision.session_id or "", decision.workspace_id or "")
        self._set(news.session_id, news.with_pattern(found, ident, epoch_ms(datetime.fromisoformat(decision.time))))


def _grown(told: OpenPattern, present: OpenPattern) -> OpenPattern:
    """What a decision said of a pattern, with its present count."""
    count = max(told.times, present.times)
    message = told.message.replace(f" {told.times} times", f" {count} times", 1)
    return told._replace(times=count, message=message, counted_ms=0)


def read_store(board: StateBoard, views: StoreViews) -> None:
    """Put the present of a store on a board: states, the latest decisions, and the state of every open session."""
    board.apply(OutputRecord("state", key, value) for key, value in views.states().items())
    latest = [*views.latest(limit=MAX_FEED), *views.latest(("events", "nudges"), limit=MAX_PAGE)]
    latest += views.latest(("escalations", "breakers"), limit=MAX_PAGE)  # why a key is in its state, however long ago
    found = {one.offset: one.output for one in latest}
    board.apply(OutputRecord(one.topic, one.key, one.value, (offset,)) for offset, one in sorted(found.items()))
    calls, first = views.latest(("outcomes",), limit=MAX_PAGE), views.newest_ms() or 0
    while calls:
        board.apply(OutputRecord(one.output.topic, one.output.key, one.output.value) for one in calls)
        early = calls[0].output.time_ms < first - HOUR_MS
        calls = [] if early else views.latest(("outcomes",), before=calls[0].offset, limit=MAX_PAGE)
    board.seed(news_of(session, state) for session, state in views.sessions())


def place_in_words(topic: str, place: tuple[int, ...]) -> str:
    """Name of a topic and place of a record in it, as `OutputRecord` has it, in words."""
    named = ("partition", "offset")[-len(place) :] if place else ()
    return ", ".join([f"topic {topic}", *(f"{name} {number}" for name, number in zip(named, place, strict=True))])
