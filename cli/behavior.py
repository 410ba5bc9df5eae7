"""`trustfold behavior`, `patterns` and `stalls`: what models do with their turns, from their public profiles."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import click

from ..schemas.errors import ConfigError
from .behavior_view import comparison, patterns_table, profiles_table, stalls_table
from .clients.base import Record, Target, target_of, target_options
from .render import console, write_json

MEASURES = ("turns", "stalled_turns", "stall_rate", "nudges_sent", "nudges_effective", "nudge_effectiveness")
"""Numbers that `behavior --compare` sets side by side."""


@click.command()
@target_options
@click.option("--compare", nargs=2, metavar="MODEL MODEL", help="Two models side by side.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
def behavior(
    *, store: str | None, url: str | None, bootstrap: str | None, compare: tuple[str, str] | None, as_json: bool
) -> None:
    """Show how models behave: how often they stall, how, and whether nudges help.

    A turn is stalled if a pattern was seen in it. Asks the store of a local `up`, its address, or Kafka.
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
    """Show in how many of their turns models were stuck, the worst first."""
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
    """Of each pattern: how often in all and per model, and its nudges called wrong; the most frequent first."""
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
    """First minus second; None where one of them has no such number."""
    first, second = (profile.get(name) for profile in profiles)
    return None if first is None or second is None else round(first - second, 4)


def _document(target: Target, **content: Any) -> dict[str, Any]:
    return {"source": target.name, "time": datetime.now(UTC).isoformat(timespec="milliseconds"), **content}
