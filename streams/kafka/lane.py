"""The batch lane: one Faust stream event per poll and topic, instead of one per record.

Faust spends about 135 us of asyncio machinery on each stream event (measured; no setting helps), a fold ten. Here the
event's value is everything a poll gave for one topic, a batch for each partition, so the machinery is paid once per
poll. Membership, assignment, the commit timer, streams and agents stay Faust's.

The lane delivers records only while its gate is open, each partition from the offset it expects next (see `gate`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, cast

import faust
from faust.transport.drivers import aiokafka as driver
from faust.types import TP
from faust.types.tuples import ConsumerMessage
from mode.utils.futures import notify

from .gate import POLL_S, Batch, Gate, Poll

FETCH_WAIT_MS = 200
"""Longest wait of the broker for new records before it answers a fetch."""


class PollSchema(faust.Schema):  # type: ignore[type-arg]
    """Hands a poll to the stream as it is; decoding, and its errors, belong to the processor."""

    def compile(self, app: Any, **_: Any) -> Callable[..., Awaitable[Any]]:
        """Faust's hook: a function from message to event."""
        create_event = app.create_event

        async def decode(message: Any, *, propagate: bool = False) -> Any:  # noqa: ARG001 - Faust's signature
            return create_event(None, message.value, None, message)

        return decode


class LaneThread(driver.AIOKafkaConsumerThread):
    """Faust's consumer thread with a shorter wait in fetches.

    A fetch leaves out partitions whose records wait to be taken, and only one fetch is under way per broker. With
    Faust's 1.5 s a busy partition can stand still for that long while the others have nothing.
    """

    mundane_level = "debug"

    def _create_worker_consumer(self, transport: Any) -> Any:
        consumer = super()._create_worker_consumer(transport)
        consumer._fetch_max_wait_ms = FETCH_WAIT_MS
        return consumer


class BatchConsumer(driver.Consumer):
    """Faust's aiokafka consumer with the lane in place of its per-record loop."""

    mundane_level = "debug"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """As Faust calls it; the engine hangs on the app."""
        self._done: dict[TP, int] = {}
        super().__init__(*args, **kwargs)

    def _new_consumer_thread(self) -> LaneThread:
        return LaneThread(self, loop=self.loop, beacon=self.beacon)

    def release(self) -> None:
        """Close the loop of a thread that was never started: mode closes those of threads that ran."""
        if not self._thread._thread_started.is_set():
            self._thread.thread_loop.close()

    @property
    def engine(self) -> Any:
        """The engine this consumer feeds."""
        return self.app.engine  # type: ignore[attr-defined]

    # --- delivery ---------------------------------------------------------------------------------------------------

    async def _drain_messages(self, fetcher: Any) -> None:
        """Faust's fetch loop: poll, and deliver while the gate is open."""
        gate: Gate = self.engine.gate
        try:
            while not (self._stopped.is_set() or fetcher._stopped.is_set()):
                if gate.tenure is None:
                    await gate.wait_open()
                    continue
                pollable = gate.pollable()
                if not pollable:  # aiokafka takes an empty set for "all"
                    await gate.wait_room()
                    continue
                with gate.polling():
                    polled = await self._thread.getmany(pollable, POLL_S)
                    if polled:
                        await self._deliver(gate, polled)
                await asyncio.sleep(0)
        except self.consumer_stopped_errors:
            if not self.app.should_stop:
                raise
        except asyncio.CancelledError:
            if not self.app.should_stop:
                raise
        except Exception as error:  # noqa: BLE001 - whatever it is, the worker must not go on without its consumer
            await self.engine.fail(error)

    async def _deliver(self, gate: Gate, polled: Mapping[Any, list[Any]]) -> None:
        tenure = gate.tenure
        if tenure is None:
            return
        polls: dict[str, Poll] = {}
        for place, records in polled.items():
            tp = TP(place.topic, place.partition)
            start = gate.expected.get(tp)
            if start is None:
                continue
            if records[0].offset < start:
                records = [record for record in records if record.offset >= start]  # noqa: PLW2901
                if not records:
                    continue
            elif records[0].offset > start + 1:  # one is the marker that ends a publisher's transaction
                self.engine.offsets_jumped(tp, start, records[0].offset)
            if tp.topic not in polls:
                polls[tp.topic] = Poll(tp.topic, tenure)
            batch = Batch(tp, records, start)
            polls[tp.topic].batches.append(batch)
            gate.expected[tp] = batch.next_offset
        for poll in polls.values():
            gate.delivered(poll.topic)
            await self.callback(self._message_of(poll))

    def _message_of(self, poll: Poll) -> ConsumerMessage:
        """Faust's message of a poll, under the name of its first partition."""
        batch = poll.batches[0]
        last = batch.records[-1]
        return ConsumerMessage(
            topic=poll.topic,
            partition=batch.tp.partition,
            offset=last.offset,
            timestamp=last.timestamp / 1000.0,
            timestamp_type=last.timestamp_type,
            headers=None,
            key=None,
            value=cast("Any", poll),
            checksum=None,
            tp=batch.tp,
            serialized_key_size=0,
            serialized_value_size=0,
            generation_id=poll.tenure.generation,
        )

    def on_buffer_full(self, tp: TP) -> None:
        """Nothing: the gate counts the polls that wait."""

    def on_buffer_drop(self, tp: TP) -> None:
        """Nothing: the gate counts the polls that wait."""

    # --- acknowledgement --------------------------------------------------------------------------------------------

    def ack(self, message: Any) -> bool:
        """Close Faust's books on a poll. Offsets move by `mark_done` alone.

        Faust acks in places where nothing was processed: events skipped in a rebalance, events whose agent raised.
        """
        if not isinstance(message.value, Poll):
            return bool(super().ack(message))
        message.acked = True
        self._unacked_messages.discard(message)
        notify(self._waiting_for_ack)
        return True

    def mark_done(self, tp: TP, next_offset: int) -> None:
        """Everything of `tp` below `next_offset` is durable; the next commit may say so."""
        self._done[tp] = next_offset
        self._acked[tp]  # a defaultdict: makes the partition known to commit()

    def _new_offset(self, tp: TP) -> int | None:
        return self._done.get(tp)

    # --- rebalance --------------------------------------------------------------------------------------------------

    async def on_partitions_revoked(self, revoked: set[TP]) -> None:
        """Save what can be saved while the group still waits for us, then let Faust clear its queues."""
        await self.engine.on_revoked()
        self._done.clear()
        await super().on_partitions_revoked(revoked)

    @property
    def member_generation(self) -> int:
        """Generation in which the group knows this member now; -1 when it was thrown out."""
        consumer = self._thread._consumer
        return int(consumer._coordinator.generation) if consumer is not None else -1

    async def seek_sources(self, partitions: Iterable[TP], progress: Mapping[TP, int]) -> dict[TP, int]:
        """Put every partition to the first offset that is not done yet.

        That is the committed offset, or what the last checkpoint noted in the changelog if that is further; the
        beginning of the log where there is neither.

        Returns:
            The offsets.

        Raises:
            OffsetsGone: such an offset lies beyond the log's end; the topic was created anew.
        """
        found: dict[TP, tuple[int, int]] = await self._thread.call_thread(
            self._seek_sources, list(partitions), progress
        )
        for tp, (offset, committed) in found.items():
            self._read_offset[tp] = offset
            self._committed_offset[tp] = committed
            if offset > committed:
                self.mark_done(tp, offset)
        return {tp: offset for tp, (offset, _) in found.items()}

    async def _seek_sources(self, partitions: list[TP], progress: Mapping[TP, int]) -> dict[TP, tuple[int, int]]:
        # Runs in the consumer's thread.
        consumer = self._thread._ensure_consumer()
        places = {tp: driver.ensure_aiokafka_TP(tp) for tp in partitions}
        committed = await asyncio.gather(*[consumer.committed(place) for place in places.values()])
        first = await consumer.beginning_offsets(list(places.values()))
        last = await consumer.end_offsets(list(places.values()))
        offsets = {}
        for (tp, place), offset in zip(places.items(), committed, strict=True):
            done = max(offset or 0, progress.get(tp, 0))
            if done > last[place]:
                raise OffsetsGone(tp, done, last[place])
            begin = max(done, first[place])
            offsets[tp] = begin, offset or 0
            consumer.seek(place, begin)
        return offsets

    def place(self, tp: TP) -> tuple[int, int] | None:
        """Position of the fetcher and log end of a partition, as of the last fetch; None before the first."""
        consumer = self._thread._consumer
        subscription = consumer._subscription.subscription if consumer is not None else None
        assignment = subscription.assignment if subscription is not None else None
        place = driver.ensure_aiokafka_TP(tp)
        if assignment is None or place not in assignment.tps:
            return None
        state = assignment.state_value(place)
        if state.highwater is None or not state.has_valid_position:
            return None
        return int(state.position), int(state.highwater)


class OffsetsGone(Exception):
    """An offset that was reached lies beyond the end of its log."""

    def __init__(self, tp: TP, done: int, end: int) -> None:
        """Name the partition and both offsets."""
        super().__init__(
            f"{tp.topic}/{tp.partition} ends at offset {end} but was processed up to {done}: the topic was deleted and "
            "created again, or has lost records. Positions kept in the state would hide its new records. Delete the "
            "consumer group and the changelog topics too, or use another app id"
        )


class LaneProducer(driver.Producer):
    """Faust's producer, idempotent: a retry cannot write a batch twice, nor let a later one overtake a failed one."""

    mundane_level = "debug"

    def _settings_extra(self) -> Mapping[str, Any]:
        return {"acks": "all", "enable_idempotence": True}

    @property
    def client(self) -> Any:
        """The running aiokafka producer.

        Raises:
            faust.exceptions.NotReady: it has not been started, or was stopped.
        """
        return self._ensure_producer()


class BatchTransport(driver.Transport):
    """Faust's aiokafka transport with the two above."""

    Consumer = BatchConsumer
    Producer = LaneProducer
