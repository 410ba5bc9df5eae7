"""How behavioural profiles look to a person: tables of models, of patterns, of stalls, and two models side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ..schemas.decision_text import plain
from .clients.base import Record
from .styles import GOOD, QUIET

NOTHING = Text(
    "nothing is known of any model yet. A profile needs events that name their `model`, and tells of turns: publish "
    "`turn.started` and `turn.ended` around them",
    QUIET,
)
NO_TURNS = Text("No turn has ended yet: publish `turn.started` and `turn.ended`, or stall rates stay empty.", QUIET)

_ROWS = (
    ("Turns", "turns", 0),
    ("Stalled turns", "stalled_turns", 0),
    ("Stall rate", "stall_rate", -1),
    ("Nudges", "nudges_sent", 0),
    ("Helped", "nudges_effective", 0),
    ("Nudges that helped", "nudge_effectiveness", 1),
)
"""Of a comparison: title, field, and whether more is better (1), worse (-1) or neither."""


def profiles_table(profiles: Sequence[Record]) -> RenderableType:
    """A row for each model."""
    if not profiles:
        return NOTHING
    table = _table("Model", "Turns", "Stalled", "Rate", "Nudges", "Helped", "Most common pattern")
    for one in profiles:
        table.add_row(
            Text(str(one["key"])),
            str(one["turns"]),
            str(one.get("stalled_turns") or 0),
            share(one.get("stall_rate")),
            str(one.get("nudges_sent") or 0),
            share(one.get("nudge_effectiveness")),
            plain(one.get("most_common_pattern") or ""),
        )
    hint = [] if any(one["turns"] for one in profiles) else [NO_TURNS]
    return Group(Text("Behavior of models", "bold"), table, *hint)


def comparison(first: Record, second: Record) -> RenderableType:
    """Two models side by side; what is better is set off, then the patterns of both."""
    table = _table("", str(first["key"]), str(second["key"]))
    for title, field, good in _ROWS:
        one, two = first.get(field), second.get(field)
        ahead = good * ((one or 0) - (two or 0)) if one is not None and two is not None else 0
        show = share if field in {"stall_rate", "nudge_effectiveness"} else _whole
        table.add_row(title, Text(show(one), GOOD if ahead > 0 else ""), Text(show(two), GOOD if ahead < 0 else ""))
    counts = [one.get("pattern_counts") or {} for one in (first, second)]
    for name in sorted(counts[0].keys() | counts[1].keys()):
        table.add_row(Text(plain(name), QUIET), *(str(each.get(name, 0)) for each in counts))
    return Group(Text("Behavior of two models", "bold"), table)


def patterns_table(counts: Mapping[str, Mapping[str, Any]], model: str | None) -> RenderableType:
    """A row for each pattern, most frequent first."""
    of_whom = f" of {model}" if model else ""
    if not counts:
        return Text(f"no patterns{of_whom} were detected", GOOD)
    table = _table("Pattern", "Times", "False alarms", *(() if model else ("Models",)))
    for name, entry in counts.items():
        models = ", ".join(f"{who} {number}" for who, number in sorted(entry["models"].items()))
        row = [plain(name), str(entry["count"]), str(entry["false_alarms"] or "-")]
        table.add_row(*row, *(() if model else (Text(models),)))
    return Group(Text(f"Patterns{of_whom}", "bold"), table)


def stalls_table(profiles: Sequence[Record]) -> RenderableType:
    """A row for each model, and all together."""
    if not profiles:
        return NOTHING
    table = _table("Model", "Turns", "Stalled", "Rate", "Most common pattern")
    for one in profiles:
        table.add_row(
            Text(str(one["key"])),
            str(one["turns"]),
            str(one.get("stalled_turns") or 0),
            share(one.get("stall_rate")),
            plain(one.get("most_common_pattern") or ""),
        )
    turns = sum(one["turns"] for one in profiles)
    stalled = sum(one.get("stalled_turns") or 0 for one in profiles)
    total = f"{stalled} of {turns} turns stalled ({share(stalled / turns if turns else None)})"
    return Group(Text("Stalled turns", "bold"), table, Text(total, QUIET))


def share(value: float | None) -> str:
    """A share as a percentage; a dash where there is none."""
    return "-" if value is None else f"{value:.0%}"


def _whole(value: int | None) -> str:
    return "-" if value is None else str(value)


def _table(first: str, *others: str) -> Table:
    table = Table(box=box.HORIZONTALS, pad_edge=False, header_style="bold")
    table.add_column(Text(first), overflow="fold")
    for name in others:
        words = name in {"Most common pattern", "Models"}
        table.add_column(Text(name), overflow="fold", justify="left" if words else "right")
    return table
