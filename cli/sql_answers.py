"""Answers of `trustfold sql` as a table, NDJSON, CSV or Parquet, and its dot commands.

What runs a statement raises HistoryError if it is wrong, or the files cannot be read.
"""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Literal

import orjson

from ..errors import ConfigError
from ..schemas.decision_text import counted
from ..security.private_files import open_private
from ..security.untrusted import visible
from .render import console, data, note

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

Form = Literal["table", "json", "csv", "parquet"]
Write = Callable[[BinaryIO, Sequence[str], Iterable[Sequence[Sequence[Any]]]], None]

SHOWN = 200  # Maximum rows of a table; --json and --csv write all
DONE = ["Success"]  # Columns that DuckDB returns for a statement without an answer, such as SET

# Output format by file name suffix
FORMS: dict[str, Form] = {
    ".csv": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    ".parquet": "parquet",
    ".pq": "parquet",
}


def form_of(file: Path) -> Form:
    """Output format of a file, by the suffix of its name."""
    try:
        return FORMS[file.suffix.lower()]
    except KeyError:
        raise ConfigError(f"{file}: name it {', '.join(FORMS)}, or add --json or --csv") from None


def show(connection: DuckDBPyConnection, statement: str, form: Form) -> None:
    """Run one statement and write its answer to standard output; a table has at most `SHOWN` rows."""
    from ..history.queries import stream

    columns, pages = stream(connection, statement)
    if form != "table":
        WRITERS[form](data(), columns, pages)
        data().flush()
        return
    rows = _first(pages, SHOWN + 1)
    if columns and columns != DONE:
        print_table(columns, rows[:SHOWN])
    if len(rows) > SHOWN:
        note(f"... and {_more(connection, statement, SHOWN)} (--json and --csv have all of them)")


def print_table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Print rows as a table that fits the console."""
    from .history_view import table_of

    console().print(table_of(columns, rows))


def write_file(connection: DuckDBPyConnection, statement: str, form: Form, file: Path) -> None:
    """Run one statement and write its answer into a file, atomically."""
    from ..history.queries import run, stream

    made = file.with_name(f".{file.name}.new")
    try:
        with open_private(made) as out:
            if form == "parquet":
                target = str(made).replace("'", "''")
                run(connection, f"COPY ({_bare(statement)}\n) TO '{target}' (FORMAT parquet)")
            else:
                columns, pages = stream(connection, statement)
                WRITERS[form](out, columns, pages)
        made.replace(file)
    except OSError as error:
        raise ConfigError(f"{file}: cannot be written ({error.strerror})") from error
    finally:
        made.unlink(missing_ok=True)
    note(f"{file} written")


def _write_json(out: BinaryIO, columns: Sequence[str], pages: Iterable[Sequence[Sequence[Any]]]) -> None:
    from .history_view import as_json

    for page in pages:
        out.writelines(orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE) for row in as_json(columns, page))


def _write_csv(out: BinaryIO, columns: Sequence[str], pages: Iterable[Sequence[Sequence[Any]]]) -> None:
    """Write rows as CSV: times and spans as in JSON, lists as JSON text, NULL as an empty field."""
    from ..history.queries import plain as valued

    on_screen = out is data() and sys.stdout.isatty()
    for page in chain([[columns]] if columns else [], pages):
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows([_field(valued(value)) for value in row] for row in page)
        out.write((visible(text.getvalue()) if on_screen else text.getvalue()).encode())


def _field(value: Any) -> Any:
    return orjson.dumps(value).decode() if isinstance(value, (list, dict, bool)) else value


WRITERS: dict[Form, Write] = {"json": _write_json, "csv": _write_csv}


def _first(pages: Iterable[list[tuple[Any, ...]]], most: int) -> list[tuple[Any, ...]]:
    rows: list[tuple[Any, ...]] = []
    for page in pages:
        rows += page
        if len(rows) >= most:
            break
    return rows[:most]


def _more(connection: DuckDBPyConnection, statement: str, shown: int) -> str:
    """Rows beyond those shown, in words; without their number if counting would repeat the statement's effects."""
    from ..history.history_error import HistoryError
    from ..history.queries import run

    try:
        _, ((every,),) = run(connection, f"SELECT count(*) FROM ({_bare(statement)}\n)")  # noqa: S608 - the user's own statement
    except HistoryError:
        return "more rows"
    return counted(every - shown, "more row")


def _bare(statement: str) -> str:
    return statement.rstrip().rstrip(";")


TABLES, COLUMNS, ASK = ".tables", ".columns", ".ask"

LIMIT = 20  # Maximum rows of a question's answer

Answer = tuple[Sequence[str], Sequence[Sequence[Any]], str]


def is_command(text: str) -> bool:
    """True if a text is a dot command, not SQL."""
    return text.startswith(".") and "\n" not in text


def answered(connection: DuckDBPyConnection, text: str) -> Answer:
    """Columns and rows of a dot command's answer, and a note."""
    from ..history.catalogue import relations

    command, *rest = text.rstrip(";").split()
    if command == TABLES and not rest:
        return ("name", "kind", "what it is"), relations(connection), ""
    if command == COLUMNS and len(rest) == 1:
        return ("column", "type", "what it is"), _columns(connection, rest[0]), ""
    if command == ASK and len(rest) <= 1:
        return _asked(connection, rest[0]) if rest else _questions()
    raise ConfigError(f"there is no {text}; there are {TABLES}, {COLUMNS} VIEW and {ASK} [QUESTION]")


def _columns(connection: DuckDBPyConnection, view: str) -> list[tuple[Any, ...]]:
    found = connection.execute(
        "SELECT column_name, data_type, comment FROM duckdb_columns() WHERE table_name = ? AND NOT internal "
        "ORDER BY column_index",
        [view],
    ).fetchall()
    if not found:
        raise ConfigError(
            f"there is no view {view}; {TABLES} lists them, and DESCRIBE FROM {view}(…) a macro's columns"
        )
    return found


def _questions() -> Answer:
    from ..history.reports import QUESTIONS

    return ("question", "in words"), [(question.name, question.title) for question in QUESTIONS], ""


def _asked(connection: DuckDBPyConnection, name: str) -> Answer:
    from ..history.queries import ask
    from ..history.reports import BY_NAME

    if name not in BY_NAME:
        raise ConfigError(f"there is no question {name}; choose from {', '.join(BY_NAME)}")
    answer = ask(connection, BY_NAME[name], LIMIT)
    sql = answer.question.sql.replace("$limit", str(LIMIT))
    return answer.columns, answer.rows, "\n".join(filter(None, (answer.question.reads, f"{sql};")))
