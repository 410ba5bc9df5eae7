"""Runs the real worker on a real broker over given records, and reads back what it wrote."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterable
from typing import IO, Any

from aiokafka import AIOKafkaConsumer, TopicPartition
from trustfold.projections.topology import DECISION_TOPICS
from trustfold.streams.kafka.kafka_settings import KafkaSettings
from trustfold.streams.kafka.publish import publish
from trustfold.streams.kafka.topics import create_topics
from warm_process import WarmProcess

OUTPUT_TOPICS = (*DECISION_TOPICS, "state", "dead-letters")
START = (
    "import sys; from trustfold.streams.kafka.kafka_settings import KafkaSettings;"
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


def start_worker(settings: KafkaSettings, log: IO[bytes] | None = None, **more: str) -> subprocess.Popen[bytes]:
    """A worker process; it logs to the terminal or into `log`. `more` is added to its environment."""
    return WarmProcess([sys.executable, "-c", START], env=environment(settings) | more, stderr=log)


def stop_worker(process: subprocess.Popen[bytes], patience: float = 30) -> int:
    """Ask a worker to stop; kill it when it does not. Returns its exit code."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(patience)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    return int(process.returncode)


async def prepare(settings: KafkaSettings, records: list[tuple[str, bytes]]) -> None:
    """Create the topics and publish the records, in order."""
    await create_topics(settings)
    for topic in dict.fromkeys(topic for topic, _ in records):
        progress = await publish(settings, [value for name, value in records if name == topic], topic=topic)
        assert not progress.refused


async def follow(
    settings: KafkaSettings, done: Callable[[Written], bool], process: subprocess.Popen[bytes], deadline: float = 60
) -> Written:
    """Read the output topics from the beginning until `done`; fails when the deadline passes or the worker ends."""
    written: Written = {}
    ends = time.monotonic() + deadline
    async with consumer(settings, OUTPUT_TOPICS) as reader:
        while not done(written):
            assert time.monotonic() < ends, f"only {sum(map(len, written.values()))} outputs within {deadline} s"
            assert process.poll() is None, f"the worker ended with {process.returncode}"
            for partition, records in (await reader.getmany(timeout_ms=200)).items():
                name = partition.topic.removeprefix(settings.topic_prefix)
                for record in records:
                    written.setdefault((name, record.key.decode()), []).append(record.value)
    return written


@contextlib.asynccontextmanager
async def consumer(
    settings: KafkaSettings, topics: Iterable[str], changelog: str | None = None
) -> AsyncIterator[AIOKafkaConsumer]:
    """A reader of topics (or of a stage's changelog) from their beginning."""
    names = [settings.topic(name) for name in topics] + ([settings.changelog(changelog)] if changelog else [])
    reader = AIOKafkaConsumer(bootstrap_servers=settings.bootstrap, auto_offset_reset="earliest")
    await reader.start()
    try:
        reader.assign([TopicPartition(name, p) for name in names for p in range(settings.partitions)])
        yield reader
    finally:
        await reader.stop()


def log_of(settings: KafkaSettings) -> list[tuple[int, int, str | None]]:
    """Partition, offset and key of every record of `events`."""

    async def read() -> list[tuple[int, int, str | None]]:
        places = [TopicPartition(settings.topic("events"), number) for number in range(settings.partitions)]
        reader = AIOKafkaConsumer(bootstrap_servers=settings.bootstrap, auto_offset_reset="earliest")
        await reader.start()
        try:
            reader.assign(places)
            ends = await reader.end_offsets(places)
            found = []
            while [place for place in places if await reader.position(place) < ends[place]]:
                for place, records in (await reader.getmany(timeout_ms=200)).items():
                    found += [(place.partition, one.offset, one.key.decode() if one.key else None) for one in records]
            return sorted(found)
        finally:
            await reader.stop()

    return asyncio.run(read())


def run_through_kafka(
    settings: KafkaSettings, records: list[tuple[str, bytes]], done: Callable[[Written], bool], deadline: float = 60
) -> Written:
    """Publish the records, start a worker, and return what it wrote once `done` says that it is enough."""

    async def run() -> Written:
        await prepare(settings, records)
        process = start_worker(settings)
        try:
            return await follow(settings, done, process, deadline)
        finally:
            stop_worker(process)

    return asyncio.run(run())
