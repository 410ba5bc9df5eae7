"""Asking: runs questions and other queries over the catalogue, and says why one cannot be answered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import duckdb

from .errors import HistoryError, unreadable
from .questions import Answer, Question

MOST = 1 << 62
"""A limit that no answer reaches."""


def ask(
    connection: duckdb.DuckDBPyConnection, question: Question, limit: int, arguments: Mapping[str, Any] | None = None
) -> Answer:
    """The answer to one question, at most `limit` rows; what is left out is counted.

    Args:
        connection: of a catalogue.
        question: to be answered.
        limit: rows at most.
        arguments: values of further parameters that its query names.

    Raises:
        HistoryError: the files cannot be read.
    """
    columns, rows = run(connection, question.sql, {"limit": limit, **(arguments or {})})
    left_out = 0
    if len(rows) >= limit or (question.plot and question.plot.kind == "columns" and rows):
        _, ((every,),) = run(
            connection,
            f"SELECT count(*) FROM ({question.sql})",  # noqa: S608 - a query of ours
            {"limit": MOST, **(arguments or {})},
        )
        left_out = every - len(rows)
    return Answer(question, columns, rows, left_out)


def run(
    connection: duckdb.DuckDBPyConnection, sql: str, arguments: dict[str, Any] | Sequence[Any] | None = None
) -> tuple[list[str], list[tuple[Any, ...]]]:
    """Columns and rows of a query.

    A file that was merged away between planning and reading is asked for again, once.

    Raises:
        HistoryError: the query is wrong, or the files cannot be read.
    """
    for last in (False, True):
        try:
            cursor: Any = connection.execute(sql, arguments)
            if cursor is None or cursor.description is None:  # a comment, or nothing at all
                return [], []
            return [column[0] for column in cursor.description], cursor.fetchall()
        except duckdb.IOException as error:
            if last:
                raise unreadable(error) from error
        except duckdb.CatalogException as error:
            raise HistoryError(f"{error}\n`trustfold sql .tables` lists what there is") from error
        except duckdb.InvalidInputException as error:
            raise (unreadable(error) if ".parquet" in str(error) else HistoryError(str(error))) from error
        except duckdb.Error as error:
            raise HistoryError(str(error)) from error
        except (OverflowError, ValueError) as error:
            raise HistoryError(f"a value in the answer is beyond what can be shown ({error})") from error
    raise AssertionError


def parts(connection: duckdb.DuckDBPyConnection, sql: str) -> list[str]:
    """The statements of a text, one after the other.

    Raises:
        HistoryError: it is no SQL.
    """
    try:
        return [statement.query for statement in connection.extract_statements(sql)]
    except duckdb.Error as error:
        raise HistoryError(str(error)) from error
