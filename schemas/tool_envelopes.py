"""The envelopes of one tool call, version 1.1 (docs/design/guard.md#envelopes).

They are no records of a topic: a platform hands the first to its guard and gets the second back, in its own process or
over its own wire. Field names on the wire are in camel case.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from .fields import Count, Name
from .vocabulary import BreakerState


class DedupeMode(StrEnum):
    """What happens to a call whose twin is running or done (docs/design/guard.md#idempotency)."""

    ENFORCED = "enforced"
    BEST_EFFORT = "bestEffort"
    DISABLED = "disabled"


class ResultStatus(StrEnum):
    """How a guarded call ended."""

    SUCCESS = "success"
    ERROR = "error"
    RETRIABLE_ERROR = "retriable_error"
    RETRY_EXHAUSTED = "retry_exhausted"
    CIRCUIT_OPEN = "circuit_open"
    TIMEOUT = "timeout"


class EnvelopePart(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True, rename="camel"):
    """Base of everything here."""


class CallTarget(EnvelopePart, kw_only=True, frozen=True):
    """For whom the call is made.

    Attributes:
        session_key: the conversation.
        actor_id: user or account on whose behalf it is made; part of a computed idempotency key.
        agent_id: which agent of the session.
        workspace_id: where the tools live; trust and breakers are kept per workspace.
        correlation_id: for the caller's own tracing.
        tenant_id: for the caller's own accounting.
    """

    session_key: Name
    actor_id: Name
    agent_id: Name | None = None
    workspace_id: Name | None = None
    correlation_id: Name | None = None
    tenant_id: Name | None = None


class CallHints(EnvelopePart, kw_only=True, frozen=True):
    """What the caller knows about the call.

    Attributes:
        safety_critical: never retried, whatever else is said.
        expected_retry_safe: doing it twice does no harm.
        timeout_ms: milliseconds that one attempt may take.
    """

    safety_critical: bool | None = None
    expected_retry_safe: bool | None = None
    timeout_ms: Annotated[int, Meta(ge=1, le=86_400_000)] | None = None


class CallPayload(EnvelopePart, kw_only=True, frozen=True):
    """What is to be done.

    Attributes:
        version: of this part.
        params: arguments of the tool.
        idempotency_key: calls of one session with the same key are one call.
        call_hints: what the caller knows about the call.
    """

    version: Literal["1.0"] = "1.0"
    params: dict[str, Any] = {}
    idempotency_key: Name | None = None
    call_hints: CallHints | None = None


class RetryBudget(EnvelopePart, kw_only=True, frozen=True):
    """How much may be tried.

    Attributes:
        max_attempts: attempts, the first one included.
        max_elapsed_ms: milliseconds after the start in which a further attempt may begin.
    """

    max_attempts: Annotated[int, Meta(ge=1, le=100)] = 4
    max_elapsed_ms: Annotated[int, Meta(ge=0, le=86_400_000)] = 30_000


class CallTransport(EnvelopePart, kw_only=True, frozen=True):
    """How the call is carried.

    Attributes:
        dedupe_mode: what happens to a call whose twin is running or done; absent: the guard's own setting.
        retry_budget: how much may be tried; absent: the tool's own.
        circuit_breaker_hint: which circuit the caller has in mind; the guard asks all of the call's circuits.
    """

    dedupe_mode: DedupeMode | None = None
    retry_budget: RetryBudget | None = None
    circuit_breaker_hint: Literal["tool", "dependency", "global"] | None = None


class CallControl(EnvelopePart, kw_only=True, frozen=True):
    """Bounds and marks.

    Attributes:
        deadline_at_ms: milliseconds since the epoch after which nobody waits for the result.
        request_tags: marks of the caller.
        from_hook: hook that made the call.
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
    """One call of a tool, before it is made (docs/design/guard.md#envelopes).

    Attributes:
        contract_version: of the envelope.
        request_id: unique per request, a UUIDv7 or ULID by custom.
        tool_name: the tool as the model names it.
        tool_namespace: where the tool is defined, e.g. `agents.tools.messaging`.
        target: for whom the call is made.
        payload: what is to be done.
        tool_call_id: id that the model gave the call.
        transport: how the call is carried.
        control: bounds and marks.
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
    """Which earlier call a result comes from.

    Attributes:
        matched_on: that call was still running, or done.
        age_ms: milliseconds since it began.
        key_fingerprint: digest of the idempotency key.
    """

    matched_on: Literal["inflight", "completed"]
    age_ms: float
    key_fingerprint: str


class ResultOutput(EnvelopePart, kw_only=True, frozen=True):
    """What the tool returned.

    Attributes:
        content: any JSON.
        metadata: what the guard has to say about it.
    """

    content: Any
    metadata: dict[str, Any] = {}


class ResultError(EnvelopePart, kw_only=True, frozen=True):
    """What went wrong.

    Attributes:
        code: HTTP status, error type, or one of the guard's own words.
        message: free text.
        retriable: another attempt might have a different end.
        terminal: the same call will end the same way.
        breaker_state: of the circuit, where one had a say.
    """

    code: str
    message: str
    retriable: bool
    terminal: bool
    breaker_state: BreakerState | None = None


class RetryRecord(EnvelopePart, kw_only=True, frozen=True):
    """One failed attempt that was followed by another.

    Attributes:
        attempt: its number, from 1.
        delay_ms: milliseconds waited after it.
        reason_code: why it failed: HTTP status, error type or `timeout`.
        latency_ms: milliseconds it took.
    """

    attempt: int
    delay_ms: float
    reason_code: str
    latency_ms: float


class ToolResultEnvelope(EnvelopePart, kw_only=True, frozen=True):
    """One call of a tool, after it was made or refused (docs/design/guard.md#envelopes).

    Attributes:
        request_id: of the call.
        status: how it ended.
        from_cache: the tool was not called: an earlier call with the same key gave the result.
        tool_name: the tool.
        duration_ms: milliseconds from the request to the result.
        attempts: how often the tool was called.
        cache: which earlier call the result comes from.
        output: what the tool returned.
        error: what went wrong.
        retried_by: attempts that were followed by another.
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
"""Published as schemas of their own, beside the records of the topics."""
