"""Queries of a store: decisions, public states and dead letters, concurrently with its writer.

Opened read-only, with or without a running engine. Each query sees the last committed batch as a whole.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple, Self

import msgspec
import orjson

from ...projections.emitter import Output
from ...projections.session.state import SessionState
from ...projections.snapshot import codec_of
from ...projections.topology import DECISION_TOPICS, STAGE_OF_TOPIC
from ...schemas.settings import SettingsOverrides
from .store import FIRST_OFFSET, OUTPUTS, connect
from .store_lookups import MAX_PAGE, Lookups

__all__ = ["DEAD_LETTERS", "MAX_PAGE", "StoredOutput", "Views", "session_of"]

DEAD_LETTERS = "dead-letters"

_END = 1 << 62
"""Offset greater than every other."""

_COLUMNS = "offset, topic, key, value, id, type, time_ms, traceparent"


class StoredOutput(NamedTuple):
    """Output with its offset; `offset` increases over all topics, from 1."""

    offset: int
    output: Output


class Views(Lookups):
    """Queries of one store. Not thread-safe; created by `open`."""

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
        self, topics: Iterable[str] = DECISION_TOPICS, *, before: int | None = None, limit: int = 200
    ) -> list[StoredOutput]:
        """Return the latest outputs of the topics before the offset `before`, oldest first."""
        marks = ", ".join("?" * len(wanted := list(topics)))
        statement = (
            f"SELECT {_COLUMNS} FROM outputs WHERE offset < ? AND +topic IN ({marks}) "  # noqa: S608 - our own words
            "ORDER BY offset DESC LIMIT ?"
        )
        rows = self._all(statement, (_END if before is None else before, *wanted, min(limit, MAX_PAGE)))
        return [StoredOutput(row[0], Output(*row[1:])) for row in rows[::-1]]

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

    def dead_letter(self, offset: int) -> Output | None:
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

    def sessions(self) -> list[tuple[str, SessionState]]:
        """Return id and state of every open session (docs/events.md)."""
        stage = STAGE_OF_TOPIC["events"]
        codec = codec_of(stage)
        rows = self._all("SELECT key, snapshot FROM states WHERE stage = ?", (stage.name,))
        return [(key.decode(errors="replace"), codec.decode(snapshot)) for key, snapshot in rows]

    def _session(self, session_id: str) -> SessionState | None:
        stage = STAGE_OF_TOPIC["events"]
        rows = self._all("SELECT snapshot FROM states WHERE stage = ? AND key = ?", (stage.name, session_id.encode()))
        codec = codec_of(stage)
        return codec.decode(rows[0][0]) if rows else None

    def _outputs(self, where: str, arguments: tuple[object, ...], limit: int) -> list[StoredOutput]:
        statement = f"SELECT {_COLUMNS} FROM outputs WHERE {where} ORDER BY offset LIMIT ?"  # noqa: S608 - our own words
        rows = self._all(statement, (*arguments, max(0, min(limit, MAX_PAGE))))
        return [StoredOutput(row[0], Output(*row[1:])) for row in rows]


class _About(msgspec.Struct):
    session_id: str | None = None


_about = msgspec.json.Decoder(_About)


def session_of(value: bytes | None) -> str | None:
    """Return the session that a record names; None without one, or if the record cannot be parsed."""
    try:
        return _about.decode(value or b"").session_id
    except msgspec.MsgspecError:
        return None  # a dead letter may be anything
