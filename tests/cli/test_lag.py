"""`trustfold lag` and what `trustfold doctor` says of Kafka, on a real broker."""

from __future__ import annotations

import asyncio
import json
import subprocess
import time
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, RecordsToDelete
from click.testing import CliRunner, Result
from kafka_run import environment, settings_for, start_worker, stop_worker
from trustfold.cli.demo import events
from trustfold.cli.main import main
from trustfold.streams.kafka.kafka_settings import KafkaSettings
from trustfold.streams.kafka.publish import publish
from trustfold.streams.kafka.topics import create_topics
from waiting import wait_until

pytestmark = [pytest.mark.broker, pytest.mark.durable_broker]

AGE_S = 3600
RECORDS = 10


@pytest.fixture
def deployment(broker: Any, topic_prefix: str) -> KafkaSettings:
    """Topics of its own, with RECORDS records of an hour ago in partition 0 of `events`."""
    settings = settings_for(broker.bootstrap, topic_prefix, partitions=2)

    async def prepare() -> None:
        await create_topics(settings)
        producer = AIOKafkaProducer(bootstrap_servers=settings.bootstrap)
        await producer.start()
        for number in range(RECORDS):
            await producer.send_and_wait(
                settings.topic("events"), b"%d" % number, partition=0, timestamp_ms=int((time.time() - AGE_S) * 1000)
            )
        await producer.stop()

    asyncio.run(prepare())
    return settings


def run(settings: KafkaSettings, *words: str, **more: str) -> Result:
    """Run a command over the deployment."""
    ours = {name: value for name, value in environment(settings).items() if name.startswith("TRUSTFOLD_")}
    return CliRunner().invoke(main, list(words), env=ours | {"COLUMNS": "120"} | more)


def lags(settings: KafkaSettings, *words: str) -> dict[tuple[str, int], dict[str, Any]]:
    """Lag of the first group told, by catalogue topic and partition."""
    done = run(settings, "lag", "--json", *words)
    assert done.exit_code == 0, done.stderr
    (group, *_) = json.loads(done.stdout)["groups"]
    return {(one["topic"].removeprefix(settings.topic_prefix), one["partition"]): one for one in group["partitions"]}


def commit(settings: KafkaSettings, group: str, offset: int, topic: str = "events") -> None:
    """Say in the name of a group that it has taken partition 0 of a topic up to an offset."""

    async def work() -> None:
        consumer = AIOKafkaConsumer(bootstrap_servers=settings.bootstrap, group_id=group, enable_auto_commit=False)
        await consumer.start()
        place = TopicPartition(settings.topic(topic), 0)
        consumer.assign([place])
        await consumer.commit({place: offset})
        await consumer.stop()

    asyncio.run(work())


def test_a_group_that_never_committed_has_everything_before_it(deployment: KafkaSettings) -> None:
    """All that stands in the log is lag, as old as its first record; the table says that nobody has begun."""
    found = lags(deployment)
    assert {topic for topic, _ in found} == {"events", "outcomes", "standings", "commands"}
    assert len(found) == 8
    behind = found["events", 0]
    assert behind["committed_offset"] is None
    assert (behind["end_offset"], behind["lag_records"]) == (RECORDS, RECORDS)
    assert AGE_S <= behind["lag_seconds"] < AGE_S + 60
    assert (found["events", 1]["lag_records"], found["events", 1]["lag_seconds"]) == (0, 0)
    shown = run(deployment, "lag")
    assert "1 h 0 min" in shown.stdout
    assert "outcomes" not in shown.stdout  # partitions with nothing to read have no row
    assert "10 records behind, the oldest 1 h 0 min; it has never committed" in shown.stderr


@pytest.mark.slow
def test_what_is_committed_counts(deployment: KafkaSettings) -> None:
    """Lag is from the committed offset on; thresholds make it the exit code; the recorders are told where they are."""
    commit(deployment, deployment.app_id, 7)
    assert lags(deployment)["events", 0]["lag_records"] == 3
    assert run(deployment, "lag", "--max-records", "2").exit_code == 1
    assert run(deployment, "lag", "--max-records", "3", "--max-seconds", str(AGE_S * 2)).exit_code == 0
    assert run(deployment, "lag", "--max-seconds", str(AGE_S // 2)).exit_code == 1
    commit(deployment, f"{deployment.app_id}-history", RECORDS)
    groups = json.loads(run(deployment, "lag", "--json").stdout)["groups"]
    assert [(one["role"], one["lag_records"]) for one in groups] == [("worker", 3), ("recorder", 0)]


def test_what_the_brokers_deleted_is_told(deployment: KafkaSettings) -> None:
    """Records that were deleted before the group took them are no lag any more, but a loss."""
    commit(deployment, deployment.app_id, 2)

    async def delete() -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=deployment.bootstrap)
        await admin.start()
        await admin.delete_records({TopicPartition(deployment.topic("events"), 0): RecordsToDelete(before_offset=6)})
        await admin.close()

    asyncio.run(delete())
    found = lags(deployment)["events", 0]
    assert (found["lag_records"], found["deleted_records"]) == (4, 4)
    doctor = run(deployment, "doctor")
    assert doctor.exit_code == 1
    assert "4 were deleted before they were read" in doctor.stdout


@pytest.fixture
def worker(deployment: KafkaSettings) -> Iterator[subprocess.Popen[bytes]]:
    """A worker over the deployment."""
    process = start_worker(deployment)
    yield process
    stop_worker(process)


def checks(done: Result) -> dict[str, Sequence[str]]:
    """Status and text of every check, by name; the worst one where there are several."""
    found: dict[str, Sequence[str]] = {}
    for one in json.loads(done.stdout)["checks"]:
        if one["check"] not in found or one["status"] == "fix":
            found[one["check"]] = (one["status"], one["found"], one["advice"])
    return found


@pytest.mark.slow
def test_a_worker_that_has_folded_everything_is_not_behind(
    deployment: KafkaSettings, worker: subprocess.Popen[bytes]
) -> None:
    """Lag goes to zero in every stage, and the doctor sees the worker and finds no problem."""
    asyncio.run(publish(deployment, events()))

    def total() -> int:
        assert worker.poll() is None
        return sum(one["lag_records"] for one in lags(deployment).values())

    def begun() -> bool:
        return bool(lags(deployment)["events", 1]["committed_offset"])

    wait_until(begun, what="the first commit", every=0.2)
    wait_until(lambda: total() == 0, what=lambda: f"{total()} records behind", every=0.2)
    done = run(deployment, "doctor", "--json")
    found = checks(done)
    assert done.exit_code == 0, done.stdout
    assert json.loads(done.stdout)["ok"] is True
    assert found[f"group {deployment.app_id}"][1].startswith("Stable, 1 workers on ")
    assert found["clock"][0] == "ok"
    assert found["rights as worker"] == ("ok", "all that is needed on 15 topics", "")
    assert found["lag"][1].startswith("workers are 0 records behind")


def test_topics_that_do_not_fit_are_to_be_mended(broker: Any, topic_prefix: str) -> None:
    """Missing topics, and others of the wrong size, are told with what to do."""
    settings = settings_for(broker.bootstrap, topic_prefix, partitions=2)
    missing = checks(run(settings, "doctor", "--json"))
    assert missing["topics"][0] == "fix"
    assert "trustfold topics create" in missing["topics"][2]
    assert run(settings, "lag").exit_code == 2
    asyncio.run(create_topics(settings))
    other = run(settings, "doctor", "--json", TRUSTFOLD_PARTITIONS="3")
    assert other.exit_code == 1
    assert "partitions is 2, should be 3" in checks(other)["topics"][1]


@pytest.mark.parametrize(
    ("environ", "told"),
    [
        ({"TRUSTFOLD_SECURITY_PROTOCOL": "SSL"}, "TRUSTFOLD_SECURITY_PROTOCOL"),
        (
            {
                "TRUSTFOLD_SECURITY_PROTOCOL": "SASL_PLAINTEXT",
                "TRUSTFOLD_ALLOW_PLAINTEXT_SASL": "true",
                "TRUSTFOLD_SASL_USERNAME": "ada",
                "TRUSTFOLD_SASL_PASSWORD": "hush",
            },
            "SASL",
        ),
    ],
)
def test_a_broker_that_speaks_otherwise(deployment: KafkaSettings, environ: dict[str, str], told: str) -> None:
    """TLS or SASL where the broker has none is found at its address; nothing secret is shown."""
    done = run(deployment, "doctor", "--json", **environ)
    found = checks(done)
    assert done.exit_code == 1
    status, _, advice = found[f"broker {deployment.bootstrap}"]
    assert status == "fix"
    assert told in advice
    assert found["kafka"][0] == "skipped"
    assert "hush" not in done.stdout
