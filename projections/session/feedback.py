"""Handler of `feedback.false_alarm`: a person or a platform marks a nudge as wrong (docs/design/semantics.md#nudges).

False alarms about known nudges are counted per pattern and tool in the session. The streak is still reported, for
history, but is not nudged again in this session. Feedback about an escalation is only kept in history.
"""

from __future__ import annotations

from ..calls.fingerprints import digest
from .records import MAX_FALSE_ALARMS, MAX_ISSUED, ActivePattern, FalseAlarm, Feedback, IssuedNudge
from .state import AgentState, SessionState


def remember_issued(feedback: Feedback, nudge_id: str, active: ActivePattern) -> None:
    """Remember an issued nudge, so that later feedback can refer to it."""
    issued = IssuedNudge(digest(nudge_id.encode()), active.pattern, active.fingerprint, active.tool_name)
    feedback.issued = [*feedback.issued[1 - MAX_ISSUED :], issued]


def false_alarm(state: SessionState, output_id: str) -> str:
    """Count a nudge, or an open pattern, as a false alarm; repeated feedback and unknown ids are ignored.

    Returns the pattern of the nudge; empty if nothing was counted.
    """
    alarm = _about(state, output_id)
    if alarm is None:
        return ""
    feedback = state.feedback
    feedback.issued = [one for one in feedback.issued if one.id_digest != alarm.id_digest]
    mute = (alarm.pattern, alarm.fingerprint)
    for agent in _everyone(state):  # the effect of a false alarm is not judged
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
    """Whether a streak was marked as a false alarm and must not be nudged."""
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
