"""Lookup of events and decisions in a recorded history, for those no longer in the topics."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import local
from typing import TYPE_CHECKING, Any, TypeVar

import orjson

from ...errors import ConfigError, TrustfoldError
from ...history.files import APPENDED_PARTITION, source_of
from ...history.history_error import HistoryError, unreadable
from ...history.sessions.ranking import SessionSummary
from ...history.sessions.timeline import TimelineEntries
from ...projections.incidents import NOTHING
from ...projections.topology import DECISION_TOPICS
from ...rules.rules import RuleSet
from .history_answers import QuestionUnanswered, limited
from .source import PlacedRecord, SearchResult

if TYPE_CHECKING:
    import duckdb

log = logging.getLogger(__name__)

Found = TypeVar("Found")

MAX_SESSIONS = 2_000  # Sessions that are listed
FRESH_S = 30.0  # Seconds for which the list of sessions counts as new: recorders write as often
WAIT_S = 3.0  # Longest wait of a page for the list of sessions
STALE_S = 600.0  # Seconds after which it is too old to be given: who asks waits for a new one
LIMIT_S = 10.0  # Seconds after which a query is given up: pages show what the topics have, and wait for no more
MAX_HITS = 20  # Events found of one session, so that one does not hide the others
AT_ONCE = 2  # Queries under way; one that takes long holds up no other


class _ThreadCatalogue(local):
    """The catalogue of a thread; None before its first query."""

    connection: duckdb.DuckDBPyConnection | None = None
    topics: frozenset[Path] = frozenset()  # folders of recorded topics when it was opened


class RecordedEvents:
    """Recorded history of a source, read in threads; nothing is found where it is empty, unreadable or names no source.

    Offsets are those of the source: of the partitions of its topics, or of the log of its store. The caller checks that
    the history is the source's own (`source.foreign_history`).
    """

    def __init__(self, root: Path, *, limit_s: float = LIMIT_S) -> None:
        """Prepare; files are read by the first query.

        Args:
            root: directory of Parquet files, which need not exist yet.
            limit_s: seconds after which a query is cancelled.
        """
        self._root = root
        self._listed: list[SessionSummary] = []
        self._listed_at = -math.inf
        self._listing: asyncio.Task[None] | None = None
        self._limit_s = limit_s
        self._threads = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="trustfold-recorded")
        self._catalogue = _ThreadCatalogue()
        self._running: set[duckdb.DuckDBPyConnection] = set()

    async def sessions(self) -> list[SessionSummary]:
        """Latest sessions, those of the last days that are recorded, as of `FRESH_S` ago at the most.

        A list that is older is given once more while it is made anew: pages ask for it again with every change, and
        the questions would wait for each other. No page waits longer than `WAIT_S`: the first list of a young history,
        which is in hundreds of small files, takes longer, and until then there are the sessions of the topics.
        """
        age = time.monotonic() - self._listed_at
        if self._listing is None and age >= FRESH_S:
            self._listing = asyncio.create_task(self._list())
        if self._listing is not None and age >= STALE_S:
            await asyncio.wait([self._listing], timeout=WAIT_S)
        return self._listed

    async def _list(self) -> None:
        try:
            self._listed = await self._latest() or self._listed  # nothing found: the query was given up
            self._listed_at = time.monotonic()
        finally:
            self._listing = None

    async def _latest(self) -> list[SessionSummary]:
        rows = await self._ask(
            "SELECT session_id, workspace, coalesce(model, ''), calls, failures, judged, coalesce(patterns, 0), "
            "epoch_ms(ended) FROM sessions, recorded_until WHERE ended > until - INTERVAL 3 DAY "
            "ORDER BY ended DESC LIMIT ?",
            [MAX_SESSIONS],
        )
        return [
            SessionSummary(one, workspace, model, calls, failed, calls - judged, NOTHING, patterns, 0, ended)
            for one, workspace, model, calls, failed, judged, patterns, ended in rows
        ]

    async def events(self, session: str, before: int | None, limit: int) -> list[PlacedRecord]:
        """Latest input events of a session in front of an offset, oldest first."""
        rows = await self._ask(
            'SELECT "offset", record FROM recorded_events WHERE session_id = ? AND "offset" < ? AND record IS NOT NULL'
            ' AND "partition" <> ? ORDER BY "offset" DESC LIMIT ?',
            [session, before if before is not None else 1 << 62, APPENDED_PARTITION, limit],
        )
        return [PlacedRecord(offset, orjson.loads(record)) for offset, record in rows[::-1]]

    async def events_of(self, ids: Collection[str]) -> list[PlacedRecord]:
        """Input events and commands of the given ids, oldest first."""
        marks = ", ".join("?" * len(ids))
        rows = await self._ask(
            " UNION ALL ".join(
                f'SELECT arrived, "offset", record FROM recorded_{topic} WHERE id IN ({marks}) AND record IS NOT NULL'  # noqa: S608 - our own words
                for topic in ("events", "commands")
            ),
            [*ids, *ids],
        )
        return [
            PlacedRecord(offset, orjson.loads(record)) for _, offset, record in sorted(rows, key=lambda row: row[:2])
        ]

    async def decision(self, decision_id: str) -> PlacedRecord | None:
        """Decision with an id, with the offset 0: it precedes all that the source itself still holds."""
        rows = await self._ask(
            " UNION ALL ".join(f"SELECT record FROM recorded_{topic} WHERE id = $1" for topic in DECISION_TOPICS)  # noqa: S608 - our own words
            + " LIMIT 1",
            [decision_id],
        )
        return PlacedRecord(0, orjson.loads(rows[0][0])) if rows else None

    async def search(self, text: str, limit: int, before: int | None = None) -> SearchResult:
        """Latest input events that hold a text, in front of an offset; of each session at most `MAX_HITS`."""
        question = (
            'SELECT record FROM recorded_events WHERE "offset" < ? AND "partition" <> ? AND record IS NOT NULL AND '
            "contains(lower(record), lower(?)) QUALIFY row_number() OVER (PARTITION BY session_id ORDER BY time DESC) "
            "<= ? ORDER BY time DESC LIMIT ?"
        )
        values = [before or 1 << 62, APPENDED_PARTITION, orjson.dumps(text)[1:-1].decode(), MAX_HITS, limit]
        try:
            rows = await asyncio.get_running_loop().run_in_executor(self._threads, self._answer, question, values)
        except QuestionUnanswered:
            return SearchResult([], left_out=f"the history was not searched: that took more than {self._limit_s:g} s")
        return SearchResult([orjson.loads(record) for (record,) in rows])

    async def timeline(self, session_id: str, rules: RuleSet) -> TimelineEntries | None:
        """Timeline of a session; None if it is not recorded.

        Raises:
            QuestionUnanswered: looking for it took too long.
            HistoryError: the files cannot be read.
        """
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._timeline, session_id, rules)

    def close(self) -> None:
        """End; queries under way are given up."""
        for connection in list(self._running):
            connection.interrupt()
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _ask(self, question: str, values: Sequence[Any]) -> list[Any]:
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._rows, question, values)

    def _rows(self, question: str, values: Sequence[Any]) -> list[Any]:
        try:
            return self._answer(question, values)
        except QuestionUnanswered as slow:
            log.warning("the history was left out of a page: %s", slow)
            return []

    def _answer(self, question: str, values: Sequence[Any]) -> list[Any]:
        """Rows of a query; none where nothing can be read.

        Raises:
            QuestionUnanswered: it took too long.
        """
        if not source_of(self._root):
            return []
        try:
            found: list[Any] = self._read(lambda connection: connection.execute(question, values).fetchall())
        except (HistoryError, ConfigError, ImportError) as error:
            log.debug("the history was not read: %s", error)
            return []
        return found

    def _timeline(self, session_id: str, rules: RuleSet) -> TimelineEntries | None:
        try:
            from ...history.sessions.recorded import recorded_session  # noqa: PLC0415 - the history is an extra

            found = self._read(lambda connection: recorded_session(connection, session_id, rules))
        except (ConfigError, ImportError):
            return None  # nothing is recorded yet
        return found if found.items else None

    def _read(self, work: Callable[[duckdb.DuckDBPyConnection], Found]) -> Found:
        """Return what `work` reads with this thread's catalogue, which is opened once: that takes seconds.

        Raises:
            ImportError: DuckDB is not installed.
            ConfigError: nothing is recorded.
            QuestionUnanswered: it took too long.
            HistoryError: the files cannot be read.
        """
        import duckdb  # noqa: PLC0415 - the history is an extra

        from ...history.catalogue import connect  # noqa: PLC0415 - likewise

        own, topics = self._catalogue, frozenset(self._root.glob("[!.]*"))
        if own.connection is None or own.topics != topics:  # its views have the topics of then
            own.connection, own.topics = connect(self._root, threads=1), topics
        connection = own.connection
        self._running.add(connection)
        try:
            with limited(connection, self._limit_s):
                return work(connection)
        except QuestionUnanswered:
            raise
        except (duckdb.Error, TrustfoldError) as error:
            own.connection = None
            raise error if isinstance(error, TrustfoldError) else unreadable(error, self._root) from error
        finally:
            self._running.discard(connection)
