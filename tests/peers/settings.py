"""Settings on their levels, what is kept of a state, and what becomes of a wrong config file."""

from __future__ import annotations

from typing import Any

import msgspec
from trustfold.rules.levels import SETTINGS, Level, set_by, table

from .area import reads
from .case import UnknownWord, known
from .levels import OTHER_NAMES, Levels, setting_named

_LEVELS = {"env": Level.ENVIRONMENT, "project": Level.WORKSPACE, "global": Level.USER}


class Settings(Levels):
    """Cases of `settings`, `persist` and `config`."""

    def prepare(self) -> None:
        """Nothing is asked about yet."""
        super().prepare()
        self.named: list[str] = []
        self.looked_up: tuple[str, ...] = ()

    # --- operations ---------------------------------------------------------------------------------------------------

    @reads("level key value")
    def op_set(self, event: dict[str, Any]) -> None:
        """A level sets a value; null inherits."""
        name = setting_named(str(event["key"]))
        self.named.append(name)
        self.set_level(self._level(event), {name: event["value"]})

    @reads("level key")
    def op_clear(self, event: dict[str, Any]) -> None:
        """A level sets nothing any more, or not this."""
        level = self._level(event)
        if "key" in event:
            self.set_level(level, {setting_named(str(event["key"])): None})
        else:
            self.overrides.pop(level, None)
            self.tell_level(level)

    @reads("level key")
    def op_save(self, event: dict[str, Any]) -> None:
        """A level takes over what the session has set: the settings named, or all of them."""
        named = [setting_named(str(event["key"]))] if "key" in event else list(SETTINGS)
        session = set_by(self.overrides.get(Level.SESSION))
        self.set_level(self._level(event), {name: session[name] for name in named if name in session})

    @reads("variable key value")
    def op_env(self, event: dict[str, Any]) -> None:
        """A variable of the environment is set."""
        variable = str(event.get("variable", event.get("key", ""))).lower()
        name = next((name for name in (*SETTINGS, *OTHER_NAMES) if variable.endswith(name)), None)
        if name is None:
            raise UnknownWord(f"variable {variable!r}")
        value = event["value"]
        if isinstance(value, str) and value.lower() in {"true", "false"}:
            value = value.lower() == "true"
        self.op_set({"level": "environment", "key": name, "value": value})

    def _level(self, event: dict[str, Any]) -> Level:
        name = str(event["level"])
        try:
            return _LEVELS.get(name) or Level(name)
        except ValueError:
            raise UnknownWord(f"level {name!r}") from None

    @reads("key state")
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

    @reads("data policies")
    def op_load_config(self, event: dict[str, Any]) -> None:
        """The files change to this; the last value of the rules is what the case is about."""
        super().op_load_config(event)
        self.looked_up = _only_path(event.get("data"))

    OPS = {"unset": op_clear, "set_env": op_env}

    # --- what has come of it ------------------------------------------------------------------------------------------

    def see_effective(self) -> list[Any]:
        """Value of the setting in question, and the level that says so."""
        asked = self.expected.get("effective_key")
        name = setting_named(asked) if asked else self.named[-1] if self.named else ""
        source = self.world.topology.source
        session = getattr(self.world.session_state(), "overrides", "")
        levels = source.levels(self.world.workspace, "u1", session)
        rows = {row.name: row for row in table(source.base, levels)}
        found = known(name, rows, "setting")
        return [found.value, str(found.level)]

    def check_effective_key(self, wanted: str) -> str:
        """Which setting is meant."""
        return "" if setting_named(wanted) in SETTINGS else f"there is no setting {wanted!r}"

    def see_value(self) -> Any:
        """What the setting is that the file was about."""
        if not self.looked_up:
            raise UnknownWord("a value of no file")
        name = self.looked_up[-1].removesuffix("_threshold")
        ladders = {
            "repetitive_call": "repetitive_calls",
            "error_retry": "error_retry_loop",
            "introspection_loop": "introspection_loop",
            "max_reads_before_action": "read_only_loop",
        }
        if name in ladders:
            return getattr(self.loaded.behaviour, ladders[name]).minor
        rule = self.loaded.trust.default_rule
        found = getattr(rule, self.looked_up[-1], msgspec.UNSET)
        if found is msgspec.UNSET:
            raise UnknownWord(f"value of {'.'.join(self.looked_up)}")
        return found

    VIEWS = {"stored": lambda self: [told["key"] for told in self.world.told("trust")]}


def _only_path(data: Any) -> tuple[str, ...]:
    """Where the last value stands in a document."""
    path: tuple[str, ...] = ()
    while isinstance(data, dict) and data:
        name = list(data)[-1]
        path, data = (*path, str(name)), data[name]
    return path
