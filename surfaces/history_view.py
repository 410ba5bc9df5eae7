"""Answers from the history as tables for people and as JSON for machines."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import date, timedelta
from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

from ..history.page import text
from ..history.values import plain
from .output import console

LEAST = 6
"""Characters that a column of words keeps, where there are so many."""


def table_of(columns: Sequence[str], rows: Iterable[Sequence[Any]], title: str = "") -> Table:
    """A table of any rows; numbers to the right. Where there is little room, words are folded, not numbers or times."""
    kept = list(rows)
    shown = [[text(value) for value in row] for row in kept]
    names = [name.replace("_", " ") for name in columns]
    numeric = [any(isinstance(row[number], (int, float)) for row in kept) for number in range(len(names))]
    whole = [
        is_number or any(isinstance(row[number], (date, timedelta)) for row in kept)
        for number, is_number in enumerate(numeric)
    ]
    padding, widths = _fitting(names, shown, whole, console().width)
    table = Table(
        box=box.HORIZONTALS,
        pad_edge=False,
        padding=(0, padding),
        header_style="bold",
        title=title or None,
        title_justify="left",
    )
    for name, is_number, width in zip(names, numeric, widths, strict=True):
        table.add_column(name, overflow="fold", justify="right" if is_number else "left", width=width)
    for row in shown:
        table.add_row(*map(Text, row))
    return table


def _fitting(
    names: Sequence[str], shown: Sequence[Sequence[str]], whole: Sequence[bool], room: int
) -> tuple[int, list[int | None]]:
    """Padding, and widths of the columns that must not be folded: as wide as they are, else narrow, else any."""
    natural = sum(max(map(len, (name, *(row[number] for row in shown)))) + 3 for number, name in enumerate(names))
    if natural + 1 <= room:
        return 1, [None] * len(names)
    for padding, head in ((1, True), (0, False)):
        widths: list[int | None] = []
        least = 1
        for number, name in enumerate(names):
            values = [row[number] for row in shown]
            words = name.split() if head else [name[:4]]
            if not whole[number]:
                widths.append(None)
                least += min(LEAST, max(map(len, (*words, *values))))
            else:
                widths.append(max(map(len, (*words, *(values if head else " ".join(values).split())))))
                least += widths[-1] or 0
        if least + (2 * padding + 1) * len(names) <= room:
            return padding, widths
    return 1, [None] * len(names)


def as_json(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> list[dict[str, Any]]:
    """Rows as objects: times in RFC 3339, spans in seconds; of columns with one name, later ones get a number."""
    names: list[str] = []
    for name in columns:
        again = columns[: len(names)].count(name)
        names.append(f"{name}_{again}" if again else name)
    return [{name: plain(value) for name, value in zip(names, row, strict=True)} for row in rows]
