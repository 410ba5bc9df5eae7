"""Workers killed, added, removed, paused and cut off in the middle of a run: nothing lost, nothing counted twice."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from broker_kit.choice import Broker
from lane_harness import LaneHarness, assert_as_undisturbed, events

pytestmark = [pytest.mark.durable_broker, pytest.mark.slow]

SLOW = {"COUNTING_SLOW_US": "60"}
"""Folding 50,000 events then takes some seconds, so that there is a middle to strike in."""


@pytest.fixture
def lane(broker: Broker, topic_prefix: str, tmp_path: Path) -> Iterator[LaneHarness]:
    """Topics and workers of one test."""
    with LaneHarness(broker.bootstrap, topic_prefix, tmp_path, **SLOW) as harness:
        yield harness


@pytest.mark.parametrize("store", ["memory", "rocksdb"])
def test_kill_9_at_five_points(lane: LaneHarness, store: str) -> None:
    """A worker killed at five random points of a run leaves the state and the outputs of an undisturbed one."""
    seed = random.randrange(10**6)
    points = sorted(random.Random(seed).sample(range(1_000, 48_000), 5))
    print(f"seed {seed}: killed after {points} outcomes")
    lane.publish(events(50_000))
    for point in points:
        worker = lane.start(TRUSTFOLD_STORE=store, TRUSTFOLD_DATA_DIR=str(lane.path / "data"))
        lane.watch("outcomes", point)
        worker.kill()
    lane.start(TRUSTFOLD_STORE=store, TRUSTFOLD_DATA_DIR=str(lane.path / "data"))
    lane.settled()
    assert lane.workers[-1].stop() == 0, lane.logs()
    assert_as_undisturbed(lane)
