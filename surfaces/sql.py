"""`trustfold sql`: DuckDB over the history."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click
import orjson

from ..config import Settings
from ..schemas.errors import TrustfoldError
from .history import history_options, open_history
from .output import console, data, error_line, note

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

SHOWN = 200
"""Rows shown to people; programs (`--json`) get all."""

_HELP = (
    "SQL, ended with a semicolon. `.tables` lists views and macros with what they mean, `.quit` ends. "
    "DuckDB also takes `FROM failures LIMIT 5;`"
)


@click.command()
@click.argument("query", required=False)
@history_options
@click.option("--json", "as_json", is_flag=True, help="One row a line, as an object.")
@click.option("--print", "print_sql", is_flag=True, help="Print the catalogue's SQL, for `duckdb -init`.")
@click.option(
    "--save", metavar="FILE", type=click.Path(path_type=Path), help="Write the catalogue as a database file of views."
)
def sql(
    *, query: str | None, root: Path | None, since: str | None, as_json: bool, print_sql: bool, save: Path | None
) -> None:
    """Run QUERY over the history, or read queries from standard input; on a terminal, ask for them.

    The views read the files as they are while recorders write new ones; nothing is locked. `--save catalogue.duckdb`
    makes a file for other tools: `duckdb -readonly catalogue.duckdb`.
    """
    with open_history(root, since) as connection:
        from ..history.catalogue import save as save_catalogue
        from ..history.catalogue import statements

        where = root or Settings.from_env().history
        if print_sql:
            for statement in statements(where):
                click.echo(statement.rstrip().rstrip(";") + ";\n")
        elif save is not None:
            save_catalogue(where, save)
            note(f"{save} written; open it with `duckdb -readonly {save}`")
        elif query:
            _show(connection, query, as_json=as_json)
        elif sys.stdin.isatty():
            _shell(connection, as_json=as_json)
        else:
            _show(connection, sys.stdin.read(), as_json=as_json)


def _show(connection: DuckDBPyConnection, query: str, *, as_json: bool) -> None:
    from ..history.questions import run
    from .history_view import as_json as objects
    from .history_view import table_of

    columns, rows = run(connection, query)
    if as_json:
        for row in objects(columns, rows):
            data().write(orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE))
        data().flush()
        return
    console().print(table_of(columns, rows[:SHOWN]))
    if len(rows) > SHOWN:
        note(f"... and {len(rows) - SHOWN:,} more rows (--json has all of them)")


def _shell(connection: DuckDBPyConnection, *, as_json: bool) -> None:
    import readline  # noqa: F401 - lines can be edited and come back

    from ..history.catalogue import relations
    from .history_view import table_of

    note(_HELP)
    statement = ""
    while True:
        try:
            line = input("   ...> " if statement else "history> ")
        except EOFError:
            return
        except KeyboardInterrupt:
            statement = ""
            continue
        if not statement and line.strip() in {".quit", ".exit"}:
            return
        if not statement and line.strip() == ".tables":
            console().print(table_of(("name", "kind", "what it is"), relations(connection)))
            continue
        statement += f"{line}\n"
        if line.rstrip().endswith(";"):
            try:
                _show(connection, statement, as_json=as_json)
            except TrustfoldError as error:
                error_line(str(error))
            statement = ""
