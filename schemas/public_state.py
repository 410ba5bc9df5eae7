"""The value of the compacted `state` topic: all that a guard or a status table must know about one key.

Every record has the type `state.updated`; its `kind` says which of the structs below it is. `codec.decode_decision`
reads each as its own struct.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from .vocabulary import BreakerMode, BreakerState, Pattern, TrustState


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
        kind: what the key is about; says which struct the record is.
        key: the key without its workspace.
        scope: what the key stands for: `key`, `tool`, `service`, `tier`, `user` or `model`.
    """

    kind: Literal["trust", "breaker", "quality", "model"]
    key: str
    scope: str | None = None


class TrustUpdated(StateUpdated, kw_only=True, frozen=True, omit_defaults=True, tag="state.updated"):
    """Trust in a key, in a workspace or for one user everywhere.

    Attributes:
        state: whether calls may run without asking.
        reason: why it is in this state, in words.
        failures: effective failures.
        threshold: failures that escalate.
        consecutive: counted failures in a row.
        escalated_at: when it was escalated.
        expires_at: when the escalation has lasted.
        cooldown_until: when enough time without a counted failure has passed.
        recovery_at: when the next success starts recovery; the later of the two before.
        successes: successes since recovery began.
        successes_needed: successes that restore trust.
        recovery_pending: it waits for the operator's `trust.recover`.
        denials: how often users have refused it.
        failure_rate: for a user: mean share of failed calls over workspaces, 0 to 1.
        measured: for a user: calls behind that share.
        since: when the present state began.
        last_failure_at: when it last failed.
        last_success_at: when it last succeeded.
        failure_history: times of the latest counted failures, oldest first; for sparklines.
        window_s: seconds that the count of failures looks back.
        part_of: key of the wider scope that was not trusted when this key was escalated; its reset reaches both.
        approval_id: the approval (`trust.approve`) by which one call may pass; absent once it is used.
        approval_expires_at: when that approval ends.
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


class BreakerUpdated(StateUpdated, kw_only=True, frozen=True, omit_defaults=True, tag="state.updated"):
    """A circuit.

    Attributes:
        state: whether traffic is sent, as of `time`.
        mode: whether its state is applied.
        reason: trigger of the latest change.
        consecutive: failures in a row.
        successes: successful probes in a row.
        failure_rate: failed share of the measured calls, 0 to 1.
        measured: measured calls in the window.
        opened_at: when it opened.
        open_until: when it may be probed; absent when forced open for good.
        lease: who holds the probe.
        reopen_count: how often it has opened.
        time_in_state_ms: milliseconds spent in each state, up to the present one.
        since: when the present state began.
        last_failure_at: when it last failed.
        last_success_at: when it last succeeded.
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
    lease: Lease | None = None
    reopen_count: int | None = None
    time_in_state_ms: dict[str, int] = {}
    since: str | None = None
    last_failure_at: str | None = None
    last_success_at: str | None = None


class QualityUpdated(StateUpdated, kw_only=True, frozen=True, omit_defaults=True, tag="state.updated"):
    """How well a tool does what it is for.

    Attributes:
        failures: counted failures since its score was last whole.
        score: 0 to 1.
        registered_score: what it earns its way back to.
        tags: `not-for-WORD` tags.
        tags_expire_at: when each tag expires.
        last_failure_at: when it last failed.
        failed_scenarios: what it was used for when it failed, and when it last did.
        unavailable_until: until when the tool ranks behind others, as its latest calls did not reach it.
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
    """A model on one failure key, or a model over all sessions (scope `model`, no workspace).

    Attributes:
        failures: failed calls.
        attempts: calls.
        success_rate: 0 to 1.
        turns: turns seen.
        stalled_turns: turns in which it was stuck.
        pattern_counts: how often each pattern was detected, once for each streak.
        nudges_sent: nudges issued.
        nudges_effective: nudges that helped.
        last_failure_at: when a call of it last failed.
        model: which one; `key` is the failure key its calls are counted on.
        stall_rate: stalled turns by turns, 0 to 1; absent before the first turn.
        most_common_pattern: the pattern detected most often.
        nudge_effectiveness: nudges that helped by nudges judged, 0 to 1; absent before the first.
        false_alarms: nudges and patterns that somebody called wrong, by pattern.
        nudges_judged: nudges judged at all; those that the user or the end of a session has overtaken are not.
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
    most_common_pattern: Pattern | None = None
    nudge_effectiveness: float | None = None
    false_alarms: dict[str, int] = {}
    nudges_judged: int | None = None


PublicState = TrustUpdated | BreakerUpdated | QualityUpdated | ModelUpdated
"""Every kind of public state."""

STATE_KINDS: dict[str, type[PublicState]] = {
    "trust": TrustUpdated,
    "breaker": BreakerUpdated,
    "quality": QualityUpdated,
    "model": ModelUpdated,
}
"""The struct of each `kind`."""


def public_state(record: Mapping[str, Any]) -> PublicState:
    """A record of the `state` topic that has been read as plain JSON.

    Raises:
        msgspec.ValidationError: the record is no public state of this version.
    """
    return msgspec.convert(record, STATE_KINDS.get(record["kind"], StateUpdated))  # type: ignore[return-value]
