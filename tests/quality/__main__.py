"""`make quality`: detection, interruptions of people, planted loops and outages, on recorded runs of real agents.

A developer's measure, not a test: it judges rules, not code. What is said to the model and to people in each source,
and what a guard would have done with each call; how that fits how the sessions ended; the precision of what was read
by eye; loops and outages planted in the sessions. Two sets of rules one after the other; and, to see what the figures
mean, detections, silent failures and interruptions with what stands around them.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import quality_examples as examples
import quality_loops as loops
import quality_measure as measure
import quality_outages as outages
import quality_report as report
import quality_verdicts as verdicts
from quality_report import Run
from quality_sessions import LOGS, RECORDINGS, TRACES, Ending, Labels, Source, imported, labels, sources
from quality_tables import markdown, show
from rich.console import Console
from rich.progress import Progress
from trustfold.config import load_rules
from trustfold.errors import ConfigError
from trustfold.rules.rules import RuleSet
from trustfold.schemas.vocabulary import PatternType

SHIPPED = "shipped"
BEHAVIOUR, LOOPS, OUTAGES = MEASURES = ("behaviour", "loops", "outages")
PROCESSES = 2
WIDTH = 170
"""Columns of the tables, at least."""


def main() -> int:
    """Measure what the command line asks for; exit code 2 where there is nothing to measure, else 0."""
    options = _options()
    found = sources(options.traces, tuple(options.source))
    if not found:
        folders = ", ".join(map(str, options.traces))
        print(f"no recorded sessions in {folders}; set TRUSTFOLD_TRACES or --traces", file=sys.stderr)
        return 2
    try:
        rules = _rules(options.rules)
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 2
    with TemporaryDirectory() as folder:
        if options.logs:
            found = imported(found, options.logs, Path(folder))
        known = labels(options.traces)
        runs = _measure(rules, found, known, options)
        _report(options, runs, known)
        _show(options, list(runs.values())[-1], known, {source.name: source for source in found})
    return 0


def _measure(
    rules: dict[str, RuleSet], found: list[Source], known: Labels, options: argparse.Namespace
) -> dict[str, Run]:
    coding = [source for source in found if source.name not in known.benchmarks]
    runs = {}
    with (
        ProcessPoolExecutor(PROCESSES, mp_context=get_context("spawn")) as pool,
        Progress(console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as bar,
    ):
        for name, one in rules.items():
            tasks: dict[str, list[tuple[Any, ...]]] = {
                BEHAVIOUR: [(source, one) for source in found],
                LOOPS: [(source, options.loops, one) for source in coding],
                OUTAGES: [(*task, one) for task in outages.tasks(found, options.plants)],
            }
            results = {
                kind: _all(pool, bar, f"{name}: {kind}", by, tasks[kind] if kind in options.only else [])
                for kind, by in ((BEHAVIOUR, measure.measure), (LOOPS, loops.measure), (OUTAGES, outages.measure))
            }
            planted = [loop for found_loops in results[LOOPS] for loop in found_loops]
            runs[name] = Run(results[BEHAVIOUR], planted, [outage for outage in results[OUTAGES] if outage is not None])
    return runs


def _all(
    pool: ProcessPoolExecutor, bar: Progress, name: str, by: Callable[..., Any], tasks: list[tuple[Any, ...]]
) -> list[Any]:
    """Results of all tasks, in their order."""
    task = bar.add_task(name, total=len(tasks))
    futures: list[Future[Any]] = [pool.submit(by, *arguments) for arguments in tasks]
    for _ in as_completed(futures):
        bar.advance(task)
    return [future.result() for future in futures]


def _report(options: argparse.Namespace, runs: dict[str, Run], known: Labels) -> None:
    judged = {name: verdicts.judge(run.measured, known) for name, run in runs.items()}
    if options.json:
        figures = {name: report.as_json(run, known, judged[name]) for name, run in runs.items()}
        print(json.dumps(figures, indent=2))
        return
    console = Console(width=max(WIDTH, Console().width))
    for name, run in runs.items():
        for grid in report.grids(run, known, judged[name]):
            titled = grid._replace(title=f"{grid.title} ({name})") if len(runs) > 1 else grid
            if options.markdown:
                print(f"{titled.title}\n\n{markdown(titled)}\n")
            else:
                show(titled, console)
        if refused := sum(one.refused for one in run.measured):
            console.print(f"[red]{name}: {refused} events were refused; they should all be good[/red]")
        for row in judged[name].gone:
            print(f"no longer detected: {verdicts.told(row)}")
        if run.measured and judged[name].unread:
            print(f"{len(judged[name].unread)} detections of the sample are unread; --unread shows them")


def _show(options: argparse.Namespace, run: Run, known: Labels, by_name: dict[str, Source]) -> None:
    shown = examples.detections(
        run.measured, known, options.detections, ending=options.ended, pattern=options.pattern or ""
    )
    for one in shown + (verdicts.judge(run.measured, known).unread if options.unread else []):
        print(f"\n{report.headline(one, known.ending(one.source, one.session))}")
        print("\n".join(examples.context(by_name[one.source], one.session, one.line)))
        if options.unread:
            print(verdicts.blank(one))
    for source, session, calls in examples.silent(run.measured, known, options.silent):
        print(f"\n{source} {session}: failed in silence after {calls} calls")
        print("\n".join(examples.context(by_name[source], session)))
    for source, check, line, causes in examples.interruptions(run.measured, options.checks):
        print(f"\n{source} {check.session_id}: {check.decision} {check.tool_name} at {check.time}, held by {check.key}")
        print(f"  {check.reason}")
        print("\n".join(examples.behind(by_name[source], causes, line)))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make quality ARGS=…", description="Measure the quality of detection.")
    folders = [TRACES, *RECORDINGS]
    parser.add_argument(
        "--traces", action="append", type=Path, metavar="DIR",
        help="recorded runs; repeatable, of a source in several folders the last one's [default: TRUSTFOLD_TRACES and "
        f"TRUSTFOLD_RECORDINGS: {', '.join(map(str, folders))}]",
    )  # fmt: skip
    parser.add_argument(
        "--logs", type=Path, metavar="DIR", default=Path(LOGS) if LOGS else None,
        help="agents' own logs, a folder for each source, imported anew in place of its recording "
        "[default: TRUSTFOLD_LOGS]",
    )  # fmt: skip
    parser.add_argument("--source", action="append", default=[], metavar="NAME", help="only this source; repeatable")
    parser.add_argument(
        "--rules", action="append", default=[], metavar="FILE",
        help="rules to measure, TOML or JSON: one is compared with the shipped rules, two with each other",
    )  # fmt: skip
    parser.add_argument(
        "--only", action="append", choices=MEASURES, help="only this measure; repeatable [default: all three]"
    )
    parser.add_argument(
        "--loops", type=int, default=8, metavar="N", help="places for planted loops in a coding source [default: 8]"
    )
    parser.add_argument(
        "--plants", type=int, default=2, metavar="N", help="outages of each kind and scope in a source [default: 2]"
    )
    parser.add_argument("--markdown", action="store_true", help="tables as Markdown")
    parser.add_argument("--json", action="store_true", help="figures for programs")
    parser.add_argument("--detections", type=int, default=0, metavar="N", help="show N of them and what led to them")
    parser.add_argument(
        "--pattern", type=PatternType, choices=list(PatternType), help="with --detections: of this pattern"
    )
    parser.add_argument(
        "--ended", type=Ending, choices=list(Ending), help="with --detections: of sessions that ended so"
    )
    parser.add_argument("--unread", action="store_true", help="show the detections to read, with rows to fill in")
    parser.add_argument(
        "--silent", type=int, default=0, metavar="N", help="show the end of N failures without an alarm"
    )
    parser.add_argument("--checks", type=int, default=0, metavar="N", help="show N interruptions and what led to them")
    options = parser.parse_args()
    options.traces = options.traces or folders
    options.only = options.only or list(MEASURES)
    return options


def _rules(files: list[str]) -> dict[str, RuleSet]:
    named = {Path(file).stem: load_rules(file) for file in files}
    return named if len(named) > 1 else {SHIPPED: RuleSet(), **named}


if __name__ == "__main__":
    sys.exit(main())
