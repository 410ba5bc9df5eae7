"""Reading a store: decisions, public states and dead letters, without disturbing whoever writes it.

Opened read-only, beside a running engine or without one. Each query sees the last committed batch whole.
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
"""Beyond every offset."""

_COLUMNS = "offset, topic, key, value, id, type, time_ms, traceparent"


class StoredOutput(NamedTuple):
    """An output and its place; `offset` rises over all topics and starts at 1."""

    offset: int
    output: Output


class Views(Lookups):
    """Queries over one store. Not for use from two threads at once; `open` connects."""

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
        self, topics: Iterable[str] = DECISION_TOPICS, *, before: int | None = None, limit: int = 200
    ) -> list[StoredOutput]:
        """Latest outputs of the topics in front of the offset `before`, oldest first."""
        marks = ", ".join("?" * len(wanted := list(topics)))
        statement = (
            f"SELECT {_COLUMNS} FROM outputs WHERE offset < ? AND +topic IN ({marks}) "  # noqa: S608 - our own words
            "ORDER BY offset DESC LIMIT ?"
        )
        rows = self._all(statement, (_END if before is None else before, *wanted, min(limit, MAX_PAGE)))
        return [StoredOutput(row[0], Output(*row[1:])) for row in rows[::-1]]

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

    def sessions(self) -> list[tuple[str, SessionState]]:
        """Id and state of every session that is not over (docs/events.md)."""
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
    """The session that a record names; None where it names none, or is no record at all."""
    try:
        return _about.decode(value or b"").session_id
    except msgspec.MsgspecError:
        return None  # a dead letter may be anything
