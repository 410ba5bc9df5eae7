"""Result of a guarded call."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic

import msgspec

from ..schemas.tool_envelopes import CacheHit, ResultError, ResultOutput, ResultStatus, RetryRecord, ToolResultEnvelope
from .errors import CallNotPermitted, EnvelopeRejected, ToolFailed
from .json_view import text_of

if TYPE_CHECKING:  # a default for it is known to type checkers alone before Python 3.13
    from typing_extensions import TypeVar

    T = TypeVar("T", default=Any)
else:
    from typing import TypeVar

    T = TypeVar("T")

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
        "outcome_unknown",
        "result_unavailable",
        "store_unavailable",
        "deadline_exceeded",
    }
)
"""Error codes of calls that the guard did not make."""

RETRIABLE = frozenset({"circuit_open", "in_flight", "store_unavailable"})
"""Those of calls that may be made a little later, with nobody's help."""


NO_DETOUR = "Do not try to reach the same goal another way; tell the user what you wanted to do."
"""Last sentence of a refusal for the model: what may not be done by one call may not be done by another one."""


@dataclass(frozen=True, slots=True)
class FallbackResult:
    """Substitute for the result of a call that was not made (docs/design/guard.md#order-of-a-call).

    Attributes:
        reason: why the call was not made.
        suggestion: what to do instead.
        original_query: the query of the call.
        is_fallback: always True, to recognise the object by its fields.
    """

    reason: str
    suggestion: str
    original_query: Any = None
    is_fallback: bool = True


@dataclass(slots=True, kw_only=True)
class ToolResult(Generic[T]):
    """End of one guarded call; exceptions of the tool are returned, not raised.

    Attributes:
        request_id: id of the request.
        tool_name: name of the tool.
        status: status of the call.
        output: return value of the tool, unchanged; also if it reports a failure.
        error: error of the call; None on success.
        attempts: number of times the tool was called.
        duration_ms: milliseconds from the request to the result.
        from_cache: the result comes from an earlier call with the same key.
        cache: that call.
        retried_by: attempts that were retried.
        exception: last exception of the tool; None if it raised none.
        metadata: further information: `shadow` (refusal that was not enforced), `plan` (how to end), `approval`.
    """

    request_id: str
    tool_name: str
    status: ResultStatus
    output: T | None = None
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
        """Whether the call succeeded."""
        return self.status is ResultStatus.SUCCESS

    @property
    def refused(self) -> bool:
        """Whether the guard did not make the call."""
        return self.error is not None and self.attempts == 0 and self.error.code in REFUSALS

    def fallback(self, original_query: Any = None) -> FallbackResult | None:
        """Return a substitute result if the guard did not make the call; None if it did."""
        if not self.refused or self.error is None:
            return None
        reason, _, suggestion = self.error.message.rpartition("; ")
        return FallbackResult(reason or suggestion, suggestion, original_query)

    def unwrap(self) -> T:
        """Return the tool's own return value.

        Raises:
            CallNotPermitted: the guard did not make the call.
            ToolFailed: the tool returned a failure.
            BaseException: what the tool raised.
        """
        if self.error is None:
            output: Any = self.output
            made: T = output
            return made
        if self.exception is not None:
            raise self.exception
        if self.refused:
            raise CallNotPermitted(self.error.code, self.tool_name, self.error.message)
        raise ToolFailed(self.error.code, self.error.message, self.output)

    def given_back(self) -> Any:
        """Return what the tool returned, a failure that it reports as well.

        Raises:
            CallNotPermitted: the guard did not make the call.
            ToolFailed: there is no return value: its time was up.
            BaseException: what the tool raised.
        """
        reported = self.exception is None and self.output is not None
        return self.output if reported else self.unwrap()

    def envelope(self) -> ToolResultEnvelope:
        """Return the result as an envelope (docs/design/guard.md#envelopes); encoding it needs a JSON output."""
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
    """Create an error of the guard: the tool was not called."""
    return ResultError(code=code, message=message, retriable=code in RETRIABLE, terminal=False)


def deadline_passed(tool_name: str) -> ResultError:
    """Create the error of a call whose deadline passed before it was made."""
    message = f"the deadline of '{tool_name}' passed before it ran; it was not called"
    return msgspec.structs.replace(refusal("deadline_exceeded", message), terminal=True)


def told_to_model(code: str, message: str) -> str:
    """Return the text for the model about a call that the guard refused, by the code and message of the refusal.

    It forbids the detour, unless the call failed fast for now: another tool may well do it while a service is down.
    """
    return f"trustfold: {message}." if code in RETRIABLE else f"trustfold: {message}. {NO_DETOUR}"


def rejected_call(rejected: EnvelopeRejected, tool_name: str) -> ToolResult:
    """Return the result of an invalid call: a terminal failure."""
    error = ResultError(code=rejected.code, message=str(rejected), retriable=False, terminal=True)
    return ToolResult(request_id="", tool_name=tool_name, status=ResultStatus.ERROR, error=error, exception=rejected)


def refused_envelope(rejected: EnvelopeRejected, envelope: Any) -> ToolResult:
    """Return the result of an invalid envelope: a terminal failure, with the ids that can be read."""
    shown = envelope if isinstance(envelope, Mapping) else {}
    error = ResultError(code="validation_error", message=str(rejected), retriable=False, terminal=True)
    return ToolResult(
        request_id=text_of(shown.get("requestId", "")),
        tool_name=text_of(shown.get("toolName", "")),
        status=ResultStatus.ERROR,
        error=error,
        exception=rejected,
    )
