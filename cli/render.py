"""Output functions of the command line, and its exit codes."""

from __future__ import annotations

import codecs
import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum
from io import TextIOWrapper
from pathlib import Path
from threading import Timer
from typing import IO, TYPE_CHECKING, Any, BinaryIO

from ..errors import ConfigError, TargetUnreachable, TookTooLong, TrustfoldError
from ..security.private_files import open_private
from ..security.untrusted import visible

if TYPE_CHECKING:
    from rich.console import Console


class ExitCode(IntEnum):
    """Exit code of a command; the same meaning for all commands."""

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


def exit_code_of(error: TrustfoldError) -> ExitCode:
    """Exit code for an expected error."""
    if isinstance(error, ConfigError):
        return ExitCode.USAGE
    if isinstance(error, TargetUnreachable):
        return ExitCode.UNREACHABLE
    return ExitCode.TIMEOUT if isinstance(error, TookTooLong) else ExitCode.FAILED


# Replacements of characters that a terminal's encoding lacks; others become a question mark
_ASCII = str.maketrans(
    {"…": "...", "→": "->", "←": "<-", "✓": "+", "✕": "x", "×": "x", "·": "-", "•": "*", "‣": ">", "●": "*", "○": "o"}
    | {"◀": "<", "★": "*", "▲": "^", "▼": "v", "↻": "@", "⚠": "!", "–": "-", "—": "-", "−": "-", "∞": "inf"}
    | dict.fromkeys("‘’", "'")
    | dict.fromkeys("“”„«»", '"')
    | dict.fromkeys("─━═", "-")
    | dict.fromkeys("│┃║", "|")
    | dict.fromkeys("┌┐└┘├┤╭╮╰╯", "+")
)


def _nearest(error: UnicodeError) -> tuple[str, int]:
    """Error handler of an encoder, as `codecs.register_error` takes it."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    nearest = error.object[error.start : error.end].translate(_ASCII)
    return "".join(sign if sign.isascii() else "?" for sign in nearest), error.end


def prepare_streams() -> None:
    """Make the standard streams take any text: encodings other than UTF-8 get the nearest signs."""
    codecs.register_error("nearest", _nearest)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper) and not stream.encoding.lower().startswith("utf"):
            stream.reconfigure(errors="nearest")
    if sys.stdout is None:  # closed by who started this process
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115 - open as long as the process


def output_is_full(error: OSError) -> bool:
    """Whether an error without a path says that standard output takes no more."""
    return error.filename is None and error.errno in {errno.ENOSPC, errno.EDQUOT, errno.EIO}


WIDE = 10_000  # Width in columns of output that goes to no terminal, so that lines are not wrapped


def console(*, wide_in_pipes: bool = False) -> Console:
    """Standard output for people: colour only on a terminal and without NO_COLOR.

    `wide_in_pipes`: do not wrap lines for pipes and files, unless COLUMNS is set.
    """
    wide = wide_in_pipes and not sys.stdout.isatty() and not os.environ.get("COLUMNS")
    return _console(stderr=False, width=WIDE if wide else None)


def side_console() -> Console:
    """Standard error for people: progress, summaries, notes."""
    return _console(stderr=True)


def _console(*, stderr: bool, width: int | None = None) -> Console:
    from rich.console import Console
    from rich.segment import Segment

    class SafeConsole(Console):
        def render(self, renderable: Any, options: Any = None) -> Iterator[Segment]:
            for segment in super().render(renderable, options):
                yield segment if segment.control else segment._replace(text=visible(segment.text))

        def on_broken_pipe(self) -> None:
            raise BrokenPipeError  # `RootGroup.invoke` ends the command; rich would exit with an error

    stream = sys.stderr if stderr else sys.stdout
    file: Any = None if stream.isatty() else _UnpaddedStream(stream)
    return SafeConsole(stderr=stderr, file=file, highlight=False, soft_wrap=False, width=width)


class _UnpaddedStream:
    """Text stream without the blanks with which rich fills the lines of a table."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write a text; blanks before the end of a line are left out."""
        *lines, rest = text.split("\n")
        return self._stream.write("".join(f"{line.rstrip(' ')}\n" for line in lines) + rest)


def echo(text: str, *, nl: bool = True) -> None:
    """Print plain text on standard output, with a newline unless `nl` is False."""
    import click

    click.echo(visible(text), nl=nl)


TELL_S = 3.0  # Seconds after which a command says what it waits for


@contextmanager
def told_waits(where: str) -> Iterator[None]:
    """Note what the block waits for, if it takes longer than `TELL_S`."""
    late = Timer(TELL_S, note, [f"still waiting for {where}"])
    late.daemon = True
    late.start()
    try:
        yield
    finally:
        late.cancel()


def note_any(text: str | None) -> None:
    """Print a note on standard error, unless there is no text."""
    if text:
        note(text)


def note(text: str) -> None:
    """Print one plain line on standard error."""
    print(visible(text), file=sys.stderr, flush=True)  # noqa: T201 - this module is where printing happens


def error_line(text: str) -> None:
    """Print an error on standard error."""
    note(f"trustfold: {text}")


def data() -> BinaryIO:
    """Buffered binary standard output."""
    return sys.stdout.buffer


def write_json(value: Any) -> None:
    """Print one JSON document on standard output; a key that is a member of an enumeration is written by its value."""
    import orjson

    options = orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE | orjson.OPT_NON_STR_KEYS
    data().write(orjson.dumps(value, option=options))


def output_file(name: str | Path) -> IO[bytes]:
    """Open a file for writing, readable by the user alone.

    Raises:
        ConfigError: it cannot be written.
    """
    try:
        return open_private(name)
    except OSError as error:
        raise cannot_write(name, error) from error


def write_output(name: str | Path, text: str) -> None:
    """Write a file, readable by the user alone.

    Raises:
        ConfigError: it cannot be written.
    """
    try:
        with output_file(name) as file:
            file.write(text.encode())
    except OSError as error:
        raise cannot_write(name, error) from error


def cannot_write(name: str | Path, error: OSError) -> ConfigError:
    """Error about a file that cannot be written."""
    return ConfigError(f"{name}: cannot be written ({error.strerror})")


def ignore_closed_stdout() -> None:
    """Redirect a closed standard output (`| head`) to nowhere, so that exit prints no error."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
