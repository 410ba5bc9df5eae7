"""OTLP/HTTP receiver of spans, JSON or protobuf (the latter with extra `otel`), as an ASGI application.

    uvicorn.run(
        otlp_app(guard), host="127.0.0.1", port=4318, http="trustfold.streams.http_protocol:ImpatientProtocol"
    )

The last argument makes uvicorn close connections without a whole request within ten seconds; by default it keeps them
open, and the application never sees them. Behind another server, set that server's own limit for headers.

Point `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT` at `/v1/traces`, or add it as a second exporter to a collector.
"""

from __future__ import annotations

import asyncio
import hmac
import zlib
from base64 import b64decode
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal

import orjson

from ...errors import add_extra
from ...schemas.otlp_spans import spans_of
from ...security.untrusted import is_foreign, is_loopback, name_of
from .spans import ToolSpan, both, tool_name_of

if TYPE_CHECKING:
    from ..guard import ToolGuard

PROTOBUF = "application/x-protobuf"
JSON = "application/json"

_IDS = ("traceId", "spanId", "parentSpanId")

MAX_BYTES = 16 * 1_048_576  # Largest body in bytes, compressed or not
BODY_S = 30.0  # Seconds within which the body must arrive

_PATH = "/v1/traces"

Receive = Callable[[], Awaitable[Mapping[str, Any]]]
Send = Callable[[Mapping[str, Any]], Awaitable[None]]


class RequestRejected(Exception):
    """A request that is rejected."""

    def __init__(self, status: int, reason: str) -> None:
        """Reject with a reason in words."""
        super().__init__(reason)
        self.status = status  # status of the HTTP answer


def otlp_app(guard: ToolGuard, *, token: str = "") -> Callable[[Mapping[str, Any], Receive, Send], Awaitable[None]]:
    """Create an ASGI application that publishes received tool spans; with `token` it requires that bearer token."""

    async def app(scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        try:
            _check_origin(headers, token)
            if scope["path"].rstrip("/") != _PATH or scope["method"] != "POST":
                raise RequestRejected(404, f"POST spans to {_PATH}")  # noqa: TRY301 - one place answers
            given = headers.get("authorization", "").removeprefix("Bearer ")
            if token and not hmac.compare_digest(given.encode(), token.encode()):
                raise RequestRejected(401, "send the token as a bearer")  # noqa: TRY301 - as above
            try:
                async with asyncio.timeout(BODY_S):
                    body = _unpacked(await _body(receive), headers.get("content-encoding", ""))
            except TimeoutError as late:
                raise RequestRejected(408, f"the body did not arrive within {BODY_S:.0f} s; send it again") from late
            try:
                spans = list(read(body, kind))
                events = [event for span in spans for event in both(span, guard.settings, guard.privacy)]
            except (ValueError, OverflowError, OSError, TypeError, AttributeError, RecursionError) as error:
                raise RequestRejected(
                    400, f"a span cannot be read: {type(error).__name__}; check its times and ids"
                ) from error
            for event in events if guard.settings.enabled else ():
                guard.publisher.send(event)
        except RequestRejected as refused:
            await _answer(send, refused.status, JSON, orjson.dumps({"message": str(refused)}))
            return
        answer = (b"", kind) if kind == PROTOBUF else (b"{}", JSON)
        await _answer(send, 200, answer[1], answer[0])

    return app


def _check_origin(headers: Mapping[str, str], token: str) -> None:
    """Reject requests of other sites' pages, and, without a token, host names other than this machine's."""
    host = headers.get("host", "")
    if not token and host and not is_loopback(name_of(host)):  # every browser sends Host
        raise RequestRejected(421, "without a token only this machine's own addresses are answered")
    if is_foreign(headers.get("origin"), host):
        raise RequestRejected(403, "pages of other sites may not use this address")


def read(body: bytes, content_type: str) -> Iterator[ToolSpan]:
    """Yield the tool spans of an export request."""
    request = document_of(body, content_type)
    if not isinstance(request.get("resourceSpans", []), list):
        raise RequestRejected(400, "no OTLP request: resourceSpans is no list")
    for span in spans_of(request):
        exception = next((event.attributes for event in span.events if event.name == "exception"), {})
        found = ToolSpan(
            trace_id=span.trace,
            span_id=span.id,
            name=span.name,
            start_ms=span.start or 0,
            end_ms=span.end or 0,
            failed=span.failed is True,
            message=span.message,
            attributes=span.attributes,
            exception=(str(exception.get("exception.type", "")), str(exception.get("exception.message", ""))),
        )
        if tool_name_of(found):
            if span.start is None or span.end is None:
                raise ValueError("a span's time is outside of the years 2000 to 2099")
            yield found


def document_of(body: bytes, content_type: str, signal: Literal["traces", "logs"] = "traces") -> dict[str, Any]:
    """Parse an export request."""
    kind = content_type.partition(";")[0].strip().lower()
    if kind == PROTOBUF:
        return _from_protobuf(body, signal)
    if kind != JSON:
        raise RequestRejected(415, f"send {JSON} or {PROTOBUF}")
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise RequestRejected(400, f"no OTLP/JSON request: {error}") from error
    if not isinstance(document, dict):
        raise RequestRejected(400, "no OTLP/JSON request: it is no object")
    return document


def _from_protobuf(body: bytes, signal: str) -> dict[str, Any]:
    try:
        from google.protobuf.json_format import MessageToDict  # extra `otel`
        from google.protobuf.message import DecodeError
        from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
    except ImportError as missing:
        raise RequestRejected(415, f"protobuf is not installed here; send JSON, or {add_extra('otel')}") from missing
    request = ExportTraceServiceRequest() if signal == "traces" else ExportLogsServiceRequest()
    try:
        request.ParseFromString(body)
    except DecodeError as error:
        raise RequestRejected(400, "no OTLP/protobuf request") from error
    document: dict[str, Any] = MessageToDict(request)
    for resource in document.get("resourceSpans", ()):
        for scope in resource.get("scopeSpans", ()):
            for span in scope.get("spans", ()):
                # Protobuf's JSON writes ids in base64, OTLP's JSON in hex.
                span.update({name: b64decode(span[name]).hex() for name in _IDS if name in span})
    return document


async def _body(receive: Receive) -> bytes:
    parts, size = [], 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise RequestRejected(400, "the body broke off")
        part = message.get("body", b"")
        size += len(part)
        if size > MAX_BYTES:
            raise RequestRejected(413, f"at most {MAX_BYTES} bytes")
        parts.append(part)
        if not message.get("more_body"):
            return b"".join(parts)


def _unpacked(body: bytes, encoding: str) -> bytes:
    if encoding in {"", "identity"}:
        return body
    if encoding != "gzip":
        raise RequestRejected(415, "send gzip or plain")
    unpacker = zlib.decompressobj(wbits=31)
    try:
        plain = unpacker.decompress(body, MAX_BYTES)
    except zlib.error as error:
        raise RequestRejected(400, "no gzip") from error
    if unpacker.unconsumed_tail:
        raise RequestRejected(413, f"at most {MAX_BYTES} bytes, unpacked")
    return plain


async def _answer(send: Send, status: int, content_type: str, body: bytes) -> None:
    headers = [(b"content-type", content_type.encode()), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
