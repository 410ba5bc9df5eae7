"""Settings on their levels, what is kept of a state, and what becomes of a wrong config file."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import orjson
from trustfold.config import RuleFiles
from trustfold.schemas.levels import SETTINGS, Level, changed, set_by, table
from trustfold.schemas.rules import Rules
from trustfold.schemas.settings import SettingsOverrides

from .area import Area
from .case import UnknownWord

_LEVELS = {"env": Level.ENVIRONMENT, "project": Level.WORKSPACE, "global": Level.USER}
_SAVED = {Level.USER: "user:u1", Level.WORKSPACE: "workspace:w1"}


class Settings(Area):
    """Cases of `settings`, `persist` and `config`."""

    def prepare(self) -> None:
        """Nothing is set."""
        self.overrides: dict[Level, SettingsOverrides] = {}
        self.named: list[str] = []
        self.files: RuleFiles | None = None
        self.loaded = Rules()
        self.looked_up: tuple[str, ...] = ()

    # --- operations ---------------------------------------------------------------------------------------------------

    def op_set(self, event: dict[str, Any]) -> None:
        """A level sets a value; null inherits."""
        level = self._level(event)
        name = str(event["key"])
        if name not in SETTINGS:
            raise UnknownWord(f"setting {name!r}")
        self.named.append(name)
        self.overrides[level] = changed(self.overrides.get(level), {name: event["value"]})
        self._tell(level)

    def op_clear(self, event: dict[str, Any]) -> None:
        """A level sets nothing any more, or not this."""
        level = self._level(event)
        name = event.get("key")
        if name is None:
            self.overrides.pop(level, None)
        else:
            self.overrides[level] = changed(self.overrides.get(level), {name: None})
        self._tell(level)

    op_unset = op_clear

    def op_save(self, event: dict[str, Any]) -> None:
        """A level takes over what the session has set: the settings named, or all of them."""
        named = [event["key"]] if "key" in event else list(SETTINGS)
        level = self._level(event)
        session = set_by(self.overrides.get(Level.SESSION))
        values = {name: session[name] for name in named if name in session}
        self.overrides[level] = changed(self.overrides.get(level), values)
        self._tell(level)

    def op_env(self, event: dict[str, Any]) -> None:
        """A variable of the environment is set."""
        variable = str(event.get("variable", event.get("key", ""))).lower()
        name = next((name for name in SETTINGS if variable.endswith(name)), None)
        if name is None:
            raise UnknownWord(f"variable {variable!r}")
        value = event["value"]
        if isinstance(value, str) and value.lower() in {"true", "false"}:
            value = value.lower() == "true"
        self.op_set({"level": "environment", "key": name, "value": value})

    op_set_env = op_env

    def _tell(self, level: Level) -> None:
        overrides = msgspec.to_builtins(self.overrides.get(level, SettingsOverrides()))
        self.world.user = "u1"
        if level is Level.SESSION:
            self.world.event("session.settings_changed", settings=overrides)
        elif level is Level.ENVIRONMENT:
            self.world.topology.source.environment = self.overrides.get(level)
            self.world.topology.source.rebase(self.rules)
        else:
            scope = _SAVED[level]
            record = {
                "schema_version": "1.0",
                "id": f"set {len(self.named)} {level}",
                "type": "settings.changed",
                "time": self.world.now.isoformat(),
                "scope": scope,
                "overrides": overrides,
            }
            self.world._take(self.world.topology.feed("settings", (orjson.dumps(record),), key=scope.encode()))

    def _level(self, event: dict[str, Any]) -> Level:
        name = str(event["level"])
        try:
            return _LEVELS.get(name) or Level(name)
        except ValueError:
            raise UnknownWord(f"level {name!r}") from None

    def op_persist_state(self, event: dict[str, Any]) -> None:
        """A key gets into a state, the way it would: by failures, and by an operator's reset."""
        key, state = str(event["key"]), str(event["state"])
        if state in {"escalated", "blocked"}:
            severity = "security" if state == "blocked" else "server_error"
            self.calls.take(
                {"ev": "tool_call", "tool": key, "times": 3, "ok": False, "error": "it failed", "severity": severity}
            )
        elif state == "trusted":
            self.world.command("trust.reset", key=key)
        else:
            raise UnknownWord(f"state {state!r} to keep")

    def op_load_config(self, event: dict[str, Any]) -> None:
        """A rules file changes to this; what held goes on to hold where it cannot be used."""
        with TemporaryDirectory() as folder:
            file = Path(folder) / "rules.json"
            file.write_text("{}")
            self.files = RuleFiles(file)
            self.loaded = self.files.load()
            file.write_text(json.dumps(event["data"]))
            self.loaded = self.files.reload() or self.loaded
        self.looked_up = _only_path(event["data"])

    # --- what has come of it ------------------------------------------------------------------------------------------

    def see_effective(self) -> list[Any]:
        """Value of the setting in question, and the level that says so."""
        name = self.expected.get("effective_key") or (self.named[-1] if self.named else "")
        source = self.world.topology.source
        session = getattr(self.world.session_state(), "overrides", "")
        levels = source.levels(self.world.workspace, "u1", session)
        found = next((row for row in table(source.base, levels) if row.name == name), None)
        if found is None:
            raise UnknownWord(f"setting {name!r}")
        return [found.value, str(found.level)]

    def check_effective_key(self, wanted: str) -> str:
        """Which setting is meant."""
        return "" if wanted in SETTINGS else f"there is no setting {wanted!r}"

    def see_value(self) -> Any:
        """What the setting is that the file was about."""
        if not self.looked_up:
            raise UnknownWord("a value of no file")
        name = self.looked_up[-1].removesuffix("_threshold")
        ladders = {"repetitive_call": "repetitive_calls", "error_retry": "error_retry_loop"}
        ladders |= {"introspection_loop": "introspection_loop", "max_reads_before_action": "read_only_loop"}
        if name in ladders:
            return getattr(self.loaded.behaviour, ladders[name]).minor
        rule = self.loaded.trust.default_rule
        found = getattr(rule, self.looked_up[-1], msgspec.UNSET)
        if found is msgspec.UNSET:
            raise UnknownWord(f"value of {'.'.join(self.looked_up)}")
        return found

    def see_warnings(self) -> int:
        """Faults that are told."""
        return int(self.files is not None and self.files.fault is not None)

    see_errors = see_warnings

    def see_stored(self) -> list[str]:
        """Keys whose trust is kept."""
        return [told["key"] for told in self.world.published().values() if told.get("kind") == "trust"]


def _only_path(data: Any) -> tuple[str, ...]:
    """Where the last value stands in a document."""
    path: tuple[str, ...] = ()
    while isinstance(data, dict) and data:
        name = list(data)[-1]
        path, data = (*path, str(name)), data[name]
    return path
