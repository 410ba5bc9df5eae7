"""`python -m tests.peers FILE [--json]`: run a file of cases, from the root of a checkout.

Exit codes: 0 every case passes or is a deviation with its reason, and those are few enough; 1 not so; 2 the file
cannot be read.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
from pathlib import Path

from .case import read_cases
from .runner import Result, read_deviations, run_all

MAX_DEVIATIONS = 0.05
"""Share of the cases that may be meant otherwise."""


def main(arguments: list[str] | None = None) -> int:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m tests.peers", description="Run cases of the peer suite.")
    parser.add_argument("file", type=Path, help="cases, in the format of peer-cases.json")
    parser.add_argument("--json", action="store_true", help="one object a line: id, passed, why")
    parser.add_argument("--only", default="", metavar="PREFIX", help="cases whose id begins like this")
    parser.add_argument("--failed", action="store_true", help="show only what does not pass")
    options = parser.parse_args(arguments)
    logging.getLogger("trustfold").addHandler(logging.NullHandler())  # the guard's log is not about the cases
    try:
        documents = [one for one in read_cases(options.file) if str(one.get("id", "")).startswith(options.only)]
    except (OSError, ValueError, KeyError) as error:
        print(f"{options.file}: {error}", file=sys.stderr)
        return 2
    results = []
    for result in run_all(documents, read_deviations()):
        results.append(result)
        if options.json:
            print(json.dumps({"id": result.id, "passed": result.passed, "why": result.why or None}))
        elif not (options.failed and result.passed):
            print(_line(result))
    meant = sum(bool(result.deviation) for result in results)
    too_many = meant > MAX_DEVIATIONS * len(results)
    if not options.json:
        print(_total(results, meant))
        if too_many:
            print(f"{meant} deviations are more than {MAX_DEVIATIONS:.0%} of the cases")
    return 0 if all(result.good for result in results) and not too_many else 1


def _line(result: Result) -> str:
    if result.passed:
        return f"ok    {result.id}"
    if result.deviation:
        return f"meant {result.id}: {result.why}\n        {result.deviation}"
    return f"FAIL  {result.id}: {result.why}"


def _total(results: list[Result], meant: int) -> str:
    passed = sum(result.passed for result in results)
    return f"{passed} of {len(results)} pass, {meant} are meant otherwise, {len(results) - passed - meant} fail"


if __name__ == "__main__":
    sys.exit(main())
