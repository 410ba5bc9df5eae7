"""Input events: what agent platforms publish on `events` (docs/design/contracts.md#input-events).

One frozen struct per wire `type`. Unknown fields are ignored, so a publisher may be newer than the worker; known
fields are checked while they are decoded. Optional fields are None when absent or null. `args`, `result` and
`context` stay raw JSON until somebody asks (`json_of`): most events never need them built.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET, Raw, UnsetType

from .event_base import ErrorInfo, EventBase, epoch_ms, json_of
from .fields import (
    Approvals,
    Count,
    DeadlineMs,
    Depth,
    LongName,
    ModelNames,
    Money,
    Name,
    Ratio,
    ShortText,
    SpanMs,
    SpanSeconds,
)
from .settings import SettingsOverrides
from .vocabulary import Severity, Status, SynthesisStrategy, ToolClass

__all__ = [
    "BreakerProbeRequested",
    "ErrorInfo",
    "Event",
    "EventBase",
    "FailureReported",
    "FeedbackFalseAlarm",
    "GuaranteeLimits",
    "GuaranteeOverridden",
    "ModelText",
    "ModelsAvailable",
    "PermissionRequested",
    "PermissionResolved",
    "SessionEnded",
    "SessionSettingsChanged",
    "SessionStarted",
    "SuccessReported",
    "SynthesisCompleted",
    "SynthesisResult",
    "TimePassed",
    "ToolCallFinished",
    "ToolCallStarted",
    "TurnEnded",
    "TurnStarted",
    "UserMessage",
    "epoch_ms",
    "json_of",
]


class SessionStarted(EventBase, kw_only=True, frozen=True, omit_defaults=True, tag="session.started"):
    """A conversation begins.

    Attributes:
        settings: overrides for this session.
        reports_turn_ends: whether this publisher sends `turn.ended` for every turn; only then can silence in an open
            turn be reported as `stalled_turn` before the first turn has ended.
        models: models that may be suggested in this session. Absent: not stated.
    """

    settings: SettingsOverrides | None = None
    reports_turn_ends: bool | None = None
    models: ModelNames | None = None


class SessionEnded(EventBase, kw_only=True, frozen=True, omit_defaults=True, tag="session.ended"):
    """A conversation is over; what is open in it is closed.

    Attributes:
        reason: why, in the publisher's words.
    """

    reason: str | None = None


class SessionSettingsChanged(EventBase, kw_only=True, frozen=True, omit_defaults=True, tag="session.settings_changed"):
    """The session's overrides are now these; they replace the earlier ones.

    Attributes:
        settings: the overrides; an absent or null one inherits, an explicit false wins.
    """

    settings: SettingsOverrides


class TurnStarted(EventBase, kw_only=True, frozen=True, omit_defaults=True, tag="turn.started"):
    """The model gets its turn; `turn_index` says which."""


class TurnEnded(EventBase, kw_only=True, frozen=True, omit_defaults=True, tag="turn.ended"):
    """The model's turn is over.

    Attributes:
        stalled: the platform cut the turn off because nothing happened.
    """

    stalled: bool | None = None


class ToolCallStarted(EventBase, kw_only=True, frozen=True, omit_defaults=True, tag="tool_call.started"):
    """A tool is about to be called.

    Attributes:
        call_id: pairs the start with its finish; may repeat within a session.
        tool_name: the tool as the model names it.
        plugin_name: what provides the tool; a layer of the rules.
        service: MCP server behind it, if any.
        args: the arguments, an object; redacted by the publisher.
        args_digest: in place of `args` where they are private: equal for equal arguments.
        failure_key: with `args_digest`: the key the publisher derived from the arguments.
        tool_class: with `args_digest`: the class the publisher derived from the arguments; a guess, no declaration.
        deadline_ms: milliseconds after which an unfinished call counts as timed out. Absent: 10 minutes.
        idempotency_key: of the call, for the publisher's deduplication; not read.
        scenario: what the call is for, in words; tool quality learns from it.
        recursion_depth: 1 and more for a call made by a called model.
        annotations: MCP hints of the tool: `readOnlyHint`, `destructiveHint`, `idempotentHint`.
        approvals: ids of the operator's approvals (`trust.approve`) that let the call pass; each is used up by it.
    """

    call_id: Name
    tool_name: Name
    plugin_name: Name | None = None
    service: Name | None = None
    args: Raw | UnsetType = UNSET
    args_digest: Name | None = None
    failure_key: LongName | None = None
    tool_class: ToolClass | None = None
    deadline_ms: DeadlineMs | None = None
    idempotency_key: Name | None = None
    scenario: str | None = None
    recursion_depth: Depth | None = None
    annotations: dict[str, Any] | None = None
    approvals: Approvals = ()


class ToolCallFinished(EventBase, kw_only=True, frozen=True, omit_defaults=True, tag="tool_call.finished"):
    """A tool call is over, one way or another. Without a start it stands for the whole call.

    Attributes:
        call_id: of the call that ended: the latest open one of this id.
        tool_name: again, so that a lone finish is usable.
        status: how it ended. `circuit_open`: it was never made; `cancelled`: neither good nor bad; `lost`: nobody
            knows how it ended, which is neither good nor bad.
        plugin_name: what provides the tool.
        service: MCP server behind it, if any.
        duration_ms: milliseconds, as measured by the publisher.
        attempts: tries, retries included.
        error: what went wrong.
        result: what the tool returned, any JSON; digested and classified on arrival, never stored.
        result_digest: in place of `result` where it is private: equal for equal results.
        result_size: bytes of the result.
        from_cache: the tool was not called; touches no count.
        cost_usd: US dollars spent.
        expected_failure: a failure that says nothing about the tool (a search without a match).
        approvals: as in the start; for a finish without one.
    """

    call_id: Name
    tool_name: Name
    status: Status
    plugin_name: Name | None = None
    service: Name | None = None
    duration_ms: SpanMs | None = None
    attempts: Count | None = None
    error: ErrorInfo | None = None
    result: Raw | UnsetType = UNSET
    result_digest: Name | None = None
    result_size: Count | None = None
    from_cache: bool | None = None
    cost_usd: Money | None = None
    expected_failure: bool | None = None
    approvals: Approvals = ()


class UserMessage(EventBase, kw_only=True, frozen=True, omit_defaults=True, tag="user.message"):
    """The user said something; ends every streak.

    Attributes:
        text_digest: equal for equal texts; the text itself is not wanted.
    """

    text_digest: Name | None = None


class ModelText(EventBase, kw_only=True, frozen=True, omit_defaults=True, tag="model.text"):
    """The model said something: one whole message, not a chunk of a stream.

    Attributes:
        text: the message.
        text_digest: in place of `text` where it is private.
        announces: with `text_digest`: it announces work to come.
        mentions: names of tools it mentions; needed with `text_digest`, read with `text` too.
        thought: this is the model's reasoning and not a message: it announces nothing and is no monologue.
    """

    text: str | None = None
    text_digest: Name | None = None
    announces: bool | None = None
    mentions: tuple[ShortText, ...] = ()
    thought: bool | None = None


class PermissionRequested(EventBase, kw_only=True, frozen=True, omit_defaults=True, tag="permission.requested"):
    """A call waits for a person's permission: its deadline stops until `permission.resolved`.

    May be published before the call's `tool_call.started` or after it.

    Attributes:
        call_id: of the call that waits.
        tool_name: the tool it wants to call.
    """

    call_id: Name
    tool_name: Name


class PermissionResolved(EventBase, kw_only=True, frozen=True, omit_defaults=True, tag="permission.resolved"):
    """A request for permission was answered: granted, the deadline of the call runs on; denied, the call is closed.

    Attributes:
        call_id: of the call that asked.
        tool_name: the tool it wanted.
        granted: the answer. A denial is counted for the key, never as a failure.
        method: how it was resolved, in the platform's words, e.g. `user`, `policy`, `whitelist`.
    """

    call_id: Name
    tool_name: Name
    granted: bool
    method: Name | None = None


class ModelsAvailable(EventBase, kw_only=True, frozen=True, omit_defaults=True, tag="models.available"):
    """The models that may be suggested in this session are now these; they replace the earlier ones.

    Attributes:
        models: names of models; empty: none may be suggested.
    """

    models: ModelNames


class FailureReported(EventBase, kw_only=True, frozen=True, omit_defaults=True, tag="failure.reported"):
    """A plugin says that a tool failed, without a call of its own (docs/design/guard.md#hooks-and-reports).

    Attributes:
        tool_name: the tool that failed.
        error: what went wrong.
        severity: overrides the classification.
        domain: for HTTP: the host.
        service: for MCP: the server.
        plugin_name: who reports.
        context: whatever helps an analyst; never read by a fold.
        recoverable: False: trust does not come back by itself.
    """

    tool_name: Name
    error: ErrorInfo | None = None
    severity: Severity | None = None
    domain: Name | None = None
    service: Name | None = None
    plugin_name: Name | None = None
    context: Raw | UnsetType = UNSET
    recoverable: bool | None = None


class SuccessReported(EventBase, kw_only=True, frozen=True, omit_defaults=True, tag="success.reported"):
    """A plugin says that a tool worked, without a call of its own.

    Attributes:
        tool_name: the tool that worked.
        domain: for HTTP: the host.
        service: for MCP: the server.
        plugin_name: who reports.
        context: whatever helps an analyst; never read by a fold.
    """

    tool_name: Name
    domain: Name | None = None
    service: Name | None = None
    plugin_name: Name | None = None
    context: Raw | UnsetType = UNSET


class BreakerProbeRequested(EventBase, kw_only=True, frozen=True, omit_defaults=True, tag="breaker.probe_requested"):
    """A guard asks for the fleet's one probe of a half-open circuit.

    Attributes:
        breaker_key: the circuit: `tool:NAME`, `service:NAME` or `tier:NAME`; a bare name is a tool's.
        guard_id: who asks; becomes the holder of the lease.
        call_id: of the call that would be the probe.
    """

    breaker_key: Name
    guard_id: Name
    call_id: Name


class GuaranteeLimits(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """New limits of a session; an absent one stays as it is (docs/design/semantics.md#guarantees).

    Attributes:
        max_cost_usd: US dollars.
        max_duration_seconds: seconds.
        max_recursive_calls: calls.
    """

    max_cost_usd: Money | None = None
    max_duration_seconds: SpanSeconds | None = None
    max_recursive_calls: Count | None = None


class GuaranteeOverridden(EventBase, kw_only=True, frozen=True, omit_defaults=True, tag="guarantee.overridden"):
    """A person allowed a session to go beyond its limits, once (docs/design/semantics.md#guarantees).

    Attributes:
        limits: the limits that hold now.
        confirmed_by: who confirmed.
    """

    limits: GuaranteeLimits
    confirmed_by: Name


class FeedbackFalseAlarm(EventBase, kw_only=True, frozen=True, omit_defaults=True, tag="feedback.false_alarm"):
    """A platform or a person says that a nudge or an escalation was wrong.

    Attributes:
        output_id: id of the output.
        reason: why, in words.
    """

    output_id: Name
    reason: str | None = None


class SynthesisResult(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """One recursive result that went into a synthesis.

    Attributes:
        confidence: 0 to 1.
        id: the publisher's name for it.
        weight: its share in the synthesis, 0 to 1.
        included: it was used.
    """

    confidence: Ratio
    id: ShortText | None = None
    weight: Ratio | None = None
    included: bool | None = None


class ConfidenceSignals(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """What a confidence rests on, each 0 to 1; an absent signal was not there (docs/design/semantics.md#confidence).

    Attributes:
        self_consistency: agreement of several samples.
        trace_coherence: how well the reasoning hangs together.
        tool_success: share of the tool calls that succeeded. Absent: that of the session's calls is reported.
        source_reliability: of what was read.
    """

    self_consistency: Ratio | None = None
    trace_coherence: Ratio | None = None
    tool_success: Ratio | None = None
    source_reliability: Ratio | None = None


class SynthesisCompleted(EventBase, kw_only=True, frozen=True, omit_defaults=True, tag="synthesis.completed"):
    """Recursive results were combined (docs/design/semantics.md#confidence).

    Attributes:
        strategy: how.
        confidence: of the whole, 0 to 1; below 0.3 it is flagged for review.
        results: what went into it.
        signals: what the confidence rests on.
    """

    strategy: SynthesisStrategy
    confidence: Ratio
    results: tuple[SynthesisResult, ...] = ()
    signals: ConfidenceSignals | None = None


class TimePassed(EventBase, kw_only=True, frozen=True, omit_defaults=True, tag="time.passed"):
    """Nothing but time: what fell due in this session up to now takes effect.

    Appended by trustfold itself when a silence or an overdue call is to be told and no other event comes to reveal it
    (docs/design/contracts.md#time-and-order). Platforms need not publish it, and it is no sign of life when they do.
    """


Event = (
    SessionStarted
    | SessionEnded
    | SessionSettingsChanged
    | TurnStarted
    | TurnEnded
    | ToolCallStarted
    | ToolCallFinished
    | UserMessage
    | ModelText
    | PermissionRequested
    | PermissionResolved
    | ModelsAvailable
    | FailureReported
    | SuccessReported
    | BreakerProbeRequested
    | GuaranteeOverridden
    | FeedbackFalseAlarm
    | SynthesisCompleted
    | TimePassed
)
"""Everything that can stand on the `events` topic."""
