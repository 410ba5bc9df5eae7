"""`trustfold history`: questions about the recorded past, as tables, and one period against the one before it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from ..config import DEFAULT_HISTORY, EnvironmentSettings
from ..errors import ConfigError
from ..history.files import places_of
from ..history.filters import EVERYTHING, HistoryFilters, moment_of, span_of
from ..schemas.decision_text import counted
from .options import json_option
from .render import console, note, write_json

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

    from ..history.reports import QuestionAnswer

F = TypeVar("F", bound=Callable[..., Any])

MOST_ROWS = 1_000_000  # Maximum rows of an answer; `trustfold sql` has no such limit

COMPARE = "compare"
COMPARED = "7d"  # Default length of the periods compared
LONGEST = timedelta(days=3650)  # Longest period that can be compared


class HistoryChoice(NamedTuple):
    """Selection of histories and filters for a command."""

    roots: tuple[Path, ...]  # directories of histories, or addresses (s3://…), read as one history
    filters: HistoryFilters

    @property
    def narrowed(self) -> bool:
        """True if any filter is set."""
        return self.filters != EVERYTHING


def place_option(*, multiple: bool) -> Callable[[F], F]:
    """Decorator: adds `--history`, the place of the history."""
    several = " Several count as one history; s3://BUCKET/PATH is read through DuckDB's httpfs." if multiple else ""
    return click.option(
        "--history",
        "roots" if multiple else "root",
        metavar="DIR",
        multiple=multiple,
        type=click.Path(path_type=Path),
        help=f"Where `trustfold record` writes.{several} [env: TRUSTFOLD_HISTORY; default: {DEFAULT_HISTORY}]",
    )


def since_option(command: F) -> F:
    """Decorator: adds `--since`, the start of the time range."""
    return click.option(
        "--since", metavar="SPAN|TIME", help="From this time on: 30d, 12h, 2026-01-31. [default: everything]"
    )(command)


def history_options(command: Callable[..., None]) -> Callable[..., None]:
    """Decorator: adds the options for place and filters; the command gets them as `chosen`."""

    @wraps(command)
    def filtered(
        *,
        roots: tuple[Path, ...],
        since: str | None,
        until: str | None,
        **rest: Any,
    ) -> None:
        start, end = moment_of(since), moment_of(until, option="--until")
        if start and end and start >= end:
            raise ConfigError(f"--since {since} is not before --until {until}; the range is empty")
        named = {name: rest.pop(name) for name in ("workspaces", "tools", "models", "sessions")}
        filters = HistoryFilters(start, end, **named)
        command(chosen=HistoryChoice(roots or usual_places(), filters), **rest)

    options = [
        click.option(f"--{name}", f"{name}s", metavar="NAME", multiple=True, help=f"{what} Give it again for several.")
        for name, what in (
            ("workspace", "Only this workspace; events without one are in `default`."),
            ("tool", "Only this tool: its calls, and decisions about them."),
            ("model", "Only this model: its calls, and decisions about them."),
            ("session", "Of this session."),
        )
    ]
    until = click.option("--until", metavar="SPAN|TIME", help="Before this time: 7d (ago), 2026-01-31.")
    for option in reversed([place_option(multiple=True), since_option, until, *options]):
        filtered = option(filtered)
    return filtered


def usual_places() -> tuple[Path, ...]:
    """Directories of the configured history with records, one for each source; the first one if there are none."""
    root = EnvironmentSettings.from_env().history
    return tuple(one for one in places_of(root) if any(one.glob("*/date=*"))) or (root,)


def open_history(
    roots: Sequence[Path], filters: HistoryFilters = EVERYTHING, *, query: str | None = None
) -> DuckDBPyConnection:
    """Open the catalogue of one or several histories, for any query or one; without any, of the configured one.

    Raises:
        ConfigError: nothing is recorded there.
    """
    from ..history.catalogue import connect

    return connect(roots or usual_places(), filters=filters, query=query)


@click.command()
@click.argument("question", default="recent", metavar="[QUESTION]")
@history_options
@click.option("--with", "span", metavar="SPAN", help=f"For `compare`: how long each period is. [default: {COMPARED}]")
@click.option("--limit", type=click.IntRange(1, MOST_ROWS), default=20, show_default=True, help="Rows.")
@json_option("One JSON document: the rows as objects.")
def history(*, question: str, chosen: HistoryChoice, span: str | None, limit: int, as_json: bool) -> None:
    """Answer a QUESTION about the recorded past; without one, show the latest decisions.

    now, look-first, new, worse, loop-costs, nudges, asks, retries; overview, recent, tools, signatures, reclassified,
    failures, recovery, breakers, states, patterns, loops, models, false-alarms, reasons, sessions, dead-letters.
    `compare` shows this period against the one before: new failures, tools and models that got worse or better.
    For your own questions: `trustfold sql`.
    """
    if span is not None and question != COMPARE:
        raise ConfigError(f"--with is for `trustfold history {COMPARE}`")
    if question == COMPARE:
        with open_history(*chosen, query=f"{_PERIOD} compared_signatures compared_rates") as connection:
            compared(connection, _length(span or COMPARED), limit, as_json=as_json)
        return
    from ..history.reports import BY_NAME, filters_for

    if question not in BY_NAME:
        raise ConfigError(f"unknown question {question!r}; choose from {', '.join((*BY_NAME, COMPARE))}")
    filters = filters_for(BY_NAME[question], chosen.filters)
    with open_history(chosen.roots, filters, query=BY_NAME[question].sql) as connection:
        from ..history.queries import ask
        from .history_view import as_json as objects

        answer = ask(connection, BY_NAME[question], limit)
    if as_json:
        rows = objects(answer.columns, answer.rows)
        write_json({"question": answer.question.title, "rows": rows, "left_out": answer.left_out})
        return
    if answer.rows:
        show(answer)
        if answer.question.reads:
            note(answer.question.reads)
    else:
        meaning = answer.question.empty or "No recorded data for this question."
        note(meaning + (f" Filters: {filters.description()}." if filters.description() else ""))


def show(answer: QuestionAnswer) -> None:
    """Print an answer as a table, and how many rows it leaves out."""
    from .history_view import table_of

    console().print(table_of(answer.columns, answer.rows, answer.question.title))
    if answer.left_out:
        note(f"... and {counted(answer.left_out, 'more row')}; --limit shows more")


def _length(text: str) -> timedelta:
    try:
        length = span_of(text)
    except OverflowError:
        length = None
    if not length or length > LONGEST:
        raise ConfigError(f"--with {text}: give a span of at most {LONGEST.days} days (7d, 12h, 90min, 2w)")
    return length


_PERIOD = "SELECT until, greatest(first, since) FROM recorded_until, recorded_since, recorded_first"


def compared(connection: DuckDBPyConnection, span: timedelta, limit: int, *, as_json: bool) -> None:
    """Compare the last span with the one before: new failures, and tools and models that got worse or better."""
    from ..history.queries import ask, plain, run
    from ..history.reports import CatalogueQuestion
    from .history_view import as_json as objects

    length = f"INTERVAL {int(span.total_seconds() * 1000)} MILLISECOND"
    _, ((end, first),) = run(connection, _PERIOD)
    questions = (
        CatalogueQuestion("signatures", "Which failures are new?", f"FROM compared_signatures({length}) LIMIT $limit"),
        CatalogueQuestion("rates", "Which tools and models got worse?", f"FROM compared_rates({length}) LIMIT $limit"),
    )
    answers = [ask(connection, question, limit) for question in questions]
    periods = (
        {} if end is None else {"before": end - 2 * span, "since": end - span, "until": end, "recorded_from": first}
    )
    if as_json:
        rows = {answer.question.name: objects(answer.columns, answer.rows) for answer in answers}
        left_out = {answer.question.name: answer.left_out for answer in answers}
        write_json({name: plain(time) for name, time in periods.items()} | rows | {"left_out": left_out})
        return
    for answer in answers:
        if answer.rows:
            show(answer)
        else:
            note(f"{answer.question.title} None.")
    if periods:
        note(_against(end, span, first))
    note("new: never seen before in this history; back: seen earlier, not in the period before. Intervals hold 95 %.")


def _against(end: datetime, span: timedelta, first: datetime | None) -> str:
    """Sentence naming the compared periods, and how much of the earlier one is recorded."""
    began, before = end - span, end - 2 * span
    shown = f"{began:%Y-%m-%d %H:%M:%S} to {end:%Y-%m-%d %H:%M:%S} UTC"
    if first is None or first >= began:
        return f"{shown}; nothing before it is recorded, so there is nothing to compare with"
    if first > before:
        return f"{shown}, against as long before, of which only the time from {first:%Y-%m-%d %H:%M:%S} on is recorded"
    return f"{shown}, against as long before"
