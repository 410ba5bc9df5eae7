"""Rows: the worker on a real broker, against a bare loop and against plain Faust agents.

Each round runs every contestant once, over fresh topics with the same log; every other round in the opposite order.
Ratios are made inside a round, so what slows the machine down for a minute slows both sides.
"""

from __future__ import annotations

from typing import Any

import bench_machine
from bench_broker import Broker, broker, topics
from bench_events import Source, interleave, pick, said_of, sources
from bench_log import Log, make_log
from bench_options import Options, say
from bench_process import Task, run
from bench_result import CannotMeasure, Row, Series, Target, pairwise

SCRIPTS = {
    "worker": "contestant_worker.py",
    "bare": "contestant_bare.py",
    "direct": "contestant_direct.py",
    "faust": "contestant_faust.py",
}
TRIES = {"faust": 3}
"""Plain Faust sometimes does not start on new topics: a stage gets no records (others: one try)."""

WARM_UP = 20_000
"""Events of the round that does not count: the broker's code gets compiled, its files allocated."""

Runs = dict[str, list[dict[str, Any]]]


def measure(options: Options) -> list[Row]:
    """Run all rounds.

    Raises:
        CannotMeasure: there is no broker, or a contestant failed.
    """
    found = sources(options.traces)
    log, small = (_log(found, count, options) for count in (options.events, options.faust_events))
    core = bench_machine.contestant_core()
    bench_machine.keep_off(core)
    say(f"starting a broker; {log.preloaded:,} events give {log.outcomes:,} outcomes")
    with broker(options.bootstrap) as opened:
        say(opened.description)
        if not options.quick:
            warm = _log(found, min(WARM_UP, options.events), options)
            _round(opened, {"worker": warm, "bare": warm}, core, "warm-up")
        runs: Runs = {name: [] for name in SCRIPTS}
        logs = {name: small if name == "faust" else log for name in SCRIPTS}
        for turn in range(options.runs):
            order = list(SCRIPTS)[:: -1 if turn % 2 else 1]
            done = _round(opened, {name: logs[name] for name in order}, core, f"round {turn + 1} of {options.runs}")
            for name, result in done.items():
                runs[name].append(result)
        where = f"{opened.description}; {bench_machine.pinning(core, ours=opened.kind in ('local', 'mock'))}"
    said = f"{log.preloaded:,} of {said_of(found)}, {options.partitions} partitions"
    rows = _rows(runs)
    rows[0].notes[:0] = [where, f"{said}, {_order(options)}; state in memory and in the changelog"]
    return rows


def _order(options: Options) -> str:
    return f"{options.live:,} sessions at a time" if options.live else "in the recorded order"


def _log(found: list[Source], count: int, options: Options) -> Log:
    events = pick(found, count)
    return make_log(interleave(events, options.live) if options.live else events, options.partitions)


def _round(opened: Broker, logs: dict[str, Log], core: int | None, title: str) -> dict[str, dict[str, Any]]:
    results = {}
    for name, log in logs.items():
        result = _run(opened, name, log, core)
        events = result.get("events", log.preloaded)
        result["rate"] = events / result["seconds"]
        result["work"] = result["cpu_seconds"] / events * 1e6
        result["folds"] = result["fold_seconds"] / events * 1e6
        result["rest"] = result["work"] - result["folds"]
        result["busy"] = result["cpu_seconds"] / result["seconds"]
        say(
            f"{title}: {name} {result['rate']:,.0f} events/s in {result['seconds']:.1f} s,"
            f" {result['busy']:.0%} of its core; {result['folds']:.1f} us folding and {result['rest']:.1f} us else"
            f" for an event; load {bench_machine.load()}"
        )
        results[name] = result
    return results


def _run(opened: Broker, name: str, log: Log, core: int | None) -> dict[str, Any]:
    tries = TRIES.get(name, 1)
    while True:
        with topics(opened, log) as prefix:
            task = Task(
                core=core,
                bootstrap=opened.bootstrap,
                prefix=prefix,
                partitions=len(log.partitions),
                preloaded=log.preloaded,
                events=log.preloaded + log.appended,
                outcomes=log.outcomes,
            )
            try:
                return run(SCRIPTS[name], task)
            except CannotMeasure as fault:
                tries -= 1
                if not tries:
                    raise
                say(f"{name} again: {fault}")


def _rows(runs: Runs) -> list[Row]:
    bare = "bare aiokafka loop through the same topics, nothing durable"
    return [
        _row(runs, "bare", bare, Target(0.75, at_least=True)),
        _row(runs, "direct", "the bare loop with outcomes handed on in memory", None),
        _row(runs, "faust", "plain Faust agents with tables", Target(20.0, at_least=True)),
        Row(
            name="kafka/rest:faust",
            title="the same, processor time outside the folds",
            against="plain Faust agents with tables",
            figure=pairwise(_figures(runs, "faust", "rest"), _figures(runs, "worker", "rest")),
            notes=["both fold with the same code; this is what is left of either without it"],
        ),
    ]


def _figures(runs: Runs, name: str, what: str) -> list[float]:
    return [result[what] for result in runs[name]]


def _row(runs: Runs, other: str, against: str, target: Target | None) -> Row:
    """The worker against one other contestant."""
    behind = {}
    for name in ("worker", other):
        behind[name] = Series("events/s", tuple(_figures(runs, name, "rate")))
        behind[f"{name}, folding"] = Series("us an event", tuple(_figures(runs, name, "folds")))
        behind[f"{name}, all else"] = Series("us an event", tuple(_figures(runs, name, "rest")))
        behind[f"{name}, use of its core"] = Series("ratio", tuple(_figures(runs, name, "busy")))
    behind["ratio by processor time, which other programs disturb less"] = pairwise(
        _figures(runs, other, "work"), _figures(runs, "worker", "work")
    )
    return Row(
        name=f"kafka/worker:{other}",
        title="Kafka worker, whole topology, state durable",
        against=against,
        figure=pairwise(_figures(runs, "worker", "rate"), _figures(runs, other, "rate")),
        target=target,
        behind=behind,
        notes=[_checkpoints(runs["worker"])] if other == "bare" else [],
    )


def _checkpoints(results: list[dict[str, Any]]) -> str:
    last = results[-1]
    return (
        f"last run of the worker: {last['checkpoints']} checkpoints, {last['states']:,} states,"
        f" {last['state bytes'] / 1e6:.1f} MB;"
        f" outputs: {', '.join(f'{name} {count:,}' for name, count in sorted(last['outputs'].items()))}"
    )
