"""Tool quality: marks, successes, restores; scores and tags."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from trustfold.guard.resilient import ResilientResult
from trustfold.projections.ranking import Candidate, rank_tools
from trustfold.rules.rules import RegisteredTool
from trustfold.schemas.public_state import public_state

from .area import Area, puts, reads
from .calls import CALL_FIELDS
from .case import there, times
from .guarded import check_taken, guard_over

_MARK = "tool severity scenario error times"
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

    @reads(_MARK)
    def op_mark_failure(self, event: dict[str, Any]) -> None:
        """Somebody marks a tool as failed."""
        told = {name: event.get(name) for name in ("severity", "scenario")}
        for _ in times(event):
            tool = str(event.get("tool", self._tool()))
            self.world.command("quality.mark", tool=tool, error_message=event.get("error"), **told)

    @reads(CALL_FIELDS - {"ev"})
    def event_tool_succeeded(self, event: dict[str, Any]) -> None:
        """A call works."""
        told = {name: value for name, value in event.items() if name != "name"}
        self.calls.take({"tool": self._tool(), "args": {}, "ok": True, **told, "ev": "tool_call"})

    event_tool_marked_failed = op_mark_failure

    @reads("scenario similarity failure_similarity age_days quality similar_failures")
    def op_rank(self, event: dict[str, Any]) -> None:
        """Rank for a scenario of a given similarity: as published, or with this score and these failures."""
        tool, to_tool = self._tool(), float(event.get("similarity", 1.0))
        told = self.world.told("quality")
        alike = {tool: to_tool}
        if "quality" in event or "similar_failures" in event:
            alike |= {f"failure {number}": float(one) for number, one in enumerate(event.get("similar_failures", ()))}
            failed = dict.fromkeys(list(alike)[1:], self.world.now.isoformat())
            made = {"kind": "quality", "key": tool, "score": event.get("quality", self.see_quality())}
            told = [{**_PUBLISHED, **made, "time": self.world.now.isoformat(), "failed_scenarios": failed}]
        at = self.world.now + timedelta(days=float(event.get("age_days", 0)))
        fits = _Fits(alike, others=float(event.get("failure_similarity", to_tool)))
        states = [public_state(one) for one in told]
        ranked = rank_tools(
            str(event.get("scenario", "scenario")), [Candidate(tool, tool)], states, at, self.rules.quality, fits
        )
        self.ranked = ranked[0].rank

    @reads("candidates max_attempts scenario args tags")
    def op_resilient_call(self, event: dict[str, Any]) -> None:
        """A guard calls candidates (name, fit, whether it works) until one does what it is asked."""
        guard = guard_over(self.world)
        fits = {}
        for name, fit, works in event["candidates"]:
            guard.register(str(name), _tool(works=bool(works)), description=str(name), tags=event.get("tags", ()))
            fits[str(name)] = float(fit)
        options = {} if event.get("max_attempts") is None else {"max_attempts": int(event["max_attempts"])}
        made = guard.call_resilient(
            str(event.get("scenario", "scenario")),
            event.get("args"),
            tags=event.get("tags", ()),
            similarity=_Fits(fits),
            rules=self.rules.quality,
            session_id=self.world.session,
            **options,
        )
        self.resilient = asyncio.run(made)
        check_taken(guard)

    OPS = {
        "success mark_success": event_tool_succeeded,
        # Somebody gives a tool its score back.
        "restore": reads("tool quality score")(
            lambda self, event: self.world.command(
                "quality.restore",
                tool=str(event.get("tool", self._tool())),
                score=event.get("quality", event.get("score")),
            )
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
