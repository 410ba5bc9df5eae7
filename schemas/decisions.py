"""Output events: decisions that trustfold publishes (docs/design/contracts.md#output-events).

Every output has a deterministic id, so that a consumer drops repeated ones by id, and names the input events that
caused it. Absent means unknown or not applicable; null is never sent. All times are RFC 3339 text, UTC, with
milliseconds. A consumer must ignore fields it does not know.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec
from msgspec import field

from .public_state import (
    BreakerUpdated,
    DecisionBase,
    IncidentUpdated,
    ModelUpdated,
    ProbeLease,
    PublicState,
    QualityUpdated,
    StateUpdated,
    TrustUpdated,
    readable_state,
)
from .vocabulary import (
    BreakerMode,
    BreakerState,
    BreakerTrigger,
    DangerKind,
    ModelSwitchStrategy,
    NudgeLane,
    NudgeType,
    PatternSeverity,
    PatternType,
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
    "IncidentUpdated",
    "ModelSwitchSuggested",
    "ModelUpdated",
    "NudgeIssued",
    "NudgeJudged",
    "NudgeWithdrawn",
    "PatternCleared",
    "PatternDetected",
    "PatternFields",
    "ProbeAnswerBase",
    "ProbeLease",
    "PublicState",
    "QualityUpdated",
    "SessionRestored",
    "StateUpdated",
    "TrustChanged",
    "TrustDangerNoted",
    "TrustFields",
    "TrustRecoveryPending",
    "TrustUpdated",
]


class TrustFields(DecisionBase, kw_only=True, frozen=True, omit_defaults=True):
    """Fields of both outputs about trust.

    Attributes:
        key: the key without its workspace: a tool, a service, or a failure key such as `bash|command=git`.
        scope: kind of the key: `key`, `tool`, `service` or `user`.
        from: previous state.
        to: new state.
        trigger: cause of the change.
        reason: the trigger in words, with its counts: `3/3 failures in 1h`.
        count: value that the rule compared: effective failures, failures in a row, or the failed share.
        threshold: threshold of the rule.
        window_s: seconds that the count covers.
        expires_at: end of the escalation's minimum time; recovery starts then at the earliest.
        successes: successes since recovery began.
        successes_needed: successes needed to restore trust.
        recovery_hint: how trust can be restored, in words.
        notification: message for the user.
        permission_warning: text for the next permission prompt.
        silent: the user need not be notified: the rule says so, or an earlier notification covers it (`part_of`).
        part_of: key of a wider scope whose loss of trust includes this change.
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
    """The trust of a key changed."""


class TrustRecoveryPending(TrustFields, kw_only=True, frozen=True, omit_defaults=True, tag="trust.recovery_pending"):
    """A key has met the conditions of recovery and waits for the operator's `trust.recover` (recovery mode `ask`)."""


class TrustDangerNoted(DecisionBase, kw_only=True, frozen=True, omit_defaults=True, tag="trust.danger_noted"):
    """A dangerous call was made, or it was held back before it ran.

    Attributes:
        key: key of such calls without its workspace, which names what they would do: `bash|danger=root`.
        danger: what it would do.
        made: it ran, with whatever result; else it was refused or declined.
        reason: the same in words.
        count: number of such calls of the key.
        notification: message for the user.
        silent: the user need not be notified: the call was held back, or the rules only observe such calls.
    """

    key: str
    danger: DangerKind
    made: bool
    reason: str
    count: int
    notification: str | None = None
    silent: bool | None = None


class BreakerChanged(DecisionBase, kw_only=True, frozen=True, omit_defaults=True, tag="breaker.changed"):
    """The state of a circuit changed.

    Attributes:
        breaker_key: `tool:NAME`, `service:NAME` or `tier:NAME`.
        from: previous state.
        to: new state.
        trigger: cause of the change.
        consecutive_failures: failed calls in a row.
        failure_rate: failed share of the measured calls in the window, 0 to 1.
        measured: calls in that window.
        open_until: time from which it may be probed.
        mode: whether the state is enforced.
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


class ProbeAnswerBase(DecisionBase, kw_only=True, frozen=True, omit_defaults=True):
    """Fields of both answers to a request for the probe.

    Attributes:
        breaker_key: key of the circuit.
        holder: id of the guard that asked.
        call_id: id of the call that would be the probe.
        lease_until: granted: end of the lease; absent if the circuit needs no probe. Denied: time to ask again.
    """

    breaker_key: str
    holder: str
    call_id: str
    lease_until: str | None = None


class BreakerProbeGranted(ProbeAnswerBase, kw_only=True, frozen=True, omit_defaults=True, tag="breaker.probe_granted"):
    """The call may be made as the fleet's one probe."""


class BreakerProbeDenied(ProbeAnswerBase, kw_only=True, frozen=True, omit_defaults=True, tag="breaker.probe_denied"):
    """Another call is the probe, or the circuit is open: fail fast."""


class BehaviourFields(DecisionBase, kw_only=True, frozen=True, omit_defaults=True):
    """Agent and position in the session of an output about behaviour.

    Attributes:
        agent_id: agent of the session; absent: its main agent.
        turn_index: turn of the session.
        correlation_id: correlation id of the input event that caused it.
    """

    agent_id: str | None = None
    turn_index: int | None = None
    correlation_id: str | None = None


class PatternFields(BehaviourFields, kw_only=True, frozen=True, omit_defaults=True):
    """Fields of both outputs about a pattern.

    Attributes:
        pattern: kind of pattern.
        severity: severity that the streak has reached.
        repetitions: number of repetitions.
        tool_sequence: tools of the repetition, oldest first, at most 20.
        fingerprint: digest of what repeats; with pattern, session and agent it identifies the streak.
        duration_ms: milliseconds from the first to the latest repetition.
        model: name of the model.
        expected_action: what the model should do instead, if the pattern defines it.
        request: the call that shows it, in one line without secrets.
    """

    pattern: PatternType
    severity: PatternSeverity
    repetitions: int
    tool_sequence: tuple[str, ...] = ()
    fingerprint: str | None = None
    duration_ms: int | None = None
    model: str | None = None
    expected_action: str | None = None
    request: str | None = None


class PatternDetected(PatternFields, kw_only=True, frozen=True, omit_defaults=True, tag="pattern.detected"):
    """A model repeats itself without progress, or more severely than before; reported once per severity.

    Attributes:
        notify_user: a person should be told: the pattern is severe, or a person can help where the model cannot.
        message: text for that person.
    """

    notify_user: bool = False
    message: str | None = None


class PatternCleared(PatternFields, kw_only=True, frozen=True, omit_defaults=True, tag="pattern.cleared"):
    """A reported pattern has ended."""


class NudgeIssued(BehaviourFields, kw_only=True, frozen=True, omit_defaults=True, tag="nudge.issued"):
    """A message that should be shown to the model.

    Attributes:
        nudge_type: strength of the nudge.
        message: text for the model.
        pattern: pattern that caused it.
        severity: severity of the pattern, a step higher if the nudge before was ignored.
        pattern_id: id of the `pattern.detected` that caused it.
        lane: where the platform should put the message.
        duration_ms: milliseconds since the first repetition of the pattern.
        model: name of the model.
        request: the call that shows the pattern, in one line without secrets.
    """

    nudge_type: NudgeType
    message: str
    pattern: PatternType
    severity: PatternSeverity
    pattern_id: str
    lane: NudgeLane
    duration_ms: int | None = None
    model: str | None = None
    request: str | None = None


class NudgeJudged(DecisionBase, kw_only=True, frozen=True, omit_defaults=True, tag="nudge.judged"):
    """Verdict on a nudge: whether it helped.

    Attributes:
        nudge_id: id of the `nudge.issued`.
        effective: the model did not repeat itself, and acted if the pattern asks for it.
    """

    nudge_id: str
    effective: bool


class NudgeWithdrawn(DecisionBase, kw_only=True, frozen=True, omit_defaults=True, tag="nudge.withdrawn"):
    """A nudge that no answer has carried is out of date: its text must not be shown, and it is not judged.

    Only of publishers that report deliveries (`session.started`).

    Attributes:
        nudge_id: id of the `nudge.issued`.
    """

    nudge_id: str


class SessionRestored(DecisionBase, kw_only=True, frozen=True, omit_defaults=True, tag="session.restored"):
    """A session that was started again goes on with what was kept of it (docs/design/semantics.md#nudges).

    Attributes:
        turn_index: index of its last turn; absent if unknown.
        active_patterns: patterns that have not ended.
        pending_nudges: nudges that no answer had carried; each is issued again, and the old one withdrawn.
        settings_restored: its own settings are still in force.
    """

    turn_index: int | None = None
    active_patterns: int = 0
    pending_nudges: int = 0
    settings_restored: bool = False


class ModelSwitchSuggested(DecisionBase, kw_only=True, frozen=True, omit_defaults=True, tag="model_switch.suggested"):
    """Another model succeeds more often with this tool (docs/design/semantics.md#models).

    Attributes:
        current_model: the model in use.
        suggested_model: the model with the better success rate.
        failure_key: the key on which they were compared.
        current_success_rate: success rate of the current model, 0 to 1.
        suggested_success_rate: success rate of the suggested model, 0 to 1.
        current_attempts: calls that the current model's rate is computed from.
        suggested_attempts: calls that the suggested model's rate is computed from.
        strategy: `auto`: the platform should switch; `suggest`: the platform should notify the user.
        message: message for the user.
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
        confidence: confidence of the result, 0 to 1.
        threshold: threshold that it is below.
        strategy: how the results were combined.
        signals: signals present and their values, 0 to 1.
        message: message for the user.
    """

    confidence: float
    threshold: float
    strategy: SynthesisStrategy | None = None
    signals: dict[str, float] = {}
    message: str | None = None


class DegradationPlan(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """Plan of how to end when a limit is reached (docs/design/semantics.md#guarantees).

    Attributes:
        partial_result: the result so far, with an explanation.
        recommendations: options of the user.
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
    """Fields of both outputs about a limit.

    Attributes:
        guarantee: name of the limit: `max_cost_usd`, `max_duration_seconds` or `max_recursive_calls`.
        used: amount used so far, in the limit's unit.
        limit: value of the limit.
        message: message for the user.
    """

    guarantee: Literal["max_cost_usd", "max_duration_seconds", "max_recursive_calls"]
    used: float
    limit: float
    message: str | None = None


class GuaranteeWarned(GuaranteeFields, kw_only=True, frozen=True, omit_defaults=True, tag="guarantee.warned"):
    """80 % of a limit is used."""


class GuaranteeViolated(GuaranteeFields, kw_only=True, frozen=True, omit_defaults=True, tag="guarantee.violated"):
    """A limit is exceeded.

    Attributes:
        plan: how to end.
    """

    plan: DegradationPlan | None = None


class DeadLetter(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True, tag_field="type", tag="dead_letter"):
    """A record that could not be processed, complete, with the reason (docs/design/contracts.md#bad-input).

    Attributes:
        schema_version: "1.x".
        id: digest of topic, partition and offset.
        topic: topic of the record, catalogue name.
        partition: partition of the record.
        offset: offset of the record.
        reason: stable reason code.
        path: JSON path of the fault.
        message: fault, and what to do about it.
        time: timestamp of the record; absent if it had none.
        key: key of the record if it is valid UTF-8.
        key_base64: key of the record if it is not.
        value: value of the record if it is valid UTF-8.
        value_base64: value of the record if it is not.
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
    """Mark on a dead letter: an operator is publishing its record again, or has done so.

    Attributes:
        schema_version: "1.x".
        id: digest of dead letter, attempt and state.
        dead_letter_id: id of the dead letter; also the key of the mark.
        attempt_id: id of the run that wrote the mark.
        state: `claimed` before the record is sent, `sent` after the brokers acknowledged it.
        time: time of the mark, by the operator's clock.
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
    | TrustDangerNoted
    | BreakerChanged
    | BreakerProbeGranted
    | BreakerProbeDenied
    | PatternDetected
    | PatternCleared
    | NudgeIssued
    | NudgeJudged
    | NudgeWithdrawn
    | SessionRestored
    | ModelSwitchSuggested
    | ConfidenceLow
    | GuaranteeWarned
    | GuaranteeViolated
    | StateUpdated
    | DeadLetter
    | DeadLetterRepublished
)
"""Union of all decisions on the output topics."""


def readable_decision(record: Mapping[str, Any]) -> Decision | None:
    """Convert a record of an output topic that a later version may have written from plain JSON.

    Unknown fields are ignored; None if the type or a value is unknown here.
    """
    if record.get("type") == "state.updated":
        return readable_state(record)
    try:
        decision: Decision = msgspec.convert(record, Decision)
    except msgspec.ValidationError:
        return None
    return decision
