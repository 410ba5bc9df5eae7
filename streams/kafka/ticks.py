"""Ticks: the worker that owns a partition appends an event when a deadline passes without one.

About once a second, only while a processor has a deadline and its partition has reached its log end: a partition that
lags has future events to read first. A tick goes by the engine's clock, as it was set some ticks ago: a stage's outputs
from an old log may still be in flight to the next stage, whose deadlines must not pass before it reads them. Later
stages in the flow get more time. A tick is an event like any other and changes state only when it is read back, so the
log remains the only truth (docs/design/contracts.md#time-and-order).
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from copy import copy

from ..stream_clock import StreamClock
from .engine import WorkerEngine
from .faults import WorkerFault, describe

log = logging.getLogger(__name__)

INTERVAL_S = 1.0

WAY = (1, 2, 4)
"""Ticks that a record of `events` may take to reach a stage, by the stage's position.

The last applies to all behind.
"""


def tick(engine: WorkerEngine, past: Sequence[StreamClock]) -> int:
    """Append what is due; return the number of events.

    Args:
        engine: engine that owns the partitions.
        past: its clock as it was set at the previous ticks, the latest last.
    """
    if engine.gate.tenure is None:
        return 0
    present = engine.clock.now()
    places = {stage.name: place for place, stage in enumerate(engine.topology.stages)}
    appended = 0
    for task in engine.tasks.values():
        way = WAY[min(places[task.stage], len(WAY) - 1)]
        now = min(past[-way].now(), present) if len(past) >= way else 0
        due = task.processor.next_due() if now else None
        if due is None or due > now or not engine.caught_up(task):
            continue
        try:
            outputs = task.processor.due(now)
        except Exception as error:
            log.exception("what is due in partition %d of the %s stage cannot be appended", task.partition, task.stage)
            place = f"partition {task.partition} of the {task.stage} stage, what is due until {now}"
            raise WorkerFault(f"{place}: {describe(error)}") from error
        # It is ordered by the time of the last folded record: by its timestamp, the present, it would hold back all
        # records behind it in its partition until the backlog is folded.
        engine.writer.put(outputs, task.partition, engine.reached)
        appended += len(outputs)
    engine.metrics.ticks += appended
    return appended


async def run_ticks(engine: WorkerEngine) -> None:
    """Tick until cancelled; a fault fails the worker."""
    try:
        past: deque[StreamClock] = deque(maxlen=WAY[-1])
        while True:
            await asyncio.sleep(INTERVAL_S)
            tick(engine, past)
            past.append(copy(engine.clock))
    except Exception as error:  # noqa: BLE001 - reported by failing the worker
        await engine.fail(error)
