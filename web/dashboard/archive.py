"""Answers out of the recorded history for pages: found in threads, never on the event loop.

Theory of operation. A query over a long history takes longer than a page may. So an answer is kept, and asked for
again it is given at once; when it is older than the recorder's own delay it is found anew in the background, and the
page says as of when it is. Queries run two at a time, one that takes too long is cancelled, and pages that ask for the
same wait for one query. Each thread has a catalogue; filters stand in its lowest views, which are made anew for others.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock, Timer, local
from typing import TYPE_CHECKING, Any, NamedTuple

from ...errors import ConfigError, TrustfoldError
from ...history.filters import EVERYTHING, Filters
from ...history.reports import Answer, Question

if TYPE_CHECKING:
    import duckdb


LIMIT_S = 30.0
"""Seconds after which a query is cancelled."""

FRESH_S = 30.0
"""Seconds for which an answer counts as new: recorders write as often."""

STALE_S = 600.0
"""Seconds after which a kept answer is too old to be given: who asks waits for a new one."""

AT_ONCE = 2
WAITING = 24
"""Queries under way and waiting at most; further ones are refused."""

KEPT, KEPT_ROWS = 256, 200_000
"""Answers kept, and their rows."""

MEMORY = "1GB"
"""Memory of a query, at most."""


class Unanswered(TrustfoldError):
    """A question that cannot be answered now: nothing is recorded, or it took too long; the message says what to do.

    Attributes:
        recorded: whether there is a history at all.
    """

    def __init__(self, text: str, *, recorded: bool = True) -> None:
        """Say why."""
        super().__init__(text)
        self.recorded = recorded


class Found(NamedTuple):
    """An answer, and when it was found."""

    answer: Answer
    at: datetime


class _Key(NamedTuple):
    filters: Filters
    question: Question
    limit: int
    arguments: tuple[tuple[str, Any], ...]


class _Catalogue(local):
    """The catalogue of a thread.

    Attributes:
        connection: with all views; None before the first query.
        filters: that stand in its views; None while they are made.
        topics: names of the directories that they read.
    """

    connection: duckdb.DuckDBPyConnection | None = None
    filters: Filters | None = EVERYTHING
    topics: frozenset[str] = frozenset()


class Archive:
    """The recorded history of a source, asked by pages; for one event loop."""

    def __init__(
        self, root: Path | None = None, *, limit_s: float = LIMIT_S, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Read the history in a directory, whether or not there is one yet.

        Args:
            root: directory of Parquet files; None where the source has none.
            limit_s: seconds after which a query is cancelled.
            clock: monotonic seconds.
        """
        self.root = root
        self._limit_s = limit_s
        self._clock = clock
        self._threads = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="trustfold-history")
        self._kept: OrderedDict[_Key, tuple[Found, float]] = OrderedDict()
        self._asked: dict[_Key, asyncio.Task[Found]] = {}
        self._catalogue = _Catalogue()
        self._made: list[duckdb.DuckDBPyConnection] = []
        self._running: set[duckdb.DuckDBPyConnection] = set()
        self._lock = Lock()

    async def ask(self, question: Question, filters: Filters = EVERYTHING, limit: int = 50, **arguments: Any) -> Found:
        """The answer to a question, as new as it can be had at once.

        Args:
            question: of the catalogue, or made for a page; its query may name `$limit` and the arguments.
            filters: what of the history.
            limit: rows wanted.
            arguments: values of further parameters of the query.

        Raises:
            Unanswered: nothing is recorded, too many wait, or the query took too long.
            HistoryError: the files cannot be read.
        """
        if self.root is None:
            raise Unanswered("this server knows of no history", recorded=False)
        key = _Key(filters, question, limit, tuple(sorted(arguments.items())))
        kept = self._kept.get(key)
        age = self._clock() - kept[1] if kept is not None else STALE_S
        if kept is not None and age < FRESH_S:
            return kept[0]
        if age >= STALE_S:
            kept = None
        task = self._asked.get(key)
        if task is None:
            if len(self._asked) >= WAITING and kept is None:
                raise Unanswered("too many questions wait for an answer; try again in a moment")
            if len(self._asked) < WAITING:
                task = asyncio.get_running_loop().create_task(self._find(key))
                task.add_done_callback(_heard)
                self._asked[key] = task
        if kept is not None:
            return kept[0]
        assert task is not None  # noqa: S101 - refused above where it is not
        return await asyncio.shield(task)

    def close(self) -> None:
        """Cancel what runs and close the catalogues; to be called once when the server stops."""
        with self._lock:
            for connection in self._running:
                connection.interrupt()
        self._threads.shutdown(cancel_futures=True)
        self._catalogue = _Catalogue()
        for connection in self._made:
            connection.close()

    async def _find(self, key: _Key) -> Found:
        try:
            answer = await asyncio.get_running_loop().run_in_executor(self._threads, self._query, key)
        finally:
            del self._asked[key]
        found = Found(answer, datetime.now(UTC))
        self._kept[key] = found, self._clock()
        self._kept.move_to_end(key)
        rows = sum(len(kept.answer.rows) for kept, _ in self._kept.values())
        while len(self._kept) > KEPT or (rows > KEPT_ROWS and len(self._kept) > 1):
            _, (dropped, _) = self._kept.popitem(last=False)
            rows -= len(dropped.answer.rows)
        return found

    def _query(self, key: _Key) -> Answer:
        """Ask in a thread."""
        try:
            import duckdb  # noqa: PLC0415 - the history is an extra

            from ...history.queries import ask  # noqa: PLC0415
        except ImportError as missing:
            raise Unanswered(
                f"DuckDB is not installed here ({missing}); pip install 'trustfold[history]'", recorded=False
            ) from missing
        connection = self._narrowed(key.filters)
        cancelled = Timer(self._limit_s, connection.interrupt)
        cancelled.daemon = True
        cancelled.start()
        with self._lock:
            self._running.add(connection)
        try:
            return ask(connection, key.question, key.limit, dict(key.arguments))
        except (TrustfoldError, duckdb.Error) as error:
            if isinstance(error, duckdb.InterruptException) or isinstance(error.__cause__, duckdb.InterruptException):
                raise Unanswered(
                    f"the answer took more than {self._limit_s:g} s and was given up; choose a shorter time, or one "
                    "tool, model or workspace"
                ) from error
            raise
        finally:
            cancelled.cancel()
            with self._lock:
                self._running.discard(connection)

    def _narrowed(self, filters: Filters) -> duckdb.DuckDBPyConnection:
        """The catalogue of this thread with these filters in its views.

        Raises:
            Unanswered: nothing is recorded.
            HistoryError: the files cannot be read.
        """
        from ...history.catalogue import connect, narrow  # noqa: PLC0415 - the history is an extra

        assert self.root is not None  # noqa: S101 - refused before
        own = self._catalogue
        try:
            topics = frozenset(one.name for one in self.root.iterdir()) if self.root.is_dir() else frozenset()
            if own.connection is None:
                made = connect(self.root, filters=filters, threads=2)
                made.execute(f"SET memory_limit = '{MEMORY}'")
                made.execute("SET parquet_metadata_cache = true")  # files are never written again
                own.connection = made
                self._made.append(made)
            elif (filters, topics) != (own.filters, own.topics):
                own.filters = None  # until all views are made: a failure in between leaves some with the old ones
                narrow(own.connection, self.root, filters=filters)
        except ConfigError as nothing:
            raise Unanswered(str(nothing), recorded=False) from nothing
        except OSError as error:
            raise Unanswered(f"{self.root}: cannot be read ({error.strerror})", recorded=False) from error
        own.filters, own.topics = filters, topics
        return own.connection


def _heard(task: asyncio.Task[Found]) -> None:
    """Take note of an error that nobody waits for any more; the next who asks gets it again."""
    if not task.cancelled():
        task.exception()
