"""Tool quality: marks, successes, restores; scores and tags."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

from trustfold.guard.resilient import ResilientResult
from trustfold.projections.ranking import Candidate, rank_tools
from trustfold.schemas.public_state import public_state

from ..support.fixed_rules import RegisteredTool
from .area import Area, puts, reads
from .calls import CALL_FIELDS
from .case import there
from .guarded import check_taken, guard_over

_PUBLISHED = {"type": "state.updated", "schema_version": "1.0", "id": "as the case says"}


class Quality(Area):
    """Cases of `quality`."""

    def prepare(self) -> None:
        """The tool as registered."""
        self.score: float | None = None
        self.about: tuple[str, ...] = ()
        self.ranked: float | None = None
        self.scores: list[float] = []
        self.resilient: ResilientResult | None = None

    def conclude_config(self) -> None:
        """Register every tool of the case."""
        fields = {} if self.score is None else {"score": self.score}
        tools = {str(event["tool"]) for event in self.case.given if "tool" in event} | {self._tool()}
        registered = {tool: RegisteredTool(description=" ".join(self.about), **fields) for tool in tools}
        self.change("quality", tools=registered)

    def _tool(self) -> str:
        return next((str(event["tool"]) for event in self.case.given if "tool" in event), "t")

    # --- config -------------------------------------------------------------------------------------------------------

    CONFIG = {
        "quality registered baseline score": puts("score"),  # registered score
        "tags": puts("about", tuple),  # what it is for
    }

    def after(self, _event: dict[str, Any]) -> None:
        """Scores are followed from event to event."""
        self.scores.append(self.see_quality())

    # --- what happens -------------------------------------------------------------------------------------------------

    def op_mark_failure(
        self, tool: str = "", severity: str | None = None, scenario: str | None = None, error: str | None = None
    ) -> None:
        """Somebody marks a tool as failed."""
        tool = tool or self._tool()
        self.world.command("quality.mark", tool=tool, severity=severity, scenario=scenario, error_message=error)

    @reads(CALL_FIELDS)
    def event_tool_succeeded(self, event: dict[str, Any]) -> None:
        """Calls work."""
        told = {name: value for name, value in event.items() if name != "name"}
        self.calls.take({"tool": self._tool(), "args": {}, "ok": True, **told, "ev": "tool_call"})

    event_tool_marked_failed = op_mark_failure

    def op_rank(
        self,
        scenario: str = "scenario",
        similarity: float = 1.0,
        failure_similarity: float | None = None,
        age_days: float = 0,
        quality: float | None = None,
        similar_failures: Sequence[float] | None = None,
    ) -> None:
        """Rank for a scenario of a given similarity: as published, or with this score and these failures."""
        tool, now = self._tool(), self.world.now
        told = self.world.told("quality")
        alike = {tool: float(similarity)}
        if quality is not None or similar_failures is not None:
            failed = {f"failure {number}": float(one) for number, one in enumerate(similar_failures or ())}
            alike |= failed
            made = {"kind": "quality", "key": tool, "score": self.see_quality() if quality is None else quality}
            made["failed_scenarios"] = dict.fromkeys(failed, now.isoformat())
            told = [{**_PUBLISHED, **made, "time": now.isoformat()}]
        fits = _Fits(alike, others=float(similarity if failure_similarity is None else failure_similarity))
        states, at = [public_state(one) for one in told], now + timedelta(days=age_days)
        self.ranked = rank_tools(scenario, [Candidate(tool, tool)], states, at, self.rules.quality, fits)[0].rank

    def op_resilient_call(
        self,
        candidates: list[list[Any]],
        max_attempts: int | None = None,
        scenario: str = "scenario",
        args: dict[str, Any] | None = None,
        tags: Sequence[str] = (),
    ) -> None:
        """A guard calls candidates (name, fit, whether it works) until one does what it is asked."""
        guard = guard_over(self.world)
        for name, _, works in candidates:
            guard.register(name, _tool(works=works), description=name, tags=tags)
        options = {} if max_attempts is None else {"max_attempts": max_attempts}
        options |= {"rules": self.rules.quality, "session_id": self.world.session, "tags": tags}
        fits = _Fits({name: float(fit) for name, fit, _ in candidates})
        self.resilient = asyncio.run(guard.call_resilient(scenario, args, similarity=fits, **options))
        check_taken(guard)

    OPS = {
        "success mark_success": event_tool_succeeded,
        # Somebody gives a tool its score back.
        "restore": lambda self, tool="", quality=None, score=None: self.world.command(
            "quality.restore", tool=tool or self._tool(), score=score if quality is None else quality
        ),
    }

    # --- what has come of it ------------------------------------------------------------------------------------------

    def see_quality(self) -> float:
        """Score now."""
        state = self.world.tool_state(f"tool:{self._tool()}")
        if state is None or state.quality is None:
            return self.rules.quality.tools[self._tool()].score
        return state.quality.score

    def see_marked(self) -> list[list[str]]:
        """What each failed call has cost its tool, in the words of a mark."""
        rules = self.rules.quality
        costs = {rules.low: "low", rules.medium: "medium", rules.high: "high"}
        found = []
        for scope in dict.fromkeys(one["scope"] for one in self.world.outcomes()):
            state = self.world.tool_state(scope)
            if state is not None and state.quality is not None:
                lost = round(rules.registered_score - state.quality.score, 6)
                found.append([scope.partition(":")[2], costs.get(lost, str(lost))])
        return found

    def _made(self) -> ResilientResult:
        return there(self.resilient, "a resilient call that nobody has made")

    VIEWS = {
        "score": lambda self: self.see_quality() if self.ranked is None else self.ranked,
        "quality_rises": lambda self: self.see_quality() > min(self.scores, default=1.0),
        # Tags that say what it does not serve for.
        "tags_added tags": lambda self: list(next(reversed(self.world.told("quality")), {}).get("tags", ())),
        "success ok": lambda self: self._made().success,  # whether some tool did it
        "tool used winner tool_used tool_id": lambda self: self._made().tool_id or None,  # the tool that did it
        "tried order": lambda self: [one.tool_id for one in self._made().attempts],
        "attempts attempt_count": lambda self: len(self._made().attempts),  # how many
        "result": lambda self: self._made().result,  # what it returned
        "failed failed_tools": lambda self: [one.tool_id for one in self._made().attempts if not one.success],
        "rank": lambda self: self.ranked,  # rank for the scenario
    }


class _Fits:
    """Similarities that somebody else has computed: by text, and that of all others."""

    def __init__(self, fits: dict[str, float], others: float = 0.0) -> None:
        self.fits, self.others = fits, others

    def scores(self, _text: str, others: list[str]) -> list[float]:
        """What was given."""
        return [self.fits.get(other, self.others) for other in others]


def _tool(*, works: bool) -> Callable[..., Any]:
    async def run(**_: Any) -> str:
        if not works:
            raise RuntimeError("it failed")
        return "answer"

    return run
