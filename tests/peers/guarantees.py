"""Limits of an execution: money, time, recursive calls; and how it ends well.

A peer asks before each operation, and so does the adapter: the guard's session answers, with what has been spent so far
as the case says. Where a case does not ask, the operation after its last event is asked about. Warnings, violations and
plans are those of the session's fold.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from trustfold.guard.guarantees import LIMITS, Check, ExecutionGuarantees
from trustfold.guard.session import GuardSession
from trustfold.rules.rules import GuaranteeRules

from .area import Area, changes, nothing, reads, refuse_fields
from .case import times
from .guarded import check_taken, guard_over

_LIMITS = {
    "max_cost_usd": "max_cost_usd",
    **dict.fromkeys(("max_duration_s", "max_duration_seconds"), "max_duration_seconds"),
    **dict.fromkeys(("max_calls", "max_recursive_calls"), "max_recursive_calls"),
}
"""Limits as peers name them → our names."""


def _default(name: str) -> Callable[[Guarantees], Any]:
    return lambda _self: getattr(GuaranteeRules(), name)


def _limits(name: str) -> Callable[[Guarantees, Any], None]:
    return lambda self, value: self.limits.__setitem__(name, value)


class Guarantees(Area):
    """Cases of `guarantee`."""

    def prepare(self) -> None:
        """Every session is an execution here, from its start."""
        self.change("guarantees", sessions="all")
        self.limits: dict[str, Any] = {}
        self.runs = 0
        self.asked: list[Check] = []
        self.is_answered = False

    def conclude_config(self) -> None:
        """The fold and the guard hold executions to the same limits."""
        self.change("guarantees", **self.limits)

    # --- config -------------------------------------------------------------------------------------------------------

    CONFIG = {
        "max_cost_usd": _limits("max_cost_usd"),
        "max_duration_s max_duration_seconds": _limits("max_duration_seconds"),
        "max_calls max_recursive_calls": _limits("max_recursive_calls"),
        "warn_at": changes("guarantees", "warn_at"),  # share that warns
    }

    # --- what happens -------------------------------------------------------------------------------------------------

    def play(self) -> None:
        """The execution begins before anything else happens."""
        self.guard = guard_over(self.world)
        self._begin()
        super().play()
        if not self.is_answered:
            self._ask()
        check_taken(self.guard)

    def before(self, _event: dict[str, Any]) -> None:
        """What was asked before says nothing about the operation after this event."""
        self.is_answered = False

    def _begin(self) -> None:
        self.runs += 1
        self.world.session = f"s{self.runs}"
        limits = {name: getattr(self.rules.guarantees, name) for name in LIMITS}
        self.session: GuardSession = self.guard.session(self.world.session, guarantees=ExecutionGuarantees(**limits))
        self.session.begin()

    def _spend(self, event: dict[str, Any], call: dict[str, Any], **spent: Any) -> None:
        """Operations are made that nobody has asked about."""
        for _ in times(event):
            self.calls.call({"args": {}, "ok": True, **call})
            self.session.spend(**spent)

    @reads("estimate usd override")
    def op_check(self, event: dict[str, Any]) -> None:
        """Somebody asks about the next operation, at a cost; a person may have confirmed that it may go beyond."""
        if event.get("override"):
            self.session.allow_once(*LIMITS, confirmed_by="somebody")
        self._ask(float(event.get("estimate", event.get("usd", 0.0))))

    def _ask(self, cost_usd: float = 0.0) -> None:
        self.asked.append(self.session.check_limits(cost_usd=cost_usd, recursive=True))
        self.is_answered = True

    def op_reset(self, _event: dict[str, Any]) -> None:
        """The execution is over, and another begins."""
        self.session.end()
        self._begin()

    @reads(_LIMITS, "confirmed_by")
    def op_override(self, event: dict[str, Any]) -> None:
        """A person allows more from here on."""
        limits = {ours: event[theirs] for theirs, ours in _LIMITS.items() if theirs in event}
        self.session.override_guarantees(confirmed_by=str(event.get("confirmed_by", "somebody")), **limits)

    OPS = {
        "cost spend record_cost": reads("usd times")(
            lambda self, event: self._spend(event, {"tool": "spend", "cost_usd": event["usd"]}, cost_usd=event["usd"])
        ),
        "call recursive_call record_call": reads("times")(
            lambda self, event: self._spend(event, {"tool": "recurse", "recursion_depth": 1}, recursive=True)
        ),
        "plan": nothing("partial"),  # the plan speaks of what there is so far as it finds it
        "new_execution": op_reset,
    }

    # --- what has come of it ------------------------------------------------------------------------------------------

    def check_violation(self, wanted: str | None) -> str:
        """The first limit that forbids it."""
        found = next((str(one.kind) for one in self.asked[-1].violations if not one.overridden), None)
        return "" if found == (wanted and _kind(wanted)) else f"violation is {found!r}, not {wanted!r}"

    def check_log(self, wanted: list[Any]) -> str:
        """Violations recorded, in order: kinds, pairs with whether they were overridden, or both by name."""
        found = [(str(one.kind), one.overridden) for one in self.session.spending.violations]
        expected = [_logged(one) for one in wanted]
        alike = len(found) == len(expected) and all(
            kind == theirs and over in {None, ours}
            for (kind, over), (theirs, ours) in zip(expected, found, strict=True)
        )
        return "" if alike else f"log is {found!r}, not {wanted!r}"

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

    VIEWS = {
        "allowed allow can_proceed": lambda self: self.asked[-1].allowed,  # whether the next operation may be made
        "overridden": lambda self: any(one.overridden for one in self.asked),  # whether a confirmed override was used
        "violations violations_logged": lambda self: len(self.world.decisions("guarantee.violated")),
        "warnings": lambda self: len(self.world.decisions("guarantee.warned")),  # how many warnings
        "max_cost_usd": _default("max_cost_usd"),
        "max_duration_s max_duration_seconds": _default("max_duration_seconds"),
        "max_calls max_recursive_calls": _default("max_recursive_calls"),
    }


def _kind(name: str) -> str:
    """Kind of a violation as we name it."""
    return name.replace("recursive_calls", "calls").replace("call_limit", "calls")


def _logged(entry: Any) -> tuple[str, bool | None]:
    """Kind of a logged violation, and whether it was overridden; None where the case does not say."""
    if isinstance(entry, dict):
        refuse_fields(entry, {"kind", "overridden"}, "a logged violation")
        return _kind(entry["kind"]), entry.get("overridden")
    if isinstance(entry, list):
        kind, overridden = entry
        return _kind(kind), overridden
    return _kind(str(entry)), None
