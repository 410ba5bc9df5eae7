"""Runs the real worker on a real broker over given records, and reads back what it wrote."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition

from trustfold.projections.topology import DECISION_TOPICS
from trustfold.streams.kafka.publish import publish
from trustfold.streams.kafka.settings import KafkaSettings
from trustfold.streams.kafka.topics import create_topics

OUTPUT_TOPICS = (*DECISION_TOPICS, "state", "dead-letters")
START = (
    "import sys; from trustfold.streams.kafka.settings import KafkaSettings;"
    "from trustfold.streams.kafka.worker import run_worker; sys.exit(run_worker(KafkaSettings.from_env()))"
)

Written = dict[tuple[str, str], list[bytes | None]]
"""Values by topic and key, in order."""


def settings_for(bootstrap: str, prefix: str, **changes: Any) -> KafkaSettings:
    """Settings of a small, quick deployment of its own."""
    return KafkaSettings(
        **{
            "bootstrap": bootstrap,
            "app_id": f"{prefix}-app",
            "topic_prefix": f"{prefix}.",
            "partitions": 1,
            "replication": 1,
            "checkpoint_interval": 0.2,
            "session_timeout": 6.0,
            **changes,
        }
    )


def environment(settings: KafkaSettings) -> dict[str, str]:
    """Environment that gives a worker process these settings."""
    return os.environ | {
        "TRUSTFOLD_BROKER": settings.bootstrap,
        "TRUSTFOLD_APP_ID": settings.app_id,
        "TRUSTFOLD_TOPIC_PREFIX": settings.topic_prefix,
        "TRUSTFOLD_PARTITIONS": str(settings.partitions),
        "TRUSTFOLD_CHECKPOINT_INTERVAL": str(settings.checkpoint_interval),
        "TRUSTFOLD_SESSION_TIMEOUT": str(settings.session_timeout),
    }


@contextlib.contextmanager
def worker(settings: KafkaSettings) -> Iterator[subprocess.Popen[bytes]]:
    """A worker process; stopped with SIGTERM at the end."""
    process = subprocess.Popen([sys.executable, "-c", START], env=environment(settings))
    try:
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


async def prepare(settings: KafkaSettings, records: list[tuple[str, bytes]]) -> None:
    """Create the topics and publish the records, in order."""
    await create_topics(settings)
    for topic in dict.fromkeys(topic for topic, _ in records):
        progress = await publish(settings, [value for name, value in records if name == topic], topic=topic)
        assert not progress.refused, progress.reasons


async def follow(
    settings: KafkaSettings, done: Callable[[Written], bool], process: subprocess.Popen[bytes], deadline: float = 60
) -> Written:
    """Read the output topics from the beginning until `done`; fails when the deadline passes or the worker ends."""
    written: Written = {}
    ends = time.monotonic() + deadline
    async with _consumer(settings) as consumer:
        while not done(written):
            assert time.monotonic() < ends, f"only {sum(map(len, written.values()))} outputs within {deadline} s"
            assert process.poll() is None, f"the worker ended with {process.returncode}"
            for partition, records in (await consumer.getmany(timeout_ms=200)).items():
                name = partition.topic.removeprefix(settings.topic_prefix)
                for record in records:
                    written.setdefault((name, record.key.decode()), []).append(record.value)
    return written


@contextlib.asynccontextmanager
async def _consumer(settings: KafkaSettings) -> AsyncIterator[AIOKafkaConsumer]:
    consumer = AIOKafkaConsumer(bootstrap_servers=settings.bootstrap, auto_offset_reset="earliest")
    await consumer.start()
    try:
        topics = [settings.topic(name) for name in OUTPUT_TOPICS]
        consumer.assign([TopicPartition(name, p) for name in topics for p in range(settings.partitions)])
        yield consumer
    finally:
        await consumer.stop()


def run_through_kafka(
    settings: KafkaSettings, records: list[tuple[str, bytes]], done: Callable[[Written], bool], deadline: float = 60
) -> Written:
    """Publish the records, start a worker, and return what it wrote once `done` says that it is enough."""

    async def run() -> Written:
        await prepare(settings, records)
        with worker(settings) as process:
            return await follow(settings, done, process, deadline)

    return asyncio.run(run())
