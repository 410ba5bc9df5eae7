"""Styles of texts on a terminal by their meaning, and keys abbreviated to the width of a table."""

from __future__ import annotations

from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.text import Text

from ..schemas.decision_text import Tone

GOOD, BAD, WARN, QUIET = "green", "bold red", "yellow", "dim"

STYLES: dict[Tone, str] = {Tone.GOOD: GOOD, Tone.BAD: BAD, Tone.WARN: WARN, Tone.QUIET: QUIET}


ELLIPSIS = "…"

LEAST = 24
"""Minimum width of an abbreviated key in characters, if the terminal is wide enough."""


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
