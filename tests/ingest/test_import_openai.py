"""Transcripts in the format of OpenAI, as APIs, proxies, datasets and benchmarks write them."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from import_kit import calls, imported, pairs, told
from trustfold.ingest import ImportRun

Item = dict[str, Any]
USER = {"role": "user", "content": "go"}


def asks(*named: tuple[str | None, str, Any], text: str | None = None) -> Item:
    """The model's message with calls: id, name, arguments."""
    made: list[Item] = []
    for call_id, name, arguments in named:
        function = {"name": name, "arguments": orjson.dumps(arguments).decode()}
        made.append({"type": "function", "function": function} | ({"id": call_id} if call_id else {}))
    return {"role": "assistant", "content": text, "tool_calls": made}


def answers(call_id: str | None, content: Any, **more: Any) -> Item:
    """A tool's message."""
    return {"role": "tool", "content": content, **({"tool_call_id": call_id} if call_id else {}), **more}


A, B = {"q": "a"}, {"q": "b"}


@pytest.mark.parametrize(
    ("items", "expected"),
    [
        ([asks(("1", "f", A), ("2", "f", B)), answers("2", "of b"), answers("1", "of a")], [(B, "of b"), (A, "of a")]),
        (
            [asks((None, "f", A), (None, "f", B)), answers(None, "of a"), answers(None, "of b")],
            [(A, "of a"), (B, "of b")],
        ),
        (
            [asks((None, "f", A), (None, "g", B)), answers(None, "of g", name="g"), answers(None, "of f", name="f")],
            [(B, "of g"), (A, "of f")],
        ),
        ([asks(("1", "f", A), ("1", "f", B)), answers("1", "of a"), answers("1", "of b")], [(A, "of a"), (B, "of b")]),
        (
            [asks(("1", "f", A)), answers("1", "of a"), asks(("1", "f", B)), answers("1", "of b")],
            [(A, "of a"), (B, "of b")],
        ),
        (
            [
                {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": '{"q":"a"}'}},
                {"role": "function", "name": "f", "content": "of a"},
                {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": '{"q":"b"}'}},
                {"role": "function", "name": "f", "content": "of b"},
            ],
            [(A, "of a"), (B, "of b")],
        ),
        (
            [
                {"role": "assistant", "content": [{"type": "tool_use", "id": "1", "name": "f", "input": A}]},
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1", "content": "of a"}]},
            ],
            [(A, "of a")],
        ),
        (
            [
                {"type": "ai", "content": "", "tool_calls": [{"id": "1", "name": "f", "args": A}]},
                {"type": "tool", "tool_call_id": "1", "content": "of a"},
            ],
            [(A, "of a")],
        ),
        (
            [
                {
                    "role": "assistant",
                    "content": None,
                    "tool_calls": [{"id": "1", "name": "f", "arguments": A, "requestor": "assistant"}],
                },
                {"role": "tool", "id": "1", "content": "of a", "requestor": "assistant", "error": False},
            ],
            [(A, "of a")],
        ),
        (
            [
                {"type": "custom_tool_call", "call_id": "1", "name": "patch", "input": "*** Begin"},
                {"type": "custom_tool_call_output", "call_id": "1", "output": "done"},
            ],
            [({"input": "*** Begin"}, "done")],
        ),
        (
            [
                {
                    "role": "assistant",
                    "tool_calls": [{"id": "1", "type": "custom", "custom": {"name": "p", "input": "raw"}}],
                },
                answers(
                    "1",
                    [
                        {"type": "text", "text": "x"},
                        {"type": "image_url", "image_url": {"url": "data:"}},
                        {"type": "text", "text": "y"},
                    ],
                ),
            ],
            [({"input": "raw"}, "x\ny")],
        ),
        ([answers("9", "alone", name="f")], [(None, "alone")]),
    ],
)
def test_results_find_their_calls(items: list[Item], expected: list[tuple[Any, Any]]) -> None:
    """By id where there is one, else by name and order; ids may repeat."""
    assert pairs(imported("openai", {"messages": [USER, *items]})) == expected


def test_a_result_without_any_call_is_told() -> None:
    """Nobody knows which tool it is of."""
    run = ImportRun()
    assert calls(imported("openai", {"messages": [answers("9", "x")]}, run=run)) == []
    assert run.skipped.first == ["log:1: a result whose call is not in the log"]


@pytest.mark.parametrize(
    ("items", "expected"),
    [
        ([answers("1", "Error: user not found")], ("error", "tool_error")),
        ([answers("1", "Error handling is hard")], ("success", None)),
        ([answers("1", '{"error": "down"}')], ("success", None)),
        ([answers("1", '{"success": false, "message": "full"}')], ("error", "tool_error")),
        ([answers("1", "boom", status="error")], ("error", "tool_error")),
        ([answers("1", "boom", error=True)], ("error", "tool_error")),
        ([answers("1", "fine\n[The command completed with exit code 2.]")], ("error", "exit_code_2")),
        ([answers("1", None)], ("success", None)),
        ([], ("cancelled", "interrupted")),
        ([USER], ("cancelled", "interrupted")),
    ],
)
def test_how_a_call_ended(items: list[Item], expected: tuple[str, Any]) -> None:
    """A call without an answer, as the last of a run, is neither good nor bad."""
    assert calls(imported("openai", {"messages": [USER, asks(("1", "f", A)), *items]})) == [("f", *expected)]


@pytest.mark.parametrize(
    ("item", "expected"),
    [
        (
            {"type": "web_search_call", "id": "w", "status": "completed", "action": {"query": "x"}},
            ("web_search", "success", None),
        ),
        (
            {"type": "file_search_call", "id": "w", "status": "failed", "queries": ["x"]},
            ("file_search", "error", "tool_error"),
        ),
        (
            {"type": "code_interpreter_call", "id": "w", "status": "completed", "code": "1", "outputs": []},
            ("code_interpreter", "success", None),
        ),
        (
            {"type": "mcp_call", "id": "w", "name": "find", "arguments": "{}", "error": {"message": "no"}},
            ("find", "error", "tool_error"),
        ),
        (
            {"type": "mcp_call", "id": "w", "name": "find", "arguments": "{}", "output": "x", "error": None},
            ("find", "success", None),
        ),
    ],
)
def test_calls_that_the_api_makes_itself(item: Item, expected: tuple[str, ...]) -> None:
    """One item is the whole call."""
    assert calls(imported("openai", {"id": "resp_1", "input": "go", "output": [item]})) == [expected]


def test_shells_of_the_responses_api() -> None:
    """An outcome per command: an exit code or a timeout."""
    call = {"type": "shell_call", "call_id": "s", "action": {"commands": ["make"]}}
    for outcome, expected in (
        ({"type": "exit", "exit_code": 0}, ("shell", "success", None)),
        ({"type": "exit", "exit_code": 2}, ("shell", "error", "exit_code_2")),
        ({"type": "timeout"}, ("shell", "timeout", "timeout")),
    ):
        output = [{"stdout": "x", "stderr": "", "outcome": outcome}]
        items = [call, {"type": "shell_call_output", "call_id": "s", "output": output}]
        assert calls(imported("openai", {"input": "go", "output": items})) == [expected]


def test_refused_approvals_are_told() -> None:
    """A permission resolved, not a failure."""
    events = imported(
        "openai",
        {"type": "mcp_approval_request", "id": "r1", "name": "delete", "arguments": "{}"},
        {"type": "mcp_approval_response", "approval_request_id": "r1", "approve": False},
    )
    assert told(events, "tool_name", "granted") == [("permission.resolved", "delete", False)]
