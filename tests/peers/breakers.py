"""Circuit breakers: results of calls, admissions, orders; and what a reader of the circuit concludes.

A peer's `outcome` is a call through its breaker. Like a guard of ours, the adapter asks for the probe before it makes
a call through a half-open circuit, and makes none that is refused.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import structs
from trustfold.projections.calls.classify import by_type
from trustfold.projections.tool import breaker as fold
from trustfold.projections.tool.tool_state import BreakerRecord
from trustfold.rules.rules import BreakerPolicy
from trustfold.schemas.vocabulary import BreakerState

from ..support.fixed_rules import BreakerRules
from .area import Area, nothing, only, reads
from .case import UnknownWord, known
from .endings import _SEVERITIES

_SEED_5 = frozenset({"rlm", "seed-004", "seed-005", "seed-5"})
"""Peers with recursive calls: their breakers guard model tiers, by the policy `recursive`."""

LETTERS = {"S": True, "F": False}
_BY_ORDER = {
    "closed": "close",
    **dict.fromkeys(("forced_open", "isolated"), "force_open"),
    "disabled": "disable",
    **dict.fromkeys(("metrics_only", "observe"), "observe"),
}
"""States into which a circuit comes by an operator's order → the order."""


def _order(kind: str) -> Callable[..., None]:
    """An operator's order about a circuit."""
    return lambda self, scope=None: self.world.command(f"breaker.{kind}", key=self._scope(scope))


async def _works(**_: Any) -> str:
    return "answer"


class Breakers(Area):
    """Cases of `breaker` and `fallback`."""

    def prepare(self) -> None:
        """Start from the shipped policy; what a peer has no word for is off as soon as it sets a threshold."""
        self.recursive = self.case.peer in _SEED_5
        self.policies["policy"] = BreakerRules().recursive if self.recursive else BreakerRules().tool
        self.ignored: list[str] = []
        self.leases: defaultdict[str, list[str]] = defaultdict(list)
        self.unclaimed: set[str] = set()
        self.probes = 0
        named = list(dict.fromkeys(event["scope"] for event in self.case.given if "scope" in event))
        self.only_name = named[0] if len(named) == 1 else None
        self.scopes: list[str] = []

    @property
    def policy(self) -> BreakerPolicy:
        """That of every circuit of the case."""
        return self.policies["policy"]  # type: ignore[no-any-return]

    KNOBS = {
        "policy": {
            "consecutive_failures": "consecutive_failures failure_threshold fail_max",
            "rate_threshold": "rate_threshold failure_rate failure_ratio",
            "rate_min_calls": "rate_min_calls min_calls min_throughput",
            "rate_window_calls": "rate_window_calls window_calls",
            "window_s": "window_s",
            "open_s": "recovery_timeout_s reset_timeout_s open_cooldown_s open_wait_s cooldown_s",
            "close_after": "close_after_successes success_threshold",
            "lease_s": "half_open_max_wait_s lease_s",
            "slow_call_ms": "slow_call_s",
            "slow_rate_threshold": "slow_rate",
            "excluded_errors": "exclude",
        }
    }
    CONFIG = {
        "ignore": lambda self, value: self.ignored.extend(value),  # errors that say nothing: informational failures
        # Probes at once, which also are the results that decide: here so many successes close, one after the other.
        "half_open_permits": lambda self, value: self.given_fields["policy"].setdefault("close_after", value),
        "half_open_max_probes": only("half_open_max_probes", (1,), "one probe is granted at a time"),
    }

    def read_settings(self) -> None:
        """One policy for every circuit of the case."""
        super().read_settings()
        if chosen := self.given_fields["policy"]:
            thresholds = {"consecutive_failures", "rate_threshold", "slow_rate_threshold"} & chosen.keys()
            silent = {"consecutive_failures": None, "rate_threshold": None} if thresholds else {}
            self.set_fields("policy", **{**silent, "close_after": 1, "backoff": 1.0, **chosen})
        kinds = ("tool", "recursive", "read_only", "mutating")
        self.rules = structs.replace(self.rules, breakers=BreakerRules(**dict.fromkeys(kinds, self.policy)))

    def pass_call(self, event: dict[str, Any]) -> None:
        """Result of a call through a breaker: like a guard, after asking for the probe where it needs one."""
        scope, call_id = self._scope(event.get("scope")), None
        if self.leases.get(scope):
            call_id = self._claim(scope)
        elif self._record(scope).state is BreakerState.HALF_OPEN:
            call_id = self._ask(scope)
            if call_id is None:
                return
        self.calls.call(self._as_call(scope, event), call_id=call_id)

    event_outcome = reads("ok scope http_status error_class error exception duration_s")(pass_call)

    def event_outcome_sequence(self, pattern: str, scope: str | None = None) -> None:
        for letter in pattern:
            self.pass_call({"scope": scope, "ok": known(letter, LETTERS, "letter")})

    def event_metrics(self, throughput: int, failure_rate: float, scope: str | None = None) -> None:
        """So many calls, that share of them failed; the failures first."""
        for number in range(throughput):
            self.pass_call({"ok": number >= round(throughput * failure_rate), "scope": scope})

    def _claim(self, scope: str) -> str:
        """The oldest lease of a circuit: its holder goes on with it."""
        self.unclaimed.discard(scope)
        return self.leases[scope].pop(0)

    def _as_call(self, scope: str, event: dict[str, Any]) -> dict[str, Any]:
        """A call through a circuit that comes out as an event says."""
        kind, _, name = scope.partition(":")
        made: dict[str, Any] = {"tool": name}
        if kind == "service":
            made = {"tool": "call", "service": name}
        elif kind == "tier":
            made = {"tool": "recurse", "recursion_depth": 1}
            self.world.tier = name
        status, error_class = event.get("http_status"), event.get("exception") or event.get("error_class")
        made |= {"ok": bool(event.get("ok")), "http_status": status, "duration_s": event.get("duration_s", 0)}
        if not made["ok"]:
            made |= {"error": event.get("error") or "it failed", "error_class": error_class}
            # Of a class of its own a peer's breaker knows no more than that the call failed.
            told = bool(status) or error_class in _SEVERITIES or by_type(str(error_class or "")) is not None
            made["severity"] = None if told else "server_error"
        if error_class in self.ignored or event.get("error") in self.ignored:
            made["expected_failure"] = True
        return {name: value for name, value in made.items() if value is not None}

    def op_admit(self, scope: str | None = None) -> bool:
        """Whether somebody who asks may make a call."""
        scope = self._scope(scope)
        if scope in self.unclaimed and self._record(scope).state is BreakerState.HALF_OPEN:
            self.unclaimed.remove(scope)
            return True
        call_id = self._ask(scope)
        if call_id is not None and self._record(scope).state is not BreakerState.CLOSED:
            self.leases[scope].append(call_id)
        return call_id is not None

    def op_set_state(self, state: str, scope: str | None = None) -> None:
        """The circuit is brought into a state; half-open, its probe is under way, and is the first caller's."""
        scope = self.bring(state, scope)
        if self._record(scope).state is BreakerState.HALF_OPEN and (call_id := self._ask(scope)):
            self.leases[scope].append(call_id)
            self.unclaimed.add(scope)

    def bring(self, state: str, scope: str | None = None) -> str:
        """Bring a circuit into a state, as it would get there; returns its scope."""
        scope, wanted = self._scope(scope), state.replace("-", "_")
        if wanted in {"open", "half_open"}:
            for _ in range(max(self.policy.consecutive_failures or 0, self.policy.rate_min_calls)):
                if self._record(scope).state is BreakerState.CLOSED:
                    self.pass_call({"ok": False, "scope": scope})
            if wanted == "half_open":
                self.world.pass_time(self.policy.open_s)
        else:
            self.world.command(f"breaker.{known(wanted, _BY_ORDER, 'state')}", key=scope)
        return scope

    def op_release(self, scope: str | None = None) -> None:
        """A probe is given up without a result."""
        scope = self._scope(scope)
        if self.leases[scope]:
            self.calls.call({**self._as_call(scope, {"ok": True}), "status": "cancelled"}, call_id=self._claim(scope))

    def op_fallback(self, query: str | None = None, scope: str | None = None) -> dict[str, Any]:
        """Somebody makes a call, whatever its circuit says, and gets what the guard answers."""
        made = self._as_call(self._scope(scope), {"ok": True})
        args = {} if query is None else {"query": query}
        guard = self.world.guard()
        guard.register(made["tool"], service=made.get("service"))
        options = {"recursion_depth": made.get("recursion_depth"), "model_tier": self.world.tier}
        answer = asyncio.run(guard.call(made["tool"], _works, args, session_id=self.world.session, **options))
        reason, _, suggestion = (answer.error.message if answer.error else "").partition("; ")
        return {
            "is_fallback": answer.refused,
            "original_query": query if answer.refused else None,
            "suggestion": suggestion,
            "reason": reason,
            "code": answer.error.code if answer.error else None,
            "status": str(answer.status),
        }

    OPS = {
        "check_recovery": nothing("scope"),  # the state follows from the time, whoever looks
        "force_open": _order("force_open"),
        "reset": _order("close"),
        "observe metrics_only": _order("observe"),
        "release_permit": op_release,
    }

    def see_success_count(self) -> int:
        """In a case about metrics, the calls that worked in all; else successful probes in a row."""
        if not ("metric" in self.case.capability or {"failure_count", "open_count"} & self.expected.keys()):
            return self._record().successes
        scope = self._only_scope()
        return sum(one["scope"] == scope and one["verdict"] == "success" for one in self.world.outcomes())

    def see_last_failure_time(self) -> int | None:
        """When a call through it last failed, milliseconds; the latest failure that it remembers."""
        record = self._record()
        return max([*record.consecutive, *(one >> 2 for one in record.results if one & 1)], default=None)

    def see_failure_rate(self) -> float:
        """Failed share of the measured calls, as last told: opening does not forget them."""
        told = self.world.decisions("breaker.changed", to="open")
        if told and self._record().state is BreakerState.OPEN:
            return float(told[-1]["failure_rate"])
        return fold.failure_rate(self._record())[0]

    def see_scopes(self) -> dict[str, dict[str, Any]]:
        return {
            name: {"state": self._state_word(self._scope(name), asked.get("state")), "allow": self._allows(scope)}
            for name, asked in self.expected["scopes"].items()
            for scope in [self._scope(name)]
        }

    VIEWS = {
        "state": lambda self: self._state_word(self._only_scope(), self.expected.get("state")),
        "allow": lambda self: self._allows(self._only_scope()),
        "next_call_status": lambda self: "success" if self.see_allow() else "circuit_open",
        "fallback": lambda self: self.answer("fallback"),
        "trips": lambda self: self._record().opened_total > 0,
        "would_have_opened": lambda self: bool(
            self.world.decisions("breaker.changed", breaker_key=self._only_scope(), to="open", mode="observe")
        ),
        "open_count": lambda self: self._record().opened_total,
        "admitted": lambda self: sum(self.answers["admit"]),
        "rejected": lambda self: self.answers["admit"].count(False),
        # Failures, and successful probes, in a row.
        "failure_count": lambda self: len(self._record().consecutive),
        "success_counter": lambda self: self._record().successes,
        "metrics_reset": lambda self: fold.failure_rate(self._record())[1] == 0 == self.see_failure_count(),
        "trigger": lambda self: self._record().trigger or None,
    }

    def _scope(self, name: str | None) -> str:
        name = name or self.only_name or ("default" if self.recursive else "guarded")
        if name.startswith("mcp:"):
            name = f"service:{name[4:]}"
        elif not name.startswith(("tool:", "service:", "tier:")):
            name = f"tier:{name}" if self.recursive else f"tool:{name}"
        if name not in self.scopes:
            self.scopes.append(name)
        return name

    def _only_scope(self) -> str:
        if len(self.scopes) > 1:
            raise UnknownWord(f"one state of {len(self.scopes)} circuits; expect `scopes`")
        return self.scopes[0] if self.scopes else self._scope(None)

    def _record(self, scope: str = "") -> BreakerRecord:
        """A circuit, or the only one, as of now: time's effect is derived, by the fold's own function, from a copy."""
        scope = scope or self._only_scope()
        state = self.world.tool_state(scope)
        if state is None:
            return BreakerRecord()
        record = msgspec.msgpack.decode(msgspec.msgpack.encode(state.breaker), type=BreakerRecord)
        policy = self.rules.breakers.policy_for(scope, record.tool_class)
        while fold.move_by_time(record, policy, self.world.now_ms):
            pass
        return record

    def _state_word(self, scope: str, asked: object) -> str:
        """State of a circuit; of an observed one, what it has computed, or that it is observed where that is asked."""
        record = self._record(scope)
        if record.mode == "disabled":
            return "disabled"
        return "metrics_only" if record.mode == "observe" and asked == "metrics_only" else str(record.state)

    def _allows(self, scope: str) -> bool:
        """Whether a guard that comes by now would let a call through the circuit, or ask for the probe."""
        circuit = self.world.guard().view.circuit(self.world.workspace, scope, self.world.now_ms)
        return circuit is None or (circuit.state is BreakerState.HALF_OPEN and not circuit.holder)

    def _ask(self, scope: str) -> str | None:
        """Ask for the probe; the id of the call that may be made, or None."""
        self.probes += 1
        call_id = f"probe{self.probes}"
        self.world.event("breaker.probe_requested", breaker_key=scope, guard_id=f"guard{self.probes}", call_id=call_id)
        return call_id if self.world.decisions("breaker.probe_granted", call_id=call_id) else None
