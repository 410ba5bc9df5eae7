"""Session logs of Pi as events."""

from __future__ import annotations

import pytest
from import_kit import Events, calls, imported, told
from session_logs import PI, PI_HEAD, Record, at, pi, pi_ran, pi_runs
from trustfold.ingest import ImportRun


def of(*records: Record, run: ImportRun | None = None) -> Events:
    """Events of a log with these entries."""
    return imported("pi", PI_HEAD, *records, run=run)


def test_a_session() -> None:
    """What was said and called, in order; the end of the log ends what is open."""
    events = imported("pi", *PI)
    assert told(events, "time", "status", "words", "message_id", "duration_ms", ends=True) == [
        ("user.message", at(2), None, 2, None, None),
        ("tool_call.started", at(3), None, None, "p3", None),
        ("tool_call.finished", at(4), "error", None, None, 1000),
        ("tool_call.started", at(5), None, None, "p5", None),
        ("tool_call.finished", at(6), "success", None, None, 1000),
        ("model.text", at(7), None, None, None, None),
        ("turn.ended", at(7), None, None, None, None),
        ("user.message", at(8), None, 2, None, None),
        ("tool_call.started", at(9), None, None, "p9", None),
        ("tool_call.finished", at(9), "cancelled", None, None, None),
        ("turn.ended", at(9), None, None, None, None),
    ]
    assert {(e["session_id"], e["workspace_id"]) for e in events} == {("pi-1", "/home/ada/shop")}
    assert {e["model"] for e in events[1:]} == {"opus"}


@pytest.mark.parametrize(
    ("text", "ended"),
    [
        ("boom\n\nCommand exited with code 2", ("error", "exit_code_2")),
        ("the manual says: Command exited with code 2", ("error", "tool_error")),
        ("half\n\nCommand aborted", ("cancelled", "interrupted")),
        ("Skipped due to queued user message.", ("cancelled", "interrupted")),
        ("half\n\nCommand timed out after 5 seconds", ("timeout", "timeout")),
        ("Tool grab not found", ("rejected", "invalid_arguments")),
        ('Validation failed for tool "bash":\n  - command: must be string', ("rejected", "invalid_arguments")),
        ("Tool execution was blocked", ("error", "blocked_by_guard")),
        ("File not found: a.txt", ("error", "tool_error")),
    ],
)
def test_how_calls_fail(text: str, ended: tuple[str, str]) -> None:
    """By what the client says of them."""
    assert calls(of(pi_runs(3, "c", "./x"), pi_ran(4, "c", text, failed=True))) == [("bash", *ended)]


def test_a_result_may_speak_of_failures() -> None:
    """Where the call is none."""
    events = of(pi_runs(3, "c", "cat log"), pi_ran(4, "c", "Error\n\nCommand exited with code 2"))
    assert calls(events) == [("bash", "success", None)]


def test_thoughts_are_no_messages_and_empty_texts_are_nothing() -> None:
    """A message may hold all of them."""
    parts = [{"type": "thinking", "thinking": "Hm."}, {"type": "text", "text": " "}, {"type": "text", "text": "Yes."}]
    events = of(pi(3, "assistant", parts, stopReason="stop"))
    assert told(events, "text", "thought") == [("model.text", "Hm.", True), ("model.text", "Yes.", None)]


def test_who_told_the_model() -> None:
    """Extensions, and commands that the user runs by hand; what the model does not get is nothing."""
    ran = {"command": "ls", "output": "a", "exitCode": 0}
    told_of_it = [
        {"type": "custom_message", "id": "p1", "parentId": None, "timestamp": at(1), "content": "Mind the style."},
        pi(2, "bashExecution", None, **ran),
        pi(3, "bashExecution", None, **ran, excludeFromContext=True),
        pi(4, "user", [{"type": "image", "data": "iVBO", "mimeType": "image/png"}]),
    ]
    assert told(of(*told_of_it), "source", "words")[:3] == [
        ("input.received", "hook", None),
        ("input.received", "client", None),
        ("user.message", None, None),
    ]


def test_a_shortened_context_and_a_return_to_an_earlier_one() -> None:
    """Both may make the model read again what it has read."""
    shortened = {"type": "compaction", "id": "p3", "parentId": "p2", "timestamp": at(3), "summary": "so far"}
    back = pi(5, "user", "no, otherwise", before=2)
    events = of(pi(2, "user", "do it"), shortened, pi(4, "user", "on"), back)
    assert [(e["type"], e["time"]) for e in events if e["type"] == "context.compacted"] == [
        ("context.compacted", at(3)),
        ("context.compacted", at(5)),
    ]


@pytest.mark.parametrize("reason", ["error", "aborted"])
def test_a_message_that_broke_off_ends_the_turn(reason: str) -> None:
    """Its calls never ran; if the client asks the model again, that is another turn."""
    broken = pi_runs(3, "c", "./x")
    broken["message"]["stopReason"] = reason
    events = of(pi(2, "user", "do it"), broken, pi_runs(4, "d", "./x"), pi_ran(5, "d", "ok"))
    assert told(events, "time", "turn_index", "status", ends=True)[1:] == [
        ("turn.ended", at(3), 0, None),
        ("tool_call.started", at(4), 1, None),
        ("tool_call.finished", at(5), 1, "success"),
        ("turn.ended", at(5), 1, None),
    ]


def test_a_fork_counts_what_it_repeats_once() -> None:
    """If both are imported together; a fork of nothing new is no session."""
    run = ImportRun()
    assert len(calls(of(*PI[1:], run=run))) == 3
    fork = {**PI_HEAD, "id": "pi-2", "parentSession": "/x/pi-1.jsonl"}
    assert imported("pi", fork, *PI[1:7], run=run) == []
    assert run.skipped.repeated == 6
    assert [e["session_id"] for e in imported("pi", fork, *PI[1:7], pi(20, "user", "hi", before=6), run=run)] == [
        "pi-2"
    ] * 4
