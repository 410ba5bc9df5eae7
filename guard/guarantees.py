"""Hard limits of an execution: cost, time and recursive calls, checked before each operation.

The processor folds the same limits from events and reports violations. The guard checks each operation with its
expected cost, refuses it if it would exceed a limit, records every violated limit, and limits each call to the
remaining time. Page: docs/guard.md.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

from ..errors import ConfigError
from ..schemas.decisions import DegradationPlan
from ..schemas.events import GuaranteeLimits
from ..schemas.fields import LARGEST_COUNT, MAX_SPAN_MS

GracefulDegradationPlan = DegradationPlan
"""Plan of how to end when a limit is reached."""

_TOLERANCE = 1e-9
"""Difference in US dollars within which two sums count as equal."""

LIMITS = ("max_cost_usd", "max_duration_seconds", "max_recursive_calls")

_LARGEST = {"max_cost_usd": 1e12, "max_duration_seconds": MAX_SPAN_MS / 1000, "max_recursive_calls": LARGEST_COUNT}
"""Largest limits in events; larger ones, such as infinity, are published as these."""

MAX_VIOLATIONS = 1000
"""Number of violations kept per session; the oldest are dropped first."""

_ADVICE = {
    "max_cost_usd": "narrow the request, or use a cheaper model for the recursive calls",
    "max_duration_seconds": "split the request into smaller ones",
    "max_recursive_calls": "ask a narrower question that needs fewer recursive calls",
}
_WORDS = {"max_cost_usd": "money", "max_duration_seconds": "time", "max_recursive_calls": "recursive calls"}


class ViolationKind(StrEnum):
    """Kind of violation: which limit, and whether it is or would be exceeded."""

    COST_EXCEEDED = "cost_exceeded"
    COST_WOULD_EXCEED = "cost_would_exceed"
    DURATION_EXCEEDED = "duration_exceeded"
    CALLS_EXCEEDED = "calls_exceeded"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionGuarantees:
    """Limits of an execution.

    Attributes:
        max_cost_usd: US dollars.
        max_duration_seconds: seconds.
        max_recursive_calls: number of recursive calls; the last one is still allowed.
    """

    max_cost_usd: float = 1.0
    max_duration_seconds: float = 300.0
    max_recursive_calls: int = 20

    def __post_init__(self) -> None:
        """Validate the limits.

        Raises:
            ConfigError: a limit is invalid; the message names it.
        """
        for name in LIMITS:
            if not getattr(self, name) >= 0:
                raise ConfigError(f"{name} is {getattr(self, name)}; a limit is a number from 0 on")


class LimitViolation(NamedTuple):
    """One limit that an operation exceeds.

    Attributes:
        kind: `cost_exceeded`, `cost_would_exceed`, `duration_exceeded` or `calls_exceeded`.
        limit: name of the limit, as in `ExecutionGuarantees`.
        used: spent and reserved before the operation, in the limit's unit.
        coming: expected use of the operation itself.
        allowed: the limit.
        overridden: the operation is made because a person confirmed an override.
    """

    kind: ViolationKind
    limit: str
    used: float
    coming: float
    allowed: float
    overridden: bool = False

    @property
    def reason(self) -> str:
        """Half a sentence that describes the violation with its figures."""
        what = f"the limit of {_WORDS[self.limit]}"
        if self.kind is ViolationKind.COST_WOULD_EXCEED:
            return f"{what} would be exceeded ({self.used:g} spent and {self.coming:g} expected, of {self.allowed:g})"
        return f"{what} is spent ({self.used:g} of {self.allowed:g})"


class LimitCheck(NamedTuple):
    """Result of a check before an operation.

    Attributes:
        allowed: the operation may be made.
        violations: every limit that it exceeds, in the order of `LIMITS`.
        plan: how to end; None if nothing is exceeded.
    """

    allowed: bool = True
    violations: tuple[LimitViolation, ...] = ()
    plan: DegradationPlan | None = None

    @property
    def overridden(self) -> bool:
        """Whether it is allowed only by a confirmed override."""
        return self.allowed and bool(self.violations)

    @property
    def message(self) -> str:
        """Violations and advice as text; empty if nothing is exceeded."""
        return "; ".join(f"{one.reason}; {_ADVICE[one.limit]}" for one in self.violations)


WITHIN = LimitCheck()


class LimitOverride(NamedTuple):
    """A person's confirmation that the next operation may exceed named limits; used once."""

    confirmed_by: str
    limits: frozenset[str]


def amount(cost_usd: Any) -> float:
    """Validate and return a cost in US dollars.

    Raises:
        ConfigError: the cost is NaN, negative, infinite, or not a number.
    """
    good = isinstance(cost_usd, int | float) and not isinstance(cost_usd, bool) and 0 <= cost_usd < math.inf
    if not good:
        raise ConfigError(f"cost_usd is {cost_usd!r}; a cost is a number of US dollars from 0 on")
    return float(cost_usd)


def published_limits(limits: Mapping[str, float]) -> GuaranteeLimits:
    """Convert named limits to their form in events."""
    named: dict[str, Any] = {name: min(limits[name], _LARGEST[name]) for name in LIMITS if name in limits}
    if "max_recursive_calls" in named:
        named["max_recursive_calls"] = int(named["max_recursive_calls"])
    return GuaranteeLimits(**named)


class SpendingCounter:
    """Counter of the spending of one execution.

    Attributes:
        limits: its limits.
        cost_usd: US dollars spent.
        reserved_usd: expected cost of running operations in US dollars.
        recursive_calls: recursive calls made.
        completed: calls that succeeded.
        overrides: confirmations with the limits they changed, oldest first.
        violations: all violations that checks found, oldest first.
        pending: an override that no operation has used yet.
    """

    def __init__(self, limits: ExecutionGuarantees, began_ms: float) -> None:
        """Start counting at `began_ms` on the guard's clock."""
        self.limits = limits
        self.cost_usd = 0.0
        self.reserved_usd = 0.0
        self.recursive_calls = 0
        self.completed = 0
        self.overrides: list[tuple[str, dict[str, float]]] = []
        self.violations: list[LimitViolation] = []
        self.pending: LimitOverride | None = None
        self._began_ms = began_ms

    def elapsed_s(self, now_ms: float) -> float:
        """Seconds since it began."""
        return max(0.0, now_ms - self._began_ms) / 1000

    def deadline_ms(self) -> float | None:
        """Time at which the time limit ends, on the guard's clock; None if it is too far away for an event."""
        span_ms = self.limits.max_duration_seconds * 1000
        return self._began_ms + span_ms if span_ms < MAX_SPAN_MS else None

    def check(self, now_ms: float, *, cost_usd: float = 0.0, recursive: bool = False) -> LimitCheck:
        """Check an operation before it is made, and record every limit that it exceeds.

        Reaching a cost limit exactly is allowed: with all money spent, a free operation is still allowed. Time and
        recursive calls are used by the operation itself, so some must be left. An operation that exceeds limits uses up
        the pending override if that names all of them.

        Args:
            now_ms: time on the guard's clock, milliseconds.
            cost_usd: expected cost of the operation in US dollars.
            recursive: whether it is a recursive call.

        Raises:
            ConfigError: the cost is invalid.
        """
        found = tuple(self._beyond(now_ms, amount(cost_usd), recursive=recursive))
        if not found:
            return WITHIN
        override = self.pending
        allowed = override is not None and override.limits.issuperset(one.limit for one in found)
        if override is not None and allowed:
            self.pending = None
            self.overrides.append((override.confirmed_by, {one.limit: one.used + one.coming for one in found}))
        found = tuple(one._replace(overridden=allowed) for one in found)
        self.violations.extend(found)
        del self.violations[:-MAX_VIOLATIONS]
        return LimitCheck(allowed, found, self.plan(found, now_ms))

    def override(self, limits: Mapping[str, float], confirmed_by: str) -> None:
        """Change named limits for the rest of the execution.

        Raises:
            ConfigError: `confirmed_by` is empty, or a limit is unknown.
        """
        _check_override(limits, confirmed_by)
        kept = {name: getattr(self.limits, name) for name in LIMITS}
        changed: dict[str, Any] = {**kept, **limits}
        self.limits = ExecutionGuarantees(**changed)
        self.overrides.append((confirmed_by, dict(limits)))

    def allow_once(self, limits: Iterable[str], confirmed_by: str) -> None:
        """Let the next operation that needs it exceed the named limits, once.

        Raises:
            ConfigError: `confirmed_by` is empty, or a limit is unknown.
        """
        named = frozenset(limits)
        _check_override(named, confirmed_by)
        self.pending = LimitOverride(confirmed_by, named)

    def last_override(self) -> dict[str, Any]:
        """Fields of the event that records the last used override."""
        confirmed_by, limits = self.overrides[-1]
        return {"limits": published_limits(limits), "confirmed_by": confirmed_by}

    def plan(self, violations: Iterable[LimitViolation], now_ms: float) -> DegradationPlan:
        """Build the plan of how to end at this point."""
        found = list(violations)
        done = self.completed
        basis = f"rests on the {done} calls that succeeded" if done > 1 else "rests on one call" if done else "is empty"
        why = " and ".join(one.reason for one in found)
        advice = (_ADVICE[one.limit] for one in found)
        return DegradationPlan(
            partial_result=f"Stopped because {why}. The result so far {basis}.",
            recommendations=("use the partial result as it is", *advice, "override the limit and confirm it"),
            cost_usd=round(self.cost_usd, 6),
            duration_s=round(self.elapsed_s(now_ms), 3),
            recursive_calls=self.recursive_calls,
        )

    def _beyond(self, now_ms: float, cost_usd: float, *, recursive: bool) -> Iterable[LimitViolation]:
        limits = self.limits
        most = limits.max_cost_usd + _TOLERANCE
        used = self.cost_usd + self.reserved_usd
        if self.cost_usd > most:
            yield LimitViolation(
                ViolationKind.COST_EXCEEDED, "max_cost_usd", self.cost_usd, cost_usd, limits.max_cost_usd
            )
        elif cost_usd and used + cost_usd > most:
            yield LimitViolation(ViolationKind.COST_WOULD_EXCEED, "max_cost_usd", used, cost_usd, limits.max_cost_usd)
        if (elapsed := self.elapsed_s(now_ms)) >= limits.max_duration_seconds:
            name = "max_duration_seconds"
            yield LimitViolation(ViolationKind.DURATION_EXCEEDED, name, elapsed, 0.0, limits.max_duration_seconds)
        if recursive and self.recursive_calls >= limits.max_recursive_calls:
            name, made = "max_recursive_calls", self.recursive_calls
            yield LimitViolation(ViolationKind.CALLS_EXCEEDED, name, made, 1, limits.max_recursive_calls)


def _check_override(limits: Iterable[str], confirmed_by: str) -> None:
    """Validate an override.

    Raises:
        ConfigError: it names no person or no limit.
    """
    if not str(confirmed_by or "").strip():
        raise ConfigError("an override needs the name of who confirmed it: confirmed_by")
    named = set(limits)
    if not named or named - set(LIMITS):
        raise ConfigError(f"name the limits to override: {', '.join(LIMITS)}")
