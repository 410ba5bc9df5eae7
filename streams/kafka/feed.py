"""Reads topics completely in one process without a consumer group; used by the dashboard.

Each topic is read from its beginning or from its latest records on, then continuously. Clients without brokers are
silent, so brokers and partitions are checked every other second; after an outage reading continues at its position. A
recreated topic, detected by its id, a shorter log or fewer partitions, is read from its beginning; a callback says
before that its earlier records are gone.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaConnectionError, KafkaError, TopicAuthorizationFailedError

from ...errors import ConfigError, TrustfoldError
from .access import RIGHTS_ERRORS, hidden_topics_error, missing_right_error, unreachable
from .kafka_settings import KafkaSettings
from .records import STOP_S, bounded, ended
from .topic_metadata import describe

log = logging.getLogger(__name__)

ALL = -1  # Marks a topic that is read from its beginning
WATCH_S = 2.0  # Seconds between two checks of the brokers
ANSWER_S = 5.0  # Timeout of an answer in seconds

FIRST_PAUSE_S = 0.2
LAST_PAUSE_S = 5.0  # Longest pause in seconds between two attempts to connect; each is twice as long as the one before


class FollowedRecord(NamedTuple):
    """Record of a followed topic."""

    topic: str  # catalogue name
    partition: int  # number of the partition
    offset: int  # offset in the partition
    key: str  # record key
    value: bytes | None  # None for a tombstone
    timestamp: int  # timestamp of the record, milliseconds


class TopicFeed:
    """Reader of some topics."""

    def __init__(
        self,
        settings: KafkaSettings,
        wanted: Mapping[str, int],
        on_records: Callable[[Sequence[FollowedRecord]], None],
        on_recreated: Callable[[str], None],
        on_outage: Callable[[], None],
    ) -> None:
        """Create a reader.

        Args:
            settings: connection settings.
            wanted: by catalogue name: how many of the latest records of each partition to begin with, or `ALL`.
            on_records: callback for records, in order of time, within a partition in order of offsets.
            on_recreated: callback with the catalogue name of a recreated topic.
            on_outage: callback for the start and the end of an outage.
        """
        self.complete = False  # whether all records that existed at the first connection have been delivered
        self.lost_since: float | None = None  # seconds since 1970 of the start of an outage; None while brokers answer
        self.fault = "the topics are being read"  # why nothing is read, in words; empty without a fault
        self.cluster_id = ""  # id of the cluster; empty before the first answer
        self._settings = settings
        self._wanted = dict(wanted)
        self._names = {settings.topic(name): name for name in wanted}
        self._on_records = on_records
        self._on_recreated = on_recreated
        self._on_outage = on_outage
        self._positions: dict[TopicPartition, int] = {}
        self._ids: dict[str, bytes | None] = {}

    async def run(self) -> None:
        """Read until cancelled."""
        pause = FIRST_PAUSE_S
        while True:
            consumer = AIOKafkaConsumer(
                **self._settings.client_arguments(), enable_auto_commit=False, auto_offset_reset="earliest"
            )
            try:
                await asyncio.wait_for(consumer.start(), 2 * ANSWER_S)
                begun = await self._begin(consumer)
                pause = FIRST_PAUSE_S
                await self._read(consumer, begun)
            except (KafkaError, OSError, TimeoutError, TrustfoldError) as error:
                await self._lost(error)
            except Exception as error:
                log.exception("the topics cannot be read; they are tried again")
                await self._lost(TrustfoldError(f"the topics cannot be read: {error!r}; see the log of this server"))
            finally:
                await bounded(consumer.stop(), STOP_S, "closing the reader of the topics")
            await asyncio.sleep(pause)
            pause = min(LAST_PAUSE_S, 2 * pause)

    async def _begin(self, consumer: Any) -> dict[TopicPartition, int]:
        """Seek every partition to its position; return the current log ends.

        Raises:
            ConfigError: a topic is missing.
        """
        places, ids = await self._places(consumer)
        begins = await asyncio.wait_for(consumer.beginning_offsets(places), ANSWER_S)
        ends: dict[TopicPartition, int] = await asyncio.wait_for(consumer.end_offsets(places), ANSWER_S)
        known, self._ids = self._ids, ids
        anew = {name for name, known_id in known.items() if known_id is not None and known_id != ids[name]}
        for topic in anew | {place.topic for place, at in self._positions.items() if at > ends.get(place, -1)}:
            log.warning("topic %s was created again; it is read from its beginning", topic)
            self._positions = {place: at for place, at in self._positions.items() if place.topic != topic}
            self._on_recreated(self._names[topic])
        consumer.assign(places)
        for place in places:
            most = self._wanted[self._names[place.topic]]
            first = begins[place] if most == ALL else max(begins[place], ends[place] - most)
            self._positions[place] = max(self._positions.get(place, first), begins[place])
            consumer.seek(place, self._positions[place])
        return ends

    async def _places(self, consumer: Any) -> tuple[list[TopicPartition], dict[str, bytes | None]]:
        """Return all partitions of the topics, and the topics' ids (None from brokers before 2.8)."""
        found = await asyncio.wait_for(describe(consumer._client, list(self._names)), ANSWER_S)
        if denied := [
            name for name, topic in found.topics.items() if topic.error == TopicAuthorizationFailedError.errno
        ]:
            raise hidden_topics_error(self._settings, denied)
        if missing := [name for name, topic in found.topics.items() if not topic.partitions]:
            raise ConfigError(f"there is no topic {missing[0]}; `trustfold topics create` makes it")
        self.cluster_id = found.cluster_id
        places = [TopicPartition(name, one) for name, topic in found.topics.items() for one in range(topic.partitions)]
        return places, {name: topic.topic_id for name, topic in found.topics.items()}

    async def _read(self, consumer: Any, ends: Mapping[TopicPartition, int]) -> None:
        """Deliver records; those that existed at the start, of topics read by their latest records, in order of time.

        Raises:
            KafkaError: a broker rejects the request.
            TimeoutError: no broker answers.
        """
        early: list[FollowedRecord] = []
        behind: dict[TopicPartition, int] | None = dict(ends)
        watch = asyncio.create_task(self._watch(consumer))
        try:
            while not watch.done():
                polled = await consumer.getmany(timeout_ms=200)
                found = sorted(
                    (self._followed(place, one) for place, records in polled.items() for one in records),
                    key=lambda record: record.timestamp,
                )
                for place, records in polled.items():
                    self._positions[place] = records[-1].offset + 1
                if behind is not None:
                    early += [one for one in found if self._wanted[one.topic] != ALL]
                    found = [one for one in found if self._wanted[one.topic] == ALL]
                    # Compaction may have removed the last records of a partition: the position passes their offsets.
                    behind = {place: end for place, end in behind.items() if await consumer.position(place) < end}
                    if not behind:
                        found += sorted(early, key=lambda record: record.timestamp)
                if found:
                    self._on_records(found)
                if behind is not None and not behind:
                    behind = None
                    self._found()
            watch.result()
        finally:
            await ended(watch)

    async def _watch(self, consumer: Any) -> None:
        """Raise as soon as no broker answers, a topic was repartitioned, or its log ends before the read position."""
        places = list(self._positions)
        while True:
            await asyncio.sleep(WATCH_S)
            try:
                await self._check(consumer, places)
            except KafkaConnectionError:
                # Brokers end connections that are old or idle; the next request makes a new one.
                await self._check(consumer, places)

    async def _check(self, consumer: Any, places: Collection[TopicPartition]) -> None:
        """Compare the topics with what is read."""
        now, ids = await self._places(consumer)
        if set(now) != set(places):
            raise ConfigError("a topic has other partitions than before")
        if ids != self._ids:
            raise ConfigError("a topic was created again")
        ends = await asyncio.wait_for(consumer.end_offsets(places), ANSWER_S)
        if any(self._positions[place] > end for place, end in ends.items()):
            raise ConfigError("a topic was created again")

    def _followed(self, place: TopicPartition, record: Any) -> FollowedRecord:
        key = (record.key or b"").decode(errors="replace")
        return FollowedRecord(
            self._names[place.topic], place.partition, record.offset, key, record.value, max(record.timestamp, 0)
        )

    def _found(self) -> None:
        if self.lost_since is not None:
            log.warning("a broker answers again after %.0f s", time.time() - self.lost_since)
        self.complete, self.lost_since, self.fault = True, None, ""
        self._on_outage()

    async def _lost(self, error: BaseException) -> None:
        if isinstance(error, KafkaConnectionError):
            error = await unreachable(self._settings)
        elif isinstance(error, RIGHTS_ERRORS):
            error = missing_right_error(self._settings, error)
        fault = str(error) if isinstance(error, TrustfoldError) else f"no broker of {self._settings.bootstrap} answers"
        if self.fault != fault:
            log.warning("no new records are shown for the time being: %s", fault)
        self.fault = fault
        if self.lost_since is None:
            self.lost_since = time.time()
        self._on_outage()
