"""Rows: what a million live sessions cost, in time for an event and in memory for a session."""

from __future__ import annotations

import statistics

import bench_machine
from bench_options import Options, say
from bench_process import Task, run
from bench_result import Row, Series, Target

SLOWER = Target(2.0, at_least=False)
MEMORY = Target(1536.0, at_least=False)
"""Bytes of a key, all of the process's memory counted (docs/design/quality.md#benchmarks)."""


def measure(options: Options) -> list[Row]:
    """The session stage over a thousand keys and over many.

    Raises:
        CannotMeasure: the contestant failed.
    """
    say(f"live keys: one run over {options.keys:,}")
    bench_machine.await_quiet(options.patience_s)
    result = run("contestant_keys.py", Task(core=bench_machine.contestant_core(), limit_s=900, keys=options.keys))
    few = [turn["event"] for turn in result["few"]]
    many = result["many"]
    return [
        Row(
            name="keys/slower",
            title=f"session stage over {options.keys:,} live keys, each met again",
            against="the same over 1,000",
            figure=Series("ratio", (many["event"] / statistics.median(few),)),
            target=SLOWER,
            behind={"few": Series("us", tuple(few)), "many": Series("us", (many["event"],))},
        ),
        Row(
            name="keys/memory",
            title=f"memory of a key, of {options.keys:,}",
            against="",
            figure=Series("B", (many["key"],)),
            target=MEMORY,
            notes=["snapshots in memory, and as many states decoded as a worker keeps; sessions of a few events"],
        ),
    ]
