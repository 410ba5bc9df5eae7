"""The batch lane: one Faust stream event for hundreds of records, instead of one per record.

Faust spends about 135 us of asyncio machinery on each stream event (measured; no setting helps), a fold ten. Here the
event's value is one poll, batches of any partitions, so the machinery runs once for all of them. Membership,
assignment, the commit timer, streams and the agent remain Faust's.

The lane delivers records only while its gate is open, each partition from its expected offset (see `backpressure`), and
the oldest first (see `order`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, cast

import faust
from aiokafka.errors import CommitFailedError, IllegalStateError, KafkaError, ProducerClosed
from aiokafka.structs import OffsetAndMetadata
from faust.transport.drivers import aiokafka as driver
from faust.types import TP
from faust.types.tuples import ConsumerMessage
from mode.threads import MethodQueue, WorkerThread
from mode.utils.futures import notify

from ...errors import DOCS, TrustfoldError
from .backpressure import POLL_S, FoldUnit, LaneGate
from .faults import is_passing
from .order import MergeOrder
from .records import LEAVE_S, bounded

log = logging.getLogger(__name__)

FETCH_WAIT_MS = 200  # Milliseconds that a broker waits for new records before it answers a fetch

BUSY_WAIT_MS = 10
"""Same while there is work.

A fetch leaves out partitions with buffered records, and only one fetch is in flight per broker: a stage's new outputs
would be fetched only after the wait.
"""

# How long aiokafka fetches nothing from a broker while some partition's records wait to be taken. With its 0.1 s a
# buffered backlog would hold up each round of a stage's outputs for that long.
PREFETCH_S = 0.01

HELD_S = 0.01  # Longest wait in seconds for records while others are held back; the cause may end without a new record

# Timeout of a commit in seconds. aiokafka retries without end; the commit timer retries with newer offsets.
COMMIT_S = 5.0

SEEK_S = 30.0  # Timeout in seconds for the offsets of an assignment; after it the recovery restarts

UNLIMITED_S = 1e9

CALLS = 4  # Concurrent calls in the consumer's thread: a poll, a commit and a seek must not wait for each other


def is_cancelled() -> bool:
    """Whether the current task was cancelled; aiokafka may raise CancelledError without a cancellation."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


class PollSchema(faust.Schema):  # type: ignore[type-arg]
    """Passes a poll to the stream unchanged; the processor decodes it and handles errors."""

    def compile(self, app: Any, **_: Any) -> Callable[..., Awaitable[Any]]:
        """Faust's hook: a function from message to event."""
        create_event = app.create_event

        async def decode(message: Any, *, propagate: bool = False) -> Any:  # noqa: ARG001 - Faust's signature
            return create_event(None, message.value, None, message)

        return decode


class DaemonThread(WorkerThread):
    """Daemon thread: neither the interpreter nor the event loop waits for its end."""

    def __init__(self, service: Any, **more: Any) -> None:
        """As mode makes it, but a daemon."""
        super().__init__(service, **more)
        self.daemon = True

    def stop(self) -> None:
        """Wait briefly for the thread. Called on the event loop."""
        if self.is_stopped.wait(1.0):
            self.join(1.0)


class LaneThread(driver.AIOKafkaConsumerThread):
    """Faust's consumer thread with a shorter wait in fetches.

    A fetch leaves out partitions whose records wait to be taken, and only one fetch is under way per broker. With
    Faust's 1.5 s a busy partition can stand still for that long while the others have nothing.
    """

    mundane_level = "debug"
    Worker = DaemonThread
    shutdown_timeout = 2 * LEAVE_S

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._committing = asyncio.Lock()
        self._committed: dict[TP, int] = {}

    def _create_worker_consumer(self, transport: Any) -> Any:
        consumer = super()._create_worker_consumer(transport)
        consumer._fetch_max_wait_ms = BUSY_WAIT_MS
        return consumer

    @property
    def method_queue(self) -> MethodQueue:
        """Queue of calls from the main loop; one waiting for a broker does not block the others."""
        if self._method_queue is None:
            self._method_queue = MethodQueue(num_workers=CALLS, loop=self.thread_loop, beacon=self.beacon)
        return self._method_queue

    async def _commit(self, offsets: Mapping[TP, int], notes: Mapping[TP, str] | None = None) -> bool:
        """Commit offsets with their notes; return False if they were not committed.

        The next commit or a rebalance resolves the cause.

        Raises:
            KafkaError: the brokers refuse the commit for good.
        """
        consumer = self._ensure_consumer()
        assigned = self.assignment()
        try:
            async with asyncio.timeout(COMMIT_S), self._committing:
                # A note may be posted with an offset that was read before a newer one was committed.
                kept = {tp: max(offset, self._committed.get(tp, 0)) for tp, offset in offsets.items() if tp in assigned}
                if not kept:
                    return True
                await consumer.commit(
                    {
                        driver.ensure_aiokafka_TP(tp): OffsetAndMetadata(offset, (notes or {}).get(tp, ""))
                        for tp, offset in kept.items()
                    }
                )
                self._committed.update(kept)
        except (CommitFailedError, IllegalStateError, TimeoutError) as error:
            log.debug("offsets were not committed: %r", error)
            return False
        except KafkaError as error:
            if not is_passing(error):
                raise
            log.debug("offsets were not committed: %r", error)
            return False
        return True

    def set_fetch_wait(self, busy: bool) -> None:  # noqa: FBT001 - a condition
        """Set a short or a long broker wait for the next fetches.

        Short also while a recovery requests offsets: a broker answers them after the pending fetch.
        """
        if self._consumer is not None and self._consumer._fetcher is not None:
            self._consumer._fetcher._fetch_max_wait_ms = BUSY_WAIT_MS if busy else FETCH_WAIT_MS

    def verify_event_path(self, now: float, tp: TP) -> None:
        """Do nothing: the monitor checks progress."""

    async def leave(self) -> None:
        """Leave the group and close the connections, within a time limit. Runs in the consumer's thread."""
        consumer = self._consumer
        if consumer is None or consumer._closed:
            return
        if not await bounded(consumer.stop(), LEAVE_S, "leaving the group"):
            await bounded(consumer._client.close(), LEAVE_S / 2, "closing the consumer's connections")

    async def on_thread_stop(self) -> None:
        """Leave the group first: queued calls of the thread may wait for a broker."""
        await self.leave()
        await bounded(super().on_thread_stop(), LEAVE_S, "ending the consumer's thread")

    def dead(self) -> str:
        """Return the name of a background task of the client that has ended; empty while all run."""
        consumer = self._consumer
        if consumer is None or consumer._closed:
            return ""
        tasks = {
            "group coordination": getattr(consumer._coordinator, "_coordination_task", None),
            "fetching": getattr(consumer._fetcher, "_fetch_task", None),
            "consumer metadata": consumer._client._sync_task,
        }
        return next((name for name, task in tasks.items() if task is not None and task.done()), "")

    def pushed_error(self) -> BaseException | None:
        """Return an error that the group coordination stored for the client's user; Faust never reads it."""
        coordinator = getattr(self._consumer, "_coordinator", None)
        found: BaseException | None = getattr(coordinator, "_pending_exception", None)
        return found

    def acknowledge_error(self) -> None:
        """Clear such an error so that group coordination continues."""

        def check() -> None:
            with contextlib.suppress(Exception):
                self._ensure_consumer()._coordinator.check_errors()

        self.thread_loop.call_soon_threadsafe(check)


class BatchConsumer(driver.Consumer):
    """Faust's aiokafka consumer with the lane in place of its per-record loop."""

    mundane_level = "debug"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """As Faust calls it; the engine hangs on the app."""
        self._done: dict[TP, int] = {}
        self.ends: dict[TP, int] = {}  # log ends of the source partitions when they were put to their offsets
        super().__init__(*args, **kwargs)

    def _new_consumer_thread(self) -> LaneThread:
        return LaneThread(self, loop=self.loop, beacon=self.beacon)

    def release(self) -> None:
        """Close the loop of a thread that was never started: mode closes only those of threads that ran."""
        if not self._thread._thread_started.is_set():
            self._thread.thread_loop.close()

    @property
    def engine(self) -> Any:
        """Return the engine of this consumer."""
        return self.app.engine  # type: ignore[attr-defined]

    # --- delivery ---------------------------------------------------------------------------------------------------

    async def _drain_messages(self, fetcher: Any) -> None:
        """Replace Faust's fetch loop: fill the buffers, and deliver the next records while the gate is open."""
        gate: LaneGate = self.engine.gate
        wait = POLL_S
        try:
            while not (self._stopped.is_set() or fetcher._stopped.is_set()):
                if gate.tenure is None:
                    await gate.wait_open()
                    continue
                with gate.polling():
                    wait = await self._turn(gate, wait)
                if gate.full:
                    await gate.wait_room()
                await asyncio.sleep(0)
        except self.consumer_stopped_errors:
            if not (self.app.should_stop or self.engine.stopping):
                raise
        except asyncio.CancelledError:
            if not (self.app.should_stop or self.engine.stopping):
                raise
        except Exception as error:  # noqa: BLE001 - whatever it is, the worker must not go on without its consumer
            await self.engine.fail(error)

    async def _turn(self, gate: LaneGate, wait: float) -> float:
        """Poll for up to `wait` seconds and deliver the next records; return the wait of the next poll."""
        order: MergeOrder = self.engine.order
        wanted, began = order.wanted(), time.monotonic()
        if wanted:  # aiokafka takes an empty set for "all"
            self._buffer(gate, order, await self._poll(wanted, wait))
        elif wait:
            await asyncio.sleep(wait)
        if order.held:
            self.engine.note_held(order.held, time.monotonic() - began)
        if gate.tenure is None or gate.full:
            return 0.0
        batches = order.take(self.place, [(poll.first, poll.count) for poll in gate.in_flight])
        if batches:
            poll = FoldUnit(gate.tenure, batches)
            gate.delivered(poll)
            await self.callback(self._message_of(poll))
        self.lane_thread.set_fetch_wait(bool(batches or order.held))
        if batches:
            return 0.0
        return HELD_S if order.held or gate.in_flight else POLL_S

    async def _poll(self, wanted: set[TP], wait: float) -> Mapping[Any, list[Any]]:
        try:
            polled: Mapping[Any, list[Any]] = await self._thread.getmany(wanted, wait)
        except KafkaError as error:
            if not is_passing(error):
                raise
            log.debug("nothing was polled: %r", error)
            await asyncio.sleep(1.0)
            return {}
        except asyncio.CancelledError:
            if is_cancelled() or self.app.should_stop:
                raise
            await asyncio.sleep(1.0)  # it came out of aiokafka
            return {}
        return polled

    def _buffer(self, gate: LaneGate, order: MergeOrder, polled: Mapping[Any, list[Any]]) -> None:
        """Buffer polled records, unless the gate has closed meanwhile."""
        if gate.tenure is None:
            return
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
            order.add(tp, records)
            gate.expected[tp] = records[-1].offset + 1

    def _message_of(self, poll: FoldUnit) -> ConsumerMessage:
        """Wrap a poll in Faust's message, named after its first partition."""
        batch = poll.batches[0]
        last = batch.records[-1]
        return ConsumerMessage(
            topic=batch.tp.topic,
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
        """Do nothing: the gate limits the polls."""

    def on_buffer_drop(self, tp: TP) -> None:
        """Do nothing: the gate limits the polls."""

    # --- acknowledgement --------------------------------------------------------------------------------------------

    def ack(self, message: Any) -> bool:
        """Complete Faust's bookkeeping of a poll. Only `mark_done` moves offsets.

        Faust acks in places where nothing was processed: events skipped in a rebalance, events whose agent raised.
        """
        if not isinstance(message.value, FoldUnit):
            return bool(super().ack(message))
        message.acked = True
        self._unacked_messages.discard(message)
        notify(self._waiting_for_ack)
        return True

    def mark_done(self, tp: TP, next_offset: int) -> None:
        """Mark everything of `tp` below `next_offset` as durable; the next commit may include it."""
        self._done[tp] = next_offset
        self._acked[tp]  # a defaultdict: makes the partition known to commit()

    def _new_offset(self, tp: TP) -> int | None:
        return self._done.get(tp)

    async def _commit_offsets(self, offsets: Mapping[TP, int], start_new_transaction: bool = True) -> bool:  # noqa: FBT001, FBT002, ARG002 - Faust's signature
        """Commit what `mark_done` marked. Faust's version counts failed commits as committed, and flushes first."""
        try:
            thread = self.lane_thread
            done = bool(await thread.call_thread(thread._commit, offsets, self.engine.commit_notes(offsets)))
        except Exception as error:  # noqa: BLE001 - reported by failing the worker
            await self.engine.fail(error)
            return False
        if done:
            self._committed_offset.update(offsets)
        return done

    async def post_notes(self) -> None:
        """Commit the committed offsets again, with notes of the present progress."""
        offsets = {tp: self._committed_offset.get(tp) for tp in self.engine.gate.expected}
        known = {tp: offset for tp, offset in offsets.items() if offset}
        if known:
            thread = self.lane_thread
            await thread.call_thread(thread._commit, known, self.engine.commit_notes(known))

    # --- rebalance --------------------------------------------------------------------------------------------------

    async def on_partitions_revoked(self, revoked: set[TP]) -> None:
        """Checkpoint within the revocation timeout, then let Faust clear its queues."""
        await self.engine.on_revoked()
        self._done.clear()
        await super().on_partitions_revoked(revoked)

    async def leave(self) -> None:
        """Leave the group within a time limit; others get the partitions at once."""
        thread = cast("LaneThread", self._thread)
        if thread._consumer is not None and thread.thread_loop.is_running():
            await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(thread.leave(), thread.thread_loop))

    @property
    def lane_thread(self) -> LaneThread:
        """The thread of the aiokafka consumer."""
        return cast("LaneThread", self._thread)

    def forget_done(self) -> None:
        """Discard all marks: nothing marked before may be committed."""
        self._done.clear()

    @property
    def member_generation(self) -> int:
        """Return the generation of this member; -1 after it was removed from the group."""
        consumer = self._thread._consumer
        return int(consumer._coordinator.generation) if consumer is not None else -1

    async def seek_sources(self, partitions: Iterable[TP], progress: Mapping[TP, int]) -> dict[TP, int]:
        """Seek every partition to the first offset that is not durable.

        That is the committed offset, or the offset of the last checkpoint in the changelog if that is higher; without
        either the beginning of the log.

        Returns:
            The offsets.

        Raises:
            OffsetsGone: such an offset is beyond the log's end; the topic was recreated.
        """
        found: dict[TP, tuple[int, int, int]] = await self._thread.call_thread(
            self._seek_sources, list(partitions), progress
        )
        for tp, (offset, committed, _) in found.items():
            self._read_offset[tp] = offset
            self._committed_offset[tp] = committed
            if offset > committed:
                self.mark_done(tp, offset)
        _tell_differences({tp: (committed, first) for tp, (_, committed, first) in found.items()}, progress)
        return {tp: offset for tp, (offset, _, _) in found.items()}

    async def _seek_sources(self, partitions: list[TP], progress: Mapping[TP, int]) -> dict[TP, tuple[int, int, int]]:
        # Runs in the consumer's thread.
        consumer = self._thread._ensure_consumer()
        consumer._fetcher._prefetch_backoff = PREFETCH_S
        places = {tp: driver.ensure_aiokafka_TP(tp) for tp in partitions}
        async with asyncio.timeout(SEEK_S):
            committed = await asyncio.gather(*[consumer.committed(place) for place in places.values()])
            first = await consumer.beginning_offsets(list(places.values()))
            last = await consumer.end_offsets(list(places.values()))
        offsets = {}
        for (tp, place), offset in zip(places.items(), committed, strict=True):
            done = max(offset or 0, progress.get(tp, 0))
            if done > last[place]:
                raise OffsetsGone(tp, done, last[place])
            begin = max(done, first[place])
            offsets[tp] = begin, offset or 0, first[place]
            self.ends[tp] = last[place]
            consumer.seek(place, begin)
        return offsets

    async def notes(self, partitions: Iterable[TP]) -> dict[TP, str]:
        """Return the commit notes of other members' partitions (see `order`); none if no broker answers in time."""
        places = [driver.ensure_aiokafka_TP(tp) for tp in partitions]
        found: dict[TP, str] = await self._thread.call_thread(self._notes, places)
        return found

    async def _notes(self, places: list[Any]) -> dict[TP, str]:
        # Runs in the consumer's thread.
        coordinator = self._thread._ensure_consumer()._coordinator
        try:
            async with asyncio.timeout(COMMIT_S):
                committed = await coordinator.fetch_committed_offsets(places)
        except (KafkaError, TimeoutError) as error:
            log.debug("the other workers' commits were not read: %r", error)
            return {}
        return {TP(place.topic, place.partition): str(commit.metadata or "") for place, commit in committed.items()}

    def place(self, tp: TP) -> tuple[int, int] | None:
        """Return fetch position and log end of a partition, as of the last fetch; None before the first."""
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


def _tell_differences(offsets: Mapping[TP, tuple[int, int]], progress: Mapping[TP, int]) -> None:
    """Report committed offsets that are not those of the states: reset ones, and those of states that are gone.

    Args:
        offsets: committed offset and first offset of the log of each partition.
        progress: offset of each partition to which the states were folded; without partitions that have no state.
    """
    # A group that began after records were deleted commits the first offset before it has folded anything.
    lost = {tp: committed for tp, (committed, first) in offsets.items() if committed > first and tp not in progress}
    if lost:
        (topic, partition), committed = max(lost.items(), key=lambda known: known[1])
        log.warning(
            "the changelogs of %d partitions are empty although records were folded, those of %s/%d up to offset %d: "
            "they were deleted, and what was known of sessions, tools and users is forgotten. "
            "%s/recovery.md#lost-changelogs says how it is built again from what the topics still keep",
            len(lost), topic, partition, committed, DOCS,
        )  # fmt: skip
    newer = {tp: progress[tp] - committed for tp, (committed, _) in offsets.items() if progress.get(tp, 0) > committed}
    if newer:
        (topic, partition), by = max(newer.items(), key=lambda known: known[1])
        log.info(
            "the states of %d partitions are newer than their committed offsets, those of %s/%d by %d records: folding "
            "goes on where the states end; a reset of offsets folds no record again (%s/recovery.md#fold-again)",
            len(newer), topic, partition, by, DOCS,
        )  # fmt: skip


class OffsetsGone(TrustfoldError):
    """A processed offset is beyond the end of its log."""

    def __init__(self, tp: TP, done: int, end: int) -> None:
        """Name the partition and both offsets."""
        super().__init__(
            f"{tp.topic}/{tp.partition} ends at offset {end} but was processed up to {done}: the topic was deleted and "
            "created again, or has lost records. Positions kept in the state would hide its new records. Delete the "
            "consumer group and the changelog topics too, or use another TRUSTFOLD_APP_ID"
        )


class LaneProducer(driver.Producer):
    """Faust's producer, idempotent: a retry cannot write a batch twice, and no batch can overtake a failed one.

    Batches do not expire: during an outage they wait, and the gate holds back the sources.
    """

    mundane_level = "debug"

    def _settings_extra(self) -> Mapping[str, Any]:
        return {"acks": "all", "enable_idempotence": True}

    def _new_producer(self, transactional_id: str | None = None) -> Any:
        producer = super()._new_producer(transactional_id)
        # aiokafka uses one setting for sockets, the age of a batch and the wait for room in its queue. A batch that
        # expires after it was numbered would break its partition for this producer.
        producer._message_accumulator._batch_ttl = UNLIMITED_S
        producer._request_timeout_ms = UNLIMITED_S * 1000
        return producer

    @property
    def client(self) -> Any:
        """The running aiokafka producer."""
        return self._ensure_producer()

    async def renew(self) -> None:
        """Replace a producer whose batches failed by one with a new id.

        Raises:
            KafkaError: no broker answers; the old one is kept.
        """
        producer = self._new_producer()
        try:
            await producer.start()
        except BaseException:
            await _abandon(producer)
            raise
        old, self._producer = self._producer, producer
        if old is not None:
            await _abandon(old)

    def dead(self) -> bool:
        """Whether the task that sends has ended."""
        producer: Any = self._producer
        if producer is None or producer._closed:
            return False
        task = producer._sender.sender_task
        return task is not None and task.done()

    async def flush(self) -> None:
        """Do nothing: checkpoints wait for all acknowledgements."""

    async def on_stop(self) -> None:
        """Stop without waiting for unavailable brokers."""
        producer, self._producer = self._producer, None
        await super().on_stop()
        if producer is not None and not await bounded(producer.stop(), LEAVE_S, "stopping the producer"):
            await _abandon(producer)


async def _abandon(producer: Any) -> None:
    """Close a producer without sending its remaining batches."""
    producer._closed = True
    sender = producer._sender.sender_task
    if sender is not None:
        # aiokafka's callback assumes a transaction and logs an error if the sender failed.
        sender.remove_done_callback(producer._sender._fail_all)
        sender.add_done_callback(_seen)
        sender.cancel()
    accumulator = producer._message_accumulator
    accumulator._closed = True
    for batch in [batch for queue in accumulator._batches.values() for batch in queue]:
        batch._drain_waiter.add_done_callback(_seen)
    # A batch that waits for a retry was removed already; its callback would log an error.
    accumulator._pending_batches = _PendingBatches(accumulator._pending_batches)
    accumulator.fail_all(ProducerClosed())
    await bounded(producer.client.close(), LEAVE_S, "closing the producer's connections")


def _seen(ended: asyncio.Future[Any]) -> None:
    """Retrieve a future's exception, so that asyncio does not log it."""
    if not ended.cancelled():
        ended.exception()


class _PendingBatches(set[Any]):
    """Batches in flight; removing a missing one is not an error."""

    remove = set.discard


class BatchTransport(driver.Transport):
    """Faust's aiokafka transport with this consumer and producer."""

    Consumer = BatchConsumer
    Producer = LaneProducer
