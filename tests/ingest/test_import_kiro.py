"""Conversations of Kiro's command line as events."""

from __future__ import annotations

from typing import Any

import pytest
from import_kit import Events, calls, imported, pairs, told
from session_logs import Record, at
from trustfold.ingest import ImportRun


def line(kind: str, mark: str, *blocks: tuple[str, Any], **data: Any) -> Record:
    """A line of a session log."""
    content = [{"kind": of_what, "data": what} for of_what, what in blocks]
    return {"version": "v1", "kind": kind, "data": {"message_id": mark, "content": content, **data}}


def use(call: str, command: str) -> tuple[str, Record]:
    """A block that asks for a command."""
    return "toolUse", {"toolUseId": call, "name": "shell", "input": {"command": command}}


def result(call: str, what: Any, status: str = "success") -> tuple[str, Record]:
    """A block with a result."""
    kind = "text" if isinstance(what, str) else "json"
    return "toolResult", {"toolUseId": call, "content": [{"kind": kind, "data": what}], "status": status}


def ran(code: int, stdout: str = "", stderr: str = "") -> Record:
    """A result of a command."""
    return {"exit_status": f"exit status: {code}", "stdout": stdout, "stderr": stderr}


LOG = [
    line("Prompt", "k1", ("text", "publish it"), meta={"timestamp": 1_795_331_882}),
    line("AssistantMessage", "k2", ("text", ""), use("c1", "./release"), use("c2", "./look")),
    line("ToolResults", "k3", result("c1", ran(1, stderr="Permission denied")), result("c2", ran(0, "nothing new"))),
    line("AssistantMessage", "k4", ("text", "It failed.")),
    line("Prompt", "k5", ("text", "go on"), meta={"timestamp": 1_795_331_890}),
    line("AssistantMessage", "k6", use("c3", "./wait")),
]


def test_a_session_log() -> None:
    """What was said and called, in order; prompts alone have times."""
    events = imported("kiro", *LOG)
    assert told(events, "time", "status", "words", "message_id", ends=True) == [
        ("user.message", at(2), None, 2, None),
        ("tool_call.started", at(3), None, None, "k2"),
        ("tool_call.started", at(4), None, None, "k2"),
        ("tool_call.finished", at(5), "error", None, None),
        ("tool_call.finished", at(6), "success", None, None),
        ("model.text", at(7), None, None, None),
        ("turn.ended", at(7), None, None, None),
        ("user.message", at(10), None, 2, None),
        ("tool_call.started", at(11), None, None, "k6"),
        ("tool_call.finished", at(11), "cancelled", None, None),
        ("turn.ended", at(11), None, None, None),
    ]
    failed = next(e["error"] for e in events if e.get("status") == "error")
    assert failed == {"type": "exit_code_1", "message": "Permission denied"}
    assert pairs(events)[1] == ({"command": "./look"}, ran(0, "nothing new"))
    assert {e["session_id"] for e in events} == {"log"}
    assert not [e for e in events if "duration_ms" in e]


def told_with(**content: Any) -> Record:
    """What a document says that the model was told, with its time and folder."""
    state = {"operating_system": "linux", "current_working_directory": "/home/ada/shop"}
    return {"content": content, "timestamp": at(2), "env_context": {"env_state": state}}


def answer(text: str, *uses: Record) -> Record:
    """What the model answered."""
    kind = "ToolUse" if uses else "Response"
    return {kind: {"message_id": "m1", "content": text} | ({"tool_uses": list(uses)} if uses else {})}


def asked(command: str) -> Record:
    """A call in an answer."""
    return {"id": "c1", "name": "execute_bash", "orig_name": "execute_bash", "args": {"command": command}}


def document(*pairs_of_them: tuple[Record | None, Record]) -> Events:
    """Events of a document."""
    about = {"request_start_timestamp_ms": 1_795_331_882_000, "stream_end_timestamp_ms": 1_795_331_884_000}
    history = [
        {"user": user or {"content": None}, "assistant": said, "request_metadata": {**about, "model_id": "sonnet"}}
        for user, said in pairs_of_them
    ]
    return imported("kiro", {"conversation_id": "kiro-1", "history": history}, whole=True)


def answered(what: Record, status: str = "Success") -> Record:
    """What the model was told: a result."""
    return told_with(ToolUseResults={"tool_use_results": [{"tool_use_id": "c1", "content": [what], "status": status}]})


PROMPT = told_with(Prompt={"prompt": "publish it"})


def test_a_document() -> None:
    """Pairs of what the model was told and what it answered, with times, folder and model."""
    failed = answered({"Json": {"exit_status": "1", "stdout": "", "stderr": "Permission denied"}})
    events = document((PROMPT, answer("I try.", asked("./release"))), (failed, answer("It failed.")))
    assert told(events, "time", "words", "message_id", ends=True) == [
        ("user.message", at(2), 2, None),
        ("model.text", at(4), None, None),
        ("tool_call.started", at(4), None, "m1"),
        ("tool_call.finished", at(4), None, None),
        ("model.text", at(4), None, None),
        ("turn.ended", at(4), None, None),
    ]
    assert calls(events) == [("execute_bash", "error", "exit_code_1")]
    assert {(e["session_id"], e["workspace_id"]) for e in events} == {("kiro-1", "/home/ada/shop")}
    assert {e.get("model") for e in events[1:]} == {"sonnet"}


@pytest.mark.parametrize(
    ("text", "status", "ended"),
    [
        ("written", "Success", ("success", None)),
        ("no such file", "Error", ("error", "tool_error")),
        ("Failed to validate tool parameters: no path", "Error", ("rejected", "invalid_arguments")),
        ('No tool with "grab" is found', "Error", ("rejected", "invalid_arguments")),
    ],
)
def test_how_calls_end(text: str, status: str, ended: tuple[str, str | None]) -> None:
    """By their status and what the client says of them."""
    events = document((PROMPT, answer("", asked("x"))), (answered({"Text": text}, status), answer("So.")))
    assert calls(events) == [("execute_bash", *ended)]


@pytest.mark.parametrize(
    ("prompt", "ended", "spoken"),
    [
        ("no, look first", ("error", "user_rejected"), 2),
        (None, ("error", "user_rejected"), 1),
        ("The user interrupted the tool execution.", ("cancelled", "interrupted"), 1),
    ],
)
def test_a_call_that_the_user_did_not_allow(prompt: str | None, ended: tuple[str, str], spoken: int) -> None:
    """What the user says instead is a prompt; an interruption is no refusal."""
    words = "Tool use was cancelled by the user"
    results = [{"tool_use_id": "c1", "content": [{"Text": words}], "status": "Error"}]
    refused = told_with(CancelledToolUses={"prompt": prompt, "tool_use_results": results})
    events = document((PROMPT, answer("", asked("x"))), (refused, answer("So.")))
    assert calls(events) == [("execute_bash", *ended)]
    assert [e["type"] for e in events].count("user.message") == spoken


def test_a_document_without_times_of_requests() -> None:
    """A prompt may have one of its own; what has none comes a second later."""
    history = [{"user": PROMPT, "assistant": answer("Done.")}]
    events = imported("kiro", {"conversation_id": "kiro-1", "history": history})
    assert told(events, "time") == [("user.message", at(2)), ("model.text", at(3))]


def test_what_a_document_leaves_out_is_not_invented() -> None:
    """A call without its result is neutral; where the model goes on without a call, it was told something."""
    events = document((PROMPT, answer("I look.")), (None, answer("", asked("x"))), (None, answer("Done.")))
    assert told(events, "status", "source", ends=True)[2:] == [
        ("input.received", None, "client"),
        ("tool_call.started", None, None),
        ("tool_call.finished", "cancelled", None),
        ("model.text", None, None),
        ("turn.ended", None, None),
    ]


def test_a_pair_of_an_unexpected_shape_costs_itself_alone() -> None:
    """The rest of the document is read."""
    run = ImportRun()
    history = [{"user": PROMPT, "assistant": {"Response": 3}}, {"user": PROMPT, "assistant": answer("Done.")}]
    events = imported("kiro", {"conversation_id": "kiro-1", "history": history}, run=run)
    assert [e["text"] for e in events if e["type"] == "model.text"] == ["Done."]
    assert run.skipped.count == 1
