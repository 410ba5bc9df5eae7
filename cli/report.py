"""`trustfold report`: answers to all history questions, in the terminal or as one HTML page."""

from __future__ import annotations

import os
import tempfile
import webbrowser
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..config import EnvironmentSettings
from ..schemas.decision_text import counted
from .history import MOST_ROWS, HistoryChoice, history_options, open_history, show
from .options import json_option
from .render import console, note, write_json, write_output

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

    from ..history.reports import CatalogueQuestion, QuestionAnswer

ROWS = 10  # Rows of each table in the terminal
HTML_ROWS = 400  # Rows used for each plot of a page
PERIOD = timedelta(days=7)  # Default period of a page without `--since`: the last recorded days

TITLE = "What the agents' tools did in {project}, {begin:%Y-%m-%d} to {end:%Y-%m-%d}"


@click.command()
@history_options
@click.option("--html", metavar="FILE", help="Write one self-contained page: numbers, findings by importance, plots.")
@click.option(
    "--open", "opened", is_flag=True, help="Show that page in a browser; without --html it is a temporary file."
)
@click.option("--limit", type=click.IntRange(1, MOST_ROWS), help=f"Rows of each table. [default: {ROWS}]")
@json_option("One JSON document: the rows of every question.")
def report(*, chosen: HistoryChoice, html: str | None, opened: bool, limit: int | None, as_json: bool) -> None:
    """Report on tools that fail, their failures, recovery, stuck models, loops, nudges, false alarms.

    The page compares the time since --since (default: the last 7 days) with the same length before it.
    """
    from ..history.reports import QUESTIONS
    from .history_view import as_json as objects

    page = ""
    with open_history(*chosen) as connection:
        if html or opened:
            answers, page = _page(connection, chosen, limit or HTML_ROWS)
        else:
            answers = _answers(connection, chosen, QUESTIONS, limit or ROWS)
    if as_json:
        write_json({answer.question.name: objects(answer.columns, answer.rows) for answer in answers})
        for answer in answers:
            if answer.left_out:
                note(f"{answer.question.name}: {counted(answer.left_out, 'more row')}; --limit gives more")
    if page:
        file = html
        if file is None:  # only this user can read it; it is kept for the browser
            descriptor, file = tempfile.mkstemp(prefix="trustfold-report-", suffix=".html")
            os.close(descriptor)
        write_output(file, page)
        shown = opened and webbrowser.open(Path(file).absolute().as_uri())
        note(f"{file} written" + ("" if shown else "; open it in a browser"))
    if not as_json and not page:
        for answer in answers:
            if answer.rows:
                show(answer)
                console().print()


def _answers(
    connection: DuckDBPyConnection, chosen: HistoryChoice, questions: Sequence[CatalogueQuestion], rows: int
) -> list[QuestionAnswer]:
    """Answers to questions, each with the filters that it takes."""
    from ..history.catalogue import narrow
    from ..history.queries import ask
    from ..history.reports import filters_for

    found: dict[CatalogueQuestion, QuestionAnswer] = {}
    taken = {question: filters_for(question, chosen.filters) for question in questions}
    for filters in dict.fromkeys(taken.values()):
        narrow(connection, chosen.roots, filters=filters)
        found |= {question: ask(connection, question, rows) for question in questions if taken[question] == filters}
    return [found[question] for question in questions]


def _page(connection: DuckDBPyConnection, chosen: HistoryChoice, rows: int) -> tuple[list[QuestionAnswer], str]:
    """Answers and the page, both of one period."""
    from ..history.catalogue import narrow
    from ..history.report_page import ReportContent, report_page
    from ..history.reports import BY_NAME, QUESTIONS, against_before
    from ..history.summary import counts, look_here_first, numbers, period_of, window_of

    period, shown = period_of(connection, chosen.filters.since, PERIOD), []
    if period:
        chosen = chosen._replace(filters=chosen.filters._replace(since=period.begin.replace(tzinfo=UTC)))
    by_name = {one.question.name: one for one in _answers(connection, chosen, QUESTIONS, rows)}
    narrow(connection, chosen.roots, filters=chosen.filters)
    window = window_of(connection)
    if period:
        both = chosen._replace(filters=chosen.filters._replace(since=period.before.replace(tzinfo=UTC)))
        compared = [against_before(BY_NAME[name], period.end - period.begin) for name in ("worse", "new")]
        by_name |= {one.question.name: one for one in _answers(connection, both, compared, rows)}
        needing = len(by_name["now"].rows) + by_name["now"].left_out
        narrow(connection, chosen.roots, filters=both.filters)
        shown = numbers(counts(connection, period.begin), needing, comparable=period.comparable)
    answers = list(by_name.values())
    named = chosen.filters._replace(since=None, until=None).description()
    first = look_here_first(by_name)
    root = (chosen.roots or (EnvironmentSettings.from_env().history,))[0].absolute()
    project = next((part for part in reversed(root.parts) if part not in {"history", ".trustfold"}), "")
    made = datetime.now(UTC)
    title = TITLE.format(project=project, begin=period.begin if period else made, end=period.end if period else made)
    return answers, report_page(ReportContent(title, period, window, named, made, shown, first, answers))
