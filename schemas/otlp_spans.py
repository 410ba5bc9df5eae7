"""Parses spans from OTLP JSON and from the SDKs' console exporters into one form.

OTLP JSON writes 64-bit integers and times as text, attributes as a list of keys and typed values; field names are in
camel case, in older files in snake case. Console exporters write plain objects.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from .event_base import name_of, time_of

_ERROR = frozenset({"2", "STATUS_CODE_ERROR", "ERROR"})
_OK = frozenset({"1", "STATUS_CODE_OK", "OK"})
_VALUES = tuple(
    kind for name in ("string", "int", "bool", "double", "bytes") for kind in (f"{name}Value", f"{name}_value")
)


class SpanEvent(NamedTuple):
    """Event within a span."""

    name: str
    attributes: dict[str, Any]


class OtlpSpan(NamedTuple):
    """One span.

    Attributes:
        trace: trace id.
        id: span id.
        parent: span id of the parent, or empty.
        name: span name.
        start: milliseconds since the epoch; None if unknown.
        end: milliseconds since the epoch; None if unknown.
        attributes: attributes of the span, flat.
        events: events in order.
        failed: whether its status is an error; None without a status.
        message: message of the status.
        resource: attributes of its resource.
    """

    trace: str
    id: str
    parent: str
    name: str
    start: int | None
    end: int | None
    attributes: dict[str, Any]
    events: tuple[SpanEvent, ...]
    failed: bool | None
    message: str
    resource: dict[str, Any]

    def get(self, *names: str) -> Any:
        """Return the first of the named attributes that exists and is not empty."""
        return next((value for name in names if (value := self.attributes.get(name)) not in (None, "")), None)


def spans_of(document: dict[str, Any]) -> Iterator[OtlpSpan]:
    """Yield the spans of an object: an export request, a part of one, or a span."""
    if isinstance(document.get("trace"), dict):
        document = document["trace"]
    for resource in _list(document, "resourceSpans", "resource_spans", "batches"):
        yield from _of_resource(resource)
    if _list(document, "scopeSpans", "scope_spans", "instrumentationLibrarySpans"):
        yield from _of_resource(document)
    elif is_span(document):
        yield _span(document, attributes_of(document.get("resource")))
    elif isinstance(document.get("spans"), list):
        for span in document["spans"]:
            if isinstance(span, dict):
                yield _span(span, attributes_of(document.get("resource")))


def is_span(document: dict[str, Any]) -> bool:
    """Whether an object is itself a span."""
    context = document.get("context") or document.get("spanContext")
    named = isinstance(context, dict) and ("trace_id" in context or "traceId" in context)
    return named or (("spanId" in document or "span_id" in document) and "name" in document)


def attributes_of(holder: Any) -> dict[str, Any]:
    """Return attributes as a plain object."""
    given = holder.get("attributes") if isinstance(holder, dict) else None
    if isinstance(given, dict):
        return {str(name): _value(value) if isinstance(value, dict) else value for name, value in given.items()}
    if not isinstance(given, list):
        return {}
    return {str(one.get("key")): _value(one.get("value")) for one in given if isinstance(one, dict)}


def _of_resource(resource: Any) -> Iterator[OtlpSpan]:
    if not isinstance(resource, dict):
        return
    about = attributes_of(resource.get("resource"))
    for scope in _list(resource, "scopeSpans", "scope_spans", "instrumentationLibrarySpans"):
        for span in _list(scope, "spans"):
            if isinstance(span, dict):
                yield _span(span, about)


def _span(given: dict[str, Any], resource: dict[str, Any]) -> OtlpSpan:
    context = given.get("context") or given.get("spanContext")
    context = context if isinstance(context, dict) else given
    status = given.get("status")
    status = status if isinstance(status, dict) else {"code": status}
    code = str(status.get("code", status.get("status_code"))).upper().removeprefix("STATUSCODE.")
    parent = given.get("parentSpanContext")
    return OtlpSpan(
        trace=_id(context, "traceId", "trace_id") or _id(given, "traceId", "trace_id"),
        id=_id(context, "spanId", "span_id") or _id(given, "id", "spanId"),
        parent=_id(given, "parentSpanId", "parent_span_id", "parent_id", "parentId")
        or (_id(parent, "spanId") if isinstance(parent, dict) else ""),
        name=name_of(given.get("name")),
        start=_time(given, "startTimeUnixNano", "start_time_unix_nano", "start_time", "startTime"),
        end=_time(given, "endTimeUnixNano", "end_time_unix_nano", "end_time", "endTime"),
        attributes=attributes_of(given),
        events=tuple(
            SpanEvent(name_of(one.get("name")), attributes_of(one))
            for one in _list(given, "events")
            if isinstance(one, dict)
        ),
        failed=True if code in _ERROR else False if code in _OK else None,
        message=next((text for key in ("message", "description") if isinstance(text := status.get(key), str)), ""),
        resource=resource,
    )


def _list(holder: Any, *names: str) -> list[Any]:
    for name in names:
        found = holder.get(name) if isinstance(holder, dict) else None
        if isinstance(found, list):
            return found
    return []


def _id(holder: dict[str, Any], *names: str) -> str:
    found = next((name for key in names if (name := name_of(holder.get(key)))), "").lower().removeprefix("0x")
    return found if found.strip("0") else ""


def _time(given: dict[str, Any], *names: str) -> int | None:
    for name in names:
        value = given.get(name)
        if isinstance(value, list) and len(value) == 2:  # JavaScript's console exporter: seconds and nanoseconds
            return time_of(value[0])
        if (found := time_of(value)) is not None:
            return found
    return None


def _value(given: Any) -> Any:
    if not isinstance(given, dict):
        return given
    for kind in _VALUES:
        if kind in given:
            value = given[kind]
            if "int" in kind and isinstance(value, str):
                try:
                    return int(value)
                except ValueError:
                    return value
            return value
    for kind in ("arrayValue", "array_value"):
        if kind in given:
            return [_value(one) for one in _list(given[kind], "values")]
    for kind in ("kvlistValue", "kvlist_value"):
        if kind in given:
            pairs = _list(given[kind], "values")
            return {str(one.get("key")): _value(one.get("value")) for one in pairs if isinstance(one, dict)}
    return None
