"""Commands of `trustfold sql` that begin with a dot: what there is to ask, and the questions of `trustfold history`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..schemas.errors import ConfigError

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

TABLES, COLUMNS, ASK, HELP_COMMAND, QUIT = ".tables", ".columns", ".ask", ".help", ".quit"

COMMANDS = {TABLES: "", COLUMNS: "views", ASK: "questions", HELP_COMMAND: "", QUIT: ""}
"""Commands, and what may follow."""

LIMIT = 20
"""Rows of a question's answer."""

HELP = (
    "SQL, ended with a semicolon, over several lines if you like; Tab completes, Ctrl-C cancels a query, Ctrl-D ends.\n"
    f"{TABLES} lists views and macros, {COLUMNS} VIEW what they hold, {ASK} the questions, {ASK} worse answers one and "
    f"shows its SQL, {HELP_COMMAND} says this again. Try: FROM failures LIMIT 5;"
)

Answer = tuple[Sequence[str], Sequence[Sequence[Any]], str]


def is_command(text: str) -> bool:
    """Whether a text is a command and no SQL."""
    return text.startswith(".") and "\n" not in text


def answered(connection: DuckDBPyConnection, text: str) -> Answer:
    """Columns and rows that answer a command, and a note below them.

    Raises:
        ConfigError: there is no such command, view or question.
    """
    from ..history.catalogue import relations

    command, *rest = text.rstrip(";").split()
    if command == TABLES and not rest:
        return ("name", "kind", "what it is"), relations(connection), ""
    if command == COLUMNS and len(rest) == 1:
        return ("column", "type", "what it is"), _columns(connection, rest[0]), ""
    if command == ASK and len(rest) <= 1:
        return _asked(connection, rest[0]) if rest else _questions()
    if command == HELP_COMMAND:
        return (), (), HELP
    raise ConfigError(
        f"there is no {text}; there are {TABLES}, {COLUMNS} VIEW, {ASK} [QUESTION], {HELP_COMMAND}, {QUIT}"
    )


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
