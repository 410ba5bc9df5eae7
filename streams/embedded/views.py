"""Reading a store: decisions, public states and dead letters, without disturbing whoever writes it.

Opened read-only, beside a running engine or without one. Each query sees the last committed batch whole.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Collection, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple, Self

import msgspec
import orjson

from ...projections.emit import Output
from ...projections.session.state import SessionState
from ...projections.snapshot import SnapshotCodec
from ...projections.topology import DECISION_TOPICS, STAGE_OF_TOPIC
from ...schemas.settings import SettingsOverrides
from .errors import store_error
from .store import FIRST_OFFSET, OUTPUTS, connect

DEAD_LETTERS = "dead-letters"

MAX_PAGE = 10_000
"""Most records of one query; a follower goes on from the last offset."""

_END = 1 << 62
"""Beyond every offset."""

_COLUMNS = "offset, topic, key, value, id, type, time_ms, traceparent"


class StoredOutput(NamedTuple):
    """An output and its place; `offset` rises over all topics and starts at 1."""

    offset: int
    output: Output


class StoredEvent(NamedTuple):
    """An input record and its place; `seq` rises over all input topics."""

    seq: int
    value: bytes


class Views:
    """Queries over one store. Not for use from two threads at once."""

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        """Read through a connection; `open` makes one."""
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
        """Outputs of the topics beyond the offset `after`, oldest first, at most `limit`."""
        wanted = list(topics)
        # The plus keeps SQLite from collecting every record of several topics before it sorts them.
        column = "topic" if len(wanted) == 1 else "+topic"
        marks = ", ".join("?" * len(wanted))
        where = f"offset > ? AND {column} IN ({marks})"
        return self._outputs(where, (after, *wanted), limit)

    def latest(
        self, topics: Iterable[str] = DECISION_TOPICS, *, before: int | None = None, limit: int = 200, session: str = ""
    ) -> list[StoredOutput]:
        """Latest outputs of the topics in front of the offset `before`, oldest first: of one session, or of all."""
        marks = ", ".join("?" * len(wanted := list(topics)))
        statement = (
            f"SELECT {_COLUMNS} FROM outputs WHERE offset < ? AND +topic IN ({marks}) AND instr(value, ?) > 0"  # noqa: S608 - our own words
            " ORDER BY offset DESC"
        )
        rows = self._each(statement, (_END if before is None else before, *wanted, _quoted(session)))
        found = (StoredOutput(row[0], Output(*row[1:])) for row in rows if not session or session_of(row[3]) == session)
        return list(islice(found, min(limit, MAX_PAGE)))[::-1]

    def decision(self, decision_id: str) -> StoredOutput | None:
        """The decision of an id; None where it is not kept any more."""
        marks = ", ".join("?" * len(DECISION_TOPICS))
        found = self._outputs(f"id = ? AND +topic IN ({marks})", (decision_id, *DECISION_TOPICS), 1)
        return found[0] if found else None

    def session_events(self, session_id: str, *, before: int | None = None, limit: int = 200) -> list[StoredEvent]:
        """Latest input events of a session in front of the place `before`, oldest first."""
        rows = self._each(
            "SELECT seq, value FROM log WHERE topic = 'events' AND seq < ? AND instr(value, ?) > 0 ORDER BY seq DESC",
            (_END if before is None else before, _quoted(session_id)),
        )
        found = (StoredEvent(*row) for row in rows if session_of(row[1]) == session_id)
        return list(islice(found, min(limit, MAX_PAGE)))[::-1]

    def events_of(self, ids: Collection[str]) -> list[StoredEvent]:
        """Input events and commands with the given ids that are still kept, oldest first."""
        if not ids:
            return []
        marks = " OR ".join(["instr(value, ?) > 0"] * len(ids))
        statement = f"SELECT seq, value FROM log WHERE topic IN ('events', 'commands') AND ({marks}) ORDER BY seq DESC"  # noqa: S608 - our own words
        rows = self._each(statement, map(_quoted, ids))
        missing, found = set(ids), []
        for row in rows:
            if (name := _id_of(row[1])) in missing:
                missing.discard(name)
                found.append(StoredEvent(*row))
            if not missing:
                break
        return found[::-1]

    def newest_ms(self) -> int | None:
        """When the newest input record arrived, milliseconds since 1970; None where that is not known."""
        rows = self._all("SELECT arrived_ms FROM log WHERE topic = 'events' ORDER BY seq DESC LIMIT 1")
        return int(rows[0][0]) if rows and rows[0][0] >= 0 else None

    def states(self) -> dict[str, bytes]:
        """Latest public record of every key that is away from its default, by key of the `state` topic."""
        return dict(self._all("SELECT key, value FROM public ORDER BY key"))

    def dead_letters(self, *, after: int = 0, limit: int = 1000, republished: bool = False) -> list[StoredOutput]:
        """Dead letters beyond an offset, oldest first; those published again only if asked for."""
        where = "topic = ? AND offset > ? AND (? OR offset NOT IN (SELECT offset FROM republished))"
        return self._outputs(where, (DEAD_LETTERS, after, republished), limit)

    def dead_letter(self, offset: int) -> Output | None:
        """The dead letter at an offset."""
        found = self._outputs("offset = ? AND topic = ?", (offset, DEAD_LETTERS), 1)
        return found[0].output if found else None

    def next_offset(self) -> int:
        """Offset that the next output will have."""
        rows = self._all("SELECT next FROM positions WHERE name = ?", (OUTPUTS,))
        return int(rows[0][0]) if rows else FIRST_OFFSET

    def noted(self, name: str) -> object | None:
        """A fact about the store that the engine noted, such as the rules in force."""
        rows = self._all("SELECT value FROM meta WHERE name = ?", (name,))
        return orjson.loads(rows[0][0]) if rows else None

    def scopes(self) -> dict[str, SettingsOverrides]:
        """What each user and workspace overrides."""
        if not self._all("SELECT 1 FROM sqlite_schema WHERE name = 'settings'"):
            return {}  # a store that nobody has written since there are settings
        rows = self._all("SELECT scope, overrides FROM settings ORDER BY scope")
        return {scope: msgspec.json.decode(overrides, type=SettingsOverrides) for scope, overrides in rows}

    def session(self, session_id: str) -> str:
        """What a session overrides, as its state keeps it; empty when nothing, or when there is no such session."""
        state = self._session(session_id)
        return state.overrides if state is not None else ""

    def owner(self, session_id: str) -> tuple[str, str]:
        """Workspace and user of a session; empty where it has said nothing of them, or is not known."""
        state = self._session(session_id)
        return (state.workspace_id, state.user_id) if state is not None else ("", "")

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def _session(self, session_id: str) -> SessionState | None:
        stage = STAGE_OF_TOPIC["events"]
        rows = self._all("SELECT snapshot FROM states WHERE stage = ? AND key = ?", (stage.name, session_id.encode()))
        codec: SnapshotCodec[SessionState] = SnapshotCodec(SessionState, stage.state_version)
        return codec.decode(rows[0][0]) if rows else None

    def _outputs(self, where: str, arguments: tuple[object, ...], limit: int) -> list[StoredOutput]:
        statement = f"SELECT {_COLUMNS} FROM outputs WHERE {where} ORDER BY offset LIMIT ?"  # noqa: S608 - our own words
        rows = self._all(statement, (*arguments, max(0, min(limit, MAX_PAGE))))
        return [StoredOutput(row[0], Output(*row[1:])) for row in rows]

    def _each(self, statement: str, arguments: Iterable[object]) -> Iterator[tuple]:  # type: ignore[type-arg]
        try:
            yield from self._connection.execute(statement, tuple(arguments))
        except sqlite3.Error as error:
            raise store_error(self._path, error) from error

    def _all(self, statement: str, arguments: Iterable[object] = ()) -> list[tuple]:  # type: ignore[type-arg]
        try:
            return self._connection.execute(statement, tuple(arguments)).fetchall()
        except sqlite3.Error as error:
            raise store_error(self._path, error) from error


class _About(msgspec.Struct):
    id: str | None = None
    session_id: str | None = None


_about = msgspec.json.Decoder(_About)


def _quoted(text: str) -> bytes:
    """What a record holds that says a text, whoever wrote its JSON: nothing certain where the text may be escaped."""
    return b'"%b"' % text.encode() if re.fullmatch(r"[\w .:,=@#+|~-]+", text, re.ASCII) else b'"'


def session_of(value: bytes | None) -> str | None:
    """The session that a record names; None where it names none, or is no record at all."""
    try:
        return _about.decode(value or b"").session_id
    except msgspec.MsgspecError:
        return None  # a dead letter may be anything


def _id_of(value: bytes | None) -> str | None:
    try:
        return _about.decode(value or b"").id
    except msgspec.MsgspecError:
        return None
