"""Input events that agent platforms publish on `events` (docs/design/contracts.md#input-events).

One frozen struct per wire `type`. Unknown fields are ignored, so a publisher may be newer than the worker; known fields
are validated by the decoder. Optional fields are None if absent or null. `args`, `result` and `context` stay raw JSON
until they are used (`json_of`): most events never need them decoded.
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
from .result_sketch import ResultSketch
from .settings import SettingsOverrides
from .vocabulary import CallStatus, FailureSeverity, InputSource, SynthesisStrategy, ToolClass

__all__ = [
    "BreakerProbeRequested",
    "ContextCompacted",
    "ErrorInfo",
    "Event",
    "EventBase",
    "FailureReported",
    "FeedbackFalseAlarm",
    "GuaranteeLimits",
    "GuaranteeOverridden",
    "InputReceived",
    "ModelText",
    "ModelsAvailable",
    "NudgeDelivered",
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
        settings: overrides of this session.
        reports_turn_ends: this publisher sends `turn.ended` for every turn; required to report silence in an open turn
            as `stalled_turn` before the first turn has ended.
        reports_deliveries: this publisher sends `nudge.delivered` for every nudge that an answer carried to the model;
            others are withdrawn, and not judged. Absent: every nudge counts as delivered.
        models: models that may be suggested in this session. Absent: not stated.
    """

    settings: SettingsOverrides | None = None
    reports_turn_ends: bool | None = None
    reports_deliveries: bool | None = None
    models: ModelNames | None = None


class SessionEnded(EventBase, kw_only=True, frozen=True, omit_defaults=True, tag="session.ended"):
    """A conversation has ended; its open calls and turns are closed.

    Attributes:
        reason: reason, in the publisher's words.
    """

    reason: str | None = None


class SessionSettingsChanged(EventBase, kw_only=True, frozen=True, omit_defaults=True, tag="session.settings_changed"):
    """Replaces the overrides of the session.

    Attributes:
        settings: the overrides; an absent or null one inherits, an explicit false wins.
    """

    settings: SettingsOverrides


class TurnStarted(EventBase, kw_only=True, frozen=True, omit_defaults=True, tag="turn.started"):
    """A turn of the model begins; `turn_index` is its index."""


class TurnEnded(EventBase, kw_only=True, frozen=True, omit_defaults=True, tag="turn.ended"):
    """A turn of the model has ended.

    Attributes:
        stalled: the platform ended the turn because nothing happened.
    """

    stalled: bool | None = None


class ToolCallStarted(EventBase, kw_only=True, frozen=True, omit_defaults=True, tag="tool_call.started"):
    """A tool call begins.

    Attributes:
        call_id: id that pairs the start with its finish; may repeat within a session.
        message_id: id of the model's message that made the call. The calls of one message are one step: the model has
            seen none of their results when it makes them.
        tool_name: name of the tool as the model uses it.
        plugin_name: plugin that provides the tool; selects a layer of the rules.
        service: MCP server of the tool, if any.
        args: arguments, an object; redacted by the publisher.
        args_digest: digest instead of `args` if they are private: equal for equal arguments.
        failure_key: with `args_digest`: key that the publisher derived from the arguments.
        tool_class: with `args_digest`: class that the publisher guessed from the arguments; not a declaration.
        deadline_ms: milliseconds after which an unfinished call counts as timed out. Absent: 10 minutes.
        idempotency_key: key of the call, for the publisher's deduplication; not read.
        scenario: purpose of the call in words; used for tool quality.
        recursion_depth: 1 or more for a call made by a called model.
        annotations: MCP hints of the tool: `readOnlyHint`, `destructiveHint`, `idempotentHint`.
        approvals: ids of the operator's approvals (`trust.approve`) that let the call pass; it consumes them.
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
    message_id: Name | None = None


class ToolCallFinished(EventBase, kw_only=True, frozen=True, omit_defaults=True, tag="tool_call.finished"):
    """A tool call has ended. Without a start it represents the whole call.

    Attributes:
        call_id: id of the call: the latest open one with this id.
        tool_name: name of the tool, so that a finish without a start is usable.
        status: how it ended. `circuit_open`: it was never made; `cancelled`: neither success nor failure; `lost`: its
            end is unknown, neither success nor failure; `rejected`: the client refused it before it ran (a file that
            was not read, an unknown tool, arguments that do not fit), which says nothing about the tool.
        plugin_name: plugin that provides the tool.
        service: MCP server of the tool, if any.
        duration_ms: milliseconds, measured by the publisher.
        attempts: number of attempts, including retries.
        error: error of the call.
        result: return value of the tool, any JSON; digested and classified on arrival, never stored.
        result_digest: digest instead of `result` if it is private: equal for equal results.
        result_sketch: sketch instead of `result`: what the folds read of it, as a history keeps it.
        result_size: size of the result in bytes.
        from_cache: the tool was not called; changes no counts.
        cost_usd: cost in US dollars.
        expected_failure: a failure that does not count against the tool (a search without a match).
        approvals: as in the start; for a finish without one.
        workspace_digest: state of the workspace after the call, any text that is equal for equal states: shows whether
            anything has changed between two calls. Absent: not stated.
    """

    call_id: Name
    tool_name: Name
    status: CallStatus
    plugin_name: Name | None = None
    service: Name | None = None
    duration_ms: SpanMs | None = None
    attempts: Count | None = None
    error: ErrorInfo | None = None
    result: Raw | UnsetType = UNSET
    result_digest: Name | None = None
    result_sketch: ResultSketch | None = None
    result_size: Count | None = None
    from_cache: bool | None = None
    cost_usd: Money | None = None
    expected_failure: bool | None = None
    approvals: Approvals = ()
    workspace_digest: Name | None = None


class UserMessage(EventBase, kw_only=True, frozen=True, omit_defaults=True, tag="user.message"):
    """A user message; ends every streak.

    Attributes:
        text_digest: digest of the text, equal for equal texts; the text itself is not sent.
        words: number of words of the text.
    """

    text_digest: Name | None = None
    words: Count | None = None


class InputReceived(EventBase, kw_only=True, frozen=True, omit_defaults=True, tag="input.received"):
    """Something other than the user spoke to the model: what the model says next may be its answer.

    Attributes:
        source: `report` of work in the background, another `agent`, `timer`, `hook`, or the `client` itself.
        text_digest: digest of the text, equal for equal texts; the text itself is not sent.
    """

    source: InputSource
    text_digest: Name | None = None


class ContextCompacted(EventBase, kw_only=True, frozen=True, omit_defaults=True, tag="context.compacted"):
    """The model's context was shortened: what the model has read before, it may have to read again."""


class ModelText(EventBase, kw_only=True, frozen=True, omit_defaults=True, tag="model.text"):
    """One whole message of the model, not a chunk of a stream.

    Attributes:
        text: text of the message.
        text_digest: digest instead of `text` if it is private.
        announces: with `text_digest`: the message announces work to come.
        mentions: names of tools in the message; needed with `text_digest`, read with `text` too.
        thought: the text is the model's reasoning and not a message: it announces nothing and is no monologue.
    """

    text: str | None = None
    text_digest: Name | None = None
    announces: bool | None = None
    mentions: tuple[ShortText, ...] = ()
    thought: bool | None = None


class PermissionRequested(EventBase, kw_only=True, frozen=True, omit_defaults=True, tag="permission.requested"):
    """A call waits for a person's permission: its deadline is paused until `permission.resolved`.

    May be published before the call's `tool_call.started` or after it.

    Attributes:
        call_id: id of the call that waits.
        tool_name: name of its tool.
    """

    call_id: Name
    tool_name: Name


class PermissionResolved(EventBase, kw_only=True, frozen=True, omit_defaults=True, tag="permission.resolved"):
    """A permission request was answered: if granted, the call's deadline continues; if denied, the call is closed.

    Attributes:
        call_id: id of the call that asked.
        tool_name: name of its tool.
        granted: the answer. A denial is counted for the key, never as a failure.
        method: how it was answered, in the platform's words, e.g. `user`, `policy`, `whitelist`.
    """

    call_id: Name
    tool_name: Name
    granted: bool
    method: Name | None = None


class ModelsAvailable(EventBase, kw_only=True, frozen=True, omit_defaults=True, tag="models.available"):
    """Replaces the models that may be suggested in this session.

    Attributes:
        models: names of models; empty: none may be suggested.
    """

    models: ModelNames


class FailureReported(EventBase, kw_only=True, frozen=True, omit_defaults=True, tag="failure.reported"):
    """A plugin reports a failure of a tool without a call of its own (docs/design/guard.md#hooks-and-reports).

    Attributes:
        tool_name: the tool that failed.
        error: error of the tool.
        severity: overrides the classification.
        domain: host, for HTTP tools.
        service: server, for MCP tools.
        plugin_name: plugin that reports.
        context: information for analysts; not read by any fold.
        recoverable: False: trust is not restored automatically.
    """

    tool_name: Name
    error: ErrorInfo | None = None
    severity: FailureSeverity | None = None
    domain: Name | None = None
    service: Name | None = None
    plugin_name: Name | None = None
    context: Raw | UnsetType = UNSET
    recoverable: bool | None = None


class SuccessReported(EventBase, kw_only=True, frozen=True, omit_defaults=True, tag="success.reported"):
    """A plugin reports a success of a tool without a call of its own.

    Attributes:
        tool_name: the tool that worked.
        domain: host, for HTTP tools.
        service: server, for MCP tools.
        plugin_name: plugin that reports.
        context: information for analysts; not read by any fold.
    """

    tool_name: Name
    domain: Name | None = None
    service: Name | None = None
    plugin_name: Name | None = None
    context: Raw | UnsetType = UNSET


class BreakerProbeRequested(EventBase, kw_only=True, frozen=True, omit_defaults=True, tag="breaker.probe_requested"):
    """A guard requests the fleet's one probe of a half-open circuit.

    Attributes:
        breaker_key: key of the circuit: `tool:NAME`, `service:NAME` or `tier:NAME`; a bare name means a tool.
        guard_id: id of the guard; becomes the holder of the lease.
        call_id: id of the call that would be the probe.
    """

    breaker_key: Name
    guard_id: Name
    call_id: Name


class GuaranteeLimits(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """New limits of a session; an absent limit is unchanged (docs/design/semantics.md#guarantees).

    Attributes:
        max_cost_usd: US dollars.
        max_duration_seconds: seconds.
        max_recursive_calls: calls.
    """

    max_cost_usd: Money | None = None
    max_duration_seconds: SpanSeconds | None = None
    max_recursive_calls: Count | None = None


class GuaranteeOverridden(EventBase, kw_only=True, frozen=True, omit_defaults=True, tag="guarantee.overridden"):
    """A person allowed a session to exceed its limits, once (docs/design/semantics.md#guarantees).

    Attributes:
        limits: limits that apply from now on.
        confirmed_by: person who confirmed.
    """

    limits: GuaranteeLimits
    confirmed_by: Name


class NudgeDelivered(EventBase, kw_only=True, frozen=True, omit_defaults=True, tag="nudge.delivered"):
    """An answer carried a nudge to the model: from now on it counts.

    Attributes:
        nudge_id: id of the `nudge.issued`.
    """

    nudge_id: Name


class FeedbackFalseAlarm(EventBase, kw_only=True, frozen=True, omit_defaults=True, tag="feedback.false_alarm"):
    """A platform or a person reports that a nudge or an escalation was a false alarm.

    Attributes:
        output_id: id of the output.
        reason: reason in words.
    """

    output_id: Name
    reason: str | None = None


class SynthesisResult(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """One recursive result of a synthesis.

    Attributes:
        confidence: confidence of the result, 0 to 1.
        id: the publisher's id of the result.
        weight: its share in the synthesis, 0 to 1.
        included: the result was used.
    """

    confidence: Ratio
    id: ShortText | None = None
    weight: Ratio | None = None
    included: bool | None = None


class ConfidenceSignals(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """Signals that a confidence was computed from, each 0 to 1 (docs/design/semantics.md#confidence).

    Attributes:
        self_consistency: agreement of several samples.
        trace_coherence: coherence of the reasoning steps.
        tool_success: share of the tool calls that succeeded. Absent: the share of the session's calls is reported.
        source_reliability: reliability of the sources read.
    """

    self_consistency: Ratio | None = None
    trace_coherence: Ratio | None = None
    tool_success: Ratio | None = None
    source_reliability: Ratio | None = None


class SynthesisCompleted(EventBase, kw_only=True, frozen=True, omit_defaults=True, tag="synthesis.completed"):
    """Recursive results were combined (docs/design/semantics.md#confidence).

    Attributes:
        strategy: how they were combined.
        confidence: confidence of the synthesis, 0 to 1; below 0.3 it is flagged for review.
        results: results that were combined.
        signals: signals that the confidence was computed from.
    """

    strategy: SynthesisStrategy
    confidence: Ratio
    results: tuple[SynthesisResult, ...] = ()
    signals: ConfidenceSignals | None = None


class TimePassed(EventBase, kw_only=True, frozen=True, omit_defaults=True, tag="time.passed"):
    """A timer event: processes what is due in this session up to its time.

    Appended by trustfold itself to report silence or an overdue call if no other event arrives
    (docs/design/contracts.md#time-and-order). Platforms need not publish it; it does not count as activity of the
    session.
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
    | InputReceived
    | ContextCompacted
    | ModelText
    | PermissionRequested
    | PermissionResolved
    | ModelsAvailable
    | FailureReported
    | SuccessReported
    | BreakerProbeRequested
    | GuaranteeOverridden
    | NudgeDelivered
    | FeedbackFalseAlarm
    | SynthesisCompleted
    | TimePassed
)
"""Union of all records on the `events` topic."""
