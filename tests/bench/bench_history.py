"""Rows: what recording costs beside merely writing the same rows, and how long a report's questions take."""

from __future__ import annotations

from tempfile import TemporaryDirectory
from typing import Any

import bench_machine
from bench_options import Options, say
from bench_process import Task, run
from bench_result import Row, Series, Target, pairwise

RECORDING = Target(0.5, at_least=True)
A_QUESTION = Target(1.0, at_least=False)
"""Seconds, on two cores, over ten million events (docs/design/quality.md#benchmarks)."""


def measure(options: Options) -> list[Row]:
    """The recorder, and every question of the report.

    Raises:
        CannotMeasure: the contestant failed.
    """
    say(f"history: {options.history_events:,} events, {options.runs} runs; about two minutes to make it")
    bench_machine.await_quiet(options.patience_s)
    with TemporaryDirectory(prefix="trustfold-history-") as folder:
        result = run(
            "contestant_history.py",
            Task(folder=folder, runs=options.runs, most=options.history_events, limit_s=3600),
        )
    return [_recording(result), *_questions(result)]


def _recording(result: dict[str, Any]) -> Row:
    per_event = 1e6 / result["recorded"]
    return Row(
        name="history/recorder",
        title="recorder, an event",
        against="appender and COPY of the same rows",
        figure=pairwise(result["writing"], result["recording"]),
        target=RECORDING,
        behind={
            "recorder": Series("us", tuple(time * per_event for time in result["recording"])),
            "raw write": Series("us", tuple(time * per_event for time in result["writing"])),
        },
        notes=[
            f"{result['recorded']:,} events; processor time of all threads; the raw write has decoded values at hand",
            f"{result['bytes'] / result['events']:.0f} bytes an event on disk, decisions included",
        ],
    )


def _questions(result: dict[str, Any]) -> list[Row]:
    slowest = max(result["asked"], key=lambda name: sorted(result["asked"][name])[len(result["asked"][name]) // 2])
    return [
        Row(
            name=f"history/question:{name}",
            title=f"report: {name}",
            against=f"{result['events']:,} events",
            figure=Series("s", tuple(times)),
            target=A_QUESTION,
            notes=["the slowest question"] if name == slowest else [],
        )
        for name, times in result["asked"].items()
    ]
