"""Confidence of recursive results, and their synthesis."""

from __future__ import annotations

from typing import Any

from trustfold.projections import confidence as ours
from trustfold.schemas.vocabulary import SynthesisStrategy

from .area import Area, changes, puts, reads


class Confidence(Area):
    """Cases of `confidence` and `synthesis`."""

    def prepare(self) -> None:
        """Nothing is asked."""
        self.results: list[ours.Result] = []
        self.strategy: SynthesisStrategy | None = None
        self.value: float | None = None
        self.signals: dict[str, float] = {}
        self.refused = ""

    # --- config -------------------------------------------------------------------------------------------------------

    CONFIG = {
        "strategy": puts("strategy", SynthesisStrategy),  # how results are combined
        "low low_threshold low_confidence_threshold": changes("confidence", "low"),
        "floor consensus_floor consensus_threshold": changes("confidence", "consensus"),
    }

    # --- what happens -------------------------------------------------------------------------------------------------

    @reads("content confidence cost_usd times")
    def event_result(self, event: dict[str, Any]) -> None:
        """One recursive result."""
        made = ours.Result(str(event["content"]), float(event["confidence"]), float(event.get("cost_usd", 0.0)))
        self.results += [made] * int(event.get("times", 1))

    @reads(ours.WEIGHTS, "signals")
    def op_combine(self, event: dict[str, Any]) -> None:
        """All signals together."""
        signals = event.get("signals") or {name: event[name] for name in ours.WEIGHTS if name in event}
        self._estimate(lambda: ours.combine(signals).value)

    @reads("results")
    def op_tool_success(self, event: dict[str, Any]) -> None:
        """How calls went: true or false, or what says so."""
        went = [_went_well(one) for one in event["results"]]
        self._estimate(lambda: ours.tool_success(sum(went), len(went)))

    OPS = {
        "tool_results": op_tool_success,
        "self_consistency": reads("samples")(
            lambda self, event: self._estimate(lambda: ours.self_consistency(event["samples"]))
        ),
        "coherence trace_coherence": reads("trace steps")(
            lambda self, event: self._estimate(
                lambda: ours.trace_coherence(event.get("trace") or event.get("steps") or [])
            )
        ),
        "sources source_reliability": reads("sources")(
            lambda self, event: self._estimate(lambda: ours.source_reliability(event["sources"]))
        ),
    }

    def _estimate(self, make: Any) -> None:
        try:
            self.value = make()
        except ValueError as error:
            self.refused = str(error)

    # --- what has come of it ------------------------------------------------------------------------------------------

    def _made(self) -> ours.Synthesis:
        named = () if self.strategy is None else (self.strategy,)
        return ours.synthesize(self.results, *named, rules=self.rules.confidence)

    def see_error(self) -> bool:
        """Whether it is refused."""
        if self.refused:
            return True
        try:
            self._made()
        except ValueError:
            return True
        return False

    VIEWS = {
        "confidence": lambda self: (
            self.value if self.value is not None else None if self.refused else self._made().confidence
        ),
        "content": lambda self: self._made().content,  # the answer
        "low_confidence flagged": lambda self: self._made().low_confidence,  # whether it is to be reviewed
        "cost_usd total_cost_usd": lambda self: self._made().cost_usd,  # what it cost
        "alternatives": lambda self: list(self._made().alternatives),  # other answers
        "consensus": lambda self: self._made().consensus,  # whether the confident ones agree
        "strategy": lambda self: str(self._made().strategy),  # how it came about
        "rejected refused raises invalid config_error": see_error,
    }


def _went_well(one: Any) -> bool:
    if isinstance(one, dict):
        return bool(one.get("success", one.get("ok", not one.get("error"))))
    if isinstance(one, str):
        return one.lower() in {"success", "ok", "true", "s"}
    return bool(one)
