"""`trustfold behavior`, `patterns` and `stalls`: tables of the models' behavioural profiles."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

import click
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ..errors import ConfigError
from ..schemas.decision_text import plain
from ..schemas.public_state import ModelUpdated, PublicState
from .clients.client import DeploymentClient, StateRecord
from .options import json_option, with_target
from .render import console, write_json
from .terminal import GOOD, QUIET, lined_table, note_unreadable

# Fields that `behavior --compare` shows side by side
MEASURES = ("turns", "stalled_turns", "stall_rate", "nudges_sent", "nudges_effective", "nudge_effectiveness")


def is_profile(state: PublicState) -> bool:
    """True for behavioural profiles; other records about models have no turns."""
    return isinstance(state, ModelUpdated) and state.turns is not None


@click.command()
@with_target
@click.option("--compare", nargs=2, metavar="MODEL MODEL", help="Two models side by side.")
@json_option()
def behavior(*, target: DeploymentClient, compare: tuple[str, str] | None, as_json: bool) -> None:
    """Show how models behave: how often they stall, how, and whether nudges help.

    A turn is stalled if a pattern was detected in it. Reads the store of a local `up`, its address, or Kafka.
    """
    found = _profiles(target)
    if compare:
        found = [_chosen(found, model) for model in compare]
    states = [one.state for one in found]
    if as_json:
        document = _document(target, models=[one.record for one in found])
        if compare:
            document["differences"] = {name: _difference(states[0], states[1], name) for name in MEASURES}
        write_json(document)
    else:
        console().print(comparison(states[0], states[1]) if compare else profiles_table(states))


@click.command()
@with_target
@click.option("--model", metavar="MODEL", help="Only what this model did.")
@json_option()
def patterns(*, target: DeploymentClient, model: str | None, as_json: bool) -> None:
    """Show which patterns were detected, how often, and in which models.

    A streak counts once, however long it lasted and however severe it became.
    """
    found = _profiles(target)
    counts = pattern_counts([one.state for one in ([_chosen(found, model)] if model else found)])
    if as_json:
        found_json = {
            name: {"count": one.total, "models": one.models, "false_alarms": one.false_alarms}
            for name, one in counts.items()
        }
        write_json(_document(target, patterns=found_json))
    else:
        console().print(patterns_table(counts, model))


@click.command()
@with_target
@json_option()
def stalls(*, target: DeploymentClient, as_json: bool) -> None:
    """Show the share of each model's turns that were stuck, the worst first."""
    found = [one.state for one in _profiles(target)]
    found.sort(key=lambda one: (-(one.stall_rate or 0.0), -(one.turns or 0), one.key))
    if as_json:
        names = ("turns", "stalled_turns", "stall_rate", "most_common_pattern")
        rows = [{"model": one.key, **{name: getattr(one, name) for name in names}} for one in found]
        write_json(_document(target, models=rows))
    else:
        console().print(stalls_table(found))


class PatternCount(NamedTuple):
    """Detections of a pattern."""

    total: int  # in all models
    models: dict[str, int]  # by model
    false_alarms: int  # its nudges reported as false alarms


def pattern_counts(profiles: Sequence[ModelUpdated]) -> dict[str, PatternCount]:
    """Counts of each pattern, the most frequent first."""
    names = {name for profile in profiles for name in profile.pattern_counts}
    counts = {}
    for name in names:
        having = [profile for profile in profiles if name in profile.pattern_counts]
        models = {profile.key: profile.pattern_counts[name] for profile in having}
        alarms = sum(profile.false_alarms.get(name, 0) for profile in having)
        counts[name] = PatternCount(sum(models.values()), models, alarms)
    return dict(sorted(counts.items(), key=lambda item: (-item[1].total, item[0])))


def _profiles(target: DeploymentClient) -> list[StateRecord[ModelUpdated]]:
    """Behavioural profiles, by model."""
    overview = target.overview()
    note_unreadable(one for one in overview.records if one.record.get("kind") == "model")
    found = [one for one in overview.of_kind(ModelUpdated) if is_profile(one.state)]
    return sorted(found, key=lambda one: one.state.key)


def _chosen(profiles: Sequence[StateRecord[ModelUpdated]], model: str) -> StateRecord[ModelUpdated]:
    for profile in profiles:
        if profile.state.key == model:
            return profile
    near = difflib.get_close_matches(model, [profile.state.key for profile in profiles], n=1, cutoff=0.4)
    hint = f"did you mean {near[0]!r}?" if near else "`trustfold behavior` lists those that are known"
    raise ConfigError(f"nothing is known of a model {model!r}; {hint}")


def _difference(first: ModelUpdated, second: ModelUpdated, name: str) -> float | None:
    """Difference of two profiles in one field, first minus second; None if either has no such number."""
    one, two = getattr(first, name), getattr(second, name)
    return None if one is None or two is None else round(one - two, 4)


def _document(target: DeploymentClient, **content: Any) -> dict[str, Any]:
    return {"source": target.name, "time": datetime.now(UTC).isoformat(timespec="milliseconds"), **content}


NOTHING = Text(
    "nothing is known of any model yet. A profile needs events that name their `model`, and tells of turns: publish "
    "`turn.started` and `turn.ended` around them",
    QUIET,
)
NO_TURNS = Text("No turn has ended yet: publish `turn.started` and `turn.ended`, or stall rates stay empty.", QUIET)

# Of a comparison: title, field, and whether a larger value is better (1), worse (-1) or neither (0)
_ROWS = (
    ("Turns", "turns", 0),
    ("Stalled turns", "stalled_turns", 0),
    ("Stall rate", "stall_rate", -1),
    ("Nudges", "nudges_sent", 0),
    ("Helped", "nudges_effective", 0),
    ("Nudges that helped", "nudge_effectiveness", 1),
)


def profiles_table(profiles: Sequence[ModelUpdated]) -> RenderableType:
    """Table of profiles, a row for each model."""
    if not profiles:
        return NOTHING
    table = _table("Model", "Turns", "Stalled", "Rate", "Nudges", "Helped", "Most common pattern")
    for one in profiles:
        table.add_row(*_stalled(one), str(one.nudges_sent or 0), share(one.nudge_effectiveness), _most_common(one))
    hint = [] if any(one.turns for one in profiles) else [NO_TURNS]
    return Group(Text("Behavior of models", "bold"), table, *hint)


def comparison(first: ModelUpdated, second: ModelUpdated) -> RenderableType:
    """Table of two models side by side, the better value highlighted, and a table of their patterns."""
    table = _table("", first.key, second.key)
    for title, field, good in _ROWS:
        one, two = getattr(first, field), getattr(second, field)
        ahead = good * ((one or 0) - (two or 0)) if one is not None and two is not None else 0
        show = share if field in {"stall_rate", "nudge_effectiveness"} else _whole
        table.add_row(title, Text(show(one), GOOD if ahead > 0 else ""), Text(show(two), GOOD if ahead < 0 else ""))
    counts = [one.pattern_counts for one in (first, second)]
    for name in sorted(counts[0].keys() | counts[1].keys()):
        table.add_row(Text(plain(name), QUIET), *(str(each.get(name, 0)) for each in counts))
    return Group(Text("Behavior of two models", "bold"), table)


def patterns_table(counts: Mapping[str, PatternCount], model: str | None) -> RenderableType:
    """Table of patterns, the most frequent first."""
    of_whom = f" of {model}" if model else ""
    if not counts:
        return Text(f"no patterns{of_whom} were detected in events that name their model", GOOD)
    table = _table("Pattern", "Times", "False alarms", *(() if model else ("Models",)))
    for name, found in counts.items():
        models = ", ".join(f"{who} {number}" for who, number in sorted(found.models.items()))
        row = [plain(name), str(found.total), str(found.false_alarms or "-")]
        table.add_row(*row, *(() if model else (Text(models),)))
    return Group(Text(f"Patterns{of_whom}", "bold"), table)


def stalls_table(profiles: Sequence[ModelUpdated]) -> RenderableType:
    """Table of stalled turns: a row for each model, and the total."""
    if not profiles:
        return NOTHING
    table = _table("Model", "Turns", "Stalled", "Rate", "Most common pattern")
    for one in profiles:
        table.add_row(*_stalled(one), _most_common(one))
    turns = sum(one.turns or 0 for one in profiles)
    stalled = sum(one.stalled_turns or 0 for one in profiles)
    total = f"{stalled} of {turns} turns stalled ({share(stalled / turns if turns else None)})"
    return Group(Text("Stalled turns", "bold"), table, Text(total, QUIET))


def _stalled(one: ModelUpdated) -> tuple[Text, str, str, str]:
    """Cells for a model's name, turns, stalled turns and stall rate."""
    return Text(one.key), str(one.turns), str(one.stalled_turns or 0), share(one.stall_rate)


def _most_common(one: ModelUpdated) -> str:
    return plain(one.most_common_pattern or "")


def share(value: float | None) -> str:
    """A share as a percentage; a dash for None."""
    return "-" if value is None else f"{value:.0%}"


def _whole(value: int | None) -> str:
    return "-" if value is None else str(value)


def _table(first: str, *others: str) -> Table:
    table = lined_table(first)
    for name in others:
        words = name in {"Most common pattern", "Models"}
        table.add_column(Text(name), overflow="fold", justify="left" if words else "right")
    return table
