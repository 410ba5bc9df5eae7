"""Limits of an execution: money, time, recursive calls; and how it ends well.

A peer asks before each operation, and so does the adapter: the guard's session answers, with what has been spent so far
as the case says. Where a case does not ask, the operation after its last event is asked about. Warnings, violations and
plans are those of the session's fold.
"""

from __future__ import annotations

from typing import Any

from trustfold.guard.guarantees import LIMITS, ExecutionGuarantees, LimitCheck
from trustfold.guard.session import GuardSession

from .area import Area, Checked, nothing, reads
from .case import refuse_fields


class Guarantees(Area):
    """Cases of `guarantee`."""

    def prepare(self) -> None:
        """Every session is an execution here, from its start."""
        self.set_fields("guarantees", sessions="all")
        self.runs = 0
        self.asked: list[LimitCheck] = []

    # The fold and the guard hold executions to the same limits.
    KNOBS = {
        "guarantees": {
            "max_cost_usd": "max_cost_usd",
            "max_duration_seconds": "max_duration_s",
            "max_recursive_calls": "max_calls",
        }
    }

    def play(self) -> None:
        """The execution begins before anything else happens."""
        self.guard = self.world.guard()
        self._begin()
        super().play()

    def conclude(self) -> None:
        """What was asked before says nothing about the operation after the last event."""
        if not self.case.given or self.case.given[-1].get("name") != "check":
            self.op_check()

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
        self.asked.append(self.session.check_limits(cost_usd=estimate or usd, recursive=True))

    def op_reset(self) -> None:
        """The execution is over, and another begins."""
        self.session.end()
        self._begin()

    def op_cost(self, usd: float) -> None:
        """An operation is made that nobody has asked about, and costs so much."""
        self.calls.call({"tool": "spend", "cost_usd": usd, "ok": True})
        self.session.spend(cost_usd=usd)

    def op_call(self) -> None:
        """A recursive call is made that nobody has asked about."""
        self.calls.call({"tool": "recurse", "recursion_depth": 1, "ok": True})
        self.session.spend(recursive=True)

    @reads(*KNOBS["guarantees"].values())
    def op_override(self, event: dict[str, Any]) -> None:
        """A person allows more from here on."""
        limits = {field: event[word] for field, word in self.KNOBS["guarantees"].items() if word in event}
        self.session.override_guarantees(confirmed_by="somebody", **limits)

    OPS = {
        "plan": nothing("partial"),  # the plan speaks of what there is so far as it finds it
    }

    def check_violation(self, wanted: str | None) -> Checked:
        found = next((str(one.kind) for one in self.asked[-1].violations if not one.overridden), None)
        return found == (wanted and _kind(wanted)), found

    def check_log(self, wanted: list[Any]) -> Checked:
        """Violations recorded, in order: kinds, pairs with whether they were overridden, or both by name."""
        found = [(str(one.kind), one.overridden) for one in self.session.spending.violations]
        expected = [_logged(one) for one in wanted]
        alike = len(found) == len(expected) and all(
            kind == theirs and over in {None, ours}
            for (kind, over), (theirs, ours) in zip(expected, found, strict=True)
        )
        return alike, found

    def see_plan(self) -> dict[str, Any]:
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
        "allowed": lambda self: self.asked[-1].allowed,  # whether the next operation may be made
        "overridden": lambda self: any(one.overridden for one in self.asked),  # whether a confirmed override was used
        "violations": lambda self: len(self.world.decisions("guarantee.violated")),
        "warnings": lambda self: len(self.world.decisions("guarantee.warned")),
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
