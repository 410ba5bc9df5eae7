"""Circuit breakers: results of calls, admissions, orders; and what a reader of the circuit concludes.

A peer's `outcome` is a call through its breaker. Like a guard of ours, the adapter asks for the probe before it makes
a call through a half-open circuit, and makes none that is refused.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
from trustfold.guard.result import ToolResult
from trustfold.rules.rules import RECURSIVE_POLICY, TOOL_POLICY, BreakerPolicy, BreakerRules
from trustfold.schemas.vocabulary import BreakerState

from .area import puts, reads
from .breaker_views import BreakerViews
from .case import UnknownWord
from .guarded import check_taken

_SEED_5 = frozenset({"rlm", "seed-004", "seed-005", "seed-5"})
"""Peers with recursive calls: their breakers guard model tiers, by the policy `recursive`."""

_LETTERS = {"S": {"ok": True}, "F": {"ok": False}, "s": {"ok": True, "slow": True}, "I": {"ok": False, "ignored": True}}
_OUTCOME_FIELDS = frozenset(
    """ok times scope http_status error_class error error_type exception status severity
    duration_s duration_ms duration elapsed_s latency_s slow ignored""".split()
)


def _sets(field: str, factor: float = 1) -> Callable[[Breakers, Any], None]:
    def read(self: Breakers, value: Any) -> None:
        self.set[field] = value if factor == 1 or value is None else value * factor

    return read


async def _works(**_: Any) -> str:
    """A tool that is well."""
    return "answer"


class Breakers(BreakerViews):
    """Cases of `breaker`."""

    def prepare(self) -> None:
        """Start from the shipped policy; what a peer has no word for is off as soon as it sets a threshold."""
        self.recursive = self.case.peer in _SEED_5
        self.policy: BreakerPolicy = RECURSIVE_POLICY if self.recursive else TOOL_POLICY
        self.set: dict[str, Any] = {}
        self.ignored: list[str] = []
        self.leases: dict[str, list[str]] = {}
        self.unclaimed: set[str] = set()
        self.admissions: list[bool] = []
        self.probes = 0
        self.scopes: list[str] = []
        self.query: str | None = None
        self.answer: ToolResult | None = None
        named = dict.fromkeys(event["scope"] for event in self.case.given if "scope" in event)
        self.only_name = next(iter(named)) if len(named) == 1 else None

    def conclude_config(self) -> None:
        """One policy for every circuit of the case."""
        if self.set:
            thresholds = {"consecutive_failures", "rate_threshold", "slow_rate_threshold"} & self.set.keys()
            silent = {"consecutive_failures": None, "rate_threshold": None} if thresholds else {}
            defaults = {"close_after": 1, "backoff": 1.0}
            fields = {**silent, **defaults, **self.set}
            self.policy = msgspec.convert(msgspec.to_builtins(self.policy) | fields, BreakerPolicy)
        made = BreakerRules(tool=self.policy, recursive=self.policy, read_only=self.policy, mutating=self.policy)
        self.change_breakers(made)

    def change_breakers(self, made: BreakerRules) -> None:
        """Use these breaker rules."""
        self.rules = msgspec.structs.replace(self.rules, breakers=made)

    # --- config -------------------------------------------------------------------------------------------------------

    def config_half_open_permits(self, value: int) -> None:
        """Probes at once, which also are the results that decide: here so many successes close, one after the other."""
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise ValueError(f"half_open_permits must be a whole number from 1 on, not {value!r}")
        self.set.setdefault("close_after", value)

    def config_half_open_max_probes(self, value: int) -> None:
        """One probe at a time is what a circuit grants."""
        if value != 1:
            raise UnknownWord(f"half_open_max_probes {value}: one probe is granted at a time")

    def config_policy(self, value: str) -> None:
        """A shipped policy by its name."""
        self.recursive = value in {"recursive", "model_tier"}
        name = "recursive" if self.recursive else value
        if name not in BreakerRules.__struct_fields__:
            raise UnknownWord(f"policy {value!r}")
        self.policy = getattr(BreakerRules(), name)

    CONFIG = {
        "consecutive_failures failure_threshold fail_max": _sets("consecutive_failures"),
        "rate_threshold failure_rate failure_ratio failure_rate_threshold": _sets("rate_threshold"),
        "rate_min_calls min_calls min_throughput minimum_calls": _sets("rate_min_calls"),
        "rate_window_calls window_calls sliding_window_calls": _sets("rate_window_calls"),
        "window_s sampling_s sampling_duration_s": _sets("window_s"),
        "recovery_timeout_s reset_timeout_s open_cooldown_s open_wait_s": _sets("open_s"),
        "cooldown_s break_s break_duration_s open_s": _sets("open_s"),
        "close_after_successes success_threshold close_after": _sets("close_after"),
        "half_open_max_wait_s probe_timeout_s lease_s": _sets("lease_s"),
        "slow_call_s": _sets("slow_call_ms", 1000),
        "slow_rate slow_rate_threshold slow_call_rate": _sets("slow_rate_threshold"),
        "backoff backoff_factor": _sets("backoff"),
        "backoff_cap": _sets("backoff_cap"),
        "ignore ignored excluded exclude ignore_exceptions": puts("ignored", list),
        "preset class tool_class": config_policy,
    }

    # --- what happens -------------------------------------------------------------------------------------------------

    @reads(_OUTCOME_FIELDS)
    def event_outcome(self, event: dict[str, Any]) -> None:
        """Results of calls through a breaker."""
        for _ in range(int(event.get("times", 1))):
            self._call(event)

    @reads("pattern scope")
    def event_outcome_sequence(self, event: dict[str, Any]) -> None:
        """Results by letters, S and F."""
        for letter in event["pattern"]:
            if letter not in _LETTERS:
                raise UnknownWord(f"{letter!r} in a sequence of outcomes")
            self._call({"scope": event.get("scope"), **_LETTERS[letter]})

    @reads("throughput failure_rate scope")
    def event_metrics(self, event: dict[str, Any]) -> None:
        """So many calls, that share of them failed; the failures first."""
        calls = int(event["throughput"])
        failed = round(calls * event["failure_rate"])
        for number in range(calls):
            self._call({"ok": number >= failed, "scope": event.get("scope")})

    def _call(self, event: dict[str, Any]) -> None:
        scope = self._scope(event.get("scope"))
        call_id = None
        if self.leases.get(scope):
            call_id = self._claim(scope)
        elif self._state(scope) is BreakerState.HALF_OPEN:
            call_id = self._ask(scope)
            if call_id is None:
                return
        self.calls.call(self._as_call(scope, event), call_id=call_id)

    def _claim(self, scope: str) -> str:
        """The oldest lease of a circuit: its holder goes on with it."""
        self.unclaimed.discard(scope)
        return self.leases[scope].pop(0)

    def _as_call(self, scope: str, event: dict[str, Any]) -> dict[str, Any]:
        kind, _, name = scope.partition(":")
        made: dict[str, Any] = {"ev": "tool_call", "tool": "call" if kind == "service" else name, "args": {}}
        made |= {"service": name} if kind == "service" else {}
        if kind == "tier":
            made |= {"tool": "recurse", "recursion_depth": 1}
            self.world.tier = name
        error_class = event.get("exception") or event.get("error_class") or event.get("error_type")
        ok = bool(event.get("ok"))
        made |= {"ok": ok, "http_status": event.get("http_status"), "error_class": None if ok else error_class}
        if not ok:
            made["error"] = event.get("error") or "it failed"
            made["status"] = event.get("status")
            judged = event.get("severity") or (None if error_class or event.get("http_status") else "server_error")
            made["severity"] = judged
        if error_class in self.ignored or event.get("error") in self.ignored or event.get("ignored"):
            made["expected_failure"] = True
        slow = (self.policy.slow_call_ms or 0) / 1000
        named = (event[name] for name in ("duration_s", "duration", "elapsed_s", "latency_s") if name in event)
        made["duration_s"] = next(named, slow if event.get("slow") else event.get("duration_ms", 0) / 1000)
        return {name: value for name, value in made.items() if value is not None}

    @reads("scope times")
    def op_admit(self, event: dict[str, Any]) -> None:
        """Somebody asks to make a call."""
        scope = self._scope(event.get("scope"))
        for _ in range(int(event.get("times", 1))):
            if scope in self.unclaimed and self._state(scope) is BreakerState.HALF_OPEN:
                self.unclaimed.remove(scope)
                self.admissions.append(True)
                continue
            call_id = self._ask(scope)
            self.admissions.append(call_id is not None)
            if call_id is not None and self._state(scope) is not BreakerState.CLOSED:
                self.leases.setdefault(scope, []).append(call_id)

    @reads("scope")
    def op_check_recovery(self, event: dict[str, Any]) -> None:
        """Somebody looks whether the wait is over; the state follows from the time, whoever looks."""

    @reads("scope")
    def op_force_open(self, event: dict[str, Any]) -> None:
        """An operator stops all traffic."""
        self.world.command("breaker.force_open", key=self._scope(event.get("scope")))

    @reads("scope")
    def op_reset(self, event: dict[str, Any]) -> None:
        """An operator closes the circuit."""
        self.world.command("breaker.close", key=self._scope(event.get("scope")))

    @reads("scope")
    def op_disable(self, event: dict[str, Any]) -> None:
        """An operator switches the circuit off."""
        self.world.command("breaker.disable", key=self._scope(event.get("scope")))

    @reads("scope")
    def op_observe(self, event: dict[str, Any]) -> None:
        """An operator lets it compute, and never block."""
        self.world.command("breaker.observe", key=self._scope(event.get("scope")))

    @reads("scope state")
    def op_set_state(self, event: dict[str, Any]) -> None:
        """The circuit is brought into a state; half-open, its probe is under way, and is the first caller's."""
        scope = self._bring(event)
        if self._state(scope) is BreakerState.HALF_OPEN and (call_id := self._ask(scope)):
            self.leases.setdefault(scope, []).append(call_id)
            self.unclaimed.add(scope)

    def _bring(self, event: dict[str, Any]) -> str:
        """Bring the circuit of an event into its state, as it would get there; returns its scope."""
        scope, wanted = self._scope(event.get("scope")), str(event["state"]).replace("-", "_")
        orders = {
            "closed": self.op_reset,
            **dict.fromkeys(("forced_open", "isolated"), self.op_force_open),
            "disabled": self.op_disable,
            **dict.fromkeys(("metrics_only", "observe"), self.op_observe),
        }
        if wanted in orders:
            orders[wanted](event)
        elif wanted in {"open", "half_open"}:
            limit = max(self.policy.consecutive_failures or 0, self.policy.rate_min_calls)
            for _ in range(limit):
                if self._state(scope) is BreakerState.CLOSED:
                    self._call({"ok": False, "scope": event.get("scope")})
            if wanted == "half_open":
                self.world.pass_time(self.policy.open_s)
        else:
            raise UnknownWord(f"state {wanted!r} of a breaker")
        return scope

    @reads("scope times")
    def op_release(self, event: dict[str, Any]) -> None:
        """A probe is given up without a result."""
        scope = self._scope(event.get("scope"))
        given_up = self.leases.get(scope, [])[: int(event.get("times", 1))]
        for call_id in given_up:
            self._claim(scope)
            self.calls.call({**self._as_call(scope, {"ok": True}), "status": "cancelled"}, call_id=call_id)

    @reads("scope query args")
    def op_fallback(self, event: dict[str, Any]) -> None:
        """Somebody makes a call, whatever its circuit says, and gets what the guard answers."""
        made = self._as_call(self._scope(event.get("scope")), {"ok": True})
        self.query = event.get("query")
        args = dict(event.get("args") or {} if self.query is None else {"query": self.query})
        guard = self._guard()
        guard.register(made["tool"], service=made.get("service"))
        options = {"recursion_depth": made.get("recursion_depth"), "model_tier": self.world.tier}
        session = self.world.session
        self.answer = asyncio.run(guard.call(made["tool"], _works, args, session_id=session, **options))
        check_taken(guard)

    OPS = {
        "allow acquire try request": op_admit,
        "schedule_recovery_test tick poll": op_check_recovery,
        "isolate open trip": op_force_open,
        "close": op_reset,
        "metrics_only shadow": op_observe,
        "cancel release_permission release_permit": op_release,
        "call_with_fallback": op_fallback,
    }
