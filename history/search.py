"""Trying thresholds: which rules catch the loops, and what they cost in alarms over healthy sessions.

What is a loop and what is healthy is not taken from the rules that are tried. By default it follows from the calls
alone: a session is stuck when one call gave the same result six times or more, and healthy when none did even three
times; sessions between count for neither. People's own labels are better where there are some. Only sessions that are
folded from their beginning are judged.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import product
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import orjson

from ..projections.emit import Output
from ..schemas.errors import ConfigError
from ..schemas.older_shapes import Misfit
from ..schemas.rule_text import fitted
from ..schemas.rules import BehaviourRules, Ladder, Rules

LOOP = 6
"""The same call with the same result so often is a loop, whatever the rules say."""

MOST = 64
"""Combinations tried at most; each folds everything once."""

DEFAULT_GRID = ("behaviour.repetitive_calls.minor=2,3,4,5,6", "behaviour.error_retry_loop.minor=2,3,4")
"""The two thresholds that decide most."""

HEALTHY, STUCK = "healthy", "stuck"


class Truth(NamedTuple):
    """Sessions by what they really were."""

    healthy: frozenset[str]
    stuck: frozenset[str]

    def among(self, sessions: frozenset[str]) -> Truth:
        """Of these sessions only."""
        return Truth(self.healthy & sessions, self.stuck & sessions)


class Trial(NamedTuple):
    """One combination and what came of it.

    Attributes:
        values: the thresholds tried, by their path in the rules.
        healthy: healthy sessions.
        alarmed: of them, those with an alarm.
        stuck: stuck sessions.
        caught: of them, those with an alarm.
        alarms: alarms in all, in whatever session.
        in_force: these values are those of the rules they were laid over.
    """

    values: dict[str, Any]
    healthy: int
    alarmed: int
    stuck: int
    caught: int
    alarms: int
    in_force: bool = False

    @property
    def false_alarms(self) -> float:
        """Share of healthy sessions with an alarm, 0 to 1."""
        return self.alarmed / self.healthy if self.healthy else 0.0

    @property
    def recall(self) -> float:
        """Share of stuck sessions with an alarm, 0 to 1."""
        return self.caught / self.stuck if self.stuck else 0.0


def recorded_sessions(connection: duckdb.DuckDBPyConnection) -> frozenset[str]:
    """Sessions of which something is recorded."""
    return frozenset(row[0] for row in connection.execute("SELECT DISTINCT session_id FROM events").fetchall())


def truth_of(connection: duckdb.DuckDBPyConnection) -> Truth:
    """What the recorded calls themselves say."""
    stuck = connection.execute("SELECT DISTINCT session_id FROM loops WHERE times >= ?", [LOOP]).fetchall()
    healthy = connection.execute(
        "SELECT DISTINCT session_id FROM tool_calls WHERE session_id NOT IN (SELECT session_id FROM loops)"
    ).fetchall()
    return Truth(frozenset(row[0] for row in healthy), frozenset(row[0] for row in stuck))


def labelled(file: Path) -> Truth:
    """What people say: lines of JSON with `session_id` and `label`: `healthy`, `stuck`, or what counts for neither.

    Raises:
        ConfigError: the file cannot be read as that.
    """
    kinds: dict[str, set[str]] = {HEALTHY: set(), STUCK: set()}
    try:
        lines = file.read_bytes().splitlines()
    except OSError as error:
        raise ConfigError(f"{file}: cannot be read ({error.strerror})") from error
    for number, line in enumerate(lines, 1):
        try:
            if line.strip():
                told = orjson.loads(line)
                kinds.get(str(told["label"]), set()).add(str(told["session_id"]))
        except (ValueError, KeyError, TypeError) as error:
            raise ConfigError(
                f'{file}:{number}: one object a line with "session_id" and "label" is wanted ({error!r})'
            ) from error
    return Truth(frozenset(kinds[HEALTHY] - kinds[STUCK]), frozenset(kinds[STUCK]))


def combinations(grid: Sequence[str], rules: Rules) -> list[tuple[dict[str, Any], Rules]]:
    """Every combination of a grid of lines `PATH=V1,V2`, laid over rules.

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
        ladder = _at(rules, above)
        if isinstance(ladder, Ladder) and name == "minor" and type(value) is int:
            # The steps must rise: the others keep their distance.
            moved = value - ladder.minor
            patch |= {"moderate": ladder.moderate + moved, "severe": ladder.severe + moved}
        for step in reversed(above):
            patch = {step: patch}
        try:
            rules = fitted(rules, patch)
        except Misfit as misfit:
            raise ConfigError(f"--grid {misfit}") from misfit
    return rules


def _at(rules: Any, steps: Sequence[str]) -> Any:
    """What the rules hold at a path; None where there is nothing."""
    for step in steps:
        rules = rules.get(step) if isinstance(rules, dict) else getattr(rules, step, None)
    return rules


ALARMS = {"behaviour": "pattern.detected", "trust": "trust.changed", "breakers": "breaker.changed"}
"""What counts as an alarm, by the part of the rules that is tried."""


_SEEN_BY = {
    "poll_no_progress": "repetitive_calls",
    "read_only_cap": "read_only_loop",
    "error_retry_by_tool": "error_retry_loop",
}
"""Thresholds that are a second way to see a pattern."""

_LADDERS = frozenset(
    name for name, kind in BehaviourRules.__annotations__.items() if str(kind) == "Ladder" and name not in _SEEN_BY
)


class Alarms(NamedTuple):
    """What counts as an alarm.

    Attributes:
        types: decisions of these types.
        patterns: patterns of these names; empty: of any.
    """

    types: frozenset[str]
    patterns: frozenset[str] = frozenset()

    def has(self, output: Output) -> bool:
        """Whether an output is an alarm: a pattern, or a transition for the worse."""
        if output.type not in self.types:
            return False
        body = orjson.loads(output.value or b"{}")
        if output.type == "pattern.detected":
            return not self.patterns or body["pattern"] in self.patterns
        return body.get("to") in {"escalated", "blocked", "open"}


def alarms_of(grid: Sequence[str]) -> Alarms:
    """Decisions that are alarms for this grid: those of the detectors tried, for what others say stays the same."""
    paths = [line.partition("=")[0].strip().split(".") for line in grid]
    types = frozenset(ALARMS[path[0]] for path in paths if path[0] in ALARMS) or frozenset(ALARMS.values())
    behaviour = [path[1] if len(path) > 1 else "" for path in paths if path[0] == "behaviour"]
    patterns = {_SEEN_BY.get(name, name) for name in behaviour}
    return Alarms(types, frozenset(patterns) if patterns <= _LADDERS else frozenset())


def try_out(
    values: dict[str, Any],
    outputs: Iterable[Output],
    counted: Alarms,
    truth: Truth,
    *,
    since_ms: int = 0,
    in_force: bool = False,
) -> Trial:
    """What one fold's outputs say about a combination; alarms before a time do not count."""
    alarms = 0
    sessions: set[str] = set()
    for output in outputs:
        if output.time_ms >= since_ms and counted.has(output):
            alarms += 1
            sessions.add(str(orjson.loads(output.value or b"{}").get("session_id", "")))
    return Trial(
        values,
        len(truth.healthy),
        len(sessions & truth.healthy),
        len(truth.stuck),
        len(sessions & truth.stuck),
        alarms,
        in_force,
    )


def best(trials: Sequence[Trial]) -> list[Trial]:
    """Combinations that no other one beats in both: fewer false alarms and as many loops caught."""
    return [
        one
        for one in trials
        if not any(
            other.false_alarms <= one.false_alarms
            and other.recall >= one.recall
            and (other.false_alarms, other.recall) != (one.false_alarms, one.recall)
            for other in trials
        )
    ]


def recommended(trials: Sequence[Trial]) -> Trial | None:
    """The combination whose share of loops caught exceeds its share of false alarms most (Youden's J).

    Of equal ones that with fewer alarms, then the one in force, then the first. None where there is nothing to compare.
    """
    judged = [one for one in trials if one.healthy and one.stuck]
    return max(judged, key=lambda one: (one.recall - one.false_alarms, -one.alarms, one.in_force), default=None)
