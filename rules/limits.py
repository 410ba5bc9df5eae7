"""What an execution may spend, and how sure its result must be (design 3, Guarantees and confidence)."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from .fields import Ratio, RulesBase, Score, Seconds


class GuaranteeRules(RulesBase, kw_only=True, frozen=True):
    """Hard boundaries of an execution (seed 5 §10.2; design 3, Guarantees and confidence).

    Attributes:
        sessions: whose limits are watched: `recursive` (sessions from their first recursive call on, and those that
            were given limits), `all` (from the first call on) or `off`.
        max_cost_usd: US dollars.
        max_duration_seconds: seconds.
        max_recursive_calls: recursive calls; the last of them is still allowed.
        warn_at: share of a limit that warns.
    """

    sessions: Annotated[str, Meta(pattern="^(recursive|all|off)$")] = "recursive"
    max_cost_usd: Annotated[float, Meta(ge=0, le=1_000_000_000)] = 1.0
    max_duration_seconds: Seconds = 300.0
    max_recursive_calls: Annotated[int, Meta(ge=0, le=1_000_000)] = 20
    warn_at: Ratio = 0.8


class ConfidenceRules(RulesBase, kw_only=True, frozen=True):
    """When a recursive result is flagged for review (seed 5 §10.1).

    Attributes:
        low: results below this are flagged; one that reaches it is not.
        consensus: confidence from which a result takes part in a consensus.
    """

    low: Score = 0.3
    consensus: Score = 0.5
