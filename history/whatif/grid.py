"""Grid of thresholds: combinations to try, a fold of the history for each on several cores, and its alarms."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from enum import StrEnum
from itertools import product
from math import prod
from multiprocessing import get_context
from typing import Any, NamedTuple

import orjson
from msgspec import UNSET

from ...errors import ConfigError
from ...projections.emitter import Output
from ...projections.topology import STAGES
from ...rules.older_shapes import Misfit
from ...rules.parser import overlaid
from ...rules.rules import BehaviourRules, EscalationRule, Ladder, Rules
from ...schemas.settings import SettingsOverrides
from ..inputs import Input, Inputs
from .decision_filters import Passing
from .guard_replay import GuardOf, Held
from .replay import Material, Replay, fall_due_alike

MOST = 64
"""Maximum number of combinations; each folds all inputs once."""

DEFAULT_GRID = ("behaviour.repetitive_calls.minor=2,3,4,5,6", "behaviour.error_retry_loop.minor=2,3,4")
"""Default grid: the two most important thresholds."""


class Alarm(StrEnum):
    """Definition of an alarm, by the part of the rules that is searched."""

    PATTERN = "pattern"
    """A pattern is reported."""

    CALL = "call"
    """A guard asks about a call or refuses it."""


_ALARMS = {
    "behaviour": Alarm.PATTERN,
    "policies": Alarm.PATTERN,
    "tools": Alarm.PATTERN,
    "calls": Alarm.PATTERN,
    "trust": Alarm.CALL,
    "breakers": Alarm.CALL,
    "fleet": Alarm.CALL,
}
"""Parts of the rules that can be searched."""


def combinations(grid: Sequence[str], rules: Rules) -> list[tuple[dict[str, Any], Rules]]:
    """All combinations of a grid of lines `PATH=V1,V2`, merged over rules.

    Raises:
        ConfigError: a path or a value does not fit, a path is there twice, or there are too many.
    """
    axes: dict[str, list[Any]] = {}
    for line in grid:
        path, _, values = (part.strip() for part in line.partition("="))
        if path in axes:
            raise ConfigError(f"--grid {path} is there twice; give all its values at once: {path}=V1,V2")
        try:
            axes[path] = [orjson.loads(value) for value in dict.fromkeys(values.split(","))]
        except orjson.JSONDecodeError:
            raise ConfigError(f"--grid {line}: give it as PATH=V1,V2, e.g. {DEFAULT_GRID[0]}") from None
    count = prod(map(len, axes.values()))
    if count > MOST:
        raise ConfigError(f"the grid has {count} combinations, at most {MOST} are tried; name fewer values")
    found = [dict(zip(axes, chosen, strict=True)) for chosen in product(*axes.values())]
    return [(values, _with(rules, values)) for values in found]


def _with(rules: Rules, values: dict[str, Any]) -> Rules:
    for path, value in values.items():
        *above, name = path.split(".")
        patch: dict[str, Any] = {name: value}
        ladder = held_at(rules, above)
        if isinstance(ladder, Ladder) and name == "minor" and type(value) is int:
            # The steps must increase, so the other steps are moved by the same amount.
            moved = value - ladder.minor
            higher = {"moderate": ladder.moderate, "severe": ladder.severe}
            patch |= {step: count + moved for step, count in higher.items() if count is not None}
        for step in reversed(above):
            patch = {step: patch}
        try:
            rules = overlaid(rules, patch)
        except Misfit as misfit:
            raise ConfigError(f"--grid {misfit}") from misfit
    return rules


def held_at(rules: Any, steps: Sequence[str]) -> Any:
    """Value of the rules at a path; None if there is none."""
    for step in steps:
        rules = rules.get(step) if isinstance(rules, dict) else getattr(rules, step, None)
    return rules


_SEEN_BY = {
    "repetitive_calls_with_news": "repetitive_calls",
    "repetitive_calls_with_effects": "repetitive_calls",
    "announce_no_action_in_turn": "announce_no_action",
    "announce_no_action_by_structure": "announce_no_action",
    "error_retry_by_tool": "error_retry_loop",
}
"""Thresholds of alternative detections of a pattern."""

_LADDERS = frozenset(
    name for name, kind in BehaviourRules.__annotations__.items() if str(kind) == "Ladder" and name not in _SEEN_BY
)


def alarm_of(grid: Sequence[str]) -> Alarm:
    """Definition of an alarm for a grid.

    Raises:
        ConfigError: nothing here measures a part of it, or its parts are measured in different ways.
    """
    parts = dict.fromkeys(line.partition("=")[0].strip().partition(".")[0] for line in grid)
    unmeasured = [part for part in parts if part not in _ALARMS]
    if unmeasured:
        raise ConfigError(
            f"--grid {unmeasured[0]}: nothing here measures what it does; these can be tried: {', '.join(_ALARMS)}"
        )
    found = {_ALARMS[part] for part in parts}
    if len(found) > 1:
        raise ConfigError(
            f"--grid {' and '.join(parts)}: what these rules do is measured in different ways, and neither changes "
            "what the other does; search them one after the other"
        )
    return found.pop()


def patterns_of(grid: Sequence[str]) -> frozenset[str]:
    """Patterns affected by a grid of behaviour rules; other detectors are unaffected. Empty: all."""
    paths = [line.partition("=")[0].strip().split(".") for line in grid]
    if any(path[0] != "behaviour" for path in paths):
        return frozenset()
    found = {_SEEN_BY.get(name, name) for name in (path[1] if len(path) > 1 else "" for path in paths)}
    return frozenset(found) if found <= _LADDERS else frozenset()


WORTH_A_PROCESS = 50_000
"""Minimum records to fold, over all combinations, for which more processes save more time than their start costs."""

STEP = 500
"""Number of records between two progress reports."""

POLL_S = 0.2
"""Seconds between two polls of the other processes' progress."""

_SESSIONS, _REST = STAGES[:1], STAGES[1:]


class Combination(NamedTuple):
    """Thresholds to try.

    Attributes:
        values: by their path in the rules.
        in_force: True for the rules in force, which the others are compared with.
    """

    values: dict[str, Any]
    rules: Rules
    in_force: bool = False


class Raised(NamedTuple):
    """Alarm in a session.

    Attributes:
        event_id: of the event that completed the pattern, or that starts the call.
    """

    session: str
    event_id: str


class Task(NamedTuple):
    """Combinations to try in one process, with everything it needs.

    Attributes:
        patterns: patterns that count; empty: any.
        guard: determines which calls are stopped.
        echoes: as for `Replay`.
    """

    inputs: Inputs
    numbers: tuple[int, ...]
    combinations: tuple[Combination, ...]
    alarm: Alarm
    patterns: frozenset[str]
    passing: Passing
    environment: SettingsOverrides | None
    guard: GuardOf | None
    echoes: bool


def chosen(grid: Sequence[str], present: Rules) -> list[Combination]:
    """All combinations of a grid, and the rules in force, which the others are compared with.

    Raises:
        ConfigError: the grid does not fit.
    """
    found = [
        Combination(values, rules, rules == present or all(value_at(present, path) == values[path] for path in values))
        for values, rules in combinations(grid, present)
    ]
    if not any(one.in_force for one in found):
        found.append(Combination({path: value_at(present, path) for path in found[0].values}, present, in_force=True))
    return found


def value_at(rules: Rules, path: str) -> Any:
    """Value at a path of rules; None if unset, so that a wider layer decides."""
    *above, name = path.split(".")
    found = held_at(rules, path.split("."))
    if found is UNSET and above == ["trust", "default_rule"]:
        return getattr(EscalationRule(), name)
    return None if found is UNSET else found


def try_all(
    material: Material,
    tried: Sequence[Combination],
    *,
    alarm: Alarm,
    patterns: frozenset[str] = frozenset(),
    progress: Callable[[int], None] = lambda _done: None,
) -> list[list[Raised]]:
    """Alarms of each combination, in their order; independent of the number of processes.

    If calls are the alarms, the material's guard says which are held up. No `patterns` mean any. `progress` is told
    how many records have been folded, over all combinations; of `len(tried) * inputs.count`.
    """
    inputs = material.inputs
    processes = processes_for(inputs, len(tried))
    echoes = fall_due_alike(*(one.rules for one in tried))
    rest = (alarm, patterns, material.passing, material.environment, material.guard, echoes)
    shares = processes if alarm is Alarm.CALL else len(tried)
    given = [
        Task(inputs, numbers, tuple(tried[number] for number in numbers), *rest)
        for share in range(shares)
        if (numbers := tuple(range(share, len(tried), shares)))
    ]
    found: dict[int, list[Raised]] = {}
    for task, raised in _alone(given, progress) if processes < 2 else _shared(given, processes, progress):
        found |= dict(zip(task.numbers, raised, strict=True))
    return [found[number] for number in sorted(found)]


def processes_for(inputs: Inputs, count: int) -> int:
    """Number of processes for a number of combinations."""
    if inputs.count * count < WORTH_A_PROCESS:
        return 1
    return max(1, min(os.cpu_count() or 1, count))


def _alone(given: Sequence[Task], progress: Callable[[int], None]) -> Iterator[tuple[Task, list[list[Raised]]]]:
    done = 0

    def count(records: int) -> None:
        nonlocal done
        done += records
        progress(done)

    for task in given:
        yield task, run(task, count)


def _shared(
    given: Sequence[Task], processes: int, progress: Callable[[int], None]
) -> Iterator[tuple[Task, list[list[Raised]]]]:
    # Spawned, not forked: DuckDB has threads, which a fork would leave in an undefined state.
    context = get_context("spawn")
    done = context.Value("Q", 0)
    with _pool(ProcessPoolExecutor(processes, mp_context=context, initializer=_begin, initargs=(done,))) as pool:
        running: dict[Future[list[list[Raised]]], Task] = {pool.submit(_run_counted, task): task for task in given}
        while running:
            ended, _ = wait(running, timeout=POLL_S, return_when=FIRST_COMPLETED)
            progress(done.value)
            for future in ended:
                yield running.pop(future), future.result()


@contextmanager
def _pool(pool: ProcessPoolExecutor) -> Iterator[ProcessPoolExecutor]:
    """Process pool that is terminated at once if its work is cancelled, as by an interrupt."""
    try:
        yield pool
    except BaseException:
        for process in list((pool._processes or {}).values()):  # noqa: SLF001 - public from Python 3.14 on only
            process.terminate()
        raise
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


_done: Any = None
"""Shared counter of folded records; set in each process when it starts."""


def _begin(done: Any) -> None:
    """Initialise a process; it ignores interrupts, since its parent handles them and ends it."""
    global _done  # noqa: PLW0603 - the only way to share a value with a pool's processes
    _done = done
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _run_counted(task: Task) -> list[list[Raised]]:
    def count(records: int) -> None:
        with _done.get_lock():
            _done.value += records

    return run(task, count)


def run(task: Task, count: Callable[[int], None]) -> list[list[Raised]]:
    """Alarms of each combination of a task; calls `count` with the number of folded records."""
    if task.alarm is Alarm.CALL:
        return _calls(task, count)
    return [_patterns(task, one, count) for one in task.combinations]


def _patterns(task: Task, one: Combination, count: Callable[[int], None]) -> list[Raised]:
    """Alarms of one combination: patterns it reports."""
    fold = Replay(one.rules, task.inputs, environment=task.environment, echoes=task.echoes, stages=_SESSIONS)
    found: list[Raised] = []

    def take(outputs: list[Output]) -> None:
        for output in outputs:
            if output.type == "pattern.detected" and task.passing.has(output):
                body = orjson.loads(output.value or b"{}")
                if not task.patterns or body["pattern"] in task.patterns:
                    found.append(Raised(body["session_id"], (body.get("caused_by") or [""])[-1]))

    for given in _counting(task.inputs, 1, count):
        take(fold.feed(given))
    take(fold.finish())
    return found


def _calls(task: Task, count: Callable[[int], None]) -> list[list[Raised]]:
    """Alarms of each combination: calls that a guard stops."""
    combined = task.combinations
    sessions = Replay(
        combined[0].rules, task.inputs, environment=task.environment, echoes=task.echoes, stages=_SESSIONS
    )
    make = task.guard
    assert make is not None  # noqa: S101 - the caller has given one
    folds = [
        Replay(
            one.rules,
            task.inputs,
            environment=task.environment,
            echoes=task.echoes,
            stages=_REST,
            guard=lambda _: make(sessions.topology),
        )
        for one in combined
    ]
    found: list[dict[str, Held]] = [{} for _ in folds]
    for given in _counting(task.inputs, len(combined), count):
        for fold, calls in zip(folds, found, strict=True):
            fold.look_at(given)
            for held in fold.take_held() if fold.held else ():
                if task.passing.has_held(held):
                    calls.setdefault(held.event_id, held)
        told = [output for output in sessions.feed(given) if output.topic == "outcomes"]
        for fold in folds:
            fold.feed(given)
            if told:
                fold.fold_told(given, told)
    return [[Raised(held.session, held.event_id) for held in calls.values()] for calls in found]


def _counting(inputs: Inputs, folds: int, count: Callable[[int], None]) -> Iterator[Input]:
    number = 0
    for number, given in enumerate(inputs, 1):
        yield given
        if number % STEP == 0:
            count(STEP * folds)
    count(number % STEP * folds)
