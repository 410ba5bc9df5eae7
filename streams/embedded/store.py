"""Store of the embedded engine: SQLite, one transaction per batch, one writing process.

`synchronous=FULL`: a commit is on disk when it returns, so acknowledged data survives a power cut as well as a killed
process. That is one flush per batch: under one per cent of the time of 500 events on a disk that flushes in 0.2 ms.
NORMAL would lose the last acknowledged batches in a power cut. The write-ahead log lets readers (`store_views`) work
concurrently with the writer.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import sqlite3
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib.resources import files
from pathlib import Path
from typing import IO, Any, NamedTuple

from ...errors import TrustfoldError
from ...projections.emitter import StageOutput
from ...schemas.codec import encode
from ...schemas.settings import SettingsOverrides
from ...security.private_files import existing, is_read_only, make_directory, make_file


class StoreError(TrustfoldError):
    """The file cannot be read or written; the message names it, the cause and what to do."""


# Bytes that the smallest growth of SQLite's files needs; without them it reports an I/O error, not a full disk
SMALL_WRITE = 128 * 1024

_ELSEWHERE = "name another store (--store, TRUSTFOLD_DB)"


class StoreLocked(StoreError):
    """Another process runs an engine over this file."""

    def __init__(self, path: Path, process: str, address: str) -> None:
        super().__init__(path, process, address)
        self.path = path
        self.process = process  # its process id as stored
        self.address = address  # its HTTP address; empty if it serves none

    def __str__(self) -> str:
        way = f"ask it with --url {self.address}" if self.address else "wait for it to end"
        return f"{self.path}: in use by process {self.process or 'unknown'}; {way}, stop it, or name another store"


def store_error(path: Path, error: sqlite3.Error | OSError) -> StoreError:
    """Translate an error of SQLite or of the file system to a message with a remedy."""
    text = str(error)
    full = "disk is full" in text or "No space left" in text or "quota exceeded" in text
    if full or ("I/O error" in text and shutil.disk_usage(existing(path.parent)).free < SMALL_WRITE):
        return StoreError(
            f"{path}: the disk is full; nothing of the last write was kept: free some space there and try again, or "
            f"{_ELSEWHERE}"
        )
    if is_read_only(path):
        return StoreError(f"{path}: its file system is mounted read-only; mount it for writing, or {_ELSEWHERE}")
    if "not a database" in text or "malformed" in text:
        return StoreError(
            f"{path}: not a trustfold store, or damaged ({text}); restore a copy, or start with a new file"
        )
    if "readonly" in text or "unable to open" in text or "ermission" in text:
        return StoreError(f"{path}: cannot be opened ({text}); check that the folder exists and may be written")
    return StoreError(f"{path}: {text}")


APPLICATION_ID = 0x74666C64  # SQLite application id, `tfld`, in the header of the file
FORMAT = 1  # Format version, raised when the tables change; files of another format are refused

# Page size in bytes: events are about a kilobyte, and larger pages than SQLite's 4 KiB take a third less time
PAGE_BYTES = 16_384

# Table of scope overrides; also in store.sql, for new files
SETTINGS_TABLE = "CREATE TABLE IF NOT EXISTS settings (scope TEXT PRIMARY KEY, overrides BLOB NOT NULL) WITHOUT ROWID"

# Table of the owners of sessions and workspaces; also in store.sql, for new files
OWNERS_TABLE = (
    "CREATE TABLE IF NOT EXISTS owners "
    "(kind TEXT, name TEXT, publisher TEXT NOT NULL, PRIMARY KEY (kind, name)) WITHOUT ROWID"
)

STORE_ID = "store_id"  # Name of the fact with the store's random id, created once (`store.sql`)
HEADER_BYTES = 17  # Bytes of a snapshot that contain its header (`projections.snapshot`)

# Number of answered requests kept. Publishers repeat within seconds; this is minutes of small requests.
MAX_REQUESTS = 10_000

OUTPUTS = "outputs"  # Name of the position of the outputs
FIRST_OFFSET = 1  # First offset of the outputs, so that "after 0" means all of them


class RootRecord(NamedTuple):
    """Record from outside the folds; all others are derived from these."""

    topic: str
    key: bytes | None
    value: bytes | None
    arrived_ms: int


class StoredAnswer(NamedTuple):
    """Stored answer to a request."""

    accepted: int
    dead_letters: int


class StoreTransaction(NamedTuple):
    """Contents of one transaction."""

    roots: Sequence[RootRecord]
    first_output: int
    outputs: Sequence[StageOutput]  # outputs with the offset of the first; the rest follow on
    snapshots: Sequence[tuple[str, bytes, bytes | None]]  # stage, key and snapshot of each touched state; None deletes
    positions: dict[str, int]  # next offset of every source topic
    arrived_ms: int
    requests: Sequence[tuple[bytes, StoredAnswer]] = ()  # token and answer of each request in the batch
    republished: Sequence[int] = ()  # offsets of the dead letters that are republished
    scopes: Mapping[str, SettingsOverrides] | None = None  # new overrides of all scopes; None: unchanged
    owners: Sequence[tuple[str, str, str]] = ()  # kind, name and publisher of what is owned from now on


def connect(path: Path, *, writable: bool) -> sqlite3.Connection:
    """Open the file and check that it is a trustfold store.

    Raises:
        StoreError: it cannot be opened, is another kind of file, or has another format.
    """
    if not writable and path.is_dir():
        raise StoreError(f"{path}: is a directory; name the store in it, e.g. {path / 'trustfold.sqlite'}")
    if not writable and not path.is_file():
        raise StoreError(f"{path}: no such store; `trustfold up --store {path}` makes one")
    uri = f"{path.absolute().as_uri()}?mode={'rwc' if writable else 'ro'}"
    connection: sqlite3.Connection | None = None
    try:
        connection = sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False, timeout=10)
        found = connection.execute("PRAGMA application_id").fetchone()[0]
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        empty = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0] == 0
    except sqlite3.Error as error:
        if connection is not None:
            connection.close()
        raise store_error(path, error) from error
    if empty and writable:
        return connection
    if found != APPLICATION_ID:
        connection.close()
        raise StoreError(f"{path}: not a trustfold store; name another file")
    if version != FORMAT:
        connection.close()
        raise StoreError(
            f"{path}: store of format {version}, this trustfold reads format {FORMAT}; "
            "run the version that wrote it, or start with a new file"
        )
    return connection


class StoreWriter:
    """Writer of the file."""

    def __init__(self, path: str | Path) -> None:
        """Open or create the file.

        Raises:
            StoreLocked: another process has it open for writing.
            StoreError: it cannot be used; the message says why.
        """
        self.path = Path(path)
        if self.path.is_dir():
            raise StoreError(f"{path}: is a directory; name a file in it, e.g. {self.path / 'trustfold.sqlite'}")
        try:
            make_directory(self.path.parent)
            self._lock = _lock(self.path)
            make_file(self.path)
        except OSError as error:
            raise store_error(self.path, error) from error
        try:
            self.connection = connect(self.path, writable=True)
            try:
                self._prepare()
            except BaseException:
                self.connection.close()
                raise
        except BaseException:
            self._lock.close()
            raise

    def _prepare(self) -> None:
        run = self.connection.execute
        try:
            run(f"PRAGMA page_size={PAGE_BYTES}")
            run("PRAGMA journal_mode=WAL")
            run("PRAGMA synchronous=FULL")
            run("PRAGMA cache_size=-65536")
            version = run("PRAGMA user_version").fetchone()[0]
            if version:
                run(SETTINGS_TABLE)  # older stores lack only these tables
                run(OWNERS_TABLE)
            if version == 0:
                schema = files(__package__).joinpath("store.sql").read_text()
                self.connection.executescript(
                    f"BEGIN; PRAGMA application_id={APPLICATION_ID}; PRAGMA user_version={FORMAT}; {schema} COMMIT;"
                )
            self.connection.executescript(files(__package__).joinpath("lookups.sql").read_text())
        except sqlite3.Error as error:
            raise store_error(self.path, error) from error

    def positions(self) -> dict[str, int]:
        """Next offset of every topic, and of the outputs under `OUTPUTS`; empty for a new file."""
        try:
            return dict(self.connection.execute("SELECT name, next FROM positions"))
        except sqlite3.Error as error:
            raise store_error(self.path, error) from error

    def load(self, stage: str, key: bytes) -> bytes | None:
        """Return the stored snapshot of a state.

        Raises:
            StoreError: it cannot be read.
        """
        row = self._one("SELECT snapshot FROM states WHERE stage = ? AND key = ?", (stage, key))
        return row[0] if row is not None else None

    def headers(self, stage: str) -> Generator[tuple[bytes, bytes], None, None]:
        """Yield key and snapshot header of every state of a stage; close the generator if it is not exhausted."""
        try:
            yield from self.connection.execute(
                "SELECT key, substr(snapshot, 1, ?) FROM states WHERE stage = ?", (HEADER_BYTES, stage)
            )
        except sqlite3.Error as error:
            raise store_error(self.path, error) from error

    def answered(self, token: bytes) -> StoredAnswer | None:
        """Return the stored answer to a request; None if it is new or no longer stored."""
        row = self._one("SELECT accepted, dead_letters FROM requests WHERE token = ?", (token,))
        return StoredAnswer(*row) if row is not None else None

    def owner(self, kind: str, name: str) -> str | None:
        """Return the publisher that owns a session or a workspace; None without one."""
        row = self._one("SELECT publisher FROM owners WHERE kind = ? AND name = ?", (kind, name))
        return row[0] if row is not None else None

    def _one(self, statement: str, arguments: tuple[object, ...]) -> Any:
        try:
            return self.connection.execute(statement, arguments).fetchone()
        except sqlite3.Error as error:
            raise store_error(self.path, error) from error

    def note(self, name: str, value: bytes) -> None:
        """Store a fact about the store, such as the rules in force; part of the transaction that is open, if any.

        Raises:
            StoreError: it was not stored.
        """
        try:
            self.connection.execute(
                "INSERT INTO meta VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value", (name, value)
            )
        except sqlite3.Error as error:
            raise store_error(self.path, error) from error

    def take_down(self, root: RootRecord, name: str) -> None:
        """Append a record that no fold reads to the log and store its value as a fact, in one transaction.

        Raises:
            StoreError: nothing was written.
        """
        with self._transaction():
            self.connection.execute("INSERT INTO log (topic, key, value, arrived_ms) VALUES (?, ?, ?, ?)", root)
            self.note(name, root.value or b"")

    def write(self, batch: StoreTransaction) -> None:
        """Write a batch in one transaction; it is durable when this returns.

        Raises:
            StoreError: nothing was written.
        """
        with self._transaction():
            self._write(batch)

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """Run the enclosed statements in one transaction.

        Raises:
            StoreError: nothing was written.
        """
        try:
            self.connection.execute("BEGIN IMMEDIATE")
            try:
                yield
                self.connection.execute("COMMIT")
            except BaseException:
                if self.connection.in_transaction:
                    self.connection.execute("ROLLBACK")
                raise
        except sqlite3.Error as error:
            raise store_error(self.path, error) from error

    def _write(self, batch: StoreTransaction) -> None:
        run, many = self.connection.execute, self.connection.executemany
        many("INSERT INTO log (topic, key, value, arrived_ms) VALUES (?, ?, ?, ?)", batch.roots)
        many(
            "INSERT INTO outputs VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                (
                    offset,
                    out.topic,
                    out.key,
                    out.value,
                    out.id,
                    out.type,
                    out.time_ms,
                    out.traceparent,
                    batch.arrived_ms,
                )
                for offset, out in enumerate(batch.outputs, batch.first_output)
            ),
        )
        latest = {out.key: out.value for out in batch.outputs if out.topic == "state"}
        many(
            "INSERT INTO public VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value",
            ((key, value) for key, value in latest.items() if value is not None),
        )
        many("DELETE FROM public WHERE key = ?", ((key,) for key, value in latest.items() if value is None))
        many(
            "INSERT INTO states VALUES (?, ?, ?) ON CONFLICT (stage, key) DO UPDATE SET snapshot = excluded.snapshot",
            (row for row in batch.snapshots if row[2] is not None),
        )
        many("DELETE FROM states WHERE stage = ? AND key = ?", (row[:2] for row in batch.snapshots if row[2] is None))
        many(
            "INSERT INTO positions VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET next = excluded.next",
            [*batch.positions.items(), (OUTPUTS, batch.first_output + len(batch.outputs))],
        )
        if batch.scopes is not None:
            run("DELETE FROM settings")
            many("INSERT INTO settings VALUES (?, ?)", ((scope, encode(own)) for scope, own in batch.scopes.items()))
        many("INSERT OR REPLACE INTO owners VALUES (?, ?, ?)", batch.owners)
        many("INSERT OR IGNORE INTO republished VALUES (?)", ((offset,) for offset in batch.republished))
        if batch.requests:
            many(
                "INSERT INTO requests (token, accepted, dead_letters) VALUES (?, ?, ?)",
                ((token, *answer) for token, answer in batch.requests),
            )
            run("DELETE FROM requests WHERE seq <= (SELECT max(seq) FROM requests) - ?", (MAX_REQUESTS,))

    def forget(self, kept_since_ms: dict[str, int]) -> None:
        """Delete records that arrived before their topic's time; records of unknown arrival are kept.

        The last record of the log is kept, too, so that no sequence number is given twice.

        Raises:
            StoreError: nothing was deleted.
        """
        statement = (
            "DELETE FROM {table} WHERE topic = :topic AND {order} < coalesce((SELECT {order} FROM {table} WHERE topic ="
            " :topic AND (arrived_ms >= :since OR arrived_ms < 0) ORDER BY {order} LIMIT 1), 1 << 62)"
            " AND ({order} <> (SELECT max({order}) FROM {table}) OR '{table}' <> 'log')"
        )
        try:
            for table, order in (("log", "seq"), ("outputs", "offset")):
                self.connection.executemany(
                    statement.format(table=table, order=order),
                    ({"topic": topic, "since": since} for topic, since in kept_since_ms.items()),
                )
            self.connection.execute(
                "DELETE FROM owners WHERE kind = 'session' "
                "AND NOT EXISTS (SELECT 1 FROM states WHERE stage = 'session' AND key = CAST(name AS BLOB))"
            )
        except sqlite3.Error as error:
            raise store_error(self.path, error) from error

    def announce(self, address: str) -> None:
        """Write this process's address to the lock file.

        Raises:
            StoreError: it cannot be written.
        """
        try:
            _write_lock_file(self._lock, address)
        except OSError as error:
            raise store_error(self.path, error) from error

    def close(self) -> None:
        """Close the file and release its lock."""
        try:
            self.connection.close()
        finally:
            with suppress(OSError, ValueError):  # closed already
                self._lock.truncate(0)  # nobody looks for this process any more
            self._lock.close()


def _lock(path: Path) -> IO[str]:
    """Lock the file for this process until it exits, even if it is killed; links to it have the same lock."""
    named = path.resolve()
    named = named.with_name(f"{named.name}.lock")
    make_file(named)
    lock = named.open("a+")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.seek(0)
        process, _, address = lock.read().partition("\n")
        lock.close()
        raise StoreLocked(path, process.strip(), address.strip()) from None
    try:
        _write_lock_file(lock)
    except OSError:
        with suppress(OSError):  # closing tries to write again
            lock.close()
        raise
    return lock


def _write_lock_file(lock: IO[str], address: str = "") -> None:
    lock.truncate(0)
    lock.write(f"{os.getpid()}\n{address}")
    lock.flush()
