"""Converts tool spans to events (OpenTelemetry GenAI conventions, `execute_tool`; MCP's `tools/call`).

Event ids derive from span ids, so a span that is exported twice is one call. Arguments and results of a span are
treated like a guarded call's: published as digests and keys, or redacted.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

import msgspec
import orjson

from ...projections.calls.classify import RawFailure, classify
from ...schemas import events as ev
from ...schemas.envelope import output_id
from ...schemas.event_base import EARLIEST, LATEST, epoch_ms
from ...schemas.vocabulary import CallStatus, ToolClass
from ...security.redaction import redact_text
from ..failure import of_result
from ..privacy import PrivacyFilter
from ..request import GuardedCall
from ..settings import GuardSettings
from ..tools import ToolRegistration

MAX_NAME = 256

# Bounds of span times, [EARLIEST_MS, LATEST_MS), the same as of events
EARLIEST_MS, LATEST_MS = epoch_ms(EARLIEST), epoch_ms(LATEST)


class ToolSpan(NamedTuple):
    """One span, from any source."""

    trace_id: str  # 32 hex digits
    span_id: str  # 16 hex digits
    name: str  # name of the span
    start_ms: int  # milliseconds since the epoch
    end_ms: int  # milliseconds since the epoch; 0 while it is open
    failed: bool  # its status is an error
    message: str  # message of that status
    attributes: Mapping[str, Any]  # attributes by name
    exception: tuple[str, str] = ("", "")  # type and message of a recorded exception


def tool_name_of(span: ToolSpan) -> str:
    """Return the tool name of a span; empty for other spans and for spans of a guard."""
    given = span.attributes
    if given.get("trustfold.guard"):
        return ""
    is_tool = given.get("gen_ai.operation.name") == "execute_tool" or (
        given.get("mcp.method.name") == "tools/call" and given.get("gen_ai.tool.name")
    )
    if not is_tool:
        return ""
    name = given.get("gen_ai.tool.name") or span.name.removeprefix("execute_tool ").strip()
    return _name(name)


def started(span: ToolSpan, settings: GuardSettings, privacy: PrivacyFilter) -> ev.ToolCallStarted | None:
    """Convert the start of a tool span; None for other spans."""
    tool = tool_name_of(span)
    if not tool:
        return None
    given = span.attributes
    args = _parsed(given.get("gen_ai.tool.call.arguments"))
    fields: dict[str, Any] = {}
    if isinstance(args, dict):
        call = GuardedCall(ToolRegistration(name=tool, service=_service(given)), args, "span", settings.workspace_id)
        call.families, call.rules = settings.families, settings.calls
        if privacy.send_args:
            fields["args"] = privacy.args(args)
        else:
            guess = call.tool_class
            fields = {
                "args_digest": privacy.args_digest(args),
                "failure_key": call.key.fine,
                "tool_class": None if guess is ToolClass.UNKNOWN else guess,
            }
    return ev.ToolCallStarted(
        **_envelope(span, "tool_call.started", span.start_ms, settings),
        call_id=_call_id(span),
        tool_name=tool,
        service=_service(given),
        **fields,
    )


def finished(span: ToolSpan, settings: GuardSettings, privacy: PrivacyFilter) -> ev.ToolCallFinished | None:
    """Convert the end of a tool span; None for other spans."""
    tool = tool_name_of(span)
    if not tool:
        return None
    given = span.attributes
    kind = str(given.get("error.type") or span.exception[0] or "")
    result = _parsed(given.get("gen_ai.tool.call.result"))
    reported = of_result(result) if not span.failed else None
    status, error = CallStatus.SUCCESS, None
    if span.failed or (kind and kind != "_OTHER"):
        number = given.get("http.response.status_code")
        http_status = number if isinstance(number, int) and 100 <= number <= 599 else None
        message = span.message or span.exception[1]
        failure = RawFailure(type=kind if kind != "_OTHER" else "", message=message, http_status=http_status)
        status = CallStatus.TIMEOUT if "timeout" in kind.lower() else CallStatus.ERROR
        error = ev.ErrorInfo(
            type=privacy.word(failure.type, {}) or None,
            message=privacy.message(message, {}) or None,
            http_status=http_status,
            severity=None if privacy.send_errors else classify(failure, status=str(status), dangerous=False),
        )
    elif reported is not None:
        status = CallStatus.ERROR
        error = ev.ErrorInfo(
            type=privacy.word(reported.type, {}) or None,
            message=privacy.message(reported.message, {}) or None,
            http_status=reported.http_status,
            code=privacy.word(reported.code, {}) or None,
            severity=None if privacy.send_errors else reported.severity,
        )
    digest, size = privacy.result_digest(result) if result is not None and error is None else (None, None)
    return ev.ToolCallFinished(
        **_envelope(span, "tool_call.finished", max(span.end_ms, span.start_ms), settings),
        call_id=_call_id(span),
        tool_name=tool,
        status=status,
        service=_service(given),
        duration_ms=float(max(0, span.end_ms - span.start_ms)),
        error=error,
        result_digest=digest,
        result_size=size,
    )


def _envelope(span: ToolSpan, kind: str, at_ms: int, settings: GuardSettings) -> dict[str, Any]:
    if not EARLIEST_MS <= at_ms < LATEST_MS:
        raise ValueError("a span's time is outside of the years 2000 to 2099")
    given = span.attributes
    session = given.get("gen_ai.conversation.id") or given.get("session.id") or f"trace-{span.trace_id}"
    return {
        "schema_version": "1.0",
        "id": output_id(f"{span.trace_id}/{span.span_id}", kind, 0),
        "time": datetime.fromtimestamp(at_ms / 1000, UTC),
        "session_id": _name(session),
        "workspace_id": settings.workspace_id,
        "user_id": _name(given.get("user.id") or given.get("enduser.id") or settings.user_id or "") or None,
        "agent_id": _name(given.get("gen_ai.agent.id") or settings.agent_id or "") or None,
        "model": _name(given.get("gen_ai.request.model") or settings.model or "") or None,
        "correlation_id": span.trace_id,
        "traceparent": f"00-{span.trace_id}-{span.span_id}-01",
    }


def _call_id(span: ToolSpan) -> str:
    return _name(span.attributes.get("gen_ai.tool.call.id")) or span.span_id


def _service(given: Mapping[str, Any]) -> str | None:
    return _name(given.get("mcp.server.name") or "") or None


def _name(value: Any) -> str:
    """Return a name within the contract's bounds: limited in length, without key separators."""
    return redact_text(str(value or "").replace("\x1f", " ").replace("\x00", " ")[:MAX_NAME]) if value else ""


def _parsed(value: Any) -> Any:
    """Return arguments or a result of a span: parsed if it is JSON text, else the value itself."""
    if not isinstance(value, str):
        return value
    try:
        return orjson.loads(value)
    except orjson.JSONDecodeError:
        return value


def both(span: ToolSpan, settings: GuardSettings, privacy: PrivacyFilter) -> list[msgspec.Struct]:
    """Return start and end events of a tool span; none for other spans."""
    first, last = started(span, settings, privacy), finished(span, settings, privacy)
    return [first, last] if first is not None and last is not None else []
