"""Confidence of recursive results, and their synthesis."""

from __future__ import annotations

from typing import Any

from trustfold.projections import confidence as ours
from trustfold.schemas.vocabulary import SynthesisStrategy

from .area import Area, reads


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

    def config_strategy(self, value: str) -> None:
        """How results are combined."""
        self.strategy = SynthesisStrategy(value)

    def config_low(self, value: float) -> None:
        """Below it a result is flagged."""
        self.change("confidence", low=value)

    config_low_threshold = config_low_confidence_threshold = config_low

    def config_floor(self, value: float) -> None:
        """What takes part in a consensus."""
        self.change("confidence", consensus=value)

    config_consensus_floor = config_consensus_threshold = config_floor

    # --- what happens -------------------------------------------------------------------------------------------------

    @reads("content confidence cost_usd times")
    def event_result(self, event: dict[str, Any]) -> None:
        """One recursive result."""
        made = ours.Result(str(event["content"]), float(event["confidence"]), float(event.get("cost_usd", 0.0)))
        self.results += [made] * int(event.get("times", 1))

    @reads("samples")
    def op_self_consistency(self, event: dict[str, Any]) -> None:
        """How far samples agree."""
        self._estimate(lambda: ours.self_consistency(event["samples"]))

    @reads("trace steps")
    def op_coherence(self, event: dict[str, Any]) -> None:
        """How a trace hangs together."""
        self._estimate(lambda: ours.trace_coherence(event.get("trace") or event.get("steps") or []))

    op_trace_coherence = op_coherence

    @reads("results")
    def op_tool_success(self, event: dict[str, Any]) -> None:
        """How calls went: true or false, or what says so."""
        went = [_went_well(one) for one in event["results"]]
        self._estimate(lambda: ours.tool_success(sum(went), len(went)))

    op_tool_results = op_tool_success

    @reads("sources")
    def op_sources(self, event: dict[str, Any]) -> None:
        """How reliable sources are."""
        self._estimate(lambda: ours.source_reliability(event["sources"]))

    op_source_reliability = op_sources

    @reads(ours.WEIGHTS, "signals")
    def op_combine(self, event: dict[str, Any]) -> None:
        """All signals together."""
        signals = event.get("signals") or {name: event[name] for name in ours.WEIGHTS if name in event}
        self._estimate(lambda: ours.combine(signals).value)

    def _estimate(self, make: Any) -> None:
        try:
            self.value = make()
        except ValueError as error:
            self.refused = str(error)

    # --- what has come of it ------------------------------------------------------------------------------------------

    def _made(self) -> ours.Synthesis:
        named = () if self.strategy is None else (self.strategy,)
        return ours.synthesize(self.results, *named, rules=self.rules.confidence)

    def see_confidence(self) -> float | None:
        """Of the estimate, or of the synthesis."""
        return self.value if self.value is not None else None if self.refused else self._made().confidence

    def see_content(self) -> str:
        """The answer."""
        return self._made().content

    def see_low_confidence(self) -> bool:
        """Whether it is to be reviewed."""
        return self._made().low_confidence

    see_flagged = see_low_confidence

    def see_cost_usd(self) -> float:
        """What it cost."""
        return self._made().cost_usd

    see_total_cost_usd = see_cost_usd

    def see_alternatives(self) -> list[str]:
        """Other answers."""
        return list(self._made().alternatives)

    def see_consensus(self) -> bool | None:
        """Whether the confident ones agree."""
        return self._made().consensus

    def see_strategy(self) -> str:
        """How it came about."""
        return str(self._made().strategy)

    def see_error(self) -> bool:
        """Whether it is refused."""
        if self.refused:
            return True
        try:
            self._made()
        except ValueError:
            return True
        return False

    see_rejected = see_refused = see_raises = see_invalid = see_config_error = see_error


def _went_well(one: Any) -> bool:
    if isinstance(one, dict):
        return bool(one.get("success", one.get("ok", not one.get("error"))))
    if isinstance(one, str):
        return one.lower() in {"success", "ok", "true", "s"}
    return bool(one)
