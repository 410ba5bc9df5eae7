"""Writes outputs as whole producer batches, and tracks their acknowledgement.

Sending records one by one through the producer costs more than folding them. Outputs are queued, grouped by partition
and sent in prepared batches; while the brokers handle one round the next one accumulates, so batches grow with the load
and no output waits for a timer.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import lru_cache, partial
from typing import Any, NamedTuple

from aiokafka.partitioner import murmur2
from faust.types import TP

from ...projections.emitter import StageOutput
from ...schemas.envelope import output_headers
from .kafka_settings import KafkaSettings
from .metrics import LaneMetrics
from .outputs_in_flight import OutputsInFlight

ROUND = 2_000  # Outputs after which the event loop gets a turn before more are sorted into batches; about 10 ms
ROOM = 50_000  # Queued outputs above which the agents wait: a slow broker must not fill the memory

# How far a record's timestamp may run ahead of this worker's clock. Brokers refuse more than an hour
# (`message.timestamp.after.max.ms`).
FUTURE_LIMIT_MS = 50 * 60_000


@lru_cache(maxsize=65_536)
def _hash(key: bytes) -> int:
    positive: int = murmur2(key) & 0x7FFFFFFF
    return positive


def partition_of(key: bytes, partitions: int) -> int:
    """Return the partition of a key as Kafka's default partitioner chooses it."""
    return _hash(key) % partitions


def record_time(now_ms: int, time_ms: int) -> int:
    """Return the timestamp of an output's record, milliseconds.

    The present, so that retention does not remove the outputs of an old log that is folded again. Not before the
    output's own time, which the next fold would treat as a clock running ahead.
    """
    return max(now_ms, min(time_ms, now_ms + FUTURE_LIMIT_MS))


class _OpenBatch(NamedTuple):
    """Open batch for one partition; `at` is the order time of the first record's cause, 0 without one."""

    at: int
    batches: list[Any]


class OutputWriter:
    """Queue of outputs, and the task that sends them."""

    def __init__(
        self,
        settings: KafkaSettings,
        *,
        producer: Callable[[], Any],
        internal: Collection[str],
        metrics: LaneMetrics,
        outputs_in_flight: OutputsInFlight,
        worker: str,
    ) -> None:
        """Create a writer; nothing is sent before `run`.

        Args:
            settings: settings with the topic names.
            producer: returns the running aiokafka producer.
            internal: catalogue topics read by trustfold's own stages; their records carry only the trace context.
            metrics: counts what was acknowledged.
            outputs_in_flight: registers records in flight to those topics.
            worker: name of this process, which outputs between the stages bear.
        """
        self._in_flight = outputs_in_flight
        self._worker = worker.encode()
        self._settings = settings
        self._producer = producer
        self._internal = frozenset(internal)
        self._metrics = metrics
        self._queue: deque[tuple[Sequence[StageOutput], int, int]] = deque()
        self._waiting = 0
        self._sizes: dict[str, int] = {}
        self._work = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._accepted = 0
        self._handed = 0
        self._progress: asyncio.Future[None] | None = None
        self._unacknowledged: set[asyncio.Future[Any]] = set()
        self._failure: BaseException | None = None
        self._era = 0
        self._usable = asyncio.Event()
        self._usable.set()

    @property
    def pending(self) -> bool:
        """Whether outputs wait for the brokers."""
        return bool(self._queue or self._unacknowledged)

    @property
    def broken(self) -> bool:
        """Whether a batch has failed since the last reset."""
        return self._failure is not None

    def reset(self) -> None:
        """Drop queued and pending outputs, which are created again. The producer must be a new one."""
        self._era += 1
        self._failure = None
        self._queue.clear()
        self._in_flight.reset()
        self._waiting = 0
        self._handed = self._accepted
        self._unacknowledged = set()
        self._sizes.clear()
        self._room.set()
        self._usable.set()
        self._notify()

    async def wait_reset(self) -> None:
        """Wait for the reset after a failure."""
        await self._usable.wait()

    def put(self, outputs: Sequence[StageOutput], partition: int, at: int = 0) -> None:
        """Queue a processor's outputs of `partition`; `at` is the order time of the cause, 0 without one."""
        if outputs:
            self._queue.append((outputs, partition, at))
            if at:
                self._in_flight.queued(at, [output.topic for output in outputs])
            self._accepted += len(outputs)
            self._waiting += len(outputs)
            self._work.set()
            if self._waiting > ROOM:
                self._room.clear()

    async def room(self) -> None:
        """Wait while the queue is full."""
        if not self._room.is_set():
            await self._room.wait()

    async def drain(self) -> None:
        """Wait until everything queued before the call is acknowledged by the brokers.

        Raises:
            Exception: the first failure; the output is lost and must be created again.
        """
        target = self._accepted
        while self._handed < target and self._failure is None:
            if self._progress is None:
                self._progress = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._progress)
        if self._unacknowledged:
            await asyncio.wait(list(self._unacknowledged))
        if self._failure is not None:
            raise self._failure

    async def run(self) -> None:
        """Send until cancelled.

        Raises:
            Exception: a batch was rejected; nothing after it in its partition is sent.
        """
        while True:
            await self._work.wait()
            self._work.clear()
            while self._queue and self._failure is None:
                era = self._era
                try:
                    await self._send_round(era)
                except Exception as error:
                    if era == self._era:  # otherwise it belongs to a previous producer
                        self._fail(error)
                        raise
            if self._failure is not None:
                raise self._failure

    async def _send_round(self, era: int) -> None:
        """Send the outputs of whole `put` calls until ROUND is reached."""
        queue, producer = self._queue, self._producer()
        now = int(time.time() * 1000)
        rooms: dict[tuple[str, int], _OpenBatch] = {}
        count = registered = 0
        while queue and count < ROUND:
            outputs, own, at = queue.popleft()
            count += len(outputs)
            registered += at > 0
            for topic in {output.topic for output in outputs}:
                if topic not in self._sizes:
                    self._sizes[topic] = len(await producer.partitions_for(self._settings.topic(topic)))
            if era != self._era:
                return
            self._append(producer, rooms, outputs, own, at, now)
        self._waiting -= count
        if self._waiting <= ROOM:
            self._room.set()
        tickets = {place: self._tickets(place, room) for place, room in rooms.items()}
        self._in_flight.taken(registered)
        await asyncio.gather(
            *[self._submit(producer, place, room, tickets[place], era) for place, room in rooms.items()]
        )
        if era == self._era:
            self._handed += count
            self._notify()

    def _append(
        self,
        producer: Any,
        rooms: dict[tuple[str, int], _OpenBatch],
        outputs: Iterable[StageOutput],
        own: int,
        at: int,
        now: int,
    ) -> None:
        """Sort outputs into batches; the last one of each partition has room."""
        internal, awaited, sizes = self._internal, self._in_flight.topics, self._sizes
        order = [(ORDER_TIME, b"%d %s" % (at, self._worker))] if at else []
        for output in outputs:
            topic = output.topic
            key = output.key.encode()
            place = topic, own if output.own_partition else _hash(key) % sizes[topic]
            headers = trace_headers(output) if topic in internal else cloudevents(output)
            if topic in awaited:
                headers += order
            timestamp = now if output.time_ms <= now else record_time(now, output.time_ms)
            room = rooms.get(place)
            if room is None:
                room = rooms[place] = _OpenBatch(at, [producer.create_batch()])
            if room.batches[-1].append(key=key, value=output.value, timestamp=timestamp, headers=headers) is None:
                room.batches.append(producer.create_batch())
                room.batches[-1].append(key=key, value=output.value, timestamp=timestamp, headers=headers)

    def _tickets(self, place: tuple[str, int], room: _OpenBatch) -> list[int]:
        """Register batches in flight to internal topics; return a ticket for each batch, 0 for other topics."""
        topic, partition = place
        if topic not in self._in_flight.topics or not room.at:
            return [0] * len(room.batches)
        tp = TP(self._settings.topic(topic), partition)
        return [self._in_flight.sent(tp, room.at, batch.record_count()) for batch in room.batches]

    async def _submit(
        self, producer: Any, place: tuple[str, int], room: _OpenBatch, tickets: list[int], era: int
    ) -> None:
        tp = TP(self._settings.topic(place[0]), place[1])
        for batch, ticket in zip(room.batches, tickets, strict=True):
            batch.close()
            sent = await producer.send_batch(batch, tp.topic, partition=tp.partition)
            if era == self._era:
                self._unacknowledged.add(sent)
            sent.add_done_callback(partial(self._acknowledged, place[0], batch.record_count(), ticket, era))

    def _acknowledged(self, topic: str, count: int, ticket: int, era: int, sent: asyncio.Future[Any]) -> None:
        self._unacknowledged.discard(sent)
        error = None if sent.cancelled() else sent.exception()
        if era != self._era:
            return
        if error is not None:
            self._fail(error)
            return
        self._metrics.outputs[topic] += count
        if ticket and not sent.cancelled():
            base = sent.result().offset
            self._in_flight.acknowledged(ticket, base + count if base >= 0 else -1)

    def _notify(self) -> None:
        """Wake the tasks that wait in `drain`."""
        if self._progress is not None:
            self._progress.set_result(None)
            self._progress = None

    def _fail(self, error: BaseException) -> None:
        if self._failure is None:
            self._failure = error
            self._usable.clear()
        self._work.set()
        self._notify()


# Header of a record between trustfold's own stages: order time of its cause in milliseconds, a blank, and the worker
# that folded it (see `order`)
ORDER_TIME = "order-time"


def trace_headers(output: StageOutput) -> list[tuple[str, bytes]]:
    """Return only the trace context; for records between trustfold's own stages."""
    return [("traceparent", output.traceparent.encode())] if output.traceparent else []


def cloudevents(output: StageOutput) -> list[tuple[str, bytes]]:
    """Return CloudEvents headers and the trace context; a tombstone is not an event and has only the latter."""
    if output.value is None:
        return trace_headers(output)
    return output_headers(output.id, output.type, output.time_ms, traceparent=output.traceparent)
