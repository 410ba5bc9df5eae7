"""`make soak`: one worker on a real broker under session churn; what it holds must stop growing once sessions expire.

Sessions come and go at a given rate, each in a workspace that few others share, and everything is over after minutes
without a record. Sampled are the worker's memory, states and lag, and its changelogs as a recovery would read them.
Never a test: it takes as long as it is told, and its figures depend on the machine.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson
import psutil
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from bench_broker import broker, make_topics
from bench_options import say
from bench_worker import DeployedWorker, labelled
from trustfold.projections.topology import STAGES
from trustfold.streams.kafka.kafka_settings import KafkaSettings

COMPACTION = {
    "cleanup.policy": "compact",
    "min.compaction.lag.ms": "20000",
    "max.compaction.lag.ms": "40000",
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": "20000",
    "segment.ms": "20000",
}
"""Of the changelogs here: a run of minutes must see what a deployment sees in hours."""

TOLERATED_GROWTH = 0.10
"""Share by which the peak of the second half of the steady part may lie above that of the first."""

SETTLED_AFTER, SETTLED_AFTER_S = 4, 120
"""Idle times, and seconds beside them, until what is dropped balances what is made: sessions go after two idle times,
keys that followers know of after four, all of them by the minute, and compaction follows."""

LEAST_STEADY = 4
"""Samples below which nothing is compared."""

SESSIONS_IN_A_WORKSPACE = 50
DRAIN_S = 120


@dataclass(frozen=True)
class Sample:
    """What was seen at one time.

    Attributes:
        seconds: since the start.
        published: events so far.
        memory_mb: resident memory of the worker.
        states: stored states, by stage.
        dropped: idle states dropped so far.
        lag: records behind, all topics.
        changelog_mb: keys and values of all changelogs, read from their beginning.
        changelog_records: of these.
    """

    seconds: float
    published: int
    memory_mb: float
    states: dict[str, int]
    dropped: int
    lag: int
    changelog_mb: float
    changelog_records: int


class Publisher:
    """Publishes calls of sessions that come and go, at a rate."""

    def __init__(self, settings: KafkaSettings, rate: float, live: int, length: int) -> None:
        """`live` sessions at a time, each of `length` events."""
        self.published = 0
        self._settings, self._rate, self._live, self._length = settings, rate, live, length

    async def run(self, until: float) -> None:
        """Publish until a monotonic time."""
        topic = self._settings.topic("events")
        events = self._events()
        async with AIOKafkaProducer(bootstrap_servers=self._settings.servers, acks=1, linger_ms=20) as producer:
            began = time.monotonic()
            while (now := time.monotonic()) < until:
                owed = int((now - began) * self._rate) - self.published
                for key, value in itertools.islice(events, max(owed, 0)):
                    await producer.send(topic, value, key=key)
                    self.published += 1
                await asyncio.sleep(0.05)
            await producer.flush()

    def _events(self) -> Iterator[tuple[bytes, bytes]]:
        numbers = itertools.count()
        sessions = [self._session(next(numbers)) for _ in range(self._live)]
        while True:
            for place, session in enumerate(sessions):
                event = next(session, None)
                if event is None:
                    sessions[place] = self._session(next(numbers))
                else:
                    yield event

    def _session(self, number: int) -> Iterator[tuple[bytes, bytes]]:
        name = f"session-{number:08d}"
        for made in range(self._length):
            call, started = made // 2, made % 2 == 0
            body: dict[str, Any] = {
                "schema_version": "1.0",
                "id": str(uuid.uuid4()),
                "type": "tool_call.started" if started else "tool_call.finished",
                "time": datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
                "session_id": name,
                "workspace_id": f"workspace-{number // SESSIONS_IN_A_WORKSPACE:07d}",
                "user_id": f"user-{number % 1000}",
                "model": "model-1",
                "call_id": f"call-{call}",
                "tool_name": ("bash", "read_file", "edit_file")[call % 3],
            }
            body |= (
                {"args": {"command": f"make target-{call}", "path": f"/src/module-{call % 7}/file.py"}}
                if started
                else {"status": "success", "duration_ms": 120, "result": f"line {call}\n" * 20}
            )
            yield name.encode(), orjson.dumps(body)


def start_worker(settings: KafkaSettings, idle_minutes: float, folder: Path) -> DeployedWorker:
    """A worker with states that are over after so many minutes."""
    hours = idle_minutes / 60
    rules = folder / "rules.toml"
    rules.write_text(f"[idle]\nsession_idle_hours = {hours}\nkey_idle_hours = {hours}\nfleet_idle_hours = {hours}\n")
    return DeployedWorker(settings, folder / "worker.log", "--rules", str(rules))


def memory_mb(worker: DeployedWorker) -> float:
    """Resident memory."""
    return float(psutil.Process(worker.process.pid).memory_info().rss) / 1e6


async def changelog_size(settings: KafkaSettings) -> tuple[float, int]:
    """Megabytes and records that a recovery of all changelogs would read."""
    places = [
        TopicPartition(settings.changelog(stage.name), partition)
        for stage in STAGES
        for partition in range(settings.partitions)
    ]
    size = records = 0
    async with AIOKafkaConsumer(bootstrap_servers=settings.servers, enable_auto_commit=False) as reader:
        ends = await reader.end_offsets(places)
        reader.assign(places)
        await reader.seek_to_beginning(*places)
        waiting = set(places)
        while waiting:
            for got in (await reader.getmany(*waiting, timeout_ms=300)).values():
                records += len(got)
                size += sum(len(one.key or b"") + len(one.value or b"") for one in got)
            waiting = {place for place in waiting if await reader.position(place) < ends[place]}
    return size / 1e6, records


async def sample(worker: DeployedWorker, publisher: Publisher, settings: KafkaSettings, began: float) -> Sample:
    """Look at everything once."""
    metrics = worker.metrics()
    megabytes, records = await changelog_size(settings)
    return Sample(
        seconds=round(time.monotonic() - began, 1),
        published=publisher.published,
        memory_mb=round(memory_mb(worker), 1),
        states={stage: int(states) for stage, states in labelled(metrics, "trustfold_states").items()},
        dropped=int(sum(value for name, _, value in metrics if name == "trustfold_dropped_states_total")),
        lag=int(sum(value for name, _, value in metrics if name == "trustfold_consumer_lag_records")),
        changelog_mb=round(megabytes, 1),
        changelog_records=records,
    )


async def soak(settings: KafkaSettings, options: argparse.Namespace, folder: Path) -> list[Sample]:
    """Publish, sample and wait until all is folded."""
    await make_topics(settings)
    admin = AIOKafkaAdminClient(bootstrap_servers=settings.servers)
    await admin.start()
    try:
        names = [settings.changelog(stage.name) for stage in STAGES]
        await admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, name, COMPACTION) for name in names])
    finally:
        await admin.close()
    worker = start_worker(settings, options.idle_minutes, folder)
    publisher = Publisher(settings, options.rate, options.live, options.length)
    samples: list[Sample] = []
    try:
        began = time.monotonic()
        ends = began + options.minutes * 60
        publishing = asyncio.create_task(publisher.run(ends))
        while time.monotonic() < ends - options.every:
            await asyncio.sleep(options.every)
            samples.append(await sample(worker, publisher, settings, began))
            _tell(samples[-1])
        await publishing
        await _drained(worker)
        samples.append(await sample(worker, publisher, settings, began))
        _tell(samples[-1])
    finally:
        code = worker.stop()
    if code:
        say(worker.log.read_text()[-2000:])
        raise SystemExit(f"the worker ended with code {code}")
    return samples


async def _drained(worker: DeployedWorker) -> None:
    """Wait until the worker has folded what was published, within a bound."""
    ends = time.monotonic() + DRAIN_S
    while time.monotonic() < ends:
        await asyncio.sleep(2)
        lag = [value for name, _, value in worker.metrics() if name == "trustfold_consumer_lag_records"]
        if lag and not any(lag):
            return


def _tell(one: Sample) -> None:
    states = " ".join(f"{stage} {count:,}" for stage, count in one.states.items())
    say(
        f"{one.seconds:6.0f} s  {one.published:9,} events  {one.memory_mb:7.1f} MB  states: {states}  "
        f"dropped {one.dropped:,}  lag {one.lag:,}  "
        f"changelogs {one.changelog_mb:.1f} MB, {one.changelog_records:,} records"
    )


def verdict(samples: list[Sample], idle_minutes: float) -> list[str]:
    """What is wrong, a line each: memory, states or changelogs whose peaks grow, or lag at the end."""
    begins = idle_minutes * 60 * SETTLED_AFTER + SETTLED_AFTER_S
    steady = [one for one in samples if one.seconds > begins]
    if len(steady) < LEAST_STEADY:
        return [f"too short: what is dropped balances what is made after {begins:.0f} s; give it twice that time"]
    half = len(steady) // 2
    wrong = []
    for name, value in _GAUGES.items():
        before, after = (max(map(value, part)) for part in (steady[:half], steady[half:]))
        say(f"{name}: at most {before:,.1f} in the first half of the steady part, {after:,.1f} in the second")
        if after > before * (1 + TOLERATED_GROWTH):
            wrong.append(f"{name} grew from {before:,.1f} to {after:,.1f}")
    if samples[-1].lag:
        wrong.append(f"{samples[-1].lag:,} records were not folded {DRAIN_S} s after the last was published")
    return wrong


_GAUGES: dict[str, Callable[[Sample], float]] = {
    "memory, MB": lambda one: one.memory_mb,
    "states": lambda one: sum(one.states.values()),
    "changelogs, MB": lambda one: one.changelog_mb,
}


def main() -> int:
    """Soak as the command line says; gives the exit code: 0 nothing grew, 1 something did."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=40.0, help="length of the run")
    parser.add_argument("--rate", type=float, default=3000.0, help="events per second")
    parser.add_argument("--idle-minutes", type=float, default=3.0, help="time after which a state is over")
    parser.add_argument("--live", type=int, default=600, help="sessions at a time")
    parser.add_argument("--length", type=int, default=40, help="events of a session")
    parser.add_argument("--every", type=float, default=30.0, help="seconds between samples")
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--bootstrap", default="", help="a broker to use; without it one is started")
    parser.add_argument("--json", type=Path, help="file for the samples")
    options = parser.parse_args()
    prefix = f"soak-{uuid.uuid4().hex[:8]}."
    with broker(options.bootstrap) as opened, tempfile.TemporaryDirectory() as folder:
        say(opened.description)
        settings = KafkaSettings(
            bootstrap=opened.bootstrap,
            app_id=f"{prefix}worker",
            topic_prefix=prefix,
            partitions=options.partitions,
            replication=1,
        )
        samples = asyncio.run(soak(settings, options, Path(folder)))
    if options.json:
        options.json.write_text(json.dumps([asdict(one) for one in samples], indent=2) + "\n", encoding="utf-8")
    wrong = verdict(samples, options.idle_minutes)
    for line in wrong:
        say(line)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
