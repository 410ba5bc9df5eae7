"""Ticks: what falls due without an event is appended to the log by the worker that owns the partition.

About once a second, only while some processor has something due and its partition is caught up with its log end: a
partition that lags will meet its own future events first. The time of a tick is the largest event time this worker had
seen some ticks ago plus the wall time since it processed the last record: what a stage has just made of an old log is
still on its way to the next stage, which must not be told that its time is over before it has read it. The later a
stage stands in the flow, the longer the way. What comes out is an event like any other; it changes state when it is
read back, so the log stays the only truth (docs/design/contracts.md#time-and-order).
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence

from .engine import Engine

INTERVAL_S = 1.0

WAY = (1, 2, 4)
"""Ticks that what was read from `events` may take to a stage, by the stage's place; the last holds for all behind."""


def seen(engine: Engine) -> int:
    """Largest event time that any of the worker's stages has seen, milliseconds; 0 before the first event."""
    return max((task.processor.stream_time for task in engine.tasks.values()), default=0)


def tick(engine: Engine, past: Sequence[int], *, clock: Callable[[], float] = time.monotonic) -> int:
    """Append what is due; returns how many events.

    Args:
        engine: whose partitions.
        past: event times reached at the ticks before this one, the latest last; 0 before the first event.
        clock: seconds, as `engine.last_record_at` is measured.
    """
    if engine.gate.tenure is None:
        return 0
    quiet = int((clock() - engine.last_record_at) * 1000)
    places = {stage.name: place for place, stage in enumerate(engine.topology.stages)}
    appended = 0
    for task in engine.tasks.values():
        way = WAY[min(places[task.stage], len(WAY) - 1)]
        reached = past[-way] if len(past) >= way else 0
        now = reached + quiet
        due = task.processor.next_due() if reached else None
        if due is None or due > now or not engine.caught_up(task):
            continue
        outputs = task.processor.due(now)
        # In the order of time it follows what was folded so far: by its timestamp, the present, it would hold up all
        # records behind it in its partition until the backlog is over.
        engine.writer.put(outputs, task.partition, engine.reached)
        appended += len(outputs)
    engine.metrics.ticks += appended
    return appended


async def run_ticks(engine: Engine) -> None:
    """Tick until cancelled; a fault fails the worker."""
    try:
        past: deque[int] = deque(maxlen=WAY[-1])
        while True:
            await asyncio.sleep(INTERVAL_S)
            now = seen(engine)
            tick(engine, [min(before, now) for before in past])
            past.append(now)
    except Exception as error:  # noqa: BLE001 - reported by failing the worker
        await engine.fail(error)
