"""What a person sees of a replay: a row for every decision, and how far it has come."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Self

import orjson
from rich.console import Console
from rich.progress import BarColumn, SpinnerColumn, TaskProgressColumn, TextColumn
from rich.progress import Progress as Bar
from rich.table import Table
from rich.text import Text

from ..projections.emit import Output
from ..schemas.decision_text import line_of
from .styles import STYLES

STEP = 500
"""Lines between two updates of the bar."""

SESSION_WIDTH = 12
"""Characters of a session's name; enough to tell sessions apart."""


class RowPrinter:
    """Prints decisions as rows: time, session, what, why. A new day gets a line of its own."""

    def __init__(self, console: Console) -> None:
        """Print to a console as wide as it is."""
        self._console = console
        self._day = ""

    def __call__(self, output: Output) -> None:
        """Print one decision."""
        decision = orjson.loads(output.value or b"{}")
        day, _, clock = str(decision.get("time", "")).partition("T")
        if day != self._day:
            self._day = day
            self._console.print(Text(day, "bold"))
        line = line_of(decision)
        what = Text(line.what, STYLES[line.tone])
        if line.why:
            what.append(f": {line.why}", "default not bold")
        row = Table.grid(padding=(0, 1))
        row.add_column(width=8, no_wrap=True)
        row.add_column(width=SESSION_WIDTH, no_wrap=True)
        row.add_column(width=1)
        row.add_column(overflow="fold")
        who = _short(str(decision.get("session_id") or decision.get("workspace_id") or ""))
        row.add_row(Text(clock[:8], "dim"), Text(who, "dim"), Text(line.mark, STYLES[line.tone]), what)
        self._console.print(row)


def _short(name: str) -> str:
    """A long name with its middle left out: sessions often differ only at the end."""
    return name if len(name) <= SESSION_WIDTH else f"{name[:4]}…{name[5 - SESSION_WIDTH :]}"


class Progress:
    """A bar on standard error where that is a terminal; nothing elsewhere.

    Plain files show how much of them is read; compressed ones and standard input only how many lines.
    """

    def __init__(self, console: Console, files: tuple[str, ...], *, quiet: bool = False) -> None:
        """Prepare; `quiet` shows nothing, for when the rows themselves are the progress."""
        self._bar: Bar | None = None
        self._lines = self._bytes = 0
        if quiet or not console.is_terminal:
            return
        size = _size_of(files)
        columns = (BarColumn(), TaskProgressColumn()) if size else (SpinnerColumn(),)
        self._bar = Bar(*columns, TextColumn("{task.fields[lines]:,} events"), console=console, transient=True)
        self._task = self._bar.add_task("", total=size, lines=0)

    def advance(self, size: int) -> None:
        """One line of so many bytes was read."""
        self._lines += 1
        self._bytes += size
        if self._bar is not None and self._lines % STEP == 0:
            self._bar.update(self._task, completed=self._bytes, lines=self._lines)

    def __enter__(self) -> Self:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()


def _size_of(files: tuple[str, ...]) -> int | None:
    """Bytes of all files, if they can be known: lines are counted unpacked."""
    if any(name == "-" or name.endswith(".gz") for name in files):
        return None
    return sum(Path(name).stat().st_size for name in files)
