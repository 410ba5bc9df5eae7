"""Scenes of `make chaos` on three brokers: one is gone and then another, and partitions are without a leader.

The worker waits, says so, and goes on by itself; SIGTERM ends it in time.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer
from lane_harness import LaneHarness, events, run
from local_kafka_cluster import LocalCluster
from local_kafka_jars import KafkaInstallation
from local_kafka_node import LocalKafka as Node
from local_kafka_probe import free_port
from outage_kit import ends_in_time, said_first
from probing import status
from undisturbed import assert_as_undisturbed
from waiting import wait_until

pytestmark = [pytest.mark.durable_broker, pytest.mark.chaos]


@pytest.fixture(scope="module")
def cluster(kafka_jars: KafkaInstallation) -> Iterator[LocalCluster]:
    """Three brokers, for both tests."""
    with LocalCluster(settings={"group.min.session.timeout.ms": "1000"}) as cluster:
        yield cluster


def lane_on(bootstrap: str, prefix: str, path: Path, *, copies: int = 0) -> LaneHarness:
    """Topics and workers of one test."""
    own = {"TRUSTFOLD_SESSION_TIMEOUT": "4", "COUNTING_SLOW_US": "100"}
    return LaneHarness(bootstrap, prefix, path, partitions=3, replication=copies, **own)


def coordinator_of(cluster: LocalCluster, group: str) -> Node:
    """The broker that has a group."""

    async def ask() -> int:
        consumer = AIOKafkaConsumer(bootstrap_servers=cluster.bootstrap.split(","), group_id=group)
        await consumer.start()
        try:
            from aiokafka.protocol.coordination import FindCoordinatorRequest

            client = consumer._client
            answer = await client.send(client.get_random_node(), FindCoordinatorRequest(group, 0))
            return int(answer.coordinator_id)
        finally:
            await consumer.stop()

    return cluster.nodes[run(ask()) - 1]


def test_one_broker_of_three_is_gone_and_then_another(cluster: LocalCluster, tmp_path: Path) -> None:
    """Without the one that has the group, leaders and the coordinator move to the others, and the workers go on.

    A single one answers, but takes no writes: a worker waits, ends on request, and another finishes the work.
    """
    every = events(15_000)
    with lane_on(cluster.bootstrap, "gone.", tmp_path) as lane:
        lane.publish(every[:9_000])
        stays, leaves = lane.start().ready(), lane.start().ready()
        lane.watch("outcomes", 1_500)
        first = coordinator_of(cluster, lane.settings.app_id)
        first.kill()
        try:
            lane.settled(60)
            assert (stays.process.poll(), leaves.process.poll()) == (None, None), lane.logs()
            lane.publish(every[9_000:])
            lane.watch("outcomes", 10_500)
            next(node for node in cluster.nodes if node is not first).kill()
            # Which comes first depends on what it did when the brokers went: fold, recover, or join the group.
            said = re.compile(
                "the brokers answer but do not acknowledge what is written|returned no record for 10 s"
                r"|(recovering: .*|waiting for the consumer group .*)for \d+ s now"
            )
            wait_until(lambda: said.search(stays.text()), what=stays.text, every=0.5)
            ends_in_time(leaves)
            assert stays.process.poll() is None, stays.text()
        finally:
            cluster.start()
        lane.settled(90)
        ends_in_time(stays)
        assert_as_undisturbed(lane)


def test_partitions_without_a_leader(cluster: LocalCluster, tmp_path: Path) -> None:
    """Topics with one copy: a broker away leaves some without a leader; they are named, once, and so is the end."""
    with lane_on(cluster.bootstrap, "leader.", tmp_path, copies=1) as lane:
        lane.publish(events(6_000))
        port = free_port()
        worker = lane.start(TRUSTFOLD_WEB_PORT=str(port)).ready()
        lane.watch("outcomes", 500)
        node = cluster.nodes[1]
        node.kill()
        try:
            wait_until(lambda: "no leader for leader." in worker.text(), what=worker.text)
            assert status(port, "/healthz") == (200, "ok")
            assert worker.process.poll() is None
        finally:
            node.start()
        wait_until(lambda: "every partition has a leader again" in worker.text(), what=worker.text)
        lane.settled(60)
        assert said_first(worker, "no leader for") == 1, worker.text()
        ends_in_time(worker)
        assert_as_undisturbed(lane)
