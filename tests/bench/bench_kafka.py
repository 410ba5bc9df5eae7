"""Rows: the worker on a real broker, against a bare loop and against plain Faust agents.

Each round runs every contestant once, over fresh topics with the same log; every other round in the opposite order.
Ratios are made inside a round, so what slows the machine down for a minute slows both sides.
"""

from __future__ import annotations

from typing import Any

import bench_machine
from bench_broker import broker, topics
from bench_events import interleave, pick, said_of, sources
from bench_log import Log, make_log
from bench_options import Options, say
from bench_process import Task, run
from bench_result import Row, Series, Target, pairwise

SCRIPTS = {
    "worker": "contestant_worker.py",
    "bare": "contestant_bare.py",
    "direct": "contestant_direct.py",
    "faust": "contestant_faust.py",
}
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


def _log(found: list[Any], count: int, options: Options) -> Log:
    events = pick(found, count)
    return make_log(interleave(events, options.live) if options.live else events, options.partitions)


def _round(opened: Any, logs: dict[str, Log], core: int | None, title: str) -> dict[str, dict[str, Any]]:
    results = {}
    for name, log in logs.items():
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
            result = run(SCRIPTS[name], task)
        events = result.get("events", log.preloaded)
        result["rate"] = events / result["seconds"]
        result["work"] = result["cpu_seconds"] / events * 1e6
        say(
            f"{title}: {name} {result['rate']:,.0f} events/s in {result['seconds']:.1f} s,"
            f" {result['cpu_seconds'] / result['seconds']:.0%} of its core; load {bench_machine.load()}"
        )
        results[name] = result
    return results


def _rows(runs: Runs) -> list[Row]:
    return [
        _row(runs, "bare", "bare aiokafka loop through the same topics, nothing durable", Target(0.75, at_least=True)),
        _row(runs, "direct", "bare loop, outcomes handed on in memory", None),
        _row(runs, "faust", "plain Faust agents with tables", Target(20.0, at_least=True)),
    ]


def _row(runs: Runs, other: str, against: str, target: Target | None) -> Row:
    def figures(name: str, what: str) -> list[float]:
        return [result[what] for result in runs[name]]

    work = pairwise(figures(other, "work"), figures("worker", "work"))
    row = Row(
        name=f"kafka/worker:{other}",
        title="Kafka worker, whole topology, state durable",
        against=against,
        figure=pairwise(figures("worker", "rate"), figures(other, "rate")),
        target=target,
        behind={
            "worker": Series("events/s", tuple(figures("worker", "rate"))),
            other: Series("events/s", tuple(figures(other, "rate"))),
            "ratio by processor time, which other programs disturb less": work,
        },
    )
    if other == "bare":
        row.notes.append(_checkpoints(runs["worker"]))
    return row


def _checkpoints(results: list[dict[str, Any]]) -> str:
    last = results[-1]
    return (
        f"last run of the worker: {last['checkpoints']} checkpoints took {last['checkpoint seconds']:.2f} of"
        f" {last['seconds']:.2f} s and wrote {last['states']:,} states, {last['state bytes'] / 1e6:.1f} MB;"
        f" outputs {', '.join(f'{name} {count:,}' for name, count in sorted(last['outputs'].items()))}"
    )
