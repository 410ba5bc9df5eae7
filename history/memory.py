"""Columns of a history in memory: what servers answer from, brought up to date file by file.

Theory of operation. A query over Parquet files lists, opens and unpacks them again each time, which over ten million
events takes one to ten seconds. A server that is asked often therefore keeps the columns that questions need in tables
of DuckDB, compressed (about 45 bytes an event); the views of the catalogue stand on these tables in place of the files.
Recorded files never change: the names say which rows are here already, a merge brings none, and a file that was deleted
for its age takes its rows with it. Finished calls, what most questions are about, have a table of their own, and so
have finishes that meet one of the engine's own: so neither is looked for among all events.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from datetime import date
from itertools import count, groupby
from pathlib import Path
from threading import Lock

import duckdb

from .catalogue import KINDS, Rows, install
from .columns import columns_of
from .errors import unreadable
from .files import DataFile, counted, data_files
from .filters import EVERYTHING, Filters

log = logging.getLogger(__name__)

MOST_ROWS = 20_000_000
"""Records that are taken into memory at most, about 0.9 GB; a longer history is read from its files."""

AT_A_TIME = 500_000
"""Records that are loaded before they are compressed: until then each takes some 400 bytes."""

LIMIT = "3GB"
"""Memory of all tables and queries, at most."""

_FINISHED = "type = 'tool_call.finished' AND fault IS NULL AND repeated IS NOT TRUE"

_TABLES = {
    "calls": f"{_FINISHED} AND appended IS NULL",
    "closings": "appended IS NOT NULL",
    "others": f"NOT coalesce({_FINISHED}, false) AND appended IS NULL",
}
"""Tables of events, and which events they hold: each is in one."""

_ALWAYS = {
    "calls": {"type": "'tool_call.finished'", "fault": "NULL", "repeated": "NULL", "appended": "NULL"},
    "others": {"appended": "NULL"},
}
"""Columns that have one value in all rows of a table, and this value: so a query that wants another skips the table."""

_LEFT_OUT = frozenset({"record", "key", "size", "tenant_id", "scenario", "recursion_depth", "deadline_ms", "text_size"})
"""Columns that no question of a page needs; they are NULL."""

_WITH_CAUSES = ("escalations", "breakers", "nudges", "suggestions")


class Memory:
    """The columns of one history; several threads may refresh it and ask."""

    def __init__(self, root: Path, *, most_rows: int = MOST_ROWS, threads: int = 2) -> None:
        """Prepare for a directory; nothing is read yet.

        Args:
            root: of the Parquet files.
            most_rows: records that are taken at most.
            threads: of a query.
        """
        self._root = root
        self._most_rows = most_rows
        self._loaded: set[DataFile] = set()
        self._refreshing = Lock()
        self._numbers = count(1)
        self._told_too_long = False
        self.ready = False
        """Whether all that was recorded at the last refresh is here."""
        self._own = duckdb.connect()
        for setting, value in (("threads", threads), ("memory_limit", LIMIT), ("enable_progress_bar", False)):
            self._own.execute(f"SET {setting} = '{value}'")
        self._own.execute("SET python_enable_replacements = false")
        self._own.execute("ATTACH ':memory:' AS kept (COMPRESS)")
        for topic, kind in KINDS.items():
            columns = ", ".join(f'"{name}" {sql}' for name, sql in columns_of(kind).items() if name not in _LEFT_OUT)
            for table in _TABLES if topic == "events" else (_named(topic),):
                self._own.execute(f"CREATE TABLE kept.{table} ({columns})")
        self._own.execute("CREATE TABLE kept.causes (id VARCHAR, tool_name VARCHAR, model VARCHAR, session_id VARCHAR)")

    @property
    def rows(self) -> Rows:
        """Queries of all rows, for the catalogue."""
        every = {topic: f"SELECT {_columns(topic, _named(topic))} FROM kept.{_named(topic)}" for topic in KINDS}  # noqa: S608 - our own names
        every["events"] = " UNION ALL ".join(
            f"SELECT {_columns('events', table)} FROM kept.{table}"  # noqa: S608 - likewise
            for table in _TABLES
        )
        return Rows(every, "FROM kept.causes")

    def waiting(self) -> int:
        """Records that a refresh would load; more than `most_rows` where the history is too long."""
        files, _ = counted(data_files(self._root))
        total = sum(map(_size, files))
        return total if total > self._most_rows else sum(map(_size, self._missing(files)))

    def refresh(self) -> bool:
        """Take what was recorded since, and drop what was deleted; False: nothing is recorded, or too much.

        Where another thread does so already, it returns at once.

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

    def connection(self, filters: Filters = EVERYTHING) -> duckdb.DuckDBPyConnection:
        """A catalogue whose views stand on these tables; for one thread, its filters are exchanged by `narrow`.

        Raises:
            ConfigError: nothing is recorded there.
            HistoryError: the files cannot be read.
        """
        made = self._own.cursor()
        name = f"asked_{next(self._numbers)}"
        made.execute(f"ATTACH ':memory:' AS {name}")
        made.execute(f"USE {name}")
        install(made, self._root, filters=filters, rows=self.rows)
        return made

    def interrupt(self) -> None:
        """Give up a refresh that is under way."""
        self._own.interrupt()

    def close(self) -> None:
        """Give the memory back; connections must be closed before."""
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
        for old in gone:
            self._drop(old)
            self._loaded.discard(old)
        for topic, group in groupby(sorted(missing, key=_place), key=lambda file: file.topic):
            batch: list[DataFile] = []
            for file in group:
                batch.append(file)
                if sum(map(_size, batch)) >= AT_A_TIME:
                    self._load(topic, batch)
                    batch = []
            if batch:
                self._load(topic, batch)
        if gone or missing:
            self._name_causes()
        self._loaded = set(files)
        self.ready = bool(files)

    def _missing(self, files: Iterable[DataFile]) -> list[DataFile]:
        """Files whose rows are not here; those of a merged file came with its parts."""
        found = []
        for file in files:
            if file not in self._loaded:
                parts = [old for old in self._loaded if file.covers(old)]
                if sum(map(_size, parts)) < _size(file):
                    found.append(file)
        return found

    def _load(self, topic: str, files: Sequence[DataFile]) -> None:
        """Take the rows of files of one topic, all or none."""
        columns = columns_of(KINDS[topic])
        typed = ", ".join(f'NULL::{sql} AS "{name}"' for name, sql in columns.items())
        named = ", ".join(f'"{name}"' for name in columns if name not in _LEFT_OUT)
        parts = {old for old in self._loaded if any(file.covers(old) for file in files)}
        self._own.begin()
        try:
            for part in parts:
                self._drop(part)
            self._own.execute(
                f"CREATE OR REPLACE TEMP TABLE batch AS SELECT {named} FROM (SELECT {typed} WHERE false "  # noqa: S608 - our own names
                "UNION ALL BY NAME FROM read_parquet(?, union_by_name = true, hive_partitioning = false))",
                [[str(file.path) for file in files]],
            )
            for table in _TABLES if topic == "events" else (_named(topic),):
                self._own.execute(f"INSERT INTO kept.{table} FROM batch WHERE {_TABLES.get(table, 'true')}")
            self._own.execute("DROP TABLE batch")
        except BaseException:
            self._own.rollback()
            raise
        self._own.commit()
        self._loaded = (self._loaded - parts) | set(files)
        if sum(map(_size, files)) > AT_A_TIME // 10:
            self._compress()

    def _compress(self) -> None:
        try:
            self._own.execute("CHECKPOINT kept")
        except duckdb.TransactionException:  # somebody is asking; what comes next is compressed together with this
            log.debug("not compressed now: a query is under way")

    def _drop(self, file: DataFile) -> None:
        for table in _TABLES if file.topic == "events" else (_named(file.topic),):
            self._own.execute(
                f'DELETE FROM kept.{table} WHERE "partition" = ? AND "offset" BETWEEN ? AND ?',  # noqa: S608 - our own names
                [file.partition, file.first, file.last],
            )

    def _name_causes(self) -> None:
        """Keep apart the events that decisions name as causes: filters by tool, model and session look for them."""
        caused = " UNION ".join(f"SELECT unnest(caused_by) FROM kept.{topic}" for topic in _WITH_CAUSES)  # noqa: S608
        events = " UNION ALL ".join(f"SELECT id, tool_name, model, session_id FROM kept.{table}" for table in _TABLES)  # noqa: S608
        self._own.execute(f"CREATE OR REPLACE TABLE kept.causes AS FROM ({events}) WHERE id IN ({caused})")


def _size(file: DataFile) -> int:
    """Records of a file, as its name says."""
    return file.last - file.first + 1


def _place(file: DataFile) -> tuple[str, date, int, int]:
    return file.topic, file.day, file.partition, file.first


def _named(topic: str) -> str:
    return topic.replace("-", "_")


def _columns(topic: str, table: str) -> str:
    """Columns of a topic as a table has them, in the order of the topic."""
    always = _ALWAYS.get(table, {})
    return ", ".join(
        f'NULL::{sql} AS "{name}"' if name in _LEFT_OUT
        else f'{always[name]}::{sql} AS "{name}"' if name in always
        else f'"{name}"'
        for name, sql in columns_of(KINDS[topic]).items()
    )  # fmt: skip
