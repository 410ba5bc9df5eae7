"""A session that rested for days, on a worker and in one process: it begins anew on both, and leaves the changelog."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from typing import Any

import orjson
import pytest
from aiokafka import AIOKafkaProducer
from kafka_run import consumer, settings_for, start_worker, stop_worker
from story import Story
from trustfold.projections.emitter import StageOutput
from trustfold.projections.local_topology import LocalTopology
from trustfold.rules.rules import RuleSet
from trustfold.streams.kafka.kafka_settings import KafkaSettings
from trustfold.streams.kafka.topics import create_topics

pytestmark = [pytest.mark.broker, pytest.mark.durable_broker]

DAY_S = 86_400


def log_of_six_days() -> list[tuple[str, bytes, int]]:
    """Session, value and arrival: two sessions that begin a loop, and one of them goes on after five days."""
    found, now = [], time.time()
    for ids, (session, days_ago, calls) in enumerate([("gone", 6.0, 2), ("back", 6.0, 2), ("back", 1.0, 2)]):
        story = Story(rules=RuleSet(), session=session)
        story.now, story._ids = datetime.fromtimestamp(now - days_ago * DAY_S, UTC), ids * 100
        story.works("bash", {"command": "ls"}, times=calls)
        found += [(session, value, int((now - days_ago * DAY_S) * 1000)) for _, value in story.records]
    return found


def test_a_worker_forgets_what_one_process_forgets(broker: Any, topic_prefix: str) -> None:
    """The loop of the session that came back does not count across the rest; the other one has a tombstone."""
    settings = settings_for(broker.bootstrap, topic_prefix)
    records = log_of_six_days()
    topology = LocalTopology(RuleSet())
    outputs: list[StageOutput] = []
    for _, value, arrived in records:
        outputs += topology.feed("events", (value,), timestamp=arrived)
    assert [out for out in outputs if out.topic == "nudges"] == []
    nudges, changelog = asyncio.run(_through_a_worker(settings, records))
    assert nudges == []
    assert changelog["gone"] is None
    assert changelog["back"] is not None


async def _through_a_worker(
    settings: KafkaSettings, records: list[tuple[str, bytes, int]]
) -> tuple[list[Any], dict[str, bytes | None]]:
    """Nudges, and the latest record of each session on the changelog once one of them has been dropped."""
    await create_topics(settings)
    worker = start_worker(settings)
    latest: dict[str, bytes | None] = {}
    nudges: list[Any] = []
    try:
        async with AIOKafkaProducer(bootstrap_servers=settings.bootstrap) as producer:

            async def publish(part: list[tuple[str, bytes, int]]) -> None:
                for session, value, arrived in part:
                    await producer.send_and_wait(
                        settings.topic("events"), value, key=session.encode(), timestamp_ms=arrived
                    )

            async with consumer(settings, ("nudges",), changelog="session") as reader:
                await publish([one for one in records if one[2] < (time.time() - 3 * DAY_S) * 1000])
                await _read(reader, latest, nudges, lambda: {"gone", "back"} <= set(latest))
                await publish([one for one in records if one[2] >= (time.time() - 3 * DAY_S) * 1000])
                await _read(reader, latest, nudges, lambda: latest["gone"] is None)
    finally:
        stop_worker(worker)
    return nudges, latest


async def _read(reader: Any, latest: dict[str, bytes | None], nudges: list[Any], done: Any) -> None:
    """Read until enough has come, within a minute."""
    async with asyncio.timeout(60):
        while not done():
            for partition, batch in (await reader.getmany(timeout_ms=200)).items():
                for record in batch:
                    if partition.topic.endswith("nudges"):
                        nudges.append(orjson.loads(record.value))
                    elif not record.key.startswith(b"\xff\xfe"):
                        latest[record.key.decode()] = record.value
