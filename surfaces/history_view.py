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
    """A table of any rows; numbers to the right."""
    kept = list(rows)
    table = Table(box=box.HORIZONTALS, pad_edge=False, header_style="bold", title=title or None, title_justify="left")
    for number, name in enumerate(columns):
        numeric = any(isinstance(row[number], (int, float)) for row in kept)
        table.add_column(name.replace("_", " "), overflow="fold", justify="right" if numeric else "left")
    for row in kept:
        table.add_row(*(Text(text(value)) for value in row))
    return table


def as_json(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> list[dict[str, Any]]:
    """Rows as objects: times in RFC 3339, spans in seconds."""
    return [{name: plain(value) for name, value in zip(columns, row, strict=True)} for row in rows]


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
    return value if value is None or isinstance(value, (str, int, float, bool)) else str(value)
