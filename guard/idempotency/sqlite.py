"""Dedupe store in a file for the processes of one machine: what was done is known after a crash and a restart.

Every operation is one transaction of SQLite. Time is that of a clock that nobody sets: the machine's monotonic clock,
which after a restart goes on from the last time that the file has seen.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import RLock
from typing import Any, NamedTuple, TypeVar

import msgspec

from ...security.private_files import make_file
from .polling import SharedPolls
from .record import (
    KEEP_UNKNOWN_MS,
    ClaimResult,
    DedupeRecord,
    DedupeState,
    StoreEmptied,
    claimed,
    extended,
    finished,
    seen,
)

_TABLES = """
CREATE TABLE IF NOT EXISTS keys (key TEXT PRIMARY KEY, gone_at INTEGER NOT NULL, record BLOB NOT NULL) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS keys_gone_at ON keys (gone_at);
CREATE TABLE IF NOT EXISTS clock (ahead_ms INTEGER NOT NULL, seen_ms INTEGER NOT NULL);
INSERT INTO clock SELECT 0, 0 WHERE NOT EXISTS (SELECT 1 FROM clock);
"""

_NOTED_EVERY_MS = 1_000
"""Milliseconds between two notes of the time in the file."""

T = TypeVar("T")


class _StoreChange(NamedTuple):
    """Answer of an operation, and the record that it leaves; None: it changes nothing."""

    answer: Any
    record: DedupeRecord | None = None


class SqliteDedupeStore:
    """Dedupe store of all processes of this machine that use the same file."""

    in_process = False

    def __init__(self, path: str | Path) -> None:
        """Use the file at `path`; it is created at the first call."""
        self._path = Path(path)
        self._connection: sqlite3.Connection | None = None
        self._file: int | None = None
        self._parents: list[sqlite3.Connection] = []
        self._lock = RLock()
        self._polls = SharedPolls(self.get)

    async def claim(self, record: DedupeRecord, lease_ms: int) -> ClaimResult:
        """Claim a key if it is free or its lease has expired."""

        def change(known: DedupeRecord | None, now_ms: int) -> _StoreChange:
            claim = claimed(known, record, now_ms, lease_ms)
            return _StoreChange(claim, claim.record if claim.mine else None)

        made: ClaimResult = await self._change(record.key, change)
        return made

    async def extend(self, record: DedupeRecord, lease_ms: int) -> bool:
        """Extend the holder's lease."""
        return await self._replace(record, lease_ms, extended)

    async def finish(self, record: DedupeRecord, ttl_ms: int) -> bool:
        """Replace the running or unknown record by the call's end."""
        return await self._replace(record, ttl_ms, finished)

    async def _replace(
        self,
        record: DedupeRecord,
        ms: int,
        rule: Callable[[DedupeRecord | None, DedupeRecord, int, int], DedupeRecord | None],
    ) -> bool:
        def change(known: DedupeRecord | None, now_ms: int) -> _StoreChange:
            made = rule(known, record, now_ms, ms)
            return _StoreChange(made is not None, made)

        done: bool = await self._change(record.key, change)
        return done

    async def get(self, key: str) -> DedupeRecord | None:
        """Return the current record."""
        known: DedupeRecord | None = await self._change(key, lambda known, _: _StoreChange(known))
        return known

    async def wait(self, key: str, version: int, timeout_ms: float) -> DedupeRecord | None:
        """Poll until the record changes or its lease ends, at most `timeout_ms` milliseconds."""
        return await self._polls.wait(key, version, timeout_ms)

    async def clear(self, tool: str | None = None) -> int:
        """Delete all records, or all of one tool, except those that are open; return their number."""

        def work(connection: sqlite3.Connection, now_ms: int) -> int:
            rows = [_record_in(row[0], now_ms) for row in connection.execute("SELECT record FROM keys")]
            gone = [(one.key,) for one in rows if one and tool in {None, one.tool} and not one.is_open]
            connection.executemany("DELETE FROM keys WHERE key = ?", gone)
            return len(gone)

        return await asyncio.to_thread(self._in_transaction, work)

    async def size(self) -> int:
        """Return the number of records."""

        def work(connection: sqlite3.Connection, now_ms: int) -> int:
            (number,) = connection.execute("SELECT count(*) FROM keys WHERE gone_at > ?", (now_ms,)).fetchone()
            return int(number)

        return await asyncio.to_thread(self._in_transaction, work)

    async def close(self) -> None:
        """Close the file."""
        self._polls.close()
        self.accept_loss()

    def accept_loss(self) -> None:
        """Use a file that took the first one's place: an operator knows that no lost key will be repeated."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def on_another_loop(self) -> SqliteDedupeStore:
        """Return a store over the same file."""
        return SqliteDedupeStore(self._path)

    def after_fork(self) -> None:
        """Open the file anew; the parent's connection is kept, as closing it would drop the parent's locks."""
        if self._connection is not None:
            self._parents.append(self._connection)
        self._connection, self._lock, self._polls = None, RLock(), SharedPolls(self.get)

    # --- the file -----------------------------------------------------------------------------------------------------

    async def _change(self, key: str, change: Callable[[DedupeRecord | None, int], _StoreChange]) -> Any:
        def work(connection: sqlite3.Connection, now_ms: int) -> Any:
            row = connection.execute("SELECT record FROM keys WHERE key = ?", (key,)).fetchone()
            made = change(None if row is None else _record_in(row[0], now_ms), now_ms)
            if made.record is not None:
                value = key, _gone_at(made.record), msgspec.json.encode(made.record)
                connection.execute("DELETE FROM keys WHERE gone_at <= ?", (now_ms,))
                connection.execute("INSERT OR REPLACE INTO keys VALUES (?, ?, ?)", value)
            return made.answer

        return await asyncio.to_thread(self._in_transaction, work)

    def _in_transaction(self, work: Callable[[sqlite3.Connection, int], T]) -> T:
        with self._lock, self._opened() as connection:
            connection.execute("BEGIN IMMEDIATE")
            try:
                made = work(connection, _now(connection))
                connection.execute("COMMIT")
            except BaseException:
                connection.execute("ROLLBACK")
                raise
            return made

    @contextlib.contextmanager
    def _opened(self) -> Iterator[sqlite3.Connection]:
        """The connection; given up after a failure.

        Raises:
            StoreEmptied: the file was removed or replaced.
        """
        if self._connection is not None and _number_of(self._path) != self._file:
            raise StoreEmptied
        if self._connection is None:
            make_file(self._path)
            opened = sqlite3.connect(self._path, timeout=5.0, isolation_level=None, check_same_thread=False)
            opened.execute("PRAGMA journal_mode = WAL")
            opened.execute("PRAGMA synchronous = FULL")
            opened.executescript(_TABLES)
            self._connection, self._file = opened, _number_of(self._path)
        try:
            yield self._connection
        except sqlite3.Error:
            with contextlib.suppress(sqlite3.Error):
                self._connection.close()
            self._connection = None
            raise


def _now(connection: sqlite3.Connection) -> int:
    """Milliseconds that never go back and never jump: the machine's clock, plus what restarts have taken from it."""
    ahead_ms, seen_ms = connection.execute("SELECT ahead_ms, seen_ms FROM clock").fetchone()
    now_ms = int(time.monotonic() * 1000)
    if now_ms + ahead_ms < seen_ms:
        ahead_ms = seen_ms - now_ms
    if now_ms + ahead_ms >= seen_ms + _NOTED_EVERY_MS or now_ms + ahead_ms == seen_ms:
        connection.execute("UPDATE clock SET ahead_ms = ?, seen_ms = ?", (ahead_ms, now_ms + ahead_ms))
    return int(now_ms + ahead_ms)


def _number_of(file: Path) -> int | None:
    """Number of the file in its file system; None: it is gone."""
    try:
        return file.stat().st_ino
    except OSError:
        return None


def _record_in(stored: bytes, now_ms: int) -> DedupeRecord | None:
    return seen(msgspec.json.decode(stored, type=DedupeRecord), now_ms)


def _gone_at(record: DedupeRecord) -> int:
    open_ms = KEEP_UNKNOWN_MS if record.change and record.state is DedupeState.INFLIGHT else 0
    return record.expires_at_ms + open_ms
