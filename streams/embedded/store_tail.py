"""Incremental reads of a store for copying: the log and the outputs, each by its own position.

Opened read-only, with or without a running engine. A page is the view of one transaction, so batches keep their order;
positions only increase.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, Self

from .store import FIRST_OFFSET, OUTPUTS, connect, store_error

PAGE_BYTES = 16 * 1024 * 1024
"""Bytes of records in a page; the last record may exceed it."""


class Copied(NamedTuple):
    """Record of the log or of the outputs.

    Attributes:
        offset: its `seq` in the log, or its offset in the outputs.
        arrived_ms: wall clock, milliseconds; -1 if unknown.
    """

    topic: str
    offset: int
    arrived_ms: int
    key: bytes | None
    value: bytes | None


class Tail:
    """Reader of both tables of one store from any position. Not thread-safe."""

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        """Use an open connection; usually created by `open`."""
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
        """Return inputs after a `seq`, of every source topic, in folding order; at most `PAGE_BYTES`."""
        return list(
            self._rows("SELECT topic, seq, arrived_ms, key, value FROM log WHERE seq > ? ORDER BY seq", after, limit)
        )

    def outputs(self, after: int, limit: int) -> list[Copied]:
        """Return outputs after an offset, of every topic, in order, including the events that the engine appended.

        At most `PAGE_BYTES`.
        """
        statement = (
            "SELECT topic, offset, arrived_ms, CAST(key AS BLOB), value FROM outputs WHERE offset > ? ORDER BY offset"
        )
        return list(self._rows(statement, after, limit))

    def ends(self) -> tuple[int, int]:
        """Return the last `seq` of the log and the last offset of the outputs; 0 for an empty table."""
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
