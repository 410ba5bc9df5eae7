"""Values of the compacted `state` topic: the complete public state of one key, for guards and status tables.

Every record has the type `state.updated`; its `kind` selects one of the structs below. `codec.decode_decision` decodes
each as its own struct.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from .vocabulary import BreakerMode, BreakerState, PatternSeverity, PatternType, TrustState, TrustTrigger


class DecisionBase(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True, tag_field="type"):
    """Envelope of every output.

    Attributes:
        schema_version: "1.x".
        id: digest of the causing input event, the type, and an ordinal; equal after a replay.
        time: time of the decision, in event time.
        session_id: session of the decision or of its cause.
        workspace_id: workspace of the decision.
        user_id: user of the decision.
        caused_by: ids of the input events that caused it, newest last, at most 20.
    """

    schema_version: str
    id: str
    time: str
    session_id: str | None = None
    workspace_id: str | None = None
    user_id: str | None = None
    caused_by: tuple[str, ...] = ()


class ProbeLease(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """Lease of the one probe of a half-open circuit.

    Attributes:
        holder: id of the guard.
        call_id: id of the call.
        lease_until: end of the lease.
    """

    holder: str
    call_id: str
    lease_until: str


class StateUpdated(DecisionBase, kw_only=True, frozen=True, omit_defaults=True, tag="state.updated"):
    """Complete public state of one key, with its deadlines.

    The record key is `KIND:` followed by the key with its workspace. A tombstone means that the key has its default
    state. A follower derives changes by time alone: open after `open_until` is half-open, a lease after `lease_until`
    is free.

    Attributes:
        kind: kind of the key; selects the struct.
        key: the key without its workspace.
        scope: scope of the key: `key`, `tool`, `service`, `tier`, `user`, `model` or `session`.
    """

    kind: Literal["trust", "breaker", "quality", "model", "incident"]
    key: str
    scope: str | None = None


class TrustUpdated(StateUpdated, kw_only=True, frozen=True, omit_defaults=True, tag="state.updated"):
    """Trust of a key, in a workspace or for one user in all workspaces.

    Attributes:
        state: trust state: whether calls may run without asking.
        reason: reason of the state, in words.
        failures: effective failures.
        threshold: failures from which it is escalated.
        consecutive: counted failures in a row.
        escalated_at: time of the escalation.
        expires_at: end of the escalation's minimum time.
        cooldown_until: end of the required time without a counted failure.
        recovery_at: time from which the next success starts recovery; the later of the two before.
        successes: successes since recovery began.
        successes_needed: successes needed to restore trust.
        recovery_pending: it waits for the operator's `trust.recover`.
        denials: number of refusals by users.
        dangerous_calls: number of its dangerous calls, whether they were made or held back.
        failure_rate: for a user: mean share of failed calls over workspaces, 0 to 1.
        measured: for a user: number of calls of that share.
        since: start of the current state.
        last_failure_at: time of its last failure.
        last_success_at: time of its last success.
        failure_history: times of the latest counted failures, oldest first; for sparklines.
        window_s: seconds that the count of failures covers.
        part_of: key of the wider scope that was not trusted when this key was escalated; resetting that scope resets
            both.
        approval_id: id of the approval (`trust.approve`) by which one call may pass; absent once it is used.
        approval_expires_at: expiry of that approval.
        approval_session_id: session all of whose calls may pass by it; absent: one call.
        last_error: words of its last failure, at most 160 characters and its HTTP status, without secrets.
        last_failed_session: session of that failure.
        failed_sessions: number of sessions with a counted failure since the oldest one that still counts.
        trigger: cause of the current state, where it is not trusted.
    """

    kind: Literal["trust"]
    state: TrustState
    reason: str | None = None
    failures: float | None = None
    threshold: float | None = None
    consecutive: int | None = None
    escalated_at: str | None = None
    expires_at: str | None = None
    cooldown_until: str | None = None
    recovery_at: str | None = None
    successes: int | None = None
    successes_needed: int | None = None
    recovery_pending: bool | None = None
    denials: int | None = None
    dangerous_calls: int | None = None
    failure_rate: float | None = None
    measured: int | None = None
    since: str | None = None
    last_failure_at: str | None = None
    last_success_at: str | None = None
    failure_history: tuple[str, ...] = ()
    window_s: float | None = None
    part_of: str | None = None
    approval_id: str | None = None
    approval_expires_at: str | None = None
    approval_session_id: str | None = None
    last_error: str | None = None
    last_failed_session: str | None = None
    failed_sessions: int | None = None
    trigger: TrustTrigger | None = None


class BreakerUpdated(StateUpdated, kw_only=True, frozen=True, omit_defaults=True, tag="state.updated"):
    """State of a circuit.

    Attributes:
        state: state of the circuit at `time`.
        mode: whether its state is enforced.
        reason: trigger of the latest transition.
        consecutive: failures in a row.
        successes: successful probes in a row.
        failure_rate: failed share of the measured calls, 0 to 1.
        measured: measured calls in the window.
        opened_at: time at which it opened.
        first_opened_at: time of the first opening since it was closed.
        open_until: time from which it may be probed; absent if it is forced open without end.
        lease: lease of the probe.
        reopen_count: number of times it has opened.
        time_in_state_ms: milliseconds spent in each state, up to the current one.
        since: start of the current state.
        last_failure_at: time of its last failure.
        last_success_at: time of its last success.
        last_error: as of trust.
        last_failed_session: as of trust.
    """

    kind: Literal["breaker"]
    state: BreakerState
    mode: BreakerMode | None = None
    reason: str | None = None
    consecutive: int | None = None
    successes: int | None = None
    failure_rate: float | None = None
    measured: int | None = None
    opened_at: str | None = None
    open_until: str | None = None
    lease: ProbeLease | None = None
    reopen_count: int | None = None
    time_in_state_ms: dict[str, int] = {}
    since: str | None = None
    last_failure_at: str | None = None
    last_success_at: str | None = None
    last_error: str | None = None
    last_failed_session: str | None = None
    first_opened_at: str | None = None


class QualityUpdated(StateUpdated, kw_only=True, frozen=True, omit_defaults=True, tag="state.updated"):
    """Quality score of a tool.

    Attributes:
        failures: counted failures since its score was last fully restored.
        score: current score, 0 to 1.
        registered_score: score that it recovers to, 0 to 1.
        tags: `not-for-WORD` tags.
        tags_expire_at: expiry of each tag.
        last_failure_at: time of its last failure.
        failed_scenarios: scenarios of its failures, each with the time of the last one.
        unavailable_until: end of the time in which the tool ranks behind others, as its latest calls did not reach it.
    """

    kind: Literal["quality"]
    failures: float | None = None
    score: float | None = None
    registered_score: float | None = None
    tags: tuple[str, ...] = ()
    tags_expire_at: dict[str, str] = {}
    last_failure_at: str | None = None
    failed_scenarios: dict[str, str] = {}
    unavailable_until: str | None = None


class ModelUpdated(StateUpdated, kw_only=True, frozen=True, omit_defaults=True, tag="state.updated"):
    """Statistics of a model on one failure key, or of a model over all sessions (scope `model`, no workspace).

    Attributes:
        failures: number of failed calls.
        attempts: number of calls.
        success_rate: share of successful calls, 0 to 1.
        turns: number of turns.
        stalled_turns: number of turns in which a pattern was detected or that stalled.
        pattern_counts: number of detections of each pattern, once per streak.
        nudges_sent: nudges issued.
        nudges_effective: nudges that helped.
        last_failure_at: time of its last failed call.
        model: name of the model; `key` is the failure key of its calls.
        stall_rate: stalled turns by turns, 0 to 1; absent before the first turn.
        most_common_pattern: pattern detected most often.
        nudge_effectiveness: nudges that helped by nudges judged, 0 to 1; absent before the first.
        false_alarms: nudges and patterns reported as false alarms, by pattern.
        nudges_judged: number of nudges with a verdict; nudges before a user message or the session's end get none.
    """

    kind: Literal["model"]
    failures: float | None = None
    attempts: int | None = None
    success_rate: float | None = None
    turns: int | None = None
    stalled_turns: int | None = None
    pattern_counts: dict[str, int] = {}
    nudges_sent: int | None = None
    nudges_effective: int | None = None
    last_failure_at: str | None = None
    model: str | None = None
    stall_rate: float | None = None
    most_common_pattern: PatternType | None = None
    nudge_effectiveness: float | None = None
    false_alarms: dict[str, int] = {}
    nudges_judged: int | None = None


class IncidentUpdated(StateUpdated, kw_only=True, frozen=True, omit_defaults=True, tag="state.updated"):
    """Acknowledgement of an incident by an operator (`incident.acknowledge`).

    It holds while the incident began before it and is not more severe. A tombstone means that it was withdrawn.

    Attributes:
        severity: severity that was seen.
        acknowledged_at: time of the acknowledgement.
        acknowledged_by: person or program that gave it.
        size: number of sessions that the incident had hit, or of repetitions of a session, when it was seen.
    """

    kind: Literal["incident"]
    severity: PatternSeverity
    acknowledged_at: str
    acknowledged_by: str | None = None
    size: int | None = None


PublicState = TrustUpdated | BreakerUpdated | QualityUpdated | ModelUpdated | IncidentUpdated
"""Union of all kinds of public state."""

STATE_KINDS: dict[str, type[PublicState]] = {
    "trust": TrustUpdated,
    "breaker": BreakerUpdated,
    "quality": QualityUpdated,
    "model": ModelUpdated,
    "incident": IncidentUpdated,
}
"""Struct of each `kind`."""


def public_state(record: Mapping[str, Any]) -> PublicState:
    """Convert a record of the `state` topic from plain JSON."""
    return msgspec.convert(record, STATE_KINDS.get(record.get("kind", ""), StateUpdated))  # type: ignore[return-value]


def readable_state(record: Mapping[str, Any]) -> PublicState | None:
    """Convert a record of the `state` topic that a later version may have written.

    Unknown fields are ignored; None if the kind or a value is unknown here.
    """
    try:
        return public_state(record)
    except msgspec.ValidationError:
        return None
