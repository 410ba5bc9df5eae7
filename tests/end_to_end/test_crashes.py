"""Workers killed, added and removed in the middle of a run, with the real folds: nothing is lost, nothing doubled."""

from __future__ import annotations

import asyncio
import subprocess
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition
from busy_agents import busy_agents, busy_users
from kafka_run import OUTPUT_TOPICS, Written, consumer, settings_for, start_worker, stop_worker
from trustfold.projections.emitter import StageOutput
from trustfold.projections.local_topology import LocalTopology
from trustfold.projections.snapshot import SnapshotCodec
from trustfold.projections.topology import STAGES
from trustfold.rules.rules import RuleSet
from trustfold.streams.kafka.kafka_settings import KafkaSettings
from trustfold.streams.kafka.publish import publish
from trustfold.streams.kafka.topics import create_topics

pytestmark = [pytest.mark.broker, pytest.mark.durable_broker, pytest.mark.slow, pytest.mark.timeout(300)]

OWN = b"\xff\xfe"
"""First bytes of the keys under which the engine keeps notes of its own in a changelog; no UTF-8 text starts so."""

Scenario = Callable[["Fleet"], Awaitable[None]]
Undisturbed = tuple[list[StageOutput], dict[str, dict[str, Any]]]
"""Outputs and final states, by stage and key."""


class Fleet:
    """Worker processes of one deployment, what is published to it, and what has come out of it."""

    def __init__(self, settings: KafkaSettings, folder: Path) -> None:
        self.settings = settings
        self.seen: set[str] = set()
        self.workers: list[subprocess.Popen[bytes]] = []
        self._logs: dict[int, Path] = {}
        self._folder = folder

    async def add(self, *, joined: bool = False) -> None:
        """Start one more worker; `joined`: wait until it has partitions."""
        log = self._folder / f"worker-{len(self._logs)}.log"
        with log.open("wb") as sink:
            worker = start_worker(self.settings, log=sink)
        self.workers.append(worker)
        self._logs[worker.pid] = log
        if joined:
            await until(lambda: b"ready in generation" in log.read_bytes(), f"no partitions yet: {log.read_text()}")

    async def kill(self) -> None:
        """Kill the oldest worker with -9 and start another in its place."""
        worker = self.workers.pop(0)
        worker.kill()
        worker.wait()
        await self.add()

    def remove(self) -> None:
        """Ask the newest worker to leave."""
        worker = self.workers.pop()
        assert stop_worker(worker) == 0, self._logs[worker.pid].read_text()

    async def publish(self, records: list[tuple[str, bytes]]) -> None:
        """Publish records, in order."""
        await publish(self.settings, [value for _, value in records])

    async def reach(self, outputs: int) -> None:
        """Wait until this many different outputs have come out."""
        await until(lambda: len(self.seen) >= outputs, f"fewer than {outputs} outputs")

    def logs(self) -> str:
        """What all workers have logged, for a failure's message."""
        return "\n".join(log.read_text()[-4000:] for log in self._logs.values())


async def until(condition: Callable[[], bool], trouble: str, patience: float = 120) -> None:
    """Wait for a condition; fails with the trouble when patience ends."""
    ends = time.monotonic() + patience
    while not condition():
        assert time.monotonic() < ends, trouble
        await asyncio.sleep(0.02)


def undisturbed(records: list[tuple[str, bytes]]) -> Undisturbed:
    """Outputs and final states of a run in one process."""
    topology = LocalTopology(RuleSet())
    outputs = [output for topic, value in records for output in topology.feed(topic, (value,))]
    states = {
        stage.name: {
            key.decode(): _comparable(stage, snapshot) for key, snapshot in topology.processors[stage.name].snapshot()
        }
        for stage in STAGES
    }
    return outputs, states


def _comparable(stage: Any, snapshot: bytes | None) -> Any:
    """A state without what tells of offsets, of arrivals, and of the order in which our own events are read back."""
    assert snapshot is not None
    state: Any = SnapshotCodec(stage.state_type, stage.state_version).decode(snapshot)
    state.positions = []
    if hasattr(state, "recent_ids"):
        state.recent_ids = None
    if hasattr(state, "origins"):
        state.origins = {}
    if state.arrived:
        state.arrived = 0
    return state


async def run(settings: KafkaSettings, wanted: set[str], scenario: Scenario, folder: Path) -> Written:
    """Play a scenario on a fleet, read until every wanted id was seen and all input is done; workers leave in order."""
    await create_topics(settings)
    fleet, written = Fleet(settings, folder), Written()
    playing: asyncio.Task[None] = asyncio.ensure_future(_play(scenario, fleet))
    ends = time.monotonic() + 200
    try:
        async with consumer(settings, OUTPUT_TOPICS) as reader:
            while not (playing.done() and wanted <= fleet.seen):
                assert time.monotonic() < ends, f"{len(wanted - fleet.seen)} of {len(wanted)} missing\n{fleet.logs()}"
                assert all(worker.poll() is None for worker in fleet.workers), f"a worker ended\n{fleet.logs()}"
                if playing.done():
                    playing.result()
                for partition, batch in (await reader.getmany(timeout_ms=100)).items():
                    name = partition.topic.removeprefix(settings.topic_prefix)
                    for record in batch:
                        written.setdefault((name, record.key.decode()), []).append(record.value)
                        fleet.seen.update(value.decode() for header, value in record.headers if header == "ce_id")
        await settled(settings, ends, fleet)
        while fleet.workers:
            fleet.remove()
    finally:
        playing.cancel()
        for worker in fleet.workers:
            worker.kill()
    return written


async def settled(settings: KafkaSettings, ends: float, fleet: Fleet) -> None:
    """Wait until the workers have committed the end of every topic that a stage reads: not all input has an output."""
    places = [
        TopicPartition(settings.topic(source), number)
        for stage in STAGES
        for source in stage.sources
        for number in range(settings.partitions)
    ]
    async with AIOKafkaConsumer(
        bootstrap_servers=settings.bootstrap, group_id=settings.app_id, enable_auto_commit=False
    ) as group:
        group.assign(places)
        while True:
            last = await group.end_offsets(places)
            behind = [place for place in places if last[place] > (await group.committed(place) or 0)]
            if not behind:
                return
            assert time.monotonic() < ends, f"not committed: {behind}\n{fleet.logs()}"
            await asyncio.sleep(0.1)


async def _play(scenario: Scenario, fleet: Fleet) -> None:
    await scenario(fleet)


async def stored(settings: KafkaSettings, stage: Any) -> dict[str, Any]:
    """Final states of a stage, as its changelog tells them."""
    latest: dict[str, Any] = {}
    async with consumer(settings, (), changelog=stage.name) as reader:
        ends = await reader.end_offsets(reader.assignment())
        while any([await reader.position(partition) < end for partition, end in ends.items()]):
            for batch in (await reader.getmany(timeout_ms=200)).values():
                for record in batch:
                    if not record.key.startswith(OWN):  # the engine's own marks
                        latest[record.key.decode()] = record.value
    return {key: _comparable(stage, snapshot) for key, snapshot in latest.items()}


def _without_repeats(values: list[bytes | None]) -> list[bytes | None]:
    """Outputs are at-least-once: what a consumer keeps that drops repeats."""
    return list(dict.fromkeys(values))


def _check(settings: KafkaSettings, quiet: Undisturbed, scenario: Scenario, folder: Path) -> None:
    outputs, states = quiet
    wanted = _ids(outputs)
    written = asyncio.run(run(settings, wanted, scenario, folder))
    expected: Written = {}
    for output in outputs:
        if output.topic in OUTPUT_TOPICS and output.value is not None:
            expected.setdefault((output.topic, output.key), []).append(output.value)
    assert {place for place, values in written.items() if any(values)} == set(expected)
    for place, values in expected.items():
        assert sorted(filter(None, _without_repeats(written[place]))) == sorted(values), place
    for stage in STAGES:
        found = asyncio.run(stored(settings, stage))
        assert found.keys() == states[stage.name].keys()
        for key, state in states[stage.name].items():
            assert found[key] == state, (stage.name, key)


def _ids(outputs: list[StageOutput]) -> set[str]:
    return {output.id for output in outputs if output.id and output.topic in OUTPUT_TOPICS}


def test_a_worker_killed_three_times_ends_as_if_it_had_not_been(broker: Any, topic_prefix: str, tmp_path: Path) -> None:
    """Kill -9 at three random points of a run of 6,000 events: states equal, no output id missing or new."""
    records = busy_agents(sessions=40, calls=84)
    assert len(records) > 5_000
    seed = time.time_ns() % 100_000
    print(f"kill points from seed {seed}")
    quiet = undisturbed(records)
    points = sorted(Random(seed).sample(range(1, int(len(_ids(quiet[0])) * 0.9)), 3))

    async def scenario(fleet: Fleet) -> None:
        await fleet.publish(records)
        await fleet.add()
        for point in points:
            await fleet.reach(point)
            await fleet.kill()

    _check(settings_for(broker.bootstrap, topic_prefix, partitions=4), quiet, scenario, tmp_path)


def test_what_adds_up_over_workspaces_and_sessions_survives_kills(
    broker: Any, topic_prefix: str, tmp_path: Path
) -> None:
    """Kill -9 while promotions come and go and profiles grow: every sum, move and public state is the quiet run's.

    One partition, so that the order in which sessions are heard is the same in both.
    """
    records = busy_users(sessions=12, turns=40)
    outputs, states = quiet = undisturbed(records)
    promoted = [o for o in outputs if o.topic == "escalations" and o.key.startswith("user:")]
    assert len(promoted) > 10
    assert any(key.startswith("model:") and state.model.turns > 100 for key, state in states["fleet"].items())
    seed = time.time_ns() % 100_000
    print(f"kill points from seed {seed}")
    points = sorted(Random(seed).sample(range(1, int(len(_ids(outputs)) * 0.9)), 3))

    async def scenario(fleet: Fleet) -> None:
        await fleet.publish(records)
        await fleet.add()
        for point in points:
            await fleet.reach(point)
            await fleet.kill()

    _check(settings_for(broker.bootstrap, topic_prefix, partitions=1), quiet, scenario, tmp_path)


def test_a_second_worker_comes_and_goes(broker: Any, topic_prefix: str, tmp_path: Path) -> None:
    """Partitions move to a second worker and back in the middle of a run: states equal, nothing missing."""
    records = busy_agents(sessions=40, calls=60, seed=2)
    third = len(records) // 3
    reached = len(_ids(undisturbed(records[: 2 * third])[0])) // 2

    async def scenario(fleet: Fleet) -> None:
        await fleet.publish(records[:third])
        await fleet.add()
        await fleet.reach(100)
        await fleet.add(joined=True)
        await fleet.publish(records[third : 2 * third])
        await fleet.reach(reached)
        fleet.remove()
        await fleet.publish(records[2 * third :])

    _check(settings_for(broker.bootstrap, topic_prefix, partitions=4), undisturbed(records), scenario, tmp_path)
