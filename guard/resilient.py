"""Resilient call: tries the best tool for a scenario, and the next best one if it fails.

See docs/design/semantics.md#tool-quality.

Ranks the registered tools by how well they match the scenario and by their published quality, skips those that failed,
and returns every attempt. Failures lower a tool's quality by themselves, as each call carries its scenario.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from ..errors import ConfigError
from ..projections.ranking import LexicalSimilarity, RankCandidate, ToolRank, rank_tools
from ..rules.rules import QualityRules
from .errors import CallNotPermitted

if TYPE_CHECKING:
    from .interface import GuardInterface
    from .result import ToolResult


_RANKED_BY = ("quality", "breaker")


@dataclass(frozen=True, slots=True)
class ResilientAttempt:
    """One tried tool."""

    attempt: int  # number of the attempt, from 1
    tool_id: str  # name of the tool
    success: bool  # whether the tool succeeded
    score: float  # its rank score for the scenario when it was chosen
    error: str  # reason of the failure; empty on success
    result: ToolResult  # full result of the call


@dataclass(slots=True)
class ResilientResult:
    """Result of a resilient call (docs/design/semantics.md#tool-quality)."""

    success: bool = False  # a tool succeeded
    result: Any = None  # return value of that tool; None without one
    tool_id: str = ""  # name of that tool; empty without one
    attempts: list[ResilientAttempt] = field(default_factory=list)  # every tried tool, in order
    refused: dict[str, str] = field(default_factory=dict)  # tools that the guard refused to call, with reasons

    def unwrap(self) -> Any:
        """Return the successful tool's return value."""
        if self.success:
            return self.result
        said = "; ".join(f"{one.tool_id}: {one.error}" for one in self.attempts) or "no tool fits"
        raise CallNotPermitted("no_tool", "", f"every tool failed: {said}")


async def call_resilient(
    guard: GuardInterface,
    scenario: str,
    args: Mapping[str, Any],
    tags: frozenset[str],
    max_attempts: int,
    options: dict[str, Any],
) -> ResilientResult:
    """Try tools until one succeeds, none is left, or `max_attempts` were called.

    A tool with an open circuit or without trust is skipped, which does not count as an attempt.
    """
    if max_attempts < 1:
        raise ConfigError(f"max_attempts is {max_attempts}; use at least 1")
    options = dict(options)
    similarity = options.pop("similarity", None) or LexicalSimilarity()
    rules: QualityRules = options.pop("rules", None) or QualityRules()
    made = ResilientResult()
    tried: set[str] = set()
    while len(made.attempts) < max_attempts:
        # Ranked again for each attempt: the last failure may have changed other scores, too.
        chosen = next((one for one in rank(guard, scenario, tags, rules, similarity) if one.tool not in tried), None)
        if chosen is None:
            return made
        tried.add(chosen.tool)
        result = await guard.call(chosen.tool, None, args, scenario=scenario, **options)
        error = result.error
        if error is not None and result.refused:
            made.refused[chosen.tool] = error.message
            if error.code == "guarantee_exceeded":
                return made
            continue
        words = "" if error is None else f"{error.code}: {error.message}"
        number = len(made.attempts) + 1
        made.attempts.append(ResilientAttempt(number, chosen.tool, result.ok, chosen.rank, words, result))
        if result.ok:
            made.success, made.result, made.tool_id = True, result.output, chosen.tool
            return made
    return made


def rank(
    guard: GuardInterface, scenario: str, tags: frozenset[str], rules: QualityRules, similarity: Any = None
) -> list[ToolRank]:
    """Return the registered tools with a function and all tags, best first, without those that do not match.

    Past failures and tags change the order; they never exclude the last candidates.
    """
    fitting = {tool.name: tool for tool in guard.tools.known() if tool.function is not None and tags <= tool.tags}
    candidates = [
        RankCandidate(name, " ".join(filter(None, [tool.description, *sorted(tool.tags)])), tool.service or "")
        for name, tool in fitting.items()
    ]
    workspace = guard.settings.workspace_id
    states = [one for kind in _RANKED_BY for one in guard.view.records(kind, workspace)]
    now = datetime.fromtimestamp(guard.clock.now_ms() / 1000, UTC)
    ranked = rank_tools(scenario, candidates, states, now, rules, similarity)
    return [one for one in ranked if one.similarity > 0]
