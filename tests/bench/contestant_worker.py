"""Contestant: the worker as it is deployed. Its time ends when states and offsets are on the broker."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections import Counter
from functools import partial
from typing import Any

import bench_process
from aiokafka import AIOKafkaConsumer, TopicPartition
from bench_broker import settings_for
from bench_timed import make_processor
from trustfold.projections.topology import STAGES
from trustfold.streams.kafka import worker
from trustfold.streams.kafka.app import make_app
from trustfold.streams.kafka.kafka_settings import KafkaSettings
from trustfold.streams.kafka.stages import KafkaTopology

LOOK_S = 0.005


def main() -> None:
    """Run the worker until it has folded everything, stop it, and look whether the offsets say so too."""
    task = bench_process.begin()
    settings = settings_for(task.bootstrap, task.prefix, task.partitions)
    result: dict[str, Any] = {}

    def watched_app(*given: Any, **options: Any) -> Any:
        app = make_app(*given, **options)
        app.task(partial(_watch, app, task, result))  # begins after the first recovery
        return app

    worker.make_app = watched_app
    code = worker.run_worker(settings, topology=KafkaTopology(STAGES, make_processor))
    if code or "seconds" not in result:
        sys.exit(f"the worker ended with code {code}; {result}")
    result["committed"] = asyncio.run(_committed(settings))
    if result["committed"]["events"] < task.events or result["committed"]["outcomes"] < task.outcomes:
        sys.exit(f"{task.events} events and {task.outcomes} outcomes should be committed: {result}")
    bench_process.finish(result)


async def _watch(app: Any, task: bench_process.Task, result: dict[str, Any]) -> None:
    """Take the time until everything is folded, checkpointed and committed, then ask the worker to stop."""
    metrics = app.engine.metrics
    watch = bench_process.Stopwatch()
    result["before"] = metrics.records.total()
    try:
        async with asyncio.timeout(task.limit_s):
            while not _folded(metrics.records, task):  # noqa: ASYNC110 - the worker counts; it does not ring
                await asyncio.sleep(LOOK_S)
            folded = watch.read()
            # What the worker does about twice a second, and when it is asked to stop.
            await app.engine.checkpointer.checkpoint()
            await app.consumer.commit()
        result |= watch.read()
        result["seconds to fold"] = folded["seconds"]
    except TimeoutError:
        print(f"only {dict(metrics.records)} within {task.limit_s} s", file=sys.stderr)
    result |= {
        "outputs": dict(metrics.outputs),
        "checkpoints": metrics.checkpoints,
        "checkpoint seconds": metrics.checkpoint_seconds,
        "states": metrics.checkpoint_keys,
        "state bytes": metrics.checkpoint_bytes,
        "ticks": metrics.ticks,
    }
    os.kill(os.getpid(), signal.SIGTERM)


def _folded(records: Counter[str], task: bench_process.Task) -> bool:
    return records["events"] >= task.events and records["outcomes"] >= task.outcomes


async def _committed(settings: KafkaSettings) -> dict[str, int]:
    """What the group has committed, by catalogue topic."""
    async with AIOKafkaConsumer(
        bootstrap_servers=settings.servers, group_id=settings.app_id, enable_auto_commit=False
    ) as consumer:
        found = {}
        for name in ("events", "outcomes"):
            places = [TopicPartition(settings.topic(name), number) for number in range(settings.partitions)]
            found[name] = sum([await consumer.committed(place) or 0 for place in places])
        return found


if __name__ == "__main__":
    main()
