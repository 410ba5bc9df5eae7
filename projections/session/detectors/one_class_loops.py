"""Detectors of calls of one class that lead nowhere: looks at the tools without news, and plans written again."""

from __future__ import annotations

import msgspec

from ....schemas.vocabulary import PatternType, ToolClass
from ...calls.fingerprints import digest
from ...emitter import MAX_CAUSES
from ..records import ActivePattern, EventContext, PatternSighting
from .detector import FinishedCall, PatternDetector

MAX_PLANS = 8


class IntrospectionLoop(PatternDetector, array_like=True):
    """Detector of looks at the list of tools that bring nothing new.

    Holds when calls that look at tools, with whatever arguments, bring no news in several steps in a row.

    Ends with news, or any call of another class.

    Known false alarms: none seen.
    """

    pattern = PatternType.INTROSPECTION_LOOP
    ends_with = "news, or any call but looking at the tools"
    texts = (
        "You have looked at the tools {count} times and learned nothing new, the last time by {request}. Use one of the "
        "tools that you have found, or tell the user that none of them fits.",
        "{count} looks at the tools brought nothing new. The list will not change: call the tool that fits best, or end "
        "your turn and say which one you need.",
    )
    reported = 3
    wants_action = True
    ended_by_progress = True

    count: int = 0
    step: int = -1  # number of the step counted last
    event_ids: list[str] = []  # ids of the latest of these calls
    since_ms: int = 0  # start of the first of these calls, milliseconds

    def is_over(self, active: ActivePattern, ctx: EventContext) -> bool:
        """Whether a call of another class, or news, has reset the count."""
        del active, ctx
        return not self.count

    def on_finish(self, done: FinishedCall, ctx: EventContext) -> None:
        """Count the call, or reset the count if it brings news or is of another class."""
        call = done.call
        if call.tool_class is not ToolClass.INTROSPECTION:
            self.count = 0
            return
        if done.news and self.step != call.step:
            self.count, self.step, self.event_ids, self.since_ms = 1, call.step, [done.event.id], call.started_ms
            return
        if self.step != call.step:
            if not self.count:
                self.event_ids, self.since_ms = [], call.started_ms
            self.count += 1
            self.step = call.step
        self.event_ids = [*self.event_ids[1 - MAX_CAUSES :], done.event.id]
        severity = ctx.rules.behaviour.introspection_loop.step(self.count)
        if severity:
            seen = PatternSighting(
                self.pattern, severity, 0, self.count, [call.tool_name] * min(self.count, MAX_CAUSES), self.event_ids,
                "proceed with the actual task", since_ms=self.since_ms,
            )  # fmt: skip
            ctx.sightings.append(seen)


class WrittenPlan(msgspec.Struct, array_like=True):
    """The plan that a tool wrote last: fingerprint of the call, how often, and since when (milliseconds)."""

    tool_name: str
    call: int
    event_ids: list[str]
    step: int
    count: int = 1
    since_ms: int = 0


class PlanningLoop(PatternDetector, array_like=True):
    """Detector of a plan that is written again unchanged.

    Holds when the same plan (the same arguments of the planning tool) is written in several steps, with no other plan
    of the tool between.

    Ends with a changed plan, or a new successful action.

    Known false alarms: a client that asks the model to confirm its list.
    """

    pattern = PatternType.PLANNING_LOOP
    ends_with = "a changed plan, or progress"
    texts = (
        "The same plan has been written {count} times by {tool_name}, unchanged. Carry out its next step, or change "
        "what does not fit.",
        "The same plan has been written {count} times by {tool_name}, and no step of it was carried out. Take the "
        "first step now, or end your turn and say what keeps you from it.",
    )
    reported = 4
    wants_action = True

    plans: list[WrittenPlan] = []  # the latest plan of each planning tool

    def is_over(self, active: ActivePattern, ctx: EventContext) -> bool:
        """Whether the plan was changed or carried on."""
        del ctx
        return all(digest(one.tool_name.encode()) != active.fingerprint or one.count < 2 for one in self.plans)

    def on_finish(self, done: FinishedCall, ctx: EventContext) -> None:
        """Count a planning call that is equal to the one before."""
        call = done.call
        if call.tool_class is not ToolClass.PLANNING:
            return
        plans, event_id = self.plans, done.event.id
        known = next((one for one in plans if one.tool_name == call.tool_name), None)
        if known is None or known.call != call.fingerprint:
            if known is not None:
                plans.remove(known)
            plans.append(WrittenPlan(call.tool_name, call.fingerprint, [event_id], call.step, 1, call.started_ms))
            del plans[:-MAX_PLANS]
            return
        if known.step != call.step:
            known.step = call.step
            known.count += 1
            known.event_ids = [*known.event_ids[1 - MAX_CAUSES :], event_id]
        severity = ctx.rules.behaviour.planning_loop.step(known.count)
        if severity:
            seen = PatternSighting(
                self.pattern, severity, digest(call.tool_name.encode()), known.count,
                [call.tool_name] * min(known.count, MAX_CAUSES), known.event_ids, "carry out the plan",
                since_ms=known.since_ms,
            )  # fmt: skip
            ctx.sightings.append(seen)

    def on_progress(self, tool_name: str) -> None:
        """Forget all plans."""
        del tool_name
        self.plans = []
