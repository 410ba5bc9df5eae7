"""Detector of turns that run on: calls in one turn, all together and of each tool (docs/detection.md).

Seen only when a step is reached: that there are more calls after it is no second sighting. Where turns are not
published, a turn is what follows the user's message.
"""

from __future__ import annotations

from ...rules.rules import BehaviourRules
from ...schemas.vocabulary import Pattern
from ..calls.fingerprints import digest
from .patterns import Sighting
from .state import MAX_TOOLS, SessionState


def call_budget(state: SessionState, tool_name: str, event_id: str, rules: BehaviourRules) -> list[Sighting]:
    """One more call in this turn."""
    state.turn_calls += 1
    tools = state.tools
    mine = tools.get(tool_name, 0) + 1
    if mine > 1 or tool_name in tools or len(tools) < MAX_TOOLS:
        tools[tool_name] = mine
    ladder = rules.call_budget
    if state.turn_calls < ladder.minor:
        return []
    return [
        Sighting(
            Pattern.CALL_BUDGET, severity, fingerprint, count, [tool_name], [event_id],
            "sum up, and ask the user whether to go on", since_ms=state.turn_since,
        )
        for count, fingerprint in ((state.turn_calls, 0), (mine, tool_fingerprint(tool_name)))
        if (severity := ladder.step(count)) and ladder.step(count - 1) < severity
    ]  # fmt: skip


def tool_fingerprint(tool_name: str) -> int:
    """What names the budget of one tool."""
    return digest(tool_name.encode())


def turn_over(state: SessionState) -> None:
    """A turn, or the user's message, begins: every count starts afresh."""
    state.turn_calls = 0
    state.tools = dict.fromkeys(state.tools, 0)
