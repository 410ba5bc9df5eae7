"""Folding a history once for each combination of thresholds, on as many cores as there are."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from typing import NamedTuple

from ..history.inputs import Inputs
from ..history.search import Alarms, Trial, Truth, alarms_of, combinations, try_out
from ..schemas.rules import Rules
from ..schemas.settings import SettingsOverrides
from .refold import Refold, fall_due_alike

WORTH_A_PROCESS = 50_000
"""Records to fold, over all combinations, from which on further processes save more time than their start costs."""


class Task(NamedTuple):
    """One combination to try: everything another process must know."""

    inputs: Inputs
    values: dict[str, object]
    rules: Rules
    environment: SettingsOverrides | None
    echoes: bool
    alarms: Alarms
    truth: Truth
    since_ms: int
    in_force: bool


def tasks(
    inputs: Inputs,
    present: Rules,
    grid: tuple[str, ...],
    truth: Truth,
    *,
    environment: SettingsOverrides | None = None,
    since_ms: int = 0,
) -> list[Task]:
    """One task for each combination of a grid, in the order of the grid.

    Raises:
        ConfigError: the grid does not fit.
    """
    chosen = combinations(grid, present)
    echoes = fall_due_alike(present, *(rules for _, rules in chosen))
    alarms = alarms_of(grid)
    return [
        Task(inputs, values, rules, environment, echoes, alarms, truth, since_ms, rules == present)
        for values, rules in chosen
    ]


def processes_for(waiting: Sequence[Task]) -> int:
    """How many processes share tasks."""
    if sum(task.inputs.count for task in waiting) < WORTH_A_PROCESS:
        return 1
    return max(1, min(os.cpu_count() or 1, len(waiting)))


def try_all(given: Iterable[Task]) -> Iterator[tuple[int, Trial]]:
    """Trials with the number of their task, as they are done; the same whatever runs where."""
    waiting = list(given)
    processes = processes_for(waiting)
    if processes < 2:
        for number, task in enumerate(waiting):
            yield number, try_one(task)
        return
    # Started anew and not forked: DuckDB has threads, which a fork would leave behind in the middle of their work.
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        futures = {pool.submit(try_one, task): number for number, task in enumerate(waiting)}
        try:
            for future in as_completed(futures):
                yield futures[future], future.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def try_one(task: Task) -> Trial:
    """Fold everything once."""
    fold = Refold(task.rules, task.inputs, environment=task.environment, echoes=task.echoes)
    return try_out(
        task.values,
        fold.run(task.inputs),
        task.alarms,
        task.truth,
        since_ms=task.since_ms,
        in_force=task.in_force,
    )
