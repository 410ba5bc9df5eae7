"""Answers from the history as tables for people and as JSON for machines."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import date, timedelta
from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

from ..history.page import text
from ..history.queries import plain
from .render import console

LEAST = 6
"""Characters that a column of words keeps, where there are so many."""


def table_of(
    columns: Sequence[str], rows: Iterable[Sequence[Any]], title: str = "", *, width: int | None = None
) -> Table:
    """A table of any rows; numbers to the right. Where there is little room, words are folded, not numbers or times.

    Where even that does not fit, the last columns are left out, and a line below the table names them.

    Args:
        columns: their names; an underscore is shown as a blank.
        rows: the rows.
        title: stands above.
        width: columns of characters to fit it into; those of the console unless given.
    """
    kept = list(rows)
    shown = [[text(value) for value in row] for row in kept]
    names = [name.replace("_", " ") for name in columns]
    numeric = [any(isinstance(row[number], (int, float)) for row in kept) for number in range(len(names))]
    whole = [
        is_number or any(isinstance(row[number], (date, timedelta)) for row in kept)
        for number, is_number in enumerate(numeric)
    ]
    room = width or console().width
    fitting = _fitting(names, shown, whole, room)
    left_out: list[str] = []
    while fitting is None and len(names) > 1:
        left_out.insert(0, names.pop())
        shown = [row[:-1] for row in shown]
        fitting = _fitting(names, shown, whole, room)
    padding, widths = fitting or (1, [None] * len(names))
    numeric = numeric[: len(names)]
    table = Table(
        box=box.HORIZONTALS,
        pad_edge=False,
        padding=(0, padding),
        header_style="bold",
        title=title or None,
        title_justify="left",
        caption=f"no room for: {', '.join(left_out)}; --json has all" if left_out else None,
        caption_justify="left",
    )
    for name, is_number, wide in zip(names, numeric, widths, strict=True):
        table.add_column(name, overflow="fold", justify="right" if is_number else "left", width=wide)
    for row in shown:
        table.add_row(*map(Text, row))
    return table


def _fitting(
    names: Sequence[str], shown: Sequence[Sequence[str]], whole: Sequence[bool], room: int
) -> tuple[int, list[int | None]] | None:
    """Padding, and widths of the columns that must not be folded: as wide as they are, else narrow; None: no room."""
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
    return None


def as_json(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> list[dict[str, Any]]:
    """Rows as objects: times in RFC 3339, spans in seconds; of columns with one name, later ones get a number."""
    names: list[str] = []
    for name in columns:
        again = columns[: len(names)].count(name)
        names.append(f"{name}_{again}" if again else name)
    return [{name: plain(value) for name, value in zip(names, row, strict=True)} for row in rows]
