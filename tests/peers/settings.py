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
from trustfold.rules.levels import SETTINGS, SettingLevel, changed, layered, set_by, table
from trustfold.schemas.settings import SettingsOverrides

from ..support.fixed_rules import Rules
from .area import Area, Checked, reads
from .case import UnknownWord, known

_LEVELS = {
    **{str(level): level for level in SettingLevel},
    "env": SettingLevel.ENVIRONMENT,
    "project": SettingLevel.WORKSPACE,
}
_LEVELS["global"] = SettingLevel.USER
_SAVED = {SettingLevel.USER: "user:u1", SettingLevel.WORKSPACE: "workspace:w1"}

_LADDERS = {
    "repetitive_call_threshold": "repetitive_calls",
    "error_retry_threshold": "error_retry_loop",
    "introspection_loop_threshold": "introspection_loop",
    "max_reads_before_action": "reread",
}
"""Thresholds of the older plugin's file → our ladders."""

_POLICY_FIELDS = "policy_id prerequisite_tool gated_tools lookback_turns severity_thresholds enabled"


def setting_named(name: str) -> str:
    """Our name of a setting. Raises UnknownWord: there is none of this name."""
    ours = {"nudges_enabled": "nudge_enabled"}.get(name, name)
    if ours not in SettingsOverrides.__struct_fields__:
        raise UnknownWord(f"setting {name!r}")
    return ours


def policy(told: Any) -> dict[str, Any]:
    """A policy in the shape of a peer's file; one that is only named is about tools of its own."""
    made = {"policy_id": told} if isinstance(told, str) else dict(told)
    made["policy_id"] = made.pop("id", made.get("policy_id"))
    name = made["policy_id"]
    return {"prerequisite_tool": f"first of {name}", "gated_tools": [f"then of {name}"], **made}


class Levels(Area):
    """Settings of environment, session, workspace and user, and of the files."""

    def prepare(self) -> None:
        self.overrides: dict[SettingLevel, SettingsOverrides] = {}
        self.registered: list[dict[str, Any]] = []
        self.files: RuleFiles | None = None
        self.loaded = Rules()

    def set_level(self, level: SettingLevel, changes: dict[str, Any] | None) -> None:
        """Let a level set these beside what it sets already, null inherits; or nothing any more."""
        held = self.overrides.get(level)
        self.overrides[level] = SettingsOverrides() if changes is None else changed(held, changes)
        overrides = msgspec.to_builtins(self.overrides[level])
        source = self.world.topology.source
        self.world.user = "u1"
        if level is SettingLevel.SESSION:
            self.world.event("session.settings_changed", settings=overrides)
        elif level is SettingLevel.ENVIRONMENT:
            source.environment = self.overrides[level]
            source.rebase(source.base)
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

    @reads("id", _POLICY_FIELDS)
    def op_register_policy(self, event: dict[str, Any]) -> None:
        """A program sets a prerequisite, for its workspace."""
        told = {name: value for name, value in event.items() if name not in {"ev", "name"}}
        self.registered.append(policy(told))
        self.set_level(SettingLevel.WORKSPACE, {"rules": {"prerequisite_policies": self.registered}})

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
            for file, content in zip(files, (data or {}, listed), strict=True):
                file.write_text(json.dumps(content))
            loaded = self.files.reload()
        if loaded is not None:
            self.loaded = loaded
            held = {**self.rules.policies, **loaded.policies}
            self.world.topology.source.rebase(structs.replace(self.rules if data is None else loaded, policies=held))

    def op_snapshot_restore(self, settings: dict[str, Any]) -> dict[str, Any]:
        """A session with these settings is kept, and taken up again by another process from what was kept."""
        self.set_level(SettingLevel.SESSION, {setting_named(name): value for name, value in settings.items()})
        old = self.world.topology
        kept = {(name, key): snapshot for name, stage in old.processors.items() for key, snapshot in stage.snapshot()}
        self.world.topology = LocalTopology(
            old.source.base, load=lambda stage, key: kept.get((stage, key)), next_offsets=dict(old.next_offsets)
        )
        overrides = msgspec.json.decode(self.world.session_state().overrides or "{}", type=SettingsOverrides)
        return dict.fromkeys(SettingsOverrides.__struct_fields__) | set_by(overrides)

    def see_restored(self) -> dict[str, Any] | None:
        restored = self.answer("snapshot_restore")
        return {name: restored[setting_named(name)] for name in (*self.expected["restored"], *SETTINGS)}

    VIEWS = {
        "active": lambda self: sorted(name for name, one in self.rules_in_force().policies.items() if one.enabled),
        "warnings": lambda self: int(self.files is not None and self.files.fault is not None),
    }


class Settings(Levels):
    """Cases of `settings`, `persist` and `config`."""

    def prepare(self) -> None:
        super().prepare()
        self.named = ""
        self.looked_up = ""

    def op_set(self, level: str, key: str, value: Any) -> None:
        """A level sets a value; null inherits."""
        self.named = setting_named(key)
        self.set_level(known(level, _LEVELS, "level"), {self.named: value})

    def op_clear(self, level: str, key: str = "") -> None:
        """A level sets nothing any more, or not this."""
        self.set_level(known(level, _LEVELS, "level"), {setting_named(key): None} if key else None)

    def op_persist_state(self, key: str, state: str) -> None:
        """A key gets into a state, the way it would: by failures, and by an operator's reset."""
        if state == "trusted":
            self.world.command("trust.reset", key=key)
        else:
            severity = known(state, {"escalated": "server_error", "blocked": "security"}, "state to keep")
            for _ in range(3):
                self.calls.call({"tool": key, "ok": False, "error": "it failed", "severity": severity})

    def op_load_config(self, data: dict[str, Any] | None = None, policies: Any = None) -> None:
        """The files change to this; the last value of the rules is what the case is about."""
        super().op_load_config(data, policies)
        self.looked_up = ""
        while isinstance(data, dict) and data:
            self.looked_up, data = str(list(data)[-1]), list(data.values())[-1]

    def see_effective(self) -> list[Any]:
        """Value of the setting in question, and the level that says so."""
        asked = self.expected.get("effective_key")
        rows = {row.name: row for row in table(self.world.topology.source.base, self.levels())}
        found = known(setting_named(asked) if asked else self.named, rows, "setting")
        return [found.value, str(found.level)]

    def check_effective_key(self, wanted: str) -> Checked:
        return setting_named(wanted) in SETTINGS, SETTINGS

    def see_value(self) -> Any:
        """What the setting is that the file was about."""
        if self.looked_up in _LADDERS:
            return getattr(self.loaded.behaviour, _LADDERS[self.looked_up]).minor
        return known(self.looked_up, msgspec.to_builtins(self.loaded.trust.default_rule), "value")

    VIEWS = {"stored": lambda self: [told["key"] for told in self.world.told("trust")]}
