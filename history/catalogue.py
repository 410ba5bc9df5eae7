"""The catalogue: a DuckDB connection in which the history's files are views and macros, each with a comment.

Nothing is copied or locked: files are read while recorders write new ones. A query sees the files that exist when it
begins. A query lists them twice, once to read them and once to know which were merged into
others; so that a merge between the two does no harm, a merged file counts only when it is half a minute old, and until then
what it was made from counts.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

import duckdb

from ..errors import ConfigError
from .event_rows import WHOLE
from .files import YOUNG_S
from .filters import EVERYTHING, KEYED, HistoryFilters, timestamp
from .history_error import HistoryError, unreadable
from .incidents import rank
from .locations import NAMED, address_of, opened, pattern_of, quoted, surveyed
from .older_calls import older_calls
from .parquet import COLUMNS, READ_COLUMNS, rows_of_files

STORAGE = "v1.0.0"  # Oldest DuckDB that can open a saved catalogue: BI tools bring their own, often an older one

# Columns of events and of records of calls that are not recorded, and their types: NULL in files
ADDED = {"noted": "BOOLEAN"}

# Topic of the records of calls, with which those of older files stand that are in the rows of events
OF_CALLS = "outcomes"


class RowQueries(NamedTuple):
    """SQL queries used in place of the files of a history."""

    of: Mapping[str, str]  # query of all rows by topic
    # query of at least the events that decisions name as their causes: `id`, `tool_name`, `model`, `session_id`
    causes: str
    times: str  # query of the times of all events


class CatalogueRelation(NamedTuple):
    """A view or a macro of the catalogue."""

    name: str
    kind: str
    comment: str


def connect(
    roots: Path | Sequence[Path],
    *,
    filters: HistoryFilters = EVERYTHING,
    threads: int | None = None,
    query: str | None = None,
) -> duckdb.DuckDBPyConnection:
    """Open an in-memory database over the files of one or several histories, read as one.

    With `query` it has only the views and macros that this query reads, without comments: a third of the time.

    A record that is in several histories, by its id, counts in the first. A history is in a directory, or in an object
    store that DuckDB's extension httpfs reads (`s3://BUCKET/…`).

    Raises:
        ConfigError: nothing is recorded there.
        HistoryError: the files cannot be read.
    """
    connection = duckdb.connect()
    # An unknown view must be an error; DuckDB would otherwise look for a Python variable of that name.
    connection.execute("SET python_enable_replacements = false")
    no_bar(connection)
    if threads is not None:
        connection.execute(f"SET threads = {threads}")
    connection.execute("SET parquet_metadata_cache = true")  # many views over files that are never written again
    install(connection, roots, filters=filters, query=query)
    return connection


def no_bar(connection: duckdb.DuckDBPyConnection) -> None:
    """Turn DuckDB's progress bar off: it would be mixed with the answers."""
    with suppress(duckdb.Error):  # a notebook that cannot draw one refuses the setting
        connection.execute("SET enable_progress_bar = false")


def install(
    connection: duckdb.DuckDBPyConnection,
    roots: Path | Sequence[Path],
    *,
    filters: HistoryFilters = EVERYTHING,
    beside: Path | None = None,
    rows: RowQueries | None = None,
    query: str | None = None,
) -> None:
    """Create all views and macros in a connection, or those that a query reads.

    As in `connect`; with `beside`, paths in views are relative to that directory; `rows` stand in place of the files.

    Raises:
        ConfigError: nothing is recorded there.
        HistoryError: the files cannot be read.
    """
    opened(connection, _listed(roots))
    try:
        for statement in statements(roots, filters=filters, beside=beside, rows=rows, query=query):
            connection.execute(statement)
    except duckdb.Error as error:
        raise unreadable(error, _listed(roots)[0]) from error


def narrow(
    connection: duckdb.DuckDBPyConnection,
    roots: Path | Sequence[Path],
    *,
    filters: HistoryFilters,
    rows: RowQueries | None = None,
    views: Collection[str] | None = None,
) -> None:
    """Replace the filters of a catalogue, and add newly recorded topics; much faster than a new catalogue.

    The replaced views, all or those of `views` (as `filtered_views` names them), have no comments; if one fails, none
    is replaced. `rows` as in `install`.

    Raises:
        ConfigError: nothing is recorded there.
        HistoryError: the files cannot be read.
    """
    try:
        with transaction(connection):
            for view, query, _ in _narrowing(_found(roots), filters, rows):
                if views is None or view in views:
                    connection.execute(f"CREATE OR REPLACE VIEW {view} AS {query}")
    except duckdb.Error as error:
        raise unreadable(error, _listed(roots)[0]) from error


def filtered_views(sql: str) -> frozenset[str]:
    """Names of the views with filters that a query reads, itself or through other views and macros; perhaps a few more."""
    return frozenset(word for word in _read_by(sql) if word.startswith(("recorded_", "carried_")))


@cache
def _read_by(sql: str) -> frozenset[str]:
    """Words of a query and of the views and macros that it reads, itself or through others."""
    found: set[str] = set()
    left = {sql}
    while left:
        words = set(re.findall(r"\w+", left.pop())) - found
        found |= words
        left |= {_definitions()[word] for word in words & _definitions().keys()}
    return frozenset(found)


@cache
def _definitions() -> Mapping[str, str]:
    """Statement that creates each view and macro over the filtered views, in order, without its comments."""
    _, *parts = re.split(r"(CREATE OR REPLACE (?:VIEW|MACRO) (\w+))", "\n".join(_sql_of("0[1-9]")))
    return {
        name: head + text.partition("COMMENT ON")[0]
        for head, name, text in zip(parts[::3], parts[1::3], parts[2::3], strict=True)
    }


@contextmanager
def transaction(connection: duckdb.DuckDBPyConnection) -> Iterator[None]:
    """Run the statements of the block as one transaction; rolled back if one fails."""
    connection.begin()
    try:
        yield
    except BaseException:
        connection.rollback()
        raise
    connection.commit()


def save(
    roots: Path | Sequence[Path], target: Path, *, filters: HistoryFilters = EVERYTHING, relative: bool = False
) -> None:
    """Write the catalogue as a database file of views, for other tools to open read-only; it holds no rows.

    With `relative` the paths of the histories are relative to its directory; it must be opened from there.

    Raises:
        ConfigError: nothing is recorded there, or the target is something else than a catalogue.
        HistoryError: the file cannot be written.
    """
    if target.exists() and not _is_catalogue(target):
        raise ConfigError(f"{target}: exists already and is not a catalogue; name another file, or remove it")
    made = target.with_name(f".{target.name}.new")
    made.unlink(missing_ok=True)
    try:
        with duckdb.connect(str(made), config={"storage_compatibility_version": STORAGE}) as connection:
            if relative:
                connection.execute(f"SET file_search_path = '{quoted(str(target.absolute().parent))}'")
            install(connection, roots, filters=filters, beside=target.absolute().parent if relative else None)
            rank(connection)
            for statement in comments(connection):
                connection.execute(statement)
        made.rename(target)
    except (OSError, duckdb.Error) as error:
        raise HistoryError(f"{target}: cannot be written ({str(error).partition(chr(10))[0]})") from error
    finally:
        made.unlink(missing_ok=True)


def _is_catalogue(file: Path) -> bool:
    """True if a file is a catalogue without tables, so replacing it loses no data."""
    try:
        with duckdb.connect(str(file), read_only=True) as connection:
            found = connection.execute(
                "SELECT count(*) FILTER (view_name = 'recorded_events') FROM duckdb_views() "
                "HAVING NOT EXISTS (FROM duckdb_tables())"
            ).fetchone()
    except duckdb.Error:
        return False
    return found is not None and found[0] > 0


def statements(
    roots: Path | Sequence[Path],
    *,
    filters: HistoryFilters = EVERYTHING,
    beside: Path | None = None,
    rows: RowQueries | None = None,
    query: str | None = None,
) -> Iterator[str]:
    """SQL that creates the catalogue, or what a query reads of it, for DuckDB 2 or newer.

    Raises:
        ConfigError: nothing is recorded in one of the places.
        HistoryError: an object store cannot be read.
    """
    found = _found(roots, beside)
    if any(map(address_of, _listed(roots))):
        yield "LOAD httpfs"
    yield "SET TimeZone = 'UTC'"
    yield _FILES.format(
        patterns=", ".join(f"'{place.pattern}/' || pattern || '/date=*/{NAMED}'" for place in found), young=YOUNG_S
    )
    yield (
        "COMMENT ON MACRO TABLE files_of IS 'Files of a topic (or of all: *) by what their names say; hidden: its records are "
        "counted from another file'"
    )
    sources = " UNION ALL ".join(f"SELECT '{quoted(place.source)}' AS source" for place in found)
    yield f"CREATE OR REPLACE VIEW recorded_from AS {sources}"
    yield "COMMENT ON VIEW recorded_from IS 'Where the records come from: a store, a Kafka, files'"
    yield from _sql_of("00")
    read = None if query is None else _read_by(query)
    # DuckDB binds a view, through all that it reads, when it is created: much faster while there are no files.
    for view, selection, _ in _narrowing((), EVERYTHING, None):
        if read is None or view in read:
            yield f"CREATE OR REPLACE VIEW {view} AS {selection}"
    yield from (
        _sql_of("0[1-9]") if read is None else (statement for name, statement in _definitions().items() if name in read)
    )
    for view, selection, comment in _narrowing(found, filters, rows):
        if read is None or view in read:
            yield f"CREATE OR REPLACE VIEW {view} AS {selection}"
            yield f"COMMENT ON VIEW {view} IS '{comment}'"


class _HistoryPlace(NamedTuple):
    """A history: SQL pattern of its files, its topics, and the source of its records."""

    pattern: str
    topics: set[str]
    source: str


def _found(roots: Path | Sequence[Path], beside: Path | None = None) -> list[_HistoryPlace]:
    return [_HistoryPlace(pattern_of(root, beside), *surveyed(root)) for root in _listed(roots)]


def _narrowing(
    found: Sequence[_HistoryPlace], filters: HistoryFilters, rows: RowQueries | None
) -> Iterator[tuple[str, str, str]]:
    """Name, query and comment of the views of recorded topics, which apply the filters; all others are built on them."""
    if rows:
        every = rows.of
    else:
        places = {topic: [place.pattern for place in found if topic in place.topics] for topic in COLUMNS}
        every = {topic: _rows(topic, places[topic]) for topic in COLUMNS}
        if places["events"]:
            older = older_calls(every["events"], every["events"])
            every[OF_CALLS] = f"{every[OF_CALLS]} UNION ALL BY NAME {older}"
    causes = rows.causes if rows else every["events"]
    for topic, own in every.items():
        conditions = filters.conditions(topic, own, causes)
        query = f"FROM ({own}) WHERE {' AND '.join(conditions)}" if conditions else own
        comment = f"Records of {topic} as they were recorded, repeated ones too"
        yield f"recorded_{topic.replace('-', '_')}", query, comment
    for topic in KEYED:
        comment = f"Transitions of {topic} before --since, of keys which the other filters let pass"
        yield f"carried_{topic}", filters.carried(topic, every[topic], causes), comment
    unnamed = filters._replace(tools=(), models=(), sessions=())
    heard = unnamed.conditions("events", every["events"], causes)
    query = f"FROM ({every['events']}) WHERE {' AND '.join(['fault IS NULL', *heard])}"
    yield (
        "recorded_heard",
        query,
        "Events that the filters of time and workspace let pass, whatever their tool, model or session",
    )
    start = timestamp(filters.since) if filters.since else "NULL::TIMESTAMP"
    yield (
        "recorded_since",
        f"SELECT {start} AS since, {filters != unnamed} AS narrowed",
        "Where the filtered time begins; NULL: with the first record",
    )
    times = rows.times if rows else _times([place.pattern for place in found if "events" in place.topics])
    first = f"SELECT min(time) AS first FROM ({times})"  # noqa: S608 - paths are quoted
    yield "recorded_first", first, "Time of the first recorded event, whatever is filtered"
    latest = f"(SELECT least(max(time), now()::TIMESTAMP) FROM ({times}))"  # noqa: S608 - paths are quoted
    until = timestamp(filters.until) if filters.until else latest
    comment = "Where the present is: at --until, else at the last recorded event, whatever is filtered"
    yield "recorded_until", f"SELECT {until} AS until", comment


def _listed(roots: Path | Sequence[Path]) -> list[Path]:
    return [roots] if isinstance(roots, Path) else list(dict.fromkeys(roots))


def _rows(topic: str, places: Sequence[str]) -> str:
    """Query of all rows of a topic; a record in several histories is taken from the first."""
    named = READ_COLUMNS[topic] | (ADDED if topic in {"events", OF_CALLS} else {})
    several = len(places) > 1
    files = [
        f"SELECT * EXCLUDE (filename){f', {number} AS history' if several else ''} "  # noqa: S608 - paths are quoted
        f"FROM read_parquet('{place}/{topic}/date=*/{NAMED}', "
        "union_by_name = true, hive_partitioning = true, hive_types = {'date': 'DATE'}, filename = true) "
        f"WHERE filename NOT IN (SELECT file FROM files_of('{topic}') WHERE hidden)"
        for number, place in enumerate(places)
    ]
    query = rows_of_files(named | {"date": "DATE"} | ({"history": "INTEGER"} if several else {}), *files)
    if topic == "events":
        query = f"SELECT * REPLACE ({WHOLE} AS record) FROM ({query})"  # noqa: S608 - our own words
    if not several:
        return query
    identity = "coalesce(id, cause)" if topic == OF_CALLS else "id"
    first = f"QUALIFY {identity} IS NULL OR history = min(history) OVER (PARTITION BY {identity})"
    return f"SELECT * EXCLUDE (history) FROM ({query}) {first}"  # noqa: S608 - paths are quoted


def _times(places: Sequence[str]) -> str:
    """Query of the times of all events; records in two files may be counted twice."""
    if not places:
        return "SELECT NULL::TIMESTAMP AS time"
    patterns = ", ".join(f"'{place}/events/date=*/{NAMED}'" for place in places)
    return f"SELECT make_timestamp(epoch_us(time)) AS time FROM read_parquet([{patterns}], union_by_name = true)"  # noqa: S608


def comments(connection: duckdb.DuckDBPyConnection) -> Iterator[str]:
    """Statements that comment every column of a catalogue's views, but those that have another comment already.

    Comments stand in `sql/column_comments.txt`: one for each column name, or for `view.column`. Only views that have a comment are treated as the catalogue's. The statements take a third of the time of the views,
    so only what may show the comments runs them.
    """
    columns = connection.execute(
        "SELECT table_name, column_name, comment FROM duckdb_columns() WHERE NOT internal AND (schema_oid, table_name) "
        "IN (SELECT (schema_oid, view_name) FROM duckdb_views() "
        "WHERE comment IS NOT NULL AND schema_name = current_schema())"
    ).fetchall()
    lines = files(__package__).joinpath("sql", "column_comments.txt").read_text(encoding="utf-8").splitlines()
    notes = dict(line.split(": ", 1) for line in lines)
    for view, column, comment in columns:
        note = notes.get(f"{view}.{column}") or notes.get(column)
        if note and comment in {None, note}:
            yield f"""COMMENT ON COLUMN "{view}"."{column}" IS '{quoted(note)}'"""


def _sql_of(numbers: str) -> Iterator[str]:
    """SQL of the numbered files, in order."""
    for file in sorted(files(__package__).joinpath("sql").iterdir(), key=lambda file: file.name):
        if re.match(numbers, file.name):
            yield file.read_text(encoding="utf-8")


_FILES = """
CREATE OR REPLACE MACRO files_of(pattern) AS TABLE
WITH listed AS (
    SELECT filename AS file, regexp_extract(filename, '(.*)/[^/]+/date=[^/]+/[^/]+$', 1) AS history, now() - last_modified < INTERVAL {young} SECOND AS young,
           regexp_extract(filename, '.*/([^/]+)/date=([0-9-]+)/([0-9]+)-([0-9]+)-([0-9]+)[.]parquet$',
                          ['topic', 'day', 'partition', 'first', 'last']) AS parts
    FROM read_blob([{patterns}])
), named AS (
    SELECT file, history, young, parts.topic AS topic, parts.day::DATE AS day, parts."partition"::INTEGER AS "partition",
           parts.first::BIGINT AS first, parts.last::BIGINT AS last
    FROM listed WHERE parts.topic <> ''
)
SELECT * EXCLUDE (young),
       coalesce(max(last) FILTER (NOT young) OVER before >= last, false)
       OR (young AND coalesce(lead(last) OVER place <= last, false)) AS hidden
FROM named
WINDOW place AS (PARTITION BY history, topic, "partition" ORDER BY first, last DESC, file),
       before AS (PARTITION BY history, topic, "partition" ORDER BY first, last DESC, file
                  ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
"""


def relations(connection: duckdb.DuckDBPyConnection) -> list[CatalogueRelation]:
    """List views and macros of the catalogue with their comments."""
    rows = connection.execute(
        "SELECT view_name, 'view', comment FROM duckdb_views() WHERE NOT internal "
        "UNION ALL SELECT function_name || '(' || array_to_string(parameters, ', ') || ')', "
        "CASE function_type WHEN 'macro' THEN 'function' ELSE 'macro' END, comment "
        "FROM duckdb_functions() WHERE NOT internal AND function_type LIKE '%macro' ORDER BY 2 DESC, 1"
    ).fetchall()
    return [CatalogueRelation(name, kind, comment or "") for name, kind, comment in rows]
