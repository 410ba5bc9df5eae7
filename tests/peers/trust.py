"""Trust, failure keys and severities: calls that fail, what becomes of their keys, and what operators do about it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
from trustfold.guard.permission import PermissionWrapper
from trustfold.projections.calls.keys import parse_key
from trustfold.projections.tool import trust as fold
from trustfold.projections.tool.layers import resolve
from trustfold.projections.tool.state import TrustRecord
from trustfold.schemas.rules import EscalationPatch, EscalationRule, Rules, TrustRules
from trustfold.schemas.vocabulary import RecoveryMode, Severity, TrustState

from .area import Area, same
from .case import UnknownWord
from .guarded import guard_over

_FIELDS = {
    "count_threshold": "count_threshold",
    "consecutive_threshold": "consecutive_threshold",
    "rate_threshold": "rate_threshold",
    "rate_min_calls": "rate_min_calls",
    "min_calls": "rate_min_calls",
    "window_s": "window_seconds",
    "window_seconds": "window_seconds",
    "severity_filter": "severity_filter",
    "escalation_s": "escalation_duration_seconds",
    "escalation_duration_s": "escalation_duration_seconds",
    "escalation_duration_seconds": "escalation_duration_seconds",
    "cooldown_s": "cooldown_seconds",
    "cooldown_seconds": "cooldown_seconds",
    "successes_to_recover": "success_count_to_recover",
    "success_count_to_recover": "success_count_to_recover",
    "success_count": "success_count_to_recover",
    "block_after": "block_after",
    "notify_user": "notify_user",
}
"""Settings of one rule, as peers and seeds name them → our field."""

_COUNTS = ("failure_count", "threshold")
"""Numbers that the guard writes for people, as texts."""

_LAYERS = ("plugin_rules", "service_rules", "domain_rules", "tool_rules")
_MODE_OPS = frozenset({"recovery_mode", "set_recovery_mode", "set_mode"})
_ASKS = frozenset({TrustState.ESCALATED, TrustState.RECOVERING})
_DENIES = frozenset({TrustState.BLOCKED, TrustState.REMOVED})


def patch_of(value: Any) -> EscalationPatch:
    """A rule of a layer: a number is its count threshold.

    Raises:
        UnknownWord: it sets what no rule has.
    """
    if value is None or isinstance(value, int):
        return EscalationPatch(count_threshold=value)
    unknown = sorted(value.keys() - _FIELDS.keys())
    if unknown:
        raise UnknownWord(f"{unknown[0]!r} in a rule")
    return msgspec.convert({_FIELDS[name]: set_to for name, set_to in value.items()}, EscalationPatch)


def _resolves(field: str) -> Callable[[Trust], Any]:
    return lambda self: getattr(self.resolved or self._rule(), field)


class Trust(Area):
    """Cases of `trust`, `failure_key` and `severity`."""

    def prepare(self) -> None:
        """Start from the shipped rules."""
        self.default: dict[str, Any] = {}
        self.layers: dict[str, dict[str, EscalationPatch]] = {}
        self.resolved: EscalationRule | None = None
        self.parsed: tuple[str, str] | None = None
        self.permission: tuple[str, dict[str, Any]] | None = None
        for event in self.case.given:
            if event.get("ev") == "op" and event.get("name") in _MODE_OPS:
                self.config_recovery_mode(str(event.get("mode", event.get("value"))))

    def conclude_config(self) -> None:
        """The default rule, and the layers over it."""
        default = self.default
        duration = default.get("escalation_duration_seconds")
        if duration is not None and "cooldown_seconds" not in default:
            default["cooldown_seconds"] = min(EscalationRule().cooldown_seconds, duration)  # peers have none
        self.change("trust", default_rule=msgspec.convert(default, EscalationPatch), **self.layers)

    # --- config -------------------------------------------------------------------------------------------------------

    def config_default(self, value: Any) -> None:
        """The default rule as a whole, or its count."""
        patch = patch_of(value)
        self.default |= {
            name: set_to for name in patch.__struct_fields__ if (set_to := getattr(patch, name)) is not msgspec.UNSET
        }

    config_default_rule = config_default

    def config_recovery_mode(self, value: str) -> None:
        """Whether trust comes back by itself."""
        self.change("trust", recovery_mode=RecoveryMode(value))

    config_mode = config_recovery_mode

    def config_enable_auto_recovery(self, value: bool) -> None:
        """The seed's name for it."""
        self.config_recovery_mode("auto" if value else "ask")

    config_auto_recovery = config_enable_auto_recovery

    def config_key_by(self, value: str) -> None:
        """How failure keys are made."""
        self.change("tools", key_by=value)

    def config_security_patterns(self, value: list[str]) -> None:
        """Own patterns of dangerous commands."""
        self.change("calls", security_patterns=tuple(value))

    def config_expected_failures(self, value: list[str]) -> None:
        """Tools whose failures are informational."""
        self.change("tools", expected_failures=frozenset(value))

    # --- operations ---------------------------------------------------------------------------------------------------

    def op_reset(self, event: dict[str, Any]) -> None:
        """An operator resets a key, a tool, or everything."""
        for key in self._meant(event):
            self.world.command("trust.reset", key=key)

    op_reset_all = op_reset

    def op_recover(self, event: dict[str, Any]) -> None:
        """An operator trusts a key again."""
        for key in self._meant(event):
            self.world.command("trust.recover", key=key)

    op_confirm_recovery = op_approve_recovery = op_recover

    def op_remove(self, event: dict[str, Any]) -> None:
        """An operator takes a tool away."""
        for key in self._meant(event):
            self.world.command("tool.remove", key=key)

    def op_restore(self, event: dict[str, Any]) -> None:
        """An operator gives it back."""
        for key in self._meant(event):
            self.world.command("tool.restore", key=key)

    def op_new_session(self, event: dict[str, Any]) -> None:
        """Another session begins."""
        self.world.session = str(event.get("session", f"{self.world.session}+"))

    op_session = op_session_boundary = op_new_session

    def op_check_permission(self, event: dict[str, Any]) -> None:
        """What the guard makes of the answer of a platform's own plugin, `inner`.

        A plugin that would allow the call asks where it is told to; the others stay with what they say.
        """
        unknown = sorted(event.keys() - {"ev", "name", "tool", "args", "inner", "session"})
        if unknown:
            raise UnknownWord(f"field {unknown[0]!r} of operation 'check_permission'")
        inner = str(event.get("inner", "allow"))
        if inner not in {"allow", "ask", "deny"}:
            raise UnknownWord(f"inner answer {inner!r}")
        said = [inner]

        def plugin(_tool: str, _args: object, context: dict[str, Any] | None, _call_id: object) -> bool:
            if context is not None and context.get("force_ask") and inner != "deny":
                said[0] = "forced_ask"
            return inner != "deny"

        guard = guard_over(self.world)
        wrapper = PermissionWrapper(plugin, guard)
        args = dict(event.get("args") or {})
        session = str(event.get("session", self.world.session))
        allowed, info = asyncio.run(wrapper.check_permission(str(event["tool"]), args, session_id=session))
        told = dict(info.get("escalation") or {})
        if told:
            counts = {name: int(told[name]) for name in _COUNTS if str(told.get(name, "")).isdigit()}
            told = {"escalated": True, **told, **counts}
        elif info.get("method") == "reliability":
            state = guard.trust_of(str(event["tool"]), args)
            told = {"escalated": True, "state": str(state.state) if state else "", "reason": info["reason"]}
        self.permission = (said[0] if allowed else "deny"), told

    op_permission = op_check_permission

    def op_recovery_mode(self, event: dict[str, Any]) -> None:
        """The mode is set for the whole case."""

    op_set_recovery_mode = op_set_mode = op_recovery_mode

    def op_resolve_rule(self, event: dict[str, Any]) -> None:
        """Which rule holds for a tool with this domain, service and plugin."""
        named = [str(event.get(name, "")) for name in ("tool", "domain", "service", "plugin")]
        self.resolved = resolve(self.rules.trust, *named, for_service=bool(event.get("for_service")))

    def op_parse_key(self, event: dict[str, Any]) -> None:
        """Take a key apart."""
        self.parsed = parse_key(event["key"])

    def op_decline(self, event: dict[str, Any]) -> None:
        """A user refuses a call."""
        self.calls.take({"ev": "permission", "tool": event["tool"], "granted": False, "times": event.get("times", 1)})

    op_deny = op_user_denies = op_decline

    def event_permission_denied(self, event: dict[str, Any]) -> None:
        """A user refuses a call."""
        self.op_decline(event)

    # --- what has come of it ------------------------------------------------------------------------------------------

    def see_states(self) -> dict[str, str]:
        """State of each key asked for; one that was never heard of is trusted."""
        return {key: str(self._state_of(key)) for key in self.expected["states"]}

    def see_state(self) -> str:
        """State of the only key."""
        return str(self._only().state)

    def see_counters(self) -> dict[str, dict[str, float]]:
        """Counters of each key asked for."""
        records = self.world.trust_records()
        found = {}
        for key in self.expected["counters"]:
            record = records.get(key, TrustRecord(key=key, scope="key"))
            since = self.world.now_ms - 1000 * self._rule().window_seconds
            found[key] = {
                "failures": sum(failure.at >= since for failure in record.failures),
                "consecutive": record.consecutive,
                "effective": fold.effective_failures(record, self._rule(), self.world.now_ms),
                "successes": record.successes,
                "denials": record.denials,
            }
        return found

    def see_events(self) -> dict[str, int]:
        """How often the keys of the calls came into each state."""
        names = {str(state): 0 for state in TrustState} | {"recovered": 0, "recovery_pending": 0}
        for change in self._changes():
            names["recovered" if change["to"] == "trusted" and change["trigger"] != "reset" else change["to"]] += 1
        names["recovery_pending"] = len(self.world.decisions("trust.recovery_pending", scope="key"))
        return names

    def see_reason(self) -> str | None:
        """What made the key lose trust."""
        changes = [change for change in self._changes() if change["to"] in {"escalated", "blocked"}]
        return str(changes[-1]["trigger"]) if changes and changes[-1].get("reason") else None

    see_trigger = see_reason

    def see_reason_text(self) -> str | None:
        """The reason in words."""
        changes = [change for change in self._changes() if change["to"] in {"escalated", "blocked"}]
        return str(changes[-1]["reason"]) if changes else None

    def see_user_notifications(self) -> int:
        """Transitions that are shown to the user."""
        return sum(bool(change.get("notification")) and not change.get("silent") for change in self._changes())

    see_notifications = see_user_notifications

    def see_tracked(self) -> int:
        """Keys that are remembered."""
        return len(self.world.trust_records())

    def see_escalated(self) -> int:
        """Keys that ask."""
        return sum(record.state in _ASKS | _DENIES for record in self.world.trust_records().values())

    def see_progress(self) -> dict[str, str]:
        """Successes of the recovery under way, and how many it takes."""
        records = self.world.trust_records()
        return {
            key: f"{records[key].successes}/{records[key].successes_needed}"
            for key in self.expected["progress"]
            if key in records
        }

    def see_recovery_pending(self) -> bool:
        """Whether a recovery waits for the operator."""
        return any(record.pending for record in self.world.trust_records().values())

    see_pending = see_recovery_pending

    def see_denials(self) -> int:
        """How often users have refused."""
        return max((record.denials for record in self.world.trust_records().values()), default=0)

    def see_permission(self) -> str:
        """Answer of the permission plugin."""
        if self.permission is None:
            raise UnknownWord("a permission that nobody asked for")
        return self.permission[0]

    def check_metadata(self, wanted: dict[str, Any]) -> str:
        """What it told along; nothing where nothing is wanted."""
        told = self.permission[1] if self.permission else {}
        if (bool(told) is not bool(wanted)) or not same(wanted, told):
            return f"metadata is {told!r}, not {wanted!r}"
        return ""

    def see_key(self) -> str | None:
        """Failure key of the call."""
        told = self.world.outcomes()
        return str(told[-1]["fine_key"]) if told else None

    def see_keys(self) -> list[str]:
        """Failure keys of the calls."""
        return [str(one["fine_key"]) for one in self.world.outcomes() if one["scope"].startswith("tool:")]

    def see_tool(self) -> str | None:
        """Tool of the key."""
        return self.parsed[0] if self.parsed else None

    def see_signature(self) -> str | None:
        """Parameters of the key."""
        return self.parsed[1] if self.parsed else None

    def see_severity(self) -> str | None:
        """How bad the failure is."""
        told = self.world.outcomes()
        return told[-1].get("severity") if told else None

    def see_is_failure(self) -> bool:
        """Whether it is a failure at all."""
        told = self.world.outcomes()
        return bool(told) and told[-1]["verdict"] == "failure"

    see_failed = see_failure = see_is_failure

    def see_weight(self) -> float | None:
        """What it counts towards a threshold, where its severity counts."""
        every = TrustRules(default_rule=EscalationPatch(severity_filter=frozenset(Severity), count_threshold=None))
        trial = Trust(self.case._replace(config={}))
        trial.world.topology = type(trial.world.topology)(msgspec.structs.replace(Rules(), trust=every))
        trial.play()
        weights = [failure.weight for record in trial.world.trust_records().values() for failure in record.failures]
        return weights[-1] if weights else None if trial.see_severity() is None else 1.0

    see_count_threshold = _resolves("count_threshold")
    see_consecutive_threshold = _resolves("consecutive_threshold")
    see_rate_threshold = _resolves("rate_threshold")
    see_window_s = _resolves("window_seconds")
    see_escalation_s = _resolves("escalation_duration_seconds")
    see_successes_to_recover = _resolves("success_count_to_recover")
    see_cooldown_s = _resolves("cooldown_seconds")

    # --- keys ---------------------------------------------------------------------------------------------------------

    def _rule(self) -> EscalationRule:
        return resolve(self.rules.trust, "", "", "", "")

    def _meant(self, event: dict[str, Any]) -> list[str]:
        if "key" in event and event["key"] not in {"all", "*"}:
            return [str(event["key"])]
        if "tool" in event:
            return [self._key_of(event)] if "args" in event else [str(event["tool"])]
        return list(self.world.trust_records())

    def _key_of(self, event: dict[str, Any]) -> str:
        """Failure key of a call, as the session stage makes it, in a world of its own."""
        trial = Trust(self.case._replace(config={}, given=[]))
        trial.calls.call({"ev": "tool_call", "tool": event["tool"], "args": event.get("args") or {}, "ok": True})
        return str(trial.see_key())

    def _state_of(self, key: str) -> TrustState:
        record = self.world.trust_records().get(key)
        return record.state if record is not None else TrustState.TRUSTED

    def _only(self) -> TrustRecord:
        """The record of the call's own key."""
        keys = dict.fromkeys(one["fine_key"] for one in self.world.outcomes())
        if len(keys) > 1:
            raise UnknownWord(f"one state of {len(keys)} keys; expect `states`")
        key = next(iter(keys), "")
        return self.world.trust_records().get(key, TrustRecord(key=key, scope="key"))

    def _changes(self) -> list[dict[str, Any]]:
        """Transitions of the calls' own keys; tools and services as a whole have theirs beside."""
        keys = {one["fine_key"] for one in self.world.outcomes()}
        return [change for change in self.world.decisions("trust.changed") if change["key"] in keys]


def _reads(field: str) -> Callable[[Trust, Any], None]:
    return lambda self, value: self.default.__setitem__(field, value)


def _layers(layer: str) -> Callable[[Trust, dict[str, Any]], None]:
    return lambda self, value: self.layers.__setitem__(layer, {name: patch_of(rule) for name, rule in value.items()})


for _theirs, _ours in _FIELDS.items():
    setattr(Trust, f"config_{_theirs}", _reads(_ours))
for _layer in _LAYERS:
    setattr(Trust, f"config_{_layer}", _layers(_layer))
