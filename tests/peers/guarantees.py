"""Limits of an execution: money, time, recursive calls; and how it ends well.

A peer asks before each operation. Whether the next one would go beyond a limit follows from what the session's fold
has counted; a violation is what the fold has told.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from trustfold.projections.session import guarantees as fold
from trustfold.schemas.rules import GuaranteeRules

from .area import Area
from .case import UnknownWord

_WORDS = {"max_cost_usd": "cost", "max_duration_seconds": "duration", "max_recursive_calls": "calls"}


def _default(name: str) -> Callable[[Guarantees], Any]:
    return lambda _self: getattr(GuaranteeRules(), name)


class Guarantees(Area):
    """Cases of `guarantee`."""

    def prepare(self) -> None:
        """Every session is an execution here, from its start."""
        self.change("guarantees", sessions="all")
        self.estimate = 0.0
        self.partial = ""
        self.runs = 0

    # --- config -------------------------------------------------------------------------------------------------------

    def config_max_cost_usd(self, value: float) -> None:
        """US dollars."""
        self.change("guarantees", max_cost_usd=value)

    def config_max_duration_s(self, value: float) -> None:
        """Seconds."""
        self.change("guarantees", max_duration_seconds=value)

    config_max_duration_seconds = config_max_duration_s

    def config_max_calls(self, value: int) -> None:
        """Recursive calls."""
        self.change("guarantees", max_recursive_calls=value)

    config_max_recursive_calls = config_max_calls

    def config_warn_at(self, value: float) -> None:
        """Share that warns."""
        self.change("guarantees", warn_at=value)

    # --- what happens -------------------------------------------------------------------------------------------------

    def play(self) -> None:
        """The execution begins before anything else happens."""
        self._begin()
        super().play()

    def _begin(self) -> None:
        self.runs += 1
        self.world.session = f"s{self.runs}"
        self.calls.call({"tool": "begin", "args": {}, "ok": True})

    def op_cost(self, event: dict[str, Any]) -> None:
        """Money is spent."""
        for _ in range(int(event.get("times", 1))):
            self.calls.call({"tool": "spend", "args": {}, "ok": True, "cost_usd": event["usd"]})

    op_spend = op_record_cost = op_cost

    def op_call(self, event: dict[str, Any]) -> None:
        """Recursive calls are made."""
        for _ in range(int(event.get("times", 1))):
            self.calls.call({"tool": "recurse", "args": {}, "ok": True, "recursion_depth": 1})

    op_recursive_call = op_record_call = op_call

    def op_check(self, event: dict[str, Any]) -> None:
        """Somebody asks whether an operation may be done that will cost so much."""
        self.estimate = float(event.get("estimate", event.get("usd", 0.0)))

    def op_plan(self, event: dict[str, Any]) -> None:
        """Somebody asks how to end well."""
        self.partial = str(event.get("partial", ""))

    def op_reset(self, event: dict[str, Any]) -> None:
        """The execution is over, and another begins."""
        self.world.event("session.ended")
        self._begin()

    op_new_execution = op_reset

    def op_override(self, event: dict[str, Any]) -> None:
        """A person allows more, once."""
        names = {
            "max_cost_usd": "max_cost_usd",
            "max_duration_s": "max_duration_seconds",
            "max_calls": "max_recursive_calls",
        }
        limits = {ours: event[theirs] for theirs, ours in names.items() if theirs in event}
        self.world.event("guarantee.overridden", limits=limits, confirmed_by=str(event.get("confirmed_by", "somebody")))

    # --- what has come of it ------------------------------------------------------------------------------------------

    def _beyond(self) -> str | None:
        """The limit beyond which the next operation would be, as peers name the violation."""
        record = self.world.session_state().guarantees
        if record is None:
            raise UnknownWord("an execution that has not begun")
        spent = fold.spent_by(record, self.world.now_ms)
        limits = fold.limits_of(record, self.rules.guarantees)
        nexts = (self.estimate, 0.0, 1.0)
        for name, used, limit, coming in zip(fold.GUARANTEES, spent, limits, nexts, strict=True):
            if fold.is_beyond(used, limit):
                return f"{_WORDS[name]}_exceeded"
            if fold.is_beyond(used + coming, limit):
                return f"{_WORDS[name]}_{'would_exceed' if name == 'max_cost_usd' else 'exceeded'}"
        return None

    def see_allowed(self) -> bool:
        """Whether the next operation may be done."""
        return self._beyond() is None

    see_allow = see_can_proceed = see_allowed

    def check_violation(self, wanted: str | None) -> str:
        """Which limit forbids it."""
        found = self._beyond()
        names = {found, (found or "").replace("calls", "recursive_calls"), (found or "").replace("calls", "call_limit")}
        return "" if (wanted in names if wanted else found is None) else f"violation is {found!r}, not {wanted!r}"

    def see_violations(self) -> int:
        """How many have been told."""
        return len(self.world.decisions("guarantee.violated"))

    see_violations_logged = see_violations

    def see_warnings(self) -> int:
        """How many warnings."""
        return len(self.world.decisions("guarantee.warned"))

    def see_plan(self) -> dict[str, Any]:
        """How to end well."""
        told = self.world.decisions("guarantee.violated")
        if not told:
            return {"explanation": None, "recommendations": [], "cost_spent_usd": None, "partial_result": None}
        plan = told[-1]["plan"]
        return {
            "explanation": f"{told[-1]['message']} {plan['partial_result']}",
            "recommendations": plan["recommendations"],
            "cost_spent_usd": plan["cost_usd"],
            "partial_result": plan["partial_result"],
            "duration_s": plan["duration_s"],
            "calls": plan["recursive_calls"],
        }

    see_max_cost_usd = _default("max_cost_usd")
    see_max_duration_s = see_max_duration_seconds = _default("max_duration_seconds")
    see_max_calls = see_max_recursive_calls = _default("max_recursive_calls")
