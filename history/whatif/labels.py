"""Labels of sessions, stuck or healthy, from a file or a history: the ground truth of a search.

Labels never depend on the rules, which are what is being evaluated. Sources, most trusted first:

labels   labels given by people, in a file
verdicts operators' reports on alarms: `feedback.false_alarm`
calls    outcomes of the recorded calls
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import duckdb
import orjson

from ...errors import ConfigError
from .calls import BROKE, NEITHER, WELL, WENT
from .grid import Alarm

LOOP = 6
"""Number of equal calls with the same result that count as a loop, independent of the rules."""

HEALTHY, STUCK = "healthy", "stuck"

LABELS, VERDICTS, CALLS = "labels", "verdicts", "calls"


class Truth(NamedTuple):
    """Labelled sessions.

    Attributes:
        healthy: sessions in which an alarm is false.
        stuck: sessions in which a missing alarm is a miss.
        sources: source of each label: `labels`, `verdicts` or `calls`.
    """

    healthy: frozenset[str] = frozenset()
    stuck: frozenset[str] = frozenset()
    sources: dict[str, str] = {}

    def among(self, sessions: frozenset[str]) -> Truth:
        """Restrict the labels to some sessions."""
        kept = {name: source for name, source in self.sources.items() if name in sessions}
        return Truth(self.healthy & sessions, self.stuck & sessions, kept)

    def over(self, other: Truth) -> Truth:
        """Merge with other labels; these take precedence."""
        known = self.healthy | self.stuck
        return Truth(
            self.healthy | (other.healthy - known),
            self.stuck | (other.stuck - known),
            {**other.sources, **self.sources},
        )


def truth_from(healthy: Iterable[str], stuck: Iterable[str], source: str) -> Truth:
    """Labels from one source; a session with both labels is stuck."""
    bad = frozenset(stuck)
    good = frozenset(healthy) - bad
    return Truth(good, bad, dict.fromkeys(good | bad, source))


def recorded_sessions(connection: duckdb.DuckDBPyConnection) -> frozenset[str]:
    """Ids of recorded sessions."""
    return _names(connection, "SELECT DISTINCT session_id FROM events WHERE session_id IS NOT NULL")


def truth_of(connection: duckdb.DuckDBPyConnection, alarm: Alarm, patterns: frozenset[str] = frozenset()) -> Truth:
    """Labels derived from a history, with the filters of its connection.

    Patterns: a session is stuck when one call gave the same result `LOOP` times or more, and healthy when none did even
    three times; those between count for neither. Calls: a session is stuck when one of its calls broke or was denied by
    the user, and healthy when calls of it did their work and none broke. A session in which an operator called an alarm
    of the kind (about one of `patterns`, if any are named) false is healthy.
    """
    return verdicts(connection, alarm, patterns).over(_by_calls(connection, alarm))


def verdicts(connection: duckdb.DuckDBPyConnection, alarm: Alarm, patterns: frozenset[str]) -> Truth:
    """Labels from operators' reports; a session that also has a real loop gets no label."""
    if alarm is Alarm.CALL:
        about = "f.topic IN ('escalations', 'breakers')"
        right = "SELECT NULL WHERE false"
    else:
        chosen = f" AND f.subject IN ({', '.join(repr(name) for name in sorted(patterns))})" if patterns else ""
        about = f"f.topic = 'nudges'{chosen}"
        right = "SELECT session_id FROM loops WHERE times >= ?"
    return truth_from(
        _names(
            connection,
            "SELECT DISTINCT d.session_id FROM false_alarms f JOIN decisions d ON d.id = f.output_id "  # noqa: S608
            f"WHERE {about} AND d.session_id IS NOT NULL AND d.session_id NOT IN ({right})",
            *([LOOP] if alarm is Alarm.PATTERN else []),
        ),
        (),
        VERDICTS,
    )


def _by_calls(connection: duckdb.DuckDBPyConnection, alarm: Alarm) -> Truth:
    if alarm is Alarm.CALL:
        rows = connection.execute(
            f"SELECT session_id, count(*) FILTER (went = '{WELL}') > 0, count(*) FILTER (went = '{BROKE}') > 0 "  # noqa: S608
            f"FROM (SELECT session_id, {WENT} AS went FROM tool_calls) WHERE went <> '{NEITHER}' GROUP BY session_id"
        ).fetchall()
        return truth_from((name for name, *_ in rows), (name for name, _, broke in rows if broke), CALLS)
    return truth_from(
        _names(
            connection,
            "SELECT DISTINCT session_id FROM tool_calls WHERE session_id NOT IN (SELECT session_id FROM loops)",
        ),
        _names(connection, "SELECT DISTINCT session_id FROM loops WHERE times >= ?", LOOP),
        CALLS,
    )


def labelled(file: Path) -> Truth:
    """Labels from a file: NDJSON with `session_id` and `label`: `healthy`, `stuck`, or another value, which is ignored.

    Raises:
        ConfigError: the file is missing or invalid.
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
    return truth_from(kinds[HEALTHY], kinds[STUCK], LABELS)


def _names(connection: duckdb.DuckDBPyConnection, query: str, *arguments: object) -> frozenset[str]:
    return frozenset(row[0] for row in connection.execute(query, list(arguments)).fetchall())
