"""Rows: what the folds alone cost for an event, beside what it costs merely to parse it."""

from __future__ import annotations

from typing import Any

import bench_machine
from bench_options import Options, say
from bench_process import Task, run
from bench_result import Row, Series, Target

AN_EVENT = Target(25.0, at_least=False)
"""Microseconds (docs/design/quality.md#benchmarks); the goal is 10."""

ALL = "all together"


def measure(options: Options) -> list[Row]:
    """Session and tool stage on each trace, and on all of them weighted by their events.

    Raises:
        CannotMeasure: the contestant failed.
    """
    say(f"folds alone: {options.runs} runs and one that does not count")
    task = Task(
        core=bench_machine.contestant_core(),
        limit_s=600,
        folder=str(options.traces),
        runs=options.runs,
        most=options.fold_events,
    )
    bench_machine.await_quiet(options.patience_s)
    result = run("contestant_fold.py", task)
    runs: dict[str, list[dict[str, float]]] = result["runs"]
    if len(runs) > 1:
        runs = {ALL: [_together(single) for single in zip(*runs.values(), strict=True)], **runs}
    rows = [_session(name, turns) for name, turns in runs.items()]
    rows += [_tool(name, turns) for name, turns in runs.items() if turns[0]["outcomes"]]
    rows[0].notes.append(f"{result['said']}; caches emptied before each pass; goal 10 us")
    return rows


def _session(name: str, turns: list[dict[str, float]]) -> Row:
    behind = {what: Series("us", tuple(turn[what] for turn in turns)) for what in ("session", "decode", "orjson")}
    return Row(
        name=f"fold/session:{name}",
        title=f"session stage, an event: {name}",
        against=f"orjson.loads {behind['orjson'].median:.2f} us",
        figure=behind.pop("session"),
        target=AN_EVENT,
        behind=behind,
        notes=[f"{turns[0]['events']:,.0f} events, {turns[0]['outcomes']:,.0f} outcomes"],
    )


def _tool(name: str, turns: list[dict[str, float]]) -> Row:
    parse = Series("us", tuple(turn["orjson of outcomes"] for turn in turns))
    return Row(
        name=f"fold/tool:{name}",
        title=f"tool stage, an outcome: {name}",
        against=f"orjson.loads {parse.median:.2f} us",
        figure=Series("us", tuple(turn["tool"] for turn in turns)),
        target=AN_EVENT,
        behind={"orjson": parse},
    )


def _together(turns: tuple[dict[str, Any], ...]) -> dict[str, float]:
    """One run over all traces as if they were one."""
    events, outcomes = sum(turn["events"] for turn in turns), sum(turn["outcomes"] for turn in turns)
    merged = {"events": events, "outcomes": outcomes}
    for what in ("session", "decode", "orjson"):
        merged[what] = sum(turn[what] * turn["events"] for turn in turns) / events
    for what in ("tool", "orjson of outcomes"):
        merged[what] = sum(turn[what] * turn["outcomes"] for turn in turns) / max(outcomes, 1)
    return merged
