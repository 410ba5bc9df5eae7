"""Span processor of this process: `provider.add_span_processor(GuardSpanProcessor(guard))` (extra `otel`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor
from opentelemetry.trace import StatusCode

from . import spans

if TYPE_CHECKING:
    from opentelemetry.context import Context

    from ..guard import ToolGuard


class GuardSpanProcessor(SpanProcessor):
    """Publishes the tool spans of a process through a guard; ignores all other spans."""

    def __init__(self, guard: ToolGuard) -> None:
        """Publish through `guard`."""
        self._guard = guard

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        """Publish the start of a tool call."""
        del parent_context
        guard = self._guard
        if not guard.settings.enabled:
            return
        event = spans.started(_facts(span), guard.settings, guard.privacy)
        if event is not None:
            guard.publisher.send(event)

    def on_end(self, span: ReadableSpan) -> None:
        """Publish the end of a tool call; attributes set after the start (arguments, an id) are not used for it."""
        guard = self._guard
        if not guard.settings.enabled:
            return
        event = spans.finished(_facts(span), guard.settings, guard.privacy)
        if event is not None:
            guard.publisher.send(event)

    def shutdown(self) -> None:
        """Do nothing: the guard is closed separately."""

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Return True: the guard delivers by itself."""
        del timeout_millis
        return True


def _facts(span: Any) -> spans.ToolSpan:
    context = span.context
    exception = next((event.attributes or {} for event in span.events if event.name == "exception"), {})
    return spans.ToolSpan(
        trace_id=f"{context.trace_id:032x}",
        span_id=f"{context.span_id:016x}",
        name=span.name,
        start_ms=(span.start_time or 0) // 1_000_000,
        end_ms=(span.end_time or 0) // 1_000_000,
        failed=span.status.status_code is StatusCode.ERROR,
        message=span.status.description or "",
        attributes=dict(span.attributes or {}),
        exception=(str(exception.get("exception.type", "")), str(exception.get("exception.message", ""))),
    )
