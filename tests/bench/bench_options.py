"""What to measure and how long, as the command line says it."""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

TRACES = Path(__file__).parents[2].parent / "shared" / "traces"
"""Where recorded runs lie beside a checkout; TRUSTFOLD_TRACES names another folder."""


def say(line: str) -> None:
    """Progress, which is no result."""
    print(line, file=sys.stderr, flush=True)


@dataclass(frozen=True)
class Options:
    """How to measure.

    Attributes:
        only: groups of rows to measure.
        runs: runs of each contestant, after one that does not count.
        events: events of a Kafka run; a run of the worker on one core of 2023 takes five to ten seconds.
        faust_events: events of a run of plain Faust agents, which are much slower; their rate is steady after a tenth.
        fold_events: most events of each trace that the folds alone are measured on; 0 is all.
        backlog: events that wait for a worker.
        live_seconds: time at half load.
        keys: live sessions that a key's memory is measured with.
        history_events: events in the history that questions are put to.
        live: how many sessions are told at once; 0 keeps the recorded order.
        patience_s: seconds to wait, before each run of a contestant, for other programs to leave the machine alone.
        partitions: of every topic; the product's default.
        bootstrap: a broker to use; empty starts one.
        traces: folder of recorded runs.
    """

    only: tuple[str, ...]
    runs: int = 5
    events: int = 100_000
    faust_events: int = 8_000
    fold_events: int = 0
    backlog: int = 200_000
    live_seconds: int = 30
    keys: int = 1_000_000
    history_events: int = 10_000_000
    live: int = 0
    patience_s: float = 0.0
    partitions: int = 12
    bootstrap: str = ""
    traces: Path = TRACES
    quick: bool = False

    def as_json(self) -> dict[str, Any]:
        """The options, for the report; not where folders lie."""
        shown = asdict(self)
        del shown["traces"], shown["bootstrap"]
        return shown


def parse(arguments: list[str], groups: tuple[str, ...]) -> tuple[Options, Path | None]:
    """Options and the file for the JSON, if one is wanted; exits with a message where they make no sense."""
    parser = argparse.ArgumentParser(
        prog="make bench ARGS=…",
        description="Measures trustfold against simpler programs in the same run. Table on standard output, progress "
        "on standard error.",
    )
    add = parser.add_argument
    add("--only", default=",".join(groups), help=f"groups of rows, separated by commas (default: {','.join(groups)})")
    add("--quick", action="store_true", help="one short run of everything in under a minute, to see that it works")
    add("--json", type=Path, metavar="FILE", help="write the report as JSON, too")
    add("--runs", type=_positive, help="runs of each contestant (default 5)")
    add("--events", type=_positive, help="events of a Kafka run (default 100000)")
    add("--faust-events", type=_positive, help="events of a run of plain Faust agents (default 8000)")
    add("--fold-events", type=_positive, help="most events of each trace for the folds alone (default: all)")
    add("--backlog", type=_positive, help="events that wait for a worker (default 200000)")
    add("--live-seconds", type=_positive, help="seconds of traffic at half load (default 30)")
    add("--keys", type=_positive, help="live sessions to measure memory with (default 1000000)")
    add("--history-events", type=_positive, help="events in the history (default 10000000)")
    add("--live", type=_positive, help="sessions told at once (default: the recorded order)")
    add("--patience", type=_positive, dest="patience_s", metavar="SECONDS",
        help="before each run wait at most so long until the machine is quiet (default: do not wait)")  # fmt: skip
    add("--partitions", type=_positive, help="partitions of every topic (default 12)")
    add("--bootstrap", help="HOST:PORT of a Kafka to use (default: start one)")
    given = parser.parse_args(arguments)
    only = tuple(name.strip() for name in given.only.split(",") if name.strip())
    unknown = [name for name in only if name not in groups]
    if unknown or not only:
        parser.error(f"--only knows {', '.join(groups)}; not {', '.join(unknown) or 'nothing at all'}")
    traces = Path(os.environ.get("TRUSTFOLD_TRACES") or TRACES)
    values: dict[str, Any] = {"runs": 1, "events": 12_000, "faust_events": 1_000} if given.quick else {}
    values |= {"fold_events": 3_000, "keys": 20_000, "history_events": 100_000} if given.quick else {}
    values |= {"backlog": 12_000, "live_seconds": 10} if given.quick else {}
    for name in (
        "runs",
        "events",
        "faust_events",
        "fold_events",
        "backlog",
        "live_seconds",
        "keys",
        "history_events",
        "live",
        "patience_s",
        "partitions",
        "bootstrap",
    ):
        if getattr(given, name) is not None:
            values[name] = getattr(given, name)
    return Options(only=only, traces=traces, quick=given.quick, **values), given.json


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not above 0")
    return value
