"""Trust, failure keys and severities: what becomes of keys whose calls fail, and what a permission prompt is told."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
from trustfold.guard.permission import PermissionWrapper, is_refused, must_ask, recovery_hint
from trustfold.projections.calls.keys import is_shell, parse_key, shell_command
from trustfold.projections.calls.shell import simple_commands
from trustfold.projections.tool.failure_counts import decay, effective_failures
from trustfold.projections.tool.state import TrustRecord
from trustfold.rules.rules import EscalationPatch, EscalationRule, Rules, TrustRules
from trustfold.schemas.vocabulary import RecoveryMode, Severity, TrustState

from .area import Area, changes, nothing, reads, refuse_fields, same
from .case import UnknownWord, there
from .guarded import guard_over

_FIELDS = {
    theirs: ours
    for ours, names in {
        "count_threshold": "count_threshold",
        "consecutive_threshold": "consecutive_threshold",
        "rate_threshold": "rate_threshold",
        "rate_min_calls": "rate_min_calls min_calls",
        "window_seconds": "window_seconds window_s",
        "severity_filter": "severity_filter",
        "escalation_duration_seconds": "escalation_duration_seconds escalation_duration_s escalation_s",
        "cooldown_seconds": "cooldown_seconds cooldown_s",
        "success_count_to_recover": "success_count_to_recover successes_to_recover success_count",
        "block_after": "block_after",
        "notify_user": "notify_user",
    }.items()
    for theirs in names.split()
}
"""Settings of one rule, as peers and seeds name them → our field."""

_COUNTS = ("failure_count", "threshold")
"""Numbers that the guard writes for people, as texts."""

_MODE_OPS = "recovery_mode set_recovery_mode set_mode"
_PRIVILEGE_WRAPPERS = frozenset({"sudo", "doas", "privileged"})
_HELD = frozenset({TrustState.ESCALATED, TrustState.RECOVERING, TrustState.BLOCKED, TrustState.REMOVED})


def _order(kind: str) -> Callable[[Trust, dict[str, Any]], None]:
    """An operator's order about a key, a tool, or everything."""

    @reads("key tool args")
    def order(self: Trust, event: dict[str, Any]) -> None:
        for key in self._meant(event):
            self.world.command(kind, key=key)

    return order


def _sets(field: str) -> Callable[[Trust, Any], None]:
    return lambda self, value: self.default.update({field: value})


def _layer(layer: str) -> Callable[[Trust, dict[str, Any]], None]:
    return lambda self, value: self.layers.update({layer: {name: patch_of(rule) for name, rule in value.items()}})


def _resolves(field: str) -> Callable[[Trust], Any]:
    return lambda self: getattr(self.resolved or self._rule(), field)


def patch_of(value: Any) -> EscalationPatch:
    """A rule of a layer: a number is its count threshold. Raises UnknownWord: it sets what no rule has."""
    if value is None or isinstance(value, int):
        return EscalationPatch(count_threshold=value)
    refuse_fields(value, _FIELDS, "a rule")
    return msgspec.convert({_FIELDS[name]: set_to for name, set_to in value.items()}, EscalationPatch)


class Trust(Area):
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
            if event.get("ev") == "op" and event.get("name") in _MODE_OPS.split():
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
        **{theirs: _sets(ours) for theirs, ours in _FIELDS.items()},
        **{name: _layer(name) for name in ("plugin_rules", "service_rules", "domain_rules", "tool_rules")},
        "default_rule": config_default,
        "recovery_mode mode": changes("trust", "recovery_mode", RecoveryMode),
        "enable_auto_recovery auto_recovery": lambda self, value: self.config_recovery_mode("auto" if value else "ask"),
        "key_by": changes("tools", "key_by"),  # how failure keys are made
        "security_patterns": changes("calls", "security_patterns", tuple),
        "expected_failures": changes("tools", "expected_failures", frozenset),
    }

    # --- operations ---------------------------------------------------------------------------------------------------

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

    @reads("tool args times")
    def op_decline(self, event: dict[str, Any]) -> None:
        """A user refuses a call."""
        told = {name: event[name] for name in ("tool", "args", "times") if name in event}
        self.calls.take({"ev": "permission", "granted": False, **told})

    event_permission_denied = op_decline

    @reads("tool domain service plugin for_service")
    def op_resolve_rule(self, event: dict[str, Any]) -> None:
        """Which rule holds for a tool with this domain, service and plugin."""
        named = {name: str(event.get(name, "")) for name in ("tool", "domain", "service", "plugin")}
        self.resolved = self.rules.trust.rules_for(**named).of("service" if event.get("for_service") else "key")

    OPS = {
        "reset reset_all": _order("trust.reset"),
        "recover confirm_recovery approve_recovery": _order("trust.recover"),
        "remove": _order("tool.remove"),
        "restore": _order("tool.restore"),
        "new_session session session_boundary": reads("session")(
            lambda self, event: setattr(self.world, "session", str(event.get("session", f"{self.world.session}+")))
        ),
        "permission": op_check_permission,
        "parse_key": reads("key")(lambda self, event: setattr(self, "parsed", parse_key(event["key"]))),
        # Weight of one failure at this age, after so many later sessions in which its key worked.
        "effective_weight": reads("age_s sessions_crossed")(
            lambda self, event: self.weights.append(
                decay(round(1000 * event.get("age_s", 0)), int(event.get("sessions_crossed", 0)))
            )
        ),
        _MODE_OPS: nothing("mode value"),  # the mode is set for the whole case
        "deny user_denies": op_decline,
    }

    # --- what has come of it ------------------------------------------------------------------------------------------

    def see_counters(self) -> dict[str, dict[str, float]]:
        """Counters of each key asked for."""
        rule, now = self._rule(), self.world.now_ms
        return {
            key: {
                "failures": sum(failure.at >= now - 1000 * rule.window_seconds for failure in record.failures),
                "consecutive": record.consecutive,
                "effective": effective_failures(record, rule, now),
                "successes": record.worked,
                "denials": record.denials,
            }
            for key, record in ((key, self._record(key)) for key in self.expected["counters"])
        }

    def see_aggregate(self) -> dict[str, str]:
        """State of each scope asked for: `mcp:NAME` is a server as a whole, a bare name a tool as a whole."""
        named = ((name, name.partition(":")) for name in self.expected["aggregate"])
        return {
            name: str(self.world.scope_state(f"service:{rest}" if rest and kind != "tool" else f"tool:{rest or name}"))
            for name, (kind, _, rest) in named
        }

    def see_pending_confirmation(self) -> list[str]:
        """Keys of calls that have recovered and wait for the operator."""
        keys = dict.fromkeys(one["fine_key"] for one in self.world.outcomes())
        return sorted(key for key, record in self._records().items() if record.pending and key in keys)

    def check_info(self, wanted: dict[str, Any] | None) -> str:
        """Answer to the last `check_escalation`; nothing is wanted of a key that is trusted."""
        there(self.info, "how a key stands, which nobody asked for")
        if wanted:
            return "" if same(wanted, self.info) else f"info is {self.info!r}, not {wanted!r}"
        return f"info is {self.info!r}" if self.info["is_escalated"] else ""

    def check_flags(self, wanted: list[str]) -> str:
        """Privilege wrappers in front of the command word of the last call."""
        call = next((one for one in reversed(self.case.given) if "tool" in one), {"tool": ""})
        line = shell_command(call.get("args") or {}) if is_shell(call["tool"]) else ""
        privileged = any(command.privileged for command in simple_commands(line))
        unknown = sorted(set(wanted) - _PRIVILEGE_WRAPPERS)
        if unknown:
            raise UnknownWord(f"flag {unknown[0]!r}")
        return "" if privileged is bool(wanted) else f"the command is {'' if privileged else 'not '}privileged"

    def see_events(self) -> dict[str, int]:
        """How often the keys of the calls came into each state."""
        names = {str(state): 0 for state in TrustState} | {"recovered": 0, "recovery_pending": 0}
        for change in self._changes():
            names["recovered" if change["to"] == "trusted" and change["trigger"] != "reset" else change["to"]] += 1
        names["recovery_pending"] = len(self.world.decisions("trust.recovery_pending", scope="key"))
        return names

    def _lost(self) -> dict[str, Any]:
        """The change by which the key lost trust last; empty where it never has."""
        return next((one for one in reversed(self._changes()) if one["to"] in {"escalated", "blocked"}), {})

    def see_progress(self) -> dict[str, str]:
        """Successes of the recovery under way, and how many it takes."""
        records = {key: self._record(key) for key in self.expected["progress"] if key in self._records()}
        return {key: f"{record.successes}/{record.successes_needed}" for key, record in records.items()}

    def check_metadata(self, wanted: dict[str, Any]) -> str:
        """What it told along; nothing where nothing is wanted."""
        told = self.permission[1] if self.permission else {}
        if (bool(told) is not bool(wanted)) or not same(wanted, told):
            return f"metadata is {told!r}, not {wanted!r}"
        return ""

    def see_last_severity(self) -> str | None:
        """Severity of the latest failure; `repeated_auth` where it, with those before it, means a broken credential."""
        failed = [one for one in self.world.outcomes() if one["verdict"] == "failure"]
        if not failed:
            return None
        last = failed[-1]
        raised = self.world.decisions("trust.changed", key=last["fine_key"], trigger="repeated_auth")
        return "repeated_auth" if any(last["cause"] in one["caused_by"] for one in raised) else last["severity"]

    def see_weight(self) -> float | None:
        """What it counts towards a threshold, where its severity counts."""
        every = TrustRules(default_rule=EscalationPatch(severity_filter=frozenset(Severity), count_threshold=None))
        trial = type(self)(self.case._replace(config={}))
        trial.world.topology = type(trial.world.topology)(msgspec.structs.replace(Rules(), trust=every))
        trial.play()
        weights = [failure.weight for record in trial.world.trust_records().values() for failure in record.failures]
        return weights[-1] if weights else None if trial.see_severity() is None else 1.0

    VIEWS = {
        "states": lambda self: {key: str(self._record(key).state) for key in self.expected["states"]},
        "state": lambda self: str(self._only().state),
        "reason trigger": lambda self: str(self._lost()["trigger"]) if self._lost().get("reason") else None,
        "reason_text": lambda self: str(self._lost()["reason"]) if self._lost() else None,
        "weights": lambda self: self.weights,  # results of all `effective_weight`, in order
        "user_notifications notifications": lambda self: sum(
            bool(change.get("notification")) and not change.get("silent") for change in self._changes()
        ),
        "tracked": lambda self: len(self._records()),
        "escalated": lambda self: sum(record.state in _HELD for record in self._records().values()),
        "recovery_pending pending": lambda self: any(record.pending for record in self._records().values()),
        "denials": lambda self: max((record.denials for record in self._records().values()), default=0),
        "permission": lambda self: there(self.permission, "a permission that nobody asked for")[0],
        "key": lambda self: self.world.outcome().get("fine_key"),
        "keys": lambda self: [one["fine_key"] for one in self.world.outcomes() if one["scope"].startswith("tool:")],
        "severity": lambda self: self.world.outcome().get("severity"),
        "is_failure failed failure": lambda self: self.world.outcome().get("verdict") == "failure",
        "tool": lambda self: self.parsed[0] if self.parsed else None,
        "signature": lambda self: self.parsed[1] if self.parsed else None,
        "count_threshold": _resolves("count_threshold"),
        "consecutive_threshold": _resolves("consecutive_threshold"),
        "rate_threshold": _resolves("rate_threshold"),
        "window_s": _resolves("window_seconds"),
        "escalation_s": _resolves("escalation_duration_seconds"),
        "successes_to_recover": _resolves("success_count_to_recover"),
        "cooldown_s": _resolves("cooldown_seconds"),
    }

    # --- keys ---------------------------------------------------------------------------------------------------------

    def _rule(self) -> EscalationRule:
        return self.rules.trust.rules_for("").key

    def _meant(self, event: dict[str, Any]) -> list[str]:
        if "key" in event and event["key"] not in {"all", "*"}:
            return [str(event["key"])]
        if "tool" in event:
            return [self._key_of(event)] if "args" in event else [str(event["tool"])]
        return list(self._records())

    def _key_of(self, event: dict[str, Any]) -> str:
        """Failure key of a call, as the session stage makes it, in a world of its own."""
        trial = type(self)(self.case._replace(config={}, given=[]))
        trial.calls.call({"ev": "tool_call", "tool": event["tool"], "args": event.get("args") or {}, "ok": True})
        return str(trial.see_key())

    def _records(self) -> dict[str, TrustRecord]:
        return self.world.trust_records()

    def _record(self, key: str) -> TrustRecord:
        """What is held of a key; one that was never heard of is trusted."""
        return self._records().get(key, TrustRecord(key=key, scope="key"))

    def _only(self) -> TrustRecord:
        """The record of the call's own key."""
        keys = dict.fromkeys(one["fine_key"] for one in self.world.outcomes())
        if len(keys) > 1:
            raise UnknownWord(f"one state of {len(keys)} keys; expect `states`")
        return self._record(next(iter(keys), ""))

    def _changes(self) -> list[dict[str, Any]]:
        """Transitions of the calls' own keys; tools and services as a whole have theirs beside."""
        keys = {one["fine_key"] for one in self.world.outcomes()}
        return [change for change in self.world.decisions("trust.changed") if change["key"] in keys]
