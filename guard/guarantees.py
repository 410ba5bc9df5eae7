"""Hard boundaries of an execution: money, time, recursion (seed 5 §10.2; design 3, Guarantees and confidence).

The processor folds the same limits from events and reports violations. The guard holds them: it counts what its own
session spends, refuses what would go beyond, and gives each call no more time than is left.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..schemas.decisions import DegradationPlan
from ..schemas.errors import ConfigError

GracefulDegradationPlan = DegradationPlan
"""How to end well when a limit is reached."""

_TOLERANCE = 1e-9
"""In which sums of money count as equal."""

LIMITS = ("max_cost_usd", "max_duration_seconds", "max_recursive_calls")

_ADVICE = {
    "max_cost_usd": "narrow the request, or use a cheaper model for the recursive calls",
    "max_duration_seconds": "split the request into smaller ones",
    "max_recursive_calls": "ask a narrower question that needs fewer recursive calls",
}
_WORDS = {"max_cost_usd": "money", "max_duration_seconds": "time", "max_recursive_calls": "recursive calls"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionGuarantees:
    """What an execution may spend (seed 5, SPEC-10.11).

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


@dataclass(frozen=True, slots=True)
class Breach:
    """A limit that is spent, and how to end well."""

    limit: str
    used: float
    allowed: float
    plan: DegradationPlan

    @property
    def message(self) -> str:
        """The breach in words."""
        return f"the limit of {_WORDS[self.limit]} is spent: {self.used:g} of {self.allowed:g}; {_ADVICE[self.limit]}"


class Spending:
    """What one execution has spent.

    Attributes:
        limits: what it may spend.
        cost_usd: US dollars spent.
        recursive_calls: recursive calls made.
        completed: calls that succeeded.
        overrides: who allowed more, and what, oldest first.
    """

    def __init__(self, limits: ExecutionGuarantees, began_ms: float) -> None:
        """Begin to count at a time on the guard's clock."""
        self.limits = limits
        self.cost_usd = 0.0
        self.recursive_calls = 0
        self.completed = 0
        self.overrides: list[tuple[str, dict[str, float]]] = []
        self._began_ms = began_ms

    def elapsed_s(self, now_ms: float) -> float:
        """Seconds since it began."""
        return max(0.0, now_ms - self._began_ms) / 1000

    def deadline_ms(self) -> float:
        """When its time is up, on the guard's clock."""
        return self._began_ms + self.limits.max_duration_seconds * 1000

    def breach(self, now_ms: float, *, recursive: bool) -> Breach | None:
        """The limit that forbids another operation; None where there is room for it.

        What reaches a limit is within it, as in the folds: with the last cent spent, what costs nothing goes on. Time
        and a recursive call are needed by the operation itself, so there something must be left.
        """
        limits = self.limits
        if self.cost_usd > limits.max_cost_usd + _TOLERANCE:
            return self._breach("max_cost_usd", self.cost_usd, limits.max_cost_usd, now_ms)
        if (elapsed := self.elapsed_s(now_ms)) >= limits.max_duration_seconds:
            return self._breach("max_duration_seconds", elapsed, limits.max_duration_seconds, now_ms)
        if recursive and self.recursive_calls >= limits.max_recursive_calls:
            return self._breach("max_recursive_calls", self.recursive_calls, limits.max_recursive_calls, now_ms)
        return None

    def override(self, limits: dict[str, float], confirmed_by: str) -> None:
        """Let named limits be others from now on; somebody must have confirmed it.

        Raises:
            ConfigError: nobody did, or no limit of this name exists.
        """
        if not confirmed_by:
            raise ConfigError("an override needs the name of who confirmed it")
        unknown = sorted(limits.keys() - set(LIMITS))
        if unknown or not limits:
            raise ConfigError(f"name the limits to override: {', '.join(LIMITS)}")
        kept = {name: getattr(self.limits, name) for name in LIMITS}
        changed: dict[str, Any] = {**kept, **limits}
        self.limits = ExecutionGuarantees(**changed)
        self.overrides.append((confirmed_by, dict(limits)))

    def plan(self, why: str, advice: str, now_ms: float) -> DegradationPlan:
        """How to end well from here."""
        done = self.completed
        basis = f"rests on the {done} calls that succeeded" if done > 1 else "rests on one call" if done else "is empty"
        return DegradationPlan(
            partial_result=f"Stopped because {why}. The result so far {basis}.",
            recommendations=("use the partial result as it is", advice, "override the limit and confirm it"),
            cost_usd=round(self.cost_usd, 6),
            duration_s=round(self.elapsed_s(now_ms), 3),
            recursive_calls=self.recursive_calls,
        )

    def _breach(self, limit: str, used: float, allowed: float, now_ms: float) -> Breach:
        why = f"the limit of {_WORDS[limit]} is spent ({used:g} of {allowed:g})"
        return Breach(limit, used, allowed, self.plan(why, _ADVICE[limit], now_ms))
