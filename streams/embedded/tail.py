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
from .store import connect


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
        """What came in beyond a `seq`, every source topic, in the order it was folded."""
        return list(
            self._rows("SELECT topic, seq, arrived_ms, key, value FROM log WHERE seq > ? ORDER BY seq", after, limit)
        )

    def outputs(self, after: int, limit: int) -> list[Copied]:
        """What was decided beyond an offset, every topic, in order; among it the events that the engine appended."""
        statement = (
            "SELECT topic, offset, arrived_ms, CAST(key AS BLOB), value FROM outputs WHERE offset > ? ORDER BY offset"
        )
        return list(self._rows(statement, after, limit))

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def _rows(self, statement: str, after: int, limit: int) -> Iterator[Copied]:
        try:
            for row in self._connection.execute(f"{statement} LIMIT ?", (after, limit)):
                yield Copied(*row)
        except sqlite3.Error as error:
            raise store_error(self._path, error) from error
