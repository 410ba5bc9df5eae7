"""Tool quality: marks, successes, restores; scores and tags."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import msgspec
from trustfold.guard.resilient import ResilientResult
from trustfold.projections.ranking import rank_tools
from trustfold.schemas.public_state import StateUpdated
from trustfold.schemas.rules import RegisteredTool

from .area import Area
from .case import UnknownWord
from .guarded import check_taken, guard_over


class Quality(Area):
    """Cases of `quality`."""

    def prepare(self) -> None:
        """The tool as registered."""
        self.score: float | None = None
        self.about: tuple[str, ...] = ()
        self.ranked: float | None = None
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

    def config_quality(self, value: float) -> None:
        """Registered score."""
        self.score = value

    config_registered = config_baseline = config_score = config_quality

    def config_tags(self, value: list[str]) -> None:
        """What it is for."""
        self.about = tuple(value)

    # --- what happens -------------------------------------------------------------------------------------------------

    def event_tool_marked_failed(self, event: dict[str, Any]) -> None:
        """Somebody marks a tool as failed."""
        for _ in range(int(event.get("times", 1))):
            self.world.command(
                "quality.mark",
                tool=str(event["tool"]),
                severity=event.get("severity"),
                scenario=event.get("scenario"),
                error_message=event.get("error"),
            )

    def op_mark_failure(self, event: dict[str, Any]) -> None:
        """The same."""
        self.event_tool_marked_failed({"tool": self._tool(), **event})

    def event_tool_succeeded(self, event: dict[str, Any]) -> None:
        """A call works."""
        self.calls.take({"args": {}, "ok": True, **event, "ev": "tool_call"})

    op_success = op_mark_success = event_tool_succeeded

    def op_restore(self, event: dict[str, Any]) -> None:
        """Somebody gives it its score back."""
        score = event.get("quality", event.get("score"))
        self.world.command("quality.restore", tool=str(event.get("tool", self._tool())), score=score)

    def op_rank(self, event: dict[str, Any]) -> None:
        """How it ranks for a scenario of a given similarity."""
        scenario = str(event.get("scenario", "scenario"))
        states = [
            msgspec.convert(told, StateUpdated) for told in self.world.published().values() if told["kind"] == "quality"
        ]
        at = self.world.now + timedelta(days=float(event.get("age_days", 0)))
        to_tool = float(event.get("similarity", 1.0))
        alike = _Given(to_tool, float(event.get("failure_similarity", to_tool)))
        ranked = rank_tools(scenario, {self._tool(): "it"}, states, at, self.rules.quality, alike)
        self.ranked = ranked[0].rank

    def op_resilient_call(self, event: dict[str, Any]) -> None:
        """A guard calls candidates (name, fit, whether it works) until one does what it is asked."""
        unknown = sorted(event.keys() - {"ev", "name", "candidates", "max_attempts", "scenario", "args", "tags"})
        if unknown:
            raise UnknownWord(f"field {unknown[0]!r} of operation 'resilient_call'")
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

    # --- what has come of it ------------------------------------------------------------------------------------------

    def see_quality(self) -> float:
        """Score now."""
        state = self.world.tool_state(f"tool:{self._tool()}")
        if state is None or state.quality is None:
            return self.rules.quality.tools[self._tool()].score
        return state.quality.score

    see_score = see_quality

    def see_tags_added(self) -> list[str]:
        """Tags that say what it does not serve for."""
        told = [one for one in self.world.published().values() if one.get("kind") == "quality"]
        return list(told[-1].get("tags", ())) if told else []

    see_tags = see_tags_added

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
        if self.resilient is None:
            raise UnknownWord("a resilient call that nobody has made")
        return self.resilient

    def see_success(self) -> bool:
        """Whether some tool did it."""
        return self._made().success

    see_ok = see_success

    def see_tool(self) -> str | None:
        """The tool that did it."""
        return self._made().tool_id or None

    see_used = see_winner = see_tool_used = see_tool_id = see_tool

    def see_tried(self) -> list[str]:
        """The tools that were tried, in order."""
        return [one.tool_id for one in self._made().attempts]

    see_order = see_tried

    def see_attempts(self) -> int:
        """How many."""
        return len(self._made().attempts)

    see_attempt_count = see_attempts

    def see_result(self) -> Any:
        """What it returned."""
        return self._made().result

    def see_failed(self) -> list[str]:
        """Those that did not do it."""
        return [one.tool_id for one in self._made().attempts if not one.success]

    def see_rank(self) -> float | None:
        """Rank for the scenario."""
        return self.ranked


class _Given:
    """A similarity that somebody else has computed."""

    def __init__(self, to_tool: float, to_failure: float) -> None:
        self.to_tool, self.to_failure = to_tool, to_failure

    def scores(self, _text: str, others: list[str]) -> list[float]:
        """What was given."""
        return [self.to_tool if other == "it" else self.to_failure for other in others]


class _Fits:
    """How well each tool fits is given; no failure was like this."""

    def __init__(self, fits: dict[str, float]) -> None:
        self.fits = fits

    def scores(self, _text: str, others: list[str]) -> list[float]:
        """What was given."""
        return [self.fits.get(other, 0.0) for other in others]


def _tool(*, works: bool) -> Callable[..., Any]:
    async def run(**_: Any) -> str:
        if not works:
            raise RuntimeError("it failed")
        return "answer"

    return run
