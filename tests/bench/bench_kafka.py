"""Rows: the worker on a real broker, against a bare loop and against plain Faust agents.

Each round runs every contestant once, over fresh topics with the same log; every other round in the opposite order.
Ratios are made inside a round, so what slows the machine down for a minute slows both sides.
"""

from __future__ import annotations

from typing import Any

import bench_machine
from bench_broker import broker, topics
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
"""Plain Faust sometimes never starts on new topics, or one of its agents gets no records; the others have one try."""

WARM_UP = 20_000
"""Events of the round that does not count: the broker's code gets compiled, its files allocated."""

Result = dict[str, Any]
Round = dict[str, Result]
"""Results by contestant; one that failed is not in it."""


def measure(options: Options) -> list[Row]:
    """Run all rounds.

    Raises:
        CannotMeasure: there is no broker, or the worker or the bare loop failed in every round.
    """
    found = sources(options.traces)
    log, small = (_log(found, count, options) for count in (options.events, options.faust_events))
    logs = {name: small if name == "faust" else log for name in SCRIPTS}
    core = bench_machine.contestant_core()
    bench_machine.keep_off(core)
    say(f"starting a broker; {log.preloaded:,} events give {log.outcomes:,} outcomes")
    rounds: list[Round] = []
    faults: list[str] = []
    with broker(options.bootstrap) as opened:
        say(opened.description)
        if not options.quick:
            warm = _log(found, min(WARM_UP, options.events), options)
            _round(opened, {"worker": warm, "bare": warm}, "warm-up", options, faults)
        for turn in range(options.runs):
            order = list(SCRIPTS)[:: -1 if turn % 2 else 1]
            title = f"round {turn + 1} of {options.runs}"
            rounds.append(_round(opened, {name: logs[name] for name in order}, title, options, faults))
        where = f"{opened.description}; {bench_machine.pinning(core, ours=opened.kind in ('local', 'mock'))}"
    rows = _rows(rounds)
    if not rows:
        raise CannotMeasure(f"no round was complete: {'; '.join(faults)}")
    said = f"{log.preloaded:,} of {said_of(found)}, {options.partitions} partitions"
    rows[0].notes[:0] = [where, f"{said}, {_order(options)}; state in memory and in the changelog", *faults]
    return rows


def _order(options: Options) -> str:
    return f"{options.live:,} sessions at a time" if options.live else "in the recorded order"


def _log(found: list[Source], count: int, options: Options) -> Log:
    events = pick(found, count)
    return make_log(interleave(events, options.live) if options.live else events, options.partitions)


def _round(opened: Any, logs: dict[str, Log], title: str, options: Options, faults: list[str]) -> Round:
    results: Round = {}
    for name, log in logs.items():
        try:
            result = _run(opened, name, log, options)
        except CannotMeasure as fault:
            faults.append(f"{title}: {fault}")
            say(faults[-1])
            continue
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


def _run(opened: Any, name: str, log: Log, options: Options) -> Result:
    tries = TRIES.get(name, 1)
    while True:
        with topics(opened, log) as prefix:
            bench_machine.await_quiet(options.patience_s)
            task = Task(
                core=bench_machine.contestant_core(),
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


def _rows(rounds: list[Round]) -> list[Row]:
    bare = "bare aiokafka loop through the same topics, nothing durable"
    plain = "plain Faust agents with tables"
    rows = [
        _rates(rounds, "bare", bare, Target(0.75, at_least=True)),
        _work(rounds, "work", "bare", bare),
        _rates(rounds, "direct", "the bare loop with outcomes handed on in memory", None),
        _rates(rounds, "faust", plain, Target(20.0, at_least=True)),
        _work(rounds, "work", "faust", plain),
        _work(rounds, "rest", "faust", plain),
    ]
    return [row for row in rows if row is not None]


def _pairs(rounds: list[Round], other: str) -> tuple[list[Result], list[Result]]:
    """The worker's and the other's results, of the rounds that have both."""
    both = [(done["worker"], done[other]) for done in rounds if "worker" in done and other in done]
    return [one for one, _ in both], [two for _, two in both]


def _figures(results: list[Result], what: str) -> list[float]:
    return [result[what] for result in results]


def _rates(rounds: list[Round], other: str, against: str, target: Target | None) -> Row | None:
    """The worker's rate against another's; None where no round has both."""
    ours, theirs = _pairs(rounds, other)
    if not ours:
        return None
    behind = {}
    shown = [("worker", ours), (other, theirs)]
    for name, results in shown if other == "bare" else shown[1:]:
        behind[name] = Series("events/s", tuple(_figures(results, "rate")))
        behind[f"{name}, folding"] = Series("us an event", tuple(_figures(results, "folds")))
        behind[f"{name}, all else"] = Series("us an event", tuple(_figures(results, "rest")))
        behind[f"{name}, use of its core"] = Series("ratio", tuple(_figures(results, "busy")))
    return Row(
        name=f"kafka/worker:{other}",
        title="Kafka worker, whole topology, state durable",
        against=against,
        figure=pairwise(_figures(ours, "rate"), _figures(theirs, "rate")),
        target=target,
        behind=behind,
        notes=[_checkpoints(ours[-1])] if other == "bare" else [],
    )


WORK = {
    "work": ("the same, by processor time", "other programs disturb it less; waiting for the broker is not in it"),
    "rest": ("the same, by processor time without the folds", "the folds are the same code in both"),
}


def _work(rounds: list[Round], what: str, other: str, against: str) -> Row | None:
    """How much less the processor has to do for an event in the worker."""
    ours, theirs = _pairs(rounds, other)
    if not ours:
        return None
    title, note = WORK[what]
    figure = pairwise(_figures(theirs, what), _figures(ours, what))
    return Row(name=f"kafka/{what}:{other}", title=title, against=against, figure=figure, notes=[note])


def _checkpoints(last: Result) -> str:
    outputs = ", ".join(f"{name} {count:,}" for name, count in sorted(last["outputs"].items()))
    return (
        f"last run of the worker: {last['checkpoints']} checkpoints, {last['states']:,} states,"
        f" {last['state bytes'] / 1e6:.1f} MB; outputs: {outputs}"
    )
