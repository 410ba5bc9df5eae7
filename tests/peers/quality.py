"""Tool quality: marks, successes; scores, tags and ranks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from trustfold.guard.resilient import ResilientResult
from trustfold.projections.ranking import RankCandidate, rank_tools
from trustfold.schemas.public_state import public_state

from ..support.fixed_rules import RegisteredTool
from .area import Area, puts, reads
from .calls import CALL_FIELDS

_PUBLISHED = {"type": "state.updated", "schema_version": "1.0", "id": "as the case says"}


class Quality(Area):
    """Cases of `quality`."""

    CONFIG = {
        "quality": puts("score"),  # registered score
        "tags": puts("about", tuple),  # what it is for
    }

    def prepare(self) -> None:
        self.score: float | None = None
        self.about: tuple[str, ...] = ()
        self.scores: list[float] = []
        self.tool = next((str(event["tool"]) for event in self.case.given if "tool" in event), "t")

    def read_settings(self) -> None:
        super().read_settings()
        fields = {} if self.score is None else {"score": self.score}
        tools = {str(event["tool"]) for event in self.case.given if "tool" in event} | {self.tool}
        registered = {tool: RegisteredTool(description=" ".join(self.about), **fields) for tool in tools}
        self.set_fields("quality", tools=registered)

    def after(self, _event: dict[str, Any]) -> None:
        """Scores are followed from event to event."""
        self.scores.append(self.see_quality())

    @reads(CALL_FIELDS)
    def event_tool_succeeded(self, event: dict[str, Any]) -> None:
        told = {name: value for name, value in event.items() if name != "name"}
        self.calls.take({"tool": self.tool, "args": {}, "ok": True, **told, "ev": "tool_call"})

    EVENTS = {
        # Somebody marks a tool as failed.
        "tool_marked_failed": lambda self, tool="", severity=None, scenario=None, error=None: self.world.command(
            "quality.mark", tool=tool or self.tool, severity=severity, scenario=scenario, error_message=error
        ),
    }

    def op_rank(
        self,
        scenario: str = "scenario",
        similarity: float = 1.0,
        quality: float | None = None,
        similar_failures: Sequence[float] | None = None,
    ) -> float:
        """Rank for a scenario of a given similarity: as published, or with this score and these failures."""
        now, told = self.world.now, self.world.told("quality")
        alike = {self.tool: float(similarity)}
        if quality is not None or similar_failures is not None:
            failed = {f"failure {number}": float(one) for number, one in enumerate(similar_failures or ())}
            alike |= failed
            made = {"kind": "quality", "key": self.tool, "score": self.see_quality() if quality is None else quality}
            made["failed_scenarios"] = dict.fromkeys(failed, now.isoformat())
            told = [{**_PUBLISHED, **made, "time": now.isoformat()}]
        fits = _Fits(alike, others=float(similarity))
        states, tools = [public_state(one) for one in told], [RankCandidate(self.tool, self.tool)]
        return rank_tools(scenario, tools, states, now, self.rules.quality, fits)[0].rank

    def op_resilient_call(
        self, candidates: list[list[Any]], max_attempts: int | None = None, scenario: str = "scenario"
    ) -> ResilientResult:
        """A guard calls candidates (name, fit, whether it works) until one does what it is asked."""
        guard = self.world.guard()
        for name, _, works in candidates:
            guard.register(name, _tool(works=works), description=name)
        options = {} if max_attempts is None else {"max_attempts": max_attempts}
        options |= {"rules": self.rules.quality, "session_id": self.world.session}
        fits = _Fits({name: float(fit) for name, fit, _ in candidates})
        return asyncio.run(guard.call_resilient(scenario, None, similarity=fits, **options))

    def see_quality(self) -> float:
        state = self.world.tool_state(f"tool:{self.tool}")
        if state is None or state.quality is None:
            return self.rules.quality.tools[self.tool].score
        return state.quality.score

    def see_marked(self) -> list[list[str]]:
        """What each failed call has cost its tool, in the words of a mark."""
        rules = self.rules.quality
        costs = {rules.low: "low", rules.medium: "medium", rules.high: "high"}
        lost = {
            scope.partition(":")[2]: round(rules.registered_score - state.quality.score, 6)
            for scope, state in self.world.tool_states().items()
            if state.quality is not None
        }
        return [[tool, costs.get(cost, str(cost))] for tool, cost in lost.items()]

    def _made(self) -> ResilientResult:
        return self.answer("resilient_call")  # type: ignore[no-any-return]

    VIEWS = {
        "score": lambda self: next(reversed(self.answers["rank"]), self.see_quality()),
        "rank": lambda self: next(reversed(self.answers["rank"]), None),
        "quality_rises": lambda self: self.see_quality() > min(self.scores, default=1.0),
        # Tags that say what it does not serve for.
        "tags_added": lambda self: list(next(reversed(self.world.told("quality")), {}).get("tags", ())),
        "success": lambda self: self._made().success,  # whether some tool did it
        "tool": lambda self: self._made().tool_id or None,  # the tool that did it
        "tried": lambda self: [one.tool_id for one in self._made().attempts],
        "attempts": lambda self: len(self._made().attempts),
        "result": lambda self: self._made().result,
        "failed_tools": lambda self: [one.tool_id for one in self._made().attempts if not one.success],
    }


class _Fits:
    """Similarities that somebody else has computed: by text, and that of all others."""

    def __init__(self, fits: dict[str, float], others: float = 0.0) -> None:
        self.fits, self.others = fits, others

    def scores(self, _text: str, others: list[str]) -> list[float]:
        return [self.fits.get(other, self.others) for other in others]


def _tool(*, works: bool) -> Callable[..., Any]:
    async def run(**_: Any) -> str:
        if not works:
            raise RuntimeError("it failed")
        return "answer"

    return run
