"""Logs of other tools become events that fold without a dead letter, the same at every import."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from import_kit import imported, lines_of, read, told
from session_logs import LOGS
from trustfold.cli.import_logs import FORMATS
from trustfold.errors import ConfigError
from trustfold.ingest import IMPORTERS, LogDefaults
from trustfold.schemas.codec import decode_event


def chat(*messages: dict[str, Any], **about: Any) -> dict[str, Any]:
    """A transcript of chat messages."""
    return {"messages": list(messages), **about}


def asked(call_id: str, name: str, arguments: str, text: str | None = None) -> dict[str, Any]:
    """The model's message with one call."""
    call = {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}
    return {"role": "assistant", "content": text, "tool_calls": [call]}


CHAT = chat(
    {"role": "system", "content": "be good"},
    {"role": "user", "content": "find it"},
    asked("c1", "search", '{"q": "x"}', "I'll search."),
    {"role": "tool", "tool_call_id": "c1", "content": '{"error": "backend down"}'},
    asked("c2", "bash", "not json"),
    {"role": "tool", "tool_call_id": "c2", "content": "Traceback (most recent call last):\n  boom"},
    {"role": "assistant", "content": [{"type": "text", "text": "Done."}]},
    id="chat-7",
    model="gpt-4o",
    created=1_700_000_000,
)


@pytest.mark.parametrize("whole", [True, False])
def test_chat_transcripts(whole: bool) -> None:
    """Messages, calls and answers, from one document or a line; what an answer reports is seen."""
    events = imported("openai", CHAT, whole=whole)
    assert told(events, "tool_name", "status") == [
        ("user.message", None, None),
        ("model.text", None, None),
        ("tool_call.started", "search", None),
        ("tool_call.finished", "search", "success"),
        ("tool_call.started", "bash", None),
        ("tool_call.finished", "bash", "error"),
        ("model.text", None, None),
    ]
    assert {event["session_id"] for event in events} == {"chat-7"}
    assert {event.get("model") for event in events} == {"gpt-4o"}
    assert events[0]["time"].startswith("2023-11-14T22:13:20")
    started = [event for event in events if event["type"] == "tool_call.started"]
    assert [event["args"] for event in started] == [{"q": "x"}, {"input": "not json"}]
    assert next(event for event in events if event.get("result"))["result"] == {"error": "backend down"}


def test_items_of_the_responses_api() -> None:
    """`input` and `output` together are the transcript."""
    events = imported(
        "openai",
        {
            "id": "resp_1",
            "model": "o4",
            "created_at": 1_700_000_000,
            "input": [{"role": "user", "content": "go"}],
            "output": [
                {"type": "reasoning", "summary": []},
                {"type": "function_call", "call_id": "f1", "name": "ls", "arguments": "{}"},
                {"type": "function_call_output", "call_id": "f1", "output": "a b"},
                {
                    "type": "mcp_call",
                    "id": "m1",
                    "name": "find",
                    "server_label": "tracker",
                    "arguments": "{}",
                    "error": "no",
                },
                {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "ok"}]},
            ],
        },
    )
    assert told(events, "tool_name", "service", "status")[1:5] == [
        ("tool_call.started", "ls", None, None),
        ("tool_call.finished", "ls", None, "success"),
        ("tool_call.started", "find", "tracker", None),
        ("tool_call.finished", "find", None, "error"),
    ]


def test_loose_messages_are_one_session() -> None:
    """A list of messages, or one a line, named after its file."""
    events = imported("openai", *CHAT["messages"])
    assert {event["session_id"] for event in events} == {"log"}
    assert told(events) == told(imported("openai", CHAT["messages"], whole=True))


def span(name: str, start: int, end: int, attributes: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A span as OTLP writes it."""
    kinds: dict[type, Callable[[Any], dict[str, Any]]] = {
        str: lambda value: {"stringValue": value},
        int: lambda value: {"intValue": str(value)},
    }
    return {
        "traceId": "t1",
        "spanId": name.replace(" ", "-") + str(start),
        "name": name,
        "startTimeUnixNano": str(1_700_000_000_000_000_000 + start * 1_000_000),
        "endTimeUnixNano": str(1_700_000_000_000_000_000 + end * 1_000_000),
        "attributes": [{"key": key, "value": kinds[type(value)](value)} for key, value in attributes.items()],
        **more,
    }


def test_tool_spans() -> None:
    """Calls in the order of time, with model, error and what a publisher opted in to."""
    tool = {"gen_ai.operation.name": "execute_tool", "gen_ai.conversation.id": "conv-1"}
    failed = {
        "status": {"code": 2, "message": "upstream timed out"},
        "events": [
            {"name": "exception", "attributes": [{"key": "exception.type", "value": {"stringValue": "TimeoutError"}}]}
        ],
    }
    spans = [
        span("execute_tool fetch", 50, 90, tool | {"gen_ai.tool.name": "fetch", "gen_ai.tool.call.id": "b"}, **failed),
        span(
            "execute_tool search", 10, 60, tool | {"gen_ai.tool.call.id": "a", "gen_ai.tool.call.arguments": '{"q": 1}'}
        ),
        span("chat gpt-4o", 0, 5, {"gen_ai.operation.name": "chat", "gen_ai.request.model": "gpt-4o"}),
        span("GET /", 0, 5, {"http.request.method": "GET"}),
    ]
    resource = {"attributes": [{"key": "service.name", "value": {"stringValue": "shop"}}]}
    events = imported("otel", {"resourceSpans": [{"resource": resource, "scopeSpans": [{"spans": spans}]}]}, whole=True)
    assert told(events, "tool_name", "call_id", "status", "duration_ms") == [
        ("tool_call.started", "search", "a", None, None),
        ("tool_call.started", "fetch", "b", None, None),
        ("tool_call.finished", "search", "a", "success", 50),
        ("tool_call.finished", "fetch", "b", "error", 40),
    ]
    assert next(event["args"] for event in events if "args" in event) == {"q": 1}
    assert events[-1]["error"] == {"type": "TimeoutError", "message": "upstream timed out"}
    assert {(e["session_id"], e["workspace_id"], e["model"]) for e in events} == {("conv-1", "shop", "gpt-4o")}


def line(kind: str, content: Any, second: int, **more: Any) -> dict[str, Any]:
    """A line of a Claude Code log."""
    message = {"role": kind, "content": content} | (
        {"model": more.pop("model", "claude-x")} if kind == "assistant" else {}
    )
    return {
        "type": kind, "sessionId": "s-1", "cwd": "/home/ann/shop", "timestamp": f"2026-01-05T10:00:{second:02d}.000Z",
        "message": message, **more,
    }  # fmt: skip


def test_claude_code_logs() -> None:
    """Calls with their results, refusals, side chains, and what the client put in by itself as its input."""
    denial = "The user doesn't want to proceed with this tool use. The tool use was rejected."
    events = imported(
        "claude-code",
        {"type": "summary", "summary": "x"},
        line("user", "fix it", 0),
        line("user", "<command-name>/clear</command-name>", 1),
        line("user", "<local-command-stdout></local-command-stdout>", 1),
        line("user", "meta", 1, isMeta=True),
        line("assistant", [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "I'll look."}], 2),
        line("assistant", [{"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": "ls"}}], 3),
        line(
            "user",
            [{"type": "tool_result", "tool_use_id": "t1", "content": "Error in the file is fine", "is_error": False}],
            5,
        ),
        line("assistant", [{"type": "tool_use", "id": "t2", "name": "Bash", "input": {"command": "make"}}], 6),
        line(
            "user",
            [{"type": "tool_result", "tool_use_id": "t2", "content": "Exit code 2\nno rule", "is_error": True}],
            8,
        ),
        line("assistant", [{"type": "tool_use", "id": "t3", "name": "Write", "input": {}}], 9),
        line(
            "user",
            [
                {
                    "type": "tool_result",
                    "tool_use_id": "t3",
                    "content": [{"type": "text", "text": denial}],
                    "is_error": True,
                }
            ],
            10,
        ),
        line("assistant", [{"type": "text", "text": "API Error"}], 11, model="<synthetic>"),
        line(
            "assistant",
            [{"type": "tool_use", "id": "t9", "name": "Read", "input": {}}],
            12,
            isSidechain=True,
            agentId="a1",
        ),
        line("user", "[Request interrupted by user]", 13),
    )
    main = [event for event in events if event["session_id"] == "s-1"]
    assert told(main, "tool_name", "status", "duration_ms") == [
        ("user.message", None, None, None),
        ("input.received", None, None, None),
        ("input.received", None, None, None),
        ("model.text", None, None, None),
        ("model.text", None, None, None),
        ("tool_call.started", "Bash", None, None),
        ("tool_call.finished", "Bash", "success", 2000),
        ("tool_call.started", "Bash", None, None),
        ("tool_call.finished", "Bash", "error", 2000),
        ("tool_call.started", "Write", None, None),
        ("tool_call.finished", "Write", "error", 1000),
    ]
    assert [event.get("thought") for event in main if event["type"] == "model.text"] == [True, None]
    assert [event["error"]["type"] for event in main if event.get("error")] == ["exit_code_2", "user_rejected"]
    assert {event["workspace_id"] for event in events} == {"/home/ann/shop"}
    assert {event["session_id"] for event in events} == {"s-1", "s-1/a1"}


def test_codex_logs() -> None:
    """Wrapped lines: shell calls with their exit codes, and the user's messages without the client's own."""

    def item(second: int, **payload: Any) -> dict[str, Any]:
        return {"timestamp": f"2026-01-05T10:00:{second:02d}Z", "type": "response_item", "payload": payload}

    def message(role: str, text: str) -> dict[str, Any]:
        return {"type": "message", "role": role, "content": [{"type": "input_text", "text": text}]}

    shell = orjson.dumps({"command": ["bash", "-lc", "git status"]}).decode()
    failed = orjson.dumps({"output": "boom", "metadata": {"exit_code": 3, "duration_seconds": 1.0}}).decode()
    events = imported(
        "codex",
        {"timestamp": "2026-01-05T10:00:00Z", "type": "session_meta", "payload": {"id": "r-1", "cwd": "/src/shop"}},
        {"timestamp": "2026-01-05T10:00:00Z", "type": "turn_context", "payload": {"model": "gpt-5-codex"}},
        item(1, **message("user", "<environment_context>\n</environment_context>")),
        item(1, **message("user", "run it")),
        item(2, type="function_call", name="shell", arguments=shell, call_id="c1"),
        item(4, type="function_call_output", call_id="c1", output=failed),
        item(5, type="custom_tool_call", name="apply_patch", input="*** Begin Patch", call_id="c2"),
        item(6, type="custom_tool_call_output", call_id="c2", output="Process exited with code 1\nno such file"),
        {"timestamp": "2026-01-05T10:00:07Z", "type": "event_msg", "payload": {"type": "token_count"}},
        item(8, **message("assistant", "It failed.")),
    )
    assert told(events, "tool_name", "status") == [
        ("input.received", None, None),
        ("user.message", None, None),
        ("tool_call.started", "Bash", None),
        ("tool_call.finished", "Bash", "error"),
        ("tool_call.started", "apply_patch", None),
        ("tool_call.finished", "apply_patch", "error"),
        ("model.text", None, None),
    ]
    calls = [event for event in events if event["type"] == "tool_call.started"]
    assert [call["args"] for call in calls] == [{"command": "git status"}, {"input": "*** Begin Patch"}]
    assert [(e["result"], e["error"]["type"]) for e in events if e["type"] == "tool_call.finished"] == [
        ("boom", "exit_code_3"),
        ("Process exited with code 1\nno such file", "exit_code_1"),
    ]
    assert {(e["session_id"], e["workspace_id"]) for e in events} == {("r-1", "/src/shop")}


def test_older_codex_logs_have_no_wrapping() -> None:
    """The first line is the session, every other one an item."""
    events = imported(
        "codex",
        {"id": "old-1", "timestamp": "2026-01-05T10:00:00Z", "instructions": None},
        {"type": "function_call", "name": "shell", "arguments": "{}", "call_id": "c1"},
        {"type": "function_call_output", "call_id": "c1", "output": "fine"},
    )
    assert [event["type"] for event in events] == ["session.started", "tool_call.started", "tool_call.finished"]
    assert {event["session_id"] for event in events} == {"old-1"}


@pytest.mark.parametrize("origin", sorted(IMPORTERS))
def test_a_log_cut_short_or_of_another_kind_is_no_traceback(origin: str) -> None:
    """It gives what it can, or says that it is no JSON."""
    with pytest.raises(ConfigError, match="JSON"):
        list(IMPORTERS[origin]([b"hello\n", b"world\n"], LogDefaults()))
    assert isinstance(imported(origin, {"a": 1}, [], {"messages": 3}), list)


JUNK: tuple[Any, ...] = (None, 3, -1.5, True, "x", "", [], [3], {}, {"a": 1}, [{"type": 3, "kind": []}], [[]])


def damaged(value: Any) -> Iterator[Any]:
    """A value with one of its parts replaced by something else."""
    yield from JUNK
    if isinstance(value, (dict, list)):
        for place in value if isinstance(value, dict) else range(len(value)):
            for other in damaged(value[place]):
                copy = value.copy()
                copy[place] = other
                yield copy


@pytest.mark.parametrize("origin", sorted(LOGS))
def test_a_field_of_another_kind_costs_its_record_at_most(origin: str) -> None:
    """Agents change their logs: a field may hold anything."""
    head, *records = LOGS[origin]
    for number, record in enumerate(records):
        around = records[max(number - 1, 0) : number], records[number + 1 : number + 2]
        for other in damaged(record):
            for event in read(origin, lines_of(head, *around[0], other, *around[1])):
                decode_event(event)
    for other in damaged(head):
        for event in read(origin, lines_of(other, *records[:2])):
            decode_event(event)


def test_every_importer_is_offered_and_documented() -> None:
    """In `FORMATS` of the command, and in the table of docs/history.md."""
    assert list(FORMATS) == list(IMPORTERS), "cli/import_logs.py: FORMATS are the names in IMPORTERS, in its order"
    page = (Path(__file__).parents[2] / "docs" / "history.md").read_text()
    missing = [name for name in IMPORTERS if f"\n| `{name}` |" not in page]
    assert not missing, f"docs/history.md: no row of {', '.join(missing)} below `--format`"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                "role content tool_calls id function name arguments type text messages tool_call_id".split()
            ),
            inner,
            max_size=5,
        )
    ),
    max_leaves=12,
)


@given(JSON)
def test_any_json_gives_valid_events_or_a_clear_error(document: Any) -> None:
    """Transcripts are written by hand and by every framework; none of them may crash the import."""
    try:
        values = list(IMPORTERS["openai"]([orjson.dumps({"messages": [document]})], LogDefaults(source="x")))
    except (AttributeError, TypeError) as error:  # what a stranger's shape may cost us is nothing
        pytest.fail(f"{error!r} for {document!r}")
    for value in values:
        decode_event(value)
