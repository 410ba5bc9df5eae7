"""`make quality`: how good is the detection? Patterns, alarms and silence over recorded runs of real agents.

A developer's measure, not a test: it judges rules, not code. Figures per source and by how sessions ended; two sets of
rules side by side; and, to see what the figures mean, alarms and silent failures with what stands around them.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import quality_examples as examples
import quality_report as report
from quality_measure import Measure
from quality_sessions import TRACES, Ending, Source, endings, sources
from rich.console import Console
from rich.progress import Progress
from trustfold.config import load_rules
from trustfold.errors import ConfigError
from trustfold.schemas.rules import Rules

SHIPPED = "shipped"


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
    with Progress(console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as bar:
        for name, measure in measures.items():
            for source in found:
                size = source.file.stat().st_size // 60  # lines, roughly: they are packed about so well
                task = bar.add_task(f"{name}: {source.name}", total=size)
                measure.run(source, lambda lines, task=task: bar.advance(task, lines))  # type: ignore[misc]
                bar.update(task, completed=size)
    if options.json:
        print(json.dumps(report.as_json(measures, labels), indent=2))
    else:
        report.show(measures, labels, Console(width=max(100, Console().width)))
    last = list(measures.values())[-1]
    if options.alarms:
        _show_alarms(last, labels, found, options.alarms, options.ended)
    if options.silent:
        _show_silent(last, labels, found, options.silent)
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make quality ARGS=…", description="Measure the quality of detection.")
    parser.add_argument("--traces", type=Path, default=TRACES, metavar="DIR", help=f"recorded runs [default: {TRACES}]")
    parser.add_argument("--source", action="append", default=[], metavar="NAME", help="only this source; repeatable")
    parser.add_argument(
        "--rules", action="append", default=[], metavar="FILE",
        help="rules to measure, TOML or JSON: one is compared with the shipped rules, two with each other",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="figures for programs")
    parser.add_argument("--alarms", type=int, default=0, metavar="N", help="show N alarms and what led to them")
    parser.add_argument("--ended", type=Ending, choices=list(Ending), help="with --alarms: of sessions that ended so")
    parser.add_argument(
        "--silent", type=int, default=0, metavar="N", help="show the end of N failures without an alarm"
    )
    return parser.parse_args()


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


if __name__ == "__main__":
    sys.exit(main())
