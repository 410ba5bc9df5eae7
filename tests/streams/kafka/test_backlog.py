"""A backlog is folded in the order of time: a worker decides after an outage what it would have decided live."""

from __future__ import annotations

import asyncio
import gzip
import os
import time
from collections import Counter
from datetime import datetime
from pathlib import Path
from typing import Any

import orjson
import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from broker_kit import Broker
from kafka_run import consumer, settings_for, start_worker, stop_worker
from probing import free_port, get
from prometheus_client.parser import text_string_to_metric_families
from trustfold.projections.local_topology import LocalTopology
from trustfold.rules.rules import RuleSet
from trustfold.streams.kafka.kafka_settings import KafkaSettings
from trustfold.streams.kafka.lag import lag_of
from trustfold.streams.kafka.topics import create_topics

pytestmark = [pytest.mark.slow, pytest.mark.durable_broker, pytest.mark.timeout(400)]

TRACES = Path(os.environ.get("TRUSTFOLD_TRACES") or Path(__file__).parents[4] / "shared" / "traces")
TOOL_TOPICS = ("breakers", "escalations", "state")
"""Topics on which the tool stage tells its decisions."""

COUNT = int(os.environ.get("TRUSTFOLD_BACKLOG", "9000"))
"""Events of the dense backlog, three seconds of it; 200,000 show the same and take minutes."""

Event = tuple[int, str, bytes]
"""Milliseconds, session and value."""


def recorded(name: str) -> list[Event]:
    """Events of a recorded run, by time."""
    path = TRACES / f"{name}.ndjson.gz"
    if not path.exists():
        pytest.skip(f"no recorded runs in {TRACES}")
    with gzip.open(path) as lines:
        events = [(orjson.loads(line), line.strip()) for line in lines]
    timed = [(_milliseconds(event["time"]), event["session_id"], line) for event, line in events]
    return sorted(timed, key=lambda event: event[0])


def _milliseconds(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1000)


def decisions(values: list[bytes | None]) -> Counter[tuple[Any, ...]]:
    """Decisions of the tool stage by key, kind and minute, with what they say of the key's state."""
    found: Counter[tuple[Any, ...]] = Counter()
    for value in values:
        told = orjson.loads(value) if value else {}
        if told and told.get("kind") != "model":
            found[told["type"], told.get("kind"), told.get("key"), told.get("state"), told["time"][:16]] += 1
    return found


def replayed(events: list[Event]) -> Counter[tuple[Any, ...]]:
    """The decisions of a replay."""
    topology = LocalTopology(RuleSet())
    outputs = topology.feed("events", [value for _, _, value in events])
    outputs += topology.tick(topology.stream_time)
    return decisions([output.value for output in outputs if output.topic in TOOL_TOPICS])


async def publish(settings: KafkaSettings, events: list[Event]) -> None:
    """Publish events with the time they arrived at as their records' time, and let no broker delete them for it."""
    await create_topics(settings)
    name = settings.topic("events")
    admin = AIOKafkaAdminClient(bootstrap_servers=settings.servers)
    await admin.start()
    await admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, name, {"retention.ms": "-1"})])
    await admin.close()
    async with AIOKafkaProducer(bootstrap_servers=settings.servers, linger_ms=20, max_batch_size=500_000) as producer:
        sent = [
            await producer.send(name, value, key=session.encode(), timestamp_ms=at) for at, session, value in events
        ]
        await asyncio.gather(*sent)


async def folded(settings: KafkaSettings, patience: float) -> None:
    """Wait until the group has committed all it has to read."""
    deadline, topics = time.monotonic() + patience, [settings.topic(name) for name in ("events", "outcomes")]
    while True:
        lags = await lag_of(settings, settings.app_id, topics)
        if not any(lag.records or (lag.committed is None and lag.end) for lag in lags):
            return
        assert time.monotonic() < deadline, "the backlog was not folded in time"
        await asyncio.sleep(0.5)


async def values_of(settings: KafkaSettings, topics: tuple[str, ...]) -> list[bytes | None]:
    """Values of topics, from their beginning to their end of now."""
    found: list[bytes | None] = []
    async with consumer(settings, topics) as reader:
        ends = await reader.end_offsets(reader.assignment())
        left = {place for place, end in ends.items() if end}
        while left:
            for records in (await reader.getmany(timeout_ms=200)).values():
                found += [record.value for record in records]
            left = {place for place in left if await reader.position(place) < ends[place]}
    return found


def test_a_backlog_gives_the_decisions_of_a_replay(broker: Broker, topic_prefix: str) -> None:
    """Weeks of recorded work, folded by one worker as fast as it can, give the same at the same times.

    That one partition gives the same bytes is tested in test_both_engines.
    """
    events = recorded("entire_claude_code")[28_000:37_000]  # about 60 decisions
    settings = settings_for(broker.bootstrap, topic_prefix, partitions=4)
    wanted = replayed(events)

    async def run() -> Counter[tuple[Any, ...]]:
        await publish(settings, events)
        worker = start_worker(settings)
        try:
            await folded(settings, 240)
        finally:
            assert stop_worker(worker) == 0
        return decisions(await values_of(settings, TOOL_TOPICS))

    found = asyncio.run(run())
    same = (wanted & found).total()
    assert same >= 0.98 * max(wanted.total(), found.total()), f"missing: {wanted - found}; not wanted: {found - wanted}"


def dense(count: int, rate: float) -> list[Event]:
    """So many recorded events, arrived at a steady rate; sessions are told again under new names.

    They end in the future, so that nothing that ticks append at the present stands alone behind them.
    """
    told = recorded("entire_claude_code")
    begin = time.time() * 1000 + 60_000
    events = []
    for number in range(count):
        copy, at = divmod(number, len(told))
        _, session, value = told[at]
        name = f"{session}-{copy}"
        events.append((int(begin + number / rate * 1000), name, value.replace(session.encode(), name.encode())))
    return events


def test_the_tool_stage_keeps_up_with_the_session_stage(broker: Broker, topic_prefix: str) -> None:
    """In a backlog of 3,000 events a second it is never more than two seconds of the log's time behind."""
    settings = settings_for(broker.bootstrap, topic_prefix, partitions=4)
    port = free_port()

    async def run() -> dict[str, float]:
        await publish(settings, dense(COUNT, 3_000))
        worker = start_worker(settings, TRUSTFOLD_WEB_PORT=str(port))
        try:
            await folded(settings, 240)
            return scraped(port, "trustfold_stream_time_lag_most_seconds")
        finally:
            stop_worker(worker)

    most = asyncio.run(run())
    assert 0 < most["tool"] <= 2, most


def scraped(port: int, name: str) -> dict[str, float]:
    """Values of a worker's metric by its only label."""
    families = {family.name: family for family in text_string_to_metric_families(get(port, "/metrics")[1])}
    return {next(iter(sample.labels.values())): sample.value for sample in families[name].samples}
