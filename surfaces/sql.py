"""`trustfold sql`: DuckDB over the history."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import orjson

from ..schemas.errors import ConfigError, TrustfoldError
from .history import Chosen, history_options, open_history
from .output import console, data, error_line, note

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

SHOWN = 200
"""Rows shown to people; programs (`--json`) get all."""

TABLES = ".tables"

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
@click.option(
    "--relative", is_flag=True, help="With --save: find the history by its way from FILE, so that both can be moved."
)
def sql(
    *, query: str | None, chosen: Chosen, as_json: bool, print_sql: bool, save: Path | None, relative: bool
) -> None:
    """Run QUERY over the history, or read queries from standard input; on a terminal, ask for them.

    A QUERY may be several statements, or `.tables`: what views and macros there are. `COPY (...) TO 'x.csv'` writes a
    file for you alone.
    The views read the files as they are while recorders write new ones; nothing is locked. `--save catalogue.duckdb`
    makes a file for other tools: `duckdb -readonly catalogue.duckdb`; with `--relative`, opened from its own directory.
    """
    if sum((bool(query), print_sql, save is not None)) > 1:
        raise ConfigError("give one of QUERY, --print and --save")
    if relative and save is None:
        raise ConfigError("--relative is for --save FILE")
    os.umask(0o077)  # DuckDB makes the files of COPY itself
    with open_history(*chosen) as connection:
        from ..history.catalogue import save as save_catalogue
        from ..history.catalogue import statements
        from ..history.column_notes import comments

        notes = list(comments(connection))
        if print_sql:
            for statement in (*statements(chosen.roots, filters=chosen.filters), *notes):
                click.echo(statement.rstrip().rstrip(";") + ";\n")
            return
        if save is not None:
            save_catalogue(chosen.roots, save, filters=chosen.filters, relative=relative)
            there = f"cd {save.absolute().parent} && " if relative else ""
            note(f"{save} written; open it with `{there}duckdb -readonly {save.name if relative else save}`")
            return
        for statement in notes:
            connection.execute(statement)
        if query is not None:
            _show(connection, query, as_json=as_json)
        elif sys.stdin.isatty():
            _shell(connection, as_json=as_json)
        else:
            _show(connection, sys.stdin.read(), as_json=as_json)


def _show(connection: DuckDBPyConnection, query: str, *, as_json: bool) -> None:
    from ..history.asking import parts, run
    from ..history.catalogue import relations

    if query.strip() == TABLES:
        _print(("name", "kind", "what it is"), relations(connection), as_json=as_json)
        return
    statements = parts(connection, query)
    if not statements:
        raise ConfigError(f"there is no query; give one, e.g. 'FROM failures LIMIT 5', or {TABLES}")
    for statement in statements:
        _print(*run(connection, statement), as_json=as_json)


def _print(columns: Sequence[str], rows: Sequence[Sequence[Any]], *, as_json: bool) -> None:
    from .history_view import as_json as objects
    from .history_view import table_of

    if as_json:
        for row in objects(columns, rows):
            data().write(orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE))
        data().flush()
        return
    if columns:
        console().print(table_of(columns, rows[:SHOWN]))
    if len(rows) > SHOWN:
        note(f"... and {len(rows) - SHOWN:,} more rows (--json has all of them)")


def _shell(connection: DuckDBPyConnection, *, as_json: bool) -> None:
    import readline  # noqa: F401 - lines can be edited and come back

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
        if not statement and line.startswith(".") and line.strip() != TABLES:
            error_line(f"there is no {line.strip()}; there are {TABLES} and .quit")
            continue
        statement += f"{line}\n"
        if line.rstrip().endswith(";") or statement.strip() == TABLES:
            try:
                _show(connection, statement, as_json=as_json)
            except TrustfoldError as error:
                error_line(str(error))
            except KeyboardInterrupt:
                error_line("interrupted")
            statement = ""
