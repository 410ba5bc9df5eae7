"""Results of recursive calls: how sure is each, and what do they say together? (docs/design/semantics.md#confidence).

The reckoning is that of the folds; here it gets the guard's words and is published.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..projections import confidence as reckoning
from ..projections.confidence import Confidence, Synthesis
from ..rules.rules import ConfidenceRules
from ..schemas import events as ev
from ..schemas.vocabulary import SynthesisStrategy

if TYPE_CHECKING:
    from .guard import ToolGuard

LOW = ConfidenceRules().low
"""Below this a result should be reviewed."""


@dataclass(frozen=True, slots=True)
class BudgetMetrics:
    """What a result has cost.

    Attributes:
        cost_usd: US dollars.
        duration_s: seconds.
        recursive_calls: calls of called models.
    """

    cost_usd: float = 0.0
    duration_s: float = 0.0
    recursive_calls: int = 0


@dataclass(frozen=True, slots=True)
class RecursiveResult:
    """One answer of a recursive call (docs/design/semantics.md#confidence).

    Attributes:
        content: the answer.
        confidence: 0 to 1.
        reasoning_trace: steps that led to it.
        cost: what it has cost.
        signals: what the confidence rests on.
    """

    content: str
    confidence: float
    reasoning_trace: tuple[str, ...] = ()
    cost: BudgetMetrics = field(default_factory=BudgetMetrics)
    signals: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse what is no confidence.

        Raises:
            ValueError: it is not from 0 to 1; NaN is none.
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
) -> Confidence:
    """Confidence from the signals that are there (docs/design/semantics.md#confidence).

    Args:
        samples: several answers to the same question; how far they agree.
        reasoning_trace: steps of the reasoning; how well they hang together.
        tool_calls: successes and calls.
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
) -> Synthesis:
    """Combine results; with a guard and a session it is published, and flagged where it should be reviewed.

    Args:
        results: what is combined.
        strategy: `weighted`, `consensus` or `diverse`.
        guard: publishes the synthesis; only numbers leave the process.
        session_id: the conversation.
        rules: from which confidence a result takes part in a consensus, and below which it is flagged.

    Raises:
        ValueError: there is no such strategy, or a confidence is out of range.
    """
    chosen = SynthesisStrategy(strategy)
    plain = [reckoning.Result(one.content, one.confidence, one.cost.cost_usd) for one in results]
    made = reckoning.synthesize(plain, chosen, rules)
    if guard is not None and session_id is not None and guard.settings.enabled:
        guard.publisher.event(ev.SynthesisCompleted, session_id, **_summary(results, made))
    return made


def _summary(results: Sequence[RecursiveResult], made: Synthesis) -> dict[str, object]:
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
