"""Answers from the history as tables for people and as JSON for machines."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

from ..history.page import text


def table_of(columns: Sequence[str], rows: Iterable[Sequence[Any]], title: str = "") -> Table:
    """A table of any rows; numbers to the right. Where there is little room, words are folded, not numbers or times."""
    kept = list(rows)
    table = Table(box=box.HORIZONTALS, pad_edge=False, header_style="bold", title=title or None, title_justify="left")
    for number, name in enumerate(columns):
        numeric = any(isinstance(row[number], (int, float)) for row in kept)
        title = name.replace("_", " ")
        whole = any(isinstance(row[number], (int, float, date, timedelta)) for row in kept)
        width = max(map(len, (*title.split(), *(text(row[number]) for row in kept)))) if whole else None
        table.add_column(title, overflow="fold", justify="right" if numeric else "left", width=width)
    for row in kept:
        table.add_row(*(Text(text(value)) for value in row))
    return table


def as_json(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> list[dict[str, Any]]:
    """Rows as objects: times in RFC 3339, spans in seconds; of columns with one name, later ones get a number."""
    names: list[str] = []
    for name in columns:
        again = columns[: len(names)].count(name)
        names.append(f"{name}_{again}" if again else name)
    return [{name: plain(value) for name, value in zip(names, row, strict=True)} for row in rows]


def plain(value: Any) -> Any:
    """A value that JSON has."""
    if isinstance(value, datetime):
        aware = value if value.tzinfo else value.replace(tzinfo=UTC)
        return aware.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, (list, tuple)):
        return [plain(one) for one in value]
    if isinstance(value, dict):
        return {str(name): plain(one) for name, one in value.items()}
    if isinstance(value, int) and not -(1 << 63) <= value < 1 << 64:
        return str(value)
    return value if value is None or isinstance(value, (str, int, float, bool)) else str(value)
