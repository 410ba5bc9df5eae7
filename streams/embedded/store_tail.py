"""Reading a store as it grows, for whoever copies it: the log and the outputs, each by its own position.

Opened read-only, beside a running engine or without one. A page is one transaction's view, so it never splits a batch's
order; positions only rise.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, Self

from .errors import store_error
from .store import FIRST_OFFSET, OUTPUTS, connect

PAGE_BYTES = 16 * 1024 * 1024
"""Records of a page, together; the last one may go beyond it."""


class Copied(NamedTuple):
    """A record of the log or of the outputs.

    Attributes:
        offset: its `seq` in the log, or its offset in the outputs.
        arrived_ms: wall clock, milliseconds; -1 when unknown.
    """

    topic: str
    offset: int
    arrived_ms: int
    key: bytes | None
    value: bytes | None


class Tail:
    """Both tables of one store, from any position on. Not for use from two threads at once."""

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

    def log(self, after: int, limit: int) -> list[Copied]:
        """What came in beyond a `seq`, every source topic, in the order it was folded; at most `PAGE_BYTES` of it."""
        return list(
            self._rows("SELECT topic, seq, arrived_ms, key, value FROM log WHERE seq > ? ORDER BY seq", after, limit)
        )

    def outputs(self, after: int, limit: int) -> list[Copied]:
        """What was decided beyond an offset, every topic, in order; among it the events that the engine appended.

        At most `PAGE_BYTES` of it.
        """
        statement = (
            "SELECT topic, offset, arrived_ms, CAST(key AS BLOB), value FROM outputs WHERE offset > ? ORDER BY offset"
        )
        return list(self._rows(statement, after, limit))

    def ends(self) -> tuple[int, int]:
        """Last `seq` of the log and last offset of the outputs; 0 where there is none."""
        statement = "SELECT coalesce((SELECT max(seq) FROM log), 0), (SELECT next FROM positions WHERE name = ?)"
        try:
            log, following = self._connection.execute(statement, (OUTPUTS,)).fetchone()
        except sqlite3.Error as error:
            raise store_error(self._path, error) from error
        return log, (following or FIRST_OFFSET) - 1

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def _rows(self, statement: str, after: int, limit: int) -> Iterator[Copied]:
        size = 0
        try:
            for row in self._connection.execute(f"{statement} LIMIT ?", (after, limit)):
                yield Copied(*row)
                size += len(row[4] or b"")
                if size >= PAGE_BYTES:
                    return
        except sqlite3.Error as error:
            raise store_error(self._path, error) from error
