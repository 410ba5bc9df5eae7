"""Runs cases and says which pass."""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from .area import Area
from .case import Case, NotThere, UnknownWord, read_case
from .world import Refused

DEVIATIONS = Path(__file__).with_name("deviations.json")

AREAS = {
    "breaker": ("breakers", "Breakers"),
    "trust": ("trust", "Trust"),
    "failure_key": ("trust", "Trust"),
    "severity": ("trust", "Trust"),
    "pattern": ("behaviour", "Behaviour"),
    "prerequisite": ("behaviour", "Behaviour"),
    "loop": ("behaviour", "Behaviour"),
    "chanting": ("behaviour", "Behaviour"),
    "nudge": ("behaviour", "Behaviour"),
    "model": ("models", "Models"),
    "settings": ("settings", "Settings"),
    "persist": ("settings", "Settings"),
    "config": ("settings", "Settings"),
    "quality": ("quality", "Quality"),
    "confidence": ("confidence", "Confidence"),
    "synthesis": ("confidence", "Confidence"),
    "guarantee": ("guarantees", "Guarantees"),
    "idempotency": ("idempotency", "Idempotency"),
    "dedupe": ("idempotency", "Idempotency"),
    "retry": ("retries", "Retries"),
    "backoff": ("retries", "Retries"),
    "fallback": ("breakers", "Breakers"),
    "permission": ("trust", "Trust"),
    "resilient": ("quality", "Quality"),
}
"""First word of a capability → module and class that know its words."""

_FAULTS = ("the adapter ", "refused: ")
"""Beginnings of what no deviation excuses: the case was not really run."""

_ABSENT = {
    "llm_check": "a model that judges another: detection here is deterministic",
}


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
        area = area_of(case)
        area.play()
        if case.unwanted:
            return "" if area.faults(case.unwanted) else f"it has the peer's defect: {case.unwanted!r}"
        if not case.wanted:
            return "nothing to check: the case expects nothing"
        return "; ".join(area.faults(case.wanted))
    except UnknownWord as error:
        return f"the adapter does not know {error}"
    except NotThere as error:
        return f"not there: {error}"
    except (Refused, ValueError) as error:
        return f"refused: {error}"
    except Exception as error:  # noqa: BLE001 - one bad case must not keep the others from being run
        return f"the adapter failed: {type(error).__name__}: {error}"


def area_of(case: Case) -> Area:
    """The area that knows a case's words, with the config read.

    Raises:
        NotThere: trustfold has no such part.
        UnknownWord: nobody knows the area.
    """
    if case.area in _ABSENT:
        raise NotThere(_ABSENT[case.area])
    if case.area not in AREAS:
        raise UnknownWord(f"area {case.area!r}")
    module, name = AREAS[case.area]
    try:
        found = importlib.import_module(f".{module}", __package__)
    except ImportError as error:
        raise NotThere(str(error)) from error
    made: Area = getattr(found, name)(case)
    return made


def deviation_of(document: dict[str, Any], deviations: dict[str, str]) -> str:
    """Why a case is meant to come out otherwise: by its id, or by a capability the design decides against."""
    capability = str(document.get("capability", ""))
    for name in (str(document.get("id")), capability, f"{capability.partition('.')[0]}.*"):
        if name in deviations:
            return deviations[name]
    return ""


def read_deviations(path: Path = DEVIATIONS) -> dict[str, str]:
    """Reasons by case id, capability or `area.*`."""
    if not path.exists():
        return {}
    entries = json.loads(path.read_text(encoding="utf-8"))["deviations"]
    return {entry.get("id") or entry["capability"]: entry["reason"] for entry in entries}
