"""The measure as a table for people and as JSON for programs; two sets of rules side by side."""

from __future__ import annotations

from statistics import median
from typing import Any

from quality_measure import Group, Measure
from quality_sessions import Ending
from rich.console import Console
from rich.table import Table

_ORDER = list(Ending)
_NONE = Group()


def as_json(measures: dict[str, Measure], endings: dict[tuple[str, str], Ending]) -> dict[str, Any]:
    """All figures: rules → source → ending."""
    report: dict[str, Any] = {}
    for name, measure in measures.items():
        sources: dict[str, Any] = {}
        for (source, ending), group in sorted(measure.groups(endings).items()):
            sources.setdefault(source, {})[str(ending)] = group.as_json()
        report[name] = {"refused": measure.refused, "sources": sources}
    return report


def show(measures: dict[str, Measure], endings: dict[tuple[str, str], Ending], console: Console) -> None:
    """Print one row per source and ending, a column per set of rules, then the patterns found."""
    found = {name: measure.groups(endings) for name, measure in measures.items()}
    keys = sorted({key for groups in found.values() for key in groups}, key=lambda key: (key[0], _ORDER.index(key[1])))
    console.print(_figures(found, keys))
    console.print(_patterns(found, keys))
    for name, measure in measures.items():
        if measure.refused:
            console.print(f"[red]{name}: {measure.refused} events were refused; they should all be good[/red]")


def _figures(found: dict[str, dict[tuple[str, Ending], Group]], keys: list[tuple[str, Ending]]) -> Table:
    table = Table(title="Alarms: one for each streak that was reported", title_justify="left")
    table.add_column("source")
    table.add_column("ended")
    for column in ("sessions", "calls"):
        table.add_column(column, justify="right")
    for name in found:
        for column in ("alarms", "per 1,000 calls", "caught", "at call"):
            table.add_column(f"{name}\n{column}" if len(found) > 1 else column, justify="right")
    for key in keys:
        groups = [groups.get(key, _NONE) for groups in found.values()]
        cells = [cell for group in groups for cell in _cells(group)]
        table.add_row(key[0], str(key[1]), f"{groups[0].sessions:,}", f"{groups[0].calls:,}", *cells)
    return table


def _cells(group: Group) -> tuple[str, str, str, str]:
    at = f"{median(group.first_calls):g}" if group.first_calls else "–"
    rate = "–" if group.per_thousand is None else f"{group.per_thousand:.2f}"
    share = "–" if group.caught_share is None else f"{group.caught} ({group.caught_share:.1%})"
    return f"{group.alarms:,}", rate, share, at


def _patterns(found: dict[str, dict[tuple[str, Ending], Group]], keys: list[tuple[str, Ending]]) -> Table:
    table = Table(title="By pattern: alarms (sessions that succeeded / failed / unknown)", title_justify="left")
    table.add_column("source")
    table.add_column("pattern")
    for name in found:
        table.add_column(name, justify="right")
    for source in dict.fromkeys(source for source, _ in keys):
        by_rules = [[groups.get((source, ending), _NONE).patterns for ending in _ORDER] for groups in found.values()]
        names = sorted({name for counts in by_rules for count in counts for name in count})
        for pattern in names:
            table.add_row(
                source, pattern, *(" / ".join(str(count[pattern]) for count in counts) for counts in by_rules)
            )
    return table
