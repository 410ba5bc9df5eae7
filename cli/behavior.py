"""`trustfold behavior`, `patterns` and `stalls`: tables of the models' behavioural profiles."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import click
from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ..errors import ConfigError
from ..schemas.decision_text import plain
from .clients.base import Record, Target
from .clients.selection import target_of, target_options
from .render import console, write_json
from .terminal import GOOD, QUIET

MEASURES = ("turns", "stalled_turns", "stall_rate", "nudges_sent", "nudges_effective", "nudge_effectiveness")
"""Models that `behavior --compare` shows side by side."""


@click.command()
@target_options
@click.option("--compare", nargs=2, metavar="MODEL MODEL", help="Two models side by side.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
def behavior(
    *, store: str | None, url: str | None, bootstrap: str | None, compare: tuple[str, str] | None, as_json: bool
) -> None:
    """Show how models behave: how often they stall, how, and whether nudges help.

    A turn is stalled if a pattern was detected in it. Reads the store of a local `up`, its address, or Kafka.
    """
    target = target_of(store, url, bootstrap)
    found = _profiles(target)
    if compare:
        found = [_chosen(found, model) for model in compare]
    if as_json:
        document = _document(target, models=found)
        if compare:
            document["differences"] = {name: _difference(found, name) for name in MEASURES}
        write_json(document)
    else:
        console().print(comparison(found[0], found[1]) if compare else profiles_table(found))


@click.command()
@target_options
@click.option("--model", metavar="MODEL", help="Only what this model did.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
def patterns(*, store: str | None, url: str | None, bootstrap: str | None, model: str | None, as_json: bool) -> None:
    """Show which patterns were detected, how often, and in which models.

    A streak counts once, however long it lasted and however severe it became.
    """
    target = target_of(store, url, bootstrap)
    found = _profiles(target)
    counts = pattern_counts([_chosen(found, model)] if model else found)
    if as_json:
        write_json(_document(target, patterns=counts))
    else:
        console().print(patterns_table(counts, model))


@click.command()
@target_options
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
def stalls(*, store: str | None, url: str | None, bootstrap: str | None, as_json: bool) -> None:
    """Show the share of each model's turns that were stuck, the worst first."""
    target = target_of(store, url, bootstrap)
    found = sorted(_profiles(target), key=lambda one: (-(one.get("stall_rate") or 0.0), -one["turns"], one["key"]))
    if as_json:
        names = ("turns", "stalled_turns", "stall_rate", "most_common_pattern")
        write_json(
            _document(
                target, models=[{"model": one["key"], **{name: one.get(name) for name in names}} for one in found]
            )
        )
    else:
        console().print(stalls_table(found))


def pattern_counts(profiles: Sequence[Record]) -> dict[str, dict[str, Any]]:
    """Counts of each pattern in all and per model, and its nudges reported as false alarms, the most frequent first."""
    counts: dict[str, dict[str, Any]] = {}
    for profile in profiles:
        alarms = profile.get("false_alarms") or {}
        for name, number in (profile.get("pattern_counts") or {}).items():
            entry = counts.setdefault(name, {"count": 0, "models": {}, "false_alarms": 0})
            entry["count"] += number
            entry["models"][profile["key"]] = number
            entry["false_alarms"] += alarms.get(name, 0)
    return dict(sorted(counts.items(), key=lambda item: (-item[1]["count"], item[0])))


def _profiles(target: Target) -> list[Record]:
    """Behavioural profiles, by model; other records about models have no turns."""
    states = target.overview().states
    found = [state for state in states if state["kind"] == "model" and state.get("turns") is not None]
    return sorted(found, key=lambda one: str(one["key"]))


def _chosen(profiles: Sequence[Record], model: str) -> Record:
    for profile in profiles:
        if profile["key"] == model:
            return profile
    known = [str(profile["key"]) for profile in profiles]
    near = difflib.get_close_matches(model, known, n=1, cutoff=0.4)
    hint = f"did you mean {near[0]!r}?" if near else "`trustfold behavior` lists those that are known"
    raise ConfigError(f"nothing is known of a model {model!r}; {hint}")


def _difference(profiles: Sequence[Record], name: str) -> float | None:
    """Difference of two profiles in one field, first minus second; None if either has no such number."""
    first, second = (profile.get(name) for profile in profiles)
    return None if first is None or second is None else round(first - second, 4)


def _document(target: Target, **content: Any) -> dict[str, Any]:
    return {"source": target.name, "time": datetime.now(UTC).isoformat(timespec="milliseconds"), **content}


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
"""Of a comparison: title, field, and whether a larger value is better (1), worse (-1) or neither (0)."""


def profiles_table(profiles: Sequence[Record]) -> RenderableType:
    """Table of profiles, a row for each model."""
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
    """Table of two models side by side, the better value highlighted, and a table of their patterns."""
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
    """Table of patterns, the most frequent first."""
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
    """Table of stalled turns: a row for each model, and the total."""
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
    """A share as a percentage; a dash for None."""
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
