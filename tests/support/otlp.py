"""Spans as OTLP JSON writes them."""

from __future__ import annotations

from typing import Any

Attributes = dict[str, Any]
START = 1_767_607_200_000_000_000
ARGS = '{"city": "Paris"}'
ANSWER = '{"rain": true}'


def value(given: Any) -> Any:
    """A typed value of OTLP."""
    if isinstance(given, bool):
        return {"boolValue": given}
    if isinstance(given, int):
        return {"intValue": str(given)}
    if isinstance(given, list):
        return {"arrayValue": {"values": [value(one) for one in given]}}
    if isinstance(given, dict):
        return {"kvlistValue": {"values": [{"key": name, "value": value(one)} for name, one in given.items()]}}
    return {"stringValue": given}


def span(name: str, start: float, end: float, attributes: Attributes, **more: Any) -> dict[str, Any]:
    """A span; times in milliseconds."""
    return {
        "traceId": "t1",
        "spanId": f"{name}-{start}",
        "name": name,
        "startTimeUnixNano": str(START + int(start * 1_000_000)),
        "endTimeUnixNano": str(START + int(end * 1_000_000)),
        "attributes": [{"key": key, "value": value(one)} for key, one in attributes.items()],
        **more,
    }


def request(*spans: dict[str, Any], resource: Attributes | None = None) -> dict[str, Any]:
    """An export request."""
    about = {"attributes": [{"key": key, "value": value(one)} for key, one in (resource or {}).items()]}
    return {"resourceSpans": [{"resource": about, "scopeSpans": [{"scope": {"name": "x"}, "spans": list(spans)}]}]}


TOOL = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "weather"}
