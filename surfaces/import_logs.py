"""`trustfold import`: logs of other tools as events."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path

import click

from ..schemas.errors import ConfigError
from ..streams.embedded.replay import STDIN, open_lines
from .output import data, note
from .replay import check_files, damaged

FORMATS = ("openai", "otel", "claude-code", "codex")


@click.command("import")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option("--from", "origin", type=click.Choice(FORMATS), required=True, help="Whose format it is.")
@click.option("--session", default="", metavar="ID", help="Session of all events. [default: what the log says]")
@click.option("--workspace", default="", metavar="ID", help="Workspace of all events. [default: what the log says]")
@click.option("--output", metavar="FILE", help="Write there. [default: standard output]")
def import_logs(*, files: tuple[str, ...], origin: str, session: str, workspace: str, output: str | None) -> None:
    """Turn logs (plain or .gz, `-` for standard input) into events, one a line.

    openai: transcripts with tool calls. otel: GenAI spans as OTLP JSON. claude-code, codex: session logs. Importing
    twice gives the same ids. `trustfold import FILE --from codex | trustfold replay -` shows what would have been
    decided.
    """
    from ..history.importers import IMPORTERS, Defaults

    check_files(files)
    events = 0
    sessions: set[bytes] = set()
    with ExitStack() as stack:
        sink = data()
        if output:
            try:
                sink = stack.enter_context(Path(output).open("wb"))
            except OSError as error:
                raise ConfigError(f"{output}: cannot be written ({error.strerror})") from error
        with damaged():
            for name in files:
                source = "stdin" if name == STDIN else Path(name).name.removesuffix(".gz").rpartition(".")[0]
                with open_lines(name) as lines:
                    for event in IMPORTERS[origin](lines, Defaults(session, workspace, source or name)):
                        sink.write(event + b"\n")
                        events += 1
                        sessions.add(_session_of(event))
        sink.flush()
    note(f"{events:,} events of {len(sessions):,} sessions")
    if not events:
        raise ConfigError(f"nothing in there looks like {origin}; is --from right?")
    sys.stdout.flush()


def _session_of(event: bytes) -> bytes:
    at = event.find(b'"session_id":"')
    return event[at : event.find(b'"', at + 14)]
