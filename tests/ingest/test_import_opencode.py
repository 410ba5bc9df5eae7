"""Sessions of OpenCode as events."""

from __future__ import annotations

from typing import Any

import pytest
from import_kit import Events, calls, imported, pairs, told
from session_logs import Record, at

START = 1_795_331_880_000


def ms(second: float) -> int:
    """A time of the session as OpenCode writes it."""
    return START + int(second * 1000)


def message(number: int, role: str, *parts: Record, **info: Any) -> Record:
    """A message with its parts."""
    about = {"id": f"msg_{number}", "sessionID": "ses_1", "role": role, "time": {"created": ms(number)}, **info}
    return {"info": about, "parts": list(parts)}


def text(what: str, **about: Any) -> Record:
    """A part with a text."""
    return {"type": "text", "text": what, **about}


def tool(call: str, command: str, begins: float, ends: float | None = None, **state: Any) -> Record:
    """A part with a command, by default one that has ended well."""
    times = {"start": ms(begins)} | ({"end": ms(ends)} if ends is not None else {})
    about = {"status": "running" if ends is None else "completed", "input": {"command": command}, "time": times}
    return {"type": "tool", "id": f"prt_{call}", "callID": call, "tool": "bash", "state": about | state}


def document(*messages: Record, **info: Any) -> Events:
    """Events of a document with these messages."""
    about = {"id": "ses_1", "directory": "/home/ada/shop", "projectID": "p", "time": {"created": ms(1)}, **info}
    return imported("opencode", {"info": about, "messages": list(messages)}, whole=True)


PROMPT = message(2, "user", text("publish it"))


def answered(*parts: Record, **info: Any) -> Record:
    """A message of the model."""
    return message(3, "assistant", *parts, **{"modelID": "opus", "finish": "tool-calls", **info})


def test_a_session() -> None:
    """What was said and called, in order, with times, the model and the folder."""
    events = document(
        PROMPT,
        answered(
            {"type": "step-start"},
            {"type": "reasoning", "text": "Hm.", "time": {"start": ms(3)}},
            text("I try."),
            tool("c1", "./release", 4, 5, output="Permission denied", metadata={"exit": 1}),
        ),
        message(6, "assistant", text("Done."), text(""), finish="stop", time={"created": ms(6), "completed": ms(7)}),
        message(8, "user", text("go on")),
        message(9, "assistant", tool("c2", "./wait", 9), modelID="opus"),
    )
    assert told(events, "time", "status", "words", "thought", "message_id", "duration_ms", ends=True) == [
        ("user.message", at(2), None, 2, None, None, None),
        ("model.text", at(3), None, None, True, None, None),
        ("model.text", at(3), None, None, None, None, None),
        ("tool_call.started", at(4), None, None, None, "msg_3", None),
        ("tool_call.finished", at(5), "error", None, None, None, 1000),
        ("model.text", at(6), None, None, None, None, None),
        ("turn.ended", at(7), None, None, None, None, None),
        ("user.message", at(8), None, 2, None, None, None),
        ("tool_call.started", at(9), None, None, None, "msg_9", None),
        ("tool_call.finished", at(9), "cancelled", None, None, None, None),
        ("turn.ended", at(9), None, None, None, None, None),
    ]
    assert {(e["session_id"], e["workspace_id"]) for e in events} == {("ses_1", "/home/ada/shop")}
    assert {e["model"] for e in events[3:]} == {"opus"}


def test_parallel_calls_end_in_the_order_of_time() -> None:
    """Each with its own arguments and result."""
    parts = tool("slow", "./a", 4, 9, output="a"), tool("fast", "./b", 5, 6, output="b")
    events = document(PROMPT, answered(*parts))
    assert told(events, "call_id", "time")[1:5] == [
        ("tool_call.started", "slow", at(4)),
        ("tool_call.started", "fast", at(5)),
        ("tool_call.finished", "fast", at(6)),
        ("tool_call.finished", "slow", at(9)),
    ]
    assert pairs(events) == [({"command": "./b"}, "b"), ({"command": "./a"}, "a")]


REJECTED = "The user rejected permission to use this specific tool call."
RULED_OUT = "The user has specified a rule which prevents you from using this specific tool call."
CUT = "half\n\n<bash_metadata>\nbash tool terminated command after exceeding timeout 5 ms\n</bash_metadata>"


@pytest.mark.parametrize(
    ("state", "ended"),
    [
        ({"status": "error", "error": "boom"}, ("error", "tool_error")),
        ({"status": "error", "error": REJECTED}, ("error", "user_rejected")),
        ({"status": "error", "error": f"Error: {REJECTED}"}, ("error", "user_rejected")),
        ({"status": "error", "error": RULED_OUT}, ("error", "blocked_by_guard")),
        ({"status": "error", "error": "Tool execution aborted"}, ("cancelled", "interrupted")),
        ({"status": "error", "error": "You must read file a.py before overwriting it."}, ("rejected", "refused")),
        ({"status": "error", "error": "The edit tool was called with invalid arguments: x"}, ("rejected", "refused")),
        ({"output": CUT, "metadata": {"exit": None}}, ("timeout", "timeout")),
        ({"output": "half\nUser aborted the command", "metadata": {}}, ("cancelled", "interrupted")),
        ({"output": "ok", "metadata": {"exit": 0}}, ("success", None)),
    ],
)
def test_how_calls_end(state: Record, ended: tuple[str, str | None]) -> None:
    """By their state, exit code, and what the client says of them."""
    assert calls(document(PROMPT, answered(tool("c", "./x", 4, 5, **state)))) == [("bash", *ended)]


def test_calls_that_fit_no_tool() -> None:
    """They are told by the tool that was asked for; one that the model was still writing is none."""
    wrong = {**tool("c", "", 4, 5, input={"tool": "grab", "error": "no"}, output="invalid: no"), "tool": "invalid"}
    unfinished = tool("d", "", 4, status="pending", input={})
    named = tool("e", "", 6, 7, input={"tool": "hammer"}, output="ok")
    events = document(PROMPT, answered(wrong, unfinished, named))
    assert calls(events) == [("grab", "rejected", "invalid_arguments"), ("bash", "success", None)]


def test_what_the_client_says() -> None:
    """Synthetic texts are its own, ignored ones nobody's; a summary is no message of the model."""
    events = document(
        message(2, "user", text("Continue.", synthetic=True)),
        message(3, "user", text("x", ignored=True)),
        message(4, "user", {"type": "compaction", "auto": True}, text("What did we do so far?", synthetic=True)),
        message(5, "assistant", text("So far: ..."), summary=True, finish="stop"),
        message(6, "user", {"type": "file", "mime": "image/png", "url": "data:"}),
        message(7, "assistant", text("Tool limit reached.", synthetic=True), {"type": "patch", "text": "x"}),
    )
    assert told(events, "time", "source") == [
        ("input.received", at(2), "client"),
        ("context.compacted", at(4), None),
        ("input.received", at(4), "client"),
        ("user.message", at(6), None),
    ]


def test_a_damaged_message_costs_itself_alone() -> None:
    """Messages are read one by one."""
    whole = {"info": {"id": "ses_1", "directory": "/home/ada/shop"}, "messages": [3, {"info": 3}, {}, PROMPT]}
    assert told(imported("opencode", whole), "words") == [("user.message", 2)]


def test_a_message_that_was_aborted_ends_the_turn() -> None:
    """Though it names no reason."""
    aborted = answered(tool("c", "sleep 9", 4), finish=None, error={"name": "MessageAbortedError"})
    assert told(document(PROMPT, aborted), "status", ends=True)[1:] == [
        ("tool_call.started", None),
        ("tool_call.finished", "cancelled"),
        ("turn.ended", None),
    ]


def test_a_sub_agent_names_its_parent() -> None:
    """Nobody is its user."""
    events = document(PROMPT, id="ses_2", parentID="ses_1")
    assert told(events, "source", ends=True) == [("input.received", "agent"), ("turn.ended", None)]
    assert {(e["session_id"], e["agent_id"]) for e in events} == {("ses_1/ses_2", "ses_2")}


def test_printed_lines() -> None:
    """Parts as they end, without prompts; a part counts once."""
    about = {"timestamp": ms(7), "sessionID": "ses_1"}
    call = {**tool("c1", "./x", 4, 5, output="ok", metadata={"exit": 2}), "messageID": "msg_3"}
    said = {**text("Done.", time={"start": ms(6), "end": ms(7)}), "id": "prt_t", "messageID": "msg_3"}
    over = {"id": "prt_s", "type": "step-finish", "reason": "stop", "messageID": "msg_3"}
    events = imported(
        "opencode",
        {"type": "tool_use", **about, "part": call},
        {"type": "tool_use", **about, "part": call},
        {"type": "text", **about, "part": said},
        {"type": "step_finish", **about, "part": over},
    )
    assert told(events, "time", "message_id", "status") == [
        ("tool_call.started", at(4), "msg_3", None),
        ("tool_call.finished", at(5), None, "error"),
        ("model.text", at(6), None, None),
    ]
    assert {e["session_id"] for e in events} == {"ses_1"}
