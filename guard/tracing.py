"""OpenTelemetry spans of guarded calls, in the GenAI conventions; disabled by default (extra `otel`)."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

from ..schemas.envelope import traceparent_of
from ..security.redaction import redact_text
from .privacy import secrets_in
from .request import GuardedCall
from .result import ToolResult

_NOTHING: AbstractContextManager[Any] = nullcontext()


class GuardTracing:
    """Creates the spans of one guard."""

    def __init__(self, *, enabled: bool) -> None:
        """Import OpenTelemetry only if tracing is enabled.

        Raises:
            ImportError: tracing is enabled and OpenTelemetry is not installed.
        """
        self._tracer: Any = None
        if enabled:
            from opentelemetry import trace  # extra `otel`

            self._tracer = trace.get_tracer("trustfold.guard")

    def call(self, call: GuardedCall) -> AbstractContextManager[Any]:
        """A span around a whole call."""
        if self._tracer is None:
            return _NOTHING
        attributes = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": _shown(call, call.name),
            "gen_ai.tool.call.id": _shown(call, call.call_id),
            "gen_ai.conversation.id": _shown(call, call.session_id),
            "trustfold.guard": True,
        }
        parent = call.trace.traceparent if call.trace is not None else None
        return self._span("tool_execution", attributes, parent=self._context_of(parent) if parent else None)

    @staticmethod
    def _context_of(traceparent: str) -> Any:
        """Context of the platform's span that an envelope names, the parent of the call's."""
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        return TraceContextTextMapPropagator().extract({"traceparent": traceparent})

    @staticmethod
    def traceparent(span: Any, call: GuardedCall) -> str | None:
        """W3C trace context of a call: of its span, else of its envelope; None if neither has a valid one."""
        if span is None:
            return traceparent_of(None, call.trace.traceparent) if call.trace is not None else None
        own = span.get_span_context()
        return f"00-{own.trace_id:032x}-{own.span_id:016x}-{own.trace_flags:02x}" if own.is_valid else None

    def retry(self, call: GuardedCall, attempt: int, wait_ms: float) -> AbstractContextManager[Any]:
        """A child span around the wait for a retry."""
        if self._tracer is None:
            return _NOTHING
        attributes = {
            "gen_ai.tool.name": _shown(call, call.name),
            "retry.attempt": attempt,
            "retry.delay_ms": wait_ms,
        }
        return self._span("retry_delay", attributes)

    def _span(self, name: str, attributes: dict[str, Any], *, parent: Any = None) -> AbstractContextManager[Any]:
        span: AbstractContextManager[Any] = self._tracer.start_as_current_span(
            name, context=parent, attributes=attributes, record_exception=False, set_status_on_exception=False
        )
        return span

    def ended(self, span: Any, call: GuardedCall, result: ToolResult) -> None:
        """Set status and published idempotency key of a call on its span; does nothing if `span` is None."""
        if span is None:
            return
        span.set_attribute("trustfold.status", str(result.status))
        span.set_attribute("trustfold.attempts", result.attempts)
        if (key := call.notes.key_fingerprint) is not None:
            span.set_attribute("idempotency.key", key)
        if result.error is None:
            return
        span.set_attribute("error.type", _shown(call, result.error.code))
        if result.error.breaker_state is not None:
            span.set_attribute("breaker.state", str(result.error.breaker_state))


def _shown(call: GuardedCall, text: str) -> str:
    """Return a name without secrets, including those among the call's arguments."""
    return redact_text(text, secrets_in(call.plain_args))
