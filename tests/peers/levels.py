"""Settings on their levels, and files of rules and policies: what all areas share that may speak of them."""

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
from trustfold.rules.levels import SETTINGS, Level, changed, layered, set_by
from trustfold.rules.rules import Rules
from trustfold.schemas.settings import SettingsOverrides

from .area import Area, reads
from .case import UnknownWord, there

_SAVED = {Level.USER: "user:u1", Level.WORKSPACE: "workspace:w1"}
OTHER_NAMES = {"nudges_enabled": "nudge_enabled"}
"""Settings as peers name them → our names."""

POLICY_FIELDS = "policy_id prerequisite_tool gated_tools lookback_turns severity_thresholds enabled"


def setting_named(name: str) -> str:
    """Our name of a setting. Raises UnknownWord: there is none of this name."""
    ours = OTHER_NAMES.get(name, name)
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
        source = self.world.topology.source
        session = getattr(self.world.session_state(), "overrides", "")
        return layered(source.base, source.levels(self.world.workspace, "u1", session))

    # --- operations ---------------------------------------------------------------------------------------------------

    @reads("id", POLICY_FIELDS)
    def op_register_policy(self, event: dict[str, Any]) -> None:
        """A program sets a prerequisite, for its workspace."""
        told = {name: value for name, value in event.items() if name not in {"ev", "name"}}
        self.registered.append(policy(told))
        self.set_level(Level.WORKSPACE, {"rules": {"prerequisite_policies": self.registered}})

    @reads("data policies")
    def op_load_config(self, event: dict[str, Any]) -> None:
        """The files change to this; what held goes on to hold where they cannot be used."""
        told = event.get("policies", [])
        named = [{"policy_id": name, **one} for name, one in told.items()] if isinstance(told, dict) else told
        policies = {"prerequisite_policies": [policy(one) for one in named]} if "policies" in event else {}
        with TemporaryDirectory() as folder:
            files = Path(folder) / "rules.json", Path(folder) / "policies.json"
            for file in files:
                file.write_text("{}")
            self.files = RuleFiles(*files)
            self.files.load()
            for file, content in zip(files, (event.get("data", {}), policies), strict=True):
                file.write_text(json.dumps(content))
            loaded = self.files.reload()
        if loaded is None:
            return
        self.loaded = loaded
        base = loaded if "data" in event else self.rules
        held = {**self.rules.policies, **loaded.policies}
        self.world.topology.source.rebase(structs.replace(base, policies=held))

    @reads("settings")
    def op_snapshot_restore(self, event: dict[str, Any]) -> None:
        """A session with these settings is kept, and taken up again by another process from what was kept."""
        settings = {setting_named(name): value for name, value in event["settings"].items()}
        self.set_level(Level.SESSION, settings)
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
