"""OpenTelemetry: spans of others become events; our own calls become spans."""

from __future__ import annotations

import gzip
import http.client
import os
import threading
from typing import Any

import orjson
import pytest
import uvicorn
from crowd import await_end, held, is_open, open_files
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import Status, StatusCode
from trustfold.guard import ToolGuard
from trustfold.guard.otel.processor import GuardSpanProcessor
from trustfold.guard.otel.receiver import otlp_app
from trustfold.guard.testing import decided, guard_for_tests, published, set_state
from trustfold.schemas.tool_envelopes import CallTrace
from trustfold.streams import http_protocol
from waiting import wait_until

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


def tool_span(number: int = 1, *, failed: bool = False, **attributes: Any) -> dict[str, Any]:
    """A tool span as OTLP/JSON writes it."""
    given = {
        "gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "fetch", "gen_ai.conversation.id": "s1",
        "gen_ai.tool.call.id": f"call-{number}", **attributes,
    }  # fmt: skip
    return {
        "traceId": TRACE, "spanId": f"{number:016x}", "name": "execute_tool fetch",
        "startTimeUnixNano": "1767607200000000000", "endTimeUnixNano": "1767607200250000000",
        "attributes": [{"key": key, "value": {"stringValue": value}} for key, value in given.items()],
        "status": {"code": 2, "message": "connection reset"} if failed else {},
    }  # fmt: skip


def export(*spans: dict[str, Any]) -> dict[str, Any]:
    """An export request."""
    return {"resourceSpans": [{"resource": {}, "scopeSpans": [{"scope": {}, "spans": list(spans)}]}]}


async def post(app: Any, body: bytes, kind: str = "application/json", path: str = "/v1/traces", **headers: str) -> int:
    """Send a request to an ASGI application; its status."""
    sent: list[Any] = []
    scope = {
        "type": "http", "method": "POST", "path": path,
        "headers": [(b"content-type", kind.encode())]
        + [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()],
    }  # fmt: skip
    parts = [body[:10], body[10:]]

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": parts.pop(0), "more_body": bool(parts)}

    async def send(message: Any) -> None:
        sent.append(message)

    await app(scope, receive, send)
    return int(sent[0]["status"])


@pytest.mark.parametrize("form", ["json", "gzip", "protobuf"])
async def test_tool_spans_from_elsewhere_become_calls(form: str, guard: ToolGuard) -> None:
    """In every form of OTLP; other spans are none of our business; a span exported twice is one call."""
    other = {**tool_span(9), "attributes": [{"key": "http.method", "value": {"stringValue": "GET"}}]}
    failing = tool_span(2, failed=True, **{"error.type": "ConnectionResetError"})
    args = {"gen_ai.tool.call.arguments": '{"url": "https://api.example.com/v1?token=hunter2hunter2"}'}
    request = export(tool_span(1, **args), failing, other)
    body, kind, headers = orjson.dumps(request), "application/json", {}
    if form == "gzip":
        body, headers = gzip.compress(body), {"content_encoding": "gzip"}
    if form == "protobuf":
        message = ExportTraceServiceRequest()
        for span in request["resourceSpans"][0]["scopeSpans"][0]["spans"]:
            made = message.resource_spans.add().scope_spans.add().spans.add()
            made.trace_id, made.span_id = bytes.fromhex(span["traceId"]), bytes.fromhex(span["spanId"])
            made.name = span["name"]
            made.start_time_unix_nano, made.end_time_unix_nano = 1767607200000000000, 1767607200250000000
            made.status.code, made.status.message = span["status"].get("code", 0), span["status"].get("message", "")
            for one in span["attributes"]:
                attribute = made.attributes.add()
                attribute.key, attribute.value.string_value = one["key"], one["value"]["stringValue"]
        body, kind = message.SerializeToString(), "application/x-protobuf"
    app = otlp_app(guard)
    for _ in range(2):
        assert await post(app, body, kind, **headers) == 200
    finishes = {event["id"]: event for event in published(guard, "tool_call.finished")}
    assert [(one["call_id"], one["status"]) for one in finishes.values()] == [
        ("call-1", "success"),
        ("call-2", "error"),
    ]
    assert [one["verdict"] for one in decided(guard, "call.outcome") if one["scope"] == "tool:fetch"] == [
        "success", "failure",
    ]  # fmt: skip
    start = published(guard, "tool_call.started")[0]
    assert start["failure_key"] == "fetch|domain=api.example.com|path_prefix=v1"
    assert finishes[next(iter(finishes))]["duration_ms"] == 250
    assert "hunter2" not in repr(guard.memory.published)
    assert decided(guard, "dead_letter") == []


async def test_what_is_no_export_is_refused(guard: ToolGuard) -> None:
    """With the status that tells an exporter whether to try again."""
    app = otlp_app(guard, token="letmein")
    good, key = orjson.dumps(export(tool_span())), {"authorization": "Bearer letmein"}
    assert await post(app, good) == 401
    assert await post(app, good, path="/elsewhere", **key) == 404
    assert await post(app, good, "text/plain", **key) == 415
    assert await post(app, b"{", **key) == 400
    assert await post(app, b'{"resourceSpans": 7}', **key) == 400
    assert await post(app, b"\xff\xff\xff", "application/x-protobuf", **key) == 400
    assert await post(app, good, content_encoding="br", **key) == 415
    assert await post(app, gzip.compress(b" " * (17 * 1_048_576)), content_encoding="gzip", **key) == 413
    assert published(guard) == []
    assert await post(app, good, **key) == 200


async def test_spans_of_this_process_become_calls(guard: ToolGuard) -> None:
    """As they begin and as they end, in the process that makes them."""
    provider = TracerProvider()
    provider.add_span_processor(GuardSpanProcessor(guard))
    tracer = provider.get_tracer("platform")
    attributes = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "fetch", "gen_ai.conversation.id": "s1"}
    with (
        tracer.start_as_current_span("chat"),
        tracer.start_as_current_span("execute_tool fetch", attributes=attributes),
    ):
        assert [event["type"] for event in published(guard)] == ["tool_call.started"]
    span = tracer.start_span("execute_tool fetch", attributes=attributes)
    span.record_exception(TimeoutError())
    span.set_status(Status(StatusCode.ERROR))
    span.end()
    assert [event["status"] for event in published(guard, "tool_call.finished")] == ["success", "timeout"]
    provider.shutdown()


async def test_our_calls_become_spans_and_are_not_read_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """One span a call with a child for each wait, in the GenAI conventions; the bridge knows them for our own."""
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr("opentelemetry.trace.get_tracer", provider.get_tracer)
    guard = guard_for_tests(tracing=True)
    provider.add_span_processor(GuardSpanProcessor(guard))
    guard.register("fetch", read_only=True)
    answers = iter([ConnectionResetError(), None])

    async def fetch() -> str:
        if (error := next(answers)) is not None:
            raise error
        return "ok"

    await guard.call("fetch", fetch, session_id="s1")
    wait, call = exporter.get_finished_spans()
    assert (wait.name, call.name) == ("retry_delay", "tool_execution")
    assert wait.parent.span_id == call.context.span_id
    assert call.attributes["gen_ai.tool.name"] == "fetch"
    assert call.attributes["gen_ai.conversation.id"] == "s1"
    assert (call.attributes["trustfold.status"], call.attributes["trustfold.attempts"]) == ("success", 2)
    assert len(published(guard)) == 2
    provider.shutdown()


async def test_the_span_of_an_envelope_is_the_parent_of_its_calls(spans: InMemorySpanExporter) -> None:
    """The platform's trace goes on in ours; one that is malformed begins a new one."""
    guard = guard_for_tests(tracing=True)
    guard.register("fetch", lambda: "ok")
    for traceparent in (f"00-{TRACE}-{SPAN}-01", "nonsense"):
        await guard.call("fetch", session_id="s1", trace=CallTrace(traceparent=traceparent))
    own, new = spans.get_finished_spans()
    assert (f"{own.context.trace_id:032x}", f"{own.parent.span_id:016x}") == (TRACE, SPAN)
    assert new.parent is None


async def test_events_carry_the_trace_of_their_call(spans: InMemorySpanExporter) -> None:
    """That of the call's span where spans are made, else that of its envelope; decisions of all stages continue it."""
    given = f"00-{TRACE}-{SPAN}-01"
    guard = guard_for_tests()
    guard.register("fetch", lambda: "ok")
    for traceparent in (given, "nonsense"):
        await guard.call("fetch", session_id="s1", trace=CallTrace(traceparent=traceparent))
    assert [event.get("traceparent") for event in published(guard)] == [given, given, None, None]

    async def denied() -> None:
        raise PermissionError

    for _ in range(3):
        await guard.call("fetch", denied, session_id="s2", trace=CallTrace(traceparent=given))
    topics = {one.topic for one in guard.memory.outputs if one.traceparent == given}
    assert topics >= {"outcomes", "escalations", "state"}

    guard = guard_for_tests(tracing=True)
    await guard.call("fetch", lambda: "ok", session_id="s1", trace=CallTrace(traceparent=given))
    (own,) = spans.get_finished_spans()
    stated = {event["traceparent"][:52] for event in published(guard)}
    assert stated == {f"00-{TRACE}-{own.context.span_id:016x}"}


async def test_a_span_says_how_its_call_ended(spans: InMemorySpanExporter) -> None:
    """The idempotency key as it is published, the error's code, and the circuit that refused it."""
    guard = guard_for_tests(tracing=True)

    async def fetch() -> None:
        raise PermissionError

    await guard.call("fetch", fetch, session_id="s1", idempotency_key="k")
    set_state(guard, "breaker", "tool:fetch", state="forced_open")
    await guard.call("fetch", fetch, session_id="s1")
    failed, refused = [dict(span.attributes or {}) for span in spans.get_finished_spans()]
    key = published(guard, "tool_call.started")[0]["idempotency_key"]
    assert (failed["idempotency.key"], failed["error.type"], failed.get("breaker.state")) == (
        key,
        "PermissionError",
        None,
    )
    assert (refused["trustfold.status"], refused["trustfold.attempts"]) == ("circuit_open", 0)
    assert (refused["error.type"], refused["breaker.state"]) == ("circuit_open", "forced_open")
    assert "idempotency.key" not in refused


@pytest.mark.parametrize(
    "nanoseconds", ["-1", str(2**63), str(2**64), "883612800000000000000", "1" + "0" * 30, "x", ""]
)
@pytest.mark.parametrize("which", ["startTimeUnixNano", "endTimeUnixNano"])
async def test_a_time_out_of_range_is_a_bad_request(which: str, nanoseconds: str) -> None:
    """Negative, beyond 2**63, in the year 30000, or no number: 400, and nothing is published."""
    guard = guard_for_tests()
    assert await post(otlp_app(guard), orjson.dumps(export(tool_span() | {which: nanoseconds}))) == 400
    assert published(guard) == []


@pytest.mark.parametrize("nanoseconds", [0, 2**63, 2**64 - 1])
async def test_a_time_out_of_range_in_protobuf_is_a_bad_request(nanoseconds: int) -> None:
    """The same in the other form, whose times are unsigned."""
    guard, request = guard_for_tests(), ExportTraceServiceRequest()
    made = request.resource_spans.add().scope_spans.add().spans.add(trace_id=b"t" * 16, span_id=b"s" * 8)
    for key, value in (("gen_ai.operation.name", "execute_tool"), ("gen_ai.tool.name", "fetch")):
        made.attributes.add(key=key).value.string_value = value
    made.start_time_unix_nano = made.end_time_unix_nano = nanoseconds
    assert await post(otlp_app(guard), request.SerializeToString(), "application/x-protobuf") == 400
    assert published(guard) == []


@pytest.mark.parametrize(
    ("host", "origin", "token", "status"),
    [
        ("127.0.0.1:4318", "", "", 200),
        ("[::1]:4318", "", "", 200),
        ("localhost", "http://localhost", "", 200),
        ("evil.example", "", "", 421),
        ("127.0.0.1.evil.example", "", "", 421),
        ("localhost:4318", "https://evil.example", "", 403),
        ("localhost:4318", "null", "", 403),
        ("collector:4318", "", "t", 200),
        ("collector:4318", "https://evil.example", "t", 403),
    ],
)
async def test_spans_are_taken_from_no_page_of_another_site(host: str, origin: str, token: str, status: int) -> None:
    """Names that only point to this machine, and pages of other sites, are refused; a token allows any name."""
    headers = (
        {"host": host}
        | ({"origin": origin} if origin else {})
        | ({"authorization": f"Bearer {token}"} if token else {})
    )
    app = otlp_app(guard_for_tests(), token=token)
    assert await post(app, orjson.dumps(export(tool_span())), **headers) == status


@pytest.mark.slow
def test_half_requests_to_the_receiver_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """Under uvicorn with the protocol that the receiver's page names: 1,500 are held, spans are taken, all are cut."""
    monkeypatch.setattr(http_protocol, "HEADERS_S", 6.0)
    config = uvicorn.Config(
        otlp_app(guard_for_tests()), port=0, http="trustfold.streams.http_protocol:ImpatientProtocol",
        log_level="error", lifespan="off", backlog=1024,
    )  # fmt: skip
    listener, server = config.bind_socket(), uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        address = listener.getsockname()[:2]
        wait_until(lambda: server.started, what="the receiver")
        files = open_files(os.getpid())
        with held(address) as connections:
            client = http.client.HTTPConnection(*address, timeout=60)
            client.request(
                "POST", "/v1/traces", orjson.dumps(export(tool_span())), {"content-type": "application/json"}
            )
            assert client.getresponse().status == 200
            assert is_open(connections[-1])
            client.close()
            await_end(connections)
        wait_until(lambda: open_files(os.getpid()) <= files + 8, what="the files of the connections")
    finally:
        server.should_exit = True
        thread.join(60)


@pytest.mark.parametrize(
    ("failed", "attributes", "has_digest"),
    [
        (False, {"gen_ai.tool.call.result": "fine"}, True),
        (True, {"gen_ai.tool.call.result": "half"}, False),
        (False, {}, False),
    ],
)
async def test_a_result_counts_where_the_call_succeeded(
    failed: bool, attributes: dict[str, str], has_digest: bool, guard: ToolGuard
) -> None:
    """Results of failed calls get no digest, and neither does a call without a result."""
    assert await post(otlp_app(guard), orjson.dumps(export(tool_span(failed=failed, **attributes)))) == 200
    (finished,) = [one for one in published(guard) if one["type"] == "tool_call.finished"]
    assert (("result_digest" in finished), ("result_size" in finished)) == (has_digest, has_digest)
