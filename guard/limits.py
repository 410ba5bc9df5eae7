"""Limits of a session (docs/guard.md, Limits): the first step of a guarded call, and money reserved for it."""

from __future__ import annotations

import logging

import msgspec

from ..schemas.events import GuaranteeOverridden
from ..schemas.tool_envelopes import ResultError
from .interface import GuardServices
from .log import log_call
from .refusals import RefusalWriter
from .request import GuardedCall
from .result import ToolResult, refusal


class LimitStep:
    """Step that refuses a call beyond the limits of its session, and reserves its expected cost until it ends."""

    def __init__(self, services: GuardServices, refusals: RefusalWriter) -> None:
        """Use the guard's services."""
        self._clock = services.clock
        self._publisher = services.publisher
        self._refusals = refusals

    def check(self, call: GuardedCall) -> ResultError | None:
        """Refusal of a call that is beyond a limit; None if it may be made."""
        spending = call.spending
        if spending is None:
            return None
        cost = _expected_cost(call)
        checked = spending.check(self._clock.monotonic_ms(), cost_usd=cost, recursive=bool(call.recursion_depth))
        for one in checked.violations:
            log_call(
                logging.WARNING,
                "guarantee_violated",
                call,
                guarantee=one.limit,
                kind=one.kind,
                used=one.used,
                limit=one.allowed,
                overridden=one.overridden,
            )
        if checked.allowed or self._refusals.shadowed(call, "guarantee_exceeded"):
            spending.reserved_usd += cost  # released when the call ends: other calls may be checked meanwhile
            spending.recursive_calls += bool(call.recursion_depth)
            call.notes.reserved_usd = cost
            if checked.overridden:
                self._publisher.event(
                    GuaranteeOverridden,
                    call.session_id,
                    workspace_id=call.workspace_id,
                    user_id=call.user_id,
                    **spending.last_override(),
                )
            until = spending.deadline_ms()
            overtime = any(one.limit == "max_duration_seconds" for one in checked.violations)
            if until is not None and not overtime and not call.shadow:
                call.deadline_ms = until if call.deadline_ms is None else min(call.deadline_ms, until)
            return None
        call.notes.plan = checked.plan
        return msgspec.structs.replace(refusal("guarantee_exceeded", checked.message), terminal=True)

    def settle(self, call: GuardedCall) -> None:
        """Release what was reserved for a call, whatever became of it."""
        if call.spending is not None:
            call.spending.reserved_usd -= call.notes.reserved_usd or 0.0

    def uncount(self, call: GuardedCall, result: ToolResult) -> None:
        """Do not count a recursive call that was answered without an attempt."""
        if call.spending is not None and call.notes.reserved_usd is not None:
            call.spending.recursive_calls -= bool(call.recursion_depth and result.attempts == 0)


def _expected_cost(call: GuardedCall) -> float:
    """Expected cost of a call in US dollars: the caller's estimate, else the tool's registered cost."""
    if call.cost_usd is not None:
        return call.cost_usd
    own = call.tool.cost_usd
    return float(own) if isinstance(own, int | float) else 0.0
