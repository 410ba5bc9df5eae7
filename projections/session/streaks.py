"""Detectors of calls that lead nowhere: looking at the tools, planning, reading without news."""

from __future__ import annotations

from ...rules.rules import BehaviourRules
from ...schemas.vocabulary import Pattern, ToolClass
from ..emit import MAX_CAUSES
from .patterns import Sighting
from .state import OpenCall, SessionState
from .verdicts import Verdict

READS_WITH_NEWS = "read_only_loop with news"
"""Names the nudge texts for reads that go on beyond the cap although they bring news."""


def introspection_loop(state: SessionState, call: OpenCall, event_id: str, rules: BehaviourRules) -> Sighting | None:
    """Introspection calls since the last other call."""
    if call.tool_class is not ToolClass.INTROSPECTION:
        state.introspection_count = 0
        state.introspections = []
        return None
    if not state.introspection_count:
        state.introspection_since = call.started_ms
    if state.introspection_step != call.step or not state.introspection_count:
        state.introspection_count += 1
        state.introspection_step = call.step
    state.introspections = [*state.introspections[1 - MAX_CAUSES :], event_id]
    severity = rules.introspection_loop.step(state.introspection_count)
    if not severity:
        return None
    return Sighting(
        Pattern.INTROSPECTION_LOOP, severity, 0, state.introspection_count,
        [call.tool_name] * min(state.introspection_count, MAX_CAUSES), state.introspections,
        "proceed with the actual task", since_ms=state.introspection_since,
    )  # fmt: skip


def planning_loop(state: SessionState, call: OpenCall, event_id: str, rules: BehaviourRules) -> Sighting | None:
    """Planning calls since the last other call."""
    if call.tool_class is not ToolClass.PLANNING:
        state.planning_count = 0
        state.plannings = []
        return None
    if not state.planning_count:
        state.planning_since = call.started_ms
    if state.planning_step != call.step or not state.planning_count:
        state.planning_count += 1
        state.planning_step = call.step
    state.plannings = [*state.plannings[1 - MAX_CAUSES :], event_id]
    severity = rules.planning_loop.step(state.planning_count)
    if not severity:
        return None
    return Sighting(
        Pattern.PLANNING_LOOP, severity, 0, state.planning_count,
        [call.tool_name] * min(state.planning_count, MAX_CAUSES), state.plannings, "carry out the plan",
        since_ms=state.planning_since,
    )  # fmt: skip


def read_only_loop(
    state: SessionState, call: OpenCall, event_id: str, rules: BehaviourRules, verdict: Verdict, *, news: bool
) -> Sighting | None:
    """Reads since the last action that bring nothing new; beyond a cap, reads in a row whatever they bring.

    A read with news is work and starts the count of stale ones afresh; an unknown call with news breaks the row. What
    another read has just brought is no news: a search that is only worded anew finds the same nothing.
    """
    if call.tool_class is not ToolClass.READ:
        state.explores = False
        if not verdict.failed and news:
            state.stale_reads = state.reads = 0
            state.read_ids = []
        return None
    news = news and not _brought_before(state, verdict.result)
    if state.read_step == call.step and state.reads:
        if news:  # one of a batch is enough to make the step news
            state.stale_reads = 0
            state.read_ids = []
        return None
    state.read_step = call.step
    if not state.reads:
        state.reads_since = call.started_ms
    state.reads += 1
    if news:
        state.stale_reads = 0
        state.read_ids = []
    else:
        if not state.stale_reads:
            state.stale_since = call.started_ms
        state.stale_reads += 1
        state.read_ids = [*state.read_ids[1 - MAX_CAUSES :], event_id]
    stale = rules.read_only_loop.step(state.stale_reads)
    capped = 0 if rules.cold_start_exempt and state.explores else rules.read_only_cap.step(state.reads)
    severity = max(stale, capped)
    if not severity:
        return None
    if capped > stale:
        return Sighting(
            Pattern.READ_ONLY_LOOP, severity, 0, state.reads, [call.tool_name], [event_id],
            "act on what has been read", since_ms=state.reads_since, text=READS_WITH_NEWS,
        )  # fmt: skip
    return Sighting(
        Pattern.READ_ONLY_LOOP, severity, 0, state.stale_reads,
        [call.tool_name], state.read_ids, "act on what has been read", since_ms=state.stale_since,
    )  # fmt: skip


def _brought_before(state: SessionState, result: int) -> bool:
    """Whether a call of the window before the latest gave this result, if it is known."""
    return result != 0 and result in [done.result for done in state.window[:-1]]


def reading_on(state: SessionState, rules: BehaviourRules) -> bool:
    """Whether the counts of reads still make a pattern."""
    return bool(rules.read_only_loop.step(state.stale_reads) or rules.read_only_cap.step(state.reads))


def forget_reads(state: SessionState) -> None:
    """Start the counts afresh: the user spoke, or the model acted."""
    state.stale_reads = state.reads = 0
    state.read_ids = []
