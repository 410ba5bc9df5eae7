"""Claims changelog partitions, reads them back, and checks writes of other workers (rules: `changelog`)."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from aiokafka import TopicPartition

from ...errors import ConfigError
from .changelog import CLAIM_KEY, EpochFilter, Fenced, changelog_reader
from .metrics import LaneMetrics
from .records import read_spans
from .settings import KafkaSettings
from .store import PartitionStore
from .task import PartitionTask

log = logging.getLogger(__name__)


class Changelogs:
    """Changelog partitions of this worker's stages."""

    def __init__(self, settings: KafkaSettings, producer: Callable[[], Any], metrics: LaneMetrics) -> None:
        """Create it; `producer` returns the running aiokafka producer."""
        self._settings = settings
        self._producer = producer
        self._metrics = metrics

    def place(self, stage: str, partition: int) -> TopicPartition:
        """Changelog partition of a stage partition."""
        return TopicPartition(self._settings.changelog(stage), partition)

    async def claim(self, places: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Append a claim to every partition; the offsets returned are this worker's epochs."""
        producer = self._producer()
        who = json.dumps({"host": socket.gethostname(), "pid": os.getpid()}).encode()

        async def claim(place: TopicPartition) -> int:
            while True:
                sent = await producer.send(place.topic, who, key=CLAIM_KEY, partition=place.partition)
                result = await sent
                if result.offset >= 0:  # after a retry the broker may not report the first write's offset
                    return int(result.offset)

        places = list(places)
        return dict(zip(places, await asyncio.gather(*[claim(place) for place in places]), strict=True))

    async def read_back(
        self, stores: Mapping[TopicPartition, PartitionStore], claims: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, set[bytes]]:
        """Bring every store up to its claim.

        Returns:
            Keys whose states must be written again, by partition.

        Raises:
            ConfigError: a store is ahead of the claim, so it is a copy of another changelog.
        """
        spans = {}
        for place, store in stores.items():
            if store.next_offset > claims[place]:
                raise ConfigError(
                    f"the local copy of {place.topic}/{place.partition} reaches offset {store.next_offset} but the "
                    f"changelog ended at {claims[place]}: it was deleted and created again. "
                    f"Delete {self._settings.data_dir}"
                )
            spans[place] = (store.next_offset, claims[place] + 1)
        filters = {place: EpochFilter(store.epoch) for place, store in stores.items()}
        stale: dict[TopicPartition, set[bytes]] = {}
        async with changelog_reader(self._settings) as reader:
            async for place, records, position in read_spans(reader, spans):
                found = filters[place].read(records)
                stores[place].write(found.states, next_offset=position, epoch=filters[place].epoch)
                self._metrics.recovered_records += len(records)
                if stale.get(place):
                    stale[place] -= {key for key, _ in found.states}
                if found.stale:
                    self._metrics.stale_records += len(found.stale)
                    stale.setdefault(place, set()).update(found.stale)
        return stale

    async def inspect(self, task: PartitionTask, start: int, end: int | None) -> int:
        """Check writes of other workers in a task's changelog from `start` up to `end` (None: to its end).

        Keys of stale states are added to `task.rewrite`.

        Returns:
            Offset at which it stopped.

        Raises:
            Fenced: a newer claim was found.
        """
        place = self.place(task.stage, task.partition)
        epochs = EpochFilter(task.epoch)
        async with changelog_reader(self._settings) as reader:
            if end is None:
                end = (await reader.end_offsets([place]))[place]
            async for _, records, _ in read_spans(reader, {place: (start, end)}):
                found = epochs.read(records)
                if epochs.epoch > task.epoch:
                    raise Fenced(
                        f"{place.topic}/{place.partition} was claimed by another worker; "
                        "nothing done since the last checkpoint was acknowledged"
                    )
                if found.stale:
                    self._metrics.stale_records += len(found.stale)
                    task.rewrite |= found.stale
                    log.warning(
                        "%d states were written to %s/%d by a worker that no longer owned it; they are written again",
                        len(found.stale),
                        place.topic,
                        place.partition,
                    )
        return end

    async def check_foreign_writes(self, tasks: Collection[PartitionTask]) -> None:
        """Compare the ends of the changelogs with this worker's writes, and inspect records after them.

        An owner with nothing to write would not notice them otherwise. Call it while no checkpoint runs.

        Raises:
            Fenced: see `inspect`.
        """
        if not tasks:
            return
        places = {self.place(task.stage, task.partition): task for task in tasks}
        async with changelog_reader(self._settings) as reader:
            ends = await reader.end_offsets(list(places))
        for place, task in places.items():
            if ends[place] > task.log_next:
                task.log_next = await self.inspect(task, task.log_next, ends[place])
