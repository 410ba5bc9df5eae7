"""`make bench`: measure trustfold against simpler programs, print a table, write JSON.

Never a test: a figure depends on the machine, a ratio less, and neither on whether a change is right. Adding rows: a
module with a function `measure(options) -> list[Row]`, named in GROUPS.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable

import bench_backlog
import bench_failover
import bench_fold
import bench_guard
import bench_history
import bench_kafka
import bench_keys
import bench_live
import bench_machine
from bench_options import Options, parse, say
from bench_result import CannotMeasure, Report, Row
from bench_table import render

GROUPS: dict[str, Callable[[Options], list[Row]]] = {
    "kafka": bench_kafka.measure,
    "fold": bench_fold.measure,
    "keys": bench_keys.measure,
    "failover": bench_failover.measure,
    "guard": bench_guard.measure,
    "history": bench_history.measure,
    "live": bench_live.measure,
    "backlog": bench_backlog.measure,
}


def main() -> int:
    """Measure what the command line asks for; gives the exit code: 0 all of it was measured, 1 some was not."""
    options, file = parse(sys.argv[1:], tuple(GROUPS))
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)  # topics come and go here; it need not tell
    report = Report(bench_machine.describe(), options.as_json(), judged=not options.quick)
    for name in options.only:
        try:
            report.rows += GROUPS[name](options)
        except CannotMeasure as reason:
            report.skipped[name] = str(reason)
            say(f"{name}: {reason}")
    report.machine["load after"] = bench_machine.load()
    if file is not None:
        file.write_text(json.dumps(report.as_json(), indent=2) + "\n", encoding="utf-8")
    print(render(report))
    return 1 if report.skipped else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
