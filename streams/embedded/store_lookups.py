"""Queries of a store by session, event or decision, with the indexes of `lookups.sql`.

A store written only by versions without these indexes is scanned instead, which is slower and gives the same result.
Records deleted by retention (`Store.forget`) are not found.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from .store import store_error

MAX_PAGE = 10_000
"""Largest number of records of one query; a follower continues from the last offset."""

BLOCK_BITS = 12
"""The indexes of the log begin with `seq >> 12`: blocks are queried one by one, newest first."""

_DECIDED = "topic IN ('nudges', 'escalations', 'breakers', 'suggestions', 'events')"
"""Exactly as in `lookups.sql`: otherwise SQLite does not use the index."""

_OUTPUT_SESSION = "json_extract(CAST(value AS TEXT), '$.session_id')"


def _field(name: str) -> str:
    return f"CASE WHEN json_valid(CAST(value AS TEXT)) THEN json_extract(CAST(value AS TEXT), '$.{name}') END"


class StoredDecision(NamedTuple):
    """Decision in its wire form.

    Attributes:
        offset: increases over all outputs, from 1.
        arrived_ms: wall clock of the causing input, milliseconds; -1 if unknown.
    """

    offset: int
    value: bytes
    arrived_ms: int


class StoredEvent(NamedTuple):
    """Input event of the log.

    Attributes:
        seq: sequence number in the log; 0 for an event that the engine appended to its outputs alone.
        arrived_ms: wall clock, milliseconds; -1 if unknown.
    """

    seq: int
    value: bytes
    arrived_ms: int


class Lookups:
    """Queries of one store. Not thread-safe."""

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        """Use an open connection."""
        self._connection = connection
        self._path = path

    def session_events(self, session_id: str, *, before: int | None = None, limit: int = MAX_PAGE) -> list[StoredEvent]:
        """Return the latest events of a session before `seq` `before`, oldest first, at most `limit`."""
        found: list[StoredEvent] = []
        for where, arguments in self._places("log_by_session"):
            statement = (
                f"SELECT seq, value, arrived_ms FROM log WHERE {where} {_field('session_id')} = ? AND seq < ? "  # noqa: S608
                "AND topic = 'events' AND value IS NOT NULL ORDER BY seq DESC LIMIT ?"
            )
            rows = self._all(statement, (*arguments, session_id, _end(before), limit - len(found)))
            found += [StoredEvent(*row) for row in rows]
            if len(found) >= limit:
                break
        return found[::-1]

    def appended_events(self, session_id: str) -> list[StoredEvent]:
        """Return events of a session that the engine appended itself (overdue calls), oldest first."""
        return [
            StoredEvent(0, one.value, one.arrived_ms)
            for one in self._decided(f"{_DECIDED} AND {_OUTPUT_SESSION} = ? AND +topic = 'events'", (session_id,))
        ]

    def session_decisions(
        self, session_id: str, *, before: int | None = None, limit: int = MAX_PAGE
    ) -> list[StoredDecision]:
        """Return the latest decisions about a session, or caused in it, before an offset, oldest first.

        Changes of circuits name no session: `circuit_changes`.
        """
        where = f"{_DECIDED} AND {_OUTPUT_SESSION} = ? AND +topic <> 'events' AND offset < ?"
        return self._decided(where, (session_id, _end(before)), limit, latest=True)

    def circuit_changes(self, since_ms: int, until_ms: int, *, limit: int = MAX_PAGE) -> list[StoredDecision]:
        """Return decisions about circuits in a time interval (milliseconds, both ends included), oldest first."""
        return self._decided("topic = 'breakers' AND time_ms BETWEEN ? AND ?", (since_ms, until_ms), limit)

    def decision(self, decision_id: str) -> StoredDecision | None:
        """Return the decision with an id; None if it does not exist or was deleted."""
        found = self._decided(f"{_DECIDED} AND id = ? AND +topic <> 'events'", (decision_id,), 1)
        return found[0] if found else None

    def events_up_to(self, seq: int, *, limit: int = 2000) -> list[StoredEvent]:
        """Return the latest events of all sessions up to and including a `seq`, oldest first."""
        rows = self._all(
            "SELECT seq, value, arrived_ms FROM log WHERE seq <= ? AND topic = 'events' AND value IS NOT NULL "
            "ORDER BY seq DESC LIMIT ?",
            (seq, min(limit, MAX_PAGE)),
        )
        return [StoredEvent(*row) for row in rows[::-1]]

    def patterns_by_session(self, *, limit: int = MAX_PAGE) -> dict[str, int]:
        """Return the number of detected patterns by session, among the latest `limit` outputs about behaviour."""
        statement = (
            f"SELECT {_OUTPUT_SESSION}, count(*) FILTER (WHERE type = 'pattern.detected') FROM "  # noqa: S608 - our own words
            "(SELECT type, value FROM outputs WHERE topic = 'nudges' AND value IS NOT NULL "
            "ORDER BY offset DESC LIMIT ?) GROUP BY 1"
        )
        return dict(self._all(statement, (limit,)))

    def events_of(self, ids: Collection[str], *, before: int | None = None) -> list[StoredEvent]:
        """Return events by id before a `seq`, in the order of the log; then those the engine appended."""
        missing, found = set(ids), list[StoredEvent]()
        for where, arguments in self._places("log_by_id"):
            if not missing:
                break
            marks = ", ".join("?" * len(missing))
            statement = (
                f"SELECT seq, value, arrived_ms FROM log WHERE {where} {_field('id')} IN ({marks}) AND seq < ? "  # noqa: S608
                "AND topic IN ('events', 'commands') AND value IS NOT NULL ORDER BY seq DESC"
            )
            rows = self._all(statement, (*arguments, *missing, _end(before)))
            found += [StoredEvent(*row) for row in rows]
            missing -= {str(orjson.loads(row[1])["id"]) for row in rows}
        found.reverse()
        for one in sorted(missing):
            appended = self._decided(f"{_DECIDED} AND id = ? AND +topic = 'events'", (one,), 1)
            found += [StoredEvent(0, row.value, row.arrived_ms) for row in appended]
        return found

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def _places(self, index: str) -> Iterator[tuple[str, tuple[int, ...]]]:
        """Yield conditions for each block of the log, newest first; one empty condition if the index is missing."""
        if not self._all("SELECT 1 FROM sqlite_schema WHERE type = 'index' AND name = ?", (index,)):
            yield "", ()
            return
        ((first, last),) = self._all("SELECT min(seq), max(seq) FROM log")
        if last is not None:
            for block in range(last >> BLOCK_BITS, (first >> BLOCK_BITS) - 1, -1):
                yield f"seq >> {BLOCK_BITS} = ? AND", (block,)

    def _decided(
        self, where: str, arguments: Sequence[object], limit: int = MAX_PAGE, *, latest: bool = False
    ) -> list[StoredDecision]:
        order = "DESC" if latest else ""
        statement = (
            f"SELECT offset, value, arrived_ms FROM outputs WHERE {where} AND value IS NOT NULL "  # noqa: S608 - our own words
            f"ORDER BY offset {order} LIMIT ?"
        )
        rows = self._all(statement, (*arguments, max(0, min(limit, MAX_PAGE))))
        found = [StoredDecision(*row) for row in rows]
        return found[::-1] if latest else found

    def _all(self, statement: str, arguments: Iterable[object] = ()) -> list[tuple[Any, ...]]:
        try:
            return self._connection.execute(statement, tuple(arguments)).fetchall()
        except sqlite3.Error as error:
            raise store_error(self._path, error) from error


def _end(before: int | None) -> int:
    return (1 << 62) if before is None else before
