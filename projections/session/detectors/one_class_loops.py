"""Detectors of consecutive calls of one class: introspection (looking at the tools) and planning."""

from __future__ import annotations

from typing import ClassVar

from ....rules.rules import Ladder
from ....schemas.vocabulary import Pattern, ToolClass
from ...emitter import MAX_CAUSES
from ..records import ActivePattern, Context, Sighting
from .detector import Detector, Finished


class OneClassLoop(Detector, array_like=True):
    """Detector that counts the steps with calls of `tool_class` since the last call of another class.

    Attributes:
        event_ids: ids of the latest of these calls.
        step: number of the step counted last.
        since_ms: start of the first of these calls, milliseconds.
    """

    tool_class: ClassVar[ToolClass]
    expected_action: ClassVar[str]
    ended_by_progress = True

    count: int = 0
    step: int = -1
    event_ids: list[str] = []
    since_ms: int = 0

    def is_over(self, active: ActivePattern, ctx: Context) -> bool:
        """Whether a call of another class has reset the count."""
        del active, ctx
        return not self.count

    def on_finish(self, done: Finished, ctx: Context) -> None:
        """Count the call, or reset the count if it is of another class."""
        call = done.call
        if call.tool_class is not self.tool_class:
            if self.count:
                self._forget()
            return
        if not self.count:
            self.since_ms = call.started_ms
        if self.step != call.step or not self.count:
            self.count += 1
            self.step = call.step
        self.event_ids = [*self.event_ids[1 - MAX_CAUSES :], done.event.id]
        ladder: Ladder = getattr(ctx.rules.behaviour, self.pattern)
        severity = ladder.step(self.count)
        if severity:
            seen = Sighting(
                self.pattern, severity, 0, self.count, [call.tool_name] * min(self.count, MAX_CAUSES), self.event_ids,
                self.expected_action, since_ms=self.since_ms,
            )  # fmt: skip
            ctx.sightings.append(seen)

    def _forget(self) -> None:
        self.count = 0
        self.event_ids = []


class IntrospectionLoop(OneClassLoop, array_like=True):
    """Detector of repeated introspection calls."""

    pattern = Pattern.INTROSPECTION_LOOP
    ends_with = "any call but looking at the tools"
    texts = (
        "You have the tool list. Proceed with the actual task instead of re-querying tools.",
        "NOTICE: Stop querying tool metadata ({count} calls). You have sufficient information. Execute the task.",
        "PAUSED: Stuck in an introspection loop ({count} calls). The session waits for the user.",
    )
    tool_class = ToolClass.INTROSPECTION
    expected_action = "proceed with the actual task"
    reported = 3
    wants_action = True


class PlanningLoop(OneClassLoop, array_like=True):
    """Detector of repeated planning calls."""

    pattern = Pattern.PLANNING_LOOP
    ends_with = "any call but planning"
    texts = (
        "The plan has been revised {count} times without a step of it. Consider carrying out the first step now.",
        "NOTICE: {count} planning calls and nothing carried out. Stop planning. Take the first step of the plan now.",
        "PAUSED: {count} planning calls without a step taken. The session waits for the user.",
    )
    tool_class = ToolClass.PLANNING
    expected_action = "carry out the plan"
    reported = 4
    wants_action = True
