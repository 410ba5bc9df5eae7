"""`trustfold sql`: DuckDB queries over the history."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import click

from ..errors import ConfigError
from .history import HistoryChoice, history_options, open_history
from .options import json_option
from .render import data, note, note_any
from .sql_answers import TABLES, WRITERS, Form, answered, form_of, is_command, print_table, show, write_file

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

# SQL shells in order of preference, and the option with which each opens a file without writing to it
SHELLS = {"harlequin": "--read-only", "duckdb": "-readonly"}


@click.command()
@click.argument("query", required=False)
@history_options
@json_option("Print a JSON object per row, one per line.")
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV with a header.")
@click.option(
    "--output",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write all rows into FILE: .parquet, .csv, .json (one row per line).",
)
@click.option("--print", "print_sql", is_flag=True, help="Print the catalogue's SQL, for `duckdb -init`.")
@click.option(
    "--save", metavar="FILE", type=click.Path(path_type=Path), help="Write the catalogue as a database file of views."
)
@click.option("--relative", is_flag=True, help="With --save: store paths relative to FILE, so that both can be moved.")
def sql(
    *,
    query: str | None,
    chosen: HistoryChoice,
    as_json: bool,
    as_csv: bool,
    output: Path | None,
    print_sql: bool,
    save: Path | None,
    relative: bool,
) -> None:
    """Run QUERY over the history, or read queries from standard input; on a terminal, start an SQL shell.

    A QUERY may be several statements, or `.tables` (lists views and macros), or `.columns VIEW` (lists its columns), or
    `.ask` (lists the questions), or `.ask QUESTION` (answers one, with its SQL).
    `--output x.parquet` and `COPY (...) TO 'x.csv'` write files only you can read. The shell is Harlequin's or
    DuckDB's, whichever is installed, with the views of the history.
    Recorders may write during a query; nothing is locked. `--save catalogue.duckdb`
    makes a file for other tools: `duckdb -readonly catalogue.duckdb`; with `--relative`, opened from its own directory.
    """
    if sum((bool(query), print_sql, save is not None)) > 1:
        raise ConfigError("give only one of QUERY, --print and --save")
    if relative and save is None:
        raise ConfigError("--relative needs --save FILE")
    if as_json and as_csv:
        raise ConfigError("give only one of --json and --csv")
    form: Form = "json" if as_json else "csv" if as_csv else form_of(output) if output else "table"
    os.umask(0o077)  # for the files that DuckDB creates by COPY
    typed = query is None and sys.stdin.isatty() and sys.stdout.isatty() and form == "table"
    text = query or ""
    if query is None and not (typed or print_sql or save is not None):
        text = sys.stdin.read()
    with open_history(*chosen, query=text) as connection:
        from ..history.catalogue import comments, install, statements
        from ..history.catalogue import save as save_catalogue

        if save is not None:
            save_catalogue(chosen.roots, save, filters=chosen.filters, relative=relative)
            there = f"cd {save.absolute().parent} && " if relative else ""
            note(f"{save} written; open it with `{there}duckdb -readonly {save.name if relative else save}`")
            return
        if typed:
            sys.exit(_shell(chosen))
        if not _reads_views_alone(connection, text):
            install(connection, chosen.roots, filters=chosen.filters)
            notes = list(comments(connection))
            if print_sql:
                for statement in (*statements(chosen.roots, filters=chosen.filters), *notes):
                    click.echo(statement.rstrip().rstrip(";") + ";\n")
                return
            for statement in notes:
                connection.execute(statement)
        _answer(connection, text, form, output)


def _reads_views_alone(connection: DuckDBPyConnection, text: str) -> bool:
    """True if a text is one query of views that exist here, so that it needs no other and shows no comment."""
    import duckdb

    if re.search("comment|duckdb_|information_schema", text, re.IGNORECASE):
        return False
    with duckdb.connect() as empty:
        try:
            read = empty.get_table_names(text)
        except duckdb.Error:
            return False
    views = connection.execute("SELECT view_name FROM duckdb_views() WHERE NOT internal").fetchall()
    return bool(read) and read <= {name for (name,) in views}


def _shell(chosen: HistoryChoice) -> int:
    """Run an installed SQL shell on a temporary catalogue; returns its exit code."""
    from ..history.catalogue import save

    program = next((name for name in SHELLS if shutil.which(name)), None)
    if program is None:
        raise ConfigError(
            "there is no QUERY and no SQL shell: `pip install harlequin`, or install DuckDB's own "
            f"(https://duckdb.org/docs/installation); or give a QUERY, e.g. 'FROM failures LIMIT 5' or {TABLES}"
        )
    with TemporaryDirectory(prefix="trustfold-") as folder:
        file = Path(folder) / "history.duckdb"
        save(chosen.roots, file, filters=chosen.filters)
        note(f"{program} opens the views of the history; `trustfold sql {TABLES}` explains them")
        before = signal.signal(signal.SIGINT, lambda *_: None)  # Ctrl-C is the shell's, where it cancels a query
        try:
            return subprocess.run([program, SHELLS[program], str(file)], check=False).returncode  # noqa: S603 - as chosen above
        finally:
            signal.signal(signal.SIGINT, before)


def _answer(connection: DuckDBPyConnection, query: str, form: Form, output: Path | None) -> None:
    """Run the statements of a text in order; only the last answer is written into a file."""
    from ..history.queries import parts, run

    if is_command(query.strip()):
        columns, rows, more = answered(connection, query.strip())
        if form == "table":
            print_table(columns, rows)
        else:
            WRITERS[form](data(), columns, [rows])
            data().flush()
        note_any(more)
        return
    statements = parts(connection, query)
    if not statements:
        raise ConfigError(f"there is no query; give one, e.g. 'FROM failures LIMIT 5', or {TABLES}")
    for statement in statements[:-1] if output else statements:
        if output:
            run(connection, statement)
        else:
            show(connection, statement, form)
    if output:
        write_file(connection, statements[-1], form, output)
