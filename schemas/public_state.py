"""The value of the compacted `state` topic: all that a guard or a status table must know about one key."""

from __future__ import annotations

import msgspec

from .vocabulary import BreakerMode, Pattern, StateKind


class DecisionBase(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True, tag_field="type"):
    """The envelope of every output.

    Attributes:
        schema_version: "1.x".
        id: digest of the causing input event, the type, and a running number; a replay gives the same.
        time: when it was decided, in event time.
        session_id: the session it is about, or in which it was caused.
        workspace_id: the workspace it is about.
        user_id: the user it is about.
        caused_by: ids of the input events behind it, newest last, at most 20.
    """

    schema_version: str
    id: str
    time: str
    session_id: str | None = None
    workspace_id: str | None = None
    user_id: str | None = None
    caused_by: tuple[str, ...] = ()


class Lease(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """Who holds the one probe of a half-open circuit.

    Attributes:
        holder: the guard.
        call_id: the call.
        lease_until: when the slot is free again.
    """

    holder: str
    call_id: str
    lease_until: str


class StateUpdated(DecisionBase, kw_only=True, frozen=True, omit_defaults=True, tag="state.updated"):
    """The whole public state of one key, with its deadlines; a follower needs nothing else.

    The record key is `KIND:` and the key with its workspace. A tombstone says that the key is back to its default. A
    follower derives what time alone changes: open after `open_until` is half-open, a lease after `lease_until` is free.

    Attributes:
        kind: what the key is about; says which of the fields below are used.
        key: the key without its workspace.
        scope: what the key stands for: `key`, `tool`, `service`, `tier`, `user` or `model`.
        state: a TrustState or BreakerState; absent for quality and model.
        mode: breaker: whether its state is applied.
        reason: why it is in this state, in words.
        failures: trust: effective failures; model: failures; quality: counted failures since its score was last whole.
        threshold: trust: failures that escalate.
        consecutive: failures in a row.
        escalated_at: trust: when it was escalated.
        expires_at: trust: when the escalation has lasted.
        cooldown_until: trust: when enough time without a counted failure has passed.
        recovery_at: trust: when the next success starts recovery; the later of the two before.
        successes: successes since recovery began, or successful probes in a row.
        successes_needed: successes that restore trust or close the circuit.
        recovery_pending: trust: it waits for the operator's `trust.recover`.
        denials: trust: how often users have refused it.
        failure_rate: failed share of the measured calls, 0 to 1; for a user, the mean over workspaces.
        measured: calls in that window.
        opened_at: breaker: when it opened.
        open_until: breaker: when it may be probed; absent when forced open for good.
        lease: breaker: who holds the probe.
        reopen_count: breaker: how often it has opened.
        time_in_state_ms: breaker: milliseconds spent in each state, up to the present one.
        since: when the present state began.
        score: quality: 0 to 1.
        registered_score: quality: what it earns its way back to.
        tags: quality: `not-for-WORD` tags.
        tags_expire_at: quality: when each tag expires.
        attempts: model: calls.
        success_rate: model: 0 to 1.
        turns: model: turns seen.
        stalled_turns: model: turns in which it was stuck.
        pattern_counts: model: how often each pattern was detected, once for each streak.
        nudges_sent: model: nudges issued.
        nudges_effective: model: nudges that helped.
        nudges_judged: model: nudges judged at all; those that the user or the end of a session has overtaken are not.
        last_failure_at: when it last failed.
        last_success_at: when it last succeeded.
        model: model: which one; `key` is the failure key its calls are counted on.
        failed_scenarios: quality: what it was used for when it failed, and when it last did.
        approval_id: trust: the approval (`trust.approve`) by which one call may pass; absent once it is used.
        approval_expires_at: trust: when that approval ends.
        unavailable_until: quality: until when the tool ranks behind others, as its latest calls did not reach it.
        failure_history: times of the latest counted failures, oldest first; for sparklines.
        stall_rate: model: stalled turns by turns, 0 to 1; absent before the first turn.
        most_common_pattern: model: the pattern detected most often.
        nudge_effectiveness: model: nudges that helped by nudges judged, 0 to 1; absent before the first.
        false_alarms: model: nudges and patterns that somebody called wrong, by pattern.
        window_s: trust: seconds that the count of failures looks back.
        part_of: trust: key of the wider scope that was not trusted when this key was escalated; its reset reaches both.
    """

    kind: StateKind
    key: str
    scope: str | None = None
    state: str | None = None
    mode: BreakerMode | None = None
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
    failure_rate: float | None = None
    measured: int | None = None
    opened_at: str | None = None
    open_until: str | None = None
    lease: Lease | None = None
    reopen_count: int | None = None
    time_in_state_ms: dict[str, int] = {}
    since: str | None = None
    score: float | None = None
    registered_score: float | None = None
    tags: tuple[str, ...] = ()
    tags_expire_at: dict[str, str] = {}
    attempts: int | None = None
    success_rate: float | None = None
    turns: int | None = None
    stalled_turns: int | None = None
    pattern_counts: dict[str, int] = {}
    nudges_sent: int | None = None
    nudges_effective: int | None = None
    last_failure_at: str | None = None
    last_success_at: str | None = None
    failure_history: tuple[str, ...] = ()
    model: str | None = None
    failed_scenarios: dict[str, str] = {}
    stall_rate: float | None = None
    most_common_pattern: Pattern | None = None
    nudge_effectiveness: float | None = None
    false_alarms: dict[str, int] = {}
    window_s: float | None = None
    part_of: str | None = None
    unavailable_until: str | None = None
    nudges_judged: int | None = None
    approval_id: str | None = None
    approval_expires_at: str | None = None
