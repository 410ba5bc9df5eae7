"""A full disk under the broker, and a slow network before it: the worker waits, says so, and goes on by itself.

Outages of a part of a cluster are scenes of `make chaos` (tests/chaos/test_cluster.py).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from aiokafka.errors import KafkaError
from lane_harness import LaneHarness, events
from local_kafka import LocalKafka
from local_kafka_jars import KafkaInstallation
from local_kafka_node import SHORT_LIVED
from local_kafka_probe import free_port
from mounts import fill, small_disk
from outage_kit import ends_in_time
from slow_network import SlowNetwork
from undisturbed import assert_as_undisturbed
from waiting import wait_until

pytestmark = [pytest.mark.durable_broker, pytest.mark.slow]


def lane_on(bootstrap: str, prefix: str, path: Path) -> LaneHarness:
    """Topics and workers of one test."""
    own = {"TRUSTFOLD_SESSION_TIMEOUT": "4", "COUNTING_SLOW_US": "100"}
    return LaneHarness(bootstrap, prefix, path, partitions=3, **own)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A folder on a file system of its own with little room."""
    with small_disk(tmp_path / "disk", "160m") as folder:
        yield folder


def test_a_full_disk_under_the_broker(kafka_jars: KafkaInstallation, disk: Path, tmp_path: Path) -> None:
    """A broker without room ends; the worker waits for it, and goes on when there is room and a broker again."""
    kafka = LocalKafka(java_options=SHORT_LIVED, data=disk / "kafka", settings={"log.segment.bytes": str(1 << 20)})
    with contextlib.closing(kafka.start()), lane_on(kafka.bootstrap, "full.", tmp_path) as lane:
        lane.publish(events(3_000))
        worker = lane.start().ready()
        lane.watch("outcomes", 500)
        ballast = fill(disk)
        wait_until(lambda: "waits" in worker.text(), what=worker.text)
        assert worker.process.poll() is None, worker.text()
        ballast.unlink()
        kafka.kill()
        kafka.start()
        lane.settled(60)
        ends_in_time(worker)
        assert_as_undisturbed(lane)


def written(lane: LaneHarness) -> int:
    """Outcomes that the broker has; 0 where the network has cut the question off."""
    try:
        return lane.count("outcomes")
    except (OSError, KafkaError):
        return 0


def test_a_slow_network_and_one_that_is_gone(kafka_jars: KafkaInstallation, tmp_path: Path) -> None:
    """A tenth of a second for each packet and connections that break cost time only; silence is waited for."""
    direct, through = free_port(), free_port()
    advertised = {"advertised.listeners": f"PLAINTEXT://127.0.0.1:{through}"}
    broker = LocalKafka(java_options=SHORT_LIVED, port=direct, settings=advertised)
    with SlowNetwork(through, direct) as network, broker as kafka:
        assert kafka.bootstrap.endswith(str(direct))
        with lane_on(f"127.0.0.1:{through}", "slow.", tmp_path) as lane:
            lane.publish(events(2_000))
            network.delay_s, network.jitter_s, network.cut = 0.05, 0.1, 0.005
            worker = lane.start()
            wait_until(lambda: "ready in generation" in worker.text(), timeout=90, what=worker.text)
            network.cut = 0.02
            wait_until(lambda: written(lane) >= 500, timeout=90, what=worker.text, every=0.2)
            network.cut = 0.0
            network.swallow = True
            wait_until(lambda: "the worker waits" in worker.text(), what=worker.text)
            network.swallow = False
            wait_until(lambda: "a broker answers again" in worker.text(), what=worker.text)
            network.delay_s = network.jitter_s = 0.0
            lane.settled(90)
            network.swallow = True
            ends_in_time(worker)
            network.swallow = False
            assert_as_undisturbed(lane)
