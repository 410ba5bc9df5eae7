"""Lag of a consumer group: in records, in seconds of the next record's age, and as a sum over topics."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from aiokafka import AIOKafkaConsumer, TopicPartition

from ...errors import ConfigError
from .broker_queries import committed_by, group_of
from .kafka_settings import KafkaSettings
from .records import connected_admin, connected_consumer
from .topic_metadata import describe

PATIENCE_S = 30.0  # Timeout of one broker answer, seconds

# Bytes per fetch: only the first record of each partition is needed, but brokers send batches
FETCH_BYTES = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """Lag of a group on one partition."""

    topic: str  # real name
    partition: int  # number
    begin: int  # offset of the first available record
    end: int  # offset after the last record
    committed: int | None  # committed offset of the group; None without a commit
    records: int  # number of records between them
    seconds: float | None  # age of the next record in seconds; 0 without one, None if it has no timestamp
    deleted: int  # number of records that retention deleted before the group read them


async def offsets_of(settings: KafkaSettings, group: str) -> dict[TopicPartition, int]:
    """Return all committed offsets of a group; empty if it does not exist.

    Raises:
        KafkaError: no broker answers, or the group may not be seen.
    """
    async with asyncio.timeout(PATIENCE_S), connected_admin(settings) as admin:
        return await committed_by(admin, group)


async def lag_of(settings: KafkaSettings, group: str, topics: Sequence[str]) -> list[PartitionLag]:
    """Lag of a group on topics, by topic and partition.

    Raises:
        ConfigError: a topic does not exist.
        KafkaError: no broker answers, or refuses.
        TimeoutError: no answer in time.
    """
    committed = await offsets_of(settings, group)
    async with connected_consumer(settings, fetch_max_bytes=FETCH_BYTES) as consumer:
        async with asyncio.timeout(PATIENCE_S):
            places = await _places(consumer, topics)
            begins = await consumer.beginning_offsets(places)
            ends = await consumer.end_offsets(places)
        following = {place: max(committed.get(place, 0), begins[place]) for place in places}
        behind = [place for place in places if following[place] < ends[place]]
        times = await _times(consumer, {place: following[place] for place in behind}, ends)
    now = time.time()
    found = []
    for place in places:
        at = times.get(place, 0)  # no record: the rest was compacted, or is transaction markers
        late = 0.0 if not at else max(0.0, now - at / 1000) if at > 0 else None
        offset = committed.get(place)
        found.append(
            PartitionLag(
                place.topic,
                place.partition,
                begins[place],
                ends[place],
                offset,
                max(0, ends[place] - following[place]) if at else 0,
                None if late is None else round(late, 3),
                max(0, begins[place] - offset) if offset is not None else 0,
            )
        )
    return found


async def _places(consumer: AIOKafkaConsumer, topics: Sequence[str]) -> list[TopicPartition]:
    cluster = await consumer._client.fetch_all_metadata()  # requesting a missing topic by name could create it
    missing = [topic for topic in topics if not cluster.partitions_for_topic(topic)]
    if missing:
        raise ConfigError(
            f"there is no topic {missing[0]}; `trustfold topics create` makes it, TRUSTFOLD_TOPIC_PREFIX names it"
        )
    return [TopicPartition(topic, one) for topic in topics for one in sorted(cluster.partitions_for_topic(topic))]


async def _times(
    consumer: AIOKafkaConsumer, following: dict[TopicPartition, int], ends: dict[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Timestamp of the first record at or after a place, milliseconds; -1 where it has none."""
    found: dict[TopicPartition, int] = {}
    waiting = list(following)
    consumer.assign(waiting)
    for place in waiting:
        consumer.seek(place, following[place])
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(PATIENCE_S) as patience:
        while waiting:
            for place, records in (await consumer.getmany(*waiting, timeout_ms=500, max_records=len(waiting))).items():
                patience.reschedule(loop.time() + PATIENCE_S)
                if records and records[0].offset < ends[place]:
                    found.setdefault(place, records[0].timestamp or -1)
            done = [place for place in waiting if place in found or await consumer.position(place) >= ends[place]]
            waiting = [place for place in waiting if place not in done]
            consumer.pause(*done)  # fetch no more of it
    return found


class WorkersLag(NamedTuple):
    """Lag and members of the workers."""

    behind: int  # number of records to fold, of all topics; without any commit all records count
    members: int  # number of running workers
    ends: dict[str, int]  # number of records ever written to a topic, by its real name

    def fault(self, group: str) -> str:
        """Why records are not folded: no worker runs in this group; empty if one does, or if there are none."""
        if self.members or not self.behind:
            return ""
        return f"no worker runs in group {group}; {self.behind:,} records wait"


async def standing_of(settings: KafkaSettings, topics: Sequence[str]) -> WorkersLag:
    """Return the workers' lag on topics (real names).

    Raises:
        KafkaError: no broker answers, or the group may not be described.
    """
    async with connected_admin(settings) as admin, connected_consumer(settings) as consumer:
        committed = await committed_by(admin, settings.app_id)
        members = (await group_of(admin, settings.app_id)).members
        found = (await describe(consumer._client, topics)).topics
        places = [TopicPartition(name, one) for name, topic in found.items() for one in range(topic.partitions)]
        begins, ends = await consumer.beginning_offsets(places), await consumer.end_offsets(places)
    behind = sum(end - max(committed.get(place, 0), begins[place]) for place, end in ends.items())
    written = {name: sum(end for place, end in ends.items() if place.topic == name) for name in topics}
    return WorkersLag(max(behind, 0), len(members), written)
