"""Tables on a terminal: styles by meaning, shared layouts, and keys abbreviated to the width of a table."""

from __future__ import annotations

from collections.abc import Iterable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from rich import box
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.measure import Measurement
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ..schemas.decision_text import TextTone, counted
from .render import note, side_console

if TYPE_CHECKING:
    from rich.progress import Progress as Bar

    from .clients.client import StateRecord

GOOD, BAD, WARN, QUIET = "green", "bold red", "yellow", "dim"

STYLES: dict[TextTone, str] = {TextTone.GOOD: GOOD, TextTone.BAD: BAD, TextTone.WARN: WARN, TextTone.QUIET: QUIET}

ELLIPSIS = "…"

LEAST = 24  # Minimum width of an abbreviated key in characters, if the terminal is wide enough


def elided(key: str, width: int) -> str:
    """Abbreviate a key to a width in characters: its start names the tool, its end distinguishes it from others."""
    if len(key) <= width:
        return key
    head = (width - 1) // 2
    return f"{key[:head]}{ELLIPSIS}{key[len(key) - (width - 1 - head) :]}"


class KeyText:
    """Rich renderable of a key, abbreviated to the available width."""

    def __init__(self, key: str) -> None:
        """Show this key."""
        self.key = key

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """The key on one line."""
        yield Text(elided(self.key, options.max_width), no_wrap=True, overflow="crop")

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        """Minimum and maximum width."""
        return Measurement(min(len(self.key), LEAST), len(self.key))


def lined_table(*columns: str, title: str | None = None) -> Table:
    """Table with lines around its header and columns that fold long texts."""
    table = Table(box=box.HORIZONTALS, pad_edge=False, header_style="bold", title=title)
    for name in columns:
        table.add_column(Text(name), overflow="fold")
    return table


def fact_table(facts: Iterable[tuple[str, str]]) -> Table:
    """Table of names and texts, without header and lines."""
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(style=QUIET, no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in facts:
        table.add_row(name, Text(value))
    return table


CLOCK_WIDTH = 8  # Width in characters of a time of day


def timed(clock: str, what: RenderableType) -> RenderableType:
    """Text after its time of day."""
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(width=CLOCK_WIDTH, no_wrap=True, style=QUIET)
    table.add_column(overflow="fold")
    table.add_row(clock, what)
    return Padding(table, (0, 0, 0, 1))


STEP = 500  # Number of items between two updates of a progress bar


class ProgressBar:
    """Progress bar on standard error if that is a terminal; else nothing."""

    def __init__(self, total: int | None, what: str, *, quiet: bool = False, interrupted: str = "") -> None:
        """Prepare a bar for a total size or number of named items, None if unknown.

        `quiet` shows none. `interrupted` ends a note after Ctrl-C that says how many items were done.
        """
        self._total, self._what, self._quiet, self._interrupted = total, what, quiet, interrupted
        self._items = self._done = 0
        self._bar: Bar | None = None

    def advance(self, size: int = 1) -> None:
        """Count one more item, of a size in the unit of the total."""
        self._items += 1
        self._done += size
        if self._items % STEP == 0:
            self._move()

    def reached(self, done: int) -> None:
        """Set the number of items done."""
        self._items = self._done = done
        self._move()

    def _move(self) -> None:
        if self._bar is not None:
            self._bar.update(self._task, completed=self._done, items=self._items)

    def __enter__(self) -> Self:
        """Show the bar."""
        console = side_console()
        if console.is_terminal and not self._quiet:
            from rich.progress import BarColumn, SpinnerColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn
            from rich.progress import Progress as Bar

            known = (BarColumn(), TaskProgressColumn(), TimeRemainingColumn()) if self._total else (SpinnerColumn(),)
            text = TextColumn(f"{{task.fields[items]:,}} {self._what}")
            self._bar = Bar(*known, text, console=console, transient=True)
            self._task = self._bar.add_task("", total=self._total, items=0)
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Remove the bar."""
        if self._bar is not None:
            self._bar.stop()
        if kind is KeyboardInterrupt and self._interrupted:
            note(f"{self._done:,} of {self._total or 0:,} {self._what} {self._interrupted}")


def note_unreadable(records: Iterable[StateRecord[Any]]) -> None:
    """Print how many states a later version wrote in a form that this one cannot read, if there are any."""
    if count := sum(one.state is None for one in records):
        verb = "is" if count == 1 else "are"
        note(f"{counted(count, 'state')} of a later version {verb} not shown: update trustfold, or use --json")
