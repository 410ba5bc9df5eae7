"""Workers killed and paused in the middle of a run: nothing lost, nothing counted twice.

One that takes over from another is in test_outages.py, one that is added in tests/end_to_end/test_crashes.py.
"""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from broker_kit import Broker
from lane_harness import LaneHarness, events, session_timeout
from undisturbed import assert_as_undisturbed

pytestmark = [pytest.mark.durable_broker, pytest.mark.slow]

SLOW = {"COUNTING_SLOW_US": "500"}
"""Folding 4,000 events then takes some seconds, so that there is a middle to strike in."""


@pytest.fixture
def lane(broker: Broker, topic_prefix: str, tmp_path: Path) -> Iterator[LaneHarness]:
    """Topics and workers of one test."""
    own = {"TRUSTFOLD_SESSION_TIMEOUT": session_timeout(broker.kind)}
    with LaneHarness(broker.bootstrap, topic_prefix, tmp_path, **SLOW, **own) as harness:
        yield harness


def test_kill_9_at_three_points(lane: LaneHarness) -> None:
    """A worker killed at three random points of a run leaves the state and the outputs of an undisturbed one.

    With states on disk; those in memory are in tests/end_to_end/test_crashes.py, with the real folds.
    """
    seed = random.randrange(10**6)
    points = sorted(random.Random(seed).sample(range(300, 3_600), 3))
    print(f"seed {seed}: killed after {points} outcomes")
    lane.publish(events(4_000))
    for point in points:
        worker = lane.start(TRUSTFOLD_STORE="rocksdb", TRUSTFOLD_DATA_DIR=str(lane.path / "data"))
        lane.watch("outcomes", point)
        worker.kill()
    lane.start(TRUSTFOLD_STORE="rocksdb", TRUSTFOLD_DATA_DIR=str(lane.path / "data"))
    lane.settled()
    assert lane.workers[-1].stop() == 0, lane.logs()
    assert_as_undisturbed(lane)


def test_paused_owner_comes_back_as_a_zombie(lane: LaneHarness) -> None:
    """A worker paused for longer than the session timeout cannot spoil what the next owner has done since."""
    lane.publish(events(4_000))
    zombie = lane.start(TRUSTFOLD_CHECKPOINT_INTERVAL="0.05")  # so that the pause falls into a checkpoint
    lane.watch("outcomes", 800)
    zombie.pause()
    heir = lane.start().ready()
    lane.watch("outcomes", lane.count("outcomes") + 800)
    zombie.resume()
    lane.settled()
    assert heir.process.poll() is None, heir.text()[-3000:]
    for worker in lane.workers:
        if worker.process.poll() is None:
            assert worker.stop() == 0, worker.text()[-3000:]
    assert_as_undisturbed(lane)
