"""The broker and the topics of a run: opened once, filled anew for every contestant."""

from __future__ import annotations

import asyncio
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from bench_log import Log
from bench_options import say
from bench_result import CannotMeasure

sys.path.append(str(Path(__file__).parents[1] / "support"))
from broker_kit import Broker, NoBroker, delete_topics, open_broker
from trustfold.streams.kafka.kafka_settings import KafkaSettings
from trustfold.streams.kafka.topics import create_topics, plan

BATCH = 900_000
"""Bytes of a batch that is published; a full one is what a busy publisher sends."""


@contextmanager
def broker(bootstrap: str) -> Iterator[Broker]:
    """A real Kafka: the one given, or one that runs as long as the context.

    Raises:
        CannotMeasure: there is none to be had; the message says what is missing.
    """
    if bootstrap:
        yield Broker(bootstrap, "given", f"the broker at {bootstrap}")
        return
    try:
        opened = open_broker(say, durable=True)  # the mock keeps nothing: no durability to measure
    except NoBroker as reason:
        raise CannotMeasure(str(reason)) from reason
    try:
        yield opened
    finally:
        opened.close()


def settings_for(bootstrap: str, prefix: str, partitions: int) -> KafkaSettings:
    """The worker's settings: its defaults, under names of this run."""
    return KafkaSettings(
        bootstrap=bootstrap,
        app_id=f"{prefix}worker",
        topic_prefix=prefix,
        partitions=partitions,
        replication=1,
        log_level="WARNING",
    )


@contextmanager
def topics(broker: Broker, log: Log) -> Iterator[str]:
    """Topics with the log on `events`, deleted afterwards; gives their prefix."""
    prefix = f"bench-{uuid.uuid4().hex[:10]}."
    settings = settings_for(broker.bootstrap, prefix, len(log.partitions))
    try:
        asyncio.run(_fill(settings, log))
        yield prefix
    finally:
        asyncio.run(delete_topics(broker, prefix))


async def _fill(settings: KafkaSettings, log: Log) -> None:
    await make_topics(settings)
    async with AIOKafkaProducer(bootstrap_servers=settings.servers, acks="all", max_batch_size=BATCH) as producer:
        name = settings.topic("events")
        await producer.partitions_for(name)
        await asyncio.gather(*[_publish(producer, name, at, log) for at in range(settings.partitions)])


async def make_topics(settings: KafkaSettings) -> None:
    """Create the topics that are missing and wait until every partition answers; a named leader may not serve yet."""
    await create_topics(settings)
    async with AIOKafkaConsumer(bootstrap_servers=settings.servers) as consumer:
        names = [topic.name for topic in plan(settings)]
        await consumer.end_offsets([TopicPartition(name, at) for name in names for at in range(settings.partitions)])


async def _publish(producer: Any, topic: str, partition: int, log: Log) -> None:
    batch = producer.create_batch()
    sent = []
    for (key, value), at in zip(log.partitions[partition], log.timestamps[partition], strict=True):
        if batch.append(key=key, value=value, timestamp=at) is None:
            sent.append(await producer.send_batch(batch, topic, partition=partition))
            batch = producer.create_batch()
            batch.append(key=key, value=value, timestamp=at)
    if batch.record_count():
        sent.append(await producer.send_batch(batch, topic, partition=partition))
    await asyncio.gather(*sent)
