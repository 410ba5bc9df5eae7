"""What spans say of the conversation around them, in the names of several conventions."""

from __future__ import annotations

import orjson
import pytest
from import_kit import imported, pairs, told
from otlp import ARGS, TOOL, Attributes, request, span

TOLD = [
    {"role": "user", "parts": [{"type": "text", "content": "Rain in Paris?"}]},
    {
        "role": "assistant",
        "parts": [{"type": "tool_call", "id": "c1", "name": "weather", "arguments": {"city": "Paris"}}],
    },
    {"role": "tool", "parts": [{"type": "tool_call_response", "id": "c1", "response": "Error: down"}]},
]
CALLED = [
    {
        "role": "assistant",
        "finish_reason": "tool_call",
        "parts": [{"type": "text", "content": "I look."}, TOLD[1]["parts"][0]],
    }
]
CHAT = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m"}


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (
            {
                "gen_ai.input.messages": orjson.dumps(TOLD[:1]).decode(),
                "gen_ai.output.messages": orjson.dumps(CALLED).decode(),
            },
            {"gen_ai.input.messages": orjson.dumps(TOLD).decode()},
        ),
        ({"gen_ai.input.messages": TOLD[:1], "gen_ai.output.messages": CALLED}, {"gen_ai.input.messages": TOLD}),
        (
            {
                "gen_ai.prompt.0.role": "user",
                "gen_ai.prompt.0.content": "Rain in Paris?",
                "gen_ai.completion.0.role": "assistant",
                "gen_ai.completion.0.content": "I look.",
                "gen_ai.completion.0.tool_calls.0.id": "c1",
                "gen_ai.completion.0.tool_calls.0.name": "weather",
                "gen_ai.completion.0.tool_calls.0.arguments": ARGS,
            },
            {
                "gen_ai.prompt.0.role": "user",
                "gen_ai.prompt.0.content": "Rain in Paris?",
                "gen_ai.prompt.2.role": "tool",
                "gen_ai.prompt.2.content": "Error: down",
                "gen_ai.prompt.2.tool_call_id": "c1",
            },
        ),
        (
            {
                "llm.input_messages.0.message.role": "user",
                "llm.input_messages.0.message.content": "Rain in Paris?",
                "llm.output_messages.0.message.role": "assistant",
                "llm.output_messages.0.message.contents.0.message_content.text": "I look.",
                "llm.output_messages.0.message.tool_calls.0.tool_call.id": "c1",
                "llm.output_messages.0.message.tool_calls.0.tool_call.function.name": "weather",
                "llm.output_messages.0.message.tool_calls.0.tool_call.function.arguments": ARGS,
            },
            {
                "llm.input_messages.0.message.role": "user",
                "llm.input_messages.0.message.content": "Rain in Paris?",
                "llm.input_messages.2.message.role": "tool",
                "llm.input_messages.2.message.content": "Error: down",
                "llm.input_messages.2.message.tool_call_id": "c1",
            },
        ),
    ],
)
def test_where_no_span_stands_for_a_call_what_the_model_asked_for_counts(first: Attributes, second: Attributes) -> None:
    """From the answer that asked to the question that brings the result."""
    events = imported("otel", request(span("chat m", 0, 10, CHAT | first), span("chat m", 30, 40, CHAT | second)))
    assert told(events, "tool_name", "status", "duration_ms") == [
        ("user.message", None, None, None),
        ("model.text", None, None, None),
        ("tool_call.started", "weather", None, None),
        ("tool_call.finished", "weather", "error", 20),
    ]
    assert pairs(events) == [({"city": "Paris"}, "Error: down")]
    assert next(event["text"] for event in events if "text" in event) == "I look."


def test_where_spans_stand_for_calls_messages_only_say_what_was_said() -> None:
    """Not the same call twice."""
    spans = [
        span("chat m", 0, 10, CHAT | {"gen_ai.input.messages": TOLD[:1], "gen_ai.output.messages": CALLED}),
        span("execute_tool weather", 12, 20, {**TOOL, "gen_ai.tool.call.id": "c1"}),
        span("chat m", 30, 40, CHAT | {"gen_ai.input.messages": TOLD}),
    ]
    assert told(imported("otel", request(*spans)), "tool_name", "status") == [
        ("user.message", None, None),
        ("model.text", None, None),
        ("tool_call.started", "weather", None),
        ("tool_call.finished", "weather", "success"),
    ]


@pytest.mark.parametrize("with_spans", [True, False])
def test_the_calls_of_one_answer_are_one_step(with_spans: bool) -> None:
    """Each call names the span of the answer that asked for it, whether the call has a span of its own or not."""

    def asking(*ids: str) -> list[dict[str, object]]:
        calls = [{"type": "tool_call", "id": one, "name": "weather", "arguments": {"city": one}} for one in ids]
        return [{"role": "assistant", "parts": calls}]

    def tool(one: str, start: int) -> dict[str, object]:
        return span("execute_tool weather", start, start + 5, TOOL | {"gen_ai.tool.call.id": one})

    spans = [
        span("chat m", 0, 10, CHAT | {"gen_ai.input.messages": TOLD[:1], "gen_ai.output.messages": asking("a", "b")}),
        span("chat m", 30, 40, CHAT | {"gen_ai.input.messages": TOLD[:1], "gen_ai.output.messages": asking("c")}),
        *([tool("a", 11), tool("b", 17), tool("c", 41)] if with_spans else []),
    ]
    events = imported("otel", request(*spans))
    steps = [one["message_id"] for one in events if one["type"] == "tool_call.started"]
    assert steps[0] == steps[1] != steps[2]
    assert [one["words"] for one in events if one["type"] == "user.message"] == [3]
