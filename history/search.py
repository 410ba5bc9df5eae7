"""Trying thresholds: which rules catch the loops, and what they cost in alarms over healthy sessions.

What is a loop and what is healthy is not taken from the rules that are tried. By default it follows from the calls
alone: a session is stuck when one call gave the same result six times or more, and healthy when none did even three
times; sessions between count for neither. People's own labels are better where there are some.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import msgspec
import orjson

from ..projections.emit import Output
from ..schemas.errors import ConfigError
from ..schemas.rules import Ladder, Rules

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


class Trial(NamedTuple):
    """One combination and what came of it.

    Attributes:
        values: the thresholds tried, by their path in the rules.
        alarmed: healthy sessions with an alarm.
        caught: stuck sessions with an alarm.
        alarms: alarms in all.
    """

    values: dict[str, Any]
    healthy: int
    alarmed: int
    stuck: int
    caught: int
    alarms: int

    @property
    def false_alarms(self) -> float:
        """Share of healthy sessions with an alarm, 0 to 1."""
        return self.alarmed / self.healthy if self.healthy else 0.0

    @property
    def recall(self) -> float:
        """Share of stuck sessions with an alarm, 0 to 1."""
        return self.caught / self.stuck if self.stuck else 0.0


def recorded_sessions(connection: duckdb.DuckDBPyConnection, since: datetime | None = None) -> frozenset[str]:
    """Sessions of which something is recorded, from a time on."""
    found = connection.execute(
        "SELECT DISTINCT session_id FROM events WHERE $since IS NULL OR time >= $since", {"since": _utc(since)}
    ).fetchall()
    return frozenset(row[0] for row in found)


def truth_of(connection: duckdb.DuckDBPyConnection, since: datetime | None = None) -> Truth:
    """What the recorded calls themselves say, from a time on."""
    moment = {"since": _utc(since)}
    stuck = connection.execute(
        "SELECT DISTINCT session_id FROM loops WHERE times >= $most AND ($since IS NULL OR last_time >= $since)",
        {**moment, "most": LOOP},
    ).fetchall()
    healthy = connection.execute(
        "SELECT DISTINCT session_id FROM tool_calls WHERE session_id NOT IN (SELECT session_id FROM loops) "
        "AND ($since IS NULL OR time >= $since)",
        moment,
    ).fetchall()
    return Truth(frozenset(row[0] for row in healthy), frozenset(row[0] for row in stuck))


def _utc(since: datetime | None) -> datetime | None:
    return since.astimezone(UTC).replace(tzinfo=None) if since is not None else None


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
        ConfigError: a path or a value does not fit, or there are too many.
    """
    axes: list[tuple[str, list[Any]]] = []
    for line in grid:
        path, _, values = line.partition("=")
        try:
            axes.append((path.strip(), [orjson.loads(value) for value in values.split(",")]))
        except orjson.JSONDecodeError:
            raise ConfigError(f"--grid {line}: give it as PATH=V1,V2, e.g. {DEFAULT_GRID[0]}") from None
    found = [dict(zip((path for path, _ in axes), chosen, strict=True)) for chosen in product(*(v for _, v in axes))]
    if len(found) > MOST:
        raise ConfigError(f"the grid has {len(found)} combinations, at most {MOST} are tried; name fewer values")
    return [(values, _with(rules, values)) for values in found]


def _with(rules: Rules, values: dict[str, Any]) -> Rules:
    for path, value in values.items():
        rules = _laid(rules, path.split("."), value, path)
    return rules


def _laid(rules: Any, steps: list[str], value: Any, path: str) -> Any:
    name = steps[0]
    if isinstance(rules, Ladder) and name == "minor":
        # The steps must rise: the others keep their distance.
        moved = value - rules.minor
        raised = {"minor": value, "moderate": rules.moderate + moved, "severe": rules.severe + moved}
        return _converted(Ladder, msgspec.to_builtins(rules) | raised, path)
    if not isinstance(rules, msgspec.Struct) or name not in rules.__struct_fields__:
        raise ConfigError(f"--grid {path}: there is no such rule")
    inner = value if len(steps) == 1 else _laid(getattr(rules, name), steps[1:], value, path)
    built = msgspec.to_builtins(rules) | {name: msgspec.to_builtins(inner)}
    return _converted(type(rules), built, path)


def _converted(kind: type[Any], built: dict[str, Any], path: str) -> Any:
    try:
        return msgspec.convert(built, kind)
    except msgspec.ValidationError as error:
        raise ConfigError(f"--grid {path}: {error}") from error


ALARMS = {"behaviour": "pattern.detected", "trust": "trust.changed", "breakers": "breaker.changed"}
"""What counts as an alarm, by the part of the rules that is tried."""


def alarm_types(grid: Sequence[str]) -> frozenset[str]:
    """Decisions that are alarms for this grid."""
    parts = {line.partition(".")[0] for line in grid}
    return frozenset(ALARMS[part] for part in parts if part in ALARMS) or frozenset(ALARMS.values())


def try_out(values: dict[str, Any], outputs: Iterable[Output], types: frozenset[str], truth: Truth) -> Trial:
    """What one fold's outputs say about a combination."""
    alarms = 0
    sessions: set[str] = set()
    for output in outputs:
        if output.type in types and output.value is not None and is_alarm(output):
            alarms += 1
            sessions.add(str(orjson.loads(output.value).get("session_id", "")))
    return Trial(
        values,
        len(truth.healthy),
        len(sessions & truth.healthy),
        len(truth.stuck),
        len(sessions & truth.stuck),
        alarms,
    )


def is_alarm(output: Output) -> bool:
    """Whether a transition is one for the worse; a pattern always is."""
    if output.type == "pattern.detected":
        return True
    return orjson.loads(output.value or b"{}").get("to") in {"escalated", "blocked", "open"}


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
