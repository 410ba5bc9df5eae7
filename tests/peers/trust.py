"""Trust, failure keys and severities: what becomes of keys whose calls fail, and what a permission prompt is told."""

from __future__ import annotations

import asyncio
from typing import Any

from msgspec import structs
from trustfold.guard.permission import PermissionWrapper, is_refused, must_ask, recovery_hint
from trustfold.projections.calls.keys import is_shell, parse_key, shell_command
from trustfold.projections.calls.shell import simple_commands
from trustfold.projections.tool.failure_counts import decay, effective_failures
from trustfold.projections.tool.tool_state import TrustRecord
from trustfold.rules.merging import plain
from trustfold.rules.rules import EscalationPatch, EscalationRule, RuleSet, TrustRules
from trustfold.schemas.vocabulary import FailureSeverity, TrustState

from ..support.fixed_rules import DefaultRule
from .area import Area, Checked, reads, same
from .case import UnknownWord, known, refuse_fields

_FIELDS = {name: name for name in EscalationPatch.__struct_fields__} | {
    "min_calls": "rate_min_calls",
    "window_s": "window_seconds",
    "cooldown_s": "cooldown_seconds",
    "escalation_s": "escalation_duration_seconds",
    "successes_to_recover": "success_count_to_recover",
    "success_count": "success_count_to_recover",
}
"""Settings of one rule, as peers and seeds name them → our field."""

_COUNTS = ("failure_count", "threshold")
"""Numbers that the guard writes for people, as texts."""

_PRIVILEGE_WRAPPERS = frozenset({"sudo", "doas", "privileged"})
_HELD = frozenset({TrustState.ESCALATED, TrustState.RECOVERING, TrustState.BLOCKED, TrustState.REMOVED})


def _patch_of(value: Any) -> dict[str, Any]:
    """Fields of a rule of a layer: a number is its count threshold. Raises UnknownWord: it sets what no rule has."""
    told = {"count_threshold": value} if value is None or isinstance(value, int) else value
    refuse_fields(told, _FIELDS, "a rule")
    return {_FIELDS[name]: set_to for name, set_to in told.items()}


class Trust(Area):
    """Cases of `trust`, `failure_key` and `severity`."""

    def prepare(self) -> None:
        self.default: dict[str, Any] = {}

    def read_settings(self) -> None:
        super().read_settings()
        duration = self.default.get("escalation_duration_seconds")
        if duration is not None and "cooldown_seconds" not in self.default:
            self.default["cooldown_seconds"] = min(DefaultRule().cooldown_seconds, duration)  # peers have none
        self.set_fields("trust", default_rule=plain(DefaultRule()) | self.default)

    KNOBS = {"trust": {"recovery_mode": "recovery_mode"}}
    CONFIG = {
        **{
            word: lambda self, value, field=field: self.default.update({field: value})
            for word, field in _FIELDS.items()
        },
        **{
            layer: lambda self, value, layer=layer: self.given_fields["trust"].update(
                {layer: {name: _patch_of(rule) for name, rule in value.items()}}
            )
            for layer in ("plugin_rules", "service_rules", "domain_rules", "tool_rules")
        },
        "default": lambda self, value: self.default.update(_patch_of(value)),
    }

    def op_check_permission(self, tool: str, args: Any = None, inner: str = "allow", session: str = "") -> Any:
        """What the guard makes of the answer of a platform's own plugin, `inner`.

        A plugin that would allow the call asks where it is told to; the others stay with what they say.
        """
        said, args = known(inner, {one: one for one in ("allow", "ask", "deny")}, "inner answer"), dict(args or {})

        def plugin(_tool: str, _args: object, context: dict[str, Any] | None, _call_id: object) -> bool:
            nonlocal said
            if context is not None and context.get("force_ask") and inner != "deny":
                said = "forced_ask"
            return inner != "deny"

        guard = self.world.guard()
        asked = PermissionWrapper(plugin, guard).check_permission(tool, args, session_id=session or self.world.session)
        allowed, info = asyncio.run(asked)
        told = dict(info.get("escalation") or {})
        if told:
            counts = {name: int(told[name]) for name in _COUNTS if str(told.get(name, "")).isdigit()}
            told = {"escalated": True, **told, **counts}
        elif info.get("method") == "reliability":
            state = guard.trust_of(tool, args)
            told = {"escalated": True, "state": str(state.state) if state else "", "reason": info["reason"]}
        return (said if allowed else "deny"), told

    def op_check_escalation(self, tool: str, args: Any = None, session: str = "") -> dict[str, Any]:
        """Somebody asks how a call's key stands, without making the call."""
        held = self.world.guard().trust_of(tool, dict(args or {}), session_id=session or self.world.session)
        if held is None:
            return {"is_escalated": False, "state": "trusted", "progress": None, "hint": ""}
        successes, needed = held.record.successes or 0, held.record.successes_needed
        return {
            "is_escalated": must_ask(held) or is_refused(held),
            "state": str(held.state),
            "progress": f"{successes}/{needed}" if needed else None,
            "hint": recovery_hint(held),
        }

    def op_resolve_rule(self, tool: str = "", domain: str = "", service: str = "", plugin: str = "") -> EscalationRule:
        """Which rule holds for a tool with this domain, service and plugin."""
        return self.rules.trust.rules_for(tool=tool, domain=domain, service=service, plugin=plugin).key

    def op_set_recovery_mode(self, mode: str) -> None:
        """From the next event on recovery is automatic, or waits for the operator."""
        self.world.event("session.settings_changed", settings={"recovery_mode": mode})

    def op_reset(self, key: str = "all") -> None:
        """An operator's order about a key, or about everything."""
        for one in list(self._records()) if key in {"all", "*"} else [key]:
            self.world.command("trust.reset", key=str(one))

    OPS = {
        "decline": reads("tool args")(lambda self, event: self.calls.decline(event)),
        "parse_key": lambda _self, key: parse_key(key),
        # Weight of one failure at this age, after so many later sessions in which its key worked.
        "effective_weight": lambda _self, age_s=0, sessions_crossed=0: decay(round(1000 * age_s), sessions_crossed),
    }

    def see_counters(self) -> dict[str, dict[str, float]]:
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
            name: str(self.world.scope_trust(f"service:{rest}" if rest and kind != "tool" else f"tool:{rest or name}"))
            for name, (kind, _, rest) in named
        }

    def see_pending_confirmation(self) -> list[str]:
        """Keys of calls that have recovered and wait for the operator."""
        return sorted(key for key, record in self._records().items() if record.pending and key in self._keys())

    def check_info(self, wanted: dict[str, Any] | None) -> Checked:
        """Answer to the last `check_escalation`; nothing is wanted of a key that is trusted."""
        info = self.answer("check_escalation")
        return same(info, wanted) if wanted else not info["is_escalated"], info

    def check_metadata(self, wanted: dict[str, Any]) -> Checked:
        """What it told along; nothing where nothing is wanted."""
        told = self.answers["check_permission"][-1][1] if self.answers["check_permission"] else {}
        return bool(told) is bool(wanted) and same(told, wanted), told

    def check_flags(self, wanted: list[str]) -> Checked:
        call = next((one for one in reversed(self.case.given) if "tool" in one), {"tool": ""})
        line = shell_command(call.get("args") or {}) if is_shell(call["tool"]) else ""
        privileged = any(command.privileged for command in simple_commands(line))
        for flag in wanted:
            known(flag, dict.fromkeys(_PRIVILEGE_WRAPPERS), "flag")
        return privileged is bool(wanted), "privileged" if privileged else "not privileged"

    def see_events(self) -> dict[str, int]:
        """How often the keys of the calls came into each state."""
        names = {str(state): 0 for state in TrustState} | {"recovered": 0}
        for change in self._changes():
            names["recovered" if change["to"] == "trusted" and change["trigger"] != "reset" else change["to"]] += 1
        return names | {"recovery_pending": len(self.world.decisions("trust.recovery_pending", scope="key"))}

    def see_reason(self) -> str | None:
        """What the key lost its trust by, last."""
        lost = [one for one in self._changes() if one["to"] in {"escalated", "blocked"}]
        return str(lost[-1]["trigger"]) if lost and lost[-1].get("reason") else None

    def see_progress(self) -> dict[str, str]:
        """Successes of the recovery under way, and how many it takes."""
        records = {key: self._record(key) for key in self.expected["progress"] if key in self._records()}
        return {key: f"{record.successes}/{record.successes_needed}" for key, record in records.items()}

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
        every = TrustRules(
            default_rule=EscalationPatch(severity_filter=frozenset(FailureSeverity), count_threshold=None)
        )
        trial = self.trial(config={})
        trial.world.topology = type(trial.world.topology)(structs.replace(RuleSet(), trust=every))
        trial.play()
        weights = [failure.weight for record in trial.world.trust_records().values() for failure in record.failures]
        return weights[-1] if weights else None if trial._outcome("severity") is None else 1.0

    VIEWS = {
        "states": lambda self: {key: str(self._record(key).state) for key in self.expected["states"]},
        "state": lambda self: str(self._only().state),
        "weights": lambda self: self.answers["effective_weight"],
        "user_notifications": lambda self: sum(
            bool(change.get("notification")) and not change.get("silent") for change in self._changes()
        ),
        "tracked": lambda self: len(self._records()),
        "escalated": lambda self: sum(record.state in _HELD for record in self._records().values()),
        "recovery_pending": lambda self: any(record.pending for record in self._records().values()),
        "denials": lambda self: max((record.denials for record in self._records().values()), default=0),
        "permission": lambda self: self.answer("check_permission")[0],
        "key": lambda self: self._outcome("fine_key"),
        "severity": lambda self: self._outcome("severity"),
        "tool": lambda self: next(reversed(self.answers["parse_key"]), (None, None))[0],
        "signature": lambda self: next(reversed(self.answers["parse_key"]), (None, None))[1],
        **{word: lambda self, field=field: getattr(self._rule(), field) for word, field in _FIELDS.items()},
    }

    def _rule(self) -> EscalationRule:
        """The rule that somebody has asked for last, else the one of all tools."""
        return next(reversed(self.answers["resolve_rule"]), self.rules.trust.rules_for("").key)

    def _outcome(self, field: str) -> Any:
        return next(reversed(self.world.outcomes()), {}).get(field)

    def _keys(self) -> list[str]:
        return list(dict.fromkeys(one["fine_key"] for one in self.world.outcomes()))

    def _records(self) -> dict[str, TrustRecord]:
        return self.world.trust_records()

    def _record(self, key: str) -> TrustRecord:
        """What is held of a key; one that was never heard of is trusted."""
        return self._records().get(key, TrustRecord(key=key, scope="key"))

    def _only(self) -> TrustRecord:
        """The record of the call's own key."""
        keys = self._keys()
        if len(keys) > 1:
            raise UnknownWord(f"one state of {len(keys)} keys; expect `states`")
        return self._record(keys[0] if keys else "")

    def _changes(self) -> list[dict[str, Any]]:
        """Transitions of the calls' own keys; tools and services as a whole have theirs beside."""
        return [change for change in self.world.decisions("trust.changed") if change["key"] in self._keys()]
