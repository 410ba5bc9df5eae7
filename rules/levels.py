"""Settings on five levels, resolved: environment > session > workspace > user > default.

See docs/design/semantics.md#settings.

Every level is a patch of the rules, so one mechanism answers both questions: what holds (`layered`), and who says so
(`table`). The default level is the rules file, or the shipped rules. What a level leaves out, or sets to null, it
inherits; an explicit false wins.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Any, NamedTuple

import msgspec

from ..schemas.settings import SettingsOverrides
from .allowed_values import allowed_at, given_at
from .older_shapes import Misfit, moved
from .overlay import Patch, leaves, plain
from .parser import fitted
from .rules import Rules


class Level(StrEnum):
    """Who sets a value, most specific first."""

    ENVIRONMENT = "environment"
    SESSION = "session"
    WORKSPACE = "workspace"
    USER = "user"
    DEFAULT = "default"


Levels = Mapping[Level, SettingsOverrides | None]
"""What each level overrides; a level that is missing or None overrides nothing."""

SETTINGS: dict[str, tuple[str, str]] = {
    "nudge_level": ("nudges", "level"),
    "nudge_enabled": ("nudges", "enabled"),
    "recovery_mode": ("trust", "recovery_mode"),
    "model_switch_strategy": ("models", "strategy"),
    "pattern_detection_enabled": ("behaviour", "enabled"),
}
"""Settings of one value, and where the folds read them; the others are whole tables, `rules` and `policies`."""

NAMES = (*SETTINGS, "rules", "policies")

_SWITCH = "the kill switch is the environment's: TRUSTFOLD_ENABLED"
_CIRCUITS = "circuits are shared by everybody in a workspace; save them for the workspace"
_SHARED = "{} shared by all sessions of a workspace; save it for the workspace, or for the user"

_IDLE = "how long states are kept is for whoever runs trustfold to say: in the rules file"
_OVER_WORKSPACES = "what holds over several workspaces is their user's; save it for the user"

OUT_OF_REACH: dict[Level, dict[str, str]] = {
    Level.WORKSPACE: {"enabled": _SWITCH, "fleet": _OVER_WORKSPACES, "idle": _IDLE},
    Level.USER: {"enabled": _SWITCH, "breakers": _CIRCUITS, "idle": _IDLE},
    Level.SESSION: {
        "enabled": _SWITCH,
        "breakers": _CIRCUITS,
        "trust": _SHARED.format("trust is"),
        "quality": _SHARED.format("the quality of tools is"),
        "fleet": _OVER_WORKSPACES,
        "models": _SHARED.format("what is known of models is"),
        "idle": _IDLE,
    },
}
"""Rules a level may not set, and why: their state is shared with others (docs/decisions/0013)."""

_GENERAL_FIRST = (Level.USER, Level.WORKSPACE, Level.SESSION, Level.ENVIRONMENT)


class Setting(NamedTuple):
    """One effective value.

    Attributes:
        name: of the setting; of single rules and policies the path, `rules.trust.default_rule.count_threshold`.
        value: as a document has it.
        level: who says so.
    """

    name: str
    value: Any
    level: Level


def layered(base: Rules, levels: Levels) -> Rules:
    """The rules that hold under all levels.

    A part of a level that does not fit on what lies below it is passed over: each ladder may rise, and their mixture
    not.
    """
    steps = [rules for _, _, rules in _applied(base, levels)]
    return steps[-1] if steps else base


def table(base: Rules, levels: Levels) -> list[Setting]:
    """Every setting with its effective value and the level that set it; then single rules and policies."""
    rules = base
    said: dict[tuple[str, ...], Level] = {}
    for level, part, after in _applied(base, levels):
        rules = after
        said |= dict.fromkeys(leaves(part), level)
    effective = leaves(plain(rules))
    rows = [Setting(name, effective[path], said.get(path, Level.DEFAULT)) for name, path in SETTINGS.items()]
    named = set(SETTINGS.values())
    rows += [
        Setting(".".join(("rules", *path)), effective[path], level)
        for path, level in sorted(said.items())
        if path not in named and path[0] != "policies" and path in effective
    ]
    for name, policy in sorted(rules.policies.items()):
        level = next((said[path] for path in reversed(said) if path[:2] == ("policies", name)), Level.DEFAULT)
        rows.append(Setting(f"policies.{name}", plain(policy), level))
    return rows


def check(level: Level, overrides: SettingsOverrides, base: Rules) -> None:
    """Refuse overrides that make no rules, or reach for what a level may not set.

    Raises:
        Misfit: with the path in the overrides, and what would be right.
    """
    for name in ("rules", "policies"):
        try:
            part = _parts(overrides)[name]
            for table_name, why in OUT_OF_REACH.get(level, {}).items():
                if table_name in part:
                    raise Misfit((table_name,), why)  # noqa: TRY301 - one place adds where it stands
            fitted(base, part)
        except Misfit as misfit:
            path = misfit.path
            unwritten = path[:1] == ("trust",) and "trust" not in (overrides.rules or {})
            if name == "policies" or unwritten:
                path = path[1:]
            raise Misfit((name, *path), misfit.what) from misfit


def set_by(overrides: SettingsOverrides | None) -> dict[str, Any]:
    """Settings that a level sets, by name; null and what is left out do not count."""
    document: dict[str, Any] = plain(overrides) if overrides is not None else {}
    return {name: value for name, value in document.items() if value is not None}


def changed(overrides: SettingsOverrides | None, changes: Patch) -> SettingsOverrides:
    """Overrides with some settings replaced, or unset (None); the others stay.

    Raises:
        Misfit: a value is not one of the setting's.
    """
    for name, value in changes.items():
        try:
            msgspec.convert({name: value}, SettingsOverrides)
        except msgspec.ValidationError as error:
            allowed = allowed_at((name,), SettingsOverrides)
            what = f"must be {allowed}, not {given_at(value, ())}" if allowed else "there is no such setting"
            raise Misfit((name,), what) from error
    return msgspec.convert({**set_by(overrides), **changes}, SettingsOverrides)


def _applied(base: Rules, levels: Levels) -> Iterator[tuple[Level, Patch, Rules]]:
    """Each part of each level that fits, the most general first, with the rules that it leads to."""
    rules = base
    for level in _GENERAL_FIRST:
        overrides = levels.get(level)
        if overrides is None:
            continue
        for part in _parts_or_none(overrides):
            if not part:
                continue
            try:
                rules = fitted(rules, part)
            except Misfit:
                continue
            yield level, part, rules


def _parts_or_none(overrides: SettingsOverrides) -> tuple[Patch, ...]:
    try:
        return tuple(_parts(overrides).values())
    except Misfit:  # an older spelling that says things twice; the rest still counts
        return tuple(_parts(msgspec.structs.replace(overrides, rules=None)).values())


def _parts(overrides: SettingsOverrides) -> dict[str, dict[str, Any]]:
    """A level's patches: its rules, its policies, then its named settings, which win over its rules.

    Raises:
        Misfit: the rules say something twice.
    """
    named: dict[str, Any] = {}
    for name, (above, field) in SETTINGS.items():
        value = getattr(overrides, name)
        if value is not None:
            named.setdefault(above, {})[field] = value if isinstance(value, bool) else str(value)
    return {
        "rules": moved(overrides.rules or {}),
        "policies": {"policies": overrides.policies} if overrides.policies else {},
        "settings": named,
    }
