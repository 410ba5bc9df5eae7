"""Session logs of Factory's Droid as events."""

from __future__ import annotations

import pytest
from import_kit import Events, calls, imported, told
from session_logs import DROID, DROID_HEAD, Record, at, droid, droid_ran, droid_runs


def of(*records: Record) -> Events:
    """Events of a log with these messages."""
    return imported("droid", DROID_HEAD, *records)


def says(text: str) -> Record:
    """A part with a text."""
    return {"type": "text", "text": text}


REMINDER = says("<system-reminder>\nTodoWrite was not called yet.\n</system-reminder>")


def test_a_session() -> None:
    """What was said and called, in order; the end of the log ends what is open."""
    events = imported("droid", *DROID)
    assert told(events, "time", "status", "words", "message_id", "duration_ms", ends=True) == [
        ("user.message", at(2), None, 2, None, None),
        ("tool_call.started", at(3), None, None, "d3", None),
        ("tool_call.finished", at(4), "error", None, None, 1000),
        ("tool_call.started", at(5), None, None, "d5", None),
        ("tool_call.finished", at(6), "success", None, None, 1000),
        ("turn.ended", at(7), None, None, None, None),
        ("user.message", at(8), None, 2, None, None),
        ("tool_call.started", at(9), None, None, "d9", None),
        ("tool_call.finished", at(9), "cancelled", None, None, None),
        ("turn.ended", at(9), None, None, None, None),
    ]
    assert {(e["session_id"], e["workspace_id"]) for e in events} == {("droid-1", "/home/ada/shop")}


@pytest.mark.parametrize(
    ("text", "flag", "ended"),
    [
        ("boom\n[Process exited with code 3]", False, ("error", "exit_code_3")),
        ("Error: in the file", False, ("success", None)),
        ("Error: no such file", True, ("error", "tool_error")),
        ("User rejected the edit", True, ("error", "user_rejected")),
        ("File has not been read yet. Read it first.", True, ("rejected", "tool_error")),
    ],
)
def test_how_calls_end(text: str, flag: bool, ended: tuple[str, str | None]) -> None:
    """By the exit code, else by the flag."""
    assert calls(of(droid_runs(3, "c", "./x"), droid_ran(4, "c", text, is_error=flag))) == [("Execute", *ended)]


def test_what_the_client_says() -> None:
    """Reminders are its own; a notice that the user alone sees is nothing."""
    notice = droid(4, "user", says("Token limit reached."), visibility="user_only")
    assert told(of(droid(2, "user", REMINDER), notice), "source") == [("input.received", "client")]


def test_thoughts_empty_texts_and_compactions() -> None:
    """Thoughts are no messages, and empty texts are nothing."""
    parts = [
        {"type": "thinking", "thinking": "Hm."},
        {"type": "redacted_thinking", "data": "x"},
        says(""),
        says("Yes."),
    ]
    compaction = {"type": "compaction_state", "id": "d4", "timestamp": at(4), "summaryText": "so far"}
    assert told(of(droid(3, "assistant", *parts, model="glm"), compaction), "text", "thought", "model") == [
        ("model.text", "Hm.", True, "glm"),
        ("model.text", "Yes.", None, "glm"),
        ("context.compacted", None, None, "glm"),
    ]


def test_a_sub_agent_is_told_by_the_session_that_called_it() -> None:
    """It has a log of its own, and nobody is its user."""
    head = {**DROID_HEAD, "id": "sub-1", "callingSessionId": "droid-1", "callingToolUseId": "toolu_9"}
    events = imported("droid", head, droid(2, "user", REMINDER, says("look around")), droid_runs(3, "c", "ls"))
    assert told(events, "source")[:2] == [("input.received", "agent"), ("tool_call.started", None)]
    assert {(e["session_id"], e["agent_id"]) for e in events} == {("droid-1/sub-1", "sub-1")}


def test_messages_that_a_fork_repeats_count_once() -> None:
    """By their ids."""
    assert told(of(*DROID[1:4], *DROID[1:4])) == told(of(*DROID[1:4]))
