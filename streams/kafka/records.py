"""Reads and writes records without a consumer group: whole topics, ranges, commands."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Collection, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient

from ...errors import ConfigError
from ...projections.calls.keys import scope_of_key
from ...schemas.commands import Command
from ...schemas.outcomes import DEFAULT_WORKSPACE, US
from .kafka_settings import KafkaSettings
from .topic_metadata import describe

log = logging.getLogger(__name__)

TIMEOUT_S = 30.0  # Timeout in seconds without a record or an acknowledgement
AGAIN_S = 1.0  # Seconds after which a running task is cancelled again
STOP_S = 5.0  # Timeout in seconds for closing a client; a producer would wait for its broker without end
LEAVE_S = 2.0  # The same in a worker that stops, for leaving the group and for each resource that is closed afterwards
Places = Mapping[TopicPartition, int]  # Offset of each partition


class StoredRecord(NamedTuple):
    """Record as read."""

    partition: int
    offset: int
    key: str
    value: bytes | None
    timestamp: int
    headers: Sequence[tuple[str, bytes]]

    @property
    def ref(self) -> str:
        """Return its location, for messages and as an argument of commands."""
        return f"{self.partition}:{self.offset}"


class OutgoingRecord(NamedTuple):
    """Record to write; `topic` is the real name."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes]] = ()


def command_key(command: Command) -> str:
    """Return the record key of a command: that of the outcomes it affects (docs/design/contracts.md#topics)."""
    return f"{command.workspace_id or DEFAULT_WORKSPACE}{US}{scope_of_key(command.key)}"


async def read(
    settings: KafkaSettings,
    topic: str,
    begin: Places | None = None,
    *,
    partitions: Collection[int] | None = None,
    most: int | None = None,
) -> tuple[list[StoredRecord], dict[TopicPartition, int]]:
    """Return all records of a topic up to its current end, oldest first, and that end.

    Args:
        settings: connection settings.
        topic: real name.
        begin: start offset of each partition; others start at their first record.
        partitions: numbers of the partitions to read; None: all.
        most: limit of the latest records per partition.

    Raises:
        ConfigError: the topic does not exist.
        TimeoutError: nothing arrived for TIMEOUT_S.
    """
    begin = begin or {}
    async with connected_consumer(settings) as consumer, asyncio.timeout(TIMEOUT_S) as patience:
        numbers = await partitions_of(settings, topic)
        places = [TopicPartition(topic, number) for number in numbers if partitions is None or number in partitions]
        firsts = await consumer.beginning_offsets(places)
        ends = await consumer.end_offsets(places)
        latest = {place: 0 if most is None else ends[place] - most for place in places}
        spans = {place: (max(begin.get(place, 0), firsts[place], latest[place]), ends[place]) for place in places}
        found: list[StoredRecord] = []
        async for place, records, _ in read_spans(consumer, spans):
            patience.reschedule(asyncio.get_running_loop().time() + TIMEOUT_S)
            found += [
                StoredRecord(place.partition, one.offset, _text(one.key), one.value, one.timestamp, one.headers)
                for one in records
            ]
        return sorted(found, key=lambda record: record.timestamp), ends


Span = tuple[int, int]  # Offset of the first record of a range, and the offset after its last


async def read_spans(
    consumer: Any, spans: Mapping[TopicPartition, Span]
) -> AsyncIterator[tuple[TopicPartition, list[Any], int]]:
    """Read a range of each partition to its end; afterwards the consumer has no other partitions.

    Yields:
        Partition, records in order, and the offset up to which the partition has been read.
    """
    waiting = {place: end for place, (start, end) in spans.items() if start < end}
    if not waiting:
        return
    consumer.assign(list(waiting))
    for place in waiting:
        consumer.seek(place, spans[place][0])
    while waiting:
        polled = await consumer.getmany(*waiting, timeout_ms=500)
        for place in list(waiting):
            end = waiting[place]
            records = polled.get(place, [])
            position = min(await consumer.position(place), end)
            if records and records[-1].offset >= end:
                records = [record for record in records if record.offset < end]
            if position >= end:
                del waiting[place]
                consumer.pause(place)
            if records or position >= end:
                yield place, records, position
        await asyncio.sleep(0)


async def places_at(settings: KafkaSettings, topic: str, since_ms: int) -> dict[TopicPartition, int]:
    """Return the offset of each partition's first record at or after a time; its end without one."""
    async with connected_consumer(settings) as consumer, asyncio.timeout(TIMEOUT_S):
        places = [TopicPartition(topic, number) for number in await partitions_of(settings, topic)]
        ends = await consumer.end_offsets(places)
        found = await consumer.offsets_for_times(dict.fromkeys(places, since_ms))
        return {place: at.offset if (at := found.get(place)) else ends[place] for place in places}


async def write(settings: KafkaSettings, records: Sequence[OutgoingRecord]) -> None:
    """Write records and wait for the acknowledgement of all.

    Raises:
        TimeoutError: no acknowledgement within TIMEOUT_S; some may have been written.
    """
    if not records:
        return
    arguments: dict[str, Any] = settings.client_arguments()
    producer = AIOKafkaProducer(**arguments, acks="all", enable_idempotence=True)
    try:
        async with asyncio.timeout(TIMEOUT_S):
            await producer.start()
            waiting = [
                await producer.send(one.topic, one.value, key=one.key, headers=list(one.headers) or None)
                for one in records
            ]
            await asyncio.gather(*waiting)
    finally:
        await bounded(producer.stop(), STOP_S, "closing the producer")


async def ended(task: asyncio.Task[Any]) -> None:
    """Cancel a task until it ends: `wait_for` of Python 3.11 loses a cancellation that coincides with a result."""
    while not task.done():
        task.cancel()
        await asyncio.wait([task], timeout=AGAIN_S)


async def bounded(work: Coroutine[Any, Any, Any], seconds: float, name: str) -> bool:
    """Run a step of a shutdown in its own task; return whether it succeeded in time.

    Neither cancelling nor `asyncio.timeout` bounds code that swallows cancellations; it stays in the task, as does a
    CancelledError without a cancellation.
    """
    task = asyncio.ensure_future(work)
    done, _ = await asyncio.wait({task}, timeout=seconds)
    if not done:
        task.cancel()
        log.debug("%s took longer than %g s and was abandoned", name, seconds)
        return False
    if task.cancelled() or task.exception() is not None:
        log.debug("%s failed: %r", name, None if task.cancelled() else task.exception())
        return False
    return True


@asynccontextmanager
async def connected_admin(settings: KafkaSettings) -> AsyncIterator[AIOKafkaAdminClient]:
    """Connect an admin client; close it at the end of the block."""
    admin = AIOKafkaAdminClient(**settings.client_arguments())
    try:
        await admin.start()
        yield admin
    finally:
        await admin.close()


@asynccontextmanager
async def connected_consumer(
    settings: KafkaSettings, *, stop_s: float = STOP_S, **more: Any
) -> AsyncIterator[AIOKafkaConsumer]:
    """Connect a consumer without a group within TIMEOUT_S; close it at the end of the block, within `stop_s` seconds.

    `more` are further arguments of the client.
    """
    arguments = {"enable_auto_commit": False, "auto_offset_reset": "earliest", **settings.client_arguments(), **more}
    consumer = AIOKafkaConsumer(**arguments)
    try:
        async with asyncio.timeout(TIMEOUT_S):
            await consumer.start()
        yield consumer
    finally:
        await bounded(consumer.stop(), stop_s, "closing a reader")


async def partitions_of(settings: KafkaSettings, topic: str) -> list[int]:
    """Return the numbers of a topic's partitions."""
    async with connected_admin(settings) as admin:
        found = (await describe(admin._client, [topic])).topics[topic]
    if found.partitions:
        return list(range(found.partitions))
    raise ConfigError(f"there is no topic {topic}; `trustfold topics create` makes it, TRUSTFOLD_TOPIC_PREFIX names it")


def _text(key: bytes | None) -> str:
    return (key or b"").decode(errors="replace")
