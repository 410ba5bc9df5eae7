"""`make quality`: detection, interruptions of people, and planted outages, measured on recorded runs of real agents.

A developer's measure, not a test: it judges rules, not code. Patterns, alarms and silence per source and by how
sessions ended; what a guard would have done with each call; outages planted in the sessions. Two sets of rules side by
side; and, to see what the figures mean, alarms, silent failures and interruptions with what stands around them.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import quality_bother as bother
import quality_checks as checks
import quality_examples as examples
import quality_outages as outages
import quality_report as report
from quality_measure import Measure
from quality_sessions import TRACES, Ending, Source, endings, sources
from rich.console import Console
from rich.progress import Progress
from trustfold.config import load_rules
from trustfold.errors import ConfigError
from trustfold.rules.rules import Rules

SHIPPED = "shipped"
BEHAVIOUR, CHECKS, OUTAGES = MEASURES = ("behaviour", "checks", "outages")
PROCESSES = 2


def main() -> int:
    """Measure what the command line asks for; exit code 2 where there is nothing to measure, else 0."""
    options = _options()
    found = sources(options.traces, tuple(options.source))
    if not found:
        print(f"no recorded sessions in {options.traces}; set TRUSTFOLD_TRACES or --traces", file=sys.stderr)
        return 2
    try:
        rules = _rules(options.rules)
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 2
    labels = endings(options.traces)
    measures = {name: Measure(one) for name, one in rules.items()}
    with (
        ProcessPoolExecutor(PROCESSES, mp_context=get_context("spawn")) as pool,
        Progress(console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as bar,
    ):
        if BEHAVIOUR in options.only:
            for name, measure in measures.items():
                _measure_behaviour(name, measure, found, bar)
        bothered = {name: _measure_bother(name, one, found, options, pool, bar) for name, one in rules.items()}
    _report(options, measures, labels, bothered)
    last, least = list(measures.values())[-1], list(bothered.values())[-1]
    if options.alarms:
        _show_alarms(last, labels, found, options.alarms, options.ended)
    if options.silent:
        _show_silent(last, labels, found, options.silent)
    if options.checks:
        _show_checks(least.checks, found, options.checks)
    return 0


class Bother(NamedTuple):
    """What one set of rules costs people, and what it saves them."""

    checks: list[checks.SourceChecks]
    outages: list[outages.Outage]


def _measure_behaviour(name: str, measure: Measure, found: list[Source], bar: Progress) -> None:
    for source in found:
        size = source.file.stat().st_size // 60  # lines, roughly: they are packed about so well
        task = bar.add_task(f"{name}: {source.name}", total=size)
        measure.run(source, lambda lines, task=task: bar.advance(task, lines))  # type: ignore[misc]
        bar.update(task, completed=size)


def _measure_bother(
    name: str, rules: Rules, found: list[Source], options: argparse.Namespace, pool: ProcessPoolExecutor, bar: Progress
) -> Bother:
    checked: list[Any] = []
    planted: list[Any] = []
    if CHECKS in options.only:
        checked = _all(pool, bar, f"{name}: checks", checks.measure, [(source, rules) for source in found])
    if OUTAGES in options.only:
        tasks = [(*task, rules) for task in outages.tasks(found, options.plants)]
        planted = _all(pool, bar, f"{name}: outages", outages.measure, tasks)
    return Bother(checked, [outage for outage in planted if outage is not None])


def _all(
    pool: ProcessPoolExecutor, bar: Progress, name: str, measure: Callable[..., Any], tasks: list[tuple[Any, ...]]
) -> list[Any]:
    """Results of all tasks, in their order."""
    task = bar.add_task(name, total=len(tasks))
    futures: list[Future[Any]] = [pool.submit(measure, *arguments) for arguments in tasks]
    for _ in as_completed(futures):
        bar.advance(task)
    return [future.result() for future in futures]


def _report(
    options: argparse.Namespace,
    measures: dict[str, Measure],
    labels: dict[tuple[str, str], Ending],
    bothered: dict[str, Bother],
) -> None:
    if options.json:
        figures = report.as_json(measures, labels)
        print(json.dumps({name: figures[name] | bother.as_json(*bothered[name]) for name in measures}, indent=2))
        return
    console = Console(width=max(100, Console().width))
    if BEHAVIOUR in options.only and not options.markdown:
        report.show(measures, labels, console)
    for name, one in bothered.items():
        for grid in bother.grids(*one):
            titled = grid._replace(title=f"{grid.title} ({name})") if len(bothered) > 1 else grid
            if options.markdown:
                print(f"{titled.title}\n\n{bother.markdown(titled)}\n")
            else:
                bother.show(titled, console)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make quality ARGS=…", description="Measure the quality of detection.")
    parser.add_argument("--traces", type=Path, default=TRACES, metavar="DIR", help=f"recorded runs [default: {TRACES}]")
    parser.add_argument("--source", action="append", default=[], metavar="NAME", help="only this source; repeatable")
    parser.add_argument(
        "--rules", action="append", default=[], metavar="FILE",
        help="rules to measure, TOML or JSON: one is compared with the shipped rules, two with each other",
    )  # fmt: skip
    parser.add_argument(
        "--only", action="append", choices=MEASURES, help="only this measure; repeatable [default: all three]"
    )
    parser.add_argument(
        "--plants", type=int, default=2, metavar="N", help="outages of each kind and scope in a source [default: 2]"
    )
    parser.add_argument("--markdown", action="store_true", help="tables of checks and outages as Markdown")
    parser.add_argument("--json", action="store_true", help="figures for programs")
    parser.add_argument("--alarms", type=int, default=0, metavar="N", help="show N alarms and what led to them")
    parser.add_argument("--ended", type=Ending, choices=list(Ending), help="with --alarms: of sessions that ended so")
    parser.add_argument(
        "--silent", type=int, default=0, metavar="N", help="show the end of N failures without an alarm"
    )
    parser.add_argument("--checks", type=int, default=0, metavar="N", help="show N interruptions and what led to them")
    options = parser.parse_args()
    options.only = options.only or list(MEASURES)
    return options


def _rules(files: list[str]) -> dict[str, Rules]:
    named = {Path(file).stem: load_rules(file) for file in files}
    return named if len(named) > 1 else {SHIPPED: Rules(), **named}


def _show_alarms(
    measure: Measure, labels: dict[tuple[str, str], Ending], found: list[Source], count: int, ended: Ending | None
) -> None:
    by_name = {source.name: source for source in found}
    for alarm in examples.alarms(measure, labels, ended, count):
        ending = labels.get((alarm.source, alarm.session), Ending.UNKNOWN)
        print(
            f"\n{alarm.source} {alarm.session} ({ending}): {alarm.pattern} {alarm.severity} × {alarm.repetitions}"
            f" at call {alarm.call}"
        )
        print("\n".join(examples.context(by_name[alarm.source], alarm.session, alarm.line)))


def _show_silent(measure: Measure, labels: dict[tuple[str, str], Ending], found: list[Source], count: int) -> None:
    by_name = {source.name: source for source in found}
    for source, session in examples.silent(measure, labels, count):
        print(f"\n{source} {session}: failed in silence after {measure.sessions[source, session].calls} calls")
        print("\n".join(examples.context(by_name[source], session)))


def _show_checks(measured: list[checks.SourceChecks], found: list[Source], count: int) -> None:
    by_name = {source.name: source for source in found}
    for source, check, line, causes in checks.sample(measured, count):
        print(f"\n{source} {check.session_id}: {check.decision} {check.tool_name} at {check.time}, held by {check.key}")
        print(f"  {check.reason}")
        print("\n".join(examples.behind(by_name[source], causes, line)))


if __name__ == "__main__":
    sys.exit(main())
