"""Resolves the five levels of settings: environment > session > workspace > user > default.

See docs/design/semantics.md#settings.

Every level is a patch of the rules, so one mechanism returns both the effective values (`layered`) and their sources
(`table`). The default level is the rules file, or the shipped rules. Values that a level omits or sets to null are
inherited; an explicit false wins.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Any, NamedTuple

import msgspec

from ..schemas.settings import SettingsOverrides
from .allowed_values import allowed_at, given_at
from .merging import Patch, leaves, plain
from .older_shapes import RulesMisfit, moved
from .parser import overlaid
from .rules import RuleSet


class SettingLevel(StrEnum):
    """Level of settings, most specific first."""

    ENVIRONMENT = "environment"
    SESSION = "session"
    WORKSPACE = "workspace"
    USER = "user"
    DEFAULT = "default"


Levels = Mapping[SettingLevel, SettingsOverrides | None]
"""Overrides by level; a missing level or None overrides nothing."""

SETTINGS: dict[str, tuple[str, str]] = {
    "nudge_level": ("nudges", "level"),
    "nudge_enabled": ("nudges", "enabled"),
    "recovery_mode": ("trust", "recovery_mode"),
    "model_switch_strategy": ("models", "strategy"),
    "pattern_detection_enabled": ("behaviour", "enabled"),
}
"""Settings of one value with their paths in the rules; the others are whole tables, `rules` and `policies`."""

NAMES = (*SETTINGS, "rules", "policies")

_SWITCH = "the kill switch is the environment's: TRUSTFOLD_ENABLED"
_CIRCUITS = "circuits are shared by everybody in a workspace; save them for the workspace"
_SHARED = "{} shared by all sessions of a workspace; save it for the workspace, or for the user"

_IDLE = "how long states are kept is for whoever runs trustfold to say: in the rules file"
_OVER_WORKSPACES = "what holds over several workspaces is their user's; save it for the user"

OUT_OF_REACH: dict[SettingLevel, dict[str, str]] = {
    SettingLevel.WORKSPACE: {"enabled": _SWITCH, "fleet": _OVER_WORKSPACES, "idle": _IDLE},
    SettingLevel.USER: {"enabled": _SWITCH, "breakers": _CIRCUITS, "idle": _IDLE},
    SettingLevel.SESSION: {
        "enabled": _SWITCH,
        "breakers": _CIRCUITS,
        "trust": _SHARED.format("trust is"),
        "quality": _SHARED.format("the quality of tools is"),
        "fleet": _OVER_WORKSPACES,
        "models": _SHARED.format("what is known of models is"),
        "idle": _IDLE,
    },
}
"""Rules a level may not set, with the reason: their state is shared with others (docs/subsystems/folds.md)."""

_GENERAL_FIRST = (SettingLevel.USER, SettingLevel.WORKSPACE, SettingLevel.SESSION, SettingLevel.ENVIRONMENT)


class EffectiveSetting(NamedTuple):
    """Effective value of a setting.

    Attributes:
        name: name of the setting; for single rules and policies the path, `rules.trust.default_rule.count_threshold`.
        value: value as in a document.
        level: level that sets it.
    """

    name: str
    value: Any
    level: SettingLevel


def layered(base: RuleSet, levels: Levels) -> RuleSet:
    """Return the effective rules of all levels.

    A part of a level that is invalid in combination with the levels below is skipped: two rising ladders may combine to
    one that does not rise.
    """
    steps = [rules for _, _, rules in _applied(base, levels)]
    return steps[-1] if steps else base


def table(base: RuleSet, levels: Levels) -> list[EffectiveSetting]:
    """Return every setting with its effective value and the level that set it; then single rules and policies."""
    rules = base
    said: dict[tuple[str, ...], SettingLevel] = {}
    for level, part, after in _applied(base, levels):
        rules = after
        said |= dict.fromkeys(leaves(part), level)
    effective = leaves(plain(rules))
    rows = [
        EffectiveSetting(name, effective[path], said.get(path, SettingLevel.DEFAULT)) for name, path in SETTINGS.items()
    ]
    named = set(SETTINGS.values())
    rows += [
        EffectiveSetting(".".join(("rules", *path)), effective[path], level)
        for path, level in sorted(said.items())
        if path not in named and path[0] != "policies" and path in effective
    ]
    for name, policy in sorted(rules.policies.items()):
        level = next((said[path] for path in reversed(said) if path[:2] == ("policies", name)), SettingLevel.DEFAULT)
        rows.append(EffectiveSetting(f"policies.{name}", plain(policy), level))
    return rows


def check(level: SettingLevel, overrides: SettingsOverrides, base: RuleSet) -> None:
    """Reject overrides that are invalid rules, or that the level may not set."""
    for name in ("rules", "policies"):
        try:
            part = _parts(overrides)[name]
            for table_name, why in OUT_OF_REACH.get(level, {}).items():
                if table_name in part:
                    raise RulesMisfit((table_name,), why)  # noqa: TRY301 - one place adds where it stands
            overlaid(base, part)
        except RulesMisfit as misfit:
            path = misfit.path
            unwritten = path[:1] == ("trust",) and "trust" not in (overrides.rules or {})
            if name == "policies" or unwritten:
                path = path[1:]
            raise RulesMisfit((name, *path), misfit.what) from misfit


def set_by(overrides: SettingsOverrides | None) -> dict[str, Any]:
    """Return the settings that a level sets, by name; null and missing ones are left out."""
    document: dict[str, Any] = plain(overrides) if overrides is not None else {}
    return {name: value for name, value in document.items() if value is not None}


def changed(overrides: SettingsOverrides | None, changes: Patch) -> SettingsOverrides:
    """Return overrides with some settings replaced, or unset (None); the others are unchanged."""
    for name, value in changes.items():
        try:
            msgspec.convert({name: value}, SettingsOverrides)
        except msgspec.ValidationError as error:
            allowed = allowed_at((name,), SettingsOverrides)
            what = f"must be {allowed}, not {given_at(value, ())}" if allowed else "there is no such setting"
            raise RulesMisfit((name,), what) from error
    return msgspec.convert({**set_by(overrides), **changes}, SettingsOverrides)


def _applied(base: RuleSet, levels: Levels) -> Iterator[tuple[SettingLevel, Patch, RuleSet]]:
    """Yield each valid part of each level, the most general first, with the resulting rules."""
    rules = base
    for level in _GENERAL_FIRST:
        overrides = levels.get(level)
        if overrides is None:
            continue
        for part in _parts_or_none(overrides):
            if not part:
                continue
            try:
                rules = overlaid(rules, part)
            except RulesMisfit:
                continue
            yield level, part, rules


def _parts_or_none(overrides: SettingsOverrides) -> tuple[Patch, ...]:
    try:
        return tuple(_parts(overrides).values())
    except RulesMisfit:  # an older spelling that sets a value twice; the rest still counts
        return tuple(_parts(msgspec.structs.replace(overrides, rules=None)).values())


def _parts(overrides: SettingsOverrides) -> dict[str, dict[str, Any]]:
    """Return a level's patches: its rules, its policies, then its named settings, which win over its rules.

    Raises:
        RulesMisfit: the rules set a value twice.
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
