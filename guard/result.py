"""What a guarded call gives back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..schemas.tool_envelopes import CacheHit, ResultError, ResultOutput, ResultStatus, RetryRecord, ToolResultEnvelope
from .errors import CallNotPermitted, EnvelopeRejected, ToolFailed
from .json_view import text_of

REFUSALS = frozenset(
    {
        "circuit_open",
        "blocked",
        "removed",
        "denied",
        "approval_required",
        "guarantee_exceeded",
        "key_conflict",
        "in_flight",
        "result_unavailable",
    }
)
"""Error codes of calls that the guard did not make."""


@dataclass(frozen=True, slots=True)
class FallbackResult:
    """What stands in for the result of a call that was not made (docs/design/guard.md#order-of-a-call).

    Attributes:
        reason: why it was not made.
        suggestion: what to do in its place.
        original_query: what was asked.
        is_fallback: True, for those who see only the fields.
    """

    reason: str
    suggestion: str
    original_query: Any = None
    is_fallback: bool = True


@dataclass(slots=True, kw_only=True)
class ToolResult:
    """How one guarded call ended; a guarded call never raises what its tool raises.

    Attributes:
        request_id: of the call.
        tool_name: the tool.
        status: how it ended.
        output: what the tool returned, as it was returned; also where that reports a failure.
        error: what went wrong; None on success.
        attempts: how often the tool was called.
        duration_ms: milliseconds from the request to the result.
        from_cache: an earlier call with the same key gave the result.
        cache: which one.
        retried_by: attempts that were followed by another.
        exception: what the tool raised last, if it raised.
        metadata: remarks: `shadow` (what would have been refused), `plan` (how to end well), `approval`.
    """

    request_id: str
    tool_name: str
    status: ResultStatus
    output: Any = None
    error: ResultError | None = None
    attempts: int = 0
    duration_ms: float = 0.0
    from_cache: bool = False
    cache: CacheHit | None = None
    retried_by: tuple[RetryRecord, ...] = ()
    exception: BaseException | None = None
    metadata: dict[str, Any] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Whether the tool did what it was asked."""
        return self.status is ResultStatus.SUCCESS

    @property
    def refused(self) -> bool:
        """Whether the guard did not make the call."""
        return self.error is not None and self.attempts == 0 and self.error.code in REFUSALS

    def fallback(self, original_query: Any = None) -> FallbackResult | None:
        """What to go on with where the guard did not make the call; None where it did."""
        if not self.refused or self.error is None:
            return None
        reason, _, suggestion = self.error.message.rpartition("; ")
        return FallbackResult(reason or suggestion, suggestion, original_query)

    def unwrap(self) -> Any:
        """The tool's own return value.

        Raises:
            CallNotPermitted: the guard did not make the call.
            ToolFailed: the tool returned a failure.
            BaseException: what the tool raised.
        """
        if self.error is None:
            return self.output
        if self.exception is not None:
            raise self.exception
        if self.refused:
            raise CallNotPermitted(self.error.code, self.tool_name, self.error.message)
        raise ToolFailed(self.error.code, self.error.message, self.output)

    def envelope(self) -> ToolResultEnvelope:
        """The result as published (docs/design/guard.md#envelopes); the output must be JSON to be encoded."""
        shown = self.output is not None or self.ok
        return ToolResultEnvelope(
            request_id=self.request_id,
            status=self.status,
            from_cache=self.from_cache,
            tool_name=self.tool_name,
            duration_ms=self.duration_ms,
            attempts=self.attempts,
            cache=self.cache,
            output=ResultOutput(content=self.output, metadata=self.metadata) if shown else None,
            error=self.error,
            retried_by=self.retried_by,
        )


def refusal(code: str, message: str) -> ResultError:
    """An error of the guard's own: the tool was not called."""
    return ResultError(code=code, message=message, retriable=code in {"circuit_open", "in_flight"}, terminal=False)


def rejected_call(rejected: EnvelopeRejected, tool_name: str) -> ToolResult:
    """The answer to a call that makes no sense: terminal, and a failure as any other."""
    error = ResultError(code=rejected.code, message=str(rejected), retriable=False, terminal=True)
    return ToolResult(request_id="", tool_name=tool_name, status=ResultStatus.ERROR, error=error, exception=rejected)


def refused_envelope(rejected: EnvelopeRejected, envelope: Any) -> ToolResult:
    """The answer to an envelope that describes no call: terminal, with the ids that can be read."""
    shown = envelope if isinstance(envelope, Mapping) else {}
    error = ResultError(code="validation_error", message=str(rejected), retriable=False, terminal=True)
    return ToolResult(
        request_id=text_of(shown.get("requestId", "")),
        tool_name=text_of(shown.get("toolName", "")),
        status=ResultStatus.ERROR,
        error=error,
        exception=rejected,
    )
