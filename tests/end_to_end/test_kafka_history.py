"""Recording a real Kafka: recorders killed, added and taken over; what is in the files is the log, each record once."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition
from broker_kit.choice import Broker
from busy_agents import busy_agents
from kafka_run import environment, prepare, settings_for
from recorded import rows
from trustfold.history.files import data_files
from trustfold.streams.kafka.publish import publish
from trustfold.streams.kafka.settings import KafkaSettings
from waiting import wait_until

pytestmark = [pytest.mark.broker, pytest.mark.durable_broker, pytest.mark.slow, pytest.mark.timeout(240)]

PARTITIONS = 4


def recorder(settings: KafkaSettings, root: Path, *more: str) -> subprocess.Popen[bytes]:
    """A process that records."""
    command = [
        sys.executable,
        "-m",
        "trustfold",
        "record",
        "--bootstrap",
        settings.bootstrap,
        "--history",
        str(root),
        *more,
    ]
    return subprocess.Popen([*command, "--flush", "0.1"], env=environment(settings), stderr=subprocess.DEVNULL)


def log_of(settings: KafkaSettings) -> list[tuple[int, int, str | None]]:
    """Partition, offset and key of every record of `events`."""

    async def read() -> list[tuple[int, int, str | None]]:
        places = [TopicPartition(settings.topic("events"), number) for number in range(PARTITIONS)]
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


def recorded(root: Path) -> list[tuple[int, int, str | None]]:
    """The same, from the files."""
    return [tuple(row) for row in rows(root, 'SELECT "partition", "offset", key FROM recorded_events ORDER BY ALL')]


def files_in(root: Path) -> int:
    """How many files of events there are."""
    return len(list(data_files(root, "events")))


def test_recorders_come_and_go_and_the_files_are_the_log(broker: Broker, topic_prefix: str, tmp_path: Path) -> None:
    """Two share the partitions, one is killed, another stops in order, a last one finishes: each record once."""
    settings = settings_for(broker.bootstrap, topic_prefix, partitions=PARTITIONS)
    root = tmp_path / "history"
    events = busy_agents(40, 60)
    third = len(events) // 3
    asyncio.run(prepare(settings, events[:third]))
    first = recorder(settings, root)
    wait_until(lambda: files_in(root) > 0, timeout=60, what="the first recorder writes")
    second = recorder(settings, root)
    asyncio.run(publish(settings, [value for _, value in events[third : 2 * third]]))
    before = files_in(root)
    first.kill()
    first.wait()
    asyncio.run(publish(settings, [value for _, value in events[2 * third :]]))
    wait_until(lambda: files_in(root) > before, timeout=90, what="the second recorder takes over")
    second.send_signal(signal.SIGTERM)
    second.wait(60)
    assert recorder(settings, root, "--once").wait(120) == 0
    assert recorded(root) == log_of(settings)
    ids = [row[0] for row in rows(root, "SELECT id FROM recorded_events")]
    assert len(ids) == len(set(ids)) == len(events)


def test_another_directory_goes_on_where_the_group_was(broker: Broker, topic_prefix: str, tmp_path: Path) -> None:
    """Recorders with a directory each divide the log: what one has committed the other does not record again."""
    settings = settings_for(broker.bootstrap, topic_prefix, partitions=PARTITIONS)
    events = busy_agents(10, 20)
    half = len(events) // 2
    asyncio.run(prepare(settings, events[:half]))
    assert recorder(settings, tmp_path / "one", "--once").wait(120) == 0
    asyncio.run(publish(settings, [value for _, value in events[half:]]))
    assert recorder(settings, tmp_path / "two", "--once").wait(120) == 0
    one, two = recorded(tmp_path / "one"), recorded(tmp_path / "two")
    assert len(one) == half
    assert sorted(one + two) == log_of(settings)
