"""Trouble that is not a crash of ours: poison records, a broker that goes away, strangers in the changelog."""

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer
from broker_kit import Broker
from counting import ENCODE, SPIN, State
from lane_harness import LaneHarness, event, events, run, session_timeout
from trustfold.streams.kafka.changelog import CLAIM_KEY, epoch_headers
from trustfold.streams.kafka.outputs import partition_of
from undisturbed import assert_as_undisturbed
from waiting import wait_until

pytestmark = pytest.mark.durable_broker


@pytest.fixture
def lane(broker: Broker, topic_prefix: str, tmp_path: Path) -> Iterator[LaneHarness]:
    """Topics and workers of one test."""
    own = {"TRUSTFOLD_SESSION_TIMEOUT": session_timeout(broker.kind)}
    with LaneHarness(broker.bootstrap, topic_prefix, tmp_path, **own) as harness:
        yield harness


def test_poison_becomes_dead_letters_and_the_partition_advances(lane: LaneHarness) -> None:
    """Records that cannot be read become dead letters, one each, and are committed like any other."""
    lane.publish([(b"bad", b"{"), (b"bad", None), (b"bad", b"\xff\xfe"), (b"bad", b"[]")])
    worker = lane.start()
    lane.settled()
    assert sum(lane.ids("dead-letters").values()) == 4
    lane.publish([(b"s", event(1, "s", "t"))])
    lane.settled()
    assert worker.stop() == 0, worker.text()
    assert lane.states("session")["s"].count == 1
    assert_as_undisturbed(lane)


@pytest.mark.slow
def test_a_record_that_ended_two_workers_is_a_dead_letter(lane: LaneHarness, tmp_path: Path) -> None:
    """A fold in C holds the interpreter: the worker ends within the record's budget, the third goes on behind it."""
    lane.publish([(b"s", event(1, "s", "t")), (b"s", event(2, "s", SPIN)), (b"s", event(3, "s", "t"))])
    own = {"TRUSTFOLD_RECORD_TIMEOUT": "0.5", "TRUSTFOLD_DATA_DIR": str(tmp_path / "data")}
    for _ in range(2):
        assert lane.start(**own).ended(120) == -signal.SIGVTALRM
    worker = lane.start(**own)
    lane.settled()
    assert worker.stop() == 0, worker.text()
    assert "offset 1, took too much processor time (2 of 2 times" in worker.text()
    assert "counting.py" in worker.text()
    assert lane.states("session")["s"].count == 2
    assert sum(lane.ids("dead-letters").values()) == 1


def test_stop_commits_everything_processed(lane: LaneHarness) -> None:
    """SIGTERM takes a last checkpoint and commits it: the next worker folds nothing again."""
    lane.publish(events(1_000))
    worker = lane.start(TRUSTFOLD_CHECKPOINT_INTERVAL="3600", TRUSTFOLD_COMMIT_INTERVAL="3600")
    lane.watch("outcomes", 1_000)
    assert worker.stop() == 0, worker.text()
    committed = {place: spot for place, spot in lane.committed().items() if place[0] == "events"}
    assert all(offset == end for offset, end in committed.values()), committed
    assert_sessions(lane)


def assert_sessions(lane: LaneHarness) -> None:
    """The session stage counted every event once."""
    assert sum(state.count for state in lane.states("session").values()) == lane.count("events")


@pytest.mark.slow
def test_due_events_are_appended_once_and_folded(lane: LaneHarness) -> None:
    """What falls due while nothing happens is appended to its own partition, folded, and survives a restart."""
    base = 1_700_000_000_000
    lane.publish([(key, event(n, key.decode(), "t", deadline=base + 500)) for n, key in enumerate([b"a", b"b", b"c"])])
    worker = lane.start()
    wait_until(lambda: len(lane.ids("nudges")) == 3, what=lambda: f"three late events\n{lane.logs()}")
    lane.settled()
    assert worker.stop() == 0, worker.text()
    assert {key: state.late for key, state in lane.states("session").items()} == {"a": 1, "b": 1, "c": 1}
    by_key = {}
    for partition, records in lane.read(lane.settings.topic("events")).items():
        for record in records:
            by_key.setdefault(json.loads(record.value)["session"], set()).add(partition)
    assert all(len(partitions) == 1 for partitions in by_key.values())


@pytest.mark.slow
def test_a_due_time_outlives_the_worker(lane: LaneHarness) -> None:
    """A worker that takes over learns what is due from the stored states, without a new event."""
    lane.publish([(b"a", event(1, "a", "t", deadline=1_700_000_000_000 + 4_000))])
    first = lane.start()
    lane.settled()
    first.kill()
    lane.start()
    wait_until(lambda: lane.ids("nudges"), what=lambda: f"a late event\n{lane.logs()}")
    lane.settled()
    assert lane.states("session")["a"].late == 1


def write_changelog(lane: LaneHarness, stage: str, partition: int, key: bytes, value: bytes, epoch: int) -> int:
    """Write to a changelog as a worker that does not know better; gives the offset."""

    async def send() -> int:
        async with AIOKafkaProducer(bootstrap_servers=lane.settings.servers) as producer:
            name = lane.settings.changelog(stage)
            headers = [] if key == CLAIM_KEY else epoch_headers(epoch)
            sent = await producer.send_and_wait(name, value, key=key, partition=partition, headers=headers)
            return sent.offset

    return run(send())


@pytest.mark.slow
def test_stale_state_of_a_former_owner_is_written_over(lane: LaneHarness) -> None:
    """A state that a former owner writes late is ignored by readers and covered by the owner's own again."""
    partition = partition_of(b"s", 4)
    neighbour = next(key for n in range(99) if partition_of(key := b"n%d" % n, 4) == partition)
    lane.publish([(b"s", event(n, "s", "t")) for n in range(3)])
    first = lane.start()
    lane.settled()
    first.kill()
    second = lane.start().ready()
    late = write_changelog(lane, "session", partition, b"s", ENCODE(State(count=1)), epoch=0)
    lane.publish([(neighbour, event(10, neighbour.decode(), "t"))])
    lane.settled()
    name = lane.settings.changelog("session")
    wait_until(
        lambda: [record.offset for record in lane.read(name)[partition] if record.key == b"s"][-1] > late,
        what=lambda: f"the state of s written again\n{lane.logs()}",
    )
    assert second.stop() == 0, second.text()
    assert lane.states("session")["s"].count == 3


@pytest.mark.slow
def test_a_fenced_owner_claims_again_and_loses_nothing(lane: LaneHarness) -> None:
    """A late claim by somebody else voids the checkpoint; the owner by the group's choice claims anew and redoes it."""
    lane.publish(events(500))
    worker = lane.start()
    lane.settled()
    partition = next(p for p, records in lane.read(lane.settings.topic("events")).items() if records)
    write_changelog(lane, "session", partition, CLAIM_KEY, b"{}", epoch=0)
    lane.publish(events(500, seed=8))
    lane.settled()
    assert "it is claimed again" in worker.text()
    assert worker.stop() == 0, worker.text()
    assert sum(state.count for state in lane.states("session").values()) == 1_000
    assert sum(state.count for state in lane.states("tool").values()) == 1_000


def test_a_refused_output_stops_the_worker_in_order(lane: LaneHarness) -> None:
    """When the brokers refuse an output, the worker fails, says why, acknowledges nothing and leaves the group."""
    lane.limit("nudges", 100)
    lane.publish([(b"s", event(n, "s" * 200, "t")) for n in range(20)])
    worker = lane.start()
    assert worker.ended() == 1, worker.text()
    assert "worker stops: MessageSizeTooLarge" in worker.text()
    assert lane.committed()["events", partition_of(b"s", 4)][0] <= 0
    lane.limit("nudges", 1_000_000)
    assert lane.members() == 0
    lane.start()
    lane.settled()
    assert lane.states("session")["s" * 200].count == 20
