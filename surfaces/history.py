"""`trustfold history`: questions about the recorded past, as tables."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ..config import DEFAULT_HISTORY, Settings
from ..schemas.errors import ConfigError
from .output import console, note, write_json

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

F = TypeVar("F", bound=Callable[..., Any])

MOST_ROWS = 1_000_000
"""Rows of one answer at most; `trustfold sql` has no such limit."""

_SPAN = re.compile(r"(\d+(?:\.\d+)?)\s*(min|h|d|w)")
_UNITS = {"min": 60, "h": 3600, "d": 86_400, "w": 604_800}


def history_options(command: F) -> F:
    """Where the history is, and from when on."""
    command = click.option(
        "--since", metavar="SPAN|TIME", help="From then on: 30d, 12h, 2026-01-31. [default: everything]"
    )(command)
    return click.option(
        "--history",
        "root",
        metavar="DIR",
        type=click.Path(path_type=Path),
        help=f"Where `trustfold record` writes. [env: TRUSTFOLD_HISTORY; default: {DEFAULT_HISTORY}]",
    )(command)


def moment_of(since: str | None, now: datetime | None = None) -> datetime | None:
    """The time that `--since` means, in UTC.

    Raises:
        ConfigError: it is neither a span nor a time.
    """
    if not since:
        return None
    span = _SPAN.fullmatch(since.strip())
    try:
        if span:
            return (now or datetime.now(UTC)) - timedelta(seconds=float(span[1]) * _UNITS[span[2]])
        time = datetime.fromisoformat(since.strip())
        return time.astimezone(UTC) if time.tzinfo else time.replace(tzinfo=UTC)
    except ValueError:
        raise ConfigError(f"--since {since}: give a span (30d, 12h, 90min, 2w) or a time (2026-01-31T12:00)") from None
    except OverflowError:
        raise ConfigError(f"--since {since}: that is before all time; leave it out for everything") from None


def open_history(root: Path | None, since: str | None = None) -> DuckDBPyConnection:
    """The catalogue of a history.

    Raises:
        ConfigError: DuckDB is not installed, or nothing is recorded there.
    """
    try:
        from ..history.catalogue import connect
    except ImportError as missing:
        raise ConfigError(f"DuckDB is not installed here ({missing}); pip install 'trustfold[history]'") from missing
    return connect(root or Settings.from_env().history, since=moment_of(since))


@click.command()
@click.argument("question", default="recent", metavar="[QUESTION]")
@history_options
@click.option("--limit", type=click.IntRange(1, MOST_ROWS), default=20, show_default=True, help="Rows.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document: the rows as objects.")
def history(*, question: str, root: Path | None, since: str | None, limit: int, as_json: bool) -> None:
    """Answer a QUESTION about the recorded past; without one, show what was decided last.

    overview, recent, tools, signatures, failures, recovery, breakers, patterns, loops, nudges, models, false-alarms,
    reasons, sessions, dead-letters. For your own questions: `trustfold sql`.
    """
    with open_history(root, since) as connection:
        from ..history.questions import BY_NAME, ask
        from .history_view import as_json as objects
        from .history_view import table_of

        if question not in BY_NAME:
            raise ConfigError(f"there is no question {question!r}; choose from {', '.join(BY_NAME)}")
        answer = ask(connection, BY_NAME[question], limit)
    if as_json:
        write_json({"question": answer.question.title, "rows": objects(answer.columns, answer.rows)})
        return
    console().print(table_of(answer.columns, answer.rows, answer.question.title))
    if not answer.rows:
        note("nothing recorded that answers this" + (f" since {since}; `trustfold history overview`" if since else ""))
    elif answer.question.reads:
        note(answer.question.reads)
