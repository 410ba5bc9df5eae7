"""`trustfold report`: every question about the recorded past at once, in the terminal or as one HTML page."""

from __future__ import annotations

from datetime import UTC, datetime

import click

from ..schemas.errors import ConfigError
from ..schemas.private_files import open_private
from .history import MOST_ROWS, Chosen, history_options, open_history, show
from .output import console, note, write_json

ROWS = 10
"""Rows of each table in the terminal."""

HTML_ROWS = 400
"""Rows behind each plot of a page."""


@click.command()
@history_options
@click.option("--html", metavar="FILE", help="Write one self-contained page with plots.")
@click.option("--limit", type=click.IntRange(1, MOST_ROWS), help=f"Rows of each table. [default: {ROWS}]")
@click.option("--json", "as_json", is_flag=True, help="One JSON document: the rows of every question.")
def report(*, chosen: Chosen, html: str | None, limit: int | None, as_json: bool) -> None:
    """Report what happened: failing tools, their failures, recovery, stuck models, loops, nudges, false alarms."""
    with open_history(*chosen) as connection:
        from ..history.page import page
        from ..history.questions import QUESTIONS, ask
        from .history_view import as_json as objects

        rows = limit or (HTML_ROWS if html else ROWS)
        answers = [ask(connection, question, rows) for question in QUESTIONS]
    if as_json:
        write_json({answer.question.name: objects(answer.columns, answer.rows) for answer in answers})
        for answer in answers:
            if answer.left_out:
                note(f"{answer.question.name}: {answer.left_out:,} more rows; --limit gives more")
    if html:
        made = f"made {datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC" + (
            f", {chosen.filters.told()}" if chosen.narrowed else ""
        )
        try:
            with open_private(html) as file:
                file.write(page("What the agents' tools did", made, answers).encode())
        except OSError as error:
            raise ConfigError(f"{html}: cannot be written ({error.strerror})") from error
        note(f"{html} written; open it in a browser")
    if not as_json and not html:
        for answer in answers:
            if answer.rows:
                show(answer)
                console().print()
