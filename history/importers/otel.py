"""Spans after OpenTelemetry's conventions for generative AI, as OTLP JSON: what a collector's file exporter writes.

`execute_tool` spans become calls, `chat` spans say which model was speaking; arguments and results are taken where a
publisher has opted in to them. Spans come in the order in which they ended; events are put into the order of time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from .base import Defaults, Lines, Session, arguments_of, each, name_of, objects_of

_TOOL = "execute_tool"
_ASKED = frozenset({"chat", "generate_content", "text_completion", "invoke_agent"})
_ERROR = frozenset({2, "2", "STATUS_CODE_ERROR"})


def read_otel(lines: Lines, defaults: Defaults) -> Iterator[bytes]:
    """Events of all tool spans, session by session; a session is a conversation, else a trace."""
    spans = list(each(objects_of(lines, defaults.source), _spans))
    models = _models(spans)
    by_session: dict[str, list[dict[str, Any]]] = {}
    for span in spans:
        if _operation(span) == _TOOL:
            attributes = span["attributes"]
            name = defaults.session or attributes.get("gen_ai.conversation.id") or attributes.get("session.id")
            by_session.setdefault(str(name or span.get("traceId") or defaults.source), []).append(span)
    yield from each(by_session.items(), lambda item: _session(item[0], item[1], models, defaults))


def _session(name: str, spans: list[dict[str, Any]], models: dict[str, str], defaults: Defaults) -> Iterator[bytes]:
    resource = spans[0]["resource"]
    session = Session(name, defaults.workspace or resource.get("service.name", ""))
    moments: list[tuple[int, int, dict[str, Any]]] = []
    for span in spans:
        moments += [(_ms(span.get("startTimeUnixNano")), 0, span), (_ms(span.get("endTimeUnixNano")), 1, span)]
    for at, end, span in sorted(moments, key=lambda moment: moment[:2]):
        attributes = span["attributes"]
        call_id = str(attributes.get("gen_ai.tool.call.id") or span.get("spanId") or "")
        session.agent = name_of(attributes.get("gen_ai.agent.id") or attributes.get("gen_ai.agent.name"))
        session.model = name_of(
            attributes.get("gen_ai.request.model")
            or models.get(str(span.get("parentSpanId")))
            or models.get(str(span.get("traceId")))
        )
        if end:
            yield session.finished(
                call_id,
                attributes.get("gen_ai.tool.call.result"),
                at,
                failed=False,
                error=_error(span),
            )
        else:
            service = attributes.get("mcp.server.name") or attributes.get("server.address")
            more = {"service": name_of(service)} if service and attributes.get("mcp.method.name") else {}
            yield session.started(
                call_id, _tool(span), arguments_of(attributes.get("gen_ai.tool.call.arguments")), at, **more
            )


def _tool(span: dict[str, Any]) -> str:
    return str(span["attributes"].get("gen_ai.tool.name") or str(span.get("name", "")).removeprefix(f"{_TOOL} "))


def _operation(span: dict[str, Any]) -> str:
    given = span["attributes"].get("gen_ai.operation.name")
    return str(given) if given else str(span.get("name", "")).partition(" ")[0]


def _error(span: dict[str, Any]) -> dict[str, Any] | None:
    """The error of a failed span: its status, and the exception recorded with it."""
    attributes, status = span["attributes"], span.get("status") or {}
    if status.get("code") not in _ERROR and not attributes.get("error.type"):
        return None
    raised = next((_attributes(event) for event in span.get("events") or () if event.get("name") == "exception"), {})
    told = {
        "type": attributes.get("error.type") or raised.get("exception.type"),
        "message": status.get("message") or raised.get("exception.message"),
    }
    http = attributes.get("http.response.status_code")
    return {name: str(text)[:2000] for name, text in told.items() if text} | (
        {"http_status": int(http)} if http else {}
    ) or {"type": "tool_error"}


def _models(spans: Iterable[dict[str, Any]]) -> dict[str, str]:
    """Model by the span that asked it, and by trace."""
    found: dict[str, str] = {}
    for span in spans:
        attributes = span["attributes"]
        model = attributes.get("gen_ai.response.model") or attributes.get("gen_ai.request.model")
        if model and _operation(span) in _ASKED:
            found[str(span.get("spanId"))] = found[str(span.get("traceId"))] = str(model)
    return found


def _spans(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for resource in document.get("resourceSpans") or document.get("resource_spans") or ():
        about = _attributes(resource.get("resource") or {})
        for scope in resource.get("scopeSpans") or resource.get("scope_spans") or ():
            for span in scope.get("spans") or ():
                yield {**span, "attributes": _attributes(span), "resource": about}


def _attributes(holder: dict[str, Any]) -> dict[str, Any]:
    """Attributes as a plain object."""
    return {
        str(one.get("key")): _value(one.get("value") or {})
        for one in holder.get("attributes") or ()
        if isinstance(one, dict)
    }


def _value(given: dict[str, Any]) -> Any:
    for kind, value in given.items():
        if kind == "intValue":
            return int(value)
        if kind == "arrayValue":
            return [_value(one) for one in value.get("values") or ()]
        if kind == "kvlistValue":
            return {str(one["key"]): _value(one.get("value") or {}) for one in value.get("values") or ()}
        return value
    return None


def _ms(nanoseconds: Any) -> int:
    return int(nanoseconds or 0) // 1_000_000
