"""`trustfold import`: converts logs of other tools into events."""

from __future__ import annotations

import re
import sys
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from itertools import chain, islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, NamedTuple

import click

from ..errors import ConfigError, TrustfoldError
from ..schemas.decision_text import counted
from ..streams.embedded.replay import STDIN, open_lines
from .render import data, note, output_file
from .replay import check_files

if TYPE_CHECKING:
    from ..ingest import LogDefaults, SkippedLines

FORMATS = (
    "openai",
    "otel",
    "claude-code",
    "codex",
    "gemini",
    "qwen",
    "copilot",
    "cursor",
    "droid",
    "kiro",
    "opencode",
    "pi",
)
DETECTION_LINES = 400  # Number of lines read to detect a format


@click.command("import")
@click.argument("names", nargs=-1, required=True, metavar="FILE...")
@click.option(
    "--from", "--format", "origin", type=click.Choice(FORMATS), help="Format of the logs. [default: detected]"
)
@click.option("--session", default="", metavar="ID", help="Session of all events. [default: what the log says]")
@click.option("--workspace", default="", metavar="ID", help="Workspace of all events. [default: what the log says]")
@click.option("--output", metavar="FILE", help="Write to this file. [default: standard output]")
@click.option("--keep-secrets", is_flag=True, help="Keep texts that look like passwords, keys or tokens.")
def import_logs(
    *, names: tuple[str, ...], origin: str | None, session: str, workspace: str, output: str | None, keep_secrets: bool
) -> None:
    """Turn logs (plain or .gz, directories of them, `-` for standard input) into events, one a line.

    openai: transcripts with tool calls. otel: GenAI spans as OTLP JSON. The others: session logs of coding agents.
    Events are in time order; importing twice gives the same ids. Unreadable lines are reported and skipped.
    `trustfold import ~/.codex/sessions | trustfold replay -` shows what would have been decided.
    """
    from ..guard.privacy import secrets_in
    from ..ingest import ImportRun, InOrderOfTime, LogDefaults
    from ..security.redaction import redact, redact_record

    files = log_files(names)
    run = ImportRun() if keep_secrets else ImportRun(redact=redact, secrets_in=secrets_in)
    sessions: set[bytes] = set()
    damages: list[str] = []
    with ExitStack() as stack:
        sink: IO[bytes] = data()
        if output:
            if any(file.name != STDIN and Path(output).exists() and Path(output).samefile(file.name) for file in files):
                raise ConfigError(f"{output}: is one of the logs to import; name another output file")
            sink = stack.enter_context(output_file(output))
        events = InOrderOfTime()
        stack.callback(events.close)
        for file in files:
            try:
                for event in _events(LogDefaults(session, workspace, file.source, file.name, run), origin, damages):
                    events.add(event)
                    sessions.add(_session_of(event))
            except ConfigError as error:
                if len(files) == 1:
                    raise
                run.skipped.add(file.name, 0, str(error).removeprefix(f"{file.name}: "))
        for event in events:
            sink.write((event if keep_secrets else redact_record(event)) + b"\n")
        sink.flush()
        total = len(events)
    _note_skipped(run.skipped)
    note(f"{counted(total, 'event')} of {counted(len(sessions), 'session')}")
    if damages:
        raise TrustfoldError(f"{'; '.join(damages)}; everything before that has been imported")
    if not total:
        raise ConfigError(f"no line looks like {origin}; is --from right?" if origin else "no events found")
    sys.stdout.flush()


def _events(defaults: LogDefaults, origin: str | None, damages: list[str]) -> Iterator[bytes]:
    """Events of one file."""
    from ..ingest import IMPORTERS, SkippedLines, objects_of, recognised

    with open_lines(defaults.file) as opened:
        lines = lines_of(opened, damages, defaults.file)
        if origin is None:
            first = list(islice(lines, DETECTION_LINES))
            looked = first if len(first) < DETECTION_LINES else first[:-1]
            origin = recognised(objects_of(looked, defaults.file, SkippedLines()))
            if not origin and len(first) == DETECTION_LINES:
                first += lines
                origin = recognised(objects_of(first, defaults.file, SkippedLines()))
            if not origin:
                raise ConfigError(
                    f"{defaults.file}: none of the formats {', '.join(FORMATS)} is recognised; name it with --format"
                )
            lines = chain(first, lines)
        yield from IMPORTERS[origin](lines, defaults)


def _note_skipped(skipped: SkippedLines) -> None:
    """Print the skipped lines on standard error."""
    for text in skipped.first:
        note(f"left out: {text}")
    if skipped.count > len(skipped.first):
        note(f"... and {skipped.count - len(skipped.first):,} more left out")
    if skipped.repeated:
        note(f"{counted(skipped.repeated, 'line')} repeated earlier lines and were counted once")


def _session_of(event: bytes) -> bytes:
    at = event.find(b'"session_id":"')
    return event[at : event.find(b'"', at + 14)]


SUFFIXES = (".jsonl", ".ndjson", ".json", ".traj")  # Suffixes of the files read from a directory, each also with `.gz`

_DETECTION_BYTES = 65_536
_TIME = re.compile(rb'"(?:timestamp|created_at|start_time|startTimeUnixNano)"\s*:\s*"?([^",}\s]{4,40})')


class LogFile(NamedTuple):
    """Log file to import."""

    name: str  # path to open
    source: str  # name for sessions without an id; the same at every import


def log_files(names: Iterable[str]) -> list[LogFile]:
    """Log files at the given paths, oldest first; of two with the same beginning, the shorter is the older."""
    given = tuple(dict.fromkeys(names))
    check_files(tuple(name for name in given if name == STDIN or not Path(name).is_dir()))
    found: dict[str, str] = {}
    for name in given:
        if name == STDIN:
            found[name] = "stdin"
        elif Path(name).is_dir():
            inside = _inside(Path(name))
            if not inside:
                raise ConfigError(f"{name}: no log in this directory; logs are called *{', *'.join(SUFFIXES)} (.gz)")
            for file in inside:
                found.setdefault(str(file), _stem(file.relative_to(name)))
        else:
            found[name] = _stem(Path(Path(name).name))
    twice = Counter(found.values())
    files = [LogFile(name, source if twice[source] == 1 else _stem(Path(name))) for name, source in found.items()]
    return files if len(files) == 1 else sorted(files, key=_age)


def lines_of(file: IO[bytes], damages: list[str], name: str) -> Iterator[bytes]:
    """Lines of an open file up to the first read error, which is added to `damages`."""
    try:
        yield from file
    except (EOFError, zlib.error, OSError) as error:
        damages.append(f"{name}: ends early or is damaged ({error})")


def _inside(folder: Path) -> list[Path]:
    files = (file for file in folder.rglob("*") if file.name.removesuffix(".gz").endswith(SUFFIXES))
    return sorted(file for file in files if file.is_file() and not file.name.startswith("."))


def _stem(path: Path) -> str:
    text = path.as_posix().removesuffix(".gz")
    return next((text.removesuffix(suffix) for suffix in SUFFIXES if text.endswith(suffix)), Path(text).stem) or text


def _age(file: LogFile) -> tuple[bytes, int, str]:
    """Sort key of a log: its first time and its size; logs without a time come last."""
    if file.name == STDIN:
        return b"~", 0, file.name
    try:
        with open_lines(file.name) as lines:
            found = _TIME.search(lines.read(_DETECTION_BYTES))
        return (found[1] if found else b"~"), Path(file.name).stat().st_size, file.name
    except (EOFError, zlib.error, OSError):
        return b"~", 0, file.name
