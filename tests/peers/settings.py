"""Settings on their levels, files of rules and policies, what is kept of a state; what becomes of a wrong file."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import orjson
from msgspec import structs
from trustfold.config import RuleFiles
from trustfold.projections.local_topology import LocalTopology
from trustfold.rules.levels import SETTINGS, Level, changed, layered, set_by, table
from trustfold.schemas.settings import SettingsOverrides

from ..support.fixed_rules import Rules
from .area import Area, reads
from .case import UnknownWord, known, there

_LEVELS = {**{str(level): level for level in Level}, "env": Level.ENVIRONMENT, "project": Level.WORKSPACE}
_LEVELS["global"] = Level.USER
_SAVED = {Level.USER: "user:u1", Level.WORKSPACE: "workspace:w1"}
OTHER_NAMES = {"nudges_enabled": "nudge_enabled"}
"""Settings as peers name them → our names."""

_LADDERS = {
    "repetitive_call_threshold": "repetitive_calls",
    "error_retry_threshold": "error_retry_loop",
    "introspection_loop_threshold": "introspection_loop",
    "max_reads_before_action": "read_only_loop",
}
"""Thresholds of the older plugin's file → our ladders."""

POLICY_FIELDS = "policy_id prerequisite_tool gated_tools lookback_turns severity_thresholds enabled"


def setting_named(name: str) -> str:
    """Our name of a setting. Raises UnknownWord: there is none of this name."""
    ours = OTHER_NAMES.get(name, name)
    if ours not in SettingsOverrides.__struct_fields__:
        raise UnknownWord(f"setting {name!r}")
    return ours


def _level(name: str) -> Level:
    return known(name, _LEVELS, "level")


def policy(told: Any) -> dict[str, Any]:
    """A policy in the shape of a peer's file; one that is only named is about tools of its own."""
    made = {"policy_id": told} if isinstance(told, str) else dict(told)
    made["policy_id"] = made.pop("id", made.get("policy_id"))
    name = made["policy_id"]
    return {"prerequisite_tool": f"first of {name}", "gated_tools": [f"then of {name}"], **made}


class Levels(Area):
    """Settings of environment, session, workspace and user, and of the files."""

    def prepare(self) -> None:
        """Nothing is set, and there is no file."""
        self.overrides: dict[Level, SettingsOverrides] = {}
        self.registered: list[dict[str, Any]] = []
        self.files: RuleFiles | None = None
        self.loaded = Rules()
        self.restored: dict[str, Any] | None = None

    def set_level(self, level: Level, changes: dict[str, Any]) -> None:
        """Let a level set these beside what it sets already; null inherits."""
        self.overrides[level] = changed(self.overrides.get(level), changes)
        self.tell_level(level)

    def tell_level(self, level: Level) -> None:
        """Publish what a level sets, as it is now."""
        overrides = msgspec.to_builtins(self.overrides.get(level, SettingsOverrides()))
        self.world.user = "u1"
        if level is Level.SESSION:
            self.world.event("session.settings_changed", settings=overrides)
        elif level is Level.ENVIRONMENT:
            self.world.topology.source.environment = self.overrides.get(level)
            self.world.topology.source.rebase(self.world.topology.source.base)
        else:
            scope = _SAVED[level]
            record = {"id": f"{len(self.world.outputs)} {level}", "type": "settings.changed", "scope": scope}
            record |= {"schema_version": "1.0", "time": self.world.now.isoformat(), "overrides": overrides}
            self.world.repeat(orjson.dumps(record), topic="settings", key=scope.encode())

    def rules_in_force(self) -> Rules:
        """Rules of the files with all levels over them."""
        return layered(self.world.topology.source.base, self.levels())

    def levels(self) -> Any:
        """What each level sets, as the session has it."""
        return self.world.topology.source.levels(self.world.workspace, "u1", self.world.session_state().overrides)

    # --- operations ---------------------------------------------------------------------------------------------------

    @reads("id", POLICY_FIELDS)
    def op_register_policy(self, event: dict[str, Any]) -> None:
        """A program sets a prerequisite, for its workspace."""
        told = {name: value for name, value in event.items() if name not in {"ev", "name"}}
        self.registered.append(policy(told))
        self.set_level(Level.WORKSPACE, {"rules": {"prerequisite_policies": self.registered}})

    def op_load_config(self, data: dict[str, Any] | None = None, policies: Any = None) -> None:
        """The files change to this; what held goes on to hold where they cannot be used."""
        named = (
            [{"policy_id": name, **one} for name, one in policies.items()] if isinstance(policies, dict) else policies
        )
        listed = {} if policies is None else {"prerequisite_policies": [policy(one) for one in named]}
        with TemporaryDirectory() as folder:
            files = Path(folder) / "rules.json", Path(folder) / "policies.json"
            for file in files:
                file.write_text("{}")
            self.files = RuleFiles(*files)
            self.files.load()
            for file, content in zip(files, ({} if data is None else data, listed), strict=True):
                file.write_text(json.dumps(content))
            loaded = self.files.reload()
        if loaded is not None:
            self.loaded = loaded
            held = {**self.rules.policies, **loaded.policies}
            self.world.topology.source.rebase(structs.replace(self.rules if data is None else loaded, policies=held))

    def op_snapshot_restore(self, settings: dict[str, Any]) -> None:
        """A session with these settings is kept, and taken up again by another process from what was kept."""
        self.set_level(Level.SESSION, {setting_named(name): value for name, value in settings.items()})
        world = self.world
        kept = {
            (name, key): snapshot
            for name, processor in world.topology.processors.items()
            for key, snapshot in processor.snapshot()
        }
        positions = dict(world.topology.next_offsets)
        base = world.topology.source.base
        world.topology = LocalTopology(base, load=lambda stage, key: kept.get((stage, key)), next_offsets=positions)
        overrides = msgspec.json.decode(world.session_state().overrides or "{}", type=SettingsOverrides)
        self.restored = dict.fromkeys(SettingsOverrides.__struct_fields__) | set_by(overrides)

    # --- what has come of it ------------------------------------------------------------------------------------------

    def see_restored(self) -> dict[str, Any] | None:
        """Settings of the session that was taken up again."""
        restored = there(self.restored, "a session that nobody has restored")
        return {name: restored[setting_named(name)] for name in (*self.expected["restored"], *SETTINGS)}

    VIEWS = {
        "active": lambda self: sorted(name for name, one in self.rules_in_force().policies.items() if one.enabled),
        "warnings errors": lambda self: int(self.files is not None and self.files.fault is not None),
    }


class Settings(Levels):
    """Cases of `settings`, `persist` and `config`."""

    def prepare(self) -> None:
        """Nothing is asked about yet."""
        super().prepare()
        self.named: list[str] = []
        self.looked_up: tuple[str, ...] = ()

    # --- operations ---------------------------------------------------------------------------------------------------

    def op_set(self, level: str, key: str, value: Any) -> None:
        """A level sets a value; null inherits."""
        self.named.append(setting_named(key))
        self.set_level(_level(level), {self.named[-1]: value})

    def op_clear(self, level: str, key: str = "") -> None:
        """A level sets nothing any more, or not this."""
        if key:
            self.set_level(_level(level), {setting_named(key): None})
        else:
            self.overrides.pop(_level(level), None)
            self.tell_level(_level(level))

    def op_save(self, level: str, key: str = "") -> None:
        """A level takes over what the session has set: the settings named, or all of them."""
        session = set_by(self.overrides.get(Level.SESSION))
        named = [setting_named(key)] if key else SETTINGS
        self.set_level(_level(level), {name: session[name] for name in named if name in session})

    def op_env(self, value: Any, variable: str = "", key: str = "") -> None:
        """A variable of the environment is set."""
        variable = (variable or key).lower()
        name = next((name for name in (*SETTINGS, *OTHER_NAMES) if variable.endswith(name)), None)
        told = {"true": True, "false": False}.get(str(value).lower(), value)
        self.op_set("environment", there(name, f"variable {variable!r}"), told)

    def op_persist_state(self, key: str, state: str) -> None:
        """A key gets into a state, the way it would: by failures, and by an operator's reset."""
        if state == "trusted":
            self.world.command("trust.reset", key=key)
        else:
            severity = known(state, {"escalated": "server_error", "blocked": "security"}, "state to keep")
            failed = {"tool": key, "ok": False, "error": "it failed", "severity": severity}
            self.calls.take({"ev": "tool_call", "times": 3, **failed})

    def op_load_config(self, data: dict[str, Any] | None = None, policies: Any = None) -> None:
        """The files change to this; the last value of the rules is what the case is about."""
        super().op_load_config(data, policies)
        self.looked_up = _only_path(data)

    OPS = {"unset": op_clear, "set_env": op_env}

    # --- what has come of it ------------------------------------------------------------------------------------------

    def see_effective(self) -> list[Any]:
        """Value of the setting in question, and the level that says so."""
        asked = self.expected.get("effective_key")
        name = setting_named(asked) if asked else self.named[-1] if self.named else ""
        rows = {row.name: row for row in table(self.world.topology.source.base, self.levels())}
        found = known(name, rows, "setting")
        return [found.value, str(found.level)]

    def check_effective_key(self, wanted: str) -> str:
        """Which setting is meant."""
        return "" if setting_named(wanted) in SETTINGS else f"there is no setting {wanted!r}"

    def see_value(self) -> Any:
        """What the setting is that the file was about."""
        if not self.looked_up:
            raise UnknownWord("a value of no file")
        field = self.looked_up[-1]
        if field in _LADDERS:
            return getattr(self.loaded.behaviour, _LADDERS[field]).minor
        return known(field, msgspec.to_builtins(self.loaded.trust.default_rule), "value")

    VIEWS = {"stored": lambda self: [told["key"] for told in self.world.told("trust")]}


def _only_path(data: Any) -> tuple[str, ...]:
    """Where the last value stands in a document."""
    path: tuple[str, ...] = ()
    while isinstance(data, dict) and data:
        name = list(data)[-1]
        path, data = (*path, str(name)), data[name]
    return path
