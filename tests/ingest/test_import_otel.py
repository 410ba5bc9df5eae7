"""Spans of agents, with the attribute names that are found in the wild, old and new."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from import_kit import calls, decided, imported, lines_of, pairs, read
from otlp import ANSWER, ARGS, START, TOOL, Attributes, request, span
from trustfold.ingest import ImportRun


@pytest.mark.parametrize(
    ("name", "attributes"),
    [
        ("execute_tool weather", {**TOOL, "gen_ai.tool.call.arguments": ARGS, "gen_ai.tool.call.result": ANSWER}),
        (
            "execute_tool weather",
            {**TOOL, "gen_ai.tool.call.arguments": {"city": "Paris"}, "gen_ai.tool.call.result": {"rain": True}},
        ),
        ("execute_tool weather", {"gen_ai.tool.call.arguments": ARGS, "gen_ai.tool.call.result": ANSWER}),
        (
            "running tool",
            {
                "gen_ai.operation.name": "execute_tool",
                "gen_ai.tool.name": "weather",
                "tool_arguments": ARGS,
                "tool_response": ANSWER,
            },
        ),
        (
            "weather",
            {"openinference.span.kind": "TOOL", "tool.name": "weather", "input.value": ARGS, "output.value": ANSWER},
        ),
        (
            "weather",
            {
                "openinference.span.kind": "TOOL",
                "tool.name": "weather",
                "input.value": ARGS,
                "output.value": '{"type": "tool", "data": {"content": "{\\"rain\\": true}", "additional_kwargs": {}, '
                '"type": "tool", "name": "weather", "id": null, "tool_call_id": "call_1", "status": "success"}}',
            },
        ),
        (
            "weather.tool",
            {
                "traceloop.span.kind": "tool",
                "traceloop.entity.name": "weather",
                "traceloop.entity.input": ARGS,
                "traceloop.entity.output": ANSWER,
            },
        ),
        (
            "weather.tool",
            {
                "traceloop.span.kind": "tool",
                "traceloop.entity.input": '{"args": [], "kwargs": {"city": "Paris"}}',
                "traceloop.entity.output": ANSWER,
            },
        ),
        (
            "ai.toolCall",
            {
                "ai.toolCall.name": "weather",
                "ai.toolCall.id": "c",
                "ai.toolCall.args": ARGS,
                "ai.toolCall.result": ANSWER,
            },
        ),
        (
            "execute_tool weather",
            {**TOOL, "gcp.vertex.agent.tool_call_args": ARGS, "gcp.vertex.agent.tool_response": ANSWER},
        ),
        (
            "weather",
            {
                "langfuse.observation.type": "tool",
                "langfuse.observation.input": ARGS,
                "langfuse.observation.output": ANSWER,
            },
        ),
        (
            "tools/call weather",
            {"mcp.method.name": "tools/call", "gen_ai.tool.call.arguments": ARGS, "gen_ai.tool.call.result": ANSWER},
        ),
    ],
)
def test_tool_spans_of_many_instrumentations(name: str, attributes: Attributes) -> None:
    """One call, with arguments, result and duration."""
    events = imported("otel", request(span(name, 0, 250, attributes)))
    assert calls(events) == [("weather", "success", None)]
    assert pairs(events) == [({"city": "Paris"}, {"rain": True})]
    assert events[-1]["duration_ms"] == 250


EXCEPTION = {
    "name": "exception",
    "attributes": [
        {"key": "exception.type", "value": {"stringValue": "TimeoutError"}},
        {"key": "exception.message", "value": {"stringValue": "too slow"}},
    ],
}


@pytest.mark.parametrize(
    ("attributes", "more", "expected"),
    [
        ({}, {}, ("success", None)),
        ({}, {"status": {}}, ("success", None)),
        ({}, {"status": {"code": 1}}, ("success", None)),
        ({}, {"status": {"code": 2, "message": "boom"}}, ("error", "tool_error")),
        ({}, {"status": {"code": "STATUS_CODE_ERROR", "message": "ValueError: boom"}}, ("error", "ValueError")),
        ({}, {"status": {"code": "2"}, "events": [EXCEPTION]}, ("error", "TimeoutError")),
        ({}, {"events": [EXCEPTION]}, ("error", "TimeoutError")),
        ({}, {"events": [EXCEPTION], "status": {"code": 1}}, ("success", None)),
        ({"error.type": "_OTHER"}, {"events": [EXCEPTION]}, ("error", "TimeoutError")),
        ({"error.type": "RateLimitError"}, {}, ("error", "RateLimitError")),
        ({"error.type": "503"}, {}, ("error", "503")),
        ({"error": True}, {}, ("error", "tool_error")),
        ({"gen_ai.tool.status": "error"}, {}, ("error", "tool_error")),
        ({"gen_ai.tool.call.result": "Error: no such city"}, {}, ("error", "tool_error")),
        ({"gen_ai.tool.call.result": "Error: no such city"}, {"status": {"code": "STATUS_CODE_OK"}}, ("success", None)),
        (
            {"output.value": '{"data": {"content": "no such city", "tool_call_id": "c", "status": "error"}}'},
            {},
            ("error", "tool_error"),
        ),
        ({"http.response.status_code": "what"}, {"status": {"code": 2}}, ("error", "tool_error")),
    ],
)
def test_how_a_call_ended(attributes: Attributes, more: Any, expected: tuple[str, Any]) -> None:
    """Its status, its exception, else what its result says."""
    events = imported("otel", request(span("execute_tool weather", 0, 5, TOOL | attributes, **more)))
    assert calls(events) == [("weather", *expected)]


def test_a_call_that_waits_for_a_person_is_none_yet() -> None:
    """Pydantic AI ends its span when it asks; the call is made, if it is, in a span of its own."""
    asked = {**TOOL, "gen_ai.tool.call.id": "c", "pydantic_ai.tool.deferral.name": "ApprovalRequired"}
    assert calls(imported("otel", request(span("execute_tool weather", 0, 5, asked)))) == []
    made = span("execute_tool weather", 9, 12, {**TOOL, "gen_ai.tool.call.id": "c"})
    assert calls(imported("otel", request(span("execute_tool weather", 0, 5, asked), made))) == [
        ("weather", "success", None)
    ]


def test_equal_results_of_langchain_are_equal() -> None:
    """The id of the call, which its spans hold in the result, makes no other result of it."""
    answer = '{"type": "tool", "data": {"content": "nothing new", "tool_call_id": "call_%d", "status": "success"}}'
    about = {"openinference.span.kind": "TOOL", "tool.name": "look", "input.value": ARGS}
    spans = [span("look", at * 10, at * 10 + 5, {**about, "output.value": answer % at}) for at in range(5)]
    events = [orjson.dumps(event) for event in imported("otel", request(*spans))]
    assert ("nudge.issued", "repetitive_calls") in decided(events)


def test_an_http_status_is_passed_on() -> None:
    """The folds tell an outage by it."""
    events = imported(
        "otel",
        request(span("x", 0, 5, {**TOOL, "http.response.status_code": 503}, status={"code": 2, "message": "down"})),
    )
    assert events[-1]["error"] == {"type": "tool_error", "message": "down", "http_status": 503}


CONSOLE = {
    "name": "execute_tool weather",
    "context": {"trace_id": "0xab", "span_id": "0x1", "trace_state": "[]"},
    "kind": "SpanKind.INTERNAL",
    "parent_id": None,
    "start_time": "2026-01-05T10:00:00.000000Z",
    "end_time": "2026-01-05T10:00:00.250000Z",
    "status": {"status_code": "ERROR", "description": "TimeoutError: slow"},
    "attributes": {**TOOL, "gen_ai.tool.call.arguments": ARGS},
    "events": [],
    "resource": {"attributes": {"service.name": "shop"}},
}
SNAKE = {
    "resource_spans": [
        {
            "scope_spans": [
                {
                    "spans": [
                        {
                            "trace_id": "ab",
                            "span_id": "1",
                            "name": "execute_tool weather",
                            "start_time_unix_nano": START,
                            "end_time_unix_nano": START + 250_000_000,
                            "attributes": [{"key": "gen_ai.tool.call.arguments", "value": {"string_value": ARGS}}],
                            "status": {"code": "STATUS_CODE_ERROR", "message": "TimeoutError: slow"},
                        }
                    ]
                }
            ]
        }
    ]
}
OLD = span(
    "execute_tool weather",
    0,
    250,
    {**TOOL, "gen_ai.tool.call.arguments": ARGS},
    status={"code": 2, "message": "TimeoutError: slow"},
)


@pytest.mark.parametrize(
    "document",
    [
        request(OLD),
        SNAKE,
        CONSOLE,
        OLD,
        {"resourceSpans": [{"instrumentationLibrarySpans": [{"spans": [OLD]}]}]},
        {"scopeSpans": [{"spans": [OLD]}]},
        {"batches": [{"scopeSpans": [{"spans": [OLD]}]}]},
        {"trace": {"resourceSpans": [{"scopeSpans": [{"spans": [OLD]}]}]}},
    ],
)
def test_spans_as_programs_write_them(document: dict[str, Any]) -> None:
    """In one document, or a line, or several documents one after the other."""
    again = orjson.loads(orjson.dumps(document).replace(b'"0x1"', b'"0x2"').replace(b'"1"', b'"2"'))
    printed = orjson.dumps(document, option=orjson.OPT_INDENT_2)
    for records in ([document], [printed + b"\n"], [printed + b"\n", orjson.dumps(again, option=orjson.OPT_INDENT_2)]):
        lines = b"".join(lines_of(*records)).splitlines(keepends=True)
        events = [orjson.loads(event) for event in read("otel", lines)]
        assert calls(events)[:1] == [("weather", "error", "TimeoutError")]
        assert {orjson.dumps(args) for args, _ in pairs(events)} == {b'{"city":"Paris"}'}
        assert {event["duration_ms"] for event in events if event["type"] == "tool_call.finished"} == {250}


def test_a_span_written_twice_counts_once() -> None:
    """Exporters try again."""
    run = ImportRun()
    assert len(calls(imported("otel", request(OLD), request(OLD), run=run))) == 1
    assert run.skipped.repeated == 1


def test_a_call_seen_by_two_instrumentations_counts_once() -> None:
    """As spans within one another; a tool that calls another one is two calls."""
    outer = span("weather", 0, 9, {"openinference.span.kind": "TOOL", "tool.name": "weather"}, spanId="a")
    twin = span(
        "tools/call weather", 1, 8, {"mcp.method.name": "tools/call", "gen_ai.tool.name": "weather"}, parentSpanId="a"
    )
    inner = span("execute_tool map", 2, 3, {**TOOL, "gen_ai.tool.name": "map"}, parentSpanId="a")
    assert sorted(name for name, *_ in calls(imported("otel", request(outer, twin, inner)))) == ["map", "weather"]


def test_a_conversation_is_told_once_for_a_trace() -> None:
    """A tool span belongs to the conversation of the spans around it."""
    agent = span(
        "invoke_agent x",
        0,
        99,
        {"gen_ai.operation.name": "invoke_agent", "gen_ai.conversation.id": "conv", "gen_ai.agent.name": "planner"},
        spanId="a",
    )
    tool = span("execute_tool weather", 1, 2, TOOL, parentSpanId="a")
    other = span("execute_tool weather", 1, 2, TOOL, traceId="t2")
    events = imported("otel", request(tool, agent, other))
    assert {
        (event["session_id"], event.get("agent_id")) for event in events if event["type"] == "tool_call.started"
    } == {
        ("conv", "planner"),
        ("t2", None),
    }


def test_the_model_is_the_one_that_asked() -> None:
    """The one that answered last before the call, under the same parent."""
    spans = [
        span("chat m1", 0, 5, {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m1"}, parentSpanId="a"),
        span("execute_tool weather", 6, 7, TOOL, parentSpanId="a"),
        span("chat m2", 8, 9, {"gen_ai.operation.name": "chat", "gen_ai.response.model": "m2"}, parentSpanId="a"),
        span("execute_tool weather", 10, 11, TOOL, parentSpanId="a"),
        span("LLM", 12, 13, {"openinference.span.kind": "LLM", "llm.model_name": "m3"}, parentSpanId="b"),
        span("execute_tool weather", 14, 15, TOOL, parentSpanId="b"),
    ]
    events = imported("otel", request(*spans[::-1]))
    assert [event["model"] for event in events if event["type"] == "tool_call.started"] == ["m1", "m2", "m3"]


def test_a_trace_is_a_turn() -> None:
    """Of its conversation, where nothing else says who spoke."""
    one = span("execute_tool weather", 0, 1, {**TOOL, "session.id": "s"}, traceId="t1")
    two = span("execute_tool weather", 5, 6, {**TOOL, "session.id": "s"}, traceId="t2")
    events = imported("otel", request(one, two))
    assert [event["turn_index"] for event in events if event["type"] == "tool_call.started"] == [0, 1]


def test_spans_without_times_are_told_and_the_others_kept() -> None:
    """A span that has not ended is a call given up."""
    run = ImportRun()
    timeless = span("execute_tool map", 0, 0, TOOL, startTimeUnixNano="0", endTimeUnixNano="0")
    running = span("execute_tool weather", 0, 0, TOOL, endTimeUnixNano="0", spanId="r")
    events = imported("otel", request(timeless, running, OLD), run=run)
    assert sorted(calls(events)) == [("weather", "cancelled", "interrupted"), ("weather", "error", "TimeoutError")]
    assert run.skipped.count == 1
    assert "has no time" in run.skipped.first[0]


def test_an_obvious_outage_and_a_healthy_service() -> None:
    """Calls that fail one after another, and calls that do not."""

    def run_of(number: int, **more: Any) -> dict[str, Any]:
        arguments = {**TOOL, "gen_ai.tool.call.arguments": orjson.dumps({"city": number}).decode()}
        return span("execute_tool weather", number * 1000, number * 1000 + 300, arguments, **more)

    down = {"status": {"code": 2, "message": "503 service unavailable"}}
    bad = decided(read("otel", lines_of(request(*(run_of(number, **down) for number in range(12))))))
    good = decided(read("otel", lines_of(request(*(run_of(number) for number in range(12))))))
    assert ("breaker.changed", "open") in bad
    assert not [kind for kind, _ in good if kind in {"breaker.changed", "trust.changed"}]
