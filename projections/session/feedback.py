"""`feedback.false_alarm`: a person or a platform says that a nudge was wrong (docs/design/semantics.md#nudges).

Counted per pattern and tool in the session, where the nudge is known. The same streak is reported on as before, for
history, but the model is left alone about it for the rest of the session. What the feedback says about an escalation
concerns the tool stage, and is kept in history alone.
"""

from __future__ import annotations

from ..calls.fingerprints import digest
from .records import MAX_FALSE_ALARMS, MAX_ISSUED, ActivePattern, FalseAlarm, Feedback, IssuedNudge
from .state import AgentState, SessionState


def remember_issued(feedback: Feedback, nudge_id: str, active: ActivePattern) -> None:
    """A nudge went out that may be judged later."""
    issued = IssuedNudge(digest(nudge_id.encode()), active.pattern, active.fingerprint, active.tool_name)
    feedback.issued = [*feedback.issued[1 - MAX_ISSUED :], issued]


def false_alarm(state: SessionState, output_id: str) -> str:
    """A nudge, or an open pattern, was a false alarm. Said twice it counts once; of an unknown id nothing is known.

    Returns the pattern that it was about; empty if nothing was counted.
    """
    alarm = _about(state, output_id)
    if alarm is None:
        return ""
    feedback = state.feedback
    feedback.issued = [one for one in feedback.issued if one.id_digest != alarm.id_digest]
    mute = (alarm.pattern, alarm.fingerprint)
    for agent in _everyone(state):  # whether it helped means nothing where there was nothing to help
        agent.pending_nudges = [one for one in agent.pending_nudges if (one.pattern, one.fingerprint) != mute]
    if mute not in feedback.muted:
        feedback.muted = [*feedback.muted[1 - MAX_FALSE_ALARMS :], mute]
    counts = feedback.false_alarms
    known = next((one for one in counts if (one.pattern, one.tool_name) == (alarm.pattern, alarm.tool_name)), None)
    if known is None:
        known = FalseAlarm(alarm.pattern, alarm.tool_name)
        feedback.false_alarms = [*counts[1 - MAX_FALSE_ALARMS :], known]
    known.count += 1
    return alarm.pattern


def is_muted(feedback: Feedback, active: ActivePattern) -> bool:
    """Whether the model is to be left alone about a streak."""
    return (active.pattern, active.fingerprint) in feedback.muted


def _everyone(state: SessionState) -> tuple[SessionState | AgentState, ...]:
    return (state, *state.agents.values())


def _about(state: SessionState, output_id: str) -> IssuedNudge | None:
    wanted = digest(output_id.encode())
    issued = next((one for one in state.feedback.issued if one.id_digest == wanted), None)
    if issued is not None:
        return issued
    active = next((one for agent in _everyone(state) for one in agent.active if one.pattern_id == output_id), None)
    if active is None or is_muted(state.feedback, active):
        return None
    return IssuedNudge(wanted, active.pattern, active.fingerprint, active.tool_name)
