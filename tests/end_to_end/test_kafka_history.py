"""Recording a real Kafka: recorders killed, added and taken over; what is in the files is the log, each record once."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import IO, Any

import pytest
from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic, RecordsToDelete
from broker_kit import Broker
from busy_agents import busy_agents
from kafka_run import environment, log_of, prepare, settings_for
from recorded import rows
from trustfold.errors import ConfigError
from trustfold.history.files import data_files
from trustfold.history.recorder import PartitionRecorder
from trustfold.recording import kafka_recorder
from trustfold.streams.kafka.kafka_settings import KafkaSettings
from trustfold.streams.kafka.publish import publish
from waiting import wait_until
from warm_process import WarmProcess

pytestmark = [pytest.mark.broker, pytest.mark.durable_broker, pytest.mark.slow, pytest.mark.timeout(240)]

PARTITIONS = 4


def recorder(
    settings: KafkaSettings, root: Path, *more: str, told: int | IO[bytes] = subprocess.DEVNULL
) -> subprocess.Popen[bytes]:
    """A process that records; what it says goes to `told`."""
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
    return WarmProcess([*command, "--flush", "0.1"], env=environment(settings), stderr=told)


def recorded_once(settings: KafkaSettings, root: Path) -> tuple[int, str]:
    """Record to the present end; exit code and what was said."""
    process = recorder(settings, root, "--once", told=subprocess.PIPE)
    _, said = process.communicate(timeout=120)
    return process.returncode, said.decode()


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
    wait_until(lambda: files_in(root) > 0, what="the first recorder writes")
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


async def make_anew(settings: KafkaSettings, more: int) -> None:
    """Delete the topic of events and create it again with `more` events."""
    name = settings.topic("events")
    admin = AIOKafkaAdminClient(bootstrap_servers=settings.bootstrap)
    await admin.start()
    try:
        await admin.delete_topics([name])
        while name in await admin.list_topics():  # noqa: ASYNC110 - a broker raises no events
            await asyncio.sleep(0.2)
        await admin.create_topics([NewTopic(name, 1, 1)])
    finally:
        await admin.close()
    await publish(settings, [value for _, value in busy_agents(1, more)])


@pytest.mark.parametrize("more", [10, 200], ids=["shorter", "longer"])
def test_a_topic_created_again_is_an_error_and_no_silent_loss(
    broker: Broker, topic_prefix: str, tmp_path: Path, more: int
) -> None:
    """Its offsets begin at 0 again and would be taken for recorded, by a recorder that starts and by one that runs."""
    settings = settings_for(broker.bootstrap, topic_prefix, partitions=1)
    asyncio.run(prepare(settings, busy_agents(5, 20)))
    root = tmp_path / "history"
    assert recorded_once(settings, root)[0] == 0
    running = recorder(settings, root, told=subprocess.PIPE)
    try:
        asyncio.run(make_anew(settings, more))
        _, said = running.communicate(timeout=90)
    finally:
        running.kill()
    assert running.returncode == 2
    told = said.decode()
    missing = f"{settings.topic('events')}; `trustfold topics create` makes it"  # it was gone for a moment
    assert "created again" in told or missing in told
    code, text = recorded_once(settings, root)
    assert code == 2, text
    assert "created again" in text


def test_a_topic_created_again_while_a_recorder_starts_is_an_error(
    broker: Broker, topic_prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also between the comparison of its id and the first look of the watch."""
    settings = settings_for(broker.bootstrap, topic_prefix, partitions=1)
    asyncio.run(prepare(settings, busy_agents(5, 20)))
    described = kafka_recorder._described

    async def described_and_made_anew(*given: Any) -> Any:
        cluster = await described(*given)
        await make_anew(settings, 200)
        return cluster

    async def record() -> None:
        with closing(PartitionRecorder(tmp_path / "history")) as recorder:
            async with asyncio.timeout(60):
                await kafka_recorder.KafkaRecording(recorder, settings).run(asyncio.Event())

    assert recorded_once(settings, tmp_path / "history")[0] == 0
    monkeypatch.setattr(kafka_recorder, "_described", described_and_made_anew)
    with pytest.raises(ConfigError, match="created again under the running recorder"):
        asyncio.run(record())


def test_records_that_the_brokers_deleted_first_are_told(broker: Broker, topic_prefix: str, tmp_path: Path) -> None:
    """A gap is said, and recording goes on behind it."""
    settings = settings_for(broker.bootstrap, topic_prefix, partitions=1)
    events = busy_agents(5, 40)
    asyncio.run(prepare(settings, events[:100]))
    root = tmp_path / "history"
    assert recorded_once(settings, root)[0] == 0

    async def publish_and_delete() -> None:
        await publish(settings, [value for _, value in events[100:200]])
        admin = AIOKafkaAdminClient(bootstrap_servers=settings.bootstrap)
        await admin.start()
        try:
            await admin.delete_records(
                {TopicPartition(settings.topic("events"), 0): RecordsToDelete(before_offset=150)}
            )
        finally:
            await admin.close()

    asyncio.run(publish_and_delete())
    code, said = recorded_once(settings, root)
    assert code == 0, said
    assert "the brokers have deleted records 100 to 149" in said
    assert [offset for _, offset, _ in recorded(root)] == [*range(100), *range(150, 200)]


def test_a_recorder_that_hangs_keeps_its_partitions_and_wakes_to_give_them_up(
    broker: Broker, topic_prefix: str, tmp_path: Path
) -> None:
    """Whoever should take them over says that it waits, and neither writes what the other may be writing."""
    settings = settings_for(broker.bootstrap, topic_prefix, partitions=PARTITIONS)
    root = tmp_path / "history"
    events = busy_agents(20, 40)
    third = len(events) // 3
    asyncio.run(prepare(settings, events[:third]))
    said = tmp_path / "said"
    with recorder(settings, root) as first:
        try:
            wait_until(lambda: files_in(root) > 0, what="the first recorder writes")
            first.send_signal(signal.SIGSTOP)
            asyncio.run(publish(settings, [value for _, value in events[third : 2 * third]]))
            with said.open("wb") as told:
                second = recorder(settings, root, told=told)
            wait_until(lambda: b"waiting until it releases" in said.read_bytes(), what="the second waits")
            first.send_signal(signal.SIGCONT)
            asyncio.run(publish(settings, [value for _, value in events[2 * third :]]))
            wait_until(lambda: len(recorded(root)) == len(events), what="all is recorded")
        finally:
            first.kill()
    second.send_signal(signal.SIGTERM)
    assert second.wait(60) == 0
    assert recorded(root) == log_of(settings)


def test_a_log_that_ends_in_markers_of_transactions_is_recorded_to_its_end(
    broker: Broker, topic_prefix: str, tmp_path: Path
) -> None:
    """They take offsets and are no records; `--once` ends all the same."""
    settings = settings_for(broker.bootstrap, topic_prefix, partitions=1)
    events = busy_agents(2, 10)
    asyncio.run(prepare(settings, []))

    async def publish_in_transactions() -> None:
        producer = AIOKafkaProducer(bootstrap_servers=settings.bootstrap, transactional_id=topic_prefix)
        await producer.start()
        try:
            for first in range(0, 30, 10):
                async with producer.transaction():
                    for key, value in events[first : first + 10]:
                        await producer.send(settings.topic("events"), value, key=key.encode())
        finally:
            await producer.stop()

    asyncio.run(publish_in_transactions())
    for _ in range(2):
        code, said = recorded_once(settings, tmp_path / "history")
        assert code == 0, said
    offsets = [offset for _, offset, _ in recorded(tmp_path / "history")]
    assert offsets == [*range(10), *range(11, 21), *range(22, 32)]
