"""Rules of circuits: when one opens and closes (docs/design/semantics.md#circuit-breaker)."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from ..schemas.vocabulary import ToolClass
from .merging import Count, Ratio, RulesBase, Seconds


class BreakerPolicy(RulesBase, kw_only=True, frozen=True):
    """Policy of a circuit: when it opens and closes (docs/design/semantics.md#circuit-breaker).

    Attributes:
        consecutive_failures: number of consecutive failed calls, within the window, that open it; None: off.
        rate_threshold: failed share of the last `rate_window_calls` that opens it; None: off.
        rate_window_calls: number of latest calls that the rate is computed from.
        rate_min_calls: minimum of measured calls for the rate.
        window_s: seconds after which results are forgotten.
        open_s: seconds a circuit stays open the first time.
        backoff: factor on `open_s` for each re-opening without a close between; 1 keeps it constant.
        backoff_cap: largest multiple of `open_s`.
        close_after: number of consecutive successful probes that close it.
        lease_s: seconds after which an unfinished probe counts as failed and its lease ends.
        slow_call_ms: milliseconds above which a call is slow; None: no slow-call test.
        slow_rate_threshold: share of slow calls that opens it, with the same minimum of calls.
        excluded_errors: error types and exception classes that are answers and never open it.
    """

    consecutive_failures: Count | None = 5
    rate_threshold: Ratio | None = 0.5
    rate_window_calls: Annotated[int, Meta(ge=1, le=500)] = 20
    rate_min_calls: Count = 10
    window_s: Seconds = 120
    open_s: Seconds = 30
    backoff: Annotated[float, Meta(ge=1, le=16)] = 2.0
    backoff_cap: Annotated[float, Meta(ge=1, le=1000)] = 16.0
    close_after: Count = 2
    lease_s: Seconds = 60
    slow_call_ms: Seconds | None = None
    slow_rate_threshold: Ratio | None = None
    excluded_errors: frozenset[str] = frozenset()


TOOL_POLICY = BreakerPolicy()
RECURSIVE_POLICY = BreakerPolicy(consecutive_failures=3, rate_threshold=None, open_s=60, close_after=1)
READ_ONLY_POLICY = BreakerPolicy(consecutive_failures=8, open_s=20)
MUTATING_POLICY = BreakerPolicy(consecutive_failures=3, rate_threshold=0.4)


class BreakerRules(RulesBase, kw_only=True, frozen=True):
    """Policies of circuits: selected by name first, then by declared tool class, then by kind of scope.

    `read_only` and `mutating` apply only if configuration or MCP annotations declare the class: a guess from the tool's
    name must not make a circuit more sensitive.
    """

    tool: BreakerPolicy = TOOL_POLICY
    recursive: BreakerPolicy = RECURSIVE_POLICY
    read_only: BreakerPolicy = READ_ONLY_POLICY
    mutating: BreakerPolicy = MUTATING_POLICY
    by_scope: dict[str, BreakerPolicy] = {}

    def policy_for(self, scope: str, declared_class: str) -> BreakerPolicy:
        """Return the policy of a scope's circuit (`tool:NAME`, `service:NAME`, `tier:NAME`) by declared class."""
        named = self.by_scope.get(scope)
        if named is not None:
            return named
        if scope.startswith("tier:"):
            return self.recursive
        if declared_class == ToolClass.READ:
            return self.read_only
        if declared_class == ToolClass.ACTION:
            return self.mutating
        return self.tool
