"""Answers out of the recorded history for pages: found in threads, never on the event loop.

Theory of operation. A query over the files of a long history takes longer than a page may. So the columns that
questions need are kept in memory (`history.memory`); while they are loaded for the first time, and where a history is
too long for it, queries read the files. An answer is kept, too, and asked for again it is given at once; when it is
older than the recorder's own delay it is found anew in the background, and the page says as of when it is. Queries run
two at a time, one that takes too long is cancelled, and pages that ask for the same wait for one query. Each thread has
its catalogues; filters stand in their lowest views, which are made anew for others.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock, Timer, local
from typing import TYPE_CHECKING, Any, NamedTuple

from ...errors import ConfigError, TrustfoldError
from ...history.filters import EVERYTHING, Filters
from ...history.reports import Answer, Question

if TYPE_CHECKING:
    import duckdb

    from ...history.memory import Memory

log = logging.getLogger(__name__)

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


LOOK_S = 1.0
"""Seconds between two looks for what was recorded since."""

LITTLE = 200_000
"""Records that whoever asks waits for to be loaded, about a second; more are loaded in the background."""


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


@dataclass
class _Catalogue:
    """A catalogue of a thread.

    Attributes:
        connection: with all views.
        filters: that stand in its views; None while they are made.
        topics: names of the directories that they read.
    """

    connection: duckdb.DuckDBPyConnection
    filters: Filters | None
    topics: frozenset[str]


class _Catalogues(local):
    """The catalogues of a thread: over the files, and over the tables in memory; None before the first query."""

    of_files: _Catalogue | None = None
    of_memory: _Catalogue | None = None


class Archive:
    """The recorded history of a source, asked by pages; for one event loop."""

    def __init__(
        self,
        root: Path | None = None,
        *,
        limit_s: float = LIMIT_S,
        clock: Callable[[], float] = time.monotonic,
        refusal: Callable[[], str] = lambda: "",
    ) -> None:
        """Read the history in a directory, whether or not there is one yet.

        Args:
            root: directory of Parquet files; None where the source has none.
            limit_s: seconds after which a query is cancelled.
            clock: monotonic seconds.
            refusal: why the directory must not be read; empty while it may be.
        """
        self.root = root
        self._refusal = refusal
        self._limit_s = limit_s
        self._clock = clock
        self._threads = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="trustfold-history")
        self._kept: OrderedDict[_Key, tuple[Found, float]] = OrderedDict()
        self._asked: dict[_Key, asyncio.Task[Found]] = {}
        self._memory: Memory | None = None
        self._looked = float("-inf")
        self._loader = ThreadPoolExecutor(1, thread_name_prefix="trustfold-history-memory")
        self._loading: Future[None] | None = None
        self._catalogues = _Catalogues()
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
        if refused := self._refusal():
            raise Unanswered(refused, recorded=False)
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
            if self._memory is not None:
                self._memory.interrupt()
        self._threads.shutdown(cancel_futures=True)
        self._loader.shutdown(cancel_futures=True)
        self._catalogues = _Catalogues()
        for connection in self._made:
            connection.close()
        if self._memory is not None:
            self._memory.close()

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
            from ...history.queries import ask  # noqa: PLC0415 - the history is an extra
        except ImportError as missing:
            raise Unanswered(
                f"DuckDB is not installed here ({missing}); pip install 'trustfold[history]'", recorded=False
            ) from missing
        connection = self._narrowed(key.filters)
        with self._lock:
            self._running.add(connection)
        try:
            with limited(connection, self._limit_s):
                return ask(connection, key.question, key.limit, dict(key.arguments))
        finally:
            with self._lock:
                self._running.discard(connection)

    def _up_to_date(self) -> Memory | None:
        """The columns in memory with all that is recorded; None where they are being loaded, or not kept."""
        from ...history.memory import Memory  # noqa: PLC0415 - the history is an extra

        assert self.root is not None  # noqa: S101 - refused before
        with self._lock:
            if self._memory is None:
                self._memory = Memory(self.root)
            due = self._clock() - self._looked >= LOOK_S
            if due:
                self._looked = self._clock()
            free = self._loading is None or self._loading.done()
            if due and free and self._memory.waiting() > LITTLE:
                self._loading = self._loader.submit(self._load, self._memory)
                free = False
        if due and free:
            self._load(self._memory)
        return self._memory if self._memory.ready else None

    def _load(self, memory: Memory) -> None:
        try:
            memory.refresh()
        except TrustfoldError as error:
            log.warning("the history is read from its files: %s", error)

    def _narrowed(self, filters: Filters) -> duckdb.DuckDBPyConnection:
        """The catalogue of this thread with these filters in its views.

        Raises:
            Unanswered: nothing is recorded.
            HistoryError: the files cannot be read.
        """
        from ...history.catalogue import connect, narrow  # noqa: PLC0415 - the history is an extra

        assert self.root is not None  # noqa: S101 - refused before
        try:
            topics = frozenset(one.name for one in self.root.iterdir()) if self.root.is_dir() else frozenset()
            memory = self._up_to_date()
            own = self._catalogues.of_files if memory is None else self._catalogues.of_memory
            if own is None:
                if memory is not None:
                    made = memory.connection(filters)
                else:
                    made = connect(self.root, filters=filters, threads=2, keep_metadata=True)
                    made.execute(f"SET memory_limit = '{MEMORY}'")
                own = _Catalogue(made, filters, topics)
                self._made.append(made)
                if memory is None:
                    self._catalogues.of_files = own
                else:
                    self._catalogues.of_memory = own
            elif (filters, topics) != (own.filters, own.topics):
                own.filters = None  # until all views are made: a failure in between leaves some with the old ones
                narrow(own.connection, self.root, filters=filters, rows=memory.rows if memory is not None else None)
                own.filters, own.topics = filters, topics
        except ConfigError as nothing:
            raise Unanswered(str(nothing), recorded=False) from nothing
        except OSError as error:
            raise Unanswered(f"{self.root}: cannot be read ({error.strerror})", recorded=False) from error
        return own.connection


@contextmanager
def limited(connection: duckdb.DuckDBPyConnection, limit_s: float = LIMIT_S) -> Iterator[None]:
    """Give up what a connection does within, after so many seconds.

    Raises:
        Unanswered: it took longer.
    """
    import duckdb  # noqa: PLC0415 - the history is an extra

    cancelled = Timer(limit_s, connection.interrupt)
    cancelled.daemon = True
    cancelled.start()
    try:
        yield
    except (TrustfoldError, duckdb.Error) as error:
        if isinstance(error, duckdb.InterruptException) or isinstance(error.__cause__, duckdb.InterruptException):
            raise Unanswered(
                f"the answer took more than {limit_s:g} s and was given up; choose a shorter time, or one "
                "tool, model or workspace"
            ) from error
        raise
    finally:
        cancelled.cancel()


def _heard(task: asyncio.Task[Found]) -> None:
    """Take note of an error that nobody waits for any more; the next who asks gets it again."""
    if not task.cancelled():
        task.exception()
