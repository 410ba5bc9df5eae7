"""Workers killed, added, removed, paused and cut off in the middle of a run: nothing lost, nothing counted twice."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from broker_kit import Broker
from lane_harness import LaneHarness, events, session_timeout
from undisturbed import assert_as_undisturbed

pytestmark = [pytest.mark.durable_broker, pytest.mark.slow]

SLOW = {"COUNTING_SLOW_US": "200"}
"""Folding 15,000 events then takes some seconds, so that there is a middle to strike in."""


@pytest.fixture
def lane(broker: Broker, topic_prefix: str, tmp_path: Path) -> Iterator[LaneHarness]:
    """Topics and workers of one test."""
    own = {"TRUSTFOLD_SESSION_TIMEOUT": session_timeout(broker.kind)}
    with LaneHarness(broker.bootstrap, topic_prefix, tmp_path, **SLOW, **own) as harness:
        yield harness


@pytest.mark.parametrize("store", ["memory", "rocksdb"])
def test_kill_9_at_three_points(lane: LaneHarness, store: str) -> None:
    """A worker killed at three random points of a run leaves the state and the outputs of an undisturbed one."""
    seed = random.randrange(10**6)
    points = sorted(random.Random(seed).sample(range(500, 14_000), 3))
    print(f"seed {seed}: killed after {points} outcomes")
    lane.publish(events(15_000))
    for point in points:
        worker = lane.start(TRUSTFOLD_STORE=store, TRUSTFOLD_DATA_DIR=str(lane.path / "data"))
        lane.watch("outcomes", point)
        worker.kill()
    lane.start(TRUSTFOLD_STORE=store, TRUSTFOLD_DATA_DIR=str(lane.path / "data"))
    lane.settled()
    assert lane.workers[-1].stop() == 0, lane.logs()
    assert_as_undisturbed(lane)


def test_second_worker_comes_and_goes(lane: LaneHarness) -> None:
    """A second worker takes its half in the middle of a run and gives it back; the result is that of one worker."""
    lane.publish(events(15_000))
    lane.start()
    lane.watch("outcomes", 2_000)
    second = lane.start().ready()
    lane.watch("outcomes", lane.count("outcomes") + 2_000)
    assert second.stop() == 0, second.text()[-3000:]
    lane.settled()
    assert [worker.stop() for worker in lane.workers[:1]] == [0], lane.logs()
    assert_as_undisturbed(lane)


def test_owner_killed_while_another_stands_by(lane: LaneHarness) -> None:
    """Partitions of a killed worker go to the other member, which finishes the work."""
    lane.publish(events(15_000))
    workers = [lane.start(), lane.start()]
    for worker in workers:
        worker.ready()
    lane.watch("outcomes", 3_000)
    workers[0].kill()
    lane.settled()
    assert workers[1].stop() == 0, lane.logs()
    assert_as_undisturbed(lane)


def test_paused_owner_comes_back_as_a_zombie(lane: LaneHarness) -> None:
    """A worker paused for longer than the session timeout cannot spoil what the next owner has done since."""
    lane.publish(events(15_000))
    zombie = lane.start(TRUSTFOLD_CHECKPOINT_INTERVAL="0.05")  # so that the pause falls into a checkpoint
    lane.watch("outcomes", 2_000)
    zombie.pause()
    heir = lane.start().ready()
    lane.watch("outcomes", lane.count("outcomes") + 3_000)
    zombie.resume()
    lane.settled()
    assert heir.process.poll() is None, heir.text()[-3000:]
    for worker in lane.workers:
        if worker.process.poll() is None:
            assert worker.stop() == 0, worker.text()[-3000:]
    assert_as_undisturbed(lane)
