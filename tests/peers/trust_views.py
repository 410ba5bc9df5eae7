"""Trust as cases see it: states, counts, keys and severities, and what a permission prompt would be told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from trustfold.projections.calls.keys import is_shell, shell_command
from trustfold.projections.calls.shell import simple_commands
from trustfold.projections.tool import trust as fold
from trustfold.projections.tool.state import TrustRecord
from trustfold.rules.rules import EscalationPatch, EscalationRule, Rules, TrustRules
from trustfold.rules.trust import Layers
from trustfold.schemas.vocabulary import Severity, TrustState

from .area import Area, same
from .case import UnknownWord

_PRIVILEGE_WRAPPERS = frozenset({"sudo", "doas", "privileged"})
_ASKS = frozenset({TrustState.ESCALATED, TrustState.RECOVERING})
_DENIES = frozenset({TrustState.BLOCKED, TrustState.REMOVED})


def _resolves(field: str) -> Callable[[TrustViews], Any]:
    return lambda self: getattr(self.resolved or self._rule(), field)


class TrustViews(Area):
    """What is concluded from the states; `Trust` has what happens to them."""

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
                "successes": record.worked,
                "denials": record.denials,
            }
        return found

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
        return sorted(key for key, record in self.world.trust_records().items() if record.pending and key in keys)

    def check_info(self, wanted: dict[str, Any] | None) -> str:
        """Answer to the last `check_escalation`; nothing is wanted of a key that is trusted."""
        if self.info is None:
            raise UnknownWord("how a key stands, which nobody asked for")
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

    def see_reason(self) -> str | None:
        """What made the key lose trust."""
        changes = [change for change in self._changes() if change["to"] in {"escalated", "blocked"}]
        return str(changes[-1]["trigger"]) if changes and changes[-1].get("reason") else None

    def see_reason_text(self) -> str | None:
        """The reason in words."""
        changes = [change for change in self._changes() if change["to"] in {"escalated", "blocked"}]
        return str(changes[-1]["reason"]) if changes else None

    def see_progress(self) -> dict[str, str]:
        """Successes of the recovery under way, and how many it takes."""
        records = self.world.trust_records()
        return {
            key: f"{records[key].successes}/{records[key].successes_needed}"
            for key in self.expected["progress"]
            if key in records
        }

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

    def see_severity(self) -> str | None:
        """How bad the failure is."""
        told = self.world.outcomes()
        return told[-1].get("severity") if told else None

    def see_last_severity(self) -> str | None:
        """Severity of the latest failure; `repeated_auth` where it, with those before it, means a broken credential."""
        failed = [one for one in self.world.outcomes() if one["verdict"] == "failure"]
        if not failed:
            return None
        last = failed[-1]
        raised = self.world.decisions("trust.changed", key=last["fine_key"], trigger="repeated_auth")
        return "repeated_auth" if any(last["cause"] in one["caused_by"] for one in raised) else last["severity"]

    def see_is_failure(self) -> bool:
        """Whether it is a failure at all."""
        told = self.world.outcomes()
        return bool(told) and told[-1]["verdict"] == "failure"

    def see_weight(self) -> float | None:
        """What it counts towards a threshold, where its severity counts."""
        every = TrustRules(default_rule=EscalationPatch(severity_filter=frozenset(Severity), count_threshold=None))
        trial = type(self)(self.case._replace(config={}))
        trial.world.topology = type(trial.world.topology)(msgspec.structs.replace(Rules(), trust=every))
        trial.play()
        weights = [failure.weight for record in trial.world.trust_records().values() for failure in record.failures]
        return weights[-1] if weights else None if trial.see_severity() is None else 1.0

    VIEWS = {
        "states": lambda self: {key: str(self._state_of(key)) for key in self.expected["states"]},
        "state": lambda self: str(self._only().state),  # state of the only key
        "weights": lambda self: self.weights,  # results of all `effective_weight`, in order
        "trigger": see_reason,
        "user_notifications notifications": lambda self: sum(
            bool(change.get("notification")) and not change.get("silent") for change in self._changes()
        ),
        "tracked": lambda self: len(self.world.trust_records()),  # keys that are remembered
        "escalated": lambda self: sum(
            record.state in _ASKS | _DENIES for record in self.world.trust_records().values()
        ),
        "recovery_pending pending": lambda self: any(record.pending for record in self.world.trust_records().values()),
        "denials": lambda self: max((record.denials for record in self.world.trust_records().values()), default=0),
        "keys": lambda self: [
            str(one["fine_key"]) for one in self.world.outcomes() if one["scope"].startswith("tool:")
        ],
        "tool": lambda self: self.parsed[0] if self.parsed else None,  # tool of the key
        "signature": lambda self: self.parsed[1] if self.parsed else None,  # parameters of the key
        "failed failure": see_is_failure,
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
        return self.rules.trust.rule_for(Layers("key"))

    def _meant(self, event: dict[str, Any]) -> list[str]:
        if "key" in event and event["key"] not in {"all", "*"}:
            return [str(event["key"])]
        if "tool" in event:
            return [self._key_of(event)] if "args" in event else [str(event["tool"])]
        return list(self.world.trust_records())

    def _key_of(self, event: dict[str, Any]) -> str:
        """Failure key of a call, as the session stage makes it, in a world of its own."""
        trial = type(self)(self.case._replace(config={}, given=[]))
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
