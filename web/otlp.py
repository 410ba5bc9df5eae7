"""`POST /v1/traces` and `POST /v1/logs`: OpenTelemetry's protocol over HTTP, protobuf (extra `otel`) or JSON.

Point an exporter at the server: `OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:8321`. An answer means: durable. An
export that cannot be read is refused whole, and nothing of it is folded. `POST /v1/metrics` is answered and left
unread: exporters that send all three would complain at every interval.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import Any, Literal

from starlette.exceptions import HTTPException
from starlette.requests import Request as HttpRequest
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from ..guard.otel.receiver import JSON, PROTOBUF, RequestRejected, document_of
from ..integrations.otel import ExportConverter, UnreadableExport
from ..streams.embedded.engine import SubmitRequest
from ..streams.embedded.server import EmbeddedService, read_body

Signal = Literal["traces", "logs"]


def otlp_routes(service: EmbeddedService) -> Sequence[BaseRoute]:
    """Routes of both endpoints."""
    exports = ExportConverter()
    one_at_a_time = asyncio.Lock()

    async def take(request: HttpRequest, signal: Signal, read: Callable[[dict[str, Any]], list[bytes]]) -> Response:
        body = await read_body(request)
        kind = request.headers.get("content-type", "")
        async with one_at_a_time:
            try:
                events = await asyncio.to_thread(_events, body, kind, signal, read)
                if events:
                    token = blake2b(body, digest_size=16, person=signal.encode()).digest()
                    await service.writer.submit(SubmitRequest("events", events, token, request.state.publisher))
            except BaseException:
                exports.undo()
                raise
            exports.keep()
        return _taken(kind)

    async def traces(request: HttpRequest) -> Response:
        return await take(request, "traces", exports.traces)

    async def logs(request: HttpRequest) -> Response:
        return await take(request, "logs", exports.logs)

    async def metrics(request: HttpRequest) -> Response:
        await read_body(request)
        return _taken(request.headers.get("content-type", ""))

    paths = {"/v1/traces": traces, "/v1/logs": logs, "/v1/metrics": metrics}
    return [Route(path, endpoint, methods=["POST"]) for path, endpoint in paths.items()]


def _taken(kind: str) -> Response:
    """The answer to an export, in the form that it came in."""
    plain = kind.partition(";")[0].strip().lower() != PROTOBUF
    return Response(b"{}" if plain else b"", media_type=JSON if plain else PROTOBUF)


def _events(body: bytes, kind: str, signal: Signal, read: Callable[[dict[str, Any]], list[bytes]]) -> list[bytes]:
    try:
        return read(document_of(body, kind, signal))
    except RequestRejected as refused:
        raise HTTPException(refused.status, str(refused)) from refused
    except UnreadableExport as error:
        raise HTTPException(400, str(error)) from error
