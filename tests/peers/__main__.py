"""`python -m tests.peers FILE [--json]`: run a file of cases, from the root of a checkout.

Exit codes: 0 every case passes or is a deviation with its reason, and those are few enough; 1 not so; 2 the file
cannot be read.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from .area import Area
from .breakers import Breakers
from .case import UnknownWord, by_word, known, read_case, read_cases
from .confidence import Confidence
from .guarantees import Guarantees
from .idempotency import Idempotency
from .loops import Behaviour
from .models import Models
from .quality import Quality
from .retries import Retries
from .settings import Settings
from .trust import Trust
from .world import Refused

DEVIATIONS = Path(__file__).with_name("deviations.json")
MAX_DEVIATIONS = 0.05
"""Share of the cases that may be meant otherwise."""

AREAS: dict[str, type[Area]] = by_word(
    {
        "breaker fallback": Breakers,
        "trust failure_key severity permission": Trust,
        "pattern prerequisite loop chanting nudge": Behaviour,
        "model": Models,
        "settings persist config": Settings,
        "quality resilient": Quality,
        "confidence synthesis": Confidence,
        "guarantee": Guarantees,
        "idempotency dedupe": Idempotency,
        "retry backoff": Retries,
    }
)
"""First word of a capability → the area that knows its words."""

_ABSENT = {"llm_check": "a model that judges another: detection here is deterministic"}
_FAULTS = ("the adapter ", "refused: ")
"""Beginnings of what no deviation excuses: the case was not really run."""


class Result(NamedTuple):
    """Verdict on a case: `why` it failed, and why it is meant to (`deviation`); empty if there is no reason."""

    id: str
    passed: bool
    why: str
    deviation: str = ""

    def line(self) -> str:
        if self.passed:
            return f"ok    {self.id}"
        if self.deviation:
            return f"meant {self.id}: {self.why}\n        {self.deviation}"
        return f"FAIL  {self.id}: {self.why}"


def run_all(documents: list[dict[str, Any]], deviations: dict[str, str]) -> Iterator[Result]:
    """Run cases one after another."""
    for document in documents:
        why = run(document)
        excusable = why and not why.startswith(_FAULTS)
        yield Result(str(document.get("id", "?")), not why, why, _deviation(document, deviations) if excusable else "")


def run(document: dict[str, Any]) -> str:
    """Run one case; returns why it fails, empty if it passes."""
    try:
        case = read_case(document)
        if case.area in _ABSENT:
            return f"not there: {_ABSENT[case.area]}"
        area = known(case.area, AREAS, "area")(case)
        area.play()
        if case.unwanted:
            return "" if area.faults(case.unwanted) else f"it has the peer's defect: {case.unwanted!r}"
        if not case.wanted:
            return "nothing to check: the case expects nothing"
        return "; ".join(area.faults(case.wanted))
    except UnknownWord as error:
        return f"the adapter does not know {error}"
    except (Refused, ValueError) as error:
        return f"refused: {error}"
    except Exception as error:  # noqa: BLE001 - one bad case must not keep the others from being run
        return f"the adapter failed: {type(error).__name__}: {error}"


def read_deviations() -> dict[str, str]:
    """Reasons by case id, capability or `area.*`."""
    entries = json.loads(DEVIATIONS.read_text(encoding="utf-8"))["deviations"]
    return {entry.get("id") or entry["capability"]: entry["reason"] for entry in entries}


def _deviation(document: dict[str, Any], deviations: dict[str, str]) -> str:
    capability = str(document.get("capability", ""))
    names = (str(document.get("id")), capability, f"{capability.partition('.')[0]}.*")
    return next((deviations[name] for name in names if name in deviations), "")


def main() -> int:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m tests.peers", description="Run cases of the peer suite.")
    parser.add_argument("file", type=Path, help="cases, in the format of peer-cases.json")
    parser.add_argument("--json", action="store_true", help="one object a line: id, passed, why")
    parser.add_argument("--only", default="", metavar="PREFIX", help="cases whose id begins like this")
    parser.add_argument("--failed", action="store_true", help="show only what does not pass")
    options = parser.parse_args()
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
            print(result.line())
    passed, meant = sum(result.passed for result in results), sum(bool(result.deviation) for result in results)
    failed = len(results) - passed - meant
    too_many = meant > MAX_DEVIATIONS * len(results)
    if not options.json:
        print(f"{passed} of {len(results)} pass, {meant} are meant otherwise, {failed} fail")
        if too_many:
            print(f"{meant} deviations are more than {MAX_DEVIATIONS:.0%} of the cases")
    return 1 if failed or too_many else 0


if __name__ == "__main__":
    sys.exit(main())
