"""Row: a backlog in order of time. How far the tool stage is ever behind the session stage, in the log's time."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import bench_machine
from bench_broker import Broker, broker, settings_for, topics
from bench_events import interleave, pick, said_of, sources
from bench_log import Log, make_log
from bench_options import Options, say
from bench_result import CannotMeasure, Row, Series, Target
from bench_worker import DeployedWorker, labelled

ARRIVED = 3_000.0
"""Events a second that arrived, by their records' timestamps."""

LIVE = 300
"""Sessions at a time."""

LOOK_S = 2.0
LIMIT_S = 900.0
SILENCE_S = 60.0
"""Without progress for so long, the worker is stuck."""


def measure(options: Options) -> list[Row]:
    """Fold the backlog with one worker.

    Raises:
        CannotMeasure: there is no broker, or the worker does not come to the end.
    """
    found = sources(options.traces)
    log = make_log(interleave(pick(found, options.backlog), LIVE), options.partitions, ARRIVED)
    with broker(options.bootstrap) as opened:
        say(f"{opened.description}; {log.preloaded:,} events give {log.outcomes:,} outcomes")
        behind, rate, held = _folded(opened, log)
    return [
        Row(
            name="backlog/tool",
            title=f"a backlog of {log.preloaded:,} events: the tool stage behind the newest record folded, at most",
            against="",
            figure=Series("s", (behind,)),
            target=Target(2.0, at_least=False),
            behind={"events": Series("events/s", (rate,))},
            notes=[
                f"of {said_of(found)}, arrived at {ARRIVED:,.0f} a second; {options.partitions} partitions, one worker",
                f"seconds in which records waited for their turn: {held}",
            ],
        )
    ]


def _folded(opened: Broker, log: Log) -> tuple[float, float, str]:
    """Most seconds that the tool stage was behind, events a second, and what held records up."""
    with topics(opened, log) as prefix, tempfile.TemporaryDirectory() as folder:
        worker = DeployedWorker(
            settings_for(opened.bootstrap, prefix, len(log.partitions)), Path(folder) / "worker.log"
        )
        try:
            while not worker.ready():
                time.sleep(0.05)
            began = moved = time.monotonic()
            before = 0.0
            while True:
                time.sleep(LOOK_S)
                metrics = worker.metrics()
                records = labelled(metrics, "trustfold_records_total")
                behind = labelled(metrics, "trustfold_stream_time_lag_most_seconds").get("tool", 0.0)
                held = labelled(metrics, "trustfold_held_seconds_total")
                waits = ", ".join(f"{reason} {seconds:.1f}" for reason, seconds in held.items()) or "none"
                now = time.monotonic()
                say(
                    f"{now - began:4.0f} s: {records.get('events', 0):,.0f} events, "
                    f"{records.get('outcomes', 0):,.0f} outcomes; tool stage at most {behind:.2f} s behind; "
                    f"held up: {waits}; load {bench_machine.load()}"
                )
                if records.get("events", 0) >= log.preloaded + log.appended and records["outcomes"] >= log.outcomes:
                    return behind, log.preloaded / (now - began), waits
                if sum(records.values()) > before:
                    before, moved = sum(records.values()), now
                if not worker.ready() or now - moved > SILENCE_S or now - began > LIMIT_S:
                    raise CannotMeasure(f"the backlog is not folded: {worker.log.read_text()[-500:]}")
        finally:
            worker.kill()
