"""Everything the command line writes, and the code it exits with."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from enum import IntEnum
from typing import TYPE_CHECKING, Any, BinaryIO

from ..errors import ConfigError, TrustfoldError
from ..security.untrusted import visible

if TYPE_CHECKING:
    from rich.console import Console


class ExitCode(IntEnum):
    """How a command ended; the same for all of them."""

    OK = 0
    FAILED = 1
    USAGE = 2
    UNREACHABLE = 3
    TIMEOUT = 4
    INTERRUPTED = 130


EXIT_CODES_HELP = (
    "Exit codes: 0 done, 1 failed, 2 wrong usage or configuration, 3 Kafka or the server cannot be reached, "
    "4 no answer in time, 130 interrupted."
)


class Unreachable(TrustfoldError):
    """Kafka or a running `up` does not answer at its address."""


class TookTooLong(TrustfoldError):
    """An answer did not come in time."""


def exit_code_of(error: TrustfoldError) -> ExitCode:
    """The code for an expected error."""
    if isinstance(error, ConfigError):
        return ExitCode.USAGE
    if isinstance(error, Unreachable):
        return ExitCode.UNREACHABLE
    return ExitCode.TIMEOUT if isinstance(error, TookTooLong) else ExitCode.FAILED


WIDE = 10_000
"""Columns of an output whose lines nobody's terminal ends."""


def console(*, wide_in_pipes: bool = False) -> Console:
    """Standard output for people: colour only on a terminal and without NO_COLOR.

    `wide_in_pipes`: what goes into a pipe or a file is not fitted to a width, unless COLUMNS names one.
    """
    wide = wide_in_pipes and not sys.stdout.isatty() and not os.environ.get("COLUMNS")
    return _console(stderr=False, width=WIDE if wide else None)


def side_console() -> Console:
    """Standard error for people: progress, summaries, notes."""
    return _console(stderr=True)


def _console(*, stderr: bool, width: int | None = None) -> Console:
    from rich.console import Console
    from rich.segment import Segment

    class Ours(Console):
        def render(self, renderable: Any, options: Any = None) -> Iterator[Segment]:
            for segment in super().render(renderable, options):
                yield segment if segment.control else segment._replace(text=visible(segment.text))

        def on_broken_pipe(self) -> None:
            raise BrokenPipeError  # the entry ends the command; rich would end the process as failed

    return Ours(stderr=stderr, highlight=False, soft_wrap=False, width=width)


def rendered(shown: Any, width: int) -> str:
    """What `console` would print with so many columns, as text."""
    wide = _console(stderr=False, width=width)
    with wide.capture() as captured:
        wide.print(shown)
    return captured.get()


def echo(text: str, *, nl: bool = True) -> None:
    """A plain text on standard output, with a line end unless `nl` is False."""
    import click

    click.echo(visible(text), nl=nl)


def note_any(text: str) -> None:
    """A note, if there is something to say."""
    if text:
        note(text)


def note(text: str) -> None:
    """One plain line on standard error."""
    print(visible(text), file=sys.stderr, flush=True)  # noqa: T201 - this module is where printing happens


def error_line(text: str) -> None:
    """What went wrong, on standard error."""
    note(f"trustfold: {text}")


def data() -> BinaryIO:
    """Standard output as bytes, buffered."""
    return sys.stdout.buffer


def write_json(value: Any) -> None:
    """One JSON document on standard output."""
    import orjson

    data().write(orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))


def stdout_is_gone() -> None:
    """The reader of standard output has seen enough (`| head`): end quietly, without a complaint at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
