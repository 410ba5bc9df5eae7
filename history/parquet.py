"""Writes rows as Parquet with DuckDB: NDJSON in a temporary file, typed and written in one statement.

Theory of operation. DuckDB has no quick way in for rows of Python (an appender costs 7 us a row, a table of Arrow
arrays needs another 170 MB of library); its JSON reader takes a row in 2 us and works outside the interpreter's lock.
All JSON it sees is ours, written from typed structs, so nothing a publisher sends can upset it (decision 0016).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb

from ..security.private_files import is_read_only
from . import decision_rows
from .columns import columns_of
from .event_rows import OLDER_COLUMNS, WHOLE, EventRow
from .files import ScratchFolder, put_in_place
from .history_error import HistoryError, HistoryFull, is_full
from .locations import quoted

MEMORY = "512MB"  # Memory limit of DuckDB while it writes; a batch needs a tenth of it
SPOOL_BUFFER = 1024 * 1024  # Write buffer in bytes; with the default of 8 KiB the system calls would dominate
LONGEST_LINE = 64 * 1024 * 1024  # Maximum bytes of a JSON line; a record of 8 MiB grows when it is quoted

# Compression; level 3, the default, takes a tenth longer for 1 % fewer bytes
COMPRESSION = "COMPRESSION zstd, COMPRESSION_LEVEL 1"

# Rows of a group, which is held in memory while it is written; fewer for wide rows
ROW_GROUPS = (122_880, 16_384, 2048)

# Column names and their DuckDB types, in order, by topic
COLUMNS = {"events": columns_of(EventRow), **decision_rows.COLUMNS}

READ_COLUMNS = COLUMNS | {"events": {**OLDER_COLUMNS, **COLUMNS["events"]}}  # The same with the columns of older files
RECORDED_TOPICS = tuple(COLUMNS)  # All topics that a history can hold


def no_rows(columns: Mapping[str, str]) -> str:
    """Query without rows that gives columns their types."""
    typed = ", ".join(f'NULL::{kind} AS "{name}"' for name, kind in columns.items())
    return f"SELECT {typed} WHERE false"


def rows_of_files(columns: Mapping[str, str], *files: str) -> str:
    """Query of the rows of files, in queries, with these columns, also where older files have fewer.

    Times are in UTC without a zone: queries with zones cost several times as much, and are in that of their reader.
    """
    naive = [f'make_timestamp(epoch_us("{name}")) AS "{name}"' for name, kind in columns.items() if kind == "TIMESTAMP"]
    every = " UNION ALL BY NAME ".join((no_rows(columns), *files))
    return f"SELECT * REPLACE ({', '.join(naive)}) FROM ({every})"  # noqa: S608 - our own words


class _OutOfMemory(HistoryError):
    """A row group does not fit into `MEMORY`."""


class ParquetWriter:
    """Writes batches of rows atomically: unfinished files are never visible."""

    def __init__(self, root: Path, *, threads: int = 1) -> None:
        """Write below a directory.

        Raises:
            HistoryError: it cannot be written.
        """
        try:
            self._workshop = ScratchFolder(root)
        except OSError as error:
            raise unwritable(root, error) from error
        self._root = root
        self._made = 0
        self._connection = duckdb.connect()
        for setting, value in (
            ("threads", threads),
            ("memory_limit", MEMORY),
            ("temp_directory", str(self._workshop.folder)),
            ("autoinstall_known_extensions", False),
            ("TimeZone", "UTC"),  # of times in older files, which have no zone
        ):
            self._connection.execute(f"SET {setting} = '{quoted(str(value))}'")

    def write(self, topic: str, lines: Sequence[bytes | bytearray], count: int, target: Path) -> None:
        """Write `count` lines of JSON as one file with the columns of a topic.

        Raises:
            HistoryFull: the disk is full; nothing is left behind.
            HistoryError: it cannot be written for another reason.
        """
        columns = COLUMNS[topic]
        read = ", ".join(f"'{name}': '{'BIGINT' if kind == 'TIMESTAMP' else kind}'" for name, kind in columns.items())
        chosen = ", ".join(
            f'make_timestamptz("{name}" * 1000) AS "{name}"' if kind == "TIMESTAMP" else f'"{name}"'
            for name, kind in columns.items()
        )
        spool = self._name("ndjson")

        def statement() -> str:
            with spool.open("wb", buffering=SPOOL_BUFFER) as file:
                file.writelines(lines)
            return (
                f"SELECT {chosen} FROM read_json(?, format = 'newline_delimited', columns = {{{read}}}, "  # noqa: S608
                f"maximum_object_size = {LONGEST_LINE}, compression = 'uncompressed')"
            )

        self._copy(statement, [str(spool)], target, count)

    def merge(self, sources: Iterable[Path], target: Path, count: int) -> None:
        """Concatenate the rows of several files of one topic into one file.

        Raises:
            HistoryFull: the disk is full; nothing is left behind.
            HistoryError: it cannot be written for another reason.
        """
        paths = [str(path) for path in sources]
        query = (
            "SELECT * FROM read_parquet(?, union_by_name = true, hive_partitioning = false)"  # in the order of the list
        )
        for rows in ROW_GROUPS:
            try:
                self._copy(lambda: query, [paths], target, count, rows)
            except _OutOfMemory:
                if rows == ROW_GROUPS[-1]:
                    raise
            else:
                return

    def count(self, paths: Iterable[Path]) -> int:
        """Number of rows of files, from their footers.

        Raises:
            HistoryError: they cannot be read.
        """
        found = self._read("SELECT sum(num_rows) FROM parquet_file_metadata(?)", [[str(path) for path in paths]])
        return int(found[0][0] or 0)

    def last_records(self, paths: list[Path], since: int, most_bytes: int) -> list[tuple[int, int, str | None, bytes]]:
        """Offset, arrival, key and record of the last rows of files of events from an offset on, oldest first.

        Older rows are left out if the records have more than `most_bytes` in all.

        Raises:
            HistoryError: they cannot be read.
        """
        if not paths:
            return []
        given = [[str(path) for path in paths], since]
        every = f"({rows_of_files(COLUMNS['events'], 'FROM read_parquet(?, union_by_name = true)')})"
        wanted = f'FROM {every} WHERE "offset" >= ? AND record IS NOT NULL ORDER BY "offset"'
        total = 0
        for offset, size in self._read(f'SELECT "offset", strlen(record) {wanted} DESC', given):
            total += size
            if total > most_bytes:
                break
            given[1] = offset
        if not total or total == size > most_bytes:
            return []
        rows = self._read(f'SELECT "offset", -1, key, {WHOLE} {wanted}', given)
        return [(offset, arrived, key, record.encode()) for offset, arrived, key, record in rows]

    def last_calls(self, paths: list[Path], since: int) -> list[str]:
        """Causes of the records of calls of files from an offset on, oldest first.

        Raises:
            HistoryError: they cannot be read.
        """
        if not paths:
            return []
        given = [[str(path) for path in paths], since]
        rows = 'read_parquet(?, union_by_name = true) WHERE "offset" >= ? AND cause IS NOT NULL ORDER BY "offset"'
        return [cause for (cause,) in self._read(f"SELECT cause FROM {rows}", given)]  # noqa: S608 - our own words

    def close(self) -> None:
        """Remove unfinished files."""
        self._connection.close()
        self._workshop.close()

    def _read(self, query: str, arguments: list[Any]) -> list[tuple[Any, ...]]:
        try:
            return self._connection.execute(query, arguments).fetchall()
        except duckdb.Error as error:
            raise HistoryError(
                f"{self._root}: a recorded file cannot be read ({_sentence(error)}); move it elsewhere if it is damaged"
            ) from error

    def _name(self, ending: str) -> Path:
        self._made += 1
        return self._workshop.folder / f"{self._made}.{ending}"

    def _copy(
        self, query: Callable[[], str], arguments: list[Any], target: Path, count: int, group: int = ROW_GROUPS[0]
    ) -> None:
        made = self._name("parquet")
        try:
            written = self._connection.execute(
                f"COPY ({query()}) TO '{quoted(str(made))}' (FORMAT parquet, {COMPRESSION}, ROW_GROUP_SIZE {group})",
                arguments,
            ).fetchone()
            if written is None or written[0] != count:
                raise HistoryError(f"{target}: {count} rows were to be written, not {written}; please report it")
            put_in_place(made, target)
        except (OSError, duckdb.Error) as error:
            if is_full(error):
                raise HistoryFull(self._root) from error
            if isinstance(error, duckdb.OutOfMemoryException):
                raise _OutOfMemory(f"{self._root}: rows are too wide to be written ({_sentence(error)})") from error
            raise unwritable(self._root, error) from error
        finally:
            self._workshop.clear()


def _sentence(error: Exception) -> str:
    return str(error).partition("\n")[0]


def unwritable(root: Path, error: Exception) -> HistoryError:
    """HistoryError for an error of the file system or of DuckDB that ends the writing."""
    elsewhere = "or name another directory (--history, TRUSTFOLD_HISTORY)"
    if is_full(error):
        return HistoryError(
            f"{root}: the disk is full; free some space there, {elsewhere}, and start again: what is recorded stays"
        )
    if is_read_only(root):
        return HistoryError(f"{root}: its file system is mounted read-only; mount it for writing, {elsewhere}")
    reason = getattr(error, "strerror", None) or _sentence(error)
    return HistoryError(f"{root}: the history cannot be written ({reason}); check the directory and its rights")
