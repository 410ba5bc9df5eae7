"""Settings on five levels: who wins, who is named as the source, what a level may set at all."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from trustfold.rules.levels import NAMES, SETTINGS, SettingLevel, changed, check, layered, set_by, table
from trustfold.rules.merging import plain
from trustfold.rules.older_shapes import RulesMisfit
from trustfold.rules.rules import EscalationPatch, PrerequisitePolicy, RuleSet, SeverityLadder
from trustfold.schemas.settings import SettingsOverrides
from trustfold.schemas.vocabulary import ModelSwitchStrategy, NudgeLevel, RecoveryMode

SPECIFIC_FIRST = (SettingLevel.ENVIRONMENT, SettingLevel.SESSION, SettingLevel.WORKSPACE, SettingLevel.USER)
VALUES: dict[str, tuple[Any, ...]] = {
    "nudge_level": tuple(NudgeLevel),
    "nudge_enabled": (True, False),
    "recovery_mode": tuple(RecoveryMode),
    "model_switch_strategy": tuple(ModelSwitchStrategy),
    "pattern_detection_enabled": (True, False),
}


def effective(
    levels: Mapping[SettingLevel, SettingsOverrides | None], base: RuleSet | None = None
) -> dict[str, tuple[Any, str]]:
    """Every setting of one value: value and source."""
    return {row.name: (row.value, str(row.level)) for row in table(base or RuleSet(), levels) if row.name in SETTINGS}


@st.composite
def overrides(draw: st.DrawFn) -> SettingsOverrides | None:
    """What one level sets: any of the settings, any of them explicitly null, or nothing at all."""
    chosen = {name: draw(st.sampled_from((None, None, *values))) for name, values in VALUES.items()}
    return draw(st.sampled_from((None, SettingsOverrides(**chosen))))


@given(st.fixed_dictionaries({level: overrides() for level in SPECIFIC_FIRST}))
def test_the_most_specific_level_that_sets_a_value_wins(levels: dict[SettingLevel, SettingsOverrides | None]) -> None:
    """For every setting and every combination of levels: the first that sets it, with its name; else the default."""
    found = effective(levels)
    for name, (above, field) in SETTINGS.items():
        setters = [(getattr(levels[level], name, None), level) for level in SPECIFIC_FIRST]
        default = (getattr(getattr(RuleSet(), above), field), SettingLevel.DEFAULT)
        value, source = next((one for one in setters if one[0] is not None), default)
        assert found[name] == (value, str(source))
        assert getattr(getattr(layered(RuleSet(), levels), above), field) == value


@pytest.mark.parametrize("name", VALUES)
def test_every_value_can_stand_on_every_level(name: str) -> None:
    """Each value of each setting, set on one level alone, is in effect, with that level as its source."""
    for level in SPECIFIC_FIRST:
        for value in VALUES[name]:
            assert effective({level: SettingsOverrides(**{name: value})})[name] == (value, str(level))


def test_an_explicit_false_wins_and_null_inherits() -> None:
    """A workspace that says false is not overruled by a session that says nothing, nor by one that says null."""
    said = SettingsOverrides(nudge_enabled=False)
    assert effective({SettingLevel.WORKSPACE: said})["nudge_enabled"] == (False, "workspace")
    null = SettingsOverrides(nudge_enabled=None, nudge_level=NudgeLevel.GENTLE)
    assert effective({SettingLevel.WORKSPACE: said, SettingLevel.SESSION: null})["nudge_enabled"] == (
        False,
        "workspace",
    )


def test_a_workspace_goes_before_its_user() -> None:
    """What the workspace says of recovery goes before what the user says."""
    levels = {
        SettingLevel.USER: SettingsOverrides(recovery_mode=RecoveryMode.AUTO),
        SettingLevel.WORKSPACE: SettingsOverrides(recovery_mode=RecoveryMode.ASK),
    }
    assert effective(levels)["recovery_mode"] == ("ask", "workspace")


def test_clearing_a_session_lets_its_user_speak_again() -> None:
    """What a session set is gone with it."""
    user, session = SettingsOverrides(nudge_level=NudgeLevel.GENTLE), SettingsOverrides(nudge_level=NudgeLevel.DIRECT)
    assert effective({SettingLevel.USER: user, SettingLevel.SESSION: session})["nudge_level"] == ("direct", "session")
    cleared = changed(session, dict.fromkeys(NAMES))
    assert set_by(cleared) == {}
    assert effective({SettingLevel.USER: user, SettingLevel.SESSION: cleared})["nudge_level"] == ("gentle", "user")


def test_the_rules_file_is_the_default_level() -> None:
    """Without any override the file's value holds, as the default."""
    base = msgspec.structs.replace(RuleSet(), nudges=msgspec.structs.replace(RuleSet().nudges, level=NudgeLevel.OFF))
    assert effective({}, base)["nudge_level"] == ("off", "default")


def test_rules_of_several_levels_lie_over_each_other_field_by_field() -> None:
    """Each level sets only what it names; single rules are shown with the level that set them."""
    levels = {
        SettingLevel.USER: SettingsOverrides(
            rules={"trust": {"default_rule": {"count_threshold": 5, "cooldown_seconds": 60}}}
        ),
        SettingLevel.WORKSPACE: SettingsOverrides(rules={"default_rule": {"count_threshold": 2}}),
    }
    rule = layered(RuleSet(), levels).trust.default_rule
    assert rule == EscalationPatch(count_threshold=2, cooldown_seconds=60)
    shown = {row.name: (row.value, row.level) for row in table(RuleSet(), levels) if row.name.startswith("rules.")}
    assert shown == {
        "rules.trust.default_rule.count_threshold": (2, SettingLevel.WORKSPACE),
        "rules.trust.default_rule.cooldown_seconds": (60.0, SettingLevel.USER),
    }


def test_a_named_setting_wins_over_the_same_levels_rules() -> None:
    """`nudge_level` and `rules.nudges.level` mean the same; on one level the first is the plainer word."""
    both = SettingsOverrides(nudge_level=NudgeLevel.GENTLE, rules={"nudges": {"level": "off"}})
    assert effective({SettingLevel.USER: both})["nudge_level"] == ("gentle", "user")
    above = {SettingLevel.USER: both, SettingLevel.WORKSPACE: SettingsOverrides(rules={"nudges": {"level": "direct"}})}
    assert effective(above)["nudge_level"] == ("direct", "workspace")


def test_policies_are_changed_one_by_one() -> None:
    """A level may switch a policy of the file off, or add one; the source stands with each."""
    base = msgspec.structs.replace(RuleSet(), policies={"plan": PrerequisitePolicy(requires="plan", before=("edit",))})
    levels = {
        SettingLevel.SESSION: SettingsOverrides(
            policies={"plan": {"enabled": False}, "look": {"requires": "read", "before": ["write*"]}}
        )
    }
    found = layered(base, levels).policies
    assert (found["plan"].requires, found["plan"].enabled) == ("plan", False)
    assert found["look"].before == ("write*",)
    sources = {row.name: row.level for row in table(base, levels) if row.name.startswith("policies.")}
    assert sources == {"policies.look": SettingLevel.SESSION, "policies.plan": SettingLevel.SESSION}
    assert {row.level for row in table(base, {}) if row.name == "policies.plan"} == {SettingLevel.DEFAULT}


def test_a_part_that_does_not_fit_is_passed_over_and_the_rest_holds() -> None:
    """Two ladders that rise, mixed into one that does not: only the later one is left out."""
    levels = {
        SettingLevel.USER: SettingsOverrides(rules={"behaviour": {"repetitive_calls": {"moderate": 9, "severe": 9}}}),
        SettingLevel.WORKSPACE: SettingsOverrides(
            nudge_level=NudgeLevel.GENTLE, rules={"behaviour": {"repetitive_calls": {"severe": 8}}}
        ),
    }
    for overriding in levels.values():
        check(SettingLevel.WORKSPACE, overriding, RuleSet())
    minor = RuleSet().behaviour.repetitive_calls.minor
    assert layered(RuleSet(), levels).behaviour.repetitive_calls == SeverityLadder(minor=minor, moderate=9, severe=9)
    assert effective(levels)["nudge_level"] == ("gentle", "workspace")


@pytest.mark.parametrize(
    ("level", "rules", "path"),
    [
        (SettingLevel.USER, {"breakers": {"tool": {"open_s": 5}}}, ("rules", "breakers")),
        (SettingLevel.SESSION, {"breakers": {}}, ("rules", "breakers")),
        (SettingLevel.SESSION, {"trust": {"max_fine_keys": 5}}, ("rules", "trust")),
        (SettingLevel.SESSION, {"default_rule": {"count_threshold": 1}}, ("rules",)),
        (SettingLevel.SESSION, {"quality": {"low": 0.5}}, ("rules", "quality")),
        (SettingLevel.SESSION, {"models": {"min_failures": 1}}, ("rules", "models")),
        (SettingLevel.WORKSPACE, {"fleet": {"workspaces": 2}}, ("rules", "fleet")),
        (SettingLevel.WORKSPACE, {"enabled": False}, ("rules", "enabled")),
        (SettingLevel.WORKSPACE, {"nudges": {"levle": "off"}}, ("rules", "nudges", "levle")),
        (
            SettingLevel.WORKSPACE,
            {"default_rule": {"count_threshold": 0}},
            ("rules", "default_rule", "count_threshold"),
        ),
    ],
)
def test_what_a_level_may_not_set_is_refused(level: SettingLevel, rules: dict[str, Any], path: tuple[str, ...]) -> None:
    """Rules whose state is shared with others, the kill switch, and what is no rule, each with its place."""
    with pytest.raises(RulesMisfit) as refused:
        check(level, SettingsOverrides(rules=rules), RuleSet())
    assert refused.value.path == path


def test_changes_touch_only_what_they_name() -> None:
    """Saving one setting keeps the others of its level; a wrong word is refused with the right ones."""
    before = SettingsOverrides(nudge_level=NudgeLevel.GENTLE, nudge_enabled=False)
    after = changed(before, {"recovery_mode": "ask", "nudge_enabled": None})
    assert set_by(after) == {"nudge_level": "gentle", "recovery_mode": "ask"}
    with pytest.raises(RulesMisfit, match="nudge_level: must be one of off, gentle, direct, full, not the text"):
        changed(before, {"nudge_level": "loud"})


def test_plain_spells_out_what_makes_the_rules_again() -> None:
    """A document of all rules, converted, is the same rules."""
    rules = layered(
        RuleSet(), {SettingLevel.USER: SettingsOverrides(rules={"tool_rules": {"a": {"severity_filter": ["crash"]}}})}
    )
    assert msgspec.convert(plain(rules), RuleSet) == rules
