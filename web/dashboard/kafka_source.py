"""Dashboard source of a Kafka deployment: follows states and decisions, looks events up on request."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple, cast

import msgspec
import orjson
from aiokafka.errors import KafkaError

from ...errors import TrustfoldError
from ...history.files import kafka_source
from ...history.sessions.ranking import SessionSummary
from ...history.sessions.timeline import TimelineEntries, millis
from ...projections.incidents import NOTHING, SessionNews
from ...projections.topology import DECISION_TOPICS, STAGE_OF_TOPIC
from ...rules.rules import RuleSet
from ...schemas.codec import UNREADABLE, encode, is_valid
from ...schemas.commands import Command
from ...schemas.decisions import NudgeIssued, PatternDetected, PatternFields
from ...schemas.events import Event
from ...schemas.public_state import DecisionBase
from ...streams.kafka.access import RIGHTS_ERRORS, missing_right_error
from ...streams.kafka.feed import ALL, FollowedRecord, TopicFeed
from ...streams.kafka.kafka_settings import KafkaSettings
from ...streams.kafka.lag import WorkersLag, standing_of
from ...streams.kafka.outputs import partition_of
from ...streams.kafka.records import OutgoingRecord, StoredRecord, command_key, ended, partitions_of, read, write
from .current_state import FIRST_EVENTS, OutputRecord, StateBoard, place_in_words
from .recorded_events import RecordedEvents
from .source import DataFreshness, PlacedRecord, Record, SearchResult, foreign_history, topic_of, wrong_clocks

log = logging.getLogger(__name__)

FIRST_DECISIONS = 1_000  # Number of decisions of each partition read at the start
MAX_DECISIONS = 20_000  # Maximum decisions in memory; older ones are only in the history
LOOKED_THROUGH = 20_000  # Number of latest events of a partition searched for those of a session
LOOK_S = 5.0  # Seconds between two measurements of the workers' lag
PATIENCE_S = 10.0  # Longest wait in seconds for an order to be acknowledged, and for events to be found


class _HeldDecision(NamedTuple):
    """Decision in memory with its sort key, as it came and decoded."""

    place: int
    value: bytes
    decision: DecisionBase


class KafkaSource:
    """`DashboardSource` of `trustfold web`; `run` follows the topics."""

    def __init__(self, settings: KafkaSettings, history: Path | None = None, rules: RuleSet | None = None) -> None:
        """Prepare; connects only in `run`. `rules` are the workers' rules."""
        self.board = StateBoard()
        self.history = history
        self.rules = rules or RuleSet()
        self._settings = settings
        self._recorded = RecordedEvents(history) if history is not None else None
        self._kept: list[_HeldDecision] = []
        self._newest_ms: int | None = None
        self._standing: WorkersLag | None = None
        wanted = {"state": ALL, "events": FIRST_EVENTS, "outcomes": FIRST_EVENTS} | dict.fromkeys(
            DECISION_TOPICS, FIRST_DECISIONS
        )
        self._feed = TopicFeed(settings, wanted, self._take, self._forget, self._turned)

    @property
    def name(self) -> str:
        """The cluster and the names of its topics."""
        return f"Kafka at {self._settings.bootstrap}, topics {self._settings.topic_prefix}*"

    @property
    def complete(self) -> bool:
        """True once all states that were in the topics at the start are on the board."""
        return self._feed.complete

    @property
    def foreign(self) -> str:
        """Why the history belongs to other topics; empty if it matches, and before a broker has answered."""
        if not self._feed.cluster_id:
            return ""
        return foreign_history(self.history, kafka_source(self._feed.cluster_id, self._settings.topic_prefix))

    @property
    def _past(self) -> RecordedEvents | None:
        """Recorded history of these topics, if any."""
        return None if self.foreign else self._recorded

    async def run(self) -> None:
        """Follow until cancelled."""
        measuring = asyncio.create_task(self._measure())
        try:
            await self._feed.run()
        finally:
            await ended(measuring)
            if self._recorded is not None:
                self._recorded.close()

    def freshness(self) -> DataFreshness:
        """Age of the board's data, and why no new data arrives."""
        feed, standing = self._feed, self._standing
        behind = standing.behind if standing is not None else None
        fault = feed.fault or None
        if fault and feed.lost_since is not None and feed.complete:
            fault = f"stale since {datetime.fromtimestamp(feed.lost_since, UTC):%H:%M:%S} UTC: {fault}"
        elif not fault and standing is not None:
            fault = standing.fault(self._settings.app_id) or None
        board = self.board
        skipped_last = ""
        if board.skipped_last is not None:
            topic, place = board.skipped_last
            skipped_last = place_in_words(self._settings.topic(topic), place)
        clocks = wrong_clocks((self._newest_ms or 0) / 1000 - time.time())
        return DataFreshness(self._newest_ms, behind, fault, self.foreign or None, board.skipped, skipped_last, clocks)

    async def renew(self) -> None:
        """Nothing: the states of sessions are with the workers."""

    async def sessions(self) -> list[SessionSummary]:
        """Sessions named by decisions in memory, and those of the last days of the history, which has their calls."""
        past = self._past
        found = {} if past is None else {one.session_id: one for one in await past.sessions()}
        told: dict[str, list[_HeldDecision]] = {}
        for one in self._kept:
            if session := one.decision.session_id:
                told.setdefault(session, []).append(one)
        news = self.board.sessions
        for session, decisions in told.items():
            found[session] = _summary(session, decisions, news.get(session), found.get(session))
        return list(found.values())

    async def decisions(self, *, session: str = "", before: int | None = None, limit: int = 200) -> list[PlacedRecord]:
        """Latest decisions in memory, oldest first."""
        found: list[PlacedRecord] = []
        for one in reversed(self._kept):
            if len(found) >= limit:
                break
            if (not session or one.decision.session_id == session) and (before is None or one.place < before):
                found.append(_placed(one))
        return found[::-1]

    async def decision(self, decision_id: str) -> PlacedRecord | None:
        """Decision with an id, from memory or the history."""
        for one in reversed(self._kept):
            if one.decision.id == decision_id:
                return _placed(one)
        return await past.decision(decision_id) if (past := self._past) is not None else None

    async def circuits(self, since_ms: int, until_ms: int) -> list[PlacedRecord]:
        """Changes of circuits in memory within a time range, oldest first."""
        return [
            _placed(one)
            for one in self._kept
            if since_ms <= one.place >> 20 <= until_ms and _topic_of(one.place) == "breakers"
        ]

    async def events_up_to(self, offset: int, *, limit: int = 2000) -> list[PlacedRecord]:
        """Empty: partitions have separate offsets, so there is no order of all events."""
        del offset, limit
        return []

    async def events(self, *, session: str, before: int | None = None, limit: int = 200) -> list[PlacedRecord]:
        """Latest input events of a session, oldest first, from its partition and the history.

        Their offsets are those of the partition. Of the topic the latest `LOOKED_THROUGH` records are looked through.
        """
        found = {
            one.offset: PlacedRecord(one.offset, orjson.loads(one.value or b"{}"), one.timestamp)
            for one in await self._latest("events", session)
            if one.key == session and (before is None or one.offset < before) and is_valid(one.value)
        }
        if len(found) < limit and (past := self._past) is not None:
            found = {one.offset: one for one in await past.events(session, before, limit)} | found
        return [found[offset] for offset in sorted(found)][-limit:]

    async def records(self, session: str) -> dict[str, Record]:  # noqa: ARG002 - part of the protocol
        """None: their topic has them by tool. Calls are folded again under the rules of the workers."""
        return {}

    async def recorded(self, session: str) -> TimelineEntries | None:
        """Timeline of a session in the history; None where it is not recorded."""
        return await past.timeline(session, self.rules) if (past := self._past) is not None else None

    async def events_of(self, ids: Collection[str], *, session: str = "") -> list[PlacedRecord]:
        """Input events and orders of the given ids, oldest first."""
        found: dict[str, PlacedRecord] = {}
        for topic in ("events", "commands"):
            for one in await self._latest(topic, session if topic == "events" else ""):
                if (about := _about(one.value)).id in ids and is_valid(one.value):
                    found.setdefault(
                        about.id, PlacedRecord(one.offset, orjson.loads(one.value or b"{}"), one.timestamp)
                    )
        if len(found) < len(ids) and (past := self._past) is not None:
            missing = [name for name in ids if name not in found]
            found = {str(one.record["id"]): one for one in await past.events_of(missing)} | found
        return sorted(found.values(), key=lambda one: (str(one.record.get("time", "")), one.offset))

    async def search(self, text: str, limit: int) -> SearchResult:
        """Events that hold a text among the latest of each partition, and those of the history."""
        sought, latest = orjson.dumps(text.lower())[1:-1], await self._latest("events")
        found = [one for one in latest if one.value and sought in one.value.lower() and is_valid(one.value)]
        found.sort(key=lambda one: one.timestamp, reverse=True)
        here = SearchResult([orjson.loads(one.value or b"{}") for one in found[:limit]])
        return here.and_then(await past.search(text, limit)) if (past := self._past) is not None else here

    async def send(self, records: Sequence[Command | Event]) -> list[Record] | None:
        """Write orders and events; the workers apply them when they read them."""
        if self._feed.lost_since is not None:
            raise TrustfoldError(f"the order was not sent: {self._feed.fault}")
        try:
            async with asyncio.timeout(PATIENCE_S):
                await write(self._settings, [self._addressed(record) for record in records])
        except RIGHTS_ERRORS as error:
            raise missing_right_error(self._settings, error) from error
        except (KafkaError, OSError, TimeoutError) as error:
            told = " ".join(str(error).split()) or f"no broker acknowledged it within {PATIENCE_S:g} s"
            raise TrustfoldError(f"it is unknown whether the order was accepted: {told}") from error
        return None

    def _addressed(self, record: Command | Event) -> OutgoingRecord:
        topic = topic_of(record)
        key = command_key(cast("Command", record)) if topic == "commands" else cast("Event", record).session_id
        return OutgoingRecord(self._settings.topic(topic), key.encode(), encode(record))

    # --- following ------------------------------------------------------------------------------------------------

    def _take(self, records: Sequence[FollowedRecord]) -> None:
        changes = []
        for one in records:
            change = OutputRecord(one.topic, one.key, one.value, (one.partition, one.offset))
            if one.topic in {"state", "outcomes"}:
                changes.append(change)
            elif one.topic != "events" and one.value is not None and (decision := self.board.read(change)) is not None:
                changes.append(change._replace(value=decision))
                self._kept.append(_HeldDecision(_place_of(one), one.value, decision))
        if changes:
            self._kept.sort(key=_PLACE)  # records are nearly always in time order, which makes this cheap
        del self._kept[:-MAX_DECISIONS]
        self._seen(max(one.timestamp for one in records))
        self.board.apply(changes)
        self.board.hear(one.value for one in records if one.topic == "events")

    def _forget(self, topic: str) -> None:
        self.board.forget(topic)
        if topic in DECISION_TOPICS:
            self._kept = [one for one in self._kept if _topic_of(one.place) != topic]

    def _turned(self) -> None:
        self.board.notify({"now": 1})

    def _seen(self, at_ms: int) -> None:
        self._newest_ms = max(self._newest_ms or 0, at_ms) or None

    async def _measure(self) -> None:
        """Measure the workers' lag until cancelled."""
        events = self._settings.topic("events")
        topics = list(map(self._settings.topic, STAGE_OF_TOPIC))
        written: int | None = None
        failed = foreign = False
        while True:
            if self.foreign and not foreign:
                log.warning("%s", self.foreign)
            foreign = bool(self.foreign)
            try:
                if self._feed.lost_since is not None:
                    raise TimeoutError  # noqa: TRY301 - handled like a timeout
                async with asyncio.timeout(PATIENCE_S):
                    self._standing = await standing_of(self._settings, topics)
                    if written is None:
                        newest, _ = await read(self._settings, events, most=1)
                        self._seen(max((one.timestamp for one in newest), default=0))
            except (KafkaError, OSError, TimeoutError, TrustfoldError) as error:
                log.debug("the workers' lag is unknown: %r", error)
                self._standing = None
            except Exception:
                if not failed:
                    log.exception("the workers' lag cannot be measured; trying again")
                failed, self._standing = True, None
            else:
                if written is not None and self._standing.ends[events] > written:
                    self._seen(time.time_ns() // 1_000_000)
                    # only the topic shows which sessions have new events; their pages poll it
                    self.board.notify({topic: 1 for topic in self.board.watched if topic.startswith("session:")})
                written = self._standing.ends[events]
            await asyncio.sleep(LOOK_S)

    # --- looking up -----------------------------------------------------------------------------------------------

    async def _latest(self, topic: str, session: str = "") -> list[StoredRecord]:
        """Latest records of a topic, from a session's partition or from all; none while no broker answers."""
        if self._feed.lost_since is not None:
            return []
        name = self._settings.topic(topic)
        try:
            async with asyncio.timeout(PATIENCE_S):
                numbers = await partitions_of(self._settings, name)
                chosen = [partition_of(session.encode(), len(numbers))] if session else numbers
                records, _ = await read(self._settings, name, partitions=chosen, most=LOOKED_THROUGH // len(chosen))
        except (KafkaError, OSError, TimeoutError, TrustfoldError) as error:
            log.debug("%s was not read: %r", name, error)
            return []
        return records


def _placed(kept: _HeldDecision) -> PlacedRecord:
    return PlacedRecord(kept.place, orjson.loads(kept.value), kept.place >> 20)


def _summary(
    session: str, told: Sequence[_HeldDecision], news: SessionNews | None, recorded: SessionSummary | None
) -> SessionSummary:
    """Summary of a session: its calls from the history, the rest from decisions."""
    found = [one.decision for one in told]
    patterns = {(one.pattern, one.severity) for one in found if isinstance(one, PatternDetected)}
    known = recorded or SessionSummary(session, "", "", 0, 0, 0, NOTHING, 0, 0, 0)
    return known._replace(
        workspace=_last([one.workspace_id for one in found]) or known.workspace,
        model=_last([one.model for one in found if isinstance(one, PatternFields | NudgeIssued)]) or known.model,
        news=news or known.news,
        patterns=max(len(patterns), known.patterns),
        last_ms=max(*(millis(one.time) for one in found), known.last_ms),
    )


def _last(values: Sequence[str | None]) -> str:
    """Last non-empty value: not every decision has the session's workspace, user and model."""
    return next((value for value in reversed(values) if value), "")


class _SubjectFields(msgspec.Struct):
    id: str = ""
    session_id: str = ""


_decoder = msgspec.json.Decoder(_SubjectFields)
_PLACE = attrgetter("place")


def _about(value: bytes | None) -> _SubjectFields:
    """Id and session of a record; empty if missing."""
    try:
        return _decoder.decode(value or b"{}")
    except UNREADABLE:
        return _SubjectFields()


def _topic_of(place: int) -> str:
    """Topic of a decision, by its position."""
    return DECISION_TOPICS[place >> 18 & 3]


def _place_of(record: FollowedRecord) -> int:
    """Sort key of a decision over all topics and partitions: time, then the order of its partition."""
    topic = DECISION_TOPICS.index(record.topic)
    return record.timestamp << 20 | topic << 18 | (record.partition & 0x3F) << 12 | record.offset & 0xFFF
