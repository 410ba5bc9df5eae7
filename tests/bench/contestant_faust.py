"""Contestant: the same folds as plain Faust agents, one event at a time, state in Faust's tables.

Faust's own ways and defaults: an agent per topic, `table[key] = snapshot` for every event, outputs by `topic.send`.
Two things are in its favour: Faust's worker command is left out, whose log settings cost a tenth and more, and the
live states stay decoded, so that only writes go through the table.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from dataclasses import replace
from typing import Any

import bench_process
import faust
from bench_broker import make_topics, settings_for
from bench_log import LogRecord
from bench_timed import make_processor
from trustfold.projections.topology import STAGES
from trustfold.rules.rules import RuleSet
from trustfold.schemas.topics import TOPICS

WARM = 0.1
"""Share of the records after which the clock starts."""

START_S = 40.0
"""Longest start."""

STALLED_S = 5.0
"""Without a record for so long the run is over: stock recovery can lose a few in the beginning."""


class Progress:
    """What has been folded, and when."""

    def __init__(self, task: bench_process.Task) -> None:
        self.read = {next(iter(stage.sources)): 0 for stage in STAGES}
        self.warm_events = int(task.events * WARM)
        self.watch: bench_process.Stopwatch | None = None
        self.warm_at = 0
        self.last: dict[str, float] = {}
        self.moved = time.monotonic()

    def count(self, topic: str) -> None:
        """One more record of a topic is folded, its state written and its outputs sent."""
        self.read[topic] += 1
        self.moved = time.monotonic()
        if self.watch is not None:
            self.last = self.watch.read()
        elif self.read["events"] >= self.warm_events:
            self.watch, self.warm_at = bench_process.Stopwatch(), self.read["events"]


def app_id(task: bench_process.Task) -> str:
    """Name of the app, and first part of its changelogs'."""
    return f"{task.prefix}faust"


def make_app(task: bench_process.Task, progress: Progress, folder: str) -> Any:
    """The app a reader of Faust's guide would write."""
    app = faust.App(
        app_id(task),
        broker=f"kafka://{task.bootstrap}",
        store="memory://",
        datadir=folder,
        topic_partitions=task.partitions,
        topic_replication_factor=1,
        web_enabled=False,
    )
    rules = RuleSet()
    topics = {
        name: app.topic(task.prefix + name, key_type=bytes, value_type=bytes, partitions=task.partitions)
        for name in TOPICS
    }
    for stage in STAGES:
        _add_agent(app, stage, rules, topics, progress)
    return app


def _add_agent(app: Any, stage: Any, rules: RuleSet, topics: dict[str, Any], progress: Progress) -> None:
    source = next(iter(stage.sources))
    table = app.Table(stage.name, key_type=bytes, value_type=bytes, partitions=app.conf.topic_partitions)
    processors: dict[int, Any] = {}

    async def consume(stream: Any) -> None:
        async for event in stream.events():
            message = event.message
            processor = processors.get(message.partition)
            if processor is None:
                processor = processors[message.partition] = make_processor(stage, message.partition, rules, table.get)
            record = LogRecord(message.key, message.value, message.offset, int(message.timestamp * 1000))
            outputs = processor.process(source, (record,))
            for key, snapshot in processor.snapshot():
                table[key] = snapshot
            for output in outputs:
                partition = message.partition if output.own_partition else None
                await topics[output.topic].send(key=output.key.encode(), value=output.value, partition=partition)
            progress.count(source)

    app.agent(topics[source], name=f"plain.{stage.name}")(consume)


async def _run(task: bench_process.Task, folder: str) -> dict[str, Any]:
    progress = Progress(task)
    # Faust can make its changelogs itself, and then sometimes waits for ever to hear of them from a slow broker.
    await make_topics(replace(settings_for(task.bootstrap, task.prefix, task.partitions), app_id=app_id(task)))
    app = make_app(task, progress, folder)
    app.in_worker = True
    async with asyncio.timeout(START_S):
        await app.start()
    read, ends = progress.read, time.monotonic() + task.limit_s
    while read["events"] < task.events or read["outcomes"] < task.outcomes:
        await asyncio.sleep(0.05)
        if time.monotonic() > ends or (progress.last and time.monotonic() - progress.moved > STALLED_S):
            break
    result = {**progress.last, "events": read["events"] - progress.warm_at, "read": read}
    if not progress.last or read["events"] < task.events * 0.98 or read["outcomes"] < task.outcomes * 0.98:
        sys.exit(f"only {read} of {task.events} events and {task.outcomes} outcomes")
    try:
        async with asyncio.timeout(20):
            await app.stop()
    except TimeoutError:
        print("Faust did not stop within 20 s", file=sys.stderr)
    return result


def main() -> None:
    """Run the app until everything is folded and say how long it took."""
    task = bench_process.begin()
    with tempfile.TemporaryDirectory() as folder:
        bench_process.finish(asyncio.run(_run(task, folder)))


if __name__ == "__main__":
    main()
