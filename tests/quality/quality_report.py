"""Figures of a run as tables and as JSON: what is said in each source, beside how its sessions ended; precision."""

from __future__ import annotations

from collections import Counter
from statistics import median
from typing import Any, NamedTuple

import quality_loops as loops
import quality_outage_figures as outages
from quality_measure import Detection, Measured, Session
from quality_outages import Outage
from quality_sessions import Ending, Labels
from quality_tables import Grid
from quality_verdicts import FALSE, RIGHT, USELESS, Judged
from trustfold.cli.checks import GuardVerdict
from trustfold.schemas.vocabulary import NudgeType

KEYS_SHOWN = 5

SOURCES = (
    "source", "sessions", "calls", "detections", "patterns", "gentle", "direct", "pauses", "told to a person",
    "asked", "refused", "nudges per 1,000", "pauses per 1,000", "asks per 1,000",
)  # fmt: skip
LABELLED = (
    "source",
    "succeeded",
    "alarmed",
    "alarmed share",
    "failed",
    "caught",
    "caught share",
    "of at least 5 calls",
    "at call",
)
PRECISION = ("pattern", RIGHT, USELESS, FALSE, "right of all")
LOOPS = ("planted loop", "planted", "told", "at call", "at latest", "paused", "said by")


class Run(NamedTuple):
    """Everything that was measured under one set of rules."""

    measured: list[Measured]
    loops: list[loops.Loop]
    outages: list[Outage]


def as_json(run: Run, labels: Labels, judged: Judged) -> dict[str, Any]:
    """All figures; every planted outage by itself and in sum."""
    return {
        "refused": sum(one.refused for one in run.measured),
        "sources": {one.source: _source(one) for one in run.measured},
        "labelled": {one.source: _labelled([one], labels) for one in run.measured if _is_labelled(one, labels)},
        "labelled_in_all": _labelled(run.measured, labels),
        "precision": {pattern: dict(counts) for pattern, counts in judged.precision.items()},
        "no_longer_detected": judged.gone,
        "unread": len(judged.unread),
        "loops": loops.as_json(run.loops),
        **outages.as_json(run.outages),
    }


def grids(run: Run, labels: Labels, judged: Judged) -> list[Grid]:
    """Tables of all that was measured."""
    found = []
    if run.measured:
        found.append(Grid("What is said", SOURCES, [_source_cells(one) for one in run.measured]))
        labelled = [[one.source, *_labelled_cells([one], labels)] for one in run.measured if _is_labelled(one, labels)]
        if labelled:
            every = ["all", *_labelled_cells(run.measured, labels)]
            found.append(Grid("Beside how sessions ended", LABELLED, [*labelled, every]))
    if judged.known:
        found.append(Grid("Detections read by eye", PRECISION, _precision(judged)))
    if run.loops:
        found.append(Grid("Planted loops", LOOPS, _loop_rows(run.loops)))
    return found + outages.grids(run.outages)


def _source(one: Measured) -> dict[str, Any]:
    rates = {
        "nudges": one.nudges.total(),
        "pauses": one.pauses,
        "told": one.told,
        "asked": one.verdicts[GuardVerdict.ASK],
        "refused": _refused(one),
    }
    return {
        "sessions": len(one.sessions),
        "calls": one.calls,
        "detections": len(one.detections),
        "patterns": dict(one.patterns.most_common()),
        "nudges": {str(kind): one.nudges[kind] for kind in NudgeType},
        "told": one.told,
        "checks": {str(verdict): one.verdicts[verdict] for verdict in GuardVerdict},
        "keys": dict(one.keys.most_common()),
        "per_1000_calls": {name: 1000 * count / one.calls if one.calls else None for name, count in rates.items()},
    }


def _refused(one: Measured) -> int:
    return one.verdicts[GuardVerdict.DENY] + one.verdicts[GuardVerdict.CIRCUIT_OPEN]


def _source_cells(one: Measured) -> list[str]:
    patterns = ", ".join(f"{name} {count:,}" for name, count in one.patterns.most_common())
    asks = one.verdicts[GuardVerdict.ASK] + _refused(one)
    counts = (
        one.nudges[NudgeType.GENTLE], one.nudges[NudgeType.DIRECT], one.pauses, one.told,
        one.verdicts[GuardVerdict.ASK], _refused(one),
    )  # fmt: skip
    rates = [f"{1000 * count / max(1, one.calls):.2f}" for count in (one.nudges.total(), one.pauses, asks)]
    head = [one.source, f"{len(one.sessions):,}", f"{one.calls:,}", f"{len(one.detections):,}", patterns]
    return [*head, *(f"{count:,}" for count in counts), *rates]


def _is_labelled(one: Measured, labels: Labels) -> bool:
    return any(labels.ending(one.source, name) is not Ending.UNKNOWN for name in one.sessions)


def _labelled(measured: list[Measured], labels: Labels) -> dict[str, Any]:
    by_ending: dict[Ending, list[Session]] = {ending: [] for ending in Ending}
    for one in measured:
        for name, session in one.sessions.items():
            by_ending[labels.ending(one.source, name)].append(session)
    good, bad = by_ending[Ending.SUCCEEDED], by_ending[Ending.FAILED]
    long = [session for session in bad if session.calls >= 5]
    first = [session.alarms[0].call for session in bad if session.alarms]
    return {
        "succeeded": len(good),
        "alarmed": _alarmed(good),
        "failed": len(bad),
        "caught": _alarmed(bad),
        "failed_of_5_calls": len(long),
        "caught_of_5_calls": _alarmed(long),
        "median_call_caught": median(first) if first else None,
        "alarms_in_succeeded": dict(Counter(alarm.pattern for session in good for alarm in session.alarms)),
    }


def _alarmed(sessions: list[Session]) -> int:
    return sum(bool(session.alarms) for session in sessions)


def _labelled_cells(measured: list[Measured], labels: Labels) -> list[str]:
    figures = _labelled(measured, labels)
    at = figures["median_call_caught"]
    return [
        f"{figures['succeeded']:,}",
        f"{figures['alarmed']:,}",
        _share(figures["alarmed"], figures["succeeded"]),
        f"{figures['failed']:,}",
        f"{figures['caught']:,}",
        _share(figures["caught"], figures["failed"]),
        _share(figures["caught_of_5_calls"], figures["failed_of_5_calls"]),
        "–" if at is None else f"{at:g}",
    ]


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.1%}" if whole else "–"


def _precision(judged: Judged) -> list[list[str]]:
    rows = [[pattern, *_verdict_cells(counts)] for pattern, counts in judged.precision.items()]
    return [*rows, ["all", *_verdict_cells(sum(judged.precision.values(), Counter()))]]


def _verdict_cells(counts: Counter[str]) -> list[str]:
    return [*(str(counts[verdict]) for verdict in (RIGHT, USELESS, FALSE)), _share(counts[RIGHT], counts.total())]


def _loop_rows(found: list[loops.Loop]) -> list[list[str]]:
    rows = []
    for kind, figures in loops.as_json(found).items():
        at, latest = figures["median_call"], figures["latest_call"]
        rows.append(
            [
                kind if figures["stuck"] else f"healthy: {kind}",
                str(figures["planted"]),
                str(figures["told"]),
                "–" if at is None else f"{at:g}",
                "–" if latest is None else str(latest),
                str(figures["paused"]),
                ", ".join(figures["patterns"]),
            ]
        )
    return rows


def headline(one: Detection, ending: Ending) -> str:
    """A detection in one line."""
    return (
        f"{one.source} {one.session} ({ending}): {one.pattern} {one.severity} × {one.repetitions}"
        f" at call {one.call}{', paused' if one.paused else ''}"
    )
