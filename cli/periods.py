"""`trustfold history compare`: one period of the recorded past against the one before it."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from .render import note, write_json

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_RATES = (
    "SELECT kind, name, verdict, rate, rate_before, change, change_low, change_high, calls, calls_before, failures, "
    "failures_before, low, high"
)


def compared(connection: DuckDBPyConnection, span: timedelta, limit: int, *, as_json: bool) -> None:
    """Show the last span against the one before: which failures are new, which tools and models got worse or better."""
    from ..history.queries import ask, run
    from ..history.reports import Question
    from ..history.values import plain
    from .history import show
    from .history_view import as_json as objects

    length = f"INTERVAL {int(span.total_seconds() * 1000)} MILLISECOND"
    _, ((end, first),) = run(
        connection, "SELECT until, greatest(first, since) FROM recorded_until, recorded_since, recorded_first"
    )
    questions = (
        Question("signatures", "Which failures are new?", f"FROM compared_signatures({length}) LIMIT $limit"),
        Question(
            "rates",
            "Which tools and models got worse?",
            f"{_RATES} FROM compared_rates({length}) LIMIT $limit",
        ),
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
    """Which time is compared with which, and how much of the earlier one is recorded."""
    began, before = end - span, end - 2 * span
    shown = f"{began:%Y-%m-%d %H:%M:%S} to {end:%Y-%m-%d %H:%M:%S} UTC"
    if first is None or first >= began:
        return f"{shown}; nothing before it is recorded, so there is nothing to compare with"
    if first > before:
        return f"{shown}, against as long before, of which only the time from {first:%Y-%m-%d %H:%M:%S} on is recorded"
    return f"{shown}, against as long before"
