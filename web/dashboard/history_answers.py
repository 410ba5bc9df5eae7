"""Answers from the recorded history for pages, computed in threads, not on the event loop.

Theory of operation. A query over the files of a long history takes longer than a page may. So the columns that
questions need are kept in memory (`history.column_memory`); while they are loaded for the first time, and where a
history is too long for it, queries read the files. An answer is kept, too, and asked for again it is given at once;
when it is older than the recorder's own delay it is found anew in the background, and the page says as of when it is.
While somebody looks at a long history, what pages ask without filters is found ahead, whenever nobody waits. Queries
run two at a time, one that takes too long is cancelled, and pages that ask for the same wait for one query. Each takes
a free catalogue; filters stand in its lowest views, of which a question replaces those it reads if they have others. A
catalogue takes longer to make than most answers, so those over memory are made as soon as it is loaded.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock, Timer
from typing import TYPE_CHECKING, Any, NamedTuple

from ...errors import ConfigError, TrustfoldError
from ...history.filters import EVERYTHING, HistoryFilters
from ...history.queries import ask
from ...history.reports import CatalogueQuestion, QuestionAnswer

if TYPE_CHECKING:
    import duckdb

    from ...history.column_memory import ColumnMemory

log = logging.getLogger(__name__)

LIMIT_S = 30.0  # Seconds after which a query is cancelled
FRESH_S = 30.0  # Seconds for which an answer counts as fresh: the flush interval of recorders
STALE_S = 600.0  # Seconds after which a cached answer is too old to be used: requests wait for a new one

AT_ONCE = 2
WAITING = 24  # Maximum running and waiting queries; further ones are refused
KEPT, KEPT_ROWS = 256, 200_000  # Maximum cached answers, and their rows
MEMORY = "1GB"  # Memory limit of a query
LOOK_S = 1.0  # Seconds between two checks for new records
LITTLE = 200_000  # Maximum records loaded while a request waits, about a second; more are loaded in the background
AHEAD_S = 300.0  # Age in seconds at which an answer found ahead is found anew; less than `STALE_S`
WATCHED_S = 3600.0  # Seconds after the last question for which answers are found ahead


class QuestionUnanswered(TrustfoldError):
    """The question cannot be answered now: nothing is recorded, or it took too long; the message says what to do."""

    def __init__(self, text: str, *, recorded: bool = True) -> None:
        """Create the error with its reason."""
        super().__init__(text)
        self.recorded = recorded  # True if there is a history


class TimedAnswer(NamedTuple):
    """Answer and its time."""

    answer: QuestionAnswer
    at: datetime


class QuestionRequest(NamedTuple):
    """A question with its filters, the maximum number of rows, and the values of further parameters of its query."""

    filters: HistoryFilters
    question: CatalogueQuestion
    limit: int
    arguments: tuple[tuple[str, Any], ...] = ()


@dataclass
class _LockedCatalogue:
    """Catalogue that one query uses at a time."""

    connection: duckdb.DuckDBPyConnection  # with all views
    of_memory: bool  # True over the tables in memory, False over the files
    topics: frozenset[str]  # names of the directories that its views read
    # filters by name of the view they stand in; without views that no question has read yet
    filters: dict[str, HistoryFilters] = field(default_factory=dict)


class HistoryArchive:
    """Query service for the recorded history of a source, with a cache; for one event loop."""

    def __init__(
        self,
        root: Path | None = None,
        *,
        limit_s: float = LIMIT_S,
        clock: Callable[[], float] = time.monotonic,
        refusal: Callable[[], str] = lambda: "",
    ) -> None:
        """Read the history in a directory, which need not exist yet.

        Args:
            root: directory of Parquet files; None if the source has none.
            limit_s: seconds after which a query is cancelled.
            clock: monotonic seconds.
            refusal: function that returns why the directory must not be read; empty if it may be.
        """
        self.root = root
        self._refusal = refusal
        self._limit_s = limit_s
        self._clock = clock
        self._threads = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="trustfold-history")
        self._kept: OrderedDict[QuestionRequest, tuple[TimedAnswer, float]] = OrderedDict()
        self._asked: dict[QuestionRequest, asyncio.Task[TimedAnswer]] = {}
        self._memory: ColumnMemory | None = None
        self._looked = float("-inf")
        self._loader = ThreadPoolExecutor(1, thread_name_prefix="trustfold-history-memory")
        self._loading: Future[None] | None = None
        self._made: list[duckdb.DuckDBPyConnection] = []
        self._free: list[_LockedCatalogue] = []
        self._running: set[duckdb.DuckDBPyConnection] = set()
        self._lock = Lock()
        self._usual: Callable[[], Iterable[QuestionRequest]] = tuple
        self._ahead: asyncio.Task[None] | None = None
        self._last_asked = float("-inf")

    def find_ahead(self, usual: Callable[[], Iterable[QuestionRequest]]) -> None:
        """Set what is asked most, so that nobody waits for it; it is found ahead for long histories in memory."""
        self._usual = usual

    async def ask(
        self, question: CatalogueQuestion, filters: HistoryFilters = EVERYTHING, limit: int = 50, **arguments: Any
    ) -> TimedAnswer:
        """Answer a question, from the cache if possible.

        Args:
            question: question of the catalogue, or made for a page; its query may use `$limit` and the arguments.
            filters: filters on the history.
            limit: maximum rows.
            arguments: values of further parameters of the query.

        Raises:
            QuestionUnanswered: nothing is recorded, too many wait, or the query took too long.
            HistoryError: the files cannot be read.
        """
        if self.root is None:
            raise QuestionUnanswered("this server has no history", recorded=False)
        if refused := self._refusal():
            raise QuestionUnanswered(refused, recorded=False)
        self._last_asked = self._clock()
        if self._ahead is None or self._ahead.done():
            self._ahead = asyncio.get_running_loop().create_task(self._find_ahead())
        key = QuestionRequest(filters, question, limit, tuple(sorted(arguments.items())))
        kept = self._kept.get(key)
        age = self._clock() - kept[1] if kept is not None else STALE_S
        if kept is not None and age < FRESH_S:
            return kept[0]
        if age >= STALE_S:
            kept = None
        task = self._asked.get(key)
        if task is None:
            if len(self._asked) >= WAITING and kept is None:
                raise QuestionUnanswered("too many questions wait for an answer; try again in a moment")
            if len(self._asked) < WAITING:
                task = self._started(key)
        if kept is not None:
            return kept[0]
        assert task is not None  # noqa: S101 - refused above otherwise
        return await asyncio.shield(task)

    def close(self) -> None:
        """Cancel running queries and close the catalogues; call it once when the server stops."""
        if self._ahead is not None and not self._ahead.done():
            self._ahead.cancel()
        with self._lock:
            for connection in self._running:
                connection.interrupt()
            if self._memory is not None:
                self._memory.interrupt()
        self._threads.shutdown(cancel_futures=True)
        self._loader.shutdown(cancel_futures=True)
        self._free.clear()
        for connection in self._made:
            connection.close()
        if self._memory is not None:
            self._memory.close()

    async def _find_ahead(self) -> None:
        """Find the usual answers one at a time, and again when they are old, while somebody asks now and then."""
        tried: dict[QuestionRequest, float] = {}  # also of answers that cannot be found
        while self._clock() - self._last_asked < WATCHED_S:
            await asyncio.sleep(LOOK_S)
            if self._memory is None or not self._memory.ready or self._memory.records <= LITTLE:
                continue
            tried = {wanted: tried.get(wanted, float("-inf")) for wanted in self._usual()}
            for wanted, last in tried.items():
                kept = self._kept.get(wanted)
                if self._clock() - max(last, kept[1] if kept else last) >= AHEAD_S:
                    while self._asked:
                        await asyncio.wait(self._asked.values())  # whoever waits comes first
                    tried[wanted] = self._clock()
                    with suppress(TrustfoldError):
                        await self._started(wanted)

    def _started(self, key: QuestionRequest) -> asyncio.Task[TimedAnswer]:
        """Task that finds an answer, for all who ask for it."""
        task = asyncio.get_running_loop().create_task(self._find(key))
        task.add_done_callback(_heard)
        self._asked[key] = task
        return task

    async def _find(self, key: QuestionRequest) -> TimedAnswer:
        try:
            answer = await asyncio.get_running_loop().run_in_executor(self._threads, self._query, key)
        finally:
            del self._asked[key]
        found = TimedAnswer(answer, datetime.now(UTC))
        self._kept[key] = found, self._clock()
        self._kept.move_to_end(key)
        rows = sum(len(kept.answer.rows) for kept, _ in self._kept.values())
        while len(self._kept) > KEPT or (rows > KEPT_ROWS and len(self._kept) > 1):
            _, (dropped, _) = self._kept.popitem(last=False)
            rows -= len(dropped.answer.rows)
        return found

    def _query(self, key: QuestionRequest) -> QuestionAnswer:
        """Run the query in a thread."""
        used = self._taken(key)
        with self._lock:
            self._running.add(used.connection)
        try:
            with limited(used.connection, self._limit_s):
                return ask(used.connection, key.question, key.limit, dict(key.arguments))
        finally:
            with self._lock:
                self._running.discard(used.connection)
                self._free.append(used)

    def _up_to_date(self) -> ColumnMemory | None:
        """Up-to-date in-memory columns; None while they are being loaded, or if they are not used."""
        from ...history.column_memory import ColumnMemory  # noqa: PLC0415 - the history is an extra

        assert self.root is not None  # noqa: S101 - refused before
        with self._lock:
            if self._memory is None:
                self._memory = ColumnMemory(self.root)
            due = self._clock() - self._looked >= LOOK_S
            if due:
                self._looked = self._clock()
            free = self._loading is None or self._loading.done()
            if due and free and self._memory.waiting() > LITTLE:
                self._loading = self._loader.submit(self._load_and_prepare, self._memory)
                free = False
        if due and free:
            self._load(self._memory)
        return self._memory if self._memory.ready else None

    def _load(self, memory: ColumnMemory) -> None:
        try:
            memory.refresh()
        except TrustfoldError as error:
            log.warning("the history is read from its files: %s", error)

    def _load_and_prepare(self, memory: ColumnMemory) -> None:
        """Load, and make the catalogues over memory that queries will use."""
        self._load(memory)
        with self._lock:
            known = sum(one.of_memory for one in self._free)
        if memory.ready and not known:
            try:
                made = [self._catalogue(memory) for _ in range(AT_ONCE)]
            except (TrustfoldError, OSError) as error:
                log.warning("the history cannot be asked yet: %s", error)
            else:
                with self._lock:
                    self._free += made

    def _taken(self, key: QuestionRequest) -> _LockedCatalogue:
        """Catalogue that no other query uses, with the filters applied in the views that the question reads.

        Raises:
            QuestionUnanswered: nothing is recorded.
            HistoryError: the files cannot be read.
        """
        try:
            memory = self._up_to_date()
            with self._lock:
                free = [one for one in self._free if one.of_memory == (memory is not None)]
                if free:
                    self._free.remove(free[-1])
            used = free[-1] if free else self._catalogue(memory)
            try:
                self._narrow(used, memory, key)
            except BaseException:
                with self._lock:
                    self._free.append(used)
                raise
        except ConfigError as nothing:
            raise QuestionUnanswered(str(nothing), recorded=False) from nothing
        except OSError as error:
            raise QuestionUnanswered(f"{self.root}: cannot be read ({error.strerror})", recorded=False) from error
        return used

    def _catalogue(self, memory: ColumnMemory | None) -> _LockedCatalogue:
        """New catalogue over the tables in memory, or over the files."""
        from ...history.catalogue import connect  # noqa: PLC0415 - the history is an extra

        assert self.root is not None  # noqa: S101 - refused before
        topics = self._topics()
        if memory is not None:
            made = memory.connection()
        else:
            made = connect(self.root, threads=2)
            made.execute(f"SET memory_limit = '{MEMORY}'")
        self._made.append(made)
        return _LockedCatalogue(made, memory is not None, topics)

    def _narrow(self, used: _LockedCatalogue, memory: ColumnMemory | None, key: QuestionRequest) -> None:
        """Apply filters in the views that a question reads."""
        from ...history.catalogue import filtered_views, narrow  # noqa: PLC0415 - the history is an extra

        assert self.root is not None  # noqa: S101 - refused before
        topics = self._topics()
        if topics != used.topics:
            used.topics, used.filters = topics, {}
        views = {view for view in filtered_views(key.question.sql) if used.filters.get(view) != key.filters}
        if views:
            rows = memory.rows if memory is not None else None
            narrow(used.connection, self.root, filters=key.filters, rows=rows, views=views)
            used.filters |= dict.fromkeys(views, key.filters)

    def _topics(self) -> frozenset[str]:
        assert self.root is not None  # noqa: S101 - refused before
        return frozenset(one.name for one in self.root.iterdir()) if self.root.is_dir() else frozenset()


@contextmanager
def limited(connection: duckdb.DuckDBPyConnection, limit_s: float = LIMIT_S) -> Iterator[None]:
    """Cancel the queries of the block after a time limit."""
    import duckdb  # noqa: PLC0415 - the history is an extra

    cancelled = Timer(limit_s, connection.interrupt)
    cancelled.daemon = True
    cancelled.start()
    try:
        yield
    except (TrustfoldError, duckdb.Error) as error:
        if isinstance(error, duckdb.InterruptException) or isinstance(error.__cause__, duckdb.InterruptException):
            raise QuestionUnanswered(
                f"the answer took more than {limit_s:g} s and was cancelled; choose a shorter time, or one "
                "tool, model or workspace"
            ) from error
        raise
    finally:
        cancelled.cancel()


def _heard(task: asyncio.Task[TimedAnswer]) -> None:
    """Retrieve an error that no request waits for any more; the next request gets it again."""
    if not task.cancelled():
        task.exception()
