"""Limits of an execution: money, time, recursive calls; and how it ends well.

A peer asks before each operation, and so does the adapter: the guard's session answers, with what has been spent so far
as the case says. Where a case does not ask, the operation after its last event is asked about. Warnings, violations and
plans are those of the session's fold.
"""

from __future__ import annotations

from typing import Any

from trustfold.guard.guarantees import LIMITS, Check, ExecutionGuarantees
from trustfold.guard.session import GuardSession

from .area import Area, nothing, reads
from .case import refuse_fields
from .guarded import check_taken, guard_over


class Guarantees(Area):
    """Cases of `guarantee`."""

    def prepare(self) -> None:
        """Every session is an execution here, from its start."""
        self.change("guarantees", sessions="all")
        self.runs = 0
        self.asked: list[Check] = []
        self.is_answered = False

    # The fold and the guard hold executions to the same limits.
    KNOBS = {
        "guarantees": {
            "max_cost_usd": "max_cost_usd",
            "max_duration_seconds": "max_duration_s max_duration_seconds",
            "max_recursive_calls": "max_calls max_recursive_calls",
            "warn_at": "warn_at",
        }
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

    def op_check(self, estimate: float = 0.0, usd: float = 0.0, override: bool = False) -> None:
        """Somebody asks about the next operation, at a cost; a person may have confirmed that it may go beyond."""
        if override:
            self.session.allow_once(*LIMITS, confirmed_by="somebody")
        self._ask(estimate or usd)

    def _ask(self, cost_usd: float = 0.0) -> None:
        self.asked.append(self.session.check_limits(cost_usd=cost_usd, recursive=True))
        self.is_answered = True

    def op_reset(self) -> None:
        """The execution is over, and another begins."""
        self.session.end()
        self._begin()

    @reads("confirmed_by", *(words for words in KNOBS["guarantees"].values()))
    def op_override(self, event: dict[str, Any]) -> None:
        """A person allows more from here on."""
        limits = {
            field: event[word] for field in LIMITS for word in self.KNOBS["guarantees"][field].split() if word in event
        }
        self.session.override_guarantees(confirmed_by=str(event.get("confirmed_by", "somebody")), **limits)

    def _spend(self, call: dict[str, Any], **spent: Any) -> None:
        """An operation is made that nobody has asked about."""
        self.calls.call({"ok": True, **call})
        self.session.spend(**spent)

    OPS = {
        "cost spend record_cost": lambda self, usd: self._spend({"tool": "spend", "cost_usd": usd}, cost_usd=usd),
        "call recursive_call record_call": lambda self: self._spend(
            {"tool": "recurse", "recursion_depth": 1}, recursive=True
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
        plan = told[-1]["plan"] if told else {"recommendations": []}
        return {
            "explanation": f"{told[-1]['message']} {plan['partial_result']}" if told else None,
            "recommendations": plan["recommendations"],
            "cost_spent_usd": plan.get("cost_usd"),
            "partial_result": plan.get("partial_result"),
            "duration_s": plan.get("duration_s"),
            "calls": plan.get("recursive_calls"),
        }

    VIEWS = {
        "allowed allow can_proceed": lambda self: self.asked[-1].allowed,  # whether the next operation may be made
        "overridden": lambda self: any(one.overridden for one in self.asked),  # whether a confirmed override was used
        "violations violations_logged": lambda self: len(self.world.decisions("guarantee.violated")),
        "warnings": lambda self: len(self.world.decisions("guarantee.warned")),  # how many warnings
    }


def _kind(name: str) -> str:
    """Kind of a violation as we name it."""
    return name.replace("recursive_calls", "calls").replace("call_limit", "calls")


def _logged(entry: Any) -> tuple[str, bool | None]:
    """Kind of a logged violation, and whether it was overridden; None where the case does not say."""
    if isinstance(entry, dict):
        refuse_fields(entry, {"kind", "overridden"}, "a logged violation")
        entry = [entry["kind"], entry.get("overridden")]
    kind, overridden = entry if isinstance(entry, list) else (entry, None)
    return _kind(str(kind)), overridden
