"""Configuration of the command line: the environment, and the files of rules and policies.

The worker's own settings are in `trustfold.streams.kafka.kafka_settings`; this module has those that all commands
share. Command line options take precedence over the environment, the environment over the defaults.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Self

from .errors import ConfigError
from .rules.levels import SettingLevel, layered
from .rules.older_shapes import RulesMisfit
from .rules.parser import RulesDocument, overlaid
from .rules.rules import RuleSet
from .schemas.settings import SettingsOverrides
from .schemas.vocabulary import ModelSwitchStrategy, NudgeLevel, PatternSeverity, RecoveryMode

INSTALLATION = Path(__file__).resolve().parent
"""Folder of the package that runs."""

DEFAULT_DB = Path(".trustfold/trustfold.sqlite")
"""Default store, below the working directory: one store per project."""

DEFAULT_HISTORY = Path(".trustfold/history")
"""Default history, beside the store."""


class WebhookFormat(StrEnum):
    """Body of a webhook's requests: our own record of an incident, or a message for a chat."""

    JSON = "json"
    SLACK = "slack"


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentSettings:
    """Settings from the environment.

    Attributes:
        db: store of the embedded engine (`TRUSTFOLD_DB`).
        host: address that `up` listens on (`TRUSTFOLD_HOST`).
        port: port that `up` listens on (`TRUSTFOLD_PORT`).
        url: address of a running `up` (`TRUSTFOLD_URL`).
        broker: Kafka broker, `host:port` (`TRUSTFOLD_BROKER`).
        token: secret that a running `up` requires (`TRUSTFOLD_TOKEN`).
        operator_token: secret that a running `up` requires for orders (`TRUSTFOLD_OPERATOR_TOKEN`).
        publishers: JSON file of publishers that have a token and workspaces of their own (`TRUSTFOLD_PUBLISHERS`).
        webhook: URL that is told of incidents (`TRUSTFOLD_WEBHOOK`).
        webhook_secret: key of the signature of these requests (`TRUSTFOLD_WEBHOOK_SECRET`).
        webhook_format: their body (`TRUSTFOLD_WEBHOOK_FORMAT`).
        webhook_severity: severity from which on incidents are told (`TRUSTFOLD_WEBHOOK_SEVERITY`).
        history: directory of Parquet files for analysts (`TRUSTFOLD_HISTORY`).
        rules_file: rules file (`TRUSTFOLD_RULES`).
        policies_file: policies file, in addition to those of the rules file (`TRUSTFOLD_POLICIES`).
        workspace: workspace whose settings commands use (`TRUSTFOLD_WORKSPACE`).
        user: user whose settings commands use (`TRUSTFOLD_USER`).
        session: session whose settings commands use (`TRUSTFOLD_SESSION`).
        enabled: the kill switch: False folds nothing (`TRUSTFOLD_ENABLED`).
        threshold: failures that escalate; overrides the rules' default (`TRUSTFOLD_THRESHOLD`).
        window: seconds in which these failures count (`TRUSTFOLD_WINDOW`).
        persist: False: `up` deletes its store when it stops (`TRUSTFOLD_PERSIST`).
        session_only: like `persist` False, and nothing is saved for a user or a workspace (`TRUSTFOLD_SESSION_ONLY`).
        no_user_persist: nothing may be saved for a user (`TRUSTFOLD_NO_USER_PERSIST`).
        no_workspace_persist: nothing may be saved for a workspace (`TRUSTFOLD_NO_WORKSPACE_PERSIST`).
        nudge_level: this and the next four take precedence over session, workspace and user (`TRUSTFOLD_NUDGE_LEVEL`).
        nudge_enabled: `TRUSTFOLD_NUDGE_ENABLED`.
        recovery_mode: `TRUSTFOLD_RECOVERY_MODE`.
        model_switch_strategy: `TRUSTFOLD_MODEL_SWITCH_STRATEGY`.
        pattern_detection_enabled: `TRUSTFOLD_PATTERN_DETECTION_ENABLED`.
    """

    db: Path = DEFAULT_DB
    host: str = "127.0.0.1"
    port: int = 8321
    url: str = ""
    broker: str = ""
    token: str = ""
    operator_token: str = ""
    publishers: Path | None = None
    webhook: str = ""
    webhook_secret: str = ""
    webhook_format: WebhookFormat = WebhookFormat.JSON
    webhook_severity: PatternSeverity = PatternSeverity.MODERATE
    history: Path = DEFAULT_HISTORY
    rules_file: Path | None = None
    policies_file: Path | None = None
    workspace: str = ""
    user: str = ""
    session: str = ""
    enabled: bool = True
    threshold: int | None = None
    window: float | None = None
    persist: bool = True
    session_only: bool = False
    no_user_persist: bool = False
    no_workspace_persist: bool = False
    nudge_level: NudgeLevel | None = None
    nudge_enabled: bool | None = None
    recovery_mode: RecoveryMode | None = None
    model_switch_strategy: ModelSwitchStrategy | None = None
    pattern_detection_enabled: bool | None = None

    @classmethod
    def from_env(cls, environ: Mapping[str, str] | None = None) -> Self:
        """Settings from `TRUSTFOLD_*`; an empty variable counts as unset."""
        environ = os.environ if environ is None else environ
        values: dict[str, Any] = {}
        for name, (variable, parse) in _VARIABLES.items():
            text = environ.get(variable)
            if text:
                try:
                    values[name] = parse(text)
                except (ValueError, KeyError) as error:
                    raise ConfigError(f"{variable} is {text!r}, which is not {_KINDS[parse]}") from error
        return cls(**values)

    def environment(self) -> SettingsOverrides:
        """Settings of the environment, the level above all others (docs/design/semantics.md#settings)."""
        default_rule = {"count_threshold": self.threshold, "window_seconds": self.window}
        chosen = {name: value for name, value in default_rule.items() if value is not None}
        rules: dict[str, Any] = {"trust": {"default_rule": chosen}} if chosen else {}
        try:
            overlaid(RuleSet(), rules)
        except RulesMisfit as misfit:
            raise ConfigError(f"TRUSTFOLD_THRESHOLD or TRUSTFOLD_WINDOW is out of range: {misfit.what}") from misfit
        if not self.enabled:
            rules["enabled"] = False
        return SettingsOverrides(
            nudge_enabled=self.nudge_enabled,
            nudge_level=self.nudge_level,
            recovery_mode=self.recovery_mode,
            model_switch_strategy=self.model_switch_strategy,
            pattern_detection_enabled=self.pattern_detection_enabled,
            rules=rules or None,
        )

    @property
    def switched_off(self) -> str:
        """Warning that nothing is folded because of `TRUSTFOLD_ENABLED`; empty if it is enabled."""
        return "" if self.enabled else "TRUSTFOLD_ENABLED is false: records are read but skipped, nothing is decided"

    def rule_files(self, rules: str | Path | None = None, policies: str | Path | None = None) -> RuleFiles:
        """Rule files given, else those of the environment."""
        return RuleFiles(rules or self.rules_file, policies or self.policies_file)

    def rules(self, file: str | Path | None = None, policies: str | Path | None = None) -> RuleSet:
        """Rules of the given files, else of the environment's files, else the defaults; the environment overrides them.

        Raises:
            ConfigError: a file cannot be used, or threshold or window are out of range.
        """
        return layered(self.rule_files(file, policies).load(), {SettingLevel.ENVIRONMENT: self.environment()})

    def refusal(self, level: SettingLevel) -> str | None:
        """Why saving for a level is forbidden; None if it is allowed."""
        variables = {
            "TRUSTFOLD_SESSION_ONLY": self.session_only and level in {SettingLevel.USER, SettingLevel.WORKSPACE},
            "TRUSTFOLD_PERSIST=false": not self.persist and level in {SettingLevel.USER, SettingLevel.WORKSPACE},
            "TRUSTFOLD_NO_USER_PERSIST": self.no_user_persist and level is SettingLevel.USER,
            "TRUSTFOLD_NO_WORKSPACE_PERSIST": self.no_workspace_persist and level is SettingLevel.WORKSPACE,
        }
        found = next((variable for variable, refuses in variables.items() if refuses), None)
        return f"{found} is set: nothing is saved for a {level}" if found else None


def _boolean(text: str) -> bool:
    known = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}
    return known[text.strip().lower()]


_VARIABLES: dict[str, tuple[str, Callable[[str], Any]]] = {
    "db": ("TRUSTFOLD_DB", Path),
    "host": ("TRUSTFOLD_HOST", str),
    "port": ("TRUSTFOLD_PORT", int),
    "url": ("TRUSTFOLD_URL", str),
    "broker": ("TRUSTFOLD_BROKER", str),
    "token": ("TRUSTFOLD_TOKEN", str.strip),
    "operator_token": ("TRUSTFOLD_OPERATOR_TOKEN", str.strip),
    "publishers": ("TRUSTFOLD_PUBLISHERS", Path),
    "webhook": ("TRUSTFOLD_WEBHOOK", str.strip),
    "webhook_secret": ("TRUSTFOLD_WEBHOOK_SECRET", str.strip),
    "webhook_format": ("TRUSTFOLD_WEBHOOK_FORMAT", WebhookFormat),
    "webhook_severity": ("TRUSTFOLD_WEBHOOK_SEVERITY", PatternSeverity),
    "history": ("TRUSTFOLD_HISTORY", Path),
    "rules_file": ("TRUSTFOLD_RULES", Path),
    "policies_file": ("TRUSTFOLD_POLICIES", Path),
    "workspace": ("TRUSTFOLD_WORKSPACE", str),
    "user": ("TRUSTFOLD_USER", str),
    "session": ("TRUSTFOLD_SESSION", str),
    "enabled": ("TRUSTFOLD_ENABLED", _boolean),
    "threshold": ("TRUSTFOLD_THRESHOLD", int),
    "window": ("TRUSTFOLD_WINDOW", float),
    "persist": ("TRUSTFOLD_PERSIST", _boolean),
    "session_only": ("TRUSTFOLD_SESSION_ONLY", _boolean),
    "no_user_persist": ("TRUSTFOLD_NO_USER_PERSIST", _boolean),
    "no_workspace_persist": ("TRUSTFOLD_NO_WORKSPACE_PERSIST", _boolean),
    "nudge_level": ("TRUSTFOLD_NUDGE_LEVEL", NudgeLevel),
    "nudge_enabled": ("TRUSTFOLD_NUDGE_ENABLED", _boolean),
    "recovery_mode": ("TRUSTFOLD_RECOVERY_MODE", RecoveryMode),
    "model_switch_strategy": ("TRUSTFOLD_MODEL_SWITCH_STRATEGY", ModelSwitchStrategy),
    "pattern_detection_enabled": ("TRUSTFOLD_PATTERN_DETECTION_ENABLED", _boolean),
}
_KINDS: dict[Callable[[str], Any], str] = {
    int: "a whole number",
    float: "a number",
    str: "text",
    Path: "a path",
    _boolean: "true or false",
    WebhookFormat: f"one of {', '.join(WebhookFormat)}",
    PatternSeverity: f"one of {', '.join(PatternSeverity)}",
    NudgeLevel: f"one of {', '.join(NudgeLevel)}",
    RecoveryMode: f"one of {', '.join(RecoveryMode)}",
    ModelSwitchStrategy: f"one of {', '.join(ModelSwitchStrategy)}",
}

ENVIRONMENT: tuple[str, ...] = tuple(variable for variable, _ in _VARIABLES.values())
"""Variables that `EnvironmentSettings.from_env` reads."""


def load_rules(path: str | Path) -> RuleSet:
    """Rules from a TOML or JSON file, merged over the defaults.

    An older `reliability.json` loads unchanged: the tables at its top level become `RuleSet.trust`.

    Raises:
        ConfigError: the file is invalid; the message names file, line, path of the field, and accepted values.
    """
    return read_document(path).over(RuleSet())


def read_document(path: str | Path) -> RulesDocument:
    """Parse a file of rules or policies."""
    file = Path(path)
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{file}: cannot be read ({error.strerror}); check the path of the file") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{file}: not UTF-8 (byte {error.start}); save it as UTF-8") from error
    return RulesDocument(str(file), text, suffix=file.suffix.lower())


class RuleFiles:
    """Files of rules and policies, reloaded when they change.

    Attributes:
        fault: why the newest version of a file is not used; None if it is.
    """

    def __init__(self, rules: str | Path | None = None, policies: str | Path | None = None) -> None:
        """Use the given files; without files, the default rules apply and never change."""
        self.fault: str | None = None
        self.paths = tuple(Path(path) for path in (rules, policies) if path is not None)
        self._rules = rules
        self._policies = policies
        self._seen: list[tuple[int, int, int] | None] = []

    def load(self) -> RuleSet:
        """Rules of both files.

        Raises:
            ConfigError: one of them is invalid.
        """
        self._seen = self._marks()
        rules = load_rules(self._rules) if self._rules else RuleSet()
        if self._policies:
            rules = read_document(self._policies).only_policies().over(rules)
        self.fault = None
        return rules

    def reload(self) -> RuleSet | None:
        """Reload the files; if one is invalid, set `fault` and return None: the previous rules stay in force."""
        try:
            return self.load()
        except ConfigError as error:
            self.fault = str(error)
            return None

    def changed(self) -> bool:
        """True if a file has changed since it was last read, by its time, size or inode."""
        return self._marks() != self._seen

    def _marks(self) -> list[tuple[int, int, int] | None]:
        return [_mark(path) for path in self.paths]


def _mark(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
