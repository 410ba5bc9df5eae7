"""Search for thresholds over a history: trials, evaluation, choice, and its price."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import duckdb

from ...rules.rules import Rules
from ..inputs import Inputs
from .calls import BROKE, WELL, CallPlace, Went, places, went
from .choice import HOLD_OUT, Choice, Split, Trial, Weights, choose, split, weights
from .grid import Alarm, Combination, Raised, alarm_of, chosen, patterns_of, try_all
from .labels import Truth, labelled, recorded_sessions, truth_of
from .replay import Material


class Judged(NamedTuple):
    """Labelled sessions that a search is evaluated on.

    Attributes:
        truth: labels of the sessions.
        left_out: number of labelled sessions that are missing in the history, or not recorded from their start.
    """

    truth: Truth
    left_out: int


class Wanted(NamedTuple):
    """Parameters of a search.

    Attributes:
        grid: lines `PATH=V1,V2`.
        false_alarm: weight of a false alarm; None: default of `choice.weights`.
        miss: weight of a miss; None: default of `choice.weights`.
        hold_out: fraction of the evaluated sessions held out to check the choice, 0 to less than 1.
        seed: seed that selects these sessions.
    """

    grid: Sequence[str]
    false_alarm: float | None = None
    miss: float | None = None
    hold_out: float = HOLD_OUT
    seed: int = 0


class Found(NamedTuple):
    """Result of a search.

    Attributes:
        trials: results of each combination, in the order of the grid, including the rules in force.
        rules: rules of each combination.
        parts: sessions used to choose, and sessions used to check the choice.
        weigh: costs of a false alarm and of a miss.
        choice: the combination chosen, and its price.
    """

    alarm: Alarm
    trials: list[Trial]
    rules: list[Rules]
    judged: Judged
    parts: Split
    weigh: Weights
    choice: Choice

    @property
    def chosen(self) -> int | None:
        """Number of the chosen combination; None: there are too few sessions to choose by."""
        return next((number for number, trial in enumerate(self.trials) if trial is self.choice.trial), None)

    @property
    def in_force(self) -> Trial:
        """Trial of the rules in force."""
        return next(one for one in self.trials if one.in_force)


def judged(
    connection: duckdb.DuckDBPyConnection,
    inputs: Inputs,
    labels: Path | None,
    alarm: Alarm = Alarm.PATTERN,
    patterns: frozenset[str] = frozenset(),
) -> Judged:
    """Labels of the sessions that are folded from their start: from a file, else what the history tells.

    Raises:
        ConfigError: the labels cannot be read.
    """
    truth = labelled(labels) if labels else truth_of(connection, alarm, patterns)
    known = recorded_sessions(connection)
    kept = truth.among(known if inputs.whole is None else known & inputs.whole)
    return Judged(kept, len(truth.sources) - len(kept.sources))


def search(
    material: Material,
    present: Rules,
    wanted: Wanted,
    known: Judged,
    *,
    progress: Callable[[int], None] = lambda _done: None,
) -> Found:
    """Try every combination of a grid and choose the one that costs least on the known sessions.

    `progress` is told how many records have been folded, over all combinations.

    Raises:
        ConfigError: the grid does not fit.
    """
    alarm, patterns = alarm_of(wanted.grid), patterns_of(wanted.grid)
    tried = chosen(wanted.grid, present)
    raised = try_all(material, tried, alarm=alarm, patterns=patterns, progress=progress)
    trials = _scored(material.connection, tried, raised, known.truth, alarm)
    parts = split(known.truth, wanted.hold_out, wanted.seed)
    weigh = weights(parts.by, wanted.false_alarm, wanted.miss)
    return Found(
        alarm=alarm,
        trials=trials,
        rules=[combination.rules for combination in tried],
        judged=known,
        parts=parts,
        weigh=weigh,
        choice=choose(trials, parts, weigh),
    )


def _scored(
    connection: duckdb.DuckDBPyConnection,
    tried: Sequence[Combination],
    raised: Sequence[Sequence[Raised]],
    truth: Truth,
    alarm: Alarm,
) -> list[Trial]:
    """Results of each combination over the evaluated sessions."""
    ended = went(connection, {one.event_id for every in raised for one in every}) if alarm is Alarm.CALL else {}
    firsts = [_firsts(every, truth, ended if alarm is Alarm.CALL else None) for every in raised]
    where = places(connection, {event for first in firsts for event in first.values()})
    none = CallPlace("", "", "", 0)
    return [
        Trial(
            combination.values,
            combination.in_force,
            len(every),
            {name: where.get(event, none).number for name, event in first.items() if name in truth.healthy},
            {name: where.get(event, none).number for name, event in first.items() if name in truth.stuck},
            sum(ended.get(one.event_id) == WELL for one in every) if alarm is Alarm.CALL else None,
        )
        for combination, every, first in zip(tried, raised, firsts, strict=True)
    ]


def _firsts(raised: Sequence[Raised], truth: Truth, ended: dict[str, Went] | None) -> dict[str, str]:
    """Event of the first alarm of each judged session; of calls in a stuck one, only those that broke are caught."""
    first: dict[str, str] = {}
    for session, event in raised:
        right = session in truth.healthy or (session in truth.stuck and (ended is None or ended.get(event) == BROKE))
        if right:
            first.setdefault(session, event)
    return first
