"""Envelopes of one tool call, version 1.1 (docs/design/guard.md#envelopes).

They are not records of a topic: a platform passes the first to its guard and gets the second back, in its own process
or over its own protocol. Field names on the wire are in camel case.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from .fields import Count, Name
from .vocabulary import BreakerState


class DedupeMode(StrEnum):
    """Treatment of a call whose key is running or done (docs/design/guard.md#idempotency)."""

    ENFORCED = "enforced"
    BEST_EFFORT = "bestEffort"
    DISABLED = "disabled"


class ResultStatus(StrEnum):
    """Status of a guarded call."""

    SUCCESS = "success"
    ERROR = "error"
    RETRIABLE_ERROR = "retriable_error"
    RETRY_EXHAUSTED = "retry_exhausted"
    CIRCUIT_OPEN = "circuit_open"
    TIMEOUT = "timeout"


class EnvelopePart(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True, rename="camel"):
    """Base class of the envelope structs."""


class CallTarget(EnvelopePart, kw_only=True, frozen=True):
    """Owner and context of a call.

    Attributes:
        session_key: id of the conversation.
        actor_id: user or account for whom it is made; part of a computed idempotency key.
        agent_id: agent of the session.
        workspace_id: workspace of the tools; trust and breakers are kept per workspace.
        correlation_id: id for the caller's own tracing.
        tenant_id: tenant, for the caller's own accounting.
    """

    session_key: Name
    actor_id: Name
    agent_id: Name | None = None
    workspace_id: Name | None = None
    correlation_id: Name | None = None
    tenant_id: Name | None = None


class CallHints(EnvelopePart, kw_only=True, frozen=True):
    """Hints of the caller about the call.

    Attributes:
        safety_critical: never retried, regardless of other settings.
        expected_retry_safe: repeating it is harmless.
        timeout_ms: time limit of one attempt in milliseconds.
    """

    safety_critical: bool | None = None
    expected_retry_safe: bool | None = None
    timeout_ms: Annotated[int, Meta(ge=1, le=86_400_000)] | None = None


class CallPayload(EnvelopePart, kw_only=True, frozen=True):
    """Parameters of a call.

    Attributes:
        version: version of this part.
        params: arguments of the tool.
        idempotency_key: calls of one session with the same key are one call.
        call_hints: hints of the caller.
    """

    version: Literal["1.0"] = "1.0"
    params: dict[str, Any] = {}
    idempotency_key: Name | None = None
    call_hints: CallHints | None = None


class RetryBudget(EnvelopePart, kw_only=True, frozen=True):
    """Limits of retries.

    Attributes:
        max_attempts: number of attempts, including the first.
        max_elapsed_ms: milliseconds after the start in which a further attempt may begin.
    """

    max_attempts: Annotated[int, Meta(ge=1, le=100)] = 4
    max_elapsed_ms: Annotated[int, Meta(ge=0, le=86_400_000)] = 30_000


class CallTransport(EnvelopePart, kw_only=True, frozen=True):
    """Options of the call's execution.

    Attributes:
        dedupe_mode: treatment of a call whose key is running or done; absent: the guard's setting.
        retry_budget: limits of retries; absent: the tool's.
        circuit_breaker_hint: circuit that the caller expects; the guard checks all of the call's circuits.
    """

    dedupe_mode: DedupeMode | None = None
    retry_budget: RetryBudget | None = None
    circuit_breaker_hint: Literal["tool", "dependency", "global"] | None = None


class CallControl(EnvelopePart, kw_only=True, frozen=True):
    """Deadline and tags of a call.

    Attributes:
        deadline_at_ms: milliseconds since the epoch after which the result is not needed.
        request_tags: tags of the caller.
        from_hook: name of the hook that made the call.
    """

    deadline_at_ms: Count | None = None
    request_tags: tuple[str, ...] = ()
    from_hook: str | None = None


class CallTrace(EnvelopePart, kw_only=True, frozen=True):
    """Trace context.

    Attributes:
        traceparent: W3C trace context.
        baggage: W3C baggage.
    """

    traceparent: str | None = None
    baggage: dict[str, str] = {}


class ToolCallEnvelope(EnvelopePart, kw_only=True, frozen=True):
    """Request of one tool call (docs/design/guard.md#envelopes).

    Attributes:
        contract_version: version of the envelope.
        request_id: unique id of the request, by convention a UUIDv7 or ULID.
        tool_name: name of the tool as the model uses it.
        tool_namespace: namespace of the tool, e.g. `agents.tools.messaging`.
        target: owner and context of the call.
        payload: parameters of the call.
        tool_call_id: id that the model gave the call.
        transport: options of the call's execution.
        control: deadline and tags.
        trace: trace context.
    """

    contract_version: Literal["1.1"]
    request_id: Name
    tool_name: Name
    tool_namespace: Name
    target: CallTarget
    payload: CallPayload
    tool_call_id: Name | None = None
    transport: CallTransport = CallTransport()
    control: CallControl = CallControl()
    trace: CallTrace = CallTrace()


class CacheHit(EnvelopePart, kw_only=True, frozen=True):
    """Reference to the earlier call that a result comes from.

    Attributes:
        matched_on: state of that call: running or done.
        age_ms: milliseconds since its start.
        key_fingerprint: digest of the idempotency key.
    """

    matched_on: Literal["inflight", "completed"]
    age_ms: float
    key_fingerprint: str


class ResultOutput(EnvelopePart, kw_only=True, frozen=True):
    """Output of a tool.

    Attributes:
        content: return value, any JSON.
        metadata: information added by the guard.
    """

    content: Any
    metadata: dict[str, Any] = {}


class ResultError(EnvelopePart, kw_only=True, frozen=True):
    """Error of a call.

    Attributes:
        code: HTTP status, error type, or an error code of the guard.
        message: text of the error.
        retriable: a retry may succeed.
        terminal: a retry will fail in the same way.
        breaker_state: state of the circuit, if one was involved.
    """

    code: str
    message: str
    retriable: bool
    terminal: bool
    breaker_state: BreakerState | None = None


class RetryRecord(EnvelopePart, kw_only=True, frozen=True):
    """One failed attempt that was retried.

    Attributes:
        attempt: number of the attempt, from 1.
        delay_ms: milliseconds waited after it.
        reason_code: reason of the failure: HTTP status, error type or `timeout`.
        latency_ms: duration of the attempt in milliseconds.
    """

    attempt: int
    delay_ms: float
    reason_code: str
    latency_ms: float


class ToolResultEnvelope(EnvelopePart, kw_only=True, frozen=True):
    """Result of one tool call, made or refused (docs/design/guard.md#envelopes).

    Attributes:
        request_id: id of the request.
        status: status of the call.
        from_cache: the tool was not called; the result comes from an earlier call with the same key.
        tool_name: name of the tool.
        duration_ms: milliseconds from the request to the result.
        attempts: number of times the tool was called.
        cache: earlier call that the result comes from.
        output: output of the tool.
        error: error of the call.
        retried_by: attempts that were retried.
    """

    request_id: str
    status: ResultStatus
    from_cache: bool
    tool_name: str
    duration_ms: float
    attempts: int
    cache: CacheHit | None = None
    output: ResultOutput | None = None
    error: ResultError | None = None
    retried_by: tuple[RetryRecord, ...] = ()


ENVELOPES: dict[str, type[msgspec.Struct]] = {
    "tool-call-envelope": ToolCallEnvelope,
    "tool-result-envelope": ToolResultEnvelope,
}
"""Envelopes with published schemas, besides the records of the topics."""
