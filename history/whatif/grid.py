"""Combinations of thresholds to try: a grid laid over rules, and what counts as an alarm under it."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from itertools import product
from math import prod
from typing import Any

import orjson

from ...rules.older_shapes import Misfit
from ...rules.parser import fitted
from ...rules.rules import BehaviourRules, Ladder, Rules
from ...schemas.errors import ConfigError

MOST = 64
"""Combinations tried at most; each folds everything once."""

DEFAULT_GRID = ("behaviour.repetitive_calls.minor=2,3,4,5,6", "behaviour.error_retry_loop.minor=2,3,4")
"""The two thresholds that decide most."""


class Alarm(StrEnum):
    """What an alarm is, by the part of the rules that is tried."""

    PATTERN = "pattern"
    """A pattern is reported."""

    CALL = "call"
    """A guard asks about a call, or refuses it."""


_ALARMS = {
    "behaviour": Alarm.PATTERN,
    "policies": Alarm.PATTERN,
    "tools": Alarm.PATTERN,
    "calls": Alarm.PATTERN,
    "trust": Alarm.CALL,
    "breakers": Alarm.CALL,
    "fleet": Alarm.CALL,
}
"""Parts of the rules that can be tried."""


def combinations(grid: Sequence[str], rules: Rules) -> list[tuple[dict[str, Any], Rules]]:
    """Every combination of a grid of lines `PATH=V1,V2`, laid over rules.

    Raises:
        ConfigError: a path or a value does not fit, a path is there twice, or there are too many.
    """
    axes: dict[str, list[Any]] = {}
    for line in grid:
        path, _, values = (part.strip() for part in line.partition("="))
        if path in axes:
            raise ConfigError(f"--grid {path} is there twice; give all its values at once: {path}=V1,V2")
        try:
            axes[path] = [orjson.loads(value) for value in dict.fromkeys(values.split(","))]
        except orjson.JSONDecodeError:
            raise ConfigError(f"--grid {line}: give it as PATH=V1,V2, e.g. {DEFAULT_GRID[0]}") from None
    count = prod(map(len, axes.values()))
    if count > MOST:
        raise ConfigError(f"the grid has {count} combinations, at most {MOST} are tried; name fewer values")
    found = [dict(zip(axes, chosen, strict=True)) for chosen in product(*axes.values())]
    return [(values, _with(rules, values)) for values in found]


def _with(rules: Rules, values: dict[str, Any]) -> Rules:
    for path, value in values.items():
        *above, name = path.split(".")
        patch: dict[str, Any] = {name: value}
        ladder = held_at(rules, above)
        if isinstance(ladder, Ladder) and name == "minor" and type(value) is int:
            # The steps must rise: the others keep their distance.
            moved = value - ladder.minor
            patch |= {"moderate": ladder.moderate + moved, "severe": ladder.severe + moved}
        for step in reversed(above):
            patch = {step: patch}
        try:
            rules = fitted(rules, patch)
        except Misfit as misfit:
            raise ConfigError(f"--grid {misfit}") from misfit
    return rules


def held_at(rules: Any, steps: Sequence[str]) -> Any:
    """What the rules hold at a path; None where there is nothing."""
    for step in steps:
        rules = rules.get(step) if isinstance(rules, dict) else getattr(rules, step, None)
    return rules


_SEEN_BY = {
    "poll_no_progress": "repetitive_calls",
    "read_only_cap": "read_only_loop",
    "error_retry_by_tool": "error_retry_loop",
}
"""Thresholds that are a second way to see a pattern."""

_LADDERS = frozenset(
    name for name, kind in BehaviourRules.__annotations__.items() if str(kind) == "Ladder" and name not in _SEEN_BY
)


def alarm_of(grid: Sequence[str]) -> Alarm:
    """What an alarm is for a grid.

    Raises:
        ConfigError: nothing here measures a part of it, or its parts are measured in different ways.
    """
    parts = dict.fromkeys(line.partition("=")[0].strip().partition(".")[0] for line in grid)
    unmeasured = [part for part in parts if part not in _ALARMS]
    if unmeasured:
        raise ConfigError(
            f"--grid {unmeasured[0]}: nothing here measures what it does; these can be tried: {', '.join(_ALARMS)}"
        )
    found = {_ALARMS[part] for part in parts}
    if len(found) > 1:
        raise ConfigError(
            f"--grid {' and '.join(parts)}: what these rules do is measured in different ways, and neither changes "
            "what the other does; search them one after the other"
        )
    return found.pop()


def patterns_of(grid: Sequence[str]) -> frozenset[str]:
    """Patterns that a grid of behaviour is about, for what other detectors say stays the same; empty: all of them."""
    paths = [line.partition("=")[0].strip().split(".") for line in grid]
    if any(path[0] != "behaviour" for path in paths):
        return frozenset()
    found = {_SEEN_BY.get(name, name) for name in (path[1] if len(path) > 1 else "" for path in paths)}
    return frozenset(found) if found <= _LADDERS else frozenset()
