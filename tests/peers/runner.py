"""Runs cases and says which pass."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from .area import Area
from .breakers import Breakers
from .case import UnknownWord, known, read_case
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

AREAS: dict[str, type[Area]] = {
    name: area
    for names, area in {
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
    }.items()
    for name in names.split()
}
"""First word of a capability → the area that knows its words."""

_FAULTS = ("the adapter ", "refused: ")
"""Beginnings of what no deviation excuses: the case was not really run."""

_ABSENT = {"llm_check": "a model that judges another: detection here is deterministic"}


class Result(NamedTuple):
    """What came of a case.

    Attributes:
        passed: everything is as wanted.
        why: what is not; empty when it passed.
        deviation: why it is meant to be otherwise; empty where it is not.
    """

    id: str
    passed: bool
    why: str
    deviation: str = ""

    @property
    def good(self) -> bool:
        """Passed, or otherwise on purpose."""
        return self.passed or bool(self.deviation)


def run_all(documents: list[dict[str, Any]], deviations: dict[str, str]) -> Iterator[Result]:
    """Run cases one after another."""
    for document in documents:
        name = str(document.get("id", "?"))
        why = run(document)
        excusable = why and not why.startswith(_FAULTS)
        yield Result(name, not why, why, deviation_of(document, deviations) if excusable else "")


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


def deviation_of(document: dict[str, Any], deviations: dict[str, str]) -> str:
    """Why a case is meant to come out otherwise: by its id, or by a capability the design decides against."""
    capability = str(document.get("capability", ""))
    names = (str(document.get("id")), capability, f"{capability.partition('.')[0]}.*")
    return next((deviations[name] for name in names if name in deviations), "")


def read_deviations(path: Path = DEVIATIONS) -> dict[str, str]:
    """Reasons by case id, capability or `area.*`."""
    entries = json.loads(path.read_text(encoding="utf-8"))["deviations"]
    return {entry.get("id") or entry["capability"]: entry["reason"] for entry in entries}
