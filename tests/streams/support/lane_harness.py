"""Runs workers of the engine's test stages as processes against a real broker, and reads what they left there."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Coroutine, Iterable
from pathlib import Path
from typing import Any, Self, TypeVar

import orjson
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import KafkaError, MessageSizeTooLargeError
from counting import STATE, TOPOLOGY, State
from trustfold.streams.kafka.changelog import EpochFilter
from trustfold.streams.kafka.kafka_settings import KafkaSettings
from trustfold.streams.kafka.lag import offsets_of
from trustfold.streams.kafka.store import OWN
from trustfold.streams.kafka.topics import create_topics
from waiting import wait_until
from warm_process import WarmProcess

SCRIPT = Path(__file__).with_name("counting_worker.py")
T = TypeVar("T")


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end."""
    return asyncio.run(work)


def event(number: int, session: str, tool: str, **more: Any) -> bytes:
    """One event of the test stages; `number` makes its id."""
    value = {"id": f"e{number}", "session": session, "tool": tool, "time": 1_700_000_000_000 + number}
    return orjson.dumps(value | more)


def events(count: int, *, seed: int = 7, sessions: int = 300, tools: int = 25) -> list[tuple[bytes, bytes]]:
    """Keys and values of `count` events over skewed keys."""
    chance = random.Random(seed)
    made = []
    for number in range(count):
        session = f"s{int(chance.random() ** 2 * sessions)}"
        made.append((session.encode(), event(number, session, f"t{chance.randrange(tools)}")))
    return made


class Worker:
    """One worker process; its log is in `log`."""

    def __init__(self, environ: dict[str, str], log: Path) -> None:
        self.log = log
        with log.open("ab") as out:
            self.process = WarmProcess([sys.executable, str(SCRIPT)], env=environ, stdout=out, stderr=subprocess.STDOUT)

    def text(self) -> str:
        """What it has logged."""
        return self.log.read_text(errors="replace")

    def ready(self, timeout: float = 60) -> Worker:
        """Wait until it has taken an assignment."""
        wait_until(
            lambda: "ready in generation" in self.text() or self.process.poll() is not None,
            timeout=timeout,
            what=lambda: f"a worker that is ready\n{self.text()[-3000:]}",
        )
        assert self.process.poll() is None, self.text()[-3000:]
        return self

    def kill(self) -> None:
        """Kill -9."""
        self.process.kill()
        self.process.wait(60)

    def pause(self) -> None:
        """Stop the process where it is (SIGSTOP)."""
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let a paused process go on."""
        self.process.send_signal(signal.SIGCONT)

    def ended(self, timeout: float = 60) -> int:
        """Wait for its end and give back its exit code; fail with its log when it goes on."""
        wait_until(lambda: self.process.poll() is not None, timeout=timeout, what=self.text, every=0.1)
        return int(self.process.returncode)

    def stop(self, timeout: float = 60) -> int:
        """Ask it to stop and give back its exit code."""
        self.process.terminate()
        return self.ended(timeout)


def session_timeout(kind: str) -> str:
    """Seconds after which a killed worker's partitions are given away; Kafka allows less than six only if told to."""
    return "3" if kind == "local" else "6"


class LaneHarness:
    """Topics, workers and readers of one test."""

    def __init__(
        self, bootstrap: str, prefix: str, path: Path, *, partitions: int = 4, replication: int = 0, **environ: str
    ) -> None:
        self.settings = KafkaSettings(
            bootstrap=bootstrap,
            topic_prefix=prefix,
            app_id=f"{prefix}app",
            partitions=partitions,
            replication=replication,
        )
        self.path = path
        self.workers: list[Worker] = []
        self.environ = os.environ | {
            "PYTHONPATH": os.pathsep.join(filter(None, (*map(str, sys.path), os.environ.get("PYTHONPATH", "")))),
            "TRUSTFOLD_BROKER": bootstrap,
            "TRUSTFOLD_TOPIC_PREFIX": prefix,
            "TRUSTFOLD_APP_ID": self.settings.app_id,
            "TRUSTFOLD_PARTITIONS": str(partitions),
            "TRUSTFOLD_SESSION_TIMEOUT": "6",
            "TRUSTFOLD_REVOKE_TIMEOUT": "5",
            "TRUSTFOLD_CHECKPOINT_INTERVAL": "0.2",
            "TRUSTFOLD_COMMIT_INTERVAL": "0.3",
            **environ,
        }

    def __enter__(self) -> Self:
        run(create_topics(self.settings, TOPOLOGY))
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self.workers:
            if worker.process.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    worker.resume()
                worker.kill()

    def start(self, **environ: str) -> Worker:
        """Start a worker; `environ` is added to the test's settings."""
        number = len(self.workers)
        own = {"TRUSTFOLD_DATA_DIR": str(self.path / f"data-{number}")} | environ
        worker = Worker(self.environ | own, self.path / f"worker-{number}.log")
        self.workers.append(worker)
        return worker

    # --- writing ----------------------------------------------------------------------------------------------------

    def publish(self, records: Iterable[tuple[bytes | None, bytes | None]], topic: str = "events") -> None:
        """Write records with their keys and wait for the broker."""

        async def send() -> None:
            producer = AIOKafkaProducer(bootstrap_servers=self.settings.servers, linger_ms=5)
            await producer.start()
            name = self.settings.topic(topic)
            sent = [await producer.send(name, value, key=key) for key, value in records]
            await asyncio.gather(*sent)
            await producer.stop()

        run(send())

    def recreate(self, topic: str) -> None:
        """Delete a catalogue topic and create it anew, empty."""

        async def anew() -> None:
            name = self.settings.topic(topic)
            admin = AIOKafkaAdminClient(bootstrap_servers=self.settings.servers)
            await admin.start()
            await admin.delete_topics([name])
            while name in await admin.list_topics():  # noqa: ASYNC110 - the broker sends no event
                await asyncio.sleep(0.05)
            await create_topics(self.settings, TOPOLOGY)
            await admin.close()

        run(anew())

    def limit(self, topic: str, size: int) -> None:
        """Let the broker refuse batches above a size on a catalogue topic, and wait until it does."""

        async def alter() -> None:
            admin = AIOKafkaAdminClient(bootstrap_servers=self.settings.servers)
            await admin.start()
            name, config = self.settings.topic(topic), {"max.message.bytes": str(size)}
            await admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, name, config)])
            await admin.close()
            async with AIOKafkaProducer(bootstrap_servers=self.settings.servers) as producer:

                async def takes(length: int) -> bool:
                    with contextlib.suppress(MessageSizeTooLargeError):
                        return bool(await producer.send_and_wait(name, bytes(length)))
                    return False

                # The change is acknowledged before each part of the broker has it; a batch has 70 bytes of its own.
                while await takes(size) or not await takes(size - 90):
                    pass

        run(alter())

    # --- reading ----------------------------------------------------------------------------------------------------

    def read(self, topic: str) -> dict[int, list[Any]]:
        """All records of a topic (real name) by partition, from the beginning to the end of now."""

        async def collect() -> dict[int, list[Any]]:
            async with _reader(self.settings.servers) as consumer:
                places = await _places(consumer, topic)
                ends = await consumer.end_offsets(places)
                consumer.assign(places)
                await consumer.seek_to_beginning(*places)
                found: dict[int, list[Any]] = {place.partition: [] for place in places}
                left = {place for place in places if ends[place]}
                while left:
                    for place, records in (await consumer.getmany(timeout_ms=200)).items():
                        found[place.partition] += records
                    left = {place for place in left if await consumer.position(place) < ends[place]}
                return found

        return run(collect())

    def count(self, topic: str) -> int:
        """Records ever written to a catalogue topic."""

        async def ends() -> int:
            async with _reader(self.settings.servers) as consumer:
                places = await _places(consumer, self.settings.topic(topic))
                return sum((await consumer.end_offsets(places)).values())

        return run(ends())

    def watch(self, topic: str, reached: int, timeout: float = 60) -> int:
        """Wait until a catalogue topic holds that many records; faster than asking `count` again and again."""

        async def ask() -> int:
            async with _reader(self.settings.servers) as consumer:
                places = await _places(consumer, self.settings.topic(topic))
                deadline = time.monotonic() + timeout
                while (have := sum((await consumer.end_offsets(places)).values())) < reached:
                    if time.monotonic() > deadline:
                        raise AssertionError(f"{topic} has {have} records, wanted {reached}\n{self.logs()}")
                    await asyncio.sleep(0.02)
                return have

        return run(ask())

    def committed(self) -> dict[tuple[str, int], tuple[int, int]]:
        """Committed offset and log end of each source partition; -1 where nothing was committed."""

        async def ask() -> dict[tuple[str, int], tuple[int, int]]:
            names = {self.settings.topic(name): name for name in ("events", "outcomes", "commands")}
            offsets = await offsets_of(self.settings, self.settings.app_id)
            async with _reader(self.settings.servers) as consumer:
                places = [place for name in names for place in await _places(consumer, name)]
                ends = (await consumer.end_offsets(places)).items()
            return {(names[at.topic], at.partition): (offsets.get(at, -1), end) for at, end in ends}

        return run(ask())

    def members(self) -> int:
        """Members of the consumer group, as the broker knows it."""

        async def ask() -> int:
            admin = AIOKafkaAdminClient(bootstrap_servers=self.settings.servers)
            await admin.start()
            described = await admin.describe_consumer_groups([self.settings.app_id])
            await admin.close()
            return len(described[0].groups[0][5])

        return run(ask())

    def settled(self, timeout: float = 60) -> None:
        """Wait until everything written so far is committed, through all stages."""
        last: dict[Any, Any] = {}

        def done() -> bool:
            last.clear()
            with contextlib.suppress(KafkaError, TimeoutError):  # a broker that starts may refuse for a moment
                last.update(self.committed())
            return bool(last) and all(offset == end or (offset < 0 and not end) for offset, end in last.values())

        def behind() -> str:
            late = {place: spot for place, spot in last.items() if spot[0] != spot[1]}
            return f"everything committed; behind: {late}\n{self.logs()}"

        wait_until(done, timeout=timeout, what=behind, every=0.25)

    def states(self, stage: str) -> dict[str, State]:
        """State of every key of a stage, as a new owner would read it from the changelog."""
        found: dict[str, State] = {}
        for records in self.read(self.settings.changelog(stage)).values():
            for key, value in EpochFilter().read(records).states:
                if value is None:
                    found.pop(key.decode(), None)
                elif not key.startswith(OWN):
                    found[key.decode()] = STATE.decode(value)
        return found

    def ids(self, topic: str) -> Counter[str]:
        """How often each output id stands on a catalogue topic."""
        return Counter(
            dict(record.headers)["ce_id"].decode()
            for records in self.read(self.settings.topic(topic)).values()
            for record in records
        )

    def logs(self) -> str:
        """The end of every worker's log."""
        return "\n".join(f"--- {worker.log.name}\n{worker.text()[-1500:]}" for worker in self.workers)


@contextlib.asynccontextmanager
async def _reader(servers: list[str], **more: Any) -> Any:
    consumer = AIOKafkaConsumer(
        bootstrap_servers=servers, auto_offset_reset="earliest", enable_auto_commit=False, **more
    )
    try:
        await consumer.start()
        yield consumer
    finally:
        await consumer.stop()


async def _places(consumer: Any, topic: str) -> list[TopicPartition]:
    numbers = await consumer._client._wait_on_metadata(topic)
    return [TopicPartition(topic, number) for number in sorted(numbers)]
