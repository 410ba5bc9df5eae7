"""Measures what hooks add to a call: the time until the model is asked again, and CPU time.

An agent makes the same calls with hooks and without them in turn, each after a text, as texts may cost a hook, too.
Times mean something on a machine that does nothing else; CPU times do on any, as the least of several runs.
"""

from __future__ import annotations

import os
import resource
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from fake_model import FakeModel
from trial import Failed, Trial

CALLS = 24
"""Calls of a run; no two are the same, so that nothing forms a loop."""

_WARM = 4
"""Number of first calls whose time does not count: programs load parts of themselves."""

HEAD = (
    "| agent | call without hooks, ms | hooks add, ms | CPU of agent and hooks, ms | CPU of the server, ms | hooks |\n"
    "|---|---|---|---|---|---|\n"
)
"""Head of the table: all by call; times are medians."""


class _Run(NamedTuple):
    """One run: milliseconds of each call, and CPU milliseconds of the agent with its hooks, and of the server."""

    times: list[float]
    agent: float
    server: float


def row(trial: Trial, shown: str, rounds: int, heard: Callable[[], int], process: int) -> str:
    """Return the row of a connected agent.

    Args:
        trial: the agent, not connected yet.
        shown: its name for the table.
        rounds: number of runs each way.
        heard: returns the number of hooks that the server has received.
        process: id of the server's process.
    """
    bare, hooked = [], []
    for _ in range(rounds):
        trial.trustfold("connect", trial.program.name, "--remove")
        bare.append(_run(trial, process))
        trial.trustfold("connect", trial.program.name)
        before = heard()
        hooked.append(_run(trial, process))
        hooks = (heard() - before) / CALLS
    without, added = (statistics.median([time for run in runs for time in run.times]) for runs in (bare, hooked))
    agent = min(run.agent for run in hooked) - min(run.agent for run in bare)
    server = min(run.server for run in hooked) - min(run.server for run in bare)
    cells = (shown, f"{without:.0f}", f"{added - without:.0f}", f"{agent / CALLS:.0f}", f"{server / CALLS:.1f}")
    return f"| {' | '.join(cells)} | {hooks:.1f} |\n"


def _run(trial: Trial, process: int) -> _Run:
    """Let an agent make its calls once."""
    with FakeModel([f"./look {number}" for number in range(CALLS)]) as model:
        began, server = resource.getrusage(resource.RUSAGE_CHILDREN), _cpu_of(process)
        code, _, shown = trial.run(model)
        ended = resource.getrusage(resource.RUSAGE_CHILDREN)
        first = {}
        for results, moment in model.asked:
            first.setdefault(results, moment)
    if code or len(first) != CALLS + 1:
        raise Failed(f"it made {len(first) - 1} calls and ended with {code}: {shown[-500:]}")
    times = [(first[number + 1] - first[number]) * 1000 for number in range(_WARM, CALLS)]
    agent = ended.ru_utime + ended.ru_stime - began.ru_utime - began.ru_stime
    return _Run(times, agent * 1000, _cpu_of(process) - server)


def _cpu_of(process: int) -> float:
    """Return the CPU milliseconds that a process has used."""
    fields = Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * 1000 / os.sysconf("SC_CLK_TCK")
