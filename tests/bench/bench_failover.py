"""Rows: how long partitions stand still when workers are killed or restarted, and how long a recovery takes.

A publisher writes to every partition of `events` while workers come and go. Each partition has a session in a workspace
of its own, so the timestamps on `outcomes` tell when it was folded. Workers run as they are deployed, with their
default settings.
"""

from __future__ import annotations

import asyncio
import itertools
import re
import signal
import tempfile
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import orjson
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from bench_broker import Broker, broker, make_topics, settings_for
from bench_options import Options, say
from bench_result import CannotMeasure, Row, Series, Target
from bench_worker import DeployedWorker
from trustfold.projections.local_topology import LocalTopology
from trustfold.rules.rules import RuleSet
from trustfold.streams.kafka.changelog import write_states
from trustfold.streams.kafka.kafka_settings import KafkaSettings

EVERY_S = 0.05
"""Seconds between two events of a partition."""

SETTLED_S = 4.0
"""How long all partitions must have flowed before the next disturbance."""

LIMIT_S = 120.0

Phases = dict[str, list[float]]
"""Seconds of each restart, by what took them."""

WRITTEN_AT_ONCE = 5_000


def measure(options: Options) -> list[Row]:
    """Kill a worker, restart three in turn with and without names, read many keys back.

    Raises:
        CannotMeasure: there is no broker, or workers do not run.
    """
    with broker(options.bootstrap) as opened:
        say(opened.description)
        return [
            _row("kill", "longest standstill of a partition: one of two workers killed with -9", 12.0,
                 [asyncio.run(_killed(opened, options)) for _ in range(options.runs)]),
            _rolling(opened, options, "rolling", "the same: three named workers restarted in turn", 5.0, named=True),
            _rolling(opened, options, "rolling:unnamed", "the same, without names", None, named=False),
            asyncio.run(_recovery(opened, options)),
        ]  # fmt: skip


def _row(name: str, title: str, most: float | None, found: list[float], behind: dict[str, Series] | None = None) -> Row:
    return Row(
        name=f"failover/{name}",
        title=title,
        against="",
        figure=Series("s", tuple(found)),
        target=None if most is None else Target(most, at_least=False),
        behind=behind or {},
    )


# --- standstill -------------------------------------------------------------------------------------------------------


class Crew:
    """Workers under one deployment's names."""

    def __init__(self, settings: KafkaSettings, folder: Path, *, named: bool) -> None:
        self._settings, self._folder, self._named = settings, folder, named
        self.workers: list[DeployedWorker] = []

    def start(self, number: int) -> None:
        """Start a worker, again where it ran before."""
        log = self._folder / f"{number}-{uuid.uuid4().hex[:6]}.log"
        own = {"TRUSTFOLD_INSTANCE_ID": f"worker-{number}"} if self._named else {}
        self.workers[number : number + 1] = [DeployedWorker(self._settings, log, **own)]

    def close(self) -> None:
        """Kill those that run."""
        for worker in self.workers:
            worker.kill()


class Flow:
    """Events to every partition, and when each was folded.

    Attributes:
        folded: milliseconds at which events of a partition were folded, by its workspace, as they come.
    """

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings
        self.folded: dict[str, list[int]] = {f"w{number}": [] for number in range(settings.partitions)}

    async def publish(self) -> None:
        """Write until cancelled."""
        async with AIOKafkaProducer(bootstrap_servers=self._settings.servers) as producer:
            name = self._settings.topic("events")
            number = 0
            while True:
                number += 1
                for at in range(self._settings.partitions):
                    await producer.send(name, _finished(number, at), key=f"s{at}".encode(), partition=at)
                await asyncio.sleep(EVERY_S)

    async def watch(self) -> None:
        """Read what the workers tell, until cancelled."""
        name = self._settings.topic("outcomes")
        async with AIOKafkaConsumer(bootstrap_servers=self._settings.servers, auto_offset_reset="earliest") as reader:
            reader.assign([TopicPartition(name, at) for at in range(self._settings.partitions)])
            while True:
                for records in (await reader.getmany(timeout_ms=200)).values():
                    for record in records:
                        self.folded[record.key.decode().partition("\x1f")[0]].append(record.timestamp)

    async def flows(self) -> None:
        """Wait until all partitions have been folded for some time from now on."""
        since = time.time() * 1000
        await until(lambda: all(_flowing(times, since) for times in self.folded.values()), "all partitions flow")

    def standstill(self, since_ms: float) -> float:
        """Longest time between two folds of one partition from a moment on, seconds."""
        longest = 0
        for times in self.folded.values():
            after = sorted(at for at in times if at >= since_ms - 1000)
            longest = max([longest, *(later - one for one, later in itertools.pairwise(after))])
        return longest / 1000


def _flowing(times: Iterable[int], since: float) -> bool:
    return any(at > since + SETTLED_S * 1000 for at in times)


def _finished(number: int, partition: int) -> bytes:
    return orjson.dumps(
        {
            "type": "tool_call.finished", "schema_version": "1.0", "id": f"e{partition}-{number}",
            "time": f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime())}Z", "session_id": f"s{partition}",
            "workspace_id": f"w{partition}", "user_id": "u", "call_id": f"c{number}", "tool_name": "search",
            "status": "success", "duration_ms": 5.0,
        }
    )  # fmt: skip


async def until(done: Callable[[], bool], what: str) -> None:
    """Wait.

    Raises:
        CannotMeasure: it takes too long.
    """
    try:
        async with asyncio.timeout(LIMIT_S):
            while not done():  # noqa: ASYNC110 - processes and brokers ring no bell
                await asyncio.sleep(0.02)
    except TimeoutError:
        raise CannotMeasure(f"not within {LIMIT_S:g} s: {what}") from None


@contextmanager
def _deployment(opened: Broker, options: Options, *, named: bool) -> Iterator[tuple[KafkaSettings, Crew]]:
    settings = settings_for(opened.bootstrap, f"bench-{uuid.uuid4().hex[:10]}.", options.partitions)
    with tempfile.TemporaryDirectory() as folder:
        crew = Crew(settings, Path(folder), named=named)
        try:
            yield settings, crew
        finally:
            crew.close()


async def _disturbed(opened: Broker, options: Options, workers: int, disturb: Any, *, named: bool) -> float:
    """Longest standstill while `disturb(crew, flow)` runs."""
    with _deployment(opened, options, named=named) as (settings, crew):
        await make_topics(settings)
        for number in range(workers):
            crew.start(number)
        flow = Flow(settings)
        running = [asyncio.create_task(flow.publish()), asyncio.create_task(flow.watch())]
        try:
            await until(
                lambda: all(crew.workers[number].ready() for number in range(workers)), "workers have partitions"
            )
            await flow.flows()
            began = time.time() * 1000
            await disturb(crew, flow)
            await flow.flows()
            return flow.standstill(began)
        finally:
            for task in running:
                task.cancel()
            await asyncio.wait(running)


async def _killed(opened: Broker, options: Options) -> float:
    async def disturb(crew: Crew, _flow: Flow) -> None:
        crew.workers[0].kill()

    found = await _disturbed(opened, options, 2, disturb, named=False)
    say(f"killed: {found:.1f} s")
    return found


async def _rolled(opened: Broker, options: Options, phases: Phases, *, named: bool) -> float:
    async def disturb(crew: Crew, flow: Flow) -> None:
        for number in range(3):
            began = time.monotonic()
            worker = crew.workers[number]
            worker.process.send_signal(signal.SIGTERM)
            await until(lambda: worker.process.poll() is not None, "a worker stops")  # noqa: B023
            stopped = time.monotonic()
            crew.start(number)
            worker = crew.workers[number]
            await until(lambda: "starting as" in worker.log.read_text(), "a worker starts")  # noqa: B023
            started = time.monotonic()
            await until(worker.ready, "a worker is back")
            phases["stop"].append(stopped - began)
            phases["start of the process"].append(started - stopped)
            phases["join and recovery"].append(time.monotonic() - started)
            await flow.flows()

    found = await _disturbed(opened, options, 3, disturb, named=named)
    said = ", ".join(f"{name} at most {max(seconds):.1f} s" for name, seconds in phases.items())
    say(f"restarted in turn, {'named' if named else 'unnamed'}: {found:.1f} s; {said}")
    return found


def _rolling(opened: Broker, options: Options, name: str, title: str, most: float | None, *, named: bool) -> Row:
    phases: Phases = {"stop": [], "start of the process": [], "join and recovery": []}
    found = [asyncio.run(_rolled(opened, options, phases, named=named)) for _ in range(options.runs)]
    behind = {phase: Series("s", tuple(seconds)) for phase, seconds in phases.items()}
    return _row(name, title, most, found, behind)


# --- recovery ---------------------------------------------------------------------------------------------------------


async def _recovery(opened: Broker, options: Options) -> Row:
    """A worker's start over many keys against reading the same changelog and doing nothing with it."""
    with _deployment(opened, options, named=False) as (settings, crew):
        await make_topics(settings)
        await _fill(settings, options.keys)
        theirs = [await _raw(settings) for _ in range(options.runs)]
        ours = []
        for _ in range(options.runs):
            crew.start(0)
            await until(crew.workers[0].ready, "a recovery")
            ours.append(_recovered(crew.workers[0]))
            crew.workers[0].stop()
            say(f"recovery of {options.keys:,} keys: {ours[-1]:.2f} s; raw read {theirs[len(ours) - 1]:.2f} s")
    return Row(
        name="failover/recovery",
        title=f"recovery of {options.keys:,} keys by one worker",
        against="the same changelog read and thrown away",
        figure=Series("ratio", tuple(one / two for one, two in zip(ours, theirs, strict=True))),
        target=Target(3.0, at_least=False),
        behind={"recovery": Series("s", tuple(ours)), "raw": Series("s", tuple(theirs))},
        notes=["states of the session stage after ten calls each"],
    )


def _recovered(worker: DeployedWorker) -> float:
    """Seconds that a worker's recovery took, as it says itself."""
    found = re.search(r"ready in generation .* after ([0-9.]+) s", worker.log.read_text())
    return float(found[1]) if found else 0.0


def _state() -> bytes:
    """State of a session after ten calls."""
    topology = LocalTopology(RuleSet())
    topology.feed("events", [_finished(number, 0) for number in range(10)])
    return next(value for _, value in topology.processors["session"].snapshot() if value is not None)


async def _fill(settings: KafkaSettings, keys: int) -> None:
    state, topic = _state(), settings.changelog("session")
    async with AIOKafkaProducer(bootstrap_servers=settings.servers, acks="all", max_batch_size=900_000) as producer:
        await producer.partitions_for(topic)
        for first in range(0, keys, WRITTEN_AT_ONCE):
            items = [
                (f"session-{number}".encode(), state) for number in range(first, min(first + WRITTEN_AT_ONCE, keys))
            ]
            await write_states(producer, topic, first // WRITTEN_AT_ONCE % settings.partitions, items, 0)


async def _raw(settings: KafkaSettings) -> float:
    began = time.perf_counter()
    places = [TopicPartition(settings.changelog("session"), at) for at in range(settings.partitions)]
    async with AIOKafkaConsumer(
        bootstrap_servers=settings.servers, auto_offset_reset="earliest", max_partition_fetch_bytes=settings.fetch_bytes
    ) as reader:
        reader.assign(places)
        ends = await reader.end_offsets(places)
        while [place for place in places if await reader.position(place) < ends[place]]:
            await reader.getmany(timeout_ms=500)
    return time.perf_counter() - began
