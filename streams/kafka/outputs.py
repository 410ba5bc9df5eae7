"""Writes outputs as whole producer batches, at once, and knows when the brokers have acknowledged them.

Sending one record after another through the producer costs more than folding it. Here outputs are queued, grouped by
partition and sent in batches of our own making; while the brokers are busy with one round the next one gathers, so
batches grow with the load and an output never waits for a timer.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import lru_cache
from typing import Any

from aiokafka.partitioner import murmur2

from .headers import cloudevents, trace_headers
from .metrics import LaneMetrics
from .protocols import OutputRecord
from .settings import KafkaSettings

ROUND = 2_000
"""Most outputs grouped without letting the event loop breathe; about 10 ms."""

ROOM = 50_000
"""Outputs waiting to be handed to the producer above which the agents wait: a slow broker must not fill the memory."""

FUTURE_LIMIT_MS = 50 * 60_000
"""How far a record's timestamp may run ahead of this worker's clock. Brokers refuse more than an hour
(`message.timestamp.after.max.ms`)."""


@lru_cache(maxsize=65_536)
def _hash(key: bytes) -> int:
    positive: int = murmur2(key) & 0x7FFFFFFF
    return positive


def partition_of(key: bytes, partitions: int) -> int:
    """Partition of a key as Kafka's default partitioner chooses it; every client of the topic agrees."""
    return _hash(key) % partitions


def record_time(now_ms: int, time_ms: int) -> int:
    """Timestamp for an output's record, milliseconds.

    The present, so that retention does not remove the outputs of an old log that is folded again. Not before the
    output's own time, or the fold that reads it would take that time for a clock that runs ahead.
    """
    return max(now_ms, min(time_ms, now_ms + FUTURE_LIMIT_MS))


class OutputWriter:
    """Queue of outputs and the task that sends them."""

    def __init__(
        self,
        settings: KafkaSettings,
        *,
        producer: Callable[[], Any],
        internal: Collection[str],
        metrics: LaneMetrics,
    ) -> None:
        """Prepare; nothing is sent before `run`.

        Args:
            settings: names the topics.
            producer: gives the running aiokafka producer.
            internal: catalogue topics read by trustfold's own stages; their records carry only the trace context.
            metrics: counts what was acknowledged.
        """
        self._settings = settings
        self._producer = producer
        self._internal = frozenset(internal)
        self._metrics = metrics
        self._queue: deque[tuple[OutputRecord, int]] = deque()
        self._work = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._accepted = 0
        self._handed = 0
        self._progress: asyncio.Future[None] | None = None
        self._unacknowledged: set[asyncio.Future[Any]] = set()
        self._failure: BaseException | None = None

    def put(self, outputs: Sequence[OutputRecord], partition: int) -> None:
        """Queue what a processor of `partition` returned."""
        if outputs:
            self._queue.extend([(output, partition) for output in outputs])
            self._accepted += len(outputs)
            self._work.set()
            if len(self._queue) > ROOM:
                self._room.clear()

    async def room(self) -> None:
        """Wait while too much is queued."""
        if not self._room.is_set():
            await self._room.wait()

    async def drain(self) -> None:
        """Wait until everything queued before the call is acknowledged by the brokers.

        Raises:
            Exception: the first failure; the output is lost and must be made again.
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
            Exception: a batch was refused; nothing after it in its partition is sent.
        """
        try:
            while True:
                await self._work.wait()
                self._work.clear()
                while self._queue and self._failure is None:
                    await self._send_round()
                if self._failure is not None:
                    break
        except Exception as error:
            self._fail(error)
            raise
        raise self._failure

    async def _send_round(self) -> None:
        queue, count = self._queue, min(len(self._queue), ROUND)
        groups: dict[tuple[str, int], list[OutputRecord]] = defaultdict(list)
        producer = self._producer()
        sizes: dict[str, int] = {}
        for _ in range(count):
            output, own = queue.popleft()
            topic = output.topic
            if output.own_partition:
                partition = own
            else:
                if topic not in sizes:
                    sizes[topic] = len(await producer.partitions_for(self._settings.topic(topic)))
                partition = partition_of(output.key.encode(), sizes[topic])
            groups[topic, partition].append(output)
        if len(queue) <= ROOM:
            self._room.set()
        now = int(time.time() * 1000)
        sends = [self._send_group(producer, topic, part, outputs, now) for (topic, part), outputs in groups.items()]
        await asyncio.gather(*sends)
        self._handed += count
        if self._progress is not None:
            self._progress.set_result(None)
            self._progress = None

    async def _send_group(
        self, producer: Any, topic: str, partition: int, outputs: Iterable[OutputRecord], now: int
    ) -> None:
        headers = trace_headers if topic in self._internal else cloudevents
        batch = producer.create_batch()
        name = self._settings.topic(topic)
        for output in outputs:
            record = {
                "key": output.key.encode(),
                "value": output.value,
                "timestamp": record_time(now, output.time_ms),
                "headers": headers(output),
            }
            if batch.append(**record) is None:
                await self._submit(producer, batch, topic, name, partition)
                batch = producer.create_batch()
                batch.append(**record)
        await self._submit(producer, batch, topic, name, partition)

    async def _submit(self, producer: Any, batch: Any, topic: str, name: str, partition: int) -> None:
        batch.close()
        count = batch.record_count()
        sent = await producer.send_batch(batch, name, partition=partition)
        self._unacknowledged.add(sent)

        def acknowledged(future: asyncio.Future[Any]) -> None:
            self._unacknowledged.discard(future)
            error = None if future.cancelled() else future.exception()
            if error is not None:
                self._fail(error)
            else:
                self._metrics.outputs[topic] += count

        sent.add_done_callback(acknowledged)

    def _fail(self, error: BaseException) -> None:
        if self._failure is None:
            self._failure = error
        self._work.set()
        if self._progress is not None:
            self._progress.set_result(None)
            self._progress = None
