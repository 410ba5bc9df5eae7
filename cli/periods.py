"""`trustfold history compare`: one period of the recorded past against the one before it."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from .render import note, write_json

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_RATES = (
    "SELECT kind, name, verdict, rate, low, high, failures, calls, rate_before, failures_before, calls_before, change, "
    "change_low, change_high"
)


def compared(connection: DuckDBPyConnection, span: timedelta, limit: int, *, as_json: bool) -> None:
    """Show the last span against the one before: which failures are new, which tools and models got worse or better."""
    from ..history.queries import ask, run
    from ..history.reports import Question
    from ..history.values import plain
    from .history import show
    from .history_view import as_json as objects

    length = f"INTERVAL {int(span.total_seconds() * 1000)} MILLISECOND"
    _, ((end,),) = run(connection, "FROM recorded_until")
    questions = (
        Question("signatures", "Which failures are new?", f"FROM compared_signatures({length}) LIMIT $limit"),
        Question(
            "rates",
            "Which tools and models got worse?",
            f"{_RATES} FROM compared_rates({length}) LIMIT $limit",
        ),
    )
    answers = [ask(connection, question, limit) for question in questions]
    periods = {} if end is None else {"before": end - 2 * span, "since": end - span, "until": end}
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
        note("{since:%Y-%m-%d %H:%M:%S} to {until:%Y-%m-%d %H:%M:%S} UTC, against as long before".format(**periods))
    note("new: never seen before in this history; back: seen earlier, not in the period before. Intervals hold 95 %.")
