"""Detector of calls to tools that do not exist, counted while each follows the one before within a window of steps.

The names may differ, and other calls may come in between.
"""

from __future__ import annotations

from ....schemas.vocabulary import PatternType
from ...calls.error_words import is_unknown_tool
from ...emitter import MAX_CAUSES
from ..records import ActivePattern, EventContext, PatternSighting
from .detector import FinishedCall, PatternDetector


class UnknownTool(PatternDetector, array_like=True):
    """Detector of calls to tools that do not exist.

    Holds when steps with such calls follow one another within a window of steps, whatever lies between.

    Ends with a window of steps without such a call.

    Known false alarms: a tool whose search answers in the words of a client that knows no such tool.
    """

    pattern = PatternType.UNKNOWN_TOOL
    ends_with = "a window of steps without a call to a tool that does not exist"
    texts = (
        "There is no tool {tool_name}; {count} calls named tools that do not exist. Use a tool from the list you were "
        "given.",
        "{count} calls named tools that do not exist, the last one {tool_name}. Look at the list you were given and call "
        "a tool that is on it; if none fits, tell the user which one you need.",
        "Stopped after {count} calls of tools that do not exist. Make no further calls. Say what you tried and what you "
        "need.",
    )
    reported = 7
    outgrown = True

    calls: int = 0  # number of these steps
    step: int = 0  # number of the step counted last
    tools: list[str] = []  # names of the tools in the latest of these calls
    event_ids: list[str] = []  # ids of the latest of these calls
    since_ms: int = 0  # start of the first of these calls, milliseconds

    def is_over(self, active: ActivePattern, ctx: EventContext) -> bool:
        """Whether the count is zero."""
        del active, ctx
        return not self.calls

    def on_failure(self, done: FinishedCall, ctx: EventContext) -> None:
        """Count a call that failed because the tool does not exist, and remove the tool from the session's tools."""
        call, told = done.call, done.verdict.told
        if told is None or not is_unknown_tool(call.tool_name, told.type, told.code, told.message):
            return
        ctx.state.tools.pop(call.tool_name, None)
        rules = ctx.rules.behaviour
        if call.step - self.step > rules.window_steps:
            self._forget()
        if not self.calls:
            self.since_ms = call.started_ms
        if self.step != call.step or not self.calls:
            self.calls += 1
            self.step = call.step
        self.tools = [*self.tools[1 - MAX_CAUSES :], call.tool_name]
        self.event_ids = [*self.event_ids[1 - MAX_CAUSES :], done.event.id]
        severity = rules.unknown_tool.step(self.calls)
        if severity:
            seen = PatternSighting(
                self.pattern, severity, 0, self.calls, self.tools, self.event_ids, "use a tool that is on the list",
                since_ms=self.since_ms, proven=True,
            )  # fmt: skip
            ctx.sightings.append(seen)

    def _forget(self) -> None:
        self.calls = 0
        self.tools = []
        self.event_ids = []
