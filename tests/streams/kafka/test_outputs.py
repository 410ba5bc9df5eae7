"""The output writer: where records go, in which order, and when they count as written."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.errors import KafkaTimeoutError
from aiokafka.partitioner import DefaultPartitioner
from counting import StageOutput
from faust.types import TP
from trustfold.streams.kafka.kafka_settings import KafkaSettings
from trustfold.streams.kafka.metrics import LaneMetrics
from trustfold.streams.kafka.outputs import FUTURE_LIMIT_MS, ORDER_TIME, OutputWriter, partition_of, record_time
from trustfold.streams.kafka.outputs_in_flight import OutputsInFlight


class Producer:
    """Takes batches; acknowledges when it is told to."""

    def __init__(self, room: int = 10**9) -> None:
        self.room = room
        self.sent: list[tuple[str, int, list[Any]]] = []
        self.futures: list[asyncio.Future[Any]] = []
        self.arrived = asyncio.Event()
        self.hold = False

    async def partitions_for(self, topic: str) -> set[int]:
        """Four partitions."""
        return {0, 1, 2, 3}

    def create_batch(self) -> Any:
        """A batch that holds `room` records."""
        records: list[Any] = []

        def append(**record: Any) -> object:
            if len(records) >= self.room:
                return None
            records.append(record)
            return record

        return SimpleNamespace(append=append, close=lambda: None, record_count=lambda: len(records), records=records)

    async def send_batch(self, batch: Any, topic: str, *, partition: int) -> asyncio.Future[Any]:
        """Note it."""
        self.sent.append((topic, partition, batch.records))
        future = asyncio.get_running_loop().create_future()
        self.futures.append(future)
        self.arrived.set()
        if not self.hold:
            future.set_result(SimpleNamespace(offset=0))
        return future


def output(number: int, topic: str = "nudges", **more: Any) -> StageOutput:
    """An output with a key of its own."""
    return StageOutput(topic, f"k{number}", b"{}", f"id{number}", "nudge.issued", 1_000, **more)


def writer_on(producer: Producer) -> tuple[OutputWriter, LaneMetrics]:
    """A writer that sends to it."""
    metrics = LaneMetrics()
    return OutputWriter(
        KafkaSettings(),
        producer=lambda: producer,
        internal={"events", "outcomes"},
        metrics=metrics,
        outputs_in_flight=OutputsInFlight({"outcomes": "trustfold.outcomes"}),
        worker="w1",
    ), metrics


@pytest.mark.parametrize("key", [b"", b"a", b"abc", b"abcd", "wörkspace\x1ftool:bash".encode(), b"\x00" * 40])
@pytest.mark.parametrize("partitions", [1, 12, 97])
def test_partitions_are_those_of_every_other_client(key: bytes, partitions: int) -> None:
    """A key goes where Kafka's default partitioner puts it."""
    numbers = list(range(partitions))
    assert partition_of(key, partitions) == DefaultPartitioner()(key, numbers, numbers)


def test_record_times() -> None:
    """The present, or the output's own time when that is later, within what brokers take."""
    assert record_time(1_000_000, 5) == 1_000_000
    assert record_time(1_000_000, 1_060_000) == 1_060_000
    assert record_time(1_000_000, 10**15) == 1_000_000 + FUTURE_LIMIT_MS


def test_outputs_go_out_at_once_grouped_by_partition() -> None:
    """One batch per partition, in order, with CloudEvents headers; an appended event goes to its own partition."""

    async def scenario() -> None:
        producer = Producer()
        writer, metrics = writer_on(producer)
        task = asyncio.create_task(writer.run())
        made = [output(n) for n in range(20)]
        writer.put([*made, output(99, "events", own_partition=True, traceparent="00-x")], partition=3)
        await writer.drain()
        for topic, partition, records in producer.sent:
            if topic == "trustfold.events":
                assert (partition, records[0]["headers"]) == (3, [("traceparent", b"00-x")])
                continue
            keys = [record["key"] for record in records]
            assert keys == [key for n in range(20) if partition_of(key := f"k{n}".encode(), 4) == partition]
            assert dict(records[0]["headers"])["ce_type"] == b"nudge.issued"
        assert metrics.outputs == {"nudges": 20, "events": 1}
        task.cancel()

    asyncio.run(scenario())


def test_outcomes_carry_the_time_of_their_cause_until_they_come_back() -> None:
    """The record's timestamp is the present, or retention would remove it; so the order time is a header."""

    async def scenario() -> None:
        producer = Producer()
        producer.hold = True
        writer, _ = writer_on(producer)
        outputs_in_flight = writer._in_flight
        topics = {"trustfold.outcomes"}
        outputs_in_flight.own({TP("trustfold.outcomes", number): 0 for number in range(4)})
        task = asyncio.create_task(writer.run())
        writer.put([output(3)], 0, at=76_000)
        writer.put([output(1, "outcomes"), output(2)], 0, at=77_000)
        assert (outputs_in_flight.count, outputs_in_flight.oldest(topics)) == (1, 77_000)
        await producer.arrived.wait()
        assert (outputs_in_flight.count, outputs_in_flight.oldest(topics)) == (1, 77_000)
        for topic, _, records in producer.sent:
            assert ((ORDER_TIME, b"77000 w1") in records[0]["headers"]) == (topic == "trustfold.outcomes")
            assert records[0]["timestamp"] > 1_600_000_000_000
        for future in producer.futures:
            future.set_result(SimpleNamespace(offset=0))
        await writer.drain()
        assert outputs_in_flight.oldest(topics) == 77_000
        outputs_in_flight.folded(TP("trustfold.outcomes", partition_of(b"k1", 4)), 1)
        assert not outputs_in_flight.count
        task.cancel()

    asyncio.run(scenario())


def test_drain_waits_for_the_broker() -> None:
    """What was queued before the call is acknowledged when drain returns, and not sooner."""

    async def scenario() -> None:
        producer = Producer()
        producer.hold = True
        writer, _ = writer_on(producer)
        task = asyncio.create_task(writer.run())
        writer.put([output(1)], 0)
        draining = asyncio.create_task(writer.drain())
        await asyncio.wait_for(producer.arrived.wait(), 60)
        assert not draining.done()
        producer.futures[0].set_result(SimpleNamespace(offset=0))
        await asyncio.wait_for(draining, 60)
        task.cancel()

    asyncio.run(scenario())


def test_a_refused_output_fails_the_writer_and_the_drain() -> None:
    """A batch that is refused ends the sending: nothing later may overtake it."""

    async def scenario() -> None:
        producer = Producer()
        producer.hold = True
        writer, metrics = writer_on(producer)
        task = asyncio.create_task(writer.run())
        writer.put([output(1)], 0)
        await asyncio.wait_for(producer.arrived.wait(), 60)
        producer.futures[0].set_exception(RuntimeError("refused"))
        with pytest.raises(RuntimeError, match="refused"):
            await asyncio.wait_for(writer.drain(), 60)
        with pytest.raises(RuntimeError, match="refused"):
            await asyncio.wait_for(task, 60)
        writer.put([output(2)], 0)
        with pytest.raises(RuntimeError, match="refused"):
            await asyncio.wait_for(writer.drain(), 60)
        assert len(producer.sent) == 1
        assert not metrics.outputs

    asyncio.run(scenario())


def test_a_writer_goes_on_after_a_reset() -> None:
    """What was queued or under way is forgotten, and a late failure of it concerns nobody."""

    async def scenario() -> None:
        producer = Producer()
        producer.hold = True
        writer, metrics = writer_on(producer)
        task = asyncio.create_task(writer.run())
        writer.put([output(1), output(2)], 0)
        await asyncio.wait_for(producer.arrived.wait(), 60)
        failing, *rest = producer.futures
        failing.set_exception(KafkaTimeoutError())
        with pytest.raises(KafkaTimeoutError):
            await asyncio.wait_for(task, 60)
        assert writer.broken
        writer.put([output(3)], 0)
        writer.reset()
        await asyncio.wait_for(writer.wait_reset(), 60)
        assert not writer.pending
        for late in rest:
            late.set_exception(KafkaTimeoutError())
        producer.hold = False
        task = asyncio.create_task(writer.run())
        writer.put([output(4)], 0)
        await asyncio.wait_for(writer.drain(), 60)
        assert metrics.outputs == {"nudges": 1}
        assert not writer.broken
        task.cancel()

    asyncio.run(scenario())


def test_a_full_batch_is_followed_by_another() -> None:
    """Outputs that do not fit into one batch go into the next, in order."""

    async def scenario() -> None:
        producer = Producer(room=3)
        writer, _ = writer_on(producer)
        task = asyncio.create_task(writer.run())
        writer.put([StageOutput("nudges", "k", b"%d" % n, str(n), "t", 0) for n in range(8)], 0)
        await writer.drain()
        assert [len(records) for _, _, records in producer.sent] == [3, 3, 2]
        assert [record["value"] for _, _, records in producer.sent for record in records] == [
            b"%d" % n for n in range(8)
        ]
        task.cancel()

    asyncio.run(scenario())


def test_agents_wait_while_too_much_is_queued(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that is slow holds up the agents, not the memory."""
    monkeypatch.setattr("trustfold.streams.kafka.outputs.ROOM", 3)

    async def scenario() -> None:
        writer, _ = writer_on(Producer())
        writer.put([output(n) for n in range(5)], 0)
        waiting = asyncio.create_task(writer.room())
        await asyncio.sleep(0)
        assert not waiting.done()
        task = asyncio.create_task(writer.run())
        await asyncio.wait_for(waiting, 60)
        task.cancel()

    asyncio.run(scenario())


def test_a_tombstone_is_no_event() -> None:
    """A record without a value carries no CloudEvents headers."""

    async def scenario() -> None:
        producer = Producer()
        writer, _ = writer_on(producer)
        task = asyncio.create_task(writer.run())
        writer.put([StageOutput("state", "trust:x", None, "", "", 0)], 0)
        await writer.drain()
        assert producer.sent[0][2][0]["headers"] == []
        assert producer.sent[0][2][0]["value"] is None
        task.cancel()

    asyncio.run(scenario())
