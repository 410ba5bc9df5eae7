"""In-memory copy of a history's columns for servers, refreshed file by file.

Theory of operation. A query over Parquet files lists, opens and unpacks them again each time, which over ten million
events takes one to ten seconds. A server that is asked often therefore keeps the columns that questions need in tables
of DuckDB, compressed (about 45 bytes an event); the views of the catalogue stand on these tables in place of the files.
Recorded files never change: the names say which rows are here already, a merge brings none, and a file that was deleted
for its age takes its rows with it. Of the records of calls, what is noted stands apart: failures, calls that somebody
was asked about, that equal one that failed, or that repeated a result. These are few, and all that questions about
failures, permissions, retries and loops read. What came twice or could not be read counts nowhere and has its own
table, so that all others hold what counts. Calls of older files, which are in rows of events, are loaded as records.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from datetime import date
from functools import cached_property
from itertools import count, groupby
from pathlib import Path
from threading import Lock

import duckdb

from .catalogue import ADDED, OF_CALLS, RowQueries, install, transaction
from .files import DataFile, counted, data_files
from .filters import EVERYTHING, HistoryFilters
from .history_error import unreadable
from .older_calls import of_events, older_calls
from .parquet import COLUMNS, READ_COLUMNS, no_rows, rows_of_files

log = logging.getLogger(__name__)

MOST_ROWS = 20_000_000  # Maximum records loaded, about 0.9 GB; a longer history is read from its files
AT_A_TIME = 500_000  # Records loaded before they are compressed; until then each takes about 400 bytes
LIMIT = "3GB"  # Memory limit of all tables and queries

_COUNTS = "fault IS NULL AND repeated IS NOT TRUE"

_PLACE = '("partition", "offset")'
_PERMISSION = "coalesce(type IN ('permission.requested', 'permission.resolved'), false)"

# Conditions on events by table; each event is in exactly one
_TABLES = {
    "closings": "appended IS NOT NULL",
    "uncounted": f"NOT ({_COUNTS}) AND appended IS NULL",
    "noted_others": f"{_PERMISSION} AND {_COUNTS} AND appended IS NULL",
    "others": f"NOT {_PERMISSION} AND {_COUNTS} AND appended IS NULL",
}

_IS_CALL = "outcome IS NOT NULL AND repeated IS NOT TRUE"
# Likewise on records of calls and what stands in their topic beside them
_CALL_TABLES = {
    "calls": f"{_IS_CALL} AND {_PLACE} NOT IN (FROM noted)",
    "noted_calls": f"{_IS_CALL} AND {_PLACE} IN (FROM noted)",
    "messages": f"NOT ({_IS_CALL})",
}

_COUNTED = {"fault": "NULL", "repeated": "NULL", "appended": "NULL"}

# Columns with one value in all rows of a table, and that value, so that queries for another value skip the table
_ALWAYS = {
    "uncounted": {"appended": "NULL"},
    "noted_others": _COUNTED,
    "others": _COUNTED | {"noted": "false"},
    "calls": {"fault": "NULL", "repeated": "NULL", "noted": "false"},
    "noted_calls": {"fault": "NULL", "repeated": "NULL"},
    "messages": {"outcome": "NULL"},
}

# Condition on calls that somebody was asked about, or that equal one of their session that failed
_OF_PAIRS = (
    "(coalesce((session_id, call_id) IN (SELECT session_id, call_id FROM {asked}), false) OR "
    "coalesce((session_id, call_digest) IN "
    "(SELECT session_id, call_digest FROM {failed} WHERE verdict = 'failure'), false))"
)

# Columns that no page needs; they are NULL
_LEFT_OUT = frozenset(
    {"record", "key", "size", "tenant_id", "scenario", "recursion_depth", "deadline_ms", "text_size", "scope", *ADDED}
)

# Of these, those that incidents are made of, by topic
_NEEDED = {"state": {"key", "record", "scope"}, "nudges": {"record"}}

_WITH_CAUSES = ("escalations", "breakers", "nudges", "suggestions")


class ColumnMemory:
    """In-memory columns of one history; thread-safe for refreshes and queries."""

    def __init__(self, root: Path, *, most_rows: int = MOST_ROWS, threads: int = 2) -> None:
        """Prepare for a directory of Parquet files; reads nothing yet.

        `most_rows`: maximum number of records; `threads`: threads of a query.
        """
        self._root = root
        self._most_rows = most_rows
        self._loaded: set[DataFile] = set()
        self._refreshing = Lock()
        self._numbers = count(1)
        self._told_too_long = False
        self.ready = False
        """True if all records of the last refresh are loaded."""
        self.records = 0
        """Number of records loaded by the last refresh."""
        self._own = duckdb.connect()
        for setting, value in (("threads", threads), ("memory_limit", LIMIT), ("enable_progress_bar", False)):
            self._own.execute(f"SET {setting} = '{value}'")
        self._own.execute("SET python_enable_replacements = false; SET TimeZone = 'UTC'")
        self._own.execute("ATTACH ':memory:' AS kept (COMPRESS)")
        for topic in COLUMNS:
            for table in _tables(topic):
                named = _kept(topic, table)
                columns = ", ".join(f'"{name}" {sql}' for name, sql in named.items())
                self._own.execute(f"CREATE TABLE kept.{table} ({columns})")
        self._own.execute("CREATE TABLE kept.causes (id VARCHAR, tool_name VARCHAR, model VARCHAR, session_id VARCHAR)")

    @cached_property
    def rows(self) -> RowQueries:
        """Queries of all rows, for the catalogue."""
        every = {
            topic: " UNION ALL ".join(f"SELECT {_columns(topic, table)} FROM kept.{table}" for table in _tables(topic))  # noqa: S608 - our own names
            for topic in COLUMNS
        }
        every[OF_CALLS] += f" UNION ALL BY NAME {older_calls(_NO_EVENTS, 'FROM kept.closings')}"
        times = " UNION ALL ".join(f"SELECT time FROM kept.{table}" for table in _TABLES)  # noqa: S608 - likewise
        return RowQueries(every, "FROM kept.causes", times)

    def waiting(self) -> int:
        """Number of records that a refresh would load; more than `most_rows` if the history is too long."""
        files, _ = counted(data_files(self._root))
        total = sum(map(_size, files))
        return total if total > self._most_rows else sum(map(_size, self._missing(files)))

    def refresh(self) -> bool:
        """Load new records and drop deleted ones; returns False if there are no records or too many.

        Returns at once if another thread is refreshing.

        Raises:
            HistoryError: a file cannot be read.
        """
        if not self._refreshing.acquire(blocking=not self.ready):
            return self.ready
        try:
            self._refresh()
        except duckdb.Error as error:
            self.ready = False
            raise unreadable(error, self._root) from error
        finally:
            self._refreshing.release()
        return self.ready

    def connection(
        self, filters: HistoryFilters = EVERYTHING, *, query: str | None = None
    ) -> duckdb.DuckDBPyConnection:
        """Catalogue whose views use these tables, all or those that a query reads; for one thread.

        `narrow` changes its filters.

        Raises:
            ConfigError: nothing is recorded there.
            HistoryError: the files cannot be read.
        """
        made = self._own.cursor()
        name = f"asked_{next(self._numbers)}"
        made.execute(f"ATTACH ':memory:' AS {name}")
        made.execute(f"USE {name}")
        install(made, self._root, filters=filters, rows=self.rows, query=query)
        return made

    def interrupt(self) -> None:
        """Cancel a running refresh."""
        self._own.interrupt()

    def close(self) -> None:
        """Free the memory; close the connections first."""
        self._own.close()

    def _refresh(self) -> None:
        files, _ = counted(data_files(self._root))
        if sum(map(_size, files)) > self._most_rows:
            if self.ready or not self._told_too_long:
                log.warning("%s: more than %s records; answers are read from the files", self._root, self._most_rows)
            self._told_too_long, self.ready = True, False
            return
        gone = [old for old in self._loaded.difference(files) if not any(file.covers(old) for file in files)]
        missing = self._missing(files)
        before = self._loaded
        at_once = sum(map(_size, missing)) <= AT_A_TIME
        try:
            with transaction(self._own) if at_once else nullcontext():  # no reader sees decisions without their causes
                for old in gone:
                    self._drop(old)
                self._loaded = self._loaded.difference(gone)
                for topic, batch in _batches(missing):
                    with nullcontext() if at_once else transaction(self._own):
                        self._load(topic, batch)
                    if not at_once:
                        self._compress()
                if gone or missing:
                    self._name_causes()
        except BaseException:
            if at_once:
                self._loaded = before
            raise
        if at_once and sum(map(_size, missing)) > AT_A_TIME // 10:
            self._compress()
        self._loaded = set(files)
        self.records = sum(map(_size, files))
        self.ready = bool(files)

    def _missing(self, files: Iterable[DataFile]) -> list[DataFile]:
        """Files whose rows are not loaded; a merged file's rows were loaded with its parts."""
        found = []
        for file in files:
            if file not in self._loaded:
                parts = [old for old in self._loaded if file.covers(old)]
                if sum(map(_size, parts)) < _size(file):
                    found.append(file)
        return found

    def _load(self, topic: str, files: Sequence[DataFile]) -> None:
        """Load the rows of files of one topic, in a transaction of the caller."""
        columns = READ_COLUMNS[topic]
        left_out = _LEFT_OUT - _NEEDED.get(topic, set())
        named = ", ".join(f'"{name}"' for name in columns if name not in left_out)
        rows = rows_of_files(columns, "FROM read_parquet(?, union_by_name = true, hive_partitioning = false)")
        parts = {old for old in self._loaded if any(file.covers(old) for file in files)}
        for part in parts:
            self._drop(part)
        self._own.execute(
            f"CREATE OR REPLACE TEMP TABLE batch AS SELECT {named} FROM ({rows})",  # noqa: S608
            [[str(file.path) for file in files]],
        )
        if topic == "events":
            self._move(f"(FROM batch WHERE {_PERMISSION})", "(SELECT * FROM kept.noted_calls WHERE false)")
            for table, condition in _TABLES.items():
                own = ", ".join(f'"{name}"' for name in _kept(topic, table))
                self._own.execute(f"INSERT INTO kept.{table} SELECT {own} FROM batch WHERE {condition}")  # noqa: S608
            self._load_calls(older_calls("FROM batch", _NO_EVENTS))
        elif topic == OF_CALLS:
            self._load_calls("FROM batch")
        else:
            self._own.execute(f"INSERT INTO kept.{_named(topic)} FROM batch")
        self._own.execute("DROP TABLE batch")
        self._loaded = (self._loaded - parts) | set(files)

    def _load_calls(self, rows: str) -> None:
        """Load records of calls, and choose those that are noted."""
        own = _kept(OF_CALLS, "calls")
        self._own.execute(
            f"CREATE OR REPLACE TEMP TABLE made AS SELECT {', '.join(map(_quoted, own))} FROM "  # noqa: S608 - our own names
            f"({no_rows(own)} UNION ALL BY NAME {rows})"
        )
        known = _OF_PAIRS.format(
            asked="kept.noted_others",
            failed="(SELECT session_id, call_digest, verdict FROM kept.noted_calls UNION ALL "
            "SELECT session_id, call_digest, verdict FROM made)",
        )
        self._own.execute(
            f"CREATE OR REPLACE TEMP TABLE noted AS SELECT {_PLACE} FROM made "  # noqa: S608 - our own names
            f"WHERE {_IS_CALL} AND (verdict = 'failure' OR same_result >= 2 OR {known})"
        )
        self._move("kept.noted_others", "(FROM made WHERE verdict = 'failure')")
        for table, condition in _CALL_TABLES.items():
            self._own.execute(f"INSERT INTO kept.{table} FROM made WHERE {condition}")
        self._own.execute("DROP TABLE made")

    def _move(self, asked: str, failed: str) -> None:
        """Note loaded calls that somebody was asked about, or that equal one that failed, both loaded after them."""
        ((first,),) = self._own.execute(
            f"SELECT min(time) FROM (SELECT time FROM {asked} UNION ALL SELECT time FROM {failed})"  # noqa: S608
        ).fetchall()
        if first is None:
            return
        self._own.execute(
            f"CREATE OR REPLACE TEMP TABLE moved AS FROM kept.calls WHERE time >= TIMESTAMP '{first}' "
            f"AND {_OF_PAIRS.format(asked=asked, failed=failed)}"
        )
        self._own.execute("INSERT INTO kept.noted_calls FROM moved")
        self._own.execute(f"DELETE FROM kept.calls WHERE {_PLACE} IN (SELECT {_PLACE} FROM moved)")  # noqa: S608
        self._own.execute("DROP TABLE moved")

    def _compress(self) -> None:
        try:
            self._own.execute("CHECKPOINT kept")
        except duckdb.TransactionException:  # a query is running; these rows are compressed with the next ones
            log.debug("not compressed now: a query is under way")

    def _drop(self, file: DataFile) -> None:
        places = [(table, file.partition) for table in _tables(file.topic)]
        if file.topic == "events":
            places += [(table, of_events(file.partition)) for table in _CALL_TABLES]
        for table, partition in places:
            self._own.execute(
                f'DELETE FROM kept.{table} WHERE "partition" = ? AND "offset" BETWEEN ? AND ?',  # noqa: S608 - our own names
                [partition, file.first, file.last],
            )

    def _name_causes(self) -> None:
        """Build the table of events that decisions name as causes, used by filters on tool, model and session."""
        caused = " UNION ".join(f"SELECT unnest(caused_by) FROM kept.{topic}" for topic in _WITH_CAUSES)  # noqa: S608
        events = " UNION ALL ".join(f"SELECT id, tool_name, model, session_id FROM kept.{table}" for table in _TABLES)  # noqa: S608
        self._own.execute(f"CREATE OR REPLACE TABLE kept.causes AS FROM ({events}) WHERE id IN ({caused})")


def _batches(files: Iterable[DataFile]) -> Iterator[tuple[str, list[DataFile]]]:
    """Divide files into batches of one topic, each of few more than `AT_A_TIME` records."""
    for topic, group in groupby(sorted(files, key=_place), key=lambda file: file.topic):
        batch: list[DataFile] = []
        for file in group:
            batch.append(file)
            if sum(map(_size, batch)) >= AT_A_TIME:
                yield topic, batch
                batch = []
        if batch:
            yield topic, batch


def _size(file: DataFile) -> int:
    """Number of records of a file, from its name."""
    return file.last - file.first + 1


def _place(file: DataFile) -> tuple[str, date, int, int]:
    return file.topic, file.day, file.partition, file.first


def _named(topic: str) -> str:
    return topic.replace("-", "_")


def _quoted(name: str) -> str:
    return f'"{name}"'


def _tables(topic: str) -> tuple[str, ...]:
    """Tables of a topic."""
    own = {"events": _TABLES, OF_CALLS: _CALL_TABLES}.get(topic)
    return (_named(topic),) if own is None else tuple(own)


def _kept(topic: str, table: str) -> dict[str, str]:
    """Columns that a table of a topic has, with their types."""
    columns = READ_COLUMNS[topic] if table == "closings" else COLUMNS[topic]
    left_out = _LEFT_OUT - _NEEDED.get(topic, set())
    return {name: sql for name, sql in columns.items() if name not in left_out}


def _columns(topic: str, table: str) -> str:
    """Columns of a topic as a table has them, in the order of the topic."""
    always, kept = _ALWAYS.get(table, {}), _kept(topic, table)
    own = READ_COLUMNS[topic] | (ADDED if topic in {"events", OF_CALLS} else {})
    return ", ".join(
        f'{always[name]}::{sql} AS "{name}"' if name in always
        else f'"{name}"' if name in kept
        else f'NULL::{sql} AS "{name}"'
        for name, sql in own.items()
    )  # fmt: skip


_NO_EVENTS = "FROM kept.closings WHERE false"
