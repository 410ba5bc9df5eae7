"""Planted outages as tables and as JSON: figures by kind and scope, and by source."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from statistics import median
from typing import Any

from quality_outages import Back, Outage
from quality_tables import Grid


def as_json(outages: list[Outage]) -> dict[str, Any]:
    """Every planted outage by itself, and all in sum."""
    return {"outages": [outage.as_json() for outage in outages], "outages_in_all": _sums(outages)}


def grids(outages: list[Outage]) -> list[Grid]:
    """Outages by kind and scope, and by source; none without outages."""
    if not outages:
        return []
    kinds = _grouped(outages, lambda outage: (outage.kind, str(outage.scope)))
    sources = _grouped(outages, lambda outage: (outage.source,))
    return [
        Grid("Planted outages, by what fails", ("outage", "scope", *_FIGURES), kinds),
        Grid("Planted outages, by source", ("source", *_FIGURES), sources),
    ]


_FIGURES = (
    "planted",
    "caught",
    "calls until",
    "by trust",
    "by a circuit",
    "most of a key",
    "in time",
    "others hit",
    "back",
    "successes too many",
)


def _grouped(outages: list[Outage], group: Callable[[Outage], tuple[str, ...]]) -> list[list[str]]:
    groups: dict[tuple[str, ...], list[Outage]] = {}
    for outage in outages:
        groups.setdefault(group(outage), []).append(outage)
    width = len(next(iter(groups)))
    return [
        *([*key, *_cells(members)] for key, members in groups.items()),
        ["all", *[""] * (width - 1), *_cells(outages)],
    ]


def _cells(outages: list[Outage]) -> list[str]:
    sums = _sums(outages)
    fresh = sums["fresh"]
    seen = sums["back"] + sums["stuck"]
    share = f" ({sums['hit'] / sums['others']:.2%})" if sums["others"] else ""
    return [
        f"{sums['planted']}" + (f" ({sums['planted'] - fresh} held before)" if sums["planted"] > fresh else ""),
        f"{sums['caught']} of {fresh}",
        _spread(sums["calls"]),
        _spread(sums["trust_calls"]),
        _spread(sums["circuit_calls"]),
        f"{sums['worst_key']}" if fresh else "–",
        f"{sums['in_time']} of {fresh}",
        f"{sums['hit']:,} of {sums['others']:,}{share}",
        f"{sums['back']} of {seen}" if seen else "–",
        _spread(sums["extra_successes"]),
    ]


def _spread(values: list[int]) -> str:
    return f"{median(values):g}, ≤ {max(values)}" if values else "–"


def _sums(outages: Iterable[Outage]) -> dict[str, Any]:
    """Figures of a group. Of outages of what was held already nothing says when they would have been caught."""
    found = list(outages)
    fresh = [outage for outage in found if not outage.held_before]
    return {
        "planted": len(found),
        "fresh": len(fresh),
        "caught": sum(outage.calls is not None for outage in fresh),
        "in_time": sum(outage.in_time for outage in fresh),
        "calls": [outage.calls for outage in fresh if outage.calls is not None],
        "trust_calls": [outage.trust_calls for outage in fresh if outage.trust_calls is not None],
        "circuit_calls": [outage.circuit_calls for outage in fresh if outage.circuit_calls is not None],
        "worst_key": max((outage.worst_key for outage in fresh), default=0),
        "others": sum(outage.others for outage in found),
        "hit": sum(outage.hit for outage in found),
        "hit_keys": _hit_keys(found),
        **{str(state): sum(outage.back is state for outage in found) for state in Back},
        "extra_successes": [max(0, outage.extra_successes) for outage in found if outage.extra_successes is not None],
    }


def _hit_keys(outages: list[Outage]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for key, count in (pair for outage in outages for pair in outage.hit_keys.items()):
        counts[key] = counts.get(key, 0) + count
    return dict(sorted(counts.items(), key=lambda pair: -pair[1]))
