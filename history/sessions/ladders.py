"""Ladder of a pattern: numbers of repetitions at which it is minor, moderate and severe under some rules."""

from __future__ import annotations

from typing import Any

from ...rules.behaviour import Ladder
from ...rules.rules import Rules
from ...schemas.vocabulary import Pattern, PatternSeverity

Record = dict[str, Any]

RANKS = {word: rank for rank, word in enumerate(PatternSeverity, 1)}
"""1 minor, 2 moderate, 3 severe."""

_OTHERS = {Pattern.REPETITIVE_CALLS: ("poll_no_progress",), Pattern.READ_ONLY_LOOP: ("read_only_cap",)}
"""Ladders used instead of a pattern's own: for polling tools, for reads with new results."""


def ladder_of(detected: Record, rules: Rules) -> tuple[str, Ladder] | None:
    """Name and thresholds of the ladder that a `pattern.detected` was based on.

    None if no ladder of these rules gives this severity at this count: other rules were in force, or a policy has its
    own thresholds.
    """
    count, rank = int(detected["repetitions"]), RANKS[detected["severity"]]
    pattern = Pattern(detected["pattern"])
    candidates: list[tuple[str, Ladder]] = []
    tools = detected.get("tool_sequence") or ()
    if pattern is Pattern.ERROR_RETRY_LOOP and tools and tools[-1] in rules.behaviour.error_retry_by_tool:
        candidates.append((f"error_retry_by_tool.{tools[-1]}", rules.behaviour.error_retry_by_tool[tools[-1]]))
    candidates += [(name, getattr(rules.behaviour, name)) for name in (str(pattern), *_OTHERS.get(pattern, ()))]
    return next((one for one in candidates if one[1].step(count) == rank), None)
