"""Publishes JSON lines to Kafka, keyed by the topic catalogue.

For files, pipes and the command line; agent platforms use the guard's publisher or any Kafka client.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Self

import orjson
from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaConnectionError, KafkaError

from ...errors import ConfigError, EventRejected
from ...schemas.codec import decode_command
from ...schemas.events import epoch_ms
from .access import hidden_topics_error, unreachable
from .broker_queries import hidden_topics
from .kafka_settings import KafkaSettings
from .outputs import partition_of
from .records import STOP_S, bounded, command_key
from .topics import TimeLimits, time_limits

LINGER_S = 0.2  # Longest time in seconds that a line waits to fill a batch
IN_FLIGHT = 64  # Largest number of unacknowledged batches; bounds the memory if the broker is slower than the file
SHOWN = 20  # Number of refused lines that are kept with their reason


@dataclass(slots=True)
class PublishProgress:
    """Progress of a publication."""

    sent: int = 0  # acknowledged lines
    refused: int = 0  # lines without a record key; they are not sent
    # number and reason of the first refused lines; blank lines count
    reasons: list[tuple[int, str]] = field(default_factory=list)


async def publish(
    settings: KafkaSettings,
    lines: Iterable[bytes | str],
    *,
    topic: str = "events",
    event_times: bool = False,
    progress: PublishProgress | None = None,
) -> PublishProgress:
    """Publish JSON lines under their record keys, and wait for the acknowledgement of all.

    Args:
        settings: connection settings.
        lines: one JSON object each; blank lines are skipped. Read in this coroutine's thread.
        topic: catalogue name, `events` or `commands`.
        event_times: stamp each record with its event's `time`, so that workers fold a backlog in order of time across
            partitions (docs/operating.md, Backlogs); by default with the present.
        progress: is updated meanwhile and returned, for who must know it after a failure.

    Raises:
        ConfigError: no broker answers, the topic does not exist or may not be described, or an event's time is one that
            the topic would not keep. Earlier lines may have been written.
        KafkaError: the brokers rejected a batch; earlier ones may have been written.
    """
    progress = progress or PublishProgress()
    name = settings.topic(topic)
    times = RecordTimes(await time_limits(settings, name)) if event_times else None
    async with _BatchSender(settings, name, progress) as sender:
        for number, line in enumerate(lines, 1):
            data = line.strip()
            if not data:
                continue
            data = data.encode() if isinstance(data, str) else data
            at = int(time.time() * 1000)
            try:
                key = record_key(topic, data)
                if times is not None:
                    at = times.of(data, number, at)
            except (EventRejected, ValueError) as error:
                progress.refused += 1
                if len(progress.reasons) < SHOWN:
                    progress.reasons.append((number, str(error)))
            else:
                await sender.add(key, data, at)
    return progress


class RecordTimes:
    """Chooses the timestamps of records by the times of their events."""

    def __init__(self, limits: TimeLimits) -> None:
        """Start with what the topic keeps and what its brokers accept."""
        self._limits = limits

    def of(self, line: bytes, number: int, now_ms: int) -> int:
        """Return the time of an event in milliseconds; the present for a line without one, which becomes a dead letter.

        Args:
            line: the event.
            number: its line number, from 1.
            now_ms: the present, milliseconds.

        Raises:
            ConfigError: the topic would delete the record, or its brokers refuse it.
        """
        stated = orjson.loads(line).get("time")
        try:
            at = epoch_ms(datetime.fromisoformat(stated)) if isinstance(stated, str) else now_ms
        except (ValueError, OverflowError, TypeError):
            return now_ms
        self._limits.check(at, now_ms, f"line {number:,} is of {stated}")
        return max(at, 0)


def record_key(topic: str, line: bytes) -> bytes:
    """Return the record key of a line: of an event its session, of a command its scope.

    Records of one key are ordered in one partition (docs/design/contracts.md#topics).

    Raises:
        EventRejected: the line is no command.
        ValueError: the line is no JSON object with a session.
    """
    if topic == "commands":
        return command_key(decode_command(line)).encode()
    try:
        event = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise ValueError(f"not JSON: {error}") from error
    if not isinstance(event, dict):
        raise ValueError("not a JSON object")  # noqa: TRY004 - a fault of the data, not of a type in the code
    session = event.get("session_id")
    if not isinstance(session, str) or not session:
        raise ValueError("session_id must be a non-empty string")
    return session.encode()


class _BatchSender:
    """Collects one batch per partition and sends it when it is full or old."""

    def __init__(self, settings: KafkaSettings, topic: str, progress: PublishProgress) -> None:
        self._topic = topic
        self._progress = progress
        self._producer = AIOKafkaProducer(
            **settings.client_arguments(), acks="all", enable_idempotence=True, max_batch_size=512 * 1024
        )
        self._settings = settings
        self._partitions = 0
        self._open: dict[int, Any] = {}
        self._sent: set[asyncio.Future[Any]] = set()
        self._flushed = time.monotonic()

    async def __aenter__(self) -> Self:
        try:
            await self._producer.start()
        except KafkaConnectionError as error:
            await self._producer.stop()
            raise await unreachable(self._settings) from error
        except KafkaError:
            await self._producer.stop()
            raise
        for patience in (1.0, 0.0):  # a new topic is not known to all brokers at once
            known = await self._producer.client.fetch_all_metadata()
            self._partitions = len(known.partitions_for_topic(self._topic) or ())
            if self._partitions:
                return self
            await asyncio.sleep(patience)
        denied = await hidden_topics(self._producer.client, [self._topic])
        await self._producer.stop()
        if denied:
            raise hidden_topics_error(self._settings, denied)
        raise ConfigError(f"topic {self._topic} does not exist; run `trustfold topics create`")

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                await self._flush()
                while self._sent:
                    await self._collect()
        finally:
            await bounded(self._producer.stop(), STOP_S, "closing the producer")

    async def add(self, key: bytes, value: bytes, at_ms: int) -> None:
        partition = partition_of(key, self._partitions)
        record = {"key": key, "value": value, "timestamp": at_ms, "headers": []}
        batch = self._open.get(partition)
        if batch is None or batch.append(**record) is None:
            if batch is not None:
                await self._submit(partition)
            batch = self._open[partition] = self._producer.create_batch()
            batch.append(**record)
        if time.monotonic() - self._flushed > LINGER_S:
            await self._flush()

    async def _flush(self) -> None:
        self._flushed = time.monotonic()
        for partition in list(self._open):
            await self._submit(partition)

    async def _submit(self, partition: int) -> None:
        batch = self._open.pop(partition)
        batch.close()
        count = batch.record_count()
        future = await self._producer.send_batch(batch, self._topic, partition=partition)

        def done(sent: asyncio.Future[Any]) -> None:
            if not sent.cancelled() and sent.exception() is None:
                self._progress.sent += count

        future.add_done_callback(done)
        self._sent.add(future)
        while len(self._sent) >= IN_FLIGHT:
            await self._collect()

    async def _collect(self) -> None:
        done, self._sent = await asyncio.wait(self._sent, return_when=asyncio.FIRST_COMPLETED)
        for future in done:
            future.result()
