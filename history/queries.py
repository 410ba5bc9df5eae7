"""Query runner: runs questions and other queries over the catalogue, and explains errors."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any, cast

import duckdb

from .history_error import HistoryError, unreadable
from .incidents import rank
from .reports import CatalogueQuestion, QuestionAnswer

MOST = 1 << 62  # Limit larger than any answer

_COUNTED = "WITH whole AS MATERIALIZED ({whole}) SELECT *, (SELECT count(*) FROM whole) FROM whole LIMIT $limit"

PAGE = 5000  # Rows fetched at once for answers of any length


def ask(
    connection: duckdb.DuckDBPyConnection,
    question: CatalogueQuestion,
    limit: int,
    arguments: Mapping[str, Any] | None = None,
) -> QuestionAnswer:
    """Answer one question with at most `limit` rows; further rows are counted.

    `arguments`: values of other parameters of its query.

    Raises:
        HistoryError: the files cannot be read.
    """
    given = {"limit": limit, **(arguments or {})}
    whole = question.sql.removesuffix("LIMIT $limit")
    if whole != question.sql and "$limit" not in whole:
        # Rows and count in one query: a second query would double the cost of a full page.
        columns, rows = run(connection, _COUNTED.format(whole=whole), given)
        left_out = rows[0][-1] - len(rows) if rows else 0
        return _answer(question, columns[:-1], [row[:-1] for row in rows], left_out)
    columns, rows = run(connection, question.sql, given)
    left_out = 0
    if len(rows) >= limit or (question.plot and question.plot.kind == "columns" and rows):
        _, ((every,),) = run(
            connection,
            f"SELECT count(*) FROM ({question.sql})",  # noqa: S608 - a built-in query
            {**given, "limit": MOST},
        )
        left_out = every - len(rows)
    return _answer(question, columns, rows, left_out)


def _answer(
    question: CatalogueQuestion, columns: list[str], rows: list[tuple[Any, ...]], left_out: int
) -> QuestionAnswer:
    """Answer of which the columns `all_...` are totals."""
    shown = [place for place, name in enumerate(columns) if not name.startswith("all_")]
    if len(shown) == len(columns):
        return QuestionAnswer(question, columns, rows, left_out)
    totals = (
        {name: value for name, value in zip(columns, rows[0], strict=True) if name.startswith("all_")} if rows else {}
    )
    return QuestionAnswer(
        question,
        [columns[place] for place in shown],
        [tuple(row[place] for place in shown) for row in rows],
        left_out,
        totals,
    )


def run(
    connection: duckdb.DuckDBPyConnection, sql: str, arguments: dict[str, Any] | Sequence[Any] | None = None
) -> tuple[list[str], list[tuple[Any, ...]]]:
    """Run a query; returns its columns and rows.

    Retries once if a file was merged away between planning and reading.

    Raises:
        HistoryError: the query is wrong, or the files cannot be read.
    """
    for last in (False, True):
        try:
            columns, cursor = _begun(connection, sql, arguments)
            return columns, cursor.fetchall() if columns else []
        except duckdb.IOException as error:
            if last:
                raise unreadable(error) from error
        except _FAULTS as error:
            raise _fault(error) from error
    raise AssertionError


def stream(connection: duckdb.DuckDBPyConnection, sql: str) -> tuple[list[str], Iterator[list[tuple[Any, ...]]]]:
    """Run a query; returns its columns and an iterator of pages of rows. The connection is busy until the end.

    Retries once, like `run`, if a file was merged away before the first page.

    Raises:
        HistoryError: the query is wrong, or the files cannot be read.
    """
    pages = _pages(connection, sql)
    return next(pages), cast("Iterator[list[tuple[Any, ...]]]", pages)


def _pages(connection: duckdb.DuckDBPyConnection, sql: str) -> Iterator[list[Any]]:
    """Yield the column names, then the pages."""
    for last in (False, True):
        given = False
        try:
            columns, cursor = _begun(connection, sql)
            page = cursor.fetchmany(PAGE) if columns else []
            given = True
            yield columns
            while page:
                yield page
                page = cursor.fetchmany(PAGE)
        except duckdb.IOException as error:
            if last or given:
                raise unreadable(error) from error
        except _FAULTS as error:
            raise _fault(error) from error
        else:
            return


def _begun(
    connection: duckdb.DuckDBPyConnection, sql: str, arguments: dict[str, Any] | Sequence[Any] | None = None
) -> tuple[list[str], Any]:
    if re.search(r"\bincidents\b", sql):
        rank(connection)
    cursor: Any = connection.execute(sql, arguments)
    if cursor is None or cursor.description is None:  # a comment or an empty statement
        return [], cursor
    return [column[0] for column in cursor.description], cursor


_FAULTS = (duckdb.Error, OverflowError, ValueError)


def _fault(error: Exception) -> HistoryError:
    """HistoryError for an error of a query."""
    if isinstance(error, duckdb.IOException):
        return unreadable(error)
    if isinstance(error, duckdb.CatalogException):
        return HistoryError(f"{error}\n`trustfold sql .tables` lists views and macros")
    if isinstance(error, duckdb.InvalidInputException) and ".parquet" in str(error):
        return unreadable(error)
    if isinstance(error, duckdb.Error):
        return HistoryError(str(error))
    return HistoryError(f"a value in the answer is out of range ({error})")


def parts(connection: duckdb.DuckDBPyConnection, sql: str) -> list[str]:
    """Split a text into statements."""
    try:
        return [statement.query for statement in connection.extract_statements(sql)]
    except duckdb.Error as error:
        raise HistoryError(str(error)) from error


def plain(value: Any) -> Any:
    """A value converted to one that JSON supports."""
    if isinstance(value, datetime):
        aware = value if value.tzinfo else value.replace(tzinfo=UTC)
        return aware.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, (list, tuple)):
        return [plain(one) for one in value]
    if isinstance(value, dict):
        return {str(name): plain(one) for name, one in value.items()}
    if isinstance(value, int) and not -(1 << 63) <= value < 1 << 64:
        return str(value)
    return value if value is None or isinstance(value, (str, int, float, bool)) else str(value)
