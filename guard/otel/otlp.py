"""Parses OTLP/HTTP request bodies: JSON, or protobuf (extra `otel`) converted to the form of OTLP's JSON."""

from __future__ import annotations

from base64 import b64decode
from typing import Any, Literal

import orjson

PROTOBUF = "application/x-protobuf"
JSON = "application/json"

_IDS = ("traceId", "spanId", "parentSpanId")


class Refused(Exception):
    """A request that is rejected.

    Attributes:
        status: status of the HTTP answer.
    """

    def __init__(self, status: int, reason: str) -> None:
        """Reject with a reason in words."""
        super().__init__(reason)
        self.status = status


def document_of(body: bytes, content_type: str, signal: Literal["traces", "logs"] = "traces") -> dict[str, Any]:
    """Parse an export request.

    Raises:
        Refused: 400, the body is malformed; 415, its content type is not supported.
    """
    kind = content_type.partition(";")[0].strip().lower()
    if kind == PROTOBUF:
        return _from_protobuf(body, signal)
    if kind != JSON:
        raise Refused(415, f"send {JSON} or {PROTOBUF}")
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise Refused(400, f"no OTLP/JSON request: {error}") from error
    if not isinstance(document, dict):
        raise Refused(400, "no OTLP/JSON request: it is no object")
    return document


def _from_protobuf(body: bytes, signal: str) -> dict[str, Any]:
    try:
        from google.protobuf.json_format import MessageToDict  # extra `otel`
        from google.protobuf.message import DecodeError
        from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
    except ImportError as missing:
        raise Refused(415, "protobuf is not installed here; pip install 'trustfold[otel]', or send JSON") from missing
    request = ExportTraceServiceRequest() if signal == "traces" else ExportLogsServiceRequest()
    try:
        request.ParseFromString(body)
    except DecodeError as error:
        raise Refused(400, "no OTLP/protobuf request") from error
    document: dict[str, Any] = MessageToDict(request)
    for resource in document.get("resourceSpans", ()):
        for scope in resource.get("scopeSpans", ()):
            for span in scope.get("spans", ()):
                # Protobuf's JSON writes ids in base64, OTLP's JSON in hex.
                span.update({name: b64decode(span[name]).hex() for name in _IDS if name in span})
    return document
