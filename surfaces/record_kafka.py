"""Recording Kafka: a consumer group of its own copies every topic of the catalogue into the history.

Offsets are committed after the files are in place. Which partition is read from where follows from the files and, on a
machine without them, from the group; so recorders may share a directory or have one each.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from contextlib import suppress

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import CommitFailedError, IllegalStateError

from ..history.errors import HistoryFull, HistoryTaken
from ..history.parquet import RECORDED_TOPICS
from ..history.recorder import Place, Recorder
from ..schemas.errors import ConfigError
from ..streams.kafka.settings import KafkaSettings

POLL_MS = 500
POLL_RECORDS = 2000
"""Records taken at once: 40 ms of work, so that heartbeats are never late."""

RETRY_S = 2.0
"""Seconds between two tries while the disk is full, or another process still has a partition."""

TIDY_S = 300.0
UNKNOWN_TOPIC = 3
"""Kafka's error code."""


class KafkaRecording(ConsumerRebalanceListener):  # type: ignore[misc]
    """One member of the recorders' group."""

    def __init__(
        self,
        recorder: Recorder,
        settings: KafkaSettings,
        *,
        group: str = "",
        keep_days: int | None = None,
        say: Callable[[str], None] = lambda _text: None,
    ) -> None:
        """Record with the group `group`, by default that of this deployment (`APP_ID-history`)."""
        self._recorder, self._settings = recorder, settings
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
        self._full = False

    async def run(self, stopped: asyncio.Event, *, once: bool = False) -> None:
        """Record until told to stop, or once to the present end of the assigned partitions.

        Raises:
            KafkaError: the brokers cannot be reached or refuse.
            ConfigError: the directory holds another source's history.
        """
        cluster = await _cluster(self._settings, list(self._names))
        self._recorder.from_source(f"kafka {cluster} {self._settings.topic_prefix}*")
        try:
            await self._consumer.start()
            self._consumer.subscribe(list(self._names), listener=self)
            await self._record(stopped, once=once)
        finally:
            await self._consumer.stop()

    async def _record(self, stopped: asyncio.Event, *, once: bool) -> None:
        ends: dict[TopicPartition, int] = {}
        tidied = time.monotonic()
        while not stopped.is_set():
            await self._take()
            batches = await self._consumer.getmany(timeout_ms=POLL_MS, max_records=POLL_RECORDS)
            async with self._writing:  # a rebalance may be writing what waits
                for place, records in batches.items():
                    if place in self._owned:
                        topic, partition = self._owned[place]
                        for one in records:
                            self._recorder.add(topic, partition, one.offset, one.timestamp, one.key, one.value)
            if once and not ends and self._assigned.is_set() and not self._wanted:
                ends = await self._consumer.end_offsets(list(self._owned))
            done = bool(ends) and await self._reached(ends)
            if self._recorder.due or done:
                await self._flush()
            if done and not self._full:
                return
            if time.monotonic() - tidied >= TIDY_S:
                tidied = time.monotonic()
                async with self._writing:
                    await asyncio.to_thread(self._recorder.tidy, self._keep_days)
        await self._flush()

    async def _reached(self, ends: dict[TopicPartition, int]) -> bool:
        return all(
            [place in self._owned and await self._consumer.position(place) >= end for place, end in ends.items()]
        )

    async def _flush(self) -> None:
        """Write what waits and commit it; with a full disk, read no further and try again."""
        async with self._writing:
            try:
                written = await asyncio.to_thread(self._recorder.flush)
            except HistoryFull as full:
                if not self._full:
                    self._say(str(full))
                    self._full = True
                self._consumer.pause(*self._owned)
                await asyncio.sleep(RETRY_S)
                return
            if self._full:
                self._full = False
                self._consumer.resume(*self._owned)
                self._say("there is room again; recording goes on where it stopped")
            await self._commit(written)

    async def _commit(self, written: dict[Place, int]) -> None:
        offsets = {place: written[owned] for place, owned in self._owned.items() if owned in written}
        try:
            if offsets:
                await self._consumer.commit(offsets)
        except (CommitFailedError, IllegalStateError):
            pass  # the group is being shared out anew; the files say how far we are

    async def _take(self) -> None:
        """Take up partitions that another process had not let go of before."""
        for place in list(self._wanted):
            await self._own(place)

    async def _own(self, place: TopicPartition) -> None:
        topic = self._names[place.topic]
        committed = await self._consumer.committed(place) or 0
        try:
            following = self._recorder.own(topic, place.partition, committed)
        except HistoryTaken:
            self._wanted.add(place)
            self._consumer.pause(place)
            await asyncio.sleep(0.1)
            return
        self._wanted.discard(place)
        self._owned[place] = (topic, place.partition)
        self._consumer.resume(place)
        if following:
            self._consumer.seek(place, following)
        else:
            await self._consumer.seek_to_beginning(place)

    async def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        """Write what waits, commit, and let go."""
        async with self._writing:
            with suppress(HistoryFull):  # whoever takes over reads it again
                await self._commit(await asyncio.to_thread(self._recorder.flush))
            for place in revoked:
                self._wanted.discard(place)
                owned = self._owned.pop(place, None)
                if owned is not None:
                    self._recorder.disown(*owned)

    async def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        """Take partitions and go on where their files end."""
        async with self._writing:
            for place in assigned:
                await self._own(place)
            self._assigned.set()


async def _cluster(settings: KafkaSettings, topics: list[str]) -> str:
    """Identity of the cluster, for offsets mean something only there; waits until it leads every partition.

    Raises:
        ConfigError: a topic does not exist.
    """
    admin = AIOKafkaAdminClient(**settings.client_arguments())
    try:
        await admin.start()
        while True:
            found = await admin.describe_topics(topics)
            missing = [one["topic"] for one in found if one["error_code"] == UNKNOWN_TOPIC]
            if missing:
                raise ConfigError(
                    f"there is no topic {missing[0]}; `trustfold topics create` makes it, TRUSTFOLD_TOPIC_PREFIX "
                    "names it"
                )
            # A topic made a moment ago has partitions that nobody leads yet; they would be left out of the assignment.
            if all(one["error_code"] == 0 and all(p["leader"] >= 0 for p in one["partitions"]) for one in found):
                break
            await asyncio.sleep(POLL_MS / 1000)
        return str((await admin.describe_cluster()).get("cluster_id") or settings.bootstrap)
    finally:
        await admin.close()
