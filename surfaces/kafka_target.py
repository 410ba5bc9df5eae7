"""Kafka as a target: the `state` topic is read whole, orders go to `commands`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar

import orjson

from ..projections.calls.keys import scope_of_key
from ..projections.rule_source import RuleSource
from ..schemas.codec import encode
from ..schemas.commands import Command
from ..schemas.errors import ConfigError, TrustfoldError
from ..schemas.events import SessionSettingsChanged
from ..schemas.levels import set_by
from ..schemas.outcomes import DEFAULT_WORKSPACE, US
from ..schemas.settings import SettingsChanged
from ..streams.dead_letters import original
from ..streams.embedded.topology import LogRecord
from .output import TookTooLong, Unreachable
from .targets import Known, Letter, Overview, Record, Reloaded, Who

try:
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
    from aiokafka.admin import AIOKafkaAdminClient
    from aiokafka.errors import KafkaConnectionError, KafkaError, KafkaTimeoutError

    from ..streams.kafka.settings import KafkaSettings
except ImportError as missing:
    raise ConfigError(
        f"Kafka is not installed here ({missing}); pip install 'trustfold[kafka]', or in a checkout `make install`"
    ) from missing

TIMEOUT_S = 30.0
"""Seconds without a record, or without an acknowledgement, after which we give up."""

T = TypeVar("T")


class Stored(NamedTuple):
    """A record as it was read."""

    ref: str
    key: str
    value: bytes | None
    timestamp: int


class Sent(NamedTuple):
    """A record to write; `topic` is the real name."""

    topic: str
    key: bytes | None
    value: bytes | None


class KafkaTarget:
    """One cluster, under one topic prefix."""

    def __init__(self, bootstrap: str | None = None) -> None:
        """Talk to the given brokers, else to those of the environment.

        Raises:
            ConfigError: the environment's Kafka settings make no sense.
        """
        self.kafka = KafkaSettings.from_env(bootstrap=bootstrap)

    @property
    def name(self) -> str:
        """For messages."""
        return self.kafka.bootstrap

    def overview(self) -> Overview:
        """Latest record of every key of the `state` topic."""
        latest: dict[str, bytes | None] = {}
        for record in self._read("state"):
            latest[record.key] = record.value
        return Overview([orjson.loads(value) for _, value in sorted(latest.items()) if value is not None], None)

    def history(self, limit: int) -> list[Record]:
        """Latest decisions about tools, oldest first."""
        records = [record for topic in ("escalations", "breakers") for record in self._read(topic)]
        decisions = [orjson.loads(record.value) for record in records if record.value]
        return sorted(decisions, key=lambda decision: str(decision["time"]))[-limit:]

    def order(self, commands: Sequence[Command]) -> None:
        """Write commands; the workers apply them as they read them."""
        topic = self.kafka.topic("commands")
        self._write([Sent(topic, record_key(command).encode(), encode(command)) for command in commands])

    def settings(self, who: Who) -> Known:
        """What the scopes of somebody set, by the `settings` topic."""
        source = RuleSource()
        for record in self._read("settings"):
            source.fold(LogRecord(record.key.encode(), record.value, 0), 0)
        here = "what the workers' own rules file and environment, and the session, set is not known over Kafka"
        return Known(source.base, source.levels(who.workspace, who.user), here)

    def save(self, changes: Sequence[SettingsChanged]) -> None:
        """Write settings, a tombstone for a scope that overrides nothing; the workers apply them as they read them."""
        topic = self.kafka.topic("settings")
        self._write(
            [Sent(topic, one.scope.encode(), encode(one) if set_by(one.overrides) else None) for one in changes]
        )

    def tell(self, events: Sequence[SessionSettingsChanged]) -> None:
        """Write events of sessions."""
        topic = self.kafka.topic("events")
        self._write([Sent(topic, event.session_id.encode(), encode(event)) for event in events])

    def reload(self) -> Reloaded:
        """Refuse: workers have files of their own.

        Raises:
            TrustfoldError: always.
        """
        raise TrustfoldError("each worker reads its own files by itself, about a second after they change")

    def dead_letters(self, *, everything: bool) -> list[Letter]:
        """Every dead letter that the topic still holds, once; Kafka does not know which were published again."""
        del everything
        letters = (Letter(one.ref, orjson.loads(one.value)) for one in self._read("dead-letters") if one.value)
        return list({letter.body["id"]: letter for letter in letters}.values())

    def republish(self, letters: Sequence[Letter]) -> None:
        """Write the records behind dead letters to their topics again."""
        self._write(
            [
                Sent(self.kafka.topic(one.body["topic"]), original(one.body, "key"), original(one.body, "value"))
                for one in letters
            ]
        )

    def _read(self, topic: str) -> list[Stored]:
        return self._run(lambda: _read_whole(self.kafka, self.kafka.topic(topic)))

    def _write(self, records: Sequence[Sent]) -> None:
        self._run(lambda: _write_all(self.kafka, records))

    def _run(self, work: Callable[[], Awaitable[T]]) -> T:
        async def timed() -> T:
            async with asyncio.timeout(TIMEOUT_S):
                return await work()

        with reaching_kafka(self.kafka.bootstrap):
            return asyncio.run(timed())


@contextmanager
def reaching_kafka(servers: str = "") -> Iterator[None]:
    """Turn what aiokafka raises into our errors: nobody there (at `servers`), no answer in time, refused."""
    quiet = logging.getLogger("aiokafka")
    if not logging.getLogger().handlers:
        quiet.setLevel(logging.CRITICAL)  # what it logs is what we raise
    try:
        yield
    except ConfigError as error:
        if isinstance(error.__cause__, KafkaConnectionError):
            raise Unreachable(str(error)) from error
        raise
    except (TimeoutError, KafkaTimeoutError) as error:
        raise TookTooLong(f"Kafka did not answer in time ({error or f'{TIMEOUT_S:.0f} s'}); look at its log") from error
    except KafkaConnectionError as error:
        where = f" at {servers}" if servers else ""
        raise Unreachable(
            f"no Kafka answers{where}; is it running, is --bootstrap or TRUSTFOLD_BROKER right?"
        ) from error
    except KafkaError as error:
        raise TrustfoldError(f"Kafka refused: {error}") from error


def record_key(command: Command) -> str:
    """Record key of a command: that of the outcomes it acts on (design 2, Topics)."""
    return f"{command.workspace_id or DEFAULT_WORKSPACE}{US}{scope_of_key(command.key)}"


async def _read_whole(settings: KafkaSettings, topic: str) -> list[Stored]:
    """Every record of a topic, up to the end it has now, oldest first."""
    places = [TopicPartition(topic, number) for number in await _partitions(settings, topic)]
    consumer = AIOKafkaConsumer(**settings.client_arguments(), enable_auto_commit=False, auto_offset_reset="earliest")
    try:
        await consumer.start()
        consumer.assign(places)
        await consumer.seek_to_beginning(*places)
        ends = await consumer.end_offsets(places)
        found: list[Stored] = []
        while [place for place in places if await consumer.position(place) < ends[place]]:
            for place, records in (await consumer.getmany(*places, timeout_ms=500)).items():
                found += [
                    Stored(f"{place.partition}:{one.offset}", _text(one.key), one.value, one.timestamp)
                    for one in records
                    if one.offset < ends[place]
                ]
        return sorted(found, key=lambda record: record.timestamp)
    finally:
        await consumer.stop()


async def _partitions(settings: KafkaSettings, topic: str) -> list[int]:
    admin = AIOKafkaAdminClient(**settings.client_arguments())
    try:
        await admin.start()
        (found,) = await admin.describe_topics([topic])
    finally:
        await admin.close()
    if found["error_code"]:
        raise ConfigError(
            f"there is no topic {topic}; `trustfold topics create` makes it, TRUSTFOLD_TOPIC_PREFIX names it"
        )
    return [partition["partition"] for partition in found["partitions"]]


def _text(key: bytes | None) -> str:
    return (key or b"").decode(errors="replace")


async def _write_all(settings: KafkaSettings, records: Sequence[Sent]) -> None:
    """Write records and wait until the brokers have acknowledged all of them."""
    arguments: dict[str, Any] = settings.client_arguments()
    producer = AIOKafkaProducer(**arguments, acks="all", enable_idempotence=True)
    try:
        await producer.start()
        waiting = [await producer.send(one.topic, one.value, key=one.key) for one in records]
        await asyncio.gather(*waiting)
    finally:
        await producer.stop()
