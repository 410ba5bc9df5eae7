"""What the lane delivers: batches in order, from where the gate opened, and nothing while it is closed."""

import asyncio
import contextlib
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import TopicPartition
from faust.types import TP
from faust.types.tuples import ConsumerMessage
from trustfold.errors import ConfigError
from trustfold.streams.kafka.app import make_app
from trustfold.streams.kafka.backpressure import POLLS, FoldUnit, LaneGate, PartitionBatch, PartitionTenure
from trustfold.streams.kafka.engine import LostBatch, WorkerEngine
from trustfold.streams.kafka.kafka_settings import KafkaSettings
from trustfold.streams.kafka.lane import BatchConsumer
from trustfold.streams.kafka.metrics import LaneMetrics
from trustfold.streams.kafka.order import MergeOrder
from trustfold.streams.kafka.records import bounded
from trustfold.streams.kafka.recovery import BulkRecovery
from trustfold.streams.kafka.stages import KafkaTopology

EVENTS = TP("trustfold.events", 0)
PLACE = TopicPartition("trustfold.events", 0)
FIRST = PartitionTenure(1, 4)


def records(*offsets: int) -> list[Any]:
    """Records at these offsets."""
    return [
        SimpleNamespace(offset=offset, timestamp=1_000, timestamp_type=0, key=b"s", value=b"{}") for offset in offsets
    ]


class Bench:
    """A consumer without Kafka, and what its buffers give."""

    def __init__(self) -> None:
        self.delivered: list[PartitionBatch] = []
        self.jumps: list[tuple[int, int]] = []
        self.consumer = object.__new__(BatchConsumer)
        self.gate = LaneGate()
        self.order = MergeOrder(KafkaSettings(), {EVENTS.topic: 0}, {})
        engine = SimpleNamespace(
            gate=self.gate, offsets_jumped=lambda _tp, expected, found: self.jumps.append((expected, found))
        )
        self.consumer.app = SimpleNamespace(engine=engine)

    def open(self, offset: int) -> None:
        """Let records of the events topic flow from an offset."""
        self.order.open({EVENTS: offset})
        self.gate.open(FIRST, {EVENTS: offset})

    def deliver(self, *offsets: int, place: TopicPartition = PLACE) -> None:
        """One poll, and what is next after it."""
        self.consumer._buffer(self.gate, self.order, {place: records(*offsets)})
        self.delivered += self.order.take(lambda _: (1, 1))

    @property
    def offsets(self) -> list[list[int]]:
        """Offsets of each delivered batch."""
        return [[record.offset for record in batch.records] for batch in self.delivered]


def test_polls_of_a_partition_follow_each_other() -> None:
    """Each batch begins where the one before it ended."""
    bench = Bench()
    bench.open(10)
    bench.deliver(10, 11)
    bench.deliver(12)
    assert bench.offsets == [[10, 11], [12]]
    assert [(batch.start, batch.next_offset) for batch in bench.delivered] == [(10, 12), (12, 13)]


def test_what_was_delivered_before_is_left_out() -> None:
    """A poll that reaches back is trimmed; one that holds nothing new is dropped."""
    bench = Bench()
    bench.open(10)
    bench.deliver(8, 9, 10, 11)
    bench.deliver(10, 11)
    assert bench.offsets == [[10, 11]]


def test_nothing_flows_through_a_closed_gate() -> None:
    """Records polled while the gate is closed, or of a partition that is not ours, are not delivered."""
    bench = Bench()
    bench.deliver(10)
    bench.open(10)
    bench.deliver(5, place=TopicPartition("trustfold.events", 1))
    bench.gate.close()
    bench.deliver(10)
    assert bench.offsets == []


def test_holes_in_the_log_are_told() -> None:
    """One missing offset is a publisher's transaction marker; more means that records are gone."""
    bench = Bench()
    bench.open(10)
    bench.deliver(11)
    assert not bench.jumps
    bench.deliver(50)
    assert bench.jumps == [(12, 50)]
    assert bench.offsets == [[11], [50]]


def test_offsets_move_by_mark_done_alone() -> None:
    """Faust's ack of a batch closes its books and commits nothing."""
    bench = Bench()
    consumer = bench.consumer
    consumer._unacked_messages, consumer._waiting_for_ack = set(), None
    consumer._done, consumer._acked = {}, {EVENTS: []}
    message = ConsumerMessage(
        EVENTS.topic, 0, 10, 1.0, 0, None, None, FoldUnit(FIRST, [PartitionBatch(EVENTS, records(10), 10)]), None, 0, 0
    )
    consumer._unacked_messages.add(message)
    assert consumer.ack(message)
    assert message.acked
    assert not consumer._unacked_messages
    assert consumer._new_offset(EVENTS) is None
    consumer.mark_done(EVENTS, 11)
    assert consumer._new_offset(EVENTS) == 11


def test_recovery_waits_for_the_poll_in_flight() -> None:
    """A poll that began before is over before the sources are put to their offsets."""

    async def scenario() -> None:
        gate = LaneGate()
        with gate.polling():
            waiting = asyncio.create_task(gate.wait_quiet())
            await asyncio.sleep(0)
            assert not waiting.done()
        await asyncio.wait_for(waiting, 60)

    asyncio.run(scenario())


def test_a_step_of_a_stop_is_bounded_whatever_it_does() -> None:
    """A step that swallows its cancellation, or raises one that nobody asked for, does not end the sequence."""

    async def stubborn() -> None:
        while True:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(3600)
            if over.is_set():
                return

    async def stray() -> None:
        raise asyncio.CancelledError

    async def done() -> None:
        return

    over = asyncio.Event()

    async def scenario() -> None:
        assert not await bounded(stubborn(), 0.05, "a step")
        assert not await bounded(stray(), 5, "a step")
        assert await bounded(done(), 5, "a step")
        over.set()

    asyncio.run(asyncio.wait_for(scenario(), 60))


def test_batches_wait_for_a_broker_however_long() -> None:
    """Aiokafka lets a batch and a wait for its queue end after the request timeout, with a gap in its numbers."""

    async def scenario() -> None:
        producer = make_app(KafkaSettings()).producer._new_producer()
        year = 365 * 86_400
        assert producer._message_accumulator._batch_ttl > year
        assert producer._request_timeout_ms > year * 1000
        assert producer.client._request_timeout_ms < 60_000
        await producer.stop()

    asyncio.run(scenario())


class Stage(SimpleNamespace):
    """Name and sources."""


STAGES = (Stage(name="session", sources=("events",)), Stage(name="tool", sources=("outcomes", "commands")))


def engine() -> WorkerEngine:
    """An engine that is bound to nothing."""
    return WorkerEngine(KafkaSettings(), None, KafkaTopology(STAGES, lambda *_: None), LaneMetrics())


def test_partitions_are_owned_where_all_sources_came() -> None:
    """A stage partition is owned when each of its source topics came with that number."""
    assigned = [TP(f"trustfold.{name}", 2) for name in ("events", "outcomes", "commands")]
    assert [(stage.name, number) for stage, number in engine()._owned(assigned)] == [("session", 2), ("tool", 2)]


def test_topics_that_are_not_copartitioned_are_refused() -> None:
    """A partition number without its siblings means that the topics have different counts."""
    with pytest.raises(ConfigError, match=r"trustfold\.commands"):
        engine()._owned([TP("trustfold.outcomes", 2)])


def test_two_stages_cannot_read_one_topic() -> None:
    """One consumer group delivers a record once; the topology says so before anything starts."""
    twice = (*STAGES, Stage(name="third", sources=("events",)))
    with pytest.raises(ValueError, match="both read events"):
        assert KafkaTopology(twice, lambda *_: None).sources


def test_a_batch_lost_on_the_way_stops_the_worker() -> None:
    """If Faust ever dropped a batch between the lane and the agent, going on would lose its records for good."""
    found = engine()
    task = SimpleNamespace(next={EVENTS: 10}, processor=None, moved=False)
    found.tasks["session", 0] = task
    found.gate.open(FIRST, {EVENTS: 10})
    with pytest.raises(LostBatch):
        asyncio.run(found.on_poll(poll_of(12, FIRST)))
    asyncio.run(found.on_poll(poll_of(12, PartitionTenure(0, 4))))
    assert not task.moved


def test_what_the_folds_count_is_added_up_over_their_batches() -> None:
    """A processor ends with its partition; the worker's counters go on."""
    found = engine()
    processor = SimpleNamespace(process=lambda *_: [], counted=lambda: {"untracked": 2}, stream_time=0)
    found.tasks["session", 0] = SimpleNamespace(next={EVENTS: 12}, processor=processor, moved=False, partition=0)
    found.gate.open(FIRST, {EVENTS: 12})
    asyncio.run(found.on_poll(poll_of(12, FIRST)))
    asyncio.run(found.on_poll(poll_of(found.tasks["session", 0].next[EVENTS], FIRST)))
    assert found.metrics.folds == {"untracked": 4}


def test_folds_set_the_clock_of_ticks_and_a_tenure_begins_with_that_of_its_states() -> None:
    """The largest time that any stage has seen; what other partitions had seen before is gone with them."""
    found = engine()
    processor = SimpleNamespace(process=lambda *_: [], counted=dict, stream_time=10**9)
    found.tasks["session", 0] = SimpleNamespace(next={EVENTS: 12}, processor=processor, moved=False, partition=0)
    found.gate.open(FIRST, {EVENTS: 12})
    asyncio.run(found.on_poll(poll_of(12, FIRST)))
    assert 10**9 <= found.clock.now() < 2 * 10**9
    processor.stream_time = 10**6
    found.begin(1, {EVENTS: 12})
    assert 10**6 <= found.clock.now() < 10**9


def test_a_stop_ends_the_recovery_under_way() -> None:
    """A stop between a recovery's last request and its first record ends the recovery; it fails nothing."""

    async def scenario() -> None:
        found = engine()
        seeking, failed = asyncio.Event(), []
        found.on_failure = lambda: failed.append(found.reason)

        async def seek_sources(*_: object) -> dict[TP, int]:
            seeking.set()
            await asyncio.sleep(0.05)
            return {EVENTS: 0}

        async def nothing(*_: object) -> None:
            pass

        async def recover(assigned: set[TP]) -> None:
            found.tasks["session", 0] = SimpleNamespace(next={}, progress=dict, moved=False)

        consumer = SimpleNamespace(
            seek_sources=seek_sources, lane_thread=SimpleNamespace(set_fetch_wait=lambda _: None)
        )
        app = SimpleNamespace(engine=found, consumer=consumer, _consumer=None)
        found.recover, found.is_member, found._save = recover, lambda _: True, nothing
        recovery = BulkRecovery(app)
        recovery._resume = nothing
        app.tables = SimpleNamespace(recovery=recovery)
        found.bind(app, {})
        recovery.begin({EVENTS}, 3)
        await seeking.wait()
        await found.stop()
        recovery.begin({EVENTS}, 4)
        await asyncio.sleep(0.1)
        assert not failed
        assert not found.tasks
        assert found.gate.tenure is None

    asyncio.run(scenario())


def poll_of(start: int, tenure: PartitionTenure) -> FoldUnit:
    """A poll with one batch that should begin at `start`."""
    return FoldUnit(tenure, [PartitionBatch(EVENTS, records(start), start)])


def test_the_agent_has_one_poll_to_fold_and_one_that_waits() -> None:
    """More would fix the order of records before it is known; polls of another tenure do not count."""
    gate = LaneGate()
    gate.open(FIRST, {EVENTS: 0})
    for start in range(POLLS):
        assert not gate.full
        gate.delivered(poll_of(start, FIRST))
    assert gate.full
    gate.taken(poll_of(0, PartitionTenure(0, 3)))
    assert gate.full
    gate.taken(poll_of(0, FIRST))
    assert not gate.full
