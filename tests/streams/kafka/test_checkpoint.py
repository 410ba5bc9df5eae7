"""The order of a checkpoint, with fakes in place of Kafka: what may be marked as done, and when."""

import asyncio
from collections.abc import Coroutine
from types import SimpleNamespace
from typing import Any

import pytest
from faust.types import TP
from trustfold.streams.kafka.backpressure import PartitionTenure
from trustfold.streams.kafka.changelog import PartitionFenced
from trustfold.streams.kafka.checkpoint import CheckpointSuperseded, CheckpointWriter, LostGroup
from trustfold.streams.kafka.kafka_settings import KafkaSettings
from trustfold.streams.kafka.metrics import LaneMetrics
from trustfold.streams.kafka.store import MemoryStore
from trustfold.streams.kafka.task import PROGRESS_KEY, PartitionTask

EVENTS = TP("trustfold.events", 0)


class Processor:
    """Has states to write, and notes when it is told to forget."""

    stream_time = 0

    def __init__(self, steps: list[str], states: dict[bytes, bytes | None]) -> None:
        self.steps, self.states = steps, states

    def snapshot(self, now: int = 0) -> list[tuple[bytes, bytes | None]]:
        """Touched states."""
        self.steps.append("snapshot")
        taken, self.states = list(self.states.items()), {}
        return taken

    def forget_clean(self, keep: int) -> None:
        """Memory bound."""
        self.steps.append("forget")


class Batch:
    """aiokafka's batch builder, unlimited."""

    def __init__(self) -> None:
        self.records: list[Any] = []

    def append(self, **record: Any) -> object:
        """Take a record."""
        self.records.append(record)
        return record

    def close(self) -> None:
        """Nothing more."""

    def record_count(self) -> int:
        """How many."""
        return len(self.records)


class World:
    """Everything a checkpoint touches; `steps` is what happened in order."""

    def __init__(self, states: dict[bytes, bytes | None], *, moved: bool = True, log_end: int = 5) -> None:
        self.steps: list[str] = []
        self.member, self.current = True, PartitionTenure(1, 7)
        self.log_end = log_end
        self.refuse: Exception | None = None
        self.output_fault: Exception | None = None
        self.foreign: Exception | None = None
        self.done: dict[TP, int] = {}
        self.sent: list[Any] = []
        self.store = MemoryStore()
        self.task = PartitionTask(
            stage="session",
            partition=0,
            processor=Processor(self.steps, states),
            store=self.store,
            epoch=4,
            log_next=5,
            next={EVENTS: 42},
            moved=moved,
        )
        self.settings, self.metrics = KafkaSettings(checkpoint_timeout=0.5), LaneMetrics()
        self.tasks = {("session", 0): self.task}
        self.checkpointer = CheckpointWriter(self, self.drain, self.inspect)

    def tenure(self) -> PartitionTenure | None:
        """As the engine."""
        return self.current

    def is_member(self, generation: int) -> bool:
        """As the group."""
        return self.member and generation == 7

    async def drain(self) -> None:
        """Outputs are acknowledged."""
        if self.output_fault is not None:
            raise self.output_fault
        self.steps.append("outputs acknowledged")

    def producer(self) -> Any:
        """As the engine."""
        return self

    def create_batch(self) -> Batch:
        """As the producer."""
        return Batch()

    async def send_batch(self, batch: Batch, topic: str, *, partition: int) -> asyncio.Future[Any]:
        """As the producer: appends at the log's end."""
        assert (topic, partition) == ("trustfold-session-changelog", 0)
        future = asyncio.get_running_loop().create_future()
        if self.refuse is not None:
            future.set_exception(self.refuse)
        else:
            self.steps.append("states acknowledged")
            self.sent += batch.records
            future.set_result(SimpleNamespace(offset=self.log_end))
            self.log_end += batch.record_count()
        return future

    async def inspect(self, task: PartitionTask, start: int, end: int | None) -> int:
        """Somebody else wrote there."""
        self.steps.append(f"inspect {start} to {end}")
        if self.foreign is not None:
            raise self.foreign
        task.rewrite.add(b"old")
        return self.log_end if end is None else end

    def mark_done(self, tp: TP, offset: int) -> None:
        """As the consumer."""
        self.steps.append("done")
        self.done[tp] = offset


def run(work: Coroutine[Any, Any, None]) -> None:
    """Run a checkpoint."""
    asyncio.run(work)


def test_the_order() -> None:
    """Outputs, then states, then the local store, then the offsets."""
    world = World({b"k": b"v"})
    run(world.checkpointer.checkpoint())
    assert world.steps == ["snapshot", "outputs acknowledged", "states acknowledged", "forget", "done"]
    assert world.store.get(b"k") == b"v"
    assert (world.store.next_offset, world.store.epoch, world.task.log_next) == (7, 4, 7)
    assert world.done == {EVENTS: 42}


def test_a_partition_of_bad_records_advances() -> None:
    """Records that touched no state are done with as well."""
    world = World({})
    run(world.checkpointer.checkpoint())
    assert world.steps == ["snapshot", "outputs acknowledged", "states acknowledged", "forget", "done"]
    assert world.done == {EVENTS: 42}


def test_progress_stands_behind_the_states() -> None:
    """The last record of a checkpoint says how far the sources were read; a new owner begins there."""
    world = World({b"k": b"v"})
    run(world.checkpointer.checkpoint())
    assert [record["key"] for record in world.sent] == [b"k", PROGRESS_KEY]
    assert world.task.progress() == {EVENTS: 42}
    assert dict(world.store.items()) == {b"k": b"v"}


def test_nothing_to_do() -> None:
    """Without events and states nothing is sent and nothing is marked."""
    world = World({}, moved=False)
    run(world.checkpointer.checkpoint())
    assert world.steps == ["snapshot"]


@pytest.mark.parametrize("place", ["outputs", "states", "hang"])
def test_a_failure_marks_nothing(place: str) -> None:
    """When outputs or states are refused, or nobody answers, no offset moves and the store is not written."""
    world = World({b"k": b"v"})
    fault = RuntimeError("refused")
    if place == "outputs":
        world.output_fault = fault
    elif place == "states":
        world.refuse = fault
    else:
        world.checkpointer._drain = lambda: asyncio.sleep(60)
    with pytest.raises((RuntimeError, TimeoutError)):
        run(world.checkpointer.checkpoint())
    assert not {"done", "forget"} & set(world.steps)
    assert world.store.get(b"k") is None


@pytest.mark.parametrize("moment", ["before", "outputs", "states"])
def test_a_lost_membership_marks_nothing(moment: str) -> None:
    """A worker that the group no longer knows sends no state, and does not count on any that it has sent."""
    world = World({b"k": b"v"})

    async def lose(*_: Any, **__: Any) -> None:
        world.member = False

    send = world.send_batch

    async def send_and_lose(batch: Batch, topic: str, *, partition: int) -> Any:
        world.current = PartitionTenure(2, 7)
        return await send(batch, topic, partition=partition)

    if moment == "before":
        world.member = False
    elif moment == "outputs":
        world.checkpointer._drain = lose
    else:
        world.send_batch = send_and_lose
    with pytest.raises(CheckpointSuperseded if moment == "states" else LostGroup):
        run(world.checkpointer.checkpoint())
    assert not {"done", "forget"} & set(world.steps)
    assert ("states acknowledged" in world.steps) == (moment == "states")


def test_a_jump_in_the_changelog_is_inspected_first() -> None:
    """When somebody else wrote, that is looked at first; stale keys are written again at the next checkpoint."""
    world = World({b"k": b"v"}, log_end=9)
    world.store.write([(b"old", b"mine")], next_offset=5, epoch=4)
    run(world.checkpointer.checkpoint())
    assert world.steps.index("inspect 5 to 9") < world.steps.index("done")
    assert world.task.log_next == 11
    assert world.task.rewrite == {b"old"}
    assert world.task.take_snapshot() == [(b"old", b"mine")]
    assert not world.task.rewrite


def test_a_claim_in_the_changelog_marks_nothing() -> None:
    """Fenced: the states are in the log, but they do not count, so their events must be read again."""
    world = World({b"k": b"v"}, log_end=9)
    world.foreign = PartitionFenced("claimed")
    with pytest.raises(PartitionFenced):
        run(world.checkpointer.checkpoint())
    assert not {"done", "forget"} & set(world.steps)
    assert world.store.get(b"k") is None


def test_a_broker_that_does_not_say_where() -> None:
    """A retried batch may be acknowledged without an offset; then the log is read to find out."""
    world = World({b"k": b"v"}, log_end=-1)
    run(world.checkpointer.checkpoint())
    assert "inspect 5 to None" in world.steps
    assert "done" in world.steps


def test_no_partitions_no_checkpoint() -> None:
    """Between a revocation and the next assignment there is nothing to do, and that is no failure."""
    world = World({b"k": b"v"})
    world.current = None
    run(world.checkpointer.checkpoint())
    assert world.steps == []
