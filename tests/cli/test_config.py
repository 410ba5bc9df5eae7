"""Configuration: rules files in both forms, an older file unchanged, the environment, faults that name the fix."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from trustfold.config import ENVIRONMENT, EnvironmentSettings, load_rules
from trustfold.errors import ConfigError
from trustfold.rules.rules import EscalationPatch, RuleSet, SeverityLadder
from trustfold.schemas.settings import SettingsOverrides
from trustfold.schemas.vocabulary import FailureSeverity, ModelSwitchStrategy, NudgeLevel, RecoveryMode

OLDER_FILE = """
{
  "default_rule": {
    "count_threshold": 3,
    "window_seconds": 3600,
    "escalation_duration_seconds": 1800
  },
  "plugin_rules": {
    "cli": {
      "count_threshold": 5,
      "severity_filter": ["crash", "security"]
    },
    "service_connector": {
      "rate_threshold": 0.4,
      "window_seconds": 300
    }
  },
  "domain_rules": {
    "api.production.com": {
      "count_threshold": 2,
      "consecutive_threshold": 2,
      "escalation_duration_seconds": 3600
    }
  }
}
"""


@pytest.fixture
def written(tmp_path: Path) -> Any:
    """Writes a rules file and loads it."""

    def write(text: str, name: str = "rules.json") -> RuleSet:
        path = tmp_path / name
        path.write_text(text)
        return load_rules(path)

    return write


def fault(written: Any, text: str, name: str = "rules.json") -> str:
    """What is said of a file that cannot be used, without its path and line."""
    with pytest.raises(ConfigError) as raised:
        written(text, name)
    said = str(raised.value)
    assert name in said
    return re.split(rf"{re.escape(name)}(?::\d+)?: ", said, maxsplit=1)[1]


def test_an_older_file_loads_unchanged(written: Any) -> None:
    """An older project-level file becomes rules of trust, each layer with only what it names."""
    trust = written(OLDER_FILE).trust
    assert trust.default_rule == EscalationPatch(
        count_threshold=3, window_seconds=3600, escalation_duration_seconds=1800
    )
    cli = EscalationPatch(
        count_threshold=5, severity_filter=frozenset({FailureSeverity.CRASH, FailureSeverity.SECURITY})
    )
    assert trust.plugin_rules["cli"] == cli
    assert trust.domain_rules["api.production.com"].consecutive_threshold == 2
    assert written(OLDER_FILE, "reliability").trust == trust


@pytest.mark.parametrize(("value", "mode"), [("true", RecoveryMode.AUTO), ("false", RecoveryMode.ASK)])
def test_global_settings_of_an_older_file(written: Any, value: str, mode: RecoveryMode) -> None:
    """`enable_auto_recovery` chooses the recovery mode; what is about storage is accepted and unused."""
    ignored = '"persist_across_sessions": true, "max_history_entries": 1000, "version": 1'
    text = f'{{"enable_auto_recovery": {value}, {ignored}}}'
    assert written(text).trust.recovery_mode is mode


def test_toml_and_json_say_the_same(written: Any) -> None:
    """Every table can be written in either form."""
    toml = """
        [trust]
        recovery_mode = "ask"
        [trust.tool_rules.deploy]
        count_threshold = 1
        [breakers.by_scope."tool:search"]
        consecutive_failures = 8
        [behaviour.repetitive_calls]
        minor = 5
        moderate = 8
        severe = 12
        [nudges]
        level = "direct"
    """
    as_json = {
        "recovery_mode": "ask",
        "tool_rules": {"deploy": {"count_threshold": 1}},
        "breakers": {"by_scope": {"tool:search": {"consecutive_failures": 8}}},
        "behaviour": {"repetitive_calls": {"minor": 5, "moderate": 8, "severe": 12}},
        "nudges": {"level": "direct"},
    }
    rules = written(toml, "rules.toml")
    assert rules == written(json.dumps(as_json))
    assert rules.behaviour.repetitive_calls == SeverityLadder(minor=5, moderate=8, severe=12)
    assert rules.nudges.level is NudgeLevel.DIRECT
    assert rules.trust.recovery_mode is RecoveryMode.ASK


def test_an_explicit_null_switches_a_threshold_off(written: Any) -> None:
    """Null is not the same as leaving a field out."""
    rule = written('{"default_rule": {"count_threshold": null, "consecutive_threshold": 4}}').trust.default_rule
    assert rule == EscalationPatch(count_threshold=None, consecutive_threshold=4)


def test_an_empty_file_is_the_defaults(written: Any) -> None:
    """No rule named, no rule changed."""
    assert written("{}") == written("", "rules.toml") == RuleSet()


FAULTS = [
    (
        '{"default_rule": {"count_treshold": 3}}',
        "default_rule.count_treshold: there is no such rule; did you mean 'count_threshold'?",
    ),
    ('{"trust": {"default_rule": {"window": 3}}}', "trust.default_rule.window: there is no such rule"),
    ('{"qwertz": 1}', "qwertz: there is no such rule; remove it"),
    (
        '{"domain_rules": {"a": {}, "api.x.com": {"count_threshold": 0}}}',
        "domain_rules.'api.x.com'.count_threshold: must be a whole number from 1 to 100, or \"off\" (null in JSON), n",
    ),
    (
        '{"tool_rules": {"bash": {"severity_filter": ["boom"]}}}',
        "tool_rules.bash.severity_filter[0]: must be one of transient, ",
    ),
    ('{"recovery_mode": "maybe"}', 'recovery_mode: must be one of auto, ask, not the text "maybe"'),
    ('{"nudges": {"level": "loud"}}', 'nudges.level: must be one of off, gentle, direct, full, not the text "loud"'),
    (
        '{"behaviour": {"repetitive_calls": {"minor": 5, "moderate": 4, "severe": 6}}}',
        "behaviour.repetitive_calls: steps must rise",
    ),
    (
        '{"breakers": {"tool": {"open_s": "soon"}}}',
        'breakers.tool.open_s: must be a number above 0 up to 31536000, not the text "soon"',
    ),
    ('{"trust": 3}', "trust: must be a table, not 3"),
    (
        '{"default_rule": {}, "trust": {"default_rule": {}}}',
        "default_rule is set at the top level and under trust; keep one of them",
    ),
    ('{"enable_auto_recovery": "yes"}', "enable_auto_recovery must be true or false, not 'yes'"),
    ("[1]", "must hold one object with rules, not list"),
    ("{", "not JSON: "),
]


@pytest.mark.parametrize(("text", "said"), FAULTS, ids=[said[:30] for _, said in FAULTS])
def test_faults_name_the_field_and_the_fix(written: Any, text: str, said: str) -> None:
    """A rules file that cannot be used says where and what would be right, in the words of the file."""
    assert fault(written, text).startswith(said)


def test_files_that_cannot_be_read(written: Any, tmp_path: Path) -> None:
    """A missing file, a broken TOML and bytes that are no text are told as what they are."""
    with pytest.raises(ConfigError, match=r"none.toml: cannot be read \(No such file or directory\); check the path"):
        load_rules(tmp_path / "none.toml")
    assert fault(written, "[trust", "rules.toml").startswith("not TOML: ")
    (tmp_path / "bytes.json").write_bytes(b"\xff")
    with pytest.raises(ConfigError, match="not UTF-8"):
        load_rules(tmp_path / "bytes.json")


def test_the_environment_sets_every_setting() -> None:
    """Each variable sets its field; what is unset or empty keeps the default."""
    settings = EnvironmentSettings.from_env(
        {
            "TRUSTFOLD_DB": "x.sqlite",
            "TRUSTFOLD_HOST": "::1",
            "TRUSTFOLD_PORT": "80",
            "TRUSTFOLD_URL": "http://a",
            "TRUSTFOLD_BROKER": "k:1",
            "TRUSTFOLD_TOKEN": "t",
            "TRUSTFOLD_RULES": "r.toml",
            "TRUSTFOLD_POLICIES": "p.json",
            "TRUSTFOLD_WORKSPACE": "acme",
            "TRUSTFOLD_USER": "ada",
            "TRUSTFOLD_SESSION": "s1",
            "TRUSTFOLD_ENABLED": "no",
            "TRUSTFOLD_THRESHOLD": "5",
            "TRUSTFOLD_WINDOW": "1800",
            "TRUSTFOLD_PERSIST": "off",
            "TRUSTFOLD_SESSION_ONLY": "1",
            "TRUSTFOLD_NO_USER_PERSIST": "true",
            "TRUSTFOLD_NO_WORKSPACE_PERSIST": "Yes",
            "TRUSTFOLD_NUDGE_LEVEL": "gentle",
            "TRUSTFOLD_NUDGE_ENABLED": "0",
            "TRUSTFOLD_RECOVERY_MODE": "ask",
            "TRUSTFOLD_MODEL_SWITCH_STRATEGY": "auto",
            "TRUSTFOLD_PATTERN_DETECTION_ENABLED": "false",
        }
    )
    assert settings == EnvironmentSettings(
        db=Path("x.sqlite"),
        host="::1",
        port=80,
        url="http://a",
        broker="k:1",
        token="t",
        rules_file=Path("r.toml"),
        policies_file=Path("p.json"),
        workspace="acme",
        user="ada",
        session="s1",
        enabled=False,
        threshold=5,
        window=1800.0,
        persist=False,
        session_only=True,
        no_user_persist=True,
        no_workspace_persist=True,
        nudge_level=NudgeLevel.GENTLE,
        nudge_enabled=False,
        recovery_mode=RecoveryMode.ASK,
        model_switch_strategy=ModelSwitchStrategy.AUTO,
        pattern_detection_enabled=False,
    )
    assert settings.environment() == SettingsOverrides(
        nudge_enabled=False,
        nudge_level=NudgeLevel.GENTLE,
        recovery_mode=RecoveryMode.ASK,
        model_switch_strategy=ModelSwitchStrategy.AUTO,
        pattern_detection_enabled=False,
        rules={"trust": {"default_rule": {"count_threshold": 5, "window_seconds": 1800.0}}, "enabled": False},
    )
    assert EnvironmentSettings.from_env(dict.fromkeys(ENVIRONMENT, "")) == EnvironmentSettings()


def test_threshold_and_window_lie_over_the_file(tmp_path: Path) -> None:
    """The two variables change the default rule and nothing else of the file."""
    path = tmp_path / "rules.json"
    path.write_text(OLDER_FILE)
    settings = EnvironmentSettings.from_env({"TRUSTFOLD_THRESHOLD": "7", "TRUSTFOLD_RULES": str(path)})
    trust = settings.rules().trust
    assert trust.default_rule == EscalationPatch(
        count_threshold=7, window_seconds=3600, escalation_duration_seconds=1800
    )
    assert trust.plugin_rules == load_rules(path).trust.plugin_rules
    assert EnvironmentSettings(window=60).rules().trust.default_rule == EscalationPatch(window_seconds=60)


@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        ("TRUSTFOLD_PORT", "http", "TRUSTFOLD_PORT is 'http', which is not a whole number"),
        ("TRUSTFOLD_WINDOW", "an hour", "TRUSTFOLD_WINDOW is 'an hour', which is not a number"),
        ("TRUSTFOLD_ENABLED", "maybe", "TRUSTFOLD_ENABLED is 'maybe', which is not true or false"),
        ("TRUSTFOLD_NUDGE_LEVEL", "loud", "TRUSTFOLD_NUDGE_LEVEL is 'loud', which is not one of off, gentle, direct"),
        ("TRUSTFOLD_THRESHOLD", "0", "TRUSTFOLD_THRESHOLD or TRUSTFOLD_WINDOW is out of range"),
    ],
)
def test_variables_that_make_no_sense(variable: str, value: str, said: str) -> None:
    """A variable that cannot be used is named with its value."""
    with pytest.raises(ConfigError, match=said):
        EnvironmentSettings.from_env({variable: value}).rules()
