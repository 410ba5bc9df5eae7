"""`trustfold replay`: fold recorded events and print the decisions."""

from __future__ import annotations

import sys
import time
import zlib
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any

import click
import orjson
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..config import EnvironmentSettings
from ..errors import ConfigError, TrustfoldError
from ..projections.emitter import StageOutput
from ..projections.local_topology import LogRecord
from ..projections.rule_source import RuleSource
from ..projections.topology import DECISION_TOPICS
from ..schemas.decision_text import counted, line_of_record
from ..streams.embedded.replay import STDIN, FileReplay, open_lines
from .checks import CHECKS, CallChecker, GuardVerdict, check_of, line_of_check, summary
from .options import json_option, rules_options
from .render import console, data, note, note_any, output_file
from .terminal import STYLES, ProgressBar

DEAD_LETTERS = "dead-letters"
# Topics that a replay can print; `events` are those the engine emits itself (calls past their deadline)
TOPICS = (*DECISION_TOPICS, "state", "outcomes", "standings", "events", DEAD_LETTERS)

SHOWN = 100  # Default number of decisions printed for people; `--json` prints all


class _WithOptionalSpeed(click.Command):
    """Command whose `--realtime` takes the next argument as its speed only if it is a number, else as a file."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        spelled: list[str] = []
        for position, word in enumerate(args):
            spelled.append(word)
            if word == "--realtime":
                following = args[position + 1 : position + 2]
                if not following or not _is_number(following[0]):
                    spelled.append("1")
        return super().parse_args(ctx, spelled)


@click.command(cls=_WithOptionalSpeed)
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@json_option("One decision per line, exactly as published.")
@click.option("--topics", default="", metavar="A,B|all", help="Topics to print. [default: all decision topics]")
@rules_options
@click.option(
    "--settings",
    "settings_file",
    metavar="FILE",
    help="Initial settings: records of the settings topic, NDJSON. Such records among the events apply from there on.",
)
@click.option(
    "--limit",
    type=click.IntRange(0),
    metavar="N",
    help=f"Print at most N decisions. [default: {SHOWN}; all with --json; 0: all]",
)
@click.option(
    "--realtime",
    type=click.FloatRange(0, min_open=True),
    metavar="[SPEED]",
    help="Replay in real time, SPEED times faster.",
)
@click.option("--checks", is_flag=True, help="Also print a guard's decision on each call.")
@click.option("--dead-letters", "dead_letters_file", metavar="FILE", help="Write dead letters to this file, as NDJSON.")
def replay(
    *,
    files: tuple[str, ...],
    as_json: bool,
    topics: str,
    limit: int | None,
    realtime: float | None,
    checks: bool,
    dead_letters_file: str | None,
    **rules_from: str | None,
) -> None:
    """Fold recorded events (NDJSON, plain or .gz, `-` for standard input) and print the decisions.

    An invalid line becomes a dead letter and does not stop the replay. The summary goes to standard error.
    """
    wanted = _topics(topics) | {CHECKS}
    check_files(files)
    folding = FileReplay(_source(**rules_from))
    at_most = (None if as_json else SHOWN) if limit is None else (limit or None)
    with ExitStack() as stack:
        letters = _open_letters(stack, dead_letters_file)
        progress = stack.enter_context(reading(files, quiet=sys.stdout.isatty()))
        show: Any = _print_json(flush=STDIN in files or realtime is not None) if as_json else RowPrinter(console())
        counts = _ReplayCounts()
        feed = CallChecker(folding.topology).feed if checks else None
        outputs = folding.run(list(files), progress=progress.advance, feed=feed)
        for output in _paced(_reading(outputs), folding, realtime):
            counts.add(output)
            if output.topic == CHECKS and not as_json and check_of(output).decision is GuardVerdict.ALLOW:
                continue
            if output.topic == DEAD_LETTERS and letters is not None:
                letters.write((output.value or b"") + b"\n")
            if output.topic not in wanted or output.value is None:
                continue
            if at_most is None or counts.shown < at_most:
                counts.shown += 1
                show(output)
            else:
                counts.hidden += 1
    sys.stdout.flush()
    counts.summarise(folding.lines)


def _source(rules_file: str | None, policies_file: str | None, settings_file: str | None) -> RuleSource:
    """Rules of a replay, overridden by the settings of a file."""
    settings = EnvironmentSettings.from_env()
    note_any(settings.switched_off)
    source = RuleSource(settings.rule_files(rules_file, policies_file).load(), settings.environment())
    if settings_file is None:
        return source
    check_files((settings_file,))
    with open_lines(settings_file) as lines:
        for number, line in enumerate(lines, 1):
            letter = source.fold(LogRecord(None, line.strip(), number), 0) if line.strip() else None
            if letter is not None:
                fault = orjson.loads(letter.value or b"{}")
                raise ConfigError(f"{settings_file}:{number}: {fault['path']}: {fault['message']}")
    return source


def _topics(text: str) -> frozenset[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        return frozenset(DECISION_TOPICS)
    if names == ["all"]:
        return frozenset(TOPICS)
    unknown = sorted(set(names) - set(TOPICS))
    if unknown:
        raise ConfigError(f"unknown topic {unknown[0]!r}; choose from {', '.join(TOPICS)}, or all")
    return frozenset(names)


def check_files(files: tuple[str, ...]) -> None:
    """Check that every file exists before the first line is folded."""
    if files.count(STDIN) > 1:
        raise ConfigError("standard input (-) can be read only once")
    for name in files:
        if name == STDIN:
            continue
        path = Path(name)
        if not path.exists():
            raise ConfigError(f"{name}: no such file")
        if path.is_dir():
            raise ConfigError(f"{name}: is a directory; name the files in it")
        try:
            path.open("rb").close()
        except OSError as error:
            raise ConfigError(f"{name}: cannot be read ({error.strerror})") from error


def _open_letters(stack: ExitStack, name: str | None) -> IO[bytes] | None:
    if name is None:
        return None
    if name == STDIN:
        raise ConfigError("--dead-letters needs a file: standard output is for decisions")
    return stack.enter_context(output_file(name))


@contextmanager
def damaged() -> Iterator[None]:
    """Turn read errors of damaged input into a ConfigError with an explanation."""
    try:
        yield
    except (EOFError, zlib.error) as error:
        raise TrustfoldError(
            f"the input ends early or is damaged ({error}); everything before that has been read"
        ) from error
    except BrokenPipeError:
        raise
    except OSError as error:
        raise TrustfoldError(f"the input cannot be read ({error}); everything before that has been read") from error


def _reading(outputs: Iterator[StageOutput]) -> Iterator[StageOutput]:
    with damaged():
        yield from outputs


def _paced(outputs: Iterator[StageOutput], folding: FileReplay, speed: float | None) -> Iterator[StageOutput]:
    """Delay each output to its time in the recording, `speed` times faster."""
    if speed is None:
        yield from outputs
        return
    began, first = time.monotonic(), 0
    for output in outputs:
        now = folding.topology.stream_time
        first = first or now
        time.sleep(max(0.0, (now - first) / 1000 / speed - (time.monotonic() - began)))
        yield output


def _print_json(*, flush: bool) -> Any:
    out = data()

    def show(output: StageOutput) -> None:
        out.write(output.value or b"")
        out.write(b"\n")
        if flush:
            out.flush()

    return show


class _ReplayCounts:
    """Counters of a replay."""

    def __init__(self) -> None:
        self.shown = self.hidden = 0
        self._decisions: Counter[str] = Counter()
        self._reasons: Counter[str] = Counter()
        self._checks: Counter[GuardVerdict] = Counter()
        self._first = ""
        self._began = time.perf_counter()

    def add(self, output: StageOutput) -> None:
        if output.topic in DECISION_TOPICS:
            self._decisions[output.type] += 1
        elif output.topic == DEAD_LETTERS:
            letter = orjson.loads(output.value or b"{}")
            self._first = self._first or f"record {letter['offset'] + 1}, {letter['path']}: {letter['message']}"
            self._reasons[letter["reason"]] += 1
        elif output.topic == CHECKS:
            self._checks[check_of(output).decision] += 1

    def summarise(self, events: int) -> None:
        """Print totals on standard error."""
        elapsed = time.perf_counter() - self._began
        if self.hidden:
            note(f"... and {self.hidden:,} more decisions (--limit 0 shows all)")
        note(f"{counted(events, 'event')} in {elapsed:.2f} s ({events / max(elapsed, 1e-9):,.0f} events/s)")
        note(f"{counted(self._decisions.total(), 'decision')}{_listed(self._decisions)}")
        if self._checks:
            note(summary(self._checks))
        if self._reasons:
            note(f"{counted(self._reasons.total(), 'dead letter')}{_listed(self._reasons)}; first {self._first}")


def _listed(counts: Counter[str]) -> str:
    return ": " + ", ".join(f"{name} {count:,}" for name, count in counts.most_common()) if counts else ""


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


SESSION_WIDTH = 12  # Characters shown of a session's id


class RowPrinter:
    """Prints decisions as rows: time, session, decision, reason. A line with the date begins each new day."""

    def __init__(self, console: Console) -> None:
        """Print to a console, at its width."""
        self._console = console
        self._day = ""

    def __call__(self, output: StageOutput) -> None:
        """Print one decision."""
        decision = orjson.loads(output.value or b"{}")
        day, _, clock = str(decision.get("time", "")).partition("T")
        if day != self._day:
            self._day = day
            self._console.print(Text(day, "bold"))
        line = line_of_check(check_of(output)) if output.topic == CHECKS else line_of_record(decision)
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
    """A long session id with its middle elided: ids often differ only at the end."""
    return name if len(name) <= SESSION_WIDTH else f"{name[:4]}…{name[5 - SESSION_WIDTH :]}"


def reading(files: tuple[str, ...], *, quiet: bool = False) -> ProgressBar:
    """Progress bar of reading files: bytes of plain files; only lines for compressed files and standard input.

    `quiet` shows none, for when rows are printed instead.
    """
    unknown = any(name == STDIN or name.endswith(".gz") for name in files)
    return ProgressBar(None if unknown else sum(Path(name).stat().st_size for name in files), "events", quiet=quiet)
