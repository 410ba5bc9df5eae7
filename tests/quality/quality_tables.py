"""Tables of figures, for people and as Markdown."""

from __future__ import annotations

from typing import NamedTuple

from rich.console import Console
from rich.table import Table

_TEXT_COLUMNS = frozenset({"source", "outage", "scope", "most by", "pattern", "patterns", "planted loop", "said by"})


class Grid(NamedTuple):
    """A table before it is laid out."""

    title: str
    columns: tuple[str, ...]
    rows: list[list[str]]


def show(grid: Grid, console: Console) -> None:
    """Print a table for people."""
    table = Table(title=grid.title, title_justify="left")
    for column in grid.columns:
        table.add_column(column, justify="left" if column in _TEXT_COLUMNS else "right")
    for row in grid.rows:
        table.add_row(*row)
    console.print(table)


def markdown(grid: Grid) -> str:
    """A table as it stands in docs/detection.md."""
    rules = ["---" if column in _TEXT_COLUMNS else "---:" for column in grid.columns]
    cells = [[cell.replace("|", "\\|") for cell in row] for row in grid.rows]
    lines = ["| " + " | ".join(row) + " |" for row in ([*grid.columns], *cells)]
    return "\n".join([lines[0], "|" + "|".join(rules) + "|", *lines[1:]])
