"""Configuration of the command line: the environment, and rules files.

The worker's own settings are those of `trustfold.streams.kafka.settings`; what stands here is what every command
shares. Command line options win over the environment, the environment over the defaults.
"""

from __future__ import annotations

import difflib
import json
import os
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Self

import msgspec

from .schemas import rules as rules_module
from .schemas.errors import ConfigError
from .schemas.rules import EscalationPatch, Rules, TrustRules
from .schemas.vocabulary import ModelSwitchStrategy, NudgeLevel, RecoveryMode, Severity, ToolClass

DEFAULT_DB = Path(".trustfold/trustfold.sqlite")
"""Below the working directory: one store per project, as the seed keeps its file."""

_SEED_FIELDS = frozenset(TrustRules.__struct_fields__)
_SEED_MODES = {True: "auto", False: "ask"}
_SEED_IGNORED = frozenset({"version", "persist_across_sessions", "max_history_entries"})
"""Of the seed's file: about its own storage, which the log has taken over."""

_WORDS: dict[str, type[StrEnum]] = {
    "severity_filter": Severity,
    "recovery_mode": RecoveryMode,
    "nudges.level": NudgeLevel,
    "tools.classes": ToolClass,
    "models.strategy": ModelSwitchStrategy,
    "quality.by_cause": Severity,
}
"""What may stand where a rule wants one of a few words."""

_SOMEWHERE = re.compile(r" - at `\$?(.*)`$")
_UNKNOWN_FIELD = re.compile(r"unknown field `([^`]+)`")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What the environment says.

    Attributes:
        db: store of the embedded engine (`TRUSTFOLD_DB`).
        host: address that `up` listens on (`TRUSTFOLD_HOST`).
        port: and its port (`TRUSTFOLD_PORT`).
        url: address of a running `up` to talk to (`TRUSTFOLD_URL`).
        broker: Kafka to talk to, `host:port` (`TRUSTFOLD_BROKER`).
        token: secret that a running `up` asks for (`TRUSTFOLD_TOKEN`).
        rules_file: rules to go by (`TRUSTFOLD_RULES`).
        threshold: failures that escalate where no rule says otherwise (`TRUSTFOLD_THRESHOLD`, the seed's name).
        window: seconds in which they count (`TRUSTFOLD_WINDOW`, the seed's name).
    """

    db: Path = DEFAULT_DB
    host: str = "127.0.0.1"
    port: int = 8321
    url: str = ""
    broker: str = ""
    token: str = ""
    rules_file: Path | None = None
    threshold: int | None = None
    window: float | None = None

    @classmethod
    def from_env(cls, environ: Mapping[str, str] | None = None) -> Self:
        """Settings from `TRUSTFOLD_*`; an empty variable counts as unset.

        Raises:
            ConfigError: a variable does not parse; the message names it.
        """
        environ = os.environ if environ is None else environ
        values: dict[str, Any] = {}
        for name, (variable, parse) in _VARIABLES.items():
            text = environ.get(variable)
            if text:
                try:
                    values[name] = parse(text)
                except ValueError as error:
                    raise ConfigError(f"{variable} is {text!r}, which is not {_KINDS[parse]}") from error
        return cls(**values)

    def rules(self, file: str | Path | None = None) -> Rules:
        """Rules of the given file, else of `rules_file`, else the defaults, with threshold and window laid over.

        Raises:
            ConfigError: the file cannot be used, or threshold or window are out of range.
        """
        chosen = file or self.rules_file
        rules = load_rules(chosen) if chosen else Rules()
        overrides = {
            name: value
            for name, value in (("count_threshold", self.threshold), ("window_seconds", self.window))
            if value is not None
        }
        if not overrides:
            return rules
        try:
            patch = msgspec.convert(overrides, EscalationPatch)
        except msgspec.ValidationError as error:
            raise ConfigError(f"TRUSTFOLD_THRESHOLD or TRUSTFOLD_WINDOW is out of range: {error}") from error
        set_here = {name: getattr(patch, name) for name in overrides}
        default = msgspec.structs.replace(rules.trust.default_rule, **set_here)
        return msgspec.structs.replace(rules, trust=msgspec.structs.replace(rules.trust, default_rule=default))


_VARIABLES: dict[str, tuple[str, Callable[[str], Any]]] = {
    "db": ("TRUSTFOLD_DB", Path),
    "host": ("TRUSTFOLD_HOST", str),
    "port": ("TRUSTFOLD_PORT", int),
    "url": ("TRUSTFOLD_URL", str),
    "broker": ("TRUSTFOLD_BROKER", str),
    "token": ("TRUSTFOLD_TOKEN", str),
    "rules_file": ("TRUSTFOLD_RULES", Path),
    "threshold": ("TRUSTFOLD_THRESHOLD", int),
    "window": ("TRUSTFOLD_WINDOW", float),
}
_KINDS: dict[Callable[[str], Any], str] = {int: "a whole number", float: "a number", str: "text", Path: "a path"}

ENVIRONMENT: tuple[str, ...] = tuple(variable for variable, _ in _VARIABLES.values())
"""Every variable that `Settings.from_env` reads."""


def load_rules(path: str | Path) -> Rules:
    """Rules from a TOML or JSON file.

    The seed's `reliability.json` loads unchanged: its tables stand at the top level and become `Rules.trust`.

    Raises:
        ConfigError: naming the file, the path of the field and what would be right.
    """
    file = Path(path)
    written = _parse(file)
    data = _seed_shape(written, file)
    try:
        return msgspec.convert(data, Rules)
    except msgspec.ValidationError as error:
        what = _explain(str(error), data)
        if "trust" not in written:
            what = what.removeprefix("trust.")
        raise ConfigError(f"{file}: {what}") from error


def _parse(file: Path) -> dict[str, Any]:
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{file}: cannot be read ({error.strerror}); check the path of the rules file") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{file}: not UTF-8 (byte {error.start}); save it as UTF-8") from error
    as_json = file.suffix.lower() == ".json" or (file.suffix.lower() != ".toml" and text.lstrip().startswith("{"))
    try:
        data = json.loads(text) if as_json else tomllib.loads(text)
    except ValueError as error:
        raise ConfigError(f"{file}: not {'JSON' if as_json else 'TOML'}: {error}") from error
    if not isinstance(data, dict):
        raise ConfigError(f"{file}: must hold one object with rules, not {type(data).__name__}")
    return data


def _seed_shape(data: dict[str, Any], file: Path) -> dict[str, Any]:
    """Move the seed's top-level tables to where they live now."""
    trust = data.get("trust", {})
    if not isinstance(trust, dict):
        return data
    moved = {name: value for name, value in data.items() if name in _SEED_FIELDS}
    if "enable_auto_recovery" in data:
        automatic = data["enable_auto_recovery"]
        if not isinstance(automatic, bool):
            raise ConfigError(f"{file}: enable_auto_recovery must be true or false, not {automatic!r}")
        moved.setdefault("recovery_mode", _SEED_MODES[automatic])
    twice = sorted(moved.keys() & trust.keys())
    if twice:
        raise ConfigError(f"{file}: {twice[0]} is set at the top level and under trust; keep one of them")
    gone = _SEED_FIELDS | _SEED_IGNORED | {"enable_auto_recovery"}
    rest = {name: value for name, value in data.items() if name not in gone}
    return {**rest, "trust": {**trust, **moved}} if moved or trust else rest


def _explain(text: str, data: dict[str, Any]) -> str:
    """The library's words as path, fault and fix."""
    found = _SOMEWHERE.search(text)
    what, path = (text[: found.start()], found.group(1).lstrip(".")) if found else (text, "")
    path = _with_keys(path, data)
    unknown = _UNKNOWN_FIELD.search(what)
    if unknown is None:
        words = next((kind for name, kind in _WORDS.items() if what.startswith("Invalid enum") and name in path), None)
        hint = f"; use {', '.join(words)}" if words else ""
        return f"{path or 'the file'}: {what[0].lower()}{what[1:]}{hint}"
    name = unknown.group(1)
    known = sorted({field for kind in _struct_types() for field in kind.__struct_fields__})
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {near[0]!r}?" if near else "remove it, or look the name up in the rules reference"
    return f"{f'{path}.{name}' if path else name}: there is no such rule; {hint}"


def _with_keys(path: str, data: dict[str, Any]) -> str:
    """Put the key of the faulty entry where the library leaves `[...]`, by trying the entries one by one."""
    while "[...]" in path:
        before, _, after = path.partition("[...]")
        steps = before.split(".")
        table: Any = data
        for step in steps:
            table = table.get(step, {}) if isinstance(table, dict) else {}
        key = (
            next((key for key in table if _is_faulty(steps, key, table[key])), "?") if isinstance(table, dict) else "?"
        )
        path = f"{before}.{key!r}{after}" if "." in key else f"{before}.{key}{after}"
    return path


def _is_faulty(steps: list[str], key: str, value: Any) -> bool:
    data: Any = {key: value}
    for step in reversed(steps):
        data = {step: data}
    try:
        msgspec.convert(data, Rules)
    except msgspec.ValidationError:
        return True
    return False


def _struct_types() -> list[type[msgspec.Struct]]:
    base = rules_module.RulesBase
    return [kind for kind in vars(rules_module).values() if isinstance(kind, type) and issubclass(kind, base)]
