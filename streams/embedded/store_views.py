"""Queries of a store, concurrently with its writer: decisions, states, dead letters, records by session or by id.

Opened read-only, with or without a running engine. Each query sees the last committed batch as a whole. Those by
session or id use the indexes of `lookups.sql`; a store written only by versions without them is scanned instead, which
is slower and gives the same result. Records deleted by retention (`StoreWriter.forget`) are not found.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, Self

import msgspec
import orjson

from ...projections.emitter import StageOutput
from ...projections.session.session_state import SessionState
from ...projections.snapshot import codec_of
from ...projections.topology import DECISION_TOPICS, STAGE_OF_TOPIC
from ...schemas.codec import UNREADABLE, is_valid
from ...schemas.settings import SettingsOverrides
from .store import FIRST_OFFSET, OUTPUTS, connect, store_error

DEAD_LETTERS = "dead-letters"

MAX_PAGE = 10_000  # Largest number of records of one query; a follower continues from the last offset
MAX_SEARCHED = 1_000_000  # Latest records of the log that are searched for a text: about a second
PAGE_BYTES = 16 * 1024 * 1024  # Bytes of records in a page; the last record may exceed it
BLOCK_BITS = 12  # The indexes of the log begin with `seq >> 12`: blocks are queried one by one, newest first

# Exactly as in `lookups.sql`: otherwise SQLite does not use the index
_DECIDED = "topic IN ('nudges', 'escalations', 'breakers', 'suggestions', 'events')"

_OUTPUT_SESSION = "json_extract(CAST(value AS TEXT), '$.session_id')"


_END = 1 << 62  # Offset greater than every other

_COLUMNS = "offset, topic, key, value, id, type, time_ms, traceparent"


def _field(name: str) -> str:
    return f"CASE WHEN json_valid(CAST(value AS TEXT)) THEN json_extract(CAST(value AS TEXT), '$.{name}') END"


_LIKE = "CAST(value AS TEXT) LIKE ? ESCAPE '!'"


def _like(text: str) -> str:
    """Pattern of `_LIKE` for texts that hold a text."""
    return "%" + text.replace("!", "!!").replace("%", "!%").replace("_", "!_") + "%"


class StoredDecision(NamedTuple):
    """Decision in its wire form."""

    offset: int  # increases over all outputs, from 1
    value: bytes
    arrived_ms: int  # wall clock of the causing input, milliseconds; -1 if unknown


class StoredEvent(NamedTuple):
    """Input event of the log."""

    seq: int  # sequence number in the log; 0 for an event that the engine appended to its outputs alone
    value: bytes
    arrived_ms: int  # wall clock, milliseconds; -1 if unknown


class CopiedRecord(NamedTuple):
    """Record of the log or of the outputs."""

    topic: str
    offset: int  # its `seq` in the log, or its offset in the outputs
    arrived_ms: int  # wall clock, milliseconds; -1 if unknown
    key: bytes | None
    value: bytes | None


class StoredOutput(NamedTuple):
    """Output with its offset; `offset` increases over all topics, from 1."""

    offset: int
    output: StageOutput


class StoreViews:
    """Queries of one store. Not thread-safe; usually created by `open`."""

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        """Use an open connection."""
        self._connection = connection
        self._path = path

    @classmethod
    def open(cls, path: str | Path) -> Self:
        """Open a store read-only.

        Raises:
            StoreError: there is no such file, or it is not a store of this version.
        """
        return cls(connect(Path(path), writable=False), Path(path))

    def decisions(
        self, topics: Iterable[str] = DECISION_TOPICS, *, after: int = 0, limit: int = 1000
    ) -> list[StoredOutput]:
        """Return outputs of the topics after the offset `after`, oldest first, at most `limit`."""
        wanted = list(topics)
        # The plus prevents SQLite from collecting every record of several topics before it sorts them.
        column = "topic" if len(wanted) == 1 else "+topic"
        marks = ", ".join("?" * len(wanted))
        where = f"offset > ? AND {column} IN ({marks})"
        return self._outputs(where, (after, *wanted), limit)

    def latest(
        self, topics: Sequence[str] = DECISION_TOPICS, *, before: int | None = None, limit: int = 200
    ) -> list[StoredOutput]:
        """Return the latest outputs of the topics before the offset `before`, oldest first."""
        marks = ", ".join("?" * len(topics))
        statement = (
            f"SELECT {_COLUMNS} FROM outputs WHERE offset < ? AND +topic IN ({marks}) "  # noqa: S608 - our own words
            "ORDER BY offset DESC LIMIT ?"
        )
        rows = self._all(statement, (_END if before is None else before, *topics, min(limit, MAX_PAGE)))
        return [StoredOutput(row[0], StageOutput(*row[1:])) for row in rows[::-1]]

    def newest_ms(self) -> int | None:
        """Return the arrival of the newest input record, milliseconds since 1970; None if unknown."""
        rows = self._all("SELECT arrived_ms FROM log WHERE topic = 'events' ORDER BY seq DESC LIMIT 1")
        return int(rows[0][0]) if rows and rows[0][0] >= 0 else None

    def states(self) -> dict[str, bytes]:
        """Return the latest public record of every key that differs from its default, by key of the `state` topic."""
        return dict(self._all("SELECT key, value FROM public ORDER BY key"))

    def dead_letters(self, *, after: int = 0, limit: int = 1000, republished: bool = False) -> list[StoredOutput]:
        """Return dead letters after an offset, oldest first; republished ones only on request."""
        where = "topic = ? AND offset > ? AND (? OR offset NOT IN (SELECT offset FROM republished))"
        return self._outputs(where, (DEAD_LETTERS, after, republished), limit)

    def dead_letter(self, offset: int) -> StageOutput | None:
        """The dead letter at an offset."""
        found = self._outputs("offset = ? AND topic = ?", (offset, DEAD_LETTERS), 1)
        return found[0].output if found else None

    def next_offset(self) -> int:
        """Return the offset of the next output."""
        rows = self._all("SELECT next FROM positions WHERE name = ?", (OUTPUTS,))
        return int(rows[0][0]) if rows else FIRST_OFFSET

    def noted(self, name: str) -> object | None:
        """Return a stored fact, such as the rules in force."""
        rows = self._all("SELECT value FROM meta WHERE name = ?", (name,))
        return orjson.loads(rows[0][0]) if rows else None

    def scopes(self) -> dict[str, SettingsOverrides]:
        """Return the overrides of each user and workspace."""
        if not self._all("SELECT 1 FROM sqlite_schema WHERE name = 'settings'"):
            return {}  # a store older than the settings, not yet written by this version
        rows = self._all("SELECT scope, overrides FROM settings ORDER BY scope")
        return {scope: msgspec.json.decode(overrides, type=SettingsOverrides) for scope, overrides in rows}

    def session(self, session_id: str) -> str:
        """Return a session's overrides in the form of its state; empty without any, or without the session."""
        state = self._session(session_id)
        return state.overrides if state is not None else ""

    def owner(self, session_id: str) -> tuple[str, str]:
        """Return workspace and user of a session; empty if unknown."""
        state = self._session(session_id)
        return (state.workspace_id, state.user_id) if state is not None else ("", "")

    def sessions(self, keys: Collection[bytes] | None = None) -> list[tuple[str, SessionState]]:
        """Return id and state of every open session (docs/events.md), or of those of the keys that are open."""
        stage = STAGE_OF_TOPIC["events"]
        codec = codec_of(stage)
        rows = (
            self._all("SELECT key, snapshot FROM states WHERE stage = ?", (stage.name,))
            if keys is None
            else [
                (key, snapshot)
                for key in keys
                for (snapshot,) in self._all(
                    "SELECT snapshot FROM states WHERE stage = ? AND key = ?", (stage.name, key)
                )
            ]
        )
        return [(key.decode(errors="replace"), codec.decode(snapshot)) for key, snapshot in rows]

    # --- for copying, each table by its own position ------------------------------------------------------------------

    def log(self, after: int, limit: int) -> list[CopiedRecord]:
        """Return inputs after a `seq`, of every source topic, in folding order; at most `PAGE_BYTES`."""
        return list(
            self._page("SELECT topic, seq, arrived_ms, key, value FROM log WHERE seq > ? ORDER BY seq", after, limit)
        )

    def outputs(self, after: int, limit: int) -> list[CopiedRecord]:
        """Return outputs after an offset, of every topic, in order, including the events that the engine appended.

        At most `PAGE_BYTES`.
        """
        statement = (
            "SELECT topic, offset, arrived_ms, CAST(key AS BLOB), value FROM outputs WHERE offset > ? ORDER BY offset"
        )
        return list(self._page(statement, after, limit))

    def ends(self) -> tuple[int, int]:
        """Return the last `seq` of the log and the last offset of the outputs; 0 for an empty table."""
        statement = "SELECT coalesce((SELECT max(seq) FROM log), 0), (SELECT next FROM positions WHERE name = ?)"
        ((log, following),) = self._all(statement, (OUTPUTS,))
        return log, (following or FIRST_OFFSET) - 1

    # --- by session or id --------------------------------------------------------------------------------------------

    def session_events(self, session_id: str, *, before: int | None = None, limit: int = MAX_PAGE) -> list[StoredEvent]:
        """Return the latest events of a session before `seq` `before`, oldest first, at most `limit`."""
        found: list[StoredEvent] = []
        for where, arguments in self._places("log_by_session"):
            statement = (
                f"SELECT seq, value, arrived_ms FROM log WHERE {where} {_field('session_id')} = ? AND seq < ? "  # noqa: S608
                "AND topic = 'events' AND value IS NOT NULL ORDER BY seq DESC"
            )
            rows = self._rows(statement, (*arguments, session_id, _END if before is None else before))
            found += islice(_folded(rows), limit - len(found))
            if len(found) >= limit:
                break
        return found[::-1]

    def appended_events(self, session_id: str) -> list[StoredEvent]:
        """Return events of a session that the engine appended itself (overdue calls), oldest first."""
        return [
            StoredEvent(0, one.value, one.arrived_ms)
            for one in self._decided(f"{_DECIDED} AND {_OUTPUT_SESSION} = ? AND +topic = 'events'", (session_id,))
        ]

    def session_calls(self, session_id: str, *, limit: int = MAX_PAGE) -> list[bytes]:
        """Return the latest records of calls of a session, newest first."""
        where = f"topic = 'outcomes' AND {_OUTPUT_SESSION} = ?"
        rows = self._all(f"SELECT value FROM outputs WHERE {where} ORDER BY offset DESC LIMIT ?", (session_id, limit))  # noqa: S608
        return [value for (value,) in rows]

    def session_decisions(
        self, session_id: str, *, before: int | None = None, limit: int = MAX_PAGE
    ) -> list[StoredDecision]:
        """Return the latest decisions about a session, or caused in it, before an offset, oldest first.

        Changes of circuits name no session: `circuit_changes`.
        """
        where = f"{_DECIDED} AND {_OUTPUT_SESSION} = ? AND +topic <> 'events' AND offset < ?"
        return self._decided(where, (session_id, _END if before is None else before), limit, latest=True)

    def circuit_changes(self, since_ms: int, until_ms: int) -> list[StoredDecision]:
        """Return decisions about circuits in a time interval (milliseconds, both ends included), oldest first."""
        return self._decided("topic = 'breakers' AND time_ms BETWEEN ? AND ?", (since_ms, until_ms))

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
        return list(_folded(rows[::-1]))

    def patterns_by_session(self) -> dict[str, int]:
        """Return the number of detected patterns by session, among the latest `MAX_PAGE` outputs about behaviour."""
        statement = (
            f"SELECT {_OUTPUT_SESSION}, count(*) FILTER (WHERE type = 'pattern.detected') FROM "  # noqa: S608 - our own words
            "(SELECT type, value FROM outputs WHERE topic = 'nudges' AND value IS NOT NULL "
            "ORDER BY offset DESC LIMIT ?) GROUP BY 1"
        )
        return dict(self._all(statement, (MAX_PAGE,)))

    def events_of(self, ids: Collection[str]) -> list[StoredEvent]:
        """Return events by id, in the order of the log; then those the engine appended."""
        missing, found = set(ids), list[StoredEvent]()
        for where, arguments in self._places("log_by_id"):
            if not missing:
                break
            marks = ", ".join("?" * len(missing))
            statement = (
                f"SELECT seq, value, arrived_ms FROM log WHERE {where} {_field('id')} IN ({marks}) "  # noqa: S608
                "AND topic IN ('events', 'commands') AND value IS NOT NULL ORDER BY seq DESC"
            )
            events = list(_folded(self._all(statement, (*arguments, *missing))))
            found += events
            missing -= {str(orjson.loads(event.value)["id"]) for event in events}
        found.reverse()
        for one in sorted(missing):
            appended = self._decided(f"{_DECIDED} AND id = ? AND +topic = 'events'", (one,), 1)
            found += [StoredEvent(0, row.value, row.arrived_ms) for row in appended]
        return found

    def events_with(self, text: str, limit: int) -> tuple[list[StoredEvent], int]:
        """Return the latest events whose JSON holds a text, newest first, and the first `seq` of the log.

        At most `limit` of the latest `MAX_SEARCHED` records. Upper and lower case of ASCII letters are the same.
        """
        ((first, last),) = self._all("SELECT coalesce(min(seq), 0), coalesce(max(seq), 0) FROM log")
        first = max(first, last - MAX_SEARCHED + 1)
        plain, escaped = orjson.dumps(text).decode()[1:-1], json.dumps(text)[1:-1]
        statement = (
            f"SELECT seq, value, arrived_ms FROM log WHERE seq >= ? AND topic = 'events' "  # noqa: S608 - our own words
            f"AND ({_LIKE} OR (? AND {_LIKE})) ORDER BY seq DESC"
        )
        rows = self._rows(statement, (first, _like(plain), plain != escaped, _like(escaped)))
        return list(islice(_folded(rows), limit)), first

    def sessions_with(self, text: str, *, limit: int = 50) -> list[str]:
        """Return ids of open sessions that hold a text."""
        statement = "SELECT key FROM states WHERE stage = ? AND CAST(key AS TEXT) LIKE ? ESCAPE '!' LIMIT ?"
        rows = self._all(statement, (STAGE_OF_TOPIC["events"].name, _like(text), limit))
        return [key.decode(errors="replace") for (key,) in rows]

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def _session(self, session_id: str) -> SessionState | None:
        stage = STAGE_OF_TOPIC["events"]
        rows = self._all("SELECT snapshot FROM states WHERE stage = ? AND key = ?", (stage.name, session_id.encode()))
        codec = codec_of(stage)
        return codec.decode(rows[0][0]) if rows else None

    def _outputs(self, where: str, arguments: tuple[object, ...], limit: int) -> list[StoredOutput]:
        statement = f"SELECT {_COLUMNS} FROM outputs WHERE {where} ORDER BY offset LIMIT ?"  # noqa: S608 - our own words
        rows = self._all(statement, (*arguments, max(0, min(limit, MAX_PAGE))))
        return [StoredOutput(row[0], StageOutput(*row[1:])) for row in rows]

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

    def _rows(self, statement: str, arguments: tuple[object, ...]) -> Iterator[tuple[Any, ...]]:
        try:
            yield from self._connection.execute(statement, arguments)
        except sqlite3.Error as error:
            raise store_error(self._path, error) from error

    def _page(self, statement: str, after: int, limit: int) -> Iterator[CopiedRecord]:
        size = 0
        try:
            for row in self._connection.execute(f"{statement} LIMIT ?", (after, limit)):
                yield CopiedRecord(*row)
                size += len(row[4] or b"")
                if size >= PAGE_BYTES:
                    return
        except sqlite3.Error as error:
            raise store_error(self._path, error) from error


def _folded(rows: Iterable[tuple[Any, ...]]) -> Iterator[StoredEvent]:
    """Yield rows without records that the folds rejected: one of those must not hide the rest of its session."""
    return (StoredEvent(*row) for row in rows if is_valid(row[1]))


class _RecordSubject(msgspec.Struct):
    session_id: str | None = None


_about = msgspec.json.Decoder(_RecordSubject)


def session_of(value: bytes | None) -> str | None:
    """Return the session that a record names; None without one, or if the record cannot be parsed."""
    try:
        return _about.decode(value or b"").session_id
    except UNREADABLE:
        return None  # a dead letter may be anything
