"""Records Kafka: a consumer group of its own copies all topics of the catalogue into the history.

Offsets are committed after the files are in place. The start offset of a partition comes from the files and, on a
machine without them, from the group; so recorders may share a directory or have one each.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, ConsumerRecord, TopicPartition
from aiokafka.errors import (
    CommitFailedError,
    IllegalStateError,
    KafkaConnectionError,
    KafkaError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
)

from ..errors import ConfigError, TrustfoldError
from ..history.files import claim, kafka_source
from ..history.history_error import HistoryError, HistoryFull, HistoryTaken
from ..history.parquet import RECORDED_TOPICS
from ..history.recorder import PartitionRecorder, Place
from ..streams.kafka.access import RIGHTS_ERRORS, hidden_topics_error
from ..streams.kafka.broker_watch import ANSWER_S, INTERVAL_S, READ, BrokerWatch
from ..streams.kafka.faults import describe
from ..streams.kafka.kafka_settings import KafkaSettings
from ..streams.kafka.records import connected_admin, ended
from ..streams.kafka.topic_metadata import ClusterDescription, TopicDescription
from ..streams.kafka.topic_metadata import describe as describe_topics
from .status import LOOP_STUCK_S, RecordingStatus

POLL_MS = 500
POLL_RECORDS = 2000  # Records processed at once: 40 ms of work, so that heartbeats are never late
RETRY_S = 2.0  # Seconds between two attempts while the disk is full
TAKE_S = 0.5  # Seconds between two attempts while another process still owns a partition

TIDY_S = 300.0
TICK_S = 1.0  # Seconds between two updates of the liveness status
LEAVE_S = 3.0  # Longest time in seconds for leaving the group

T = TypeVar("T")


class RecorderWatch(BrokerWatch):
    """Broker watch of a recorder, whose positions are in the names of files."""

    who = "recorder"

    def deleted(self, name: str) -> str:
        """Error message for a deleted topic, with its remedy."""
        return f"topic {name} was deleted under the running recorder. {_ELSEWHERE}"

    def made_anew(self, name: str) -> str:
        """Error message for a topic whose id has changed, with its remedy."""
        return f"topic {name} was deleted and created again under the running recorder. {_ELSEWHERE}"

    def repartitioned(self, _name: str, _before: TopicDescription, _now: TopicDescription) -> str:
        """No error for added partitions: the group assigns them."""
        return ""


class KafkaRecording(ConsumerRebalanceListener):  # type: ignore[misc]
    """One member of the recorders' group."""

    def __init__(
        self,
        recorder: PartitionRecorder,
        settings: KafkaSettings,
        *,
        group: str = "",
        keep_days: int | None = None,
        say: Callable[[str], None] = lambda _text: None,
    ) -> None:
        """Record with the group `group`, by default that of this deployment (`APP_ID-history`)."""
        self._recorder, self._settings = recorder, settings
        self.status = RecordingStatus(recorder, stuck_s=LOOP_STUCK_S)
        self._keep_days, self._say = keep_days, say
        self._group = group or f"{settings.app_id}-history"
        self._names = {settings.topic(topic): topic for topic in RECORDED_TOPICS}
        self._consumer = AIOKafkaConsumer(
            **settings.client_arguments(),
            group_id=self._group,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            session_timeout_ms=int(settings.session_timeout * 1000),
            rebalance_timeout_ms=int(settings.rebalance_timeout * 1000),
        )
        self._writing = asyncio.Lock()
        self._owned: dict[TopicPartition, Place] = {}
        self._wanted: set[TopicPartition] = set()
        self._assigned = asyncio.Event()
        self._take_again = 0.0
        self._waits = False
        self._working: asyncio.Future[Any] | None = None

    async def run(self, stopped: asyncio.Event, *, once: bool = False) -> None:
        """Record until stopped, or once to the current end of the assigned partitions.

        A stop takes at most `stop_timeout`, even while no broker answers: records not in a file by then are read again.

        Raises:
            KafkaError: the brokers cannot be reached or refuse.
            ConfigError: the directory holds another source's history, a topic was deleted or made anew, or a right is
                missing.
        """
        status = self.status
        failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        async def fail(error: BaseException) -> None:
            if not failed.done():
                failed.set_exception(_reported_error(error))

        status.watch = watch = RecorderWatch(self._settings, dict.fromkeys(self._names, (READ,)), fail)
        recording = asyncio.create_task(self._run(watch, stopped, once=once))
        ticking, stop = asyncio.create_task(self._tick()), asyncio.create_task(stopped.wait())
        try:
            ends: set[asyncio.Future[Any]] = {recording, failed, stop}
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            status.stopping = stopped.is_set()
            if status.stopping:
                await asyncio.wait({recording}, timeout=self._settings.stop_timeout)
            if recording.done():
                recording.result()
            elif failed.done():
                failed.result()
            else:
                self._say("stopped before everything was written and committed; the next start reads it again")
        except Exception as error:
            status.failure = describe(error)
            raise
        finally:
            for task in (recording, ticking, stop):
                task.cancel()
            await asyncio.wait({recording, ticking, stop})
            if self._working is not None:
                await asyncio.wait({self._working})
            for one in (recording, failed):
                if one.done() and not one.cancelled():
                    one.exception()  # it has been raised, another error came first, or it comes from the cancellation

    async def _run(self, watch: RecorderWatch, stopped: asyncio.Event, *, once: bool) -> None:
        """Find the cluster, join the group and record."""
        measuring = None
        try:
            cluster = await _described(self._settings, list(self._names))
            cluster_id = cluster.cluster_id or self._settings.bootstrap
            self._recorder.from_source(kafka_source(cluster_id, self._settings.topic_prefix))
            self._check_ids(cluster)
            watch.expect(cluster.topics)
            await self._consumer.start()
            self._consumer.subscribe(list(self._names), listener=self)
            measuring = asyncio.create_task(self._measure(watch))
            await self._record(stopped, once=once)
        finally:
            if measuring is not None:
                await ended(measuring)
            with suppress(KafkaError, TimeoutError):
                async with asyncio.timeout(LEAVE_S):
                    await self._consumer.stop()

    def _check_ids(self, cluster: ClusterDescription) -> None:
        """Compare the topics' ids with those of the recorded topics; brokers before 2.8 have none."""
        for name, topic in cluster.topics.items():
            made = topic.topic_id.hex() if topic.topic_id is not None else ""
            if made and claim(self._recorder.root, made, f".topic-{self._names[name]}") != made:
                raise ConfigError(f"topic {name} was deleted and created again while no recorder ran. {_ELSEWHERE}")

    async def _tick(self) -> None:
        """Update the liveness status every second."""
        while True:
            self.status.turn()
            self.status.assigned, self.status.wanted = len(self._owned), len(self._wanted)
            await asyncio.sleep(TICK_S)

    async def _measure(self, watch: RecorderWatch) -> None:
        """Watch over the brokers and measure how far the files are behind them."""
        watching = asyncio.create_task(watch.run())
        try:
            while True:
                await asyncio.sleep(INTERVAL_S)
                with suppress(KafkaError, TimeoutError):
                    async with asyncio.timeout(ANSWER_S):
                        ends = await self._consumer.end_offsets(list(self._owned))
                    written = self._recorder.written()
                    self.status.lag = {
                        owned: max(ends[place] - written[owned], 0)
                        for place, owned in self._owned.items()
                        if place in ends and owned in written
                    }
        finally:
            await ended(watching)

    async def _in_thread(self, work: Callable[[], T]) -> T:
        """Run blocking work in a thread; `run` waits for it, since a thread cannot be cancelled."""
        working = self._working = asyncio.ensure_future(asyncio.to_thread(work))
        return await asyncio.shield(working)

    async def _record(self, stopped: asyncio.Event, *, once: bool) -> None:
        ends: dict[TopicPartition, int] = {}
        tidied = time.monotonic()
        while not stopped.is_set():
            await self._take()
            batches = await self._consumer.getmany(timeout_ms=POLL_MS, max_records=POLL_RECORDS)
            async with self._writing:  # a rebalance may be writing the waiting rows
                for place, records in batches.items():
                    if records and place in self._owned:  # drop records fetched before a rebalance
                        await self._add(place, records)
            done = False
            if once and self._assigned.is_set() and not self._wanted:
                if ends.keys() != self._owned.keys():
                    ends = await self._consumer.end_offsets(list(self._owned))
                done = await self._reached(ends)
            if self._recorder.due or done:
                await self._flush()
            if done and not self._recorder.counts.disk_full:
                return
            if time.monotonic() - tidied >= TIDY_S:
                tidied = time.monotonic()
                async with self._writing:
                    await self._in_thread(partial(self._recorder.tidy, self._keep_days))
        await self._flush()

    async def _add(self, place: TopicPartition, records: Sequence[ConsumerRecord]) -> None:
        """Add records to the recorder; a gap before the first one means that the log has changed."""
        topic, partition = self._owned[place]
        following = self._recorder.own(topic, partition)
        if records[0].offset != following:
            await self._check_log([(place, following)])
            if records[0].offset < following:
                raise _other_log(self._recorder.root, place, following, records[-1].offset + 1)
        for one in records:
            self._recorder.add(topic, partition, one.offset, one.timestamp, one.key, one.value)

    async def _check_log(self, places: list[tuple[TopicPartition, int]]) -> None:
        """Check that the brokers still have the next records; report deleted ones.

        Raises:
            ConfigError: a log ends before the next offset, so it is a different log.
        """
        begins = await self._consumer.beginning_offsets([place for place, _ in places])
        ends = await self._consumer.end_offsets([place for place, _ in places])
        for place, following in places:
            if ends[place] < following:
                raise _other_log(self._recorder.root, place, following, ends[place])
            if 0 < following < begins[place]:
                self._say(
                    f"the brokers have deleted records {following} to {begins[place] - 1} of {place.topic}, partition "
                    f"{place.partition}, before they were recorded; recording goes on with {begins[place]}"
                )

    async def _reached(self, ends: dict[TopicPartition, int]) -> bool:
        return all(
            [place in self._owned and await self._consumer.position(place) >= end for place, end in ends.items()]
        )

    async def _flush(self) -> None:
        """Write the waiting rows and commit; if the disk is full, stop reading and try again."""
        async with self._writing:
            was_full = self._recorder.counts.disk_full
            try:
                written = await self._in_thread(self._recorder.flush)
            except HistoryFull as full:
                if not was_full:
                    self._say(str(full))
                self._consumer.pause(*self._owned)
                await asyncio.sleep(RETRY_S)
                return
            if was_full:
                self._consumer.resume(*self._owned)
                self._say("there is space again; recording continues where it stopped")
            await self._commit(written)

    async def _commit(self, written: dict[Place, int]) -> None:
        offsets = {place: written[owned] for place, owned in self._owned.items() if owned in written}
        try:
            if offsets:
                await self._consumer.commit(offsets)
        except (CommitFailedError, IllegalStateError):
            pass  # a rebalance is under way; the files have the position

    async def _take(self) -> None:
        """Take ownership of assigned partitions as soon as no other process owns them."""
        if not self._wanted or time.monotonic() < self._take_again:
            return
        async with self._writing:
            taken = [(place, following) for place in sorted(self._wanted) if (following := await self._own(place)) >= 0]
            await self._check_log([one for one in taken if one[1]])
            for place, following in taken:
                self._wanted.discard(place)
                self._owned[place] = (self._names[place.topic], place.partition)
                if following:
                    self._consumer.seek(place, following)
                else:
                    await self._consumer.seek_to_beginning(place)
                self._consumer.resume(place)
            if self._wanted:
                self._take_again = time.monotonic() + TAKE_S
                if not self._waits:
                    self._say(
                        f"{len(self._wanted)} partitions are still recorded into {self._recorder.root} by another "
                        "process; waiting until it releases them"
                    )
            self._waits = bool(self._wanted)

    async def _own(self, place: TopicPartition) -> int:
        """Offset to read a partition from; -1 while another process owns it."""
        committed = await self._consumer.committed(place) or 0
        try:
            return self._recorder.own(self._names[place.topic], place.partition, committed)
        except HistoryTaken:
            return -1

    async def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        """Write the waiting rows, commit, and always release ownership: another process may be waiting."""
        async with self._writing:
            self._assigned.clear()
            try:
                with suppress(HistoryError, KafkaError):  # the next owner reads them again
                    await self._commit(await self._in_thread(self._recorder.flush))
            finally:
                for place in revoked:
                    self._wanted.discard(place)
                    self._owned.pop(place, None)
                    self._recorder.disown(self._names[place.topic], place.partition)

    async def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        """Note the assignment; `_take` takes ownership later, so that its errors reach the caller."""
        places = list(assigned)
        self._consumer.pause(*places)
        self._wanted.update(places)
        self._take_again = 0.0
        self.status.rebalances += 1
        self._assigned.set()


_ELSEWHERE = (
    "Records of a topic that was created again would be taken for recorded: move the directory away, or name another "
    "one (--history) and another --group"
)


def _reported_error(error: BaseException) -> Exception:
    """The watch's finding as an error message; asks the brokers once more why they refuse."""
    if isinstance(error, TrustfoldError):
        return ConfigError(str(error))
    reported: Exception = error if isinstance(error, RIGHTS_ERRORS) else KafkaConnectionError(describe(error))
    return reported


def _other_log(root: Path, place: TopicPartition, following: int, end: int) -> ConfigError:
    return ConfigError(
        f"{root} holds records of {place.topic}, partition {place.partition}, up to {following - 1}, but the log "
        f"ends at {end - 1}. {_ELSEWHERE}"
    )


async def _described(settings: KafkaSettings, topics: list[str]) -> ClusterDescription:
    """Description of the cluster and of topics (real names); waits until every partition has a leader."""
    async with connected_admin(settings) as admin:
        while True:
            cluster = await describe_topics(admin._client, topics)  # noqa: SLF001 - aiokafka has no public API for it
            errors = {name: topic.error for name, topic in cluster.topics.items()}
            if denied := [name for name, error in errors.items() if error == TopicAuthorizationFailedError.errno]:
                raise hidden_topics_error(settings, denied)
            if missing := [name for name, error in errors.items() if error == UnknownTopicOrPartitionError.errno]:
                raise ConfigError(
                    f"there is no topic {missing[0]}; `trustfold topics create` makes it, TRUSTFOLD_TOPIC_PREFIX "
                    "names it"
                )
            # A new topic has partitions without a leader at first; they would be left out of the assignment.
            if not any(topic.error or topic.leaderless for topic in cluster.topics.values()):
                return cluster
            await asyncio.sleep(POLL_MS / 1000)
