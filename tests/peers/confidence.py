"""Confidence of recursive results, and their synthesis."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from trustfold.projections import confidence as ours
from trustfold.schemas.vocabulary import SynthesisStrategy

from .area import Area, puts


class Confidence(Area):
    """Cases of `confidence` and `synthesis`."""

    CONFIG = {"strategy": puts("strategy", SynthesisStrategy)}  # how results are combined

    def prepare(self) -> None:
        self.results: list[ours.SubcallResult] = []
        self.strategy: SynthesisStrategy | None = None
        self.value: float | None = None
        self.refused = False

    def event_result(self, content: str, confidence: float, cost_usd: float = 0.0) -> None:
        self.results.append(ours.SubcallResult(content, float(confidence), float(cost_usd)))

    def op_tool_success(self, results: list[Any]) -> None:
        """How calls went: true or false, or what says so."""
        went = [_went_well(one) for one in results]
        self._estimate(lambda: ours.tool_success(sum(went), len(went)))

    def _estimate(self, make: Callable[[], float]) -> None:
        try:
            self.value = make()
        except ValueError:
            self.refused = True

    OPS = {
        "self_consistency": lambda self, samples: self._estimate(lambda: ours.self_consistency(samples)),
        "coherence": lambda self, trace=(): self._estimate(lambda: ours.trace_coherence(trace)),
        "sources": lambda self, sources: self._estimate(lambda: ours.source_reliability(sources)),
        "combine": lambda self, signals=None: self._estimate(lambda: ours.combine(signals or {}).value),
    }

    def _made(self) -> ours.SynthesizedResult:
        named = () if self.strategy is None else (self.strategy,)
        return ours.synthesize(self.results, *named, rules=self.rules.confidence)

    def see_error(self) -> bool:
        self._estimate(lambda: self._made().confidence)
        return self.refused

    VIEWS = {
        "confidence": lambda self: (
            self.value if self.value is not None else None if self.refused else self._made().confidence
        ),
        "content": lambda self: self._made().content,  # the answer
        "low_confidence": lambda self: self._made().low_confidence,  # whether it is to be reviewed
        "cost_usd": lambda self: self._made().cost_usd,
        "alternatives": lambda self: list(self._made().alternatives),  # other answers
        "consensus": lambda self: self._made().consensus,  # whether the confident ones agree
        "strategy": lambda self: str(self._made().strategy),  # how it came about
    }


def _went_well(one: Any) -> bool:
    if isinstance(one, dict):
        return bool(one.get("success", one.get("ok", not one.get("error"))))
    return one.lower() in {"success", "ok", "true", "s"} if isinstance(one, str) else bool(one)
