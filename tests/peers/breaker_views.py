"""Circuit breakers as cases see them: states, counters, what a guard would let through."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from trustfold.guard import ToolGuard
from trustfold.guard.result import ToolResult
from trustfold.projections.tool import breaker as fold
from trustfold.projections.tool.state import BreakerRecord
from trustfold.rules.rules import BreakerPolicy
from trustfold.schemas.vocabulary import BreakerState

from .area import Area
from .case import UnknownWord
from .guarded import guard_over


def _default(field: str) -> Callable[[BreakerViews], Any]:
    return lambda self: getattr(self.policy, field)


class BreakerViews(Area):
    """What a reader of the circuits concludes; `Breakers` has what happens to them."""

    recursive: bool
    policy: BreakerPolicy
    ignored: list[str]
    admissions: list[bool]
    scopes: list[str]
    query: str | None
    answer: ToolResult | None
    only_name: str | None
    probes: int

    def _state_word(self, scope: str, asked: object) -> str:
        """State of a circuit; of an observed one, what it has computed, or that it is observed where that is asked."""
        record = self._record(scope)
        if record.mode == "disabled":
            return "disabled"
        return "metrics_only" if record.mode == "observe" and asked == "metrics_only" else str(record.state)

    def see_would_have_opened(self) -> bool:
        """Whether it has computed an opening that was only told."""
        scope = self._only_scope()
        return bool(self.world.decisions("breaker.changed", breaker_key=scope, to="open", mode="observe"))

    def see_success_count(self) -> int:
        """In a case about metrics, the calls that worked in all; else successful probes in a row."""
        metrics = "metric" in self.case.capability or {"failure_count", "open_count"} & self.expected.keys()
        return self.see_total_successes() if metrics else self.see_success_counter()

    def see_last_failure_time(self) -> int | None:
        """When a call through it last failed, milliseconds; the latest failure that it remembers."""
        record = self._record(self._only_scope())
        times = [*record.consecutive, *(one >> 2 for one in record.results if one & 1)]
        return max(times, default=None)

    def see_failure_rate(self) -> float:
        """Failed share of the measured calls, as last told: opening does not forget them."""
        told = self.world.decisions("breaker.changed", to="open")
        record = self._record(self._only_scope())
        return (
            float(told[-1]["failure_rate"])
            if told and record.state is BreakerState.OPEN
            else fold.failure_rate(record)[0]
        )

    def _told(self) -> list[dict[str, Any]]:
        scope = self._only_scope()
        return [one for one in self.world.outcomes() if one["scope"] == scope]

    def see_scopes(self) -> dict[str, dict[str, Any]]:
        """Each circuit by its name."""
        named = self.expected["scopes"]
        return {
            name: {"state": self._state_word(scope, named[name].get("state")), "allow": self._allows(scope)}
            for name, scope in ((name, self._scope(name)) for name in named)
        }

    def see_fallback(self) -> dict[str, Any]:
        """What the caller got in place of a result; the question is the one that it has asked the guard."""
        answer = self.answer
        if answer is None:
            raise UnknownWord("an answer that nobody asked for")
        refused, error = answer.refused, answer.error
        reason, _, suggestion = (error.message if error is not None else "").partition("; ")
        return {
            "is_fallback": refused,
            "original_query": self.query if refused else None,
            "suggestion": suggestion,
            "suggestions": [suggestion] if suggestion else [],
            "message": error.message if error is not None else "",
            "reason": reason,
            "code": error.code if error is not None else None,
            "status": str(answer.status),
            "retriable": error.retriable if error is not None else None,
            "breaker_state": str(error.breaker_state) if error is not None else None,
        }

    VIEWS = {
        "state": lambda self: self._state_word(self._only_scope(), self.expected.get("state")),
        "allow allowed": lambda self: self._allows(self._only_scope()),  # whether a call may be made
        "next_call_status": lambda self: "success" if self.see_allow() else "circuit_open",
        "trips": lambda self: self._record(self._only_scope()).opened_total > 0,  # whether the circuit has opened
        "open_count": lambda self: self._record(self._only_scope()).opened_total,  # how often it has opened
        "admitted": lambda self: sum(self.admissions),  # how many of those that asked may call
        "rejected denied refused": lambda self: len(self.admissions) - sum(self.admissions),  # how many may not
        "failure_count consecutive_failures consecutive fail_counter": lambda self: len(
            self._record(self._only_scope()).consecutive
        ),
        "success_counter successes": lambda self: self._record(self._only_scope()).successes,
        "measured throughput calls buffered_calls": lambda self: fold.failure_rate(self._record(self._only_scope()))[1],
        "total_failures": lambda self: sum(one["verdict"] == "failure" for one in self._told()),
        "total_successes": lambda self: sum(one["verdict"] == "success" for one in self._told()),
        "total_calls": lambda self: len(self._told()),  # calls, ever
        "metrics": lambda self: {
            "total_calls": self.see_total_calls(),
            "total_failures": self.see_total_failures(),
            "total_successes": self.see_total_successes(),
            "failure_count": self.see_failure_count(),
            "success_count": self.see_total_successes(),
            "last_failure_time": self.see_last_failure_time(),
            "failure_rate": self.see_failure_rate(),
            "open_count": self.see_open_count(),
            "measured": self.see_measured(),
            "state": self._state_word(self._only_scope(), self.expected["metrics"].get("state")),
        },
        "metrics_reset": lambda self: self.see_measured() == 0 and self.see_failure_count() == 0,
        "trigger reason": lambda self: self._record(self._only_scope()).trigger or None,  # what moved it last
        "open_remaining_s": lambda self: max(
            0.0, (self._record(self._only_scope()).open_until - self.world.now_ms) / 1000
        ),
        "transitions": lambda self: [[one["from"], one["to"]] for one in self.world.decisions("breaker.changed")],
        "failure_threshold fail_max": _default("consecutive_failures"),
        "recovery_timeout_s reset_timeout_s open_cooldown_s open_wait_s cooldown_s": _default("open_s"),
        "success_threshold close_after_successes": _default("close_after"),
        "rate_threshold failure_ratio": _default("rate_threshold"),
        "rate_min_calls min_calls min_throughput": _default("rate_min_calls"),
        "rate_window_calls": _default("rate_window_calls"),
        "window_s": _default("window_s"),
    }

    # --- the circuit --------------------------------------------------------------------------------------------------

    def _scope(self, name: str | None) -> str:
        name = name or self.only_name
        if name is None:
            scope = "tier:default" if self.recursive else "tool:guarded"
        elif name.startswith(("tool:", "service:", "tier:")):
            scope = name
        elif name.startswith("mcp:"):
            scope = f"service:{name[4:]}"
        else:
            scope = f"tier:{name}" if self.recursive else f"tool:{name}"
        if scope not in self.scopes:
            self.scopes.append(scope)
        return scope

    def _only_scope(self) -> str:
        if len(self.scopes) > 1:
            raise UnknownWord(f"one state of {len(self.scopes)} circuits; expect `scopes`")
        return self.scopes[0] if self.scopes else self._scope(None)

    def _record(self, scope: str) -> BreakerRecord:
        """The circuit as of now: what time alone has done is derived, by the fold's own function, from a copy."""
        state = self.world.tool_state(scope)
        if state is None:
            return BreakerRecord()
        record = msgspec.msgpack.decode(msgspec.msgpack.encode(state.breaker), type=BreakerRecord)
        policy = self.rules.breakers.policy_for(scope, record.tool_class)
        while fold.move_by_time(record, policy, self.world.now_ms):
            pass
        return record

    def _state(self, scope: str) -> BreakerState:
        return self._record(scope).state

    def _guard(self) -> ToolGuard:
        """A guard that comes by now, and knows what is published."""
        return guard_over(self.world)

    def _allows(self, scope: str) -> bool:
        """Whether a guard would let a call through the circuit, or ask for the probe."""
        circuit = self._guard().view.circuit(self.world.workspace, scope, self.world.now_ms)
        return circuit is None or (circuit.state is BreakerState.HALF_OPEN and not circuit.holder)

    def _ask(self, scope: str) -> str | None:
        """Ask for the probe; the id of the call that may be made, or None."""
        self.probes += 1
        call_id = f"probe{self.probes}"
        self.world.event("breaker.probe_requested", breaker_key=scope, guard_id=f"guard{self.probes}", call_id=call_id)
        granted = self.world.decisions("breaker.probe_granted", call_id=call_id)
        return call_id if granted else None
