"""Ticks: the worker that owns a partition appends an event when a deadline passes without one.

About once a second, only while a processor has a deadline and its partition has reached its log end: a partition that
lags has future events to read first. The time of a tick is the largest event time this worker had seen some ticks ago
plus the wall time since it processed the last record: a stage's outputs from an old log may still be in flight to the
next stage, whose deadlines must not pass before it reads them. Later stages in the flow get more time. A tick is an
event like any other and changes state only when it is read back, so the log remains the only truth
(docs/design/contracts.md#time-and-order).
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence

from .engine import Engine

INTERVAL_S = 1.0

WAY = (1, 2, 4)
"""Ticks that a record of `events` may take to reach a stage, by the stage's position.

The last applies to all behind.
"""


def seen(engine: Engine) -> int:
    """Return the largest event time that any of the worker's stages has seen, milliseconds.

    0 before the first event.
    """
    return max((task.processor.stream_time for task in engine.tasks.values()), default=0)


def tick(engine: Engine, past: Sequence[int], *, clock: Callable[[], float] = time.monotonic) -> int:
    """Append what is due; return the number of events.

    Args:
        engine: engine that owns the partitions.
        past: event times reached at the previous ticks, the latest last; 0 before the first event.
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
        # It is ordered by the time of the last folded record: by its timestamp, the present, it would hold back all
        # records behind it in its partition until the backlog is folded.
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
