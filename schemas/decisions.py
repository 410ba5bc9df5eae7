"""Output events: what trustfold decides and publishes (docs/design/contracts.md#output-events).

Every output has a deterministic id, so a consumer drops repeated ones by id, and names the input events behind it.
Absent means unknown or not applicable; null is never sent. All times are RFC 3339 text, UTC, with milliseconds.
A consumer must ignore fields it does not know.
"""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec import field

from .public_state import (
    BreakerUpdated,
    DecisionBase,
    Lease,
    ModelUpdated,
    PublicState,
    QualityUpdated,
    StateUpdated,
    TrustUpdated,
)
from .vocabulary import (
    BreakerMode,
    BreakerState,
    BreakerTrigger,
    Lane,
    ModelSwitchStrategy,
    NudgeType,
    Pattern,
    PatternSeverity,
    SynthesisStrategy,
    TrustState,
    TrustTrigger,
)

__all__ = [
    "BehaviourFields",
    "BreakerChanged",
    "BreakerProbeDenied",
    "BreakerProbeGranted",
    "BreakerUpdated",
    "ConfidenceLow",
    "DeadLetter",
    "DeadLetterRepublished",
    "Decision",
    "DecisionBase",
    "DegradationPlan",
    "GuaranteeFields",
    "GuaranteeViolated",
    "GuaranteeWarned",
    "Lease",
    "ModelSwitchSuggested",
    "ModelUpdated",
    "NudgeIssued",
    "NudgeJudged",
    "PatternCleared",
    "PatternDetected",
    "PatternFields",
    "ProbeAnswer",
    "PublicState",
    "QualityUpdated",
    "StateUpdated",
    "TrustChanged",
    "TrustFields",
    "TrustRecoveryPending",
    "TrustUpdated",
]


class TrustFields(DecisionBase, kw_only=True, frozen=True, omit_defaults=True):
    """What both outputs about trust say.

    Attributes:
        key: the key without its workspace: a tool, a service, or a failure key such as `bash|command=git`.
        scope: what the key stands for: `key`, `tool`, `service` or `user`.
        from: state before.
        to: state after.
        trigger: what moved it.
        reason: the trigger in words, with its counts: `3/3 failures in 1h`.
        count: what was counted: effective failures, failures in a row, or the failed share.
        threshold: what it was compared with.
        window_s: seconds that the count looks back.
        expires_at: when the escalation has lasted; recovery may start then at the earliest.
        successes: successes since recovery began.
        successes_needed: successes that restore trust.
        recovery_hint: what leads back to trust, in words.
        notification: ready-made text for the user.
        permission_warning: ready-made text for the next request for permission.
        silent: the user need not be notified: the rule says so, or it is `part_of` what the user was told.
        part_of: key of a wider scope whose loss of trust covers this change.
    """

    key: str
    scope: str
    from_: TrustState = field(name="from")
    to: TrustState
    trigger: TrustTrigger
    reason: str
    count: float | None = None
    threshold: float | None = None
    window_s: float | None = None
    expires_at: str | None = None
    successes: int | None = None
    successes_needed: int | None = None
    recovery_hint: str | None = None
    notification: str | None = None
    permission_warning: str | None = None
    silent: bool | None = None
    part_of: str | None = None


class TrustChanged(TrustFields, kw_only=True, frozen=True, omit_defaults=True, tag="trust.changed"):
    """A key's trust moved."""


class TrustRecoveryPending(TrustFields, kw_only=True, frozen=True, omit_defaults=True, tag="trust.recovery_pending"):
    """A key has earned its trust back and waits for the operator's `trust.recover` (recovery mode `ask`)."""


class BreakerChanged(DecisionBase, kw_only=True, frozen=True, omit_defaults=True, tag="breaker.changed"):
    """A circuit moved.

    Attributes:
        breaker_key: `tool:NAME`, `service:NAME` or `tier:NAME`.
        from: state before.
        to: state after.
        trigger: what moved it.
        consecutive_failures: failed calls in a row.
        failure_rate: failed share of the measured calls in the window, 0 to 1.
        measured: calls in that window.
        open_until: when it may be probed.
        mode: whether the state is applied.
    """

    breaker_key: str
    from_: BreakerState = field(name="from")
    to: BreakerState
    trigger: BreakerTrigger
    consecutive_failures: int | None = None
    failure_rate: float | None = None
    measured: int | None = None
    open_until: str | None = None
    mode: BreakerMode | None = None


class ProbeAnswer(DecisionBase, kw_only=True, frozen=True, omit_defaults=True):
    """What both answers to a request for the probe say.

    Attributes:
        breaker_key: the circuit.
        holder: the guard that asked.
        call_id: the call it asked for.
        lease_until: granted: until when the slot is its own; absent when the circuit needs no probe. Denied: when to
            ask again.
    """

    breaker_key: str
    holder: str
    call_id: str
    lease_until: str | None = None


class BreakerProbeGranted(ProbeAnswer, kw_only=True, frozen=True, omit_defaults=True, tag="breaker.probe_granted"):
    """The call may go through as the fleet's one probe."""


class BreakerProbeDenied(ProbeAnswer, kw_only=True, frozen=True, omit_defaults=True, tag="breaker.probe_denied"):
    """Another call is the probe, or the circuit is open: fail fast."""


class BehaviourFields(DecisionBase, kw_only=True, frozen=True, omit_defaults=True):
    """Which agent an output about behaviour is about, and where in its session.

    Attributes:
        agent_id: the agent of the session that is stuck; absent: its main agent.
        turn_index: which turn of the session.
        correlation_id: of the input event that caused it.
    """

    agent_id: str | None = None
    turn_index: int | None = None
    correlation_id: str | None = None


class PatternFields(BehaviourFields, kw_only=True, frozen=True, omit_defaults=True):
    """What both outputs about a pattern say.

    Attributes:
        pattern: which pattern.
        severity: how far it has gone.
        repetitions: how often it has repeated.
        tool_sequence: tools of the repetition, oldest first, at most 20.
        fingerprint: what repeats; with pattern, session and agent it names the streak.
        duration_ms: milliseconds from the first to the latest repetition.
        model: the model that is stuck.
        expected_action: what the model should do instead, where the pattern knows.
    """

    pattern: Pattern
    severity: PatternSeverity
    repetitions: int
    tool_sequence: tuple[str, ...] = ()
    fingerprint: str | None = None
    duration_ms: int | None = None
    model: str | None = None
    expected_action: str | None = None


class PatternDetected(PatternFields, kw_only=True, frozen=True, omit_defaults=True, tag="pattern.detected"):
    """A model is stuck, or more severely so than before; reported once per severity."""


class PatternCleared(PatternFields, kw_only=True, frozen=True, omit_defaults=True, tag="pattern.cleared"):
    """The model has broken out of a pattern that was reported."""


class NudgeIssued(BehaviourFields, kw_only=True, frozen=True, omit_defaults=True, tag="nudge.issued"):
    """Tell this to the model.

    Attributes:
        nudge_type: how strongly.
        message: what to say.
        pattern: why.
        severity: of the pattern.
        pattern_id: id of the `pattern.detected` behind it.
        lane: where to say it.
        duration_ms: milliseconds since the first repetition of the pattern.
        model: the model to tell it.
    """

    nudge_type: NudgeType
    message: str
    pattern: Pattern
    severity: PatternSeverity
    pattern_id: str
    lane: Lane
    duration_ms: int | None = None
    model: str | None = None


class NudgeJudged(DecisionBase, kw_only=True, frozen=True, omit_defaults=True, tag="nudge.judged"):
    """Whether a nudge helped.

    Attributes:
        nudge_id: id of the `nudge.issued`.
        effective: the model did not repeat itself, and acted where the pattern asked for it.
    """

    nudge_id: str
    effective: bool


class ModelSwitchSuggested(DecisionBase, kw_only=True, frozen=True, omit_defaults=True, tag="model_switch.suggested"):
    """Another model does better with this tool (docs/design/semantics.md#models).

    Attributes:
        current_model: the model in use.
        suggested_model: the better one.
        failure_key: the key they were compared on.
        current_success_rate: 0 to 1.
        suggested_success_rate: 0 to 1.
        current_attempts: calls behind the current model's rate.
        suggested_attempts: calls behind the other's.
        strategy: `auto`: the platform should switch; `suggest`: the user should be told.
        message: ready-made text for the user.
    """

    current_model: str
    suggested_model: str
    failure_key: str
    current_success_rate: float
    suggested_success_rate: float
    current_attempts: int | None = None
    suggested_attempts: int | None = None
    strategy: ModelSwitchStrategy | None = None
    message: str | None = None


class ConfidenceLow(DecisionBase, kw_only=True, frozen=True, omit_defaults=True, tag="confidence.low"):
    """A recursive result should be reviewed (docs/design/semantics.md#confidence).

    Attributes:
        confidence: 0 to 1.
        threshold: what it is below.
        strategy: how the results were combined.
        signals: signals present and their values, 0 to 1.
        message: ready-made text.
    """

    confidence: float
    threshold: float
    strategy: SynthesisStrategy | None = None
    signals: dict[str, float] = {}
    message: str | None = None


class DegradationPlan(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """How to end well when a limit is reached (docs/design/semantics.md#guarantees).

    Attributes:
        partial_result: what there is, with an explanation.
        recommendations: what the user can do.
        cost_usd: US dollars spent.
        duration_s: seconds spent.
        recursive_calls: recursive calls made.
    """

    partial_result: str
    recommendations: tuple[str, ...] = ()
    cost_usd: float | None = None
    duration_s: float | None = None
    recursive_calls: int | None = None


class GuaranteeFields(DecisionBase, kw_only=True, frozen=True, omit_defaults=True):
    """What both outputs about a limit say.

    Attributes:
        guarantee: which limit: `max_cost_usd`, `max_duration_seconds` or `max_recursive_calls`.
        used: spent so far, in the limit's unit.
        limit: the limit.
        message: ready-made text.
    """

    guarantee: Literal["max_cost_usd", "max_duration_seconds", "max_recursive_calls"]
    used: float
    limit: float
    message: str | None = None


class GuaranteeWarned(GuaranteeFields, kw_only=True, frozen=True, omit_defaults=True, tag="guarantee.warned"):
    """Most of a limit is spent (80 %)."""


class GuaranteeViolated(GuaranteeFields, kw_only=True, frozen=True, omit_defaults=True, tag="guarantee.violated"):
    """A limit is exceeded.

    Attributes:
        plan: how to end well.
    """

    plan: DegradationPlan | None = None


class DeadLetter(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True, tag_field="type", tag="dead_letter"):
    """A record that could not be processed, whole, with the reason (docs/design/contracts.md#bad-input).

    Attributes:
        schema_version: "1.x".
        id: digest of topic, partition and offset.
        topic: where it stood, catalogue name.
        partition: where it stood.
        offset: where it stood.
        reason: stable code.
        path: JSON path of the fault.
        message: what is wrong and what to do about it.
        time: timestamp of the record; absent when it had none.
        key: its key, where that is text.
        key_base64: its key, where that is not.
        value: its value, where that is text.
        value_base64: its value, where that is not.
    """

    schema_version: str
    id: str
    topic: str
    partition: int
    offset: int
    reason: str
    path: str
    message: str
    time: str | None = None
    key: str | None = None
    key_base64: str | None = None
    value: str | None = None
    value_base64: str | None = None


class DeadLetterRepublished(
    msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True, tag_field="type", tag="dead_letter.republished"
):
    """A mark on a dead letter: an operator publishes its record again, or has.

    Attributes:
        schema_version: "1.x".
        id: digest of letter, attempt and state.
        dead_letter_id: the dead letter; also the key of the mark.
        attempt_id: the run that wrote it.
        state: `claimed` before the record is sent, `sent` after the brokers have it.
        time: when, by the operator's clock.
    """

    schema_version: str
    id: str
    dead_letter_id: str
    attempt_id: str
    state: Literal["claimed", "sent"]
    time: str


Decision = (
    TrustChanged
    | TrustRecoveryPending
    | BreakerChanged
    | BreakerProbeGranted
    | BreakerProbeDenied
    | PatternDetected
    | PatternCleared
    | NudgeIssued
    | NudgeJudged
    | ModelSwitchSuggested
    | ConfidenceLow
    | GuaranteeWarned
    | GuaranteeViolated
    | StateUpdated
    | DeadLetter
    | DeadLetterRepublished
)
"""Everything that trustfold publishes for others."""
