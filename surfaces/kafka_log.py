"""Reading and writing Kafka topics from a command: whole topics, acknowledged records, errors in our words."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Coroutine, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any, NamedTuple, TypeVar

from ..schemas.errors import ConfigError, TrustfoldError
from .output import TookTooLong, Unreachable

try:
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
    from aiokafka.admin import AIOKafkaAdminClient
    from aiokafka.errors import KafkaConnectionError, KafkaError, KafkaTimeoutError

    from ..streams.kafka.access import LACKING, Denied, lacking, run_client, unreachable
    from ..streams.kafka.settings import KafkaSettings
except ImportError as missing:
    raise ConfigError(
        f"Kafka is not installed here ({missing}); pip install 'trustfold[kafka]', or in a checkout `make install`"
    ) from missing

__all__ = ["KafkaSettings", "Sent", "Stored", "places_at", "read", "run", "write"]

TIMEOUT_S = 30.0
"""Seconds without a record, or without an acknowledgement, after which we give up."""

STOP_S = 5.0
"""Seconds that a client may take to close; a producer would wait for its broker for ever."""

T = TypeVar("T")
Places = Mapping[TopicPartition, int]
"""An offset for each partition."""


class Stored(NamedTuple):
    """A record as it was read."""

    partition: int
    offset: int
    key: str
    value: bytes | None
    timestamp: int
    headers: Sequence[tuple[str, bytes]]

    @property
    def ref(self) -> str:
        """Its place, for people and for asking for it again."""
        return f"{self.partition}:{self.offset}"


class Sent(NamedTuple):
    """A record to write; `topic` is the real name."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes]] = ()


@contextmanager
def _reaching_kafka(settings: KafkaSettings) -> Iterator[None]:
    """Turn what aiokafka raises into our errors: nobody there, no answer in time, refused. Outside of event loops."""
    quiet = logging.getLogger("aiokafka")
    if not logging.getLogger().handlers:
        quiet.setLevel(logging.CRITICAL)  # what it logs is what we raise
    try:
        yield
    except Denied:
        raise
    except ConfigError as error:
        if isinstance(error.__cause__, KafkaConnectionError):
            raise Unreachable(str(error)) from error
        raise
    except (TimeoutError, KafkaTimeoutError) as error:
        raise TookTooLong(f"Kafka did not answer in time ({error or f'{TIMEOUT_S:.0f} s'}); look at its log") from error
    except KafkaConnectionError as error:
        told = run_client(unreachable(settings))
        if isinstance(told, Denied):
            raise told from error
        raise Unreachable(str(told)) from error
    except LACKING as error:
        raise lacking(settings, error) from error
    except KafkaError as error:
        raise TrustfoldError(f"Kafka refused: {error}") from error


def run(settings: KafkaSettings, work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that speaks to Kafka to its end, with errors in our words."""
    with _reaching_kafka(settings):
        return run_client(work)


async def read(
    settings: KafkaSettings, topic: str, begin: Places | None = None
) -> tuple[list[Stored], dict[TopicPartition, int]]:
    """Every record of a topic up to the end it has now, oldest first, and that end.

    Args:
        settings: how Kafka is reached.
        topic: real name.
        begin: where to begin; partitions that it does not name, and all without it, from their first record.

    Raises:
        ConfigError: there is no such topic.
        TimeoutError: nothing came for TIMEOUT_S.
    """
    begin = begin or {}
    async with _consumer(settings) as consumer, asyncio.timeout(TIMEOUT_S) as patience:
        places = [TopicPartition(topic, number) for number in await _partitions(settings, topic)]
        consumer.assign(places)
        firsts = await consumer.beginning_offsets(places)
        ends = await consumer.end_offsets(places)
        for place in places:
            consumer.seek(place, max(begin.get(place, 0), firsts[place]))
        found: list[Stored] = []
        while [place for place in places if await consumer.position(place) < ends[place]]:
            for place, records in (await consumer.getmany(*places, timeout_ms=500)).items():
                patience.reschedule(asyncio.get_running_loop().time() + TIMEOUT_S)
                found += [
                    Stored(place.partition, one.offset, _text(one.key), one.value, one.timestamp, one.headers)
                    for one in records
                    if one.offset < ends[place]
                ]
        return sorted(found, key=lambda record: record.timestamp), ends


async def places_at(settings: KafkaSettings, topic: str, since_ms: int) -> dict[TopicPartition, int]:
    """Offset of the first record of each partition that is not older than a time; the end where there is none."""
    async with _consumer(settings) as consumer, asyncio.timeout(TIMEOUT_S):
        places = [TopicPartition(topic, number) for number in await _partitions(settings, topic)]
        ends = await consumer.end_offsets(places)
        found = await consumer.offsets_for_times(dict.fromkeys(places, since_ms))
        return {place: at.offset if (at := found.get(place)) else ends[place] for place in places}


async def write(settings: KafkaSettings, records: Sequence[Sent]) -> None:
    """Write records and wait until the brokers have acknowledged all of them.

    Raises:
        TimeoutError: they did not within TIMEOUT_S; some may have been written.
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
        await _closed(producer.stop())


async def _closed(stopping: Coroutine[Any, Any, None]) -> None:
    """Wait for a client to close, but not for ever."""
    task = asyncio.ensure_future(stopping)
    _, unfinished = await asyncio.wait({task}, timeout=STOP_S)
    if unfinished:
        task.cancel()


@asynccontextmanager
async def _consumer(settings: KafkaSettings) -> AsyncIterator[AIOKafkaConsumer]:
    consumer = AIOKafkaConsumer(**settings.client_arguments(), enable_auto_commit=False, auto_offset_reset="earliest")
    try:
        async with asyncio.timeout(TIMEOUT_S):
            await consumer.start()
        yield consumer
    finally:
        await _closed(consumer.stop())


async def _partitions(settings: KafkaSettings, topic: str) -> list[int]:
    admin = AIOKafkaAdminClient(**settings.client_arguments())
    try:
        await admin.start()
        every = await admin.describe_topics()  # naming one that is missing could make it
    finally:
        await admin.close()
    for found in every:
        if found["topic"] == topic and not found["error_code"]:
            return [partition["partition"] for partition in found["partitions"]]
    raise ConfigError(f"there is no topic {topic}; `trustfold topics create` makes it, TRUSTFOLD_TOPIC_PREFIX names it")


def _text(key: bytes | None) -> str:
    return (key or b"").decode(errors="replace")
