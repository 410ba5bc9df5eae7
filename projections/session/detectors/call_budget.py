"""Detector of turns with too many calls, in total and per tool.

A sighting is reported only by the call that reaches a step of the ladder, not by the calls after it. Where turns are
not published, a turn begins with each user message.
"""

from __future__ import annotations

from ....schemas.vocabulary import PatternType
from ...calls.fingerprints import digest
from ..records import MAX_TOOLS, ActivePattern, CallRecord, EventContext, PatternSighting
from .detector import PatternDetector


class CallBudget(PatternDetector, array_like=True):
    """Detector of turns with many calls, in total and per tool; the counts per tool are the session's `tools`.

    Holds when a count reaches a step of the ladder. The person is told, and the history keeps it; the model gets a
    nudge only if the rules give it a text (`nudges.texts`).

    Ends with the next turn.

    Known false alarms: long turns of honest work, which is why the model hears nothing of it.
    """

    pattern = PatternType.CALL_BUDGET
    ends_with = "the next turn"
    texts = (
        "This turn has made {count} calls. Consider summing up what is done and what is left.",
        "This turn has made {count} calls. Bring the current step to an end and report to the user.",
    )
    notice = "The agent has made {count} calls in one turn, the last one {request}."
    of_session = True
    reported = 1
    wants_action = True

    calls: int = 0  # calls in this turn

    def is_over(self, active: ActivePattern, ctx: EventContext) -> bool:
        """Whether the end of the turn has reset the count."""
        ladder = ctx.rules.behaviour.call_budget
        if not active.fingerprint:
            return not ladder.step(self.calls)
        tools = ctx.state.tools.items()
        counts = (count for tool, count in tools if _fingerprint(tool) == active.fingerprint)
        return not ladder.step(next(counts, 0))

    def on_call(self, call: CallRecord, ctx: EventContext) -> None:
        """Count a call, and report each count that reaches a step of the ladder."""
        self.calls += 1
        tools, tool_name = ctx.state.tools, call.tool_name
        mine = tools.get(tool_name, 0) + 1
        if mine > 1 or tool_name in tools or len(tools) < MAX_TOOLS:
            tools[tool_name] = mine
        ladder = ctx.rules.behaviour.call_budget
        if self.calls < ladder.minor:
            return
        for count, fingerprint in ((self.calls, 0), (mine, _fingerprint(tool_name))):
            severity = ladder.step(count)
            if severity and ladder.step(count - 1) < severity:
                seen = PatternSighting(
                    self.pattern, severity, fingerprint, count, [tool_name], [ctx.emit.cause],
                    "sum up, and ask the user whether to go on", since_ms=ctx.state.turn.since_ms,
                    for_model=any(key.startswith(f"{self.pattern}.") for key in ctx.rules.nudges.texts), for_user=True,
                )  # fmt: skip
                ctx.sightings.append(seen)

    def on_turn_over(self, ctx: EventContext, *, ended: bool) -> None:
        """Reset all counts."""
        del ended
        self.on_user(ctx)

    def on_user(self, ctx: EventContext) -> None:
        """Reset all counts."""
        if self.calls:
            self.calls = 0
            ctx.state.tools = dict.fromkeys(ctx.state.tools, 0)


def _fingerprint(tool_name: str) -> int:
    """Fingerprint of the budget of one tool."""
    return digest(tool_name.encode())
