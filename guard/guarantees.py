"""Hard limits of an execution: money, time and recursive calls, checked before each operation.

The processor folds the same limits from events and reports what has gone beyond. The guard checks each operation with
what it is expected to cost, refuses it where it would exceed a limit, records every limit concerned, and gives each
call no more time than is left. Page: docs/guard.md.
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
"""How to end well when a limit is reached."""

_TOLERANCE = 1e-9
"""In which sums of money count as equal."""

LIMITS = ("max_cost_usd", "max_duration_seconds", "max_recursive_calls")

_LARGEST = {"max_cost_usd": 1e12, "max_duration_seconds": MAX_SPAN_MS / 1000, "max_recursive_calls": LARGEST_COUNT}
"""Largest limits that an event may state; a limit beyond, such as infinity, is published as this."""

MAX_VIOLATIONS = 1000
"""Violations remembered per session; the oldest go first."""

_ADVICE = {
    "max_cost_usd": "narrow the request, or use a cheaper model for the recursive calls",
    "max_duration_seconds": "split the request into smaller ones",
    "max_recursive_calls": "ask a narrower question that needs fewer recursive calls",
}
_WORDS = {"max_cost_usd": "money", "max_duration_seconds": "time", "max_recursive_calls": "recursive calls"}


class ViolationKind(StrEnum):
    """Kind of excess: which limit an operation goes beyond, and whether it would only do so."""

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
        max_recursive_calls: recursive calls; the last of them is still allowed.
    """

    max_cost_usd: float = 1.0
    max_duration_seconds: float = 300.0
    max_recursive_calls: int = 20

    def __post_init__(self) -> None:
        """Refuse limits that are none.

        Raises:
            ConfigError: naming the limit.
        """
        for name in LIMITS:
            if not getattr(self, name) >= 0:
                raise ConfigError(f"{name} is {getattr(self, name)}; a limit is a number from 0 on")


class Violation(NamedTuple):
    """One limit that an operation goes beyond.

    Attributes:
        kind: `cost_exceeded`, `cost_would_exceed`, `duration_exceeded` or `calls_exceeded`.
        limit: name of the limit, as in `ExecutionGuarantees`.
        used: spent and reserved before the operation, in the limit's unit.
        coming: expected of the operation itself.
        allowed: the limit.
        overridden: the operation is made all the same, as a person has confirmed it.
    """

    kind: ViolationKind
    limit: str
    used: float
    coming: float
    allowed: float
    overridden: bool = False

    @property
    def reason(self) -> str:
        """The violation as half a sentence, with its figures."""
        what = f"the limit of {_WORDS[self.limit]}"
        if self.kind is ViolationKind.COST_WOULD_EXCEED:
            return f"{what} would be exceeded ({self.used:g} spent and {self.coming:g} expected, of {self.allowed:g})"
        return f"{what} is spent ({self.used:g} of {self.allowed:g})"


class Check(NamedTuple):
    """Answer to a check before an operation.

    Attributes:
        allowed: the operation may be made.
        violations: every limit that it goes beyond, in the order of `LIMITS`.
        plan: how to end well; None where nothing is exceeded.
    """

    allowed: bool = True
    violations: tuple[Violation, ...] = ()
    plan: DegradationPlan | None = None

    @property
    def overridden(self) -> bool:
        """Whether it is allowed only by a confirmed override."""
        return self.allowed and bool(self.violations)

    @property
    def message(self) -> str:
        """Violations and advice in words; empty where nothing is exceeded."""
        return "; ".join(f"{one.reason}; {_ADVICE[one.limit]}" for one in self.violations)


WITHIN = Check()


class Override(NamedTuple):
    """A person's confirmation that the next operation may go beyond named limits; used once."""

    confirmed_by: str
    limits: frozenset[str]


def amount(cost_usd: Any) -> float:
    """A cost in US dollars, checked.

    Raises:
        ConfigError: it is no amount of money: NaN, negative, infinite, or no number.
    """
    good = isinstance(cost_usd, int | float) and not isinstance(cost_usd, bool) and 0 <= cost_usd < math.inf
    if not good:
        raise ConfigError(f"cost_usd is {cost_usd!r}; a cost is a number of US dollars from 0 on")
    return float(cost_usd)


def published_limits(limits: Mapping[str, float]) -> GuaranteeLimits:
    """Named limits in the form of events."""
    named: dict[str, Any] = {name: min(limits[name], _LARGEST[name]) for name in LIMITS if name in limits}
    if "max_recursive_calls" in named:
        named["max_recursive_calls"] = int(named["max_recursive_calls"])
    return GuaranteeLimits(**named)


class Spending:
    """Counter of what one execution spends.

    Attributes:
        limits: what it may spend.
        cost_usd: US dollars spent.
        reserved_usd: US dollars that running operations are expected to cost.
        recursive_calls: recursive calls made.
        completed: calls that succeeded.
        overrides: who allowed more, and what, oldest first.
        violations: every violation that a check has found, oldest first.
        pending: an override that no operation has needed yet.
    """

    def __init__(self, limits: ExecutionGuarantees, began_ms: float) -> None:
        """Begin to count at a time on the guard's clock."""
        self.limits = limits
        self.cost_usd = 0.0
        self.reserved_usd = 0.0
        self.recursive_calls = 0
        self.completed = 0
        self.overrides: list[tuple[str, dict[str, float]]] = []
        self.violations: list[Violation] = []
        self.pending: Override | None = None
        self._began_ms = began_ms

    def elapsed_s(self, now_ms: float) -> float:
        """Seconds since it began."""
        return max(0.0, now_ms - self._began_ms) / 1000

    def deadline_ms(self) -> float | None:
        """When its time is up, on the guard's clock; None where that is farther away than an event can say."""
        span_ms = self.limits.max_duration_seconds * 1000
        return self._began_ms + span_ms if span_ms < MAX_SPAN_MS else None

    def check(self, now_ms: float, *, cost_usd: float = 0.0, recursive: bool = False) -> Check:
        """Check an operation that is about to be made, and record every limit that it goes beyond.

        What reaches a limit is within it: with the last cent spent, an operation that costs nothing goes on. Time and a
        recursive call are needed by the operation itself, so there something must be left. An operation that goes
        beyond uses up the pending override, where that names all of the limits concerned.

        Args:
            now_ms: time on the guard's clock.
            cost_usd: US dollars that the operation is expected to cost.
            recursive: whether it is a recursive call.

        Raises:
            ConfigError: the cost is no amount of money.
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
        return Check(allowed, found, self.plan(found, now_ms))

    def override(self, limits: Mapping[str, float], confirmed_by: str) -> None:
        """Change named limits for the rest of the execution.

        Raises:
            ConfigError: nobody confirmed it, or no limit of this name exists.
        """
        _check_override(limits, confirmed_by)
        kept = {name: getattr(self.limits, name) for name in LIMITS}
        changed: dict[str, Any] = {**kept, **limits}
        self.limits = ExecutionGuarantees(**changed)
        self.overrides.append((confirmed_by, dict(limits)))

    def allow_once(self, limits: Iterable[str], confirmed_by: str) -> None:
        """Let the next operation that needs it go beyond named limits.

        Raises:
            ConfigError: nobody confirmed it, or no limit of this name exists.
        """
        named = frozenset(limits)
        _check_override(named, confirmed_by)
        self.pending = Override(confirmed_by, named)

    def last_override(self) -> dict[str, Any]:
        """Fields of the event that records the override used last."""
        confirmed_by, limits = self.overrides[-1]
        return {"limits": published_limits(limits), "confirmed_by": confirmed_by}

    def plan(self, violations: Iterable[Violation], now_ms: float) -> DegradationPlan:
        """How to end well from here."""
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

    def _beyond(self, now_ms: float, cost_usd: float, *, recursive: bool) -> Iterable[Violation]:
        limits = self.limits
        most = limits.max_cost_usd + _TOLERANCE
        used = self.cost_usd + self.reserved_usd
        if self.cost_usd > most:
            yield Violation(ViolationKind.COST_EXCEEDED, "max_cost_usd", self.cost_usd, cost_usd, limits.max_cost_usd)
        elif cost_usd and used + cost_usd > most:
            yield Violation(ViolationKind.COST_WOULD_EXCEED, "max_cost_usd", used, cost_usd, limits.max_cost_usd)
        if (elapsed := self.elapsed_s(now_ms)) >= limits.max_duration_seconds:
            name = "max_duration_seconds"
            yield Violation(ViolationKind.DURATION_EXCEEDED, name, elapsed, 0.0, limits.max_duration_seconds)
        if recursive and self.recursive_calls >= limits.max_recursive_calls:
            name, made = "max_recursive_calls", self.recursive_calls
            yield Violation(ViolationKind.CALLS_EXCEEDED, name, made, 1, limits.max_recursive_calls)


def _check_override(limits: Iterable[str], confirmed_by: str) -> None:
    """Refuse an override that names no person or no limit.

    Raises:
        ConfigError: saying what is missing.
    """
    if not str(confirmed_by or "").strip():
        raise ConfigError("an override needs the name of who confirmed it: confirmed_by")
    named = set(limits)
    if not named or named - set(LIMITS):
        raise ConfigError(f"name the limits to override: {', '.join(LIMITS)}")
