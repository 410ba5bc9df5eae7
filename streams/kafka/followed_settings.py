"""Reader of the `settings` topic in every worker: completely before folding, then continuously.

Without consumer group and checkpoint: the topic is compacted and small, so each start reads all of it. An invalid
record becomes a dead letter; every worker writes it with the same id.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import ConsumerStoppedError

from ...projections.emitter import StageOutput
from ...projections.rule_source import TOPIC, RuleSource
from .changelog import changelog_reader
from .kafka_settings import KafkaSettings
from .records import LEAVE_S, bounded, partitions_of, read_spans

WAIT_MS = 100  # Longest poll in milliseconds, here and at the broker; also bounds the delay of a recovery


class SettingsFollower:
    """Applies records of the topic to a source of rules; the rulebook uses them from a checkpoint on."""

    def __init__(
        self, settings: KafkaSettings, source: RuleSource, put: Callable[[Sequence[StageOutput], int], None]
    ) -> None:
        """Update `source`; `put` takes dead letters and the partition of their record."""
        self._settings = settings
        self._source = source
        self._put = put
        self.positions: dict[str, int] = {}  # offset after the last record read, by partition
        self._consumer: Any = None
        self._places: list[TopicPartition] = []
        self._lock = asyncio.Lock()

    async def catch_up(self) -> None:
        """Apply all records that the topic holds now.

        Raises:
            ConfigError: the topic does not exist.
        """
        async with self._lock:
            if self._consumer is None:
                self._consumer = await self._start()
            ends = await self._consumer.end_offsets(self._places)
            if not self._consumer.assignment():  # not before: questions wait behind a fetch that waits for records
                self._consumer.assign(self._places)
                await self._consumer.seek_to_beginning(*self._places)
            while [place for place in self._places if await self._consumer.position(place) < ends[place]]:
                await self._take()

    async def follow(self) -> None:
        """Apply new records until stopped."""
        while True:
            async with self._lock:
                if self._consumer is None:
                    return
                try:
                    await self._take()
                except ConsumerStoppedError:
                    return

    async def read(self, source: RuleSource, until: Mapping[str, int]) -> None:
        """Apply the records before given offsets to another source; their faults were reported before."""
        places = {TopicPartition(self._settings.topic(TOPIC), int(number)): end for number, end in until.items()}
        async with changelog_reader(self._settings) as reader:
            ends = await reader.end_offsets(list(places))
            spans = {place: (0, min(end, ends[place])) for place, end in places.items()}
            async for place, records, _ in read_spans(reader, spans):
                for record in records:
                    source.fold(record, place.partition)

    async def stop(self) -> None:
        """Stop reading at once, also in the middle of a poll."""
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            await bounded(consumer.stop(), LEAVE_S, "closing the reader of the settings")

    async def _start(self) -> Any:
        name = self._settings.topic(TOPIC)
        self._places = [TopicPartition(name, number) for number in await partitions_of(self._settings, name)]
        consumer = AIOKafkaConsumer(
            **self._settings.client_arguments(),
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            fetch_max_wait_ms=WAIT_MS,
        )
        try:
            await consumer.start()
        except BaseException:
            await bounded(consumer.stop(), LEAVE_S, "closing the reader of the settings")
            raise
        return consumer

    async def _take(self) -> None:
        for place, records in (await self._consumer.getmany(timeout_ms=WAIT_MS)).items():
            for record in records:
                letter = self._source.fold(record, place.partition)
                self.positions[str(place.partition)] = record.offset + 1
                if letter is not None:
                    self._put([letter], place.partition)
