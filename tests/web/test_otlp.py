"""OpenTelemetry to a running server: spans of every convention, log events of coding agents, and what is refused."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from otlp import ANSWER, ARGS, START, TOOL, request, span, value
from starlette.testclient import TestClient
from trustfold.streams.embedded.engine import EmbeddedEngine
from trustfold.streams.embedded.server import make_app
from trustfold.streams.embedded.sign_in import RoleTokens
from trustfold.streams.embedded.store_views import StoreViews
from trustfold.web.routes import more_routes

PATHS = ("/v1/traces", "/v1/logs")


class Server:
    """A server in this process, and what has come into its log."""

    def __init__(self, client: TestClient, store: Path) -> None:
        self.client = client
        self.tail = StoreViews.open(store)

    def send(self, path: str, body: Any, status: int = 200, **headers: str) -> str:
        """Send an export; returns the answer."""
        content = body if isinstance(body, bytes) else orjson.dumps(body)
        whole = {"content-type": "application/json"} | {key.replace("_", "-"): word for key, word in headers.items()}
        answer = self.client.post(path, content=content, headers=whole)
        assert answer.status_code == status, answer.text
        return answer.text

    def events(self, kind: str = "") -> list[dict[str, Any]]:
        """Events in the log, of one type or all."""
        records = [orjson.loads(one.value or b"{}") for one in self.tail.log(0, 10_000) if one.topic == "events"]
        return [one for one in records if not kind or one["type"] == kind]

    def calls(self) -> list[tuple[Any, ...]]:
        """Session, tool, end, and type of the error of each call."""
        return [
            (one["session_id"], one["tool_name"], one["status"], (one.get("error") or {}).get("type"))
            for one in self.events("tool_call.finished")
        ]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """A server without tokens."""
    path = tmp_path / "store.sqlite"
    with TestClient(make_app(EmbeddedEngine.open(path), path, more=more_routes), base_url="http://127.0.0.1") as client:
        yield Server(client, path)


def record(name: str, second: float = 1, **attributes: Any) -> dict[str, Any]:
    """A log record as coding agents write it."""
    given = [{"key": key.replace("__", "."), "value": value(one)} for key, one in attributes.items()]
    return {"timeUnixNano": str(START + int(second * 1e9)), "body": {"stringValue": name}, "attributes": given}


def logs(*records: dict[str, Any], service: str = "claude-code") -> dict[str, Any]:
    """An export of log records."""
    about = {"attributes": [{"key": "service.name", "value": {"stringValue": service}}]}
    return {"resourceLogs": [{"resource": about, "scopeLogs": [{"logRecords": list(records)}]}]}


CONVENTIONS = {
    "gen_ai": {
        **TOOL, "gen_ai.conversation.id": "s", "gen_ai.tool.call.arguments": ARGS, "gen_ai.tool.call.result": ANSWER,
    },
    "mcp": {"mcp.method.name": "tools/call", "gen_ai.tool.name": "weather", "session.id": "s"},
    "openinference": {
        "openinference.span.kind": "TOOL", "tool.name": "weather", "input.value": ARGS, "session.id": "s",
    },
    "openllmetry": {
        "traceloop.span.kind": "tool", "traceloop.entity.name": "weather", "traceloop.entity.input": ARGS,
        "traceloop.association.properties.session_id": "s",
    },
    "vercel": {"ai.toolCall.name": "weather", "ai.toolCall.args": ARGS, "ai.telemetry.metadata.sessionId": "s"},
}  # fmt: skip


@pytest.mark.parametrize("convention", sorted(CONVENTIONS))
def test_spans_of_every_convention_become_calls(server: Server, convention: str) -> None:
    """One that is exported twice is one call; spans about something else are none of our business."""
    call = span("call weather", 1, 250, CONVENTIONS[convention])
    body = request(call, span("GET", 2, 3, {"http.request.method": "GET"}), resource={"service.name": "shop"})
    assert server.send("/v1/traces", body) == "{}"
    server.send("/v1/traces", body)
    assert server.calls() == [("s", "weather", "success", None)]
    start, finish = server.events("tool_call.started")[0], server.events("tool_call.finished")[0]
    assert finish["duration_ms"] == 249
    assert start["workspace_id"] == "shop"
    if convention != "mcp":
        assert start["args"] == {"city": "Paris"}


@pytest.mark.parametrize("form", ["gzip", "protobuf"])
def test_every_form_of_an_export(server: Server, form: str) -> None:
    """As its JSON: the same event, with the same id."""
    call = span("execute_tool weather", 1, 250, CONVENTIONS["gen_ai"]) | {"traceId": "0a" * 16, "spanId": "0b" * 8}
    if form == "gzip":
        server.send("/v1/traces", gzip.compress(orjson.dumps(request(call))), content_encoding="gzip")
    else:
        message = ExportTraceServiceRequest()
        made = message.resource_spans.add().scope_spans.add().spans.add()
        made.trace_id, made.span_id, made.name = b"\x0a" * 16, b"\x0b" * 8, call["name"]
        made.start_time_unix_nano, made.end_time_unix_nano = START + 1_000_000, START + 250_000_000
        for key, one in CONVENTIONS["gen_ai"].items():
            made.attributes.add(key=key).value.string_value = one
        assert server.send("/v1/traces", message.SerializeToString(), content_type="application/x-protobuf") == ""
    server.send("/v1/traces", orjson.dumps(request(call)) + b" ")
    calls = [one["id"] for one in server.events() if one["type"].startswith("tool_call.")]
    assert calls == calls[:2] * 2


def test_exports_go_on_with_one_another(server: Server) -> None:
    """A trace that one export names is known in the next; turns are counted; the guard's spans are left out."""
    server.send("/v1/traces", request(span("a", 1, 2, {**TOOL, "gen_ai.conversation.id": "s"})))
    server.send("/v1/traces", request(span("b", 3, 4, TOOL), span("c", 5, 6, {**TOOL, "trustfold.guard": "g"})))
    late = span("d", 7, 8, TOOL) | {"traceId": "t2"}
    server.send("/v1/traces", request(late, span("bad", 7, 8, TOOL) | {"endTimeUnixNano": "x"}), 400)
    server.send("/v1/traces", request(late))
    assert [one[0] for one in server.calls()] == ["s", "s", "t2"]
    assert len(server.events("turn.started")) == 2


AGENTS = {
    "claude": (
        record("claude_code.user_prompt", session__id="s", event__name="user_prompt"),
        record("claude_code.api_request", session__id="s", model="opus"),
        record(
            "claude_code.tool_result", 2, session__id="s", event__name="tool_result", tool_name="Bash", success="false",
            duration_ms="500", error="Exit code 1", tool_parameters='{"bash_command": "./release"}',
        ),
    ),
    "codex": (
        record("", event__name="codex.user_prompt", conversation__id="s", model="gpt"),
        record(
            "", 2, event__name="codex.tool_result", conversation__id="s", tool_name="shell", success="false",
            duration_ms=500, call_id="call_1", arguments='{"command": "./release"}', output="Exit code 1",
        ),
    ),
    "gemini": (
        record("User prompt", event__name="gemini_cli.user_prompt", session__id="s"),
        record(
            "Tool call", 2, event__name="gemini_cli.tool_call", session__id="s", function_name="run_shell_command",
            function_args='{"command": "./release"}', success=False, duration_ms=500, error="Exit code 1",
        ),
    ),
}  # fmt: skip


@pytest.mark.parametrize("agent", sorted(AGENTS))
def test_log_events_of_coding_agents(server: Server, agent: str) -> None:
    """A call with its command, its end and its turn; an export that is sent again changes nothing."""
    for _ in range(2):
        server.send("/v1/logs", logs(*AGENTS[agent]))
    ((session, _, status, _),) = server.calls()
    assert (session, status) == ("s", "error")
    (start,) = server.events("tool_call.started")
    assert (start["args"], start["turn_index"]) == ({"command": "./release"}, 0)
    assert server.events("tool_call.finished")[0]["duration_ms"] == 500
    assert server.events("tool_call.finished")[0]["error"]["message"] == "Exit code 1"
    assert start["time"] < server.events("tool_call.finished")[0]["time"]
    assert start.get("model") == {"claude": "opus", "codex": "gpt", "gemini": None}[agent]


@pytest.mark.parametrize(
    ("prompt", "told"),
    [
        ("fix the tests, please", [("user.message", 4, None)]),
        ("<REDACTED>", [("user.message", None, None)]),
        ("<task-notification>done</task-notification>", [("input.received", None, "report")]),
    ],
)
def test_who_spoke_to_a_coding_agent(server: Server, prompt: str, told: list[Any]) -> None:
    """The user, with the length of the prompt where it is told, or what the agent passes on in the user's name."""
    server.send("/v1/logs", logs(record("claude_code.user_prompt", session__id="s", prompt=prompt)))
    kinds = ("user.message", "input.received")
    found = [(kind, one.get("words"), one.get("source")) for kind in kinds for one in server.events(kind)]
    assert found == told
    assert len(server.events("turn.started")) == 1


def test_a_shortened_context_of_a_coding_agent(server: Server) -> None:
    """One that succeeded; each agent has its own name for it."""
    shortened = [
        record("claude_code.compaction", 1, session__id="s", success="true", trigger="auto"),
        record("claude_code.compaction", 2, session__id="s", success="false", trigger="auto"),
        record("", 3, event__name="gemini_cli.chat_compression", session__id="s", tokens_before=9, tokens_after=1),
    ]
    server.send("/v1/logs", logs(*shortened))
    assert len(server.events("context.compacted")) == 2


def test_a_refusal_of_the_user_is_no_failure_of_the_tool(server: Server) -> None:
    """It is told as such; a call without an id, and without a session, is neither mixed up nor counted."""
    call = {"function_name": "a", "success": False, "decision": "reject"}
    server.send(
        "/v1/logs", logs(*(record("", n, event__name="gemini_cli.tool_call", session__id="s", **call) for n in (1, 2)))
    )
    server.send("/v1/logs", logs(record("", event__name="gemini_cli.tool_call", **call)))
    assert server.calls() == [("s", "a", "error", "user_rejected")] * 2


def test_logs_as_protobuf(server: Server) -> None:
    """The same record in the other form."""
    message = ExportLogsServiceRequest()
    made = message.resource_logs.add().scope_logs.add().log_records.add(time_unix_nano=START)
    for key, one in {"event.name": "codex.tool_result", "conversation.id": "s", "tool_name": "shell"}.items():
        made.attributes.add(key=key).value.string_value = one
    server.send("/v1/logs", message.SerializeToString(), content_type="application/x-protobuf")
    assert server.calls() == [("s", "shell", "success", None)]


def test_metrics_are_answered_and_left_unread(server: Server) -> None:
    """So that an exporter of all three does not complain."""
    assert server.send("/v1/metrics", b"\xff", content_type="application/x-protobuf") == ""
    assert server.events() == []


def test_secrets_are_hidden(server: Server) -> None:
    """In arguments, in results and in errors."""
    secret = "ghp_" + "a1B2" * 9
    given = {"tool_name": "Bash", "success": "false", "tool_parameters": f'{{"bash_command": "x {secret}"}}'}
    failing = record("claude_code.tool_result", session__id="s", error=f"no {secret}", **given)
    server.send("/v1/logs", logs(failing))
    server.send(
        "/v1/traces", request(span("a", 1, 2, {**TOOL, "gen_ai.tool.call.arguments": f'{{"key": "{secret}"}}'}))
    )
    assert len(server.calls()) == 2
    assert secret not in orjson.dumps(server.events()).decode()


@pytest.mark.parametrize("path", PATHS)
def test_what_is_no_export_is_refused(server: Server, path: str) -> None:
    """With the status that tells an exporter whether to try again."""
    for body in (b"{", b"[]", b'{"resourceSpans": 7, "resourceLogs": 7}', b'{"resourceSpans": ' + b"[" * 100_000):
        server.send(path, body, 400)
    server.send(path, b"\xff\xff\xff", 400, content_type="application/x-protobuf")
    server.send(path, b"{}", 415, content_type="text/plain")
    server.send(path, b"{}", 415, content_encoding="br")
    server.send(path, gzip.compress(b" " * (17 * 1_048_576)), 413, content_encoding="gzip")
    assert server.events() == []
    assert server.send(path, b"{}") == "{}"


@pytest.mark.parametrize("nanoseconds", ["-1", str(2**63), str(2**64), "883612800000000000000", "1" + "0" * 30, "x", 7])
def test_a_time_out_of_range_is_a_bad_request(server: Server, nanoseconds: str | int) -> None:
    """And nothing of the export is folded."""
    good = span("good", 1, 2, TOOL)
    for which in ("startTimeUnixNano", "endTimeUnixNano"):
        server.send("/v1/traces", request(good, span("bad", 1, 2, TOOL) | {which: nanoseconds}), 400)
    bad = record("claude_code.tool_result", session__id="s", tool_name="a") | {"timeUnixNano": nanoseconds}
    server.send("/v1/logs", logs(record("claude_code.tool_result", session__id="s", tool_name="a"), bad), 400)
    assert server.events() == []


@pytest.mark.parametrize("path", [*PATHS, "/v1/check"])
def test_publishers_may_and_others_may_not(tmp_path: Path, path: str) -> None:
    """The publishers' token is asked for; foreign names and pages of other sites are refused."""
    store = tmp_path / "store.sqlite"
    body = b'{"tool_name": "a"}'
    open_app = make_app(EmbeddedEngine.open(store), store, more=more_routes)
    with TestClient(open_app, base_url="http://127.0.0.1") as client:
        headers = {"content-type": "application/json"}
        assert client.post(path, content=body, headers=headers).status_code == 200
        assert client.post(path, content=body, headers=headers | {"host": "evil.example"}).status_code == 421
        assert client.post(path, content=body, headers=headers | {"origin": "https://evil.example"}).status_code == 403
    roles = RoleTokens(publisher="secret", operator="other")
    with TestClient(make_app(EmbeddedEngine.open(store), store, roles=roles, more=more_routes)) as client:
        assert client.post(path, content=body, headers=headers).status_code == 401
        token = headers | {"authorization": "Bearer secret"}
        assert client.post(path, content=body, headers=token).status_code == 200
