"""Session logs of Gemini CLI as events."""

from __future__ import annotations

import orjson
import pytest
from import_kit import Events, calls, imported, pairs, told
from session_logs import GEMINI, GEMINI_HEAD, LOGS, Record, at, gemini_call, gemini_hears, gemini_says
from trustfold.ingest import SkippedLines, objects_of, recognised


def of(*records: Record) -> Events:
    """Events of a log with these messages."""
    return imported("gemini", GEMINI_HEAD, *records)


def test_a_session() -> None:
    """What was said and called, in order; each message counts once, however often it was written."""
    events = imported("gemini", *GEMINI)
    assert told(events, "time", "tool_name", "text") == [
        ("user.message", at(2), None, None),
        ("model.text", at(3), None, "I try."),
        ("tool_call.started", at(3), "run_shell_command", None),
        ("tool_call.finished", at(4), "run_shell_command", None),
        ("tool_call.started", at(5), "run_shell_command", None),
        ("tool_call.finished", at(6), "run_shell_command", None),
        ("user.message", at(8), None, None),
        ("model.text", at(9), None, "I wait."),
    ]
    assert {event["session_id"] for event in events} == {"gemini-1"}
    assert {event.get("workspace_id") for event in events[1:]} == {"/home/ada/shop"}
    assert [event["turn_index"] for event in events if event["type"] == "model.text"] == [0, 1]


def test_failures_are_told_by_the_exit_code() -> None:
    """Though the call is a success to the client; results are equal where only the process or a hint differs."""
    events = imported("gemini", *GEMINI)
    assert calls(events) == [("run_shell_command", "error", "exit_code_1"), ("run_shell_command", "success", None)]
    assert pairs(events)[1] == ({"command": "./look"}, "Output: nothing new")


@pytest.mark.parametrize(
    ("status", "told_of_it", "ended"),
    [
        ("error", {"error": "File not found: a.txt"}, ("error", "tool_error")),
        ("cancelled", {"error": "[Operation Cancelled] Reason: User cancelled"}, ("cancelled", "interrupted")),
        ("success", {"output": ""}, ("success", None)),
    ],
)
def test_how_calls_end(status: str, told_of_it: Record, ended: tuple[str, str | None]) -> None:
    """By what the client says of them."""
    call = gemini_call("c", "./x", told_of_it, 4, status)
    assert calls(of(gemini_says(3, "", call))) == [("run_shell_command", *ended)]


def test_parallel_calls_begin_before_any_has_ended() -> None:
    """A message that is written again brings only what is new."""
    slow, fast = gemini_call("slow", "./a", "a", 9), gemini_call("fast", "./b", "b", 5)
    running = {**slow, "status": "executing"}
    events = of(gemini_says(3, "", running, fast), gemini_says(3, "", slow, fast))
    assert told(events, "call_id") == [
        ("tool_call.started", "slow"),
        ("tool_call.started", "fast"),
        ("tool_call.finished", "fast"),
        ("tool_call.finished", "slow"),
    ]


def test_what_the_client_says_by_itself_is_its_input() -> None:
    """Contexts and what hooks add are told to the model; notices and the history as it is rewritten are not."""
    info = {"id": "i", "timestamp": at(3), "type": "info", "content": "Update available"}
    rewritten = {"$set": {"messages": [gemini_hears(4, "a summary")]}}
    context = gemini_hears(2, "<session_context>\n...\n</session_context>")
    hook = gemini_hears(3, "<hook_context>be careful</hook_context>")
    assert told(of(context, info, rewritten, hook), "source") == [
        ("input.received", "client"),
        ("input.received", "hook"),
    ]


def test_a_shorter_history_is_a_compaction() -> None:
    """By a snapshot of what was there before, or by taking back what was said."""
    snapshot = "<state_snapshot>the story so far</state_snapshot>"
    compressed = {"$set": {"messages": [gemini_hears(1, snapshot), gemini_says(1, "Got it.")]}}
    assert told(of(gemini_hears(2, "go"), compressed, {"$rewindTo": "g2"})) == [
        ("user.message",),
        ("context.compacted",),
        ("context.compacted",),
    ]


def test_what_a_message_of_the_model_holds() -> None:
    """Its thoughts come first; its calls name it; a call of no known tool never ran."""
    call = gemini_call("c", "./x", {"error": 'Tool "frobnicate" not found. Did you mean "read_file"?'}, 4, "error")
    says = gemini_says(3, "I try.", call) | {"thoughts": [{"subject": "Plan", "description": "Look first"}]}
    events = of(gemini_hears(2, "please look at it"), says)
    assert told(events, "text", "thought", "message_id", "words") == [
        ("user.message", None, None, None, 4),
        ("model.text", "Plan\nLook first", True, None, None),
        ("model.text", "I try.", None, None, None),
        ("tool_call.started", None, None, "g3", None),
        ("tool_call.finished", None, None, None, None),
    ]
    assert calls(events) == [("run_shell_command", "rejected", "tool_error")]


def test_a_stopped_request_ends_its_turn() -> None:
    """At the time of the notice; a turn that the log leaves open ends with its last event."""
    stopped = {"id": "i", "timestamp": at(4), "type": "info", "content": "Request cancelled."}
    events = of(gemini_hears(2, "go"), gemini_says(3, "I look."), stopped, gemini_hears(50, "on"), gemini_says(51, "I"))
    assert [event["time"] for event in events if event["type"] == "turn.ended"] == [at(4), at(51)]


def test_the_older_form_is_one_document() -> None:
    """With the same messages."""
    messages = [record for record in GEMINI if "type" in record]
    document = {**GEMINI_HEAD, "messages": messages}
    assert told(imported("gemini", document, whole=True), "time") == told(imported("gemini", *GEMINI), "time")


@pytest.mark.parametrize("origin", sorted(LOGS))
def test_whose_log_it_is(origin: str) -> None:
    """Each is recognised."""
    assert recognised(objects_of(map(orjson_line, LOGS[origin]), "f", SkippedLines())) == origin


@pytest.mark.parametrize("origin", sorted(LOGS))
def test_each_turn_ends(origin: str) -> None:
    """Once: where the log says so, else with its last event, before the user speaks again and with the log."""
    kinds = [event["type"] for event in imported(origin, *LOGS[origin])]
    marks = [kind for kind in kinds if kind in {"turn.started", "turn.ended"}]
    assert marks == ["turn.started", "turn.ended"] * 2
    assert kinds[-1] == "turn.ended"


def test_codex_tells_the_exit_code_of_a_command_apart() -> None:
    """Where the output does not hold it."""
    assert calls(imported("codex", *LOGS["codex"]))[:2] == [
        ("Bash", "error", "exit_code_1"),
        ("Bash", "success", None),
    ]


def orjson_line(record: Record) -> bytes:
    """A record as a line."""
    return orjson.dumps(record) + b"\n"
