"""Session logs of Qwen Code as events."""

from __future__ import annotations

from typing import Any

import pytest
from import_kit import calls, imported, told

BASE = {"sessionId": "q", "cwd": "/home/ada/shop", "version": "0.24.4"}


def record(number: int, kind: str, *parts: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """A record of a log."""
    about = {"uuid": f"u{number}", "timestamp": f"2026-11-24T20:00:{number:02}.000Z", "type": kind, "provenance": kind}
    return BASE | about | ({"message": {"parts": list(parts)}} if parts else {}) | fields


def ran(number: int, status: str, execution: str, response: dict[str, str]) -> list[dict[str, Any]]:
    """A call with a text before it, and its result."""
    call = {"functionCall": {"id": "c", "name": "run_shell_command", "args": {"command": "make"}}}
    answer = {"functionResponse": {"id": "c", "name": "run_shell_command", "response": response}}
    about = {"callId": "c", "status": status, "executionStatus": execution}
    return [
        record(number, "assistant", {"text": "hm", "thought": True}, {"text": "I make it."}, call, model="m"),
        record(number + 1, "tool_result", answer, toolCallResult=about),
    ]


def test_a_session() -> None:
    """Prompts, what the client told the model, texts, and a shortened context; a repeated record counts once."""
    go = record(1, "user", {"text": "go on"})
    events = imported(
        "qwen",
        go,
        go,
        *ran(2, "success", "success", {"output": "Output: ok\nExit Code: 0"}),
        record(4, "user", {"text": "wait"}, subtype="mid_turn_user_message"),
        record(5, "system", subtype="chat_compression"),
        record(6, "assistant", {"text": "Done."}),
        record(7, "user", {"text": "the build is over"}, subtype="notification"),
        record(8, "user", {"inlineData": {"mimeType": "image/png"}}),
    )
    assert told(events, "words", "source", "thought", "message_id", "status") == [
        ("user.message", 2, None, None, None, None),
        ("model.text", None, None, True, None, None),
        ("model.text", None, None, None, None, None),
        ("tool_call.started", None, None, None, "u2", None),
        ("tool_call.finished", None, None, None, None, "success"),
        ("user.message", None, None, None, None, None),
        ("context.compacted", None, None, None, None, None),
        ("model.text", None, None, None, None, None),
        ("input.received", None, "report", None, None, None),
        ("user.message", None, None, None, None, None),
    ]
    assert {(one["session_id"], one["workspace_id"]) for one in events} == {("q", "/home/ada/shop")}


@pytest.mark.parametrize(
    ("status", "execution", "response", "wanted"),
    [
        ("error", "error", {"error": "Output: no\nError: (none)\nExit Code: 2"}, ("error", "exit_code_2")),
        ("error", "error", {"error": "File has not been read"}, ("error", "tool_error")),
        ("error", "not_started", {"error": 'Tool "x" not found in registry.'}, ("rejected", "tool_error")),
        ("error", "not_started", {"error": "refused by policy"}, ("rejected", "tool_error")),
        ("cancelled", "not_started", {"error": "[Operation Cancelled]"}, ("cancelled", "interrupted")),
    ],
)
def test_how_a_call_ended(status: str, execution: str, response: dict[str, str], wanted: tuple[str, str]) -> None:
    """By its status, its exit code, and whether it began at all."""
    [end] = calls(imported("qwen", record(1, "user", {"text": "go"}), *ran(2, status, execution, response)))
    assert end == ("run_shell_command", *wanted)
