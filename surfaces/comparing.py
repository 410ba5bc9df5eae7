"""Folding a history under two sets of rules, side by side."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from ..schemas.rules import Rules
from ..schemas.settings import SettingsOverrides
from .whatif_view import Folding

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

    from ..history.inputs import Inputs
    from ..history.whatif import Difference, Recorded


class Present(NamedTuple):
    """The rules to compare with.

    Attributes:
        rules: those of a file, or the shipped ones; with `recorded`, only until the records tell.
        recorded: the different rules that were in force, as the records tell; the fold follows them.
    """

    rules: Rules
    recorded: tuple[Rules, ...] = ()


class Compared(NamedTuple):
    """A difference, and how true it is.

    Attributes:
        difference: between two rules.
        recorded: what was decided when it was recorded, and how much of that was decided again under the first rules.
        versions: how many different rules were in force, as the records tell; 0: they do not.
        ordered: whether the records have one order; over Kafka each partition has its own.
    """

    difference: Difference
    recorded: Recorded
    versions: int
    ordered: bool = True


def recorded_rules(connection: DuckDBPyConnection) -> list[Rules]:
    """The rules that were in force, one after the other; none where the history does not tell.

    Raises:
        ConfigError: another version recorded rules that this one does not know.
    """
    from .refold import told_rules

    rows = connection.execute(
        'SELECT record FROM recorded_rules WHERE record IS NOT NULL ORDER BY time, "offset"'
    ).fetchall()
    told = [told_rules(record.encode()).base for (record,) in rows]
    return [rules for rules, before in zip(told, [None, *told], strict=False) if rules != before]


def compare(
    connection: DuckDBPyConnection,
    inputs: Inputs,
    present: Present,
    other: Rules,
    since: datetime | None = None,
    examples: int = 3,
    environment: SettingsOverrides | None = None,
) -> Compared:
    """Difference that other rules make to the inputs of a history, in what was decided from a time on."""
    from ..history.whatif import Comparison, Recorded
    from .refold import Refold, fall_due_alike

    since_ms = milliseconds(since)
    recorded = Recorded(_decisions(connection, since_ms))
    comparison = Comparison(since_ms=since_ms, examples=examples)
    echoes = fall_due_alike(*(present.recorded or (present.rules,)), other)
    before = Refold(present.rules, inputs, environment=environment, echoes=echoes, follow=bool(present.recorded))
    after = Refold(other, inputs, environment=environment, echoes=echoes)
    with Folding(inputs.count) as progress:
        for given in inputs:
            was, would = before.feed(given), after.feed(given)
            if was or would:
                recorded.find(was)
                comparison.take(was, would)
            progress.advance()
    was, would = before.finish(), after.finish()
    recorded.find(was)
    comparison.take(was, would)
    source = connection.execute("SELECT source FROM recorded_from").fetchone()
    ordered = source is None or not source[0].startswith("kafka ")
    return Compared(comparison.finish(), recorded, len(present.recorded), ordered)


def milliseconds(since: datetime | None) -> int:
    """A time in milliseconds; 0 for none."""
    return int(since.timestamp() * 1000) if since else 0


def _decisions(connection: DuckDBPyConnection, since_ms: int) -> Iterator[tuple[str, str]]:
    cursor = connection.cursor()
    cursor.execute("SELECT id, record FROM decisions WHERE epoch_ms(time) >= ?", [since_ms])
    while page := cursor.fetchmany(5000):
        yield from page
