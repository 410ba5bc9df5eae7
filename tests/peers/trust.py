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
from trustfold.rules.base import plain
from trustfold.rules.rules import EscalationPatch, EscalationRule, Rules, TrustRules
from trustfold.schemas.vocabulary import Severity, TrustState

from ..support.fixed_rules import DefaultRule
from .area import Area, nothing, reads, same
from .case import UnknownWord, known, refuse_fields, there
from .guarded import guard_over

_FIELDS = {
    **{name: name for name in EscalationPatch.__struct_fields__},
    "min_calls": "rate_min_calls",
    "window_s": "window_seconds",
    "cooldown_s": "cooldown_seconds",
    **dict.fromkeys(("escalation_duration_s", "escalation_s"), "escalation_duration_seconds"),
    **dict.fromkeys(("successes_to_recover", "success_count"), "success_count_to_recover"),
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


def patch_of(value: Any) -> dict[str, Any]:
    """Fields of a rule of a layer: a number is its count threshold. Raises UnknownWord: it sets what no rule has."""
    told = {"count_threshold": value} if value is None or isinstance(value, int) else value
    refuse_fields(told, _FIELDS, "a rule")
    return {_FIELDS[name]: set_to for name, set_to in told.items()}


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
        super().conclude_config()
        default = self.default
        duration = default.get("escalation_duration_seconds")
        if duration is not None and "cooldown_seconds" not in default:
            default["cooldown_seconds"] = min(DefaultRule().cooldown_seconds, duration)  # peers have none
        self.change(
            "trust", default_rule=msgspec.convert(plain(DefaultRule()) | default, EscalationPatch), **self.layers
        )

    # --- config -------------------------------------------------------------------------------------------------------

    def _add_layer(self, layer: str, value: dict[str, Any]) -> None:
        self.layers[layer] = {name: msgspec.convert(patch_of(rule), EscalationPatch) for name, rule in value.items()}

    KNOBS = {
        "trust": {"recovery_mode": "recovery_mode mode"},
        "tools": {"key_by": "key_by", "expected_failures": "expected_failures"},
        "calls": {"security_patterns": "security_patterns"},
    }
    CONFIG = {
        **{
            word: lambda self, value, field=field: self.default.update({field: value})
            for word, field in _FIELDS.items()
        },
        **{
            layer: lambda self, value, layer=layer: self._add_layer(layer, value)
            for layer in ("plugin_rules", "service_rules", "domain_rules", "tool_rules")
        },
        "default default_rule": lambda self, value: self.default.update(patch_of(value)),
        "enable_auto_recovery auto_recovery": lambda self, value: self.config_recovery_mode("auto" if value else "ask"),
    }

    # --- operations ---------------------------------------------------------------------------------------------------

    def op_check_permission(self, tool: str, args: Any = None, inner: str = "allow", session: str = "") -> None:
        """What the guard makes of the answer of a platform's own plugin, `inner`.

        A plugin that would allow the call asks where it is told to; the others stay with what they say.
        """
        said, args = known(inner, {one: one for one in ("allow", "ask", "deny")}, "inner answer"), dict(args or {})

        def plugin(_tool: str, _args: object, context: dict[str, Any] | None, _call_id: object) -> bool:
            nonlocal said
            if context is not None and context.get("force_ask") and inner != "deny":
                said = "forced_ask"
            return inner != "deny"

        guard = guard_over(self.world)
        asked = PermissionWrapper(plugin, guard).check_permission(tool, args, session_id=session or self.world.session)
        allowed, info = asyncio.run(asked)
        told = dict(info.get("escalation") or {})
        if told:
            counts = {name: int(told[name]) for name in _COUNTS if str(told.get(name, "")).isdigit()}
            told = {"escalated": True, **told, **counts}
        elif info.get("method") == "reliability":
            state = guard.trust_of(tool, args)
            told = {"escalated": True, "state": str(state.state) if state else "", "reason": info["reason"]}
        self.permission = (said if allowed else "deny"), told

    def op_check_escalation(self, tool: str, args: Any = None, session: str = "") -> None:
        """Somebody asks how a call's key stands, without making the call."""
        held = guard_over(self.world).trust_of(tool, dict(args or {}), session_id=session or self.world.session)
        self.info = {"is_escalated": False, "state": "trusted", "progress": None, "hint": ""}
        if held is not None:
            successes, needed = held.record.successes or 0, held.record.successes_needed
            self.info = {
                "is_escalated": must_ask(held) or is_refused(held),
                "state": str(held.state),
                "progress": f"{successes}/{needed}" if needed else None,
                "hint": recovery_hint(held),
            }

    @reads("tool args")
    def op_decline(self, event: dict[str, Any]) -> None:
        """A user refuses a call."""
        told = {name: event[name] for name in ("tool", "args") if name in event}
        self.calls.take({"ev": "permission", "granted": False, **told})

    event_permission_denied = op_decline

    def op_resolve_rule(
        self, tool: str = "", domain: str = "", service: str = "", plugin: str = "", for_service: bool = False
    ) -> None:
        """Which rule holds for a tool with this domain, service and plugin."""
        rules = self.rules.trust.rules_for(tool=tool, domain=domain, service=service, plugin=plugin)
        self.resolved = rules.of("service" if for_service else "key")

    OPS = {
        "reset reset_all": _order("trust.reset"),
        "recover confirm_recovery approve_recovery": _order("trust.recover"),
        "remove": _order("tool.remove"),
        "restore": _order("tool.restore"),
        "new_session session session_boundary": lambda self, session="": setattr(
            self.world, "session", session or f"{self.world.session}+"
        ),
        "permission": op_check_permission,
        "parse_key": lambda self, key: setattr(self, "parsed", parse_key(key)),
        # Weight of one failure at this age, after so many later sessions in which its key worked.
        "effective_weight": lambda self, age_s=0, sessions_crossed=0: self.weights.append(
            decay(round(1000 * age_s), sessions_crossed)
        ),
        _MODE_OPS: nothing("mode value"),  # the mode is set for the whole case
        "deny user_denies": op_decline,
    }

    # --- what has come of it ------------------------------------------------------------------------------------------

    def see_counters(self) -> dict[str, dict[str, float]]:
        """Counters of each key asked for."""
        rule, now = self.rules.trust.rules_for("").key, self.world.now_ms
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
        for flag in wanted:
            known(flag, dict.fromkeys(_PRIVILEGE_WRAPPERS), "flag")
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
        **{
            word: lambda self, field=field: getattr(self.resolved or self.rules.trust.rules_for("").key, field)
            for word, field in _FIELDS.items()
        },
    }

    # --- keys ---------------------------------------------------------------------------------------------------------

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
