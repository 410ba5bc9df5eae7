"""Rows from the history as tables for people and as JSON for programs."""

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

# Words up to this many characters are kept on one line; only longer ones, such as paths, may be broken
UNBROKEN_WIDTH = 24

# Columns whose words people copy: they are kept on one line up to half the width
_IDS = frozenset({"session", "session id"})


def table_of(
    columns: Sequence[str], rows: Iterable[Sequence[Any]], title: str = "", *, width: int | None = None
) -> Table:
    """Table of any rows; numbers are right-aligned, and texts wrap between words if the width is small.

    If words and numbers do not fit unbroken, the last columns are dropped and named in a line below the table.

    Args:
        columns: their names; an underscore is shown as a space.
        rows: the rows.
        title: heading above the table.
        width: width of the table in characters; default: the console's.
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
    padding, widths = fitting or (1, [room])
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
) -> tuple[int, list[int]] | None:
    """Padding and column widths that break no short word and no number; None if there are none.

    If the width is small, a time may take two lines.
    """
    texts = [[name, *(row[number] for row in shown)] for number, name in enumerate(names)]
    natural = [max(max(map(len, text.split("\n"))) for text in column) for column in texts]
    for padding, roomy in ((1, True), (1, False), (0, False)):
        left = room - 1 - (2 * padding + 1) * len(names)
        least = []
        for number, (name, *values) in enumerate(texts):
            parts = values if whole[number] and roomy else " ".join(values).split()
            longest = max(map(len, (*name.split(), *parts)), default=1)
            most = longest if whole[number] else room // 2 if name in _IDS else UNBROKEN_WIDTH
            least.append(max(1, min(most, longest)))
        if sum(least) <= left:
            return padding, _shared(least, natural, left)
    return None


def _shared(least: Sequence[int], natural: Sequence[int], room: int) -> list[int]:
    """Column widths for a total width; the remaining space is split equally among columns that need it."""
    widths = list(least)
    left = room - sum(widths)
    wanting = [number for number, width in enumerate(widths) if natural[number] > width]
    while left > 0 and wanting:
        for number in wanting:
            if left:
                widths[number] += 1
                left -= 1
        wanting = [number for number in wanting if natural[number] > widths[number]]
    return widths


def as_json(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> list[dict[str, Any]]:
    """Rows as JSON objects: times in RFC 3339, spans in seconds; repeated column names get a number."""
    names: list[str] = []
    for name in columns:
        again = columns[: len(names)].count(name)
        names.append(f"{name}_{again}" if again else name)
    return [{name: plain(value) for name, value in zip(names, row, strict=True)} for row in rows]
