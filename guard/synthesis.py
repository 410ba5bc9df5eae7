"""Confidence and synthesis of results of recursive calls (docs/design/semantics.md#confidence).

The formulas are those of the folds; this module adds the guard's types and publishes the synthesis.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..projections import confidence as reckoning
from ..projections.confidence import CombinedConfidence, SynthesizedResult
from ..rules.rules import ConfidenceRules
from ..schemas import events as ev
from ..schemas.vocabulary import SynthesisStrategy

if TYPE_CHECKING:
    from .guard import ToolGuard

LOW = ConfidenceRules().low  # Confidence below which a result should be reviewed


@dataclass(frozen=True, slots=True)
class BudgetMetrics:
    """Cost of a result."""

    cost_usd: float = 0.0  # US dollars
    duration_s: float = 0.0  # seconds
    recursive_calls: int = 0  # number of recursive calls


@dataclass(frozen=True, slots=True)
class RecursiveResult:
    """Answer of one recursive call (docs/design/semantics.md#confidence).

    Attributes:
        content: text of the answer.
        confidence: 0 to 1.
        reasoning_trace: reasoning steps.
        cost: cost of the answer.
        signals: signals of which the confidence was computed.
    """

    content: str
    confidence: float
    reasoning_trace: tuple[str, ...] = ()
    cost: BudgetMetrics = field(default_factory=BudgetMetrics)
    signals: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Validate the confidence.

        Raises:
            ValueError: it is not from 0 to 1; NaN is rejected.
        """
        reckoning.share(self.confidence)

    @property
    def low_confidence(self) -> bool:
        """Whether it should be reviewed."""
        return self.confidence < LOW


def estimate_confidence(
    *,
    samples: Sequence[str] = (),
    reasoning_trace: Sequence[str] = (),
    tool_calls: tuple[int, int] | None = None,
    sources: Iterable[str | float] = (),
) -> CombinedConfidence:
    """Compute a confidence from the given signals (docs/design/semantics.md#confidence).

    Args:
        samples: several answers to the same question; scored by their agreement.
        reasoning_trace: reasoning steps; scored by their coherence.
        tool_calls: numbers of successful and of all calls.
        sources: kinds of source by name, or their scores from 0 to 1.

    Raises:
        ValueError: a number is out of range.
    """
    known = list(sources)
    return reckoning.combine(
        {
            "self_consistency": reckoning.self_consistency(samples) if len(samples) > 1 else None,
            "trace_coherence": reckoning.trace_coherence(reasoning_trace) if reasoning_trace else None,
            "tool_success": reckoning.tool_success(*tool_calls) if tool_calls and tool_calls[1] else None,
            "source_reliability": reckoning.source_reliability(known) if known else None,
        }
    )


def synthesize(
    results: Sequence[RecursiveResult],
    strategy: SynthesisStrategy | str = SynthesisStrategy.WEIGHTED,
    *,
    guard: ToolGuard | None = None,
    session_id: str | None = None,
    rules: ConfidenceRules | None = None,
) -> SynthesizedResult:
    """Combine results; with a guard and a session it is published, and flagged if it should be reviewed.

    Args:
        results: results to combine.
        strategy: `weighted`, `consensus` or `diverse`.
        guard: publishes the synthesis; only numbers leave the process.
        session_id: id of the conversation.
        rules: confidence from which a result joins a consensus, and below which the synthesis is flagged.

    Raises:
        ValueError: the strategy is unknown, or a confidence is out of range.
    """
    chosen = SynthesisStrategy(strategy)
    plain = [reckoning.SubcallResult(one.content, one.confidence, one.cost.cost_usd) for one in results]
    made = reckoning.synthesize(plain, chosen, rules)
    if guard is not None and session_id is not None and guard.settings.enabled:
        guard.publisher.event(ev.SynthesisCompleted, session_id, **_summary(results, made))
    return made


def _summary(results: Sequence[RecursiveResult], made: SynthesizedResult) -> dict[str, object]:
    weight = sum(one.confidence for one in results)
    answer = reckoning.same_answer(made.content)
    parts = tuple(
        ev.SynthesisResult(
            confidence=one.confidence,
            id=f"r{number}",
            weight=round(one.confidence / weight, 4) if weight else 0.0,
            included=made.strategy is SynthesisStrategy.WEIGHTED or answer == reckoning.same_answer(one.content),
        )
        for number, one in enumerate(results, 1)
    )
    names = sorted({name for one in results for name in one.signals})
    means = {
        name: sum(values) / len(values)
        for name in names
        if (values := [one.signals[name] for one in results if name in one.signals])
    }
    signals = ev.ConfidenceSignals(**means) if means else None
    return {"strategy": made.strategy, "confidence": made.confidence, "results": parts, "signals": signals}
