"""Trust, failure keys and severities: calls that fail, what becomes of their keys, and what operators do about it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
from trustfold.guard.permission import PermissionWrapper, is_refused, must_ask, recovery_hint
from trustfold.projections.calls.keys import parse_key
from trustfold.projections.tool.trust import decay
from trustfold.rules.rules import EscalationPatch, EscalationRule
from trustfold.rules.trust import Layers
from trustfold.schemas.vocabulary import RecoveryMode

from .area import reads, refuse_fields
from .case import UnknownWord
from .guarded import guard_over
from .trust_views import TrustViews

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


def patch_of(value: Any) -> EscalationPatch:
    """A rule of a layer: a number is its count threshold.

    Raises:
        UnknownWord: it sets what no rule has.
    """
    if value is None or isinstance(value, int):
        return EscalationPatch(count_threshold=value)
    refuse_fields(value, _FIELDS, "a rule")
    return msgspec.convert({_FIELDS[name]: set_to for name, set_to in value.items()}, EscalationPatch)


class Trust(TrustViews):
    """Cases of `trust`, `failure_key` and `severity`."""

    def prepare(self) -> None:
        """Start from the shipped rules."""
        self.default: dict[str, Any] = {}
        self.layers: dict[str, dict[str, EscalationPatch]] = {}
        self.resolved: EscalationRule | None = None
        self.parsed: tuple[str, str] | None = None
        self.permission: tuple[str, dict[str, Any]] | None = None
        self.info: dict[str, Any] | None = None
        self.weights: list[float] = []
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

    CONFIG = {
        "default_rule": config_default,
        "recovery_mode mode": lambda self, value: self.change("trust", recovery_mode=RecoveryMode(value)),
        "enable_auto_recovery auto_recovery": lambda self, value: self.config_recovery_mode("auto" if value else "ask"),
        "key_by": lambda self, value: self.change("tools", key_by=value),  # how failure keys are made
        "security_patterns": lambda self, value: self.change("calls", security_patterns=tuple(value)),
        "expected_failures": lambda self, value: self.change("tools", expected_failures=frozenset(value)),
    }

    # --- operations ---------------------------------------------------------------------------------------------------

    @reads("key tool args")
    def op_reset(self, event: dict[str, Any]) -> None:
        """An operator resets a key, a tool, or everything."""
        for key in self._meant(event):
            self.world.command("trust.reset", key=key)

    @reads("key tool args")
    def op_recover(self, event: dict[str, Any]) -> None:
        """An operator trusts a key again."""
        for key in self._meant(event):
            self.world.command("trust.recover", key=key)

    @reads("key tool args")
    def op_remove(self, event: dict[str, Any]) -> None:
        """An operator takes a tool away."""
        for key in self._meant(event):
            self.world.command("tool.remove", key=key)

    @reads("key tool args")
    def op_restore(self, event: dict[str, Any]) -> None:
        """An operator gives it back."""
        for key in self._meant(event):
            self.world.command("tool.restore", key=key)

    @reads("session")
    def op_new_session(self, event: dict[str, Any]) -> None:
        """Another session begins."""
        self.world.session = str(event.get("session", f"{self.world.session}+"))

    @reads("tool args inner session")
    def op_check_permission(self, event: dict[str, Any]) -> None:
        """What the guard makes of the answer of a platform's own plugin, `inner`.

        A plugin that would allow the call asks where it is told to; the others stay with what they say.
        """
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

    @reads("tool args session")
    def op_check_escalation(self, event: dict[str, Any]) -> None:
        """Somebody asks how a call's key stands, without making the call."""
        guard, tool, args = guard_over(self.world), str(event["tool"]), dict(event.get("args") or {})
        session = str(event.get("session", self.world.session))
        held = guard.trust_of(tool, args, session_id=session)
        self.info = {"is_escalated": False, "state": "trusted", "progress": None, "hint": ""}
        if held is not None:
            successes, needed = held.record.successes or 0, held.record.successes_needed
            self.info = {
                "is_escalated": must_ask(held) or is_refused(held),
                "state": str(held.state),
                "progress": f"{successes}/{needed}" if needed else None,
                "hint": recovery_hint(held),
            }

    @reads("age_s sessions_crossed")
    def op_effective_weight(self, event: dict[str, Any]) -> None:
        """Weight of one failure at this age, after so many later sessions in which its key worked."""
        self.weights.append(decay(round(1000 * event.get("age_s", 0)), int(event.get("sessions_crossed", 0))))

    @reads("mode value")
    def op_recovery_mode(self, event: dict[str, Any]) -> None:
        """The mode is set for the whole case."""

    @reads("tool domain service plugin for_service")
    def op_resolve_rule(self, event: dict[str, Any]) -> None:
        """Which rule holds for a tool with this domain, service and plugin."""
        named = {name: str(event.get(name, "")) for name in ("tool", "domain", "service", "plugin")}
        self.resolved = self.rules.trust.rule_for(Layers("service" if event.get("for_service") else "key", **named))

    @reads("key")
    def op_parse_key(self, event: dict[str, Any]) -> None:
        """Take a key apart."""
        self.parsed = parse_key(event["key"])

    @reads("tool args times")
    def op_decline(self, event: dict[str, Any]) -> None:
        """A user refuses a call."""
        told = {name: event[name] for name in ("tool", "args", "times") if name in event}
        self.calls.take({"ev": "permission", "granted": False, **told})

    OPS = {
        "reset_all": op_reset,
        "confirm_recovery approve_recovery": op_recover,
        "session session_boundary": op_new_session,
        "permission": op_check_permission,
        "set_recovery_mode set_mode": op_recovery_mode,
        "deny user_denies": op_decline,
    }

    @reads("tool args times")
    def event_permission_denied(self, event: dict[str, Any]) -> None:
        """A user refuses a call."""
        self.op_decline(event)


def _reads(field: str) -> Callable[[Trust, Any], None]:
    return lambda self, value: self.default.__setitem__(field, value)


def _layers(layer: str) -> Callable[[Trust, dict[str, Any]], None]:
    return lambda self, value: self.layers.__setitem__(layer, {name: patch_of(rule) for name, rule in value.items()})


for _theirs, _ours in _FIELDS.items():
    setattr(Trust, f"config_{_theirs}", _reads(_ours))
for _layer in _LAYERS:
    setattr(Trust, f"config_{_layer}", _layers(_layer))
