"""Two worker processes with backlogs of different hours: the one ahead waits until the other is no longer behind.

That it waits no longer than it is told to is a matter of test_order.py.
"""

from __future__ import annotations

import itertools
import time
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.partitioner import DefaultPartitioner
from broker_kit import Broker
from lane_harness import LaneHarness, Worker, event, run, session_timeout
from probing import free_port, get
from prometheus_client.parser import text_string_to_metric_families
from undisturbed import assert_as_undisturbed
from waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.durable_broker]

HOUR_MS = 3_600_000
COUNT = 1_000
"""Events of a backlog; the fold takes 2 ms for each, so that the others can look at it."""

ENVIRONMENT = {"COUNTING_SLOW_US": "2000", "TRUSTFOLD_ORDER_WAIT": "120"}


class Measured:
    """A worker and its metrics."""

    def __init__(self, lane: LaneHarness) -> None:
        self._port = free_port()
        self.worker: Worker = lane.start(TRUSTFOLD_WEB_PORT=str(self._port)).ready()

    def metric(self, name: str, **labels: str) -> float:
        """Sum of the values that bear these labels."""
        return sum(
            sample.value
            for family in text_string_to_metric_families(get(self._port, "/metrics")[1])
            for sample in family.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        )

    def partitions(self) -> set[int]:
        """Partitions of `events` that it has."""
        return {
            int(sample.labels["partition"])
            for family in text_string_to_metric_families(get(self._port, "/metrics")[1])
            for sample in family.samples
            if sample.name == "trustfold_consumer_lag_records" and sample.labels["topic"] == "events"
        }

    def held(self) -> float:
        """Seconds in which its records waited for other workers."""
        return self.metric("trustfold_held_seconds_total", reason="workers")

    def waits(self) -> bool:
        """Whether it says that it is more than a minute ahead of another worker, and that its records wait for it."""
        return self.metric("trustfold_worker_skew_seconds") > 60 and self.held() > 0


def publish(lane: LaneHarness, partition: int, hours_ago: int) -> str:
    """A backlog in one partition, which arrived within half an hour, so many hours ago; returns its tool.

    The tool's outcomes go to the partition of the same number, so that each worker folds what it causes.
    """
    begin = int(time.time() * 1000) - hours_ago * HOUR_MS
    names = (f"{hours_ago}-hours-ago-{number}" for number in itertools.count())
    tool = next(name for name in names if DefaultPartitioner()(name.encode(), [0, 1], [0, 1]) == partition)

    async def send() -> None:
        async with AIOKafkaProducer(bootstrap_servers=lane.settings.servers, linger_ms=5) as producer:
            for number in range(COUNT):
                at = begin + number * HOUR_MS // 2 // COUNT
                value = event(hours_ago * COUNT + number, f"s{partition}", tool, time=at)
                await producer.send(
                    lane.settings.topic("events"), value, key=b"s", partition=partition, timestamp_ms=at
                )

    run(send())
    return tool


def told(lane: LaneHarness, tool: str) -> list[int]:
    """When the outcomes of a tool were written, milliseconds."""
    records = lane.read(lane.settings.topic("outcomes")).values()
    return [record.timestamp for part in records for record in part if record.key == tool.encode()]


def test_a_worker_far_ahead_waits_until_the_other_has_caught_up_or_is_gone(
    broker: Broker, topic_prefix: str, tmp_path: Path
) -> None:
    """It says in its metrics that it waits, and folds in the order of time what it takes over."""
    own = {"TRUSTFOLD_SESSION_TIMEOUT": session_timeout(broker.kind)} | ENVIRONMENT
    with LaneHarness(broker.bootstrap, topic_prefix, tmp_path, partitions=2, **own) as lane:
        first = Measured(lane)
        second = Measured(lane)
        wait_until(lambda: len(first.partitions()) == len(second.partitions()) == 1, what=lane.logs, every=0.2)
        (behind,), (ahead,) = first.partitions(), second.partitions()

        early, late = publish(lane, behind, 10), publish(lane, ahead, 8)
        wait_until(second.waits, what=lane.logs, every=0.3)
        lane.settled(90)
        assert max(told(lane, late)) > max(told(lane, early))
        assert first.held() < second.held()  # not none: until the first exchange it does not know who is behind
        wait_until(lambda: not second.metric("trustfold_worker_skew_seconds"), what=lane.logs, every=0.2)

        early, late = publish(lane, behind, 6), publish(lane, ahead, 4)
        wait_until(second.waits, what=lane.logs, every=0.3)
        first.worker.kill()
        lane.settled(90)
        assert max(told(lane, late)) > max(told(lane, early))

        assert second.worker.stop() == 0
        assert "it no longer waits" not in second.worker.text()
        assert_as_undisturbed(lane)
