"""Output events: what trustfold decides (design 2, Output events).

Times are RFC 3339 in UTC. Fields without a value are left out.
"""

from __future__ import annotations

import msgspec

from .vocabulary import (
    BreakerState,
    Lane,
    NudgeType,
    Pattern,
    PatternSeverity,
    TrustState,
)


class DecisionBase(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True, tag_field="type"):
    """The envelope of every output.

    Attributes:
        id: deterministic: the same input gives the same id, so a repeat can be dropped.
        time: when the decision took effect.
        caused_by: ids of the input events behind it, newest last, at most 20.
    """

    id: str
    time: str
    schema_version: str
    session_id: str | None = None
    workspace_id: str | None = None
    user_id: str | None = None
    caused_by: tuple[str, ...] = ()


class _TrustBase(DecisionBase, kw_only=True, frozen=True, omit_defaults=True, rename={"from_": "from"}):
    key: str
    scope: str
    from_: TrustState
    to: TrustState
    trigger: str
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
    silent: bool = False


class TrustChanged(_TrustBase, tag="trust.changed", kw_only=True, frozen=True, omit_defaults=True):
    """Trust in a key moved.

    Attributes:
        key: what moved: `bash|command=rm`, `bash`, `service:atlassian`.
        scope: `key`, `tool`, `service` or `user`.
        trigger: what moved it (count, consecutive, rate, security, repeated_auth, recovery, reset …).
        count: effective failures or successes behind it, compared with `threshold`.
        window_s: seconds in which failures count.
        expires_at: earliest end of an escalation.
        notification: ready to show to a user.
        permission_warning: ready to show in a permission prompt.
        silent: the rule asked not to notify; never dropped.
    """


class TrustRecoveryPending(_TrustBase, tag="trust.recovery_pending", kw_only=True, frozen=True, omit_defaults=True):
    """A key has earned its recovery and waits for the operator (mode `ask`)."""


class BreakerChanged(
    DecisionBase, tag="breaker.changed", kw_only=True, frozen=True, omit_defaults=True, rename={"from_": "from"}
):
    """A circuit moved.

    Attributes:
        breaker_key: `tool:NAME`, `service:NAME` or `tier:NAME`.
        measured: calls behind `failure_rate`.
        open_until: when it may be probed.
        mode: `enforce` or `observe`; an observed circuit blocks nothing.
    """

    breaker_key: str
    from_: BreakerState
    to: BreakerState
    trigger: str
    consecutive_failures: int
    failure_rate: float
    measured: int
    open_until: str | None = None
    mode: str = "enforce"


class BreakerProbeGranted(DecisionBase, tag="breaker.probe_granted", kw_only=True, frozen=True, omit_defaults=True):
    """This guard's call may go through; with `lease_until`, as the fleet's one probe."""

    breaker_key: str
    holder: str
    call_id: str
    lease_until: str | None = None


class BreakerProbeDenied(DecisionBase, tag="breaker.probe_denied", kw_only=True, frozen=True, omit_defaults=True):
    """This guard's call must fail fast; `lease_until` is when asking again makes sense."""

    breaker_key: str
    holder: str
    call_id: str
    lease_until: str | None = None


class PatternDetected(DecisionBase, tag="pattern.detected", kw_only=True, frozen=True, omit_defaults=True):
    """A model's behaviour leads nowhere; reported once per severity step.

    Attributes:
        fingerprint: what repeats; the same streak keeps it.
        duration_ms: milliseconds since the streak was first seen.
        expected_action: what would end it, where the pattern knows.
    """

    pattern: Pattern
    severity: PatternSeverity
    repetitions: int
    tool_sequence: tuple[str, ...] = ()
    fingerprint: str = ""
    duration_ms: int = 0
    model: str | None = None
    expected_action: str | None = None


class PatternCleared(DecisionBase, tag="pattern.cleared", kw_only=True, frozen=True, omit_defaults=True):
    """The model broke out of a pattern, or the user spoke; `severity` is the highest it reached."""

    pattern: Pattern
    severity: PatternSeverity
    repetitions: int
    fingerprint: str = ""
    duration_ms: int = 0
    model: str | None = None


class NudgeIssued(DecisionBase, tag="nudge.issued", kw_only=True, frozen=True, omit_defaults=True):
    """Something to tell the model; the platform puts it on the named lane."""

    nudge_type: NudgeType
    message: str
    pattern: Pattern
    severity: PatternSeverity
    pattern_id: str
    lane: Lane


class NudgeJudged(DecisionBase, tag="nudge.judged", kw_only=True, frozen=True, omit_defaults=True):
    """Whether a nudge helped: no repeat, and an action where the pattern asked for one."""

    nudge_id: str
    effective: bool


class ModelSwitchSuggested(DecisionBase, tag="model_switch.suggested", kw_only=True, frozen=True, omit_defaults=True):
    """Another model does better with this key; `auto` asks the platform to switch (seed 2)."""

    key: str
    current_model: str
    suggested_model: str
    current_success_rate: float
    suggested_success_rate: float
    auto: bool = False


class ConfidenceLow(DecisionBase, tag="confidence.low", kw_only=True, frozen=True, omit_defaults=True):
    """A synthesised result should be reviewed (seed 5)."""

    confidence: float
    strategy: str
    signals: dict[str, float] = {}


class GuaranteeWarned(DecisionBase, tag="guarantee.warned", kw_only=True, frozen=True, omit_defaults=True):
    """A session has used most of a limit (seed 5)."""

    limit: str
    spent: float
    allowed: float


class GuaranteeViolated(DecisionBase, tag="guarantee.violated", kw_only=True, frozen=True, omit_defaults=True):
    """A session has exceeded a limit; `plan` is the graceful degradation (seed 5)."""

    limit: str
    spent: float
    allowed: float
    plan: dict[str, object] = {}


class Lease(msgspec.Struct, kw_only=True, frozen=True):
    """The fleet's one probe of a half-open circuit."""

    holder: str
    call_id: str
    lease_until: str


class StateUpdated(DecisionBase, tag="state.updated", kw_only=True, frozen=True, omit_defaults=True):
    """The whole public state of one key, with its deadlines, so that a follower needs nothing else.

    A circuit is half-open for whoever reads it after `open_until`.

    Attributes:
        kind: `trust`, `breaker`, `quality` or `model`.
        failures: effective failures in the window, compared with `threshold`.
        recovery_at: when the next success starts recovery.
        time_in_state_ms: milliseconds spent in each state of the circuit before the current one.
    """

    kind: str
    key: str
    scope: str
    state: str
    reason: str | None = None
    failures: float | None = None
    threshold: float | None = None
    consecutive: int | None = None
    escalated_at: str | None = None
    expires_at: str | None = None
    recovery_at: str | None = None
    successes: int | None = None
    successes_needed: int | None = None
    recovery_pending: bool | None = None
    denials: int | None = None
    mode: str | None = None
    failure_rate: float | None = None
    measured: int | None = None
    opened_at: str | None = None
    open_until: str | None = None
    reopen_count: int | None = None
    lease: Lease | None = None
    time_in_state_ms: dict[str, int] | None = None


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
)
"""Every output event."""
