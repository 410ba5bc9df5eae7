"""Rows: what a guard adds to a call that is allowed, beside the libraries that one would take otherwise."""

from __future__ import annotations

import bench_machine
from bench_options import Options, say
from bench_process import Task, run
from bench_result import Row, Series, Target, pairwise

CALLS = 20_000
QUICK_CALLS = 1_000

CHECK = Target(4.0, at_least=False)
CALL = Target(100.0, at_least=False)
"""Microseconds (docs/design/quality.md#benchmarks)."""

KINDS = {
    "read-only": "its twins would be joined",
    "idempotent": "it may be tried again",
    "remembered": "its end is kept for later twins",
    "joined": "half of two that run at the same time and are one",
}

FASTER = Target(1.0, at_least=False)
"""Share of what the libraries take."""


def measure(options: Options) -> list[Row]:
    """The checks alone, and a whole call without the delivery of its events.

    Raises:
        CannotMeasure: the contestant failed.
    """
    say(f"guard: {options.runs} runs and one that does not count")
    calls = QUICK_CALLS if options.quick else CALLS
    task = Task(core=bench_machine.contestant_core(), limit_s=300, runs=options.runs, most=calls)
    bench_machine.await_quiet(options.patience_s)
    runs: dict[str, list[float]] = run("contestant_guard.py", task)["runs"]
    times = {name: Series("us", tuple(figures)) for name, figures in runs.items()}
    return [
        Row(
            name="guard/checks",
            title="guard, allowed call, checks only",
            against="-",
            figure=times["guard checks"],
            target=CHECK,
            notes=["trust and circuits of one call, from a view with 2000 troubled keys of others"],
        ),
        Row(
            name="guard/checks:libraries",
            title="the same, share of the libraries' time",
            against="pybreaker + tenacity + dict",
            figure=pairwise(runs["guard checks"], runs["library checks"]),
            target=FASTER,
            behind={name: times[name] for name in ("guard checks", "library checks")},
        ),
        Row(
            name="guard/call",
            title="guard, whole call, events made but not delivered",
            against="-",
            figure=times["guard call"],
            target=CALL,
            behind={"library call": times["library call"]},
            notes=["key, duplicate store, span of time, two events and two digests, which the libraries do not have"],
        ),
        *(
            Row(
                name=f"guard/call:{kind}",
                title=f"the same, of a {kind} call",
                against="-",
                figure=times[f"guard {kind} call"],
                target=CALL,
                behind={"share of an undeclared call's time": pairwise(runs[f"guard {kind} call"], runs["guard call"])},
                notes=[note],
            )
            for kind, note in KINDS.items()
        ),
    ]
