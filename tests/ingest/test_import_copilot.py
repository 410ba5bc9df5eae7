"""Session logs of Copilot CLI as events."""

from __future__ import annotations

from typing import Any

import pytest
from import_kit import Events, calls, imported, pairs, told
from session_logs import COPILOT, Record, at, copilot, copilot_runs

HEAD = COPILOT[0]


def of(*records: Record) -> Events:
    """Events of a log with these events."""
    return imported("copilot", HEAD, *records)


def ended(**about: Any) -> Record:
    """The end of the call `c`."""
    return copilot(4, "tool.execution_complete", toolCallId="c", **about)


def test_a_session() -> None:
    """What was said and called, in order; a round that asks for no tool ends the turn, as does the end of the log."""
    events = imported("copilot", *COPILOT)
    assert told(events, "time", "status", "words", "message_id", "duration_ms", ends=True) == [
        ("user.message", at(2), None, 2, None, None),
        ("tool_call.started", at(3), None, None, "m3", None),
        ("tool_call.finished", at(4), "error", None, None, 1000),
        ("tool_call.started", at(5), None, None, "m5", None),
        ("tool_call.finished", at(6), "success", None, None, 1000),
        ("model.text", at(7), None, None, None, None),
        ("turn.ended", at(7), None, None, None, None),
        ("user.message", at(8), None, 2, None, None),
        ("tool_call.started", at(9), None, None, "m9", None),
        ("tool_call.finished", at(9), "cancelled", None, None, None),
        ("turn.ended", at(9), None, None, None, None),
    ]
    assert {(e["session_id"], e["workspace_id"]) for e in events} == {("copilot-1", "/home/ada/shop")}
    assert {e["model"] for e in events if e["type"] == "model.text"} == {"sonnet"}


def test_a_failing_command_is_a_success_to_the_client() -> None:
    """Its exit code tells; results are equal where only the number of the shell differs."""
    events = imported("copilot", *COPILOT)
    assert calls(events)[:2] == [("bash", "error", "exit_code_1"), ("bash", "success", None)]
    assert pairs(events)[1] == ({"command": "./look"}, "nothing new")


@pytest.mark.parametrize(
    ("error", "how"),
    [
        ({"message": "Path does not exist", "code": "failure"}, ("error", "tool_error")),
        ({"message": "The user rejected this tool call.", "code": "rejected"}, ("error", "user_rejected")),
        ({"message": "Denied by preToolUse hook: no", "code": "denied"}, ("error", "blocked_by_guard")),
        ({"message": "took too long", "code": "timeout"}, ("timeout", "timeout")),
        ({"message": "Tool 'grab' does not exist. Available tools: bash"}, ("rejected", "unknown_tool")),
        ({"message": "quota", "code": "E_QUOTA"}, ("error", "E_QUOTA")),
        (None, ("error", "tool_error")),
    ],
)
def test_how_calls_fail(error: Record | None, how: tuple[str, str]) -> None:
    """By what the client says of them."""
    assert calls(of(*copilot_runs(3, "c", "./x"), ended(success=False, error=error))) == [("bash", *how)]


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        ("denied-interactively-by-user", "user_rejected"),
        ("denied-by-rules", "blocked_by_guard"),
        ("denied-no-approval-rule-and-could-not-request-from-user", "blocked_by_guard"),
        ("approved", "tool_error"),
    ],
)
def test_an_answer_to_the_question_for_permission(answer: str, kind: str) -> None:
    """It tells who refused a call."""
    asked = copilot(3, "permission.completed", requestId="r", toolCallId="c", result={"kind": answer})
    events = of(*copilot_runs(3, "c", "./x"), asked, ended(success=False, error={"message": "It did not run."}))
    assert calls(events) == [("bash", "error", kind)]


def test_a_call_that_never_began_is_told_from_the_message_that_asked_for_it() -> None:
    """With its arguments; a call that the user asked for is not the model's."""
    asks, _ = copilot_runs(3, "c", "./x")
    users = [
        copilot(5, "tool.user_requested", toolCallId="u", toolName="bash", arguments={}),
        copilot(5, "tool.execution_start", toolCallId="u", toolName="bash", arguments={}),
        copilot(6, "tool.execution_complete", toolCallId="u", success=True, isUserRequested=True),
    ]
    events = of(asks, ended(success=False, error={"message": "no", "code": "denied"}), *users)
    assert [(e["call_id"], e["args"], e["message_id"]) for e in events if e["type"] == "tool_call.started"] == [
        ("c", {"command": "./x"}, "m3")
    ]
    assert calls(events) == [("bash", "error", "blocked_by_guard")]


def test_the_model_is_named_by_the_session_or_by_a_call() -> None:
    """From then on; before, nobody knows it."""
    begins = copilot(5, "tool.execution_start", toolCallId="d", toolName="bash", arguments={}, model="gpt")
    events = of(
        copilot(2, "user.message", content="do it"),
        copilot(3, "session.model_change", newModel="opus"),
        copilot(4, "user.message", content="now"),
        begins,
    )
    assert told(events, "model") == [
        ("user.message", None),
        ("user.message", "opus"),
        ("tool_call.started", "gpt"),
        ("tool_call.finished", "gpt"),
    ]


def test_a_call_of_the_user_is_told_by_its_end_as_well() -> None:
    """If the log does not hold the request."""
    asks, _ = copilot_runs(3, "c", "./x")
    assert calls(of(asks, ended(success=True, isUserRequested=True))) == []


def test_tools_of_servers_name_them() -> None:
    """For what a server's tools have in common."""
    about = {"toolCallId": "c", "toolName": "tracker-find", "mcpServerName": "tracker", "arguments": {"q": 1}}
    assert told(of(copilot(3, "tool.execution_start", **about)), "service")[0] == ("tool_call.started", "tracker")


@pytest.mark.parametrize(
    ("record", "source"),
    [
        (copilot(3, "user.message", content="x", source="agent-worker-1"), "agent"),
        (copilot(3, "user.message", content="x", source="schedule-1"), "timer"),
        (copilot(3, "user.message", content="x", source="skill-pdf"), "client"),
        (copilot(3, "user.message", content="x", isAutopilotContinuation=True), "client"),
        (copilot(3, "system.notification", content="x", kind={"type": "shell_completed", "shellId": "1"}), "report"),
        (copilot(3, "system.notification", content="x", kind={"type": "agent_completed"}), "report"),
        (copilot(3, "system.notification", content="x", kind={"type": "new_inbox_message"}), "agent"),
        (copilot(3, "system.notification", content="x", kind={"type": "instruction_discovered"}), "client"),
    ],
)
def test_who_told_the_model(record: Record, source: str) -> None:
    """Not every message in the user's role is the user's."""
    assert told(of(record), "source")[0] == ("input.received", source)


def test_thoughts_and_shortened_contexts() -> None:
    """A compaction that failed shortens nothing."""
    events = of(
        copilot(3, "assistant.message", content="Yes.", reasoningText="Hm.", toolRequests=[]),
        copilot(4, "session.compaction_complete", success=False, error="no"),
        copilot(5, "session.compaction_complete", success=True),
        copilot(6, "session.truncation", tokensRemoved=5),
    )
    assert told(events, "time", "thought") == [
        ("model.text", at(3), True),
        ("model.text", at(3), None),
        ("context.compacted", at(5), None),
        ("context.compacted", at(6), None),
    ]


def test_sub_agents_are_sessions_of_their_own() -> None:
    """Named by the id of the event, in older versions by the call that began them."""
    events = of(
        copilot(2, "user.message", content="do it"),
        copilot(3, "user.message", "a1", content="look around"),
        copilot(4, "tool.execution_start", "a1", toolCallId="c", toolName="view", arguments={}),
        copilot(5, "tool.execution_complete", "a1", toolCallId="c", success=True, result={"content": "x"}),
        copilot(6, "subagent.completed", "a1", toolCallId="t1", agentName="explore"),
        copilot(7, "tool.execution_start", toolCallId="d", toolName="view", arguments={}, parentToolCallId="t2"),
        copilot(8, "subagent.failed", toolCallId="t2", agentName="explore", error="no"),
    )
    own = [e for e in events if e.get("agent_id")]
    assert [
        (e["session_id"], e["agent_id"], *told([e], "source", "status", ends=True)[0])
        for e in own
        if told([e], ends=True)
    ] == [
        ("copilot-1/a1", "a1", "input.received", "agent", None),
        ("copilot-1/a1", "a1", "tool_call.started", None, None),
        ("copilot-1/a1", "a1", "tool_call.finished", None, "success"),
        ("copilot-1/a1", "a1", "turn.ended", None, None),
        ("copilot-1/t2", "t2", "tool_call.started", None, None),
        ("copilot-1/t2", "t2", "tool_call.finished", None, "cancelled"),
    ]
    assert told([e for e in events if e["session_id"] == "copilot-1"], "turn_index", ends=True) == [
        ("user.message", 0),
        ("turn.ended", 0),
    ]
