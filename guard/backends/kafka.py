"""Kafka backend for a fleet: publishes events, follows states and nudges (extra `kafka`).

It has three tasks. One follows `state` from its beginning, and `nudges` and `suggestions` from now on, without a
consumer group: every guard reads everything. One delivers buffered events in order, a batch at a time; a failed batch
is sent again, and repeated ids change nothing. One polls the broker every two seconds, since a client that has lost its
broker reports nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from typing import Any

import msgspec
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import MessageSizeTooLargeError

from ...errors import ConfigError
from ...projections.calls.keys import scope_of_key
from ...schemas.outcomes import DEFAULT_WORKSPACE, US
from ...schemas.topics import DEFAULT_PREFIX, full_name
from ..log import log_event
from ..metrics import EVENTS, GuardMetrics
from ..publisher import is_event
from ..state_cache import StateView
from .base import FOLLOWED, ChangeSignal, DecisionDispatcher, EventBuffer, apply_record, encoded

BATCH = 500  # Most events under way at once
DELIVERY_S = 10.0  # A batch that is not acknowledged by then is sent again
WATCH_S = 2.0  # Seconds between two checks of the broker connection, and the timeout of each check

FIRST_PAUSE_S = 0.2
LAST_PAUSE_S = 5.0


class KafkaBackend:
    """Kafka backend of one guard."""

    def __init__(
        self,
        bootstrap: str,
        metrics: GuardMetrics,
        limit: int,
        *,
        topic_prefix: str | None = None,
        client_arguments: dict[str, Any] | None = None,
    ) -> None:
        """Create a backend for the brokers at `host:port,…`; `client_arguments` go to every aiokafka client.

        Raises:
            ConfigError: the prefix is not valid in topic names.
        """
        prefix = topic_prefix or os.environ.get("TRUSTFOLD_TOPIC_PREFIX") or DEFAULT_PREFIX
        self.view = StateView()  # latest public states
        self.decisions = DecisionDispatcher()  # dispatcher of decisions to sessions
        self.buffer = EventBuffer(limit, metrics)  # events to deliver
        self._names = {full_name(prefix, name): name for name in FOLLOWED}
        self._events, self._commands = full_name(prefix, "events"), full_name(prefix, "commands")
        self._arguments = {"bootstrap_servers": bootstrap, **(client_arguments or {})}
        self._metrics = metrics
        self._changed = ChangeSignal()
        self._published = ChangeSignal()
        self._caught_up = asyncio.Event()
        self._reachable = False
        self._under_way = 0
        self._closing = False
        self._tasks: list[asyncio.Task[None]] = []
        self._positions: dict[TopicPartition, int] = {}
        self._producer: AIOKafkaProducer | None = None
        self._forked = False
        self._parents_clients: list[Any] = []

    def after_fork(self) -> None:
        """Reconnect with the next event on a loop of the child process; buffered events belong to the parent."""
        self.buffer.after_fork()
        self.decisions.after_fork()
        # Kept alive: their finalizers would close the parent's connections.
        self._parents_clients += [*self._tasks, self._producer]
        self._forked = bool(self._tasks)
        self._tasks = []
        self._producer = None
        self._changed, self._published = ChangeSignal(), ChangeSignal()
        self._caught_up = asyncio.Event()
        self._reachable = False
        self._under_way = 0

    @property
    def connected(self) -> bool:
        """Whether the view is up to date and the broker answers."""
        return self._reachable and self._caught_up.is_set()

    @property
    def undelivered(self) -> int:
        """Number of events that are buffered or not yet acknowledged."""
        return len(self.buffer) + self._under_way

    def publish(self, record: msgspec.Struct) -> None:
        """Append an event or a command to the buffer."""
        if self._forked:
            with contextlib.suppress(RuntimeError):  # no loop is running here; a later event may have one
                self._begin()
        self.buffer.add(record)
        self._published.notify()

    async def start(self, wait_s: float) -> None:
        """Start reading and delivering; wait up to `wait_s` seconds for the view."""
        self._begin()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._caught_up.wait(), wait_s)
        if not self.connected:
            log_event(logging.WARNING, "guard_not_connected", brokers=str(self._arguments["bootstrap_servers"]))

    def _begin(self) -> None:
        """Start reading and delivering on the running event loop.

        Raises:
            RuntimeError: no event loop is running.
        """
        asyncio.get_running_loop()
        self._forked = False
        self._tasks = [
            asyncio.create_task(work(), name=f"trustfold-{work.__name__.strip('_')}")
            for work in (self._follow, self._deliver)
        ]

    async def changed(self, timeout_ms: float) -> None:
        """Wait until the view changes, at most `timeout_ms` milliseconds."""
        await self._changed.wait(timeout_ms)

    async def flush(self, timeout_s: float) -> bool:
        """Wait until all events published so far are delivered; return False on timeout."""
        until = time.monotonic() + timeout_s
        while self.undelivered:
            self._published.notify()
            if time.monotonic() >= until:
                return False
            await self._changed.wait(20)
        return True

    async def close(self) -> None:
        """Deliver buffered events for a few seconds, then disconnect."""
        if self._reachable:
            await self.flush(5.0)
        self._closing = True
        await _end(*self._tasks)
        await self._drop_producer()
        if left := self.buffer.close():
            log_event(logging.ERROR, "events_undelivered", count=left)
            self._metrics.add(EVENTS, "undelivered", amount=left)

    # --- following ------------------------------------------------------------------------------------------------

    async def _follow(self) -> None:
        pause = FIRST_PAUSE_S
        while not self._closing:
            consumer = AIOKafkaConsumer(**self._arguments, enable_auto_commit=False, auto_offset_reset="earliest")
            try:
                await consumer.start()
                partitions = await self._partitions()
                pause = FIRST_PAUSE_S
                await self._read(consumer, partitions)
            except Exception as error:  # noqa: BLE001 - whatever it was: a guard that stopped following would be blind
                self._mark_disconnected(error)
            finally:
                await _stop(consumer)
            await asyncio.sleep(pause)
            pause = min(LAST_PAUSE_S, 2 * pause)

    async def _partitions(self) -> list[TopicPartition]:
        """Every partition of the followed topics."""
        admin = AIOKafkaAdminClient(**self._arguments)
        try:
            await admin.start()
            found = await admin.describe_topics(list(self._names))
        finally:
            await admin.close()
        partitions = [TopicPartition(one["topic"], part["partition"]) for one in found for part in one["partitions"]]
        missing = sorted(set(self._names) - {partition.topic for partition in partitions})
        if missing:
            raise ConfigError(f"topic {missing[0]} does not exist; `trustfold topics create` makes it")
        return partitions

    async def _read(self, consumer: AIOKafkaConsumer, partitions: list[TopicPartition]) -> None:
        consumer.assign(partitions)
        begins = await consumer.beginning_offsets(partitions)
        ends = await consumer.end_offsets(partitions)
        states = [partition for partition in partitions if self._names[partition.topic] == "state"]
        for partition in partitions:
            known = self._positions.get(partition)
            if known is None or not begins[partition] <= known <= ends[partition]:
                known = begins[partition] if partition in states else ends[partition]
            consumer.seek(partition, known)
            self._positions[partition] = known
        behind = {partition: ends[partition] for partition in states}
        watch = asyncio.create_task(self._watch_broker(consumer, states[0]))
        try:
            while not watch.done():
                behind = {partition: end for partition, end in behind.items() if self._positions[partition] < end}
                if not behind and not self.connected:
                    self._mark_connected()
                fetched = await consumer.getmany(timeout_ms=200)
                for partition, records in fetched.items():
                    for record in records:
                        key = (record.key or b"").decode(errors="replace")
                        apply_record(self._names[partition.topic], key, record.value, self.view, self.decisions)
                    self._positions[partition] = records[-1].offset + 1
                if fetched:
                    self._changed.notify()
                for partition in behind:  # compaction may have removed the last records of a partition
                    self._positions[partition] = max(self._positions[partition], await consumer.position(partition))
            watch.result()
        finally:
            await _end(watch)

    async def _watch_broker(self, consumer: AIOKafkaConsumer, partition: TopicPartition) -> None:
        """Poll the broker; raise as soon as it does not answer."""
        while True:
            await asyncio.sleep(WATCH_S)
            async with asyncio.timeout(WATCH_S):
                await consumer.end_offsets([partition])

    def _mark_connected(self) -> None:
        self._reachable = True
        self._caught_up.set()
        log_event(logging.INFO, "guard_connected", states=len(self.view.records()), buffered=len(self.buffer))
        self._published.notify()

    def _mark_disconnected(self, error: BaseException) -> None:
        if self._reachable:
            log_event(logging.WARNING, "guard_disconnected", errorCode=type(error).__name__, buffered=len(self.buffer))
        else:
            log_event(logging.DEBUG, "guard_not_connected", errorCode=type(error).__name__, why=str(error)[:200])
        self._reachable = False

    # --- delivering -----------------------------------------------------------------------------------------------

    async def _deliver(self) -> None:
        pause = FIRST_PAUSE_S
        while not self._closing:
            if not len(self.buffer):
                await self._published.wait(1000)
                continue
            batch = self.buffer.take(BATCH)
            self._under_way = len(batch)
            try:
                async with asyncio.timeout(DELIVERY_S):
                    sent = await self._send(batch)
            except Exception as error:  # noqa: BLE001 - as above, and deaf
                self.buffer.put_back(batch)
                self._metrics.add(EVENTS, "failed", amount=len(batch))
                self._log_failed_delivery(error)
                await self._drop_producer()
                await asyncio.sleep(pause)
                pause = min(LAST_PAUSE_S, 2 * pause)
            except asyncio.CancelledError:
                self.buffer.put_back(batch)
                raise
            else:
                pause = FIRST_PAUSE_S
                self._metrics.add(EVENTS, "published", amount=sent)
                self._changed.notify()
            finally:
                self._under_way = 0

    def _log_failed_delivery(self, error: BaseException) -> None:
        log_event(
            logging.WARNING,
            "events_not_delivered",
            errorCode=type(error).__name__,
            buffered=len(self.buffer),
            dropped=self.buffer.dropped,
        )

    async def _send(self, batch: list[msgspec.Struct]) -> int:
        """Return the number of acknowledged records; those that can never be sent are counted as refused."""
        if (producer := self._producer) is None:
            producer = AIOKafkaProducer(**self._arguments, acks="all", request_timeout_ms=int(DELIVERY_S * 1000))
            self._producer = producer  # before it starts, which may fail: `_drop_producer` frees what it holds
            await producer.start()
        futures = []
        for record in batch:
            if (value := encoded(record, self._metrics)) is None:
                continue
            topic, key = self._address(record)
            traceparent = getattr(record, "traceparent", None)
            headers = [("traceparent", traceparent.encode())] if traceparent else None
            try:
                futures.append(await producer.send(topic, value, key=key, headers=headers))
            except MessageSizeTooLargeError as error:
                log_event(logging.ERROR, "event_refused", errorCode=type(error).__name__)
                self._metrics.add(EVENTS, "refused")
        await asyncio.gather(*futures)
        return len(futures)

    def _address(self, record: Any) -> tuple[str, bytes]:
        """Topic and key of an event or a command (docs/design/contracts.md#topics)."""
        if is_event(record):
            return self._events, record.session_id.encode()
        workspace = record.workspace_id or DEFAULT_WORKSPACE
        return self._commands, f"{workspace}{US}{scope_of_key(record.key)}".encode()

    async def _drop_producer(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            await _stop(producer)


async def _end(*tasks: asyncio.Task[None]) -> None:
    """Cancel tasks until they have ended; `wait_for` of Python 3.11, as in aiokafka, may lose a cancellation."""
    running = set(tasks)
    while running:
        for task in running:
            task.cancel()
        _, running = await asyncio.wait(running, timeout=2 * WATCH_S)  # what they clean up takes up to `WATCH_S`
    await asyncio.gather(*tasks, return_exceptions=True)


async def _stop(client: AIOKafkaConsumer | AIOKafkaProducer) -> None:
    """Stop a client within a time limit; without a broker it may hang or cancel itself, and is then abandoned."""
    stopping = asyncio.create_task(client.stop())
    done, _ = await asyncio.wait({stopping}, timeout=WATCH_S)
    if not done:
        stopping.cancel()
    elif not stopping.cancelled():
        stopping.exception()  # retrieve the exception so that asyncio does not log it
