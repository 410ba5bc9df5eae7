"""Session logs of Claude Code as its versions have written them: what counts, and what the client says by itself."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from import_kit import Events, calls, decided, imported, lines_of, pairs, read, told
from trustfold.ingest import ImportRun

Record = dict[str, Any]


def line(kind: str, content: Any, second: float, **more: Any) -> Record:
    """A line of a log, ten o'clock and some seconds."""
    message = {"role": kind, "content": content}
    if kind == "assistant":
        message["model"] = more.pop("model", "claude-x")
    time = f"2026-01-05T10:{int(second) // 60:02d}:{second % 60:06.3f}Z"
    return {"type": kind, "sessionId": "s-1", "cwd": "/home/ann/shop", "timestamp": time, "message": message, **more}


def use(call_id: str, second: float, name: str = "Bash", arguments: Any = None, **more: Any) -> Record:
    """The model calls a tool."""
    part = {"type": "tool_use", "id": call_id, "name": name, "input": arguments or {"command": f"run {call_id}"}}
    return line("assistant", [part], second, **more)


def result(call_id: str, content: Any, second: float, *, is_error: bool | None = None, **more: Any) -> Record:
    """What the tool answered."""
    part = {"type": "tool_result", "tool_use_id": call_id, "content": content}
    return line("user", [part if is_error is None else part | {"is_error": is_error}], second, **more)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (result("t", "Error in the file is fine", 5), ("success", None)),
        (result("t", '{"error": "what a file holds"}', 5), ("success", None)),
        (result("t", "Exit code 2\nno rule", 5, is_error=True), ("error", "exit_code_2")),
        (
            result("t", "<tool_use_error>File does not exist.</tool_use_error>", 5, is_error=True),
            ("error", "tool_error"),
        ),
        (
            result("t", "<tool_use_error>InputValidationError: Bash failed</tool_use_error>", 5, is_error=True),
            ("rejected", "InputValidationError"),
        ),
        (
            result(
                "t", "<tool_use_error>File has not been read yet. Read it first.</tool_use_error>", 5, is_error=True
            ),
            ("rejected", "tool_error"),
        ),
        (
            result("t", "<tool_use_error>Error: No such tool available: Frob</tool_use_error>", 5, is_error=True),
            ("rejected", "tool_error"),
        ),
        (
            result("t", "<tool_use_error>String to replace not found in file.</tool_use_error>", 5, is_error=True),
            ("error", "tool_error"),
        ),
        (
            result("t", "it is not known", 5, is_error=True, toolDenialKind="automode-unavailable"),
            ("rejected", "tool_error"),
        ),
        (
            result("t", "The user doesn't want to proceed with this tool use.", 5, is_error=True),
            ("error", "user_rejected"),
        ),
        (result("t", "Permission to use Bash has been denied.", 5, is_error=True), ("error", "user_rejected")),
        (
            result("t", "blocked, see the rules", 5, is_error=True, toolDenialKind="permission-rule"),
            ("error", "user_rejected"),
        ),
        (result("t", "[Request interrupted by user for tool use]", 5, is_error=True), ("cancelled", "interrupted")),
        (result("t", "", 5, toolUseResult={"stdout": "", "interrupted": True}), ("cancelled", "interrupted")),
        (
            result(
                "t", "<tool_use_error>Cancelled: parallel tool call Bash(x) errored</tool_use_error>", 5, is_error=True
            ),
            ("error", "sibling_error"),
        ),
        (result("t", "PreToolUse:Bash hook error: no", 5, is_error=True), ("error", "blocked_by_guard")),
        (result("t", [{"type": "text", "text": "Exit code 1"}], 5, is_error=True), ("error", "exit_code_1")),
        (result("t", [{"type": "image", "source": {}}], 5), ("success", None)),
    ],
)
def test_how_a_call_ended(answer: Record, expected: tuple[str, str | None]) -> None:
    """A result failed when it says so; a refusal or an interruption is no failure of the tool."""
    assert calls(imported("claude-code", use("t", 1), answer)) == [("Bash", *expected)]


@pytest.mark.parametrize(
    ("record", "spoken"),
    [
        (line("user", "fix it", 1), True),
        (line("user", [{"type": "text", "text": "fix it"}], 1), True),
        (line("user", [{"type": "image", "source": {}}], 1), True),
        (
            line(
                "user",
                [{"type": "text", "text": "<ide_opened_file>a</ide_opened_file>"}, {"type": "text", "text": "go"}],
                1,
            ),
            True,
        ),
        (line("user", "meta", 1, isMeta=True), False),
        (line("user", "the story so far", 1, isCompactSummary=True, isVisibleInTranscriptOnly=True), False),
        (
            line("user", "This session is being continued from a previous conversation that ran out of context.", 1),
            False,
        ),
        (line("user", "<system-reminder>be nice</system-reminder>", 1), False),
        (line("user", "<task-notification>\n<status>completed</status>\n</task-notification>", 1), False),
        (line("user", "a peer says", 1, origin={"kind": "peer"}), False),
        (line("user", "Caveat: The messages below were generated by the user while running local commands.", 1), False),
        (line("user", "[Request interrupted by user]", 1), False),
        (line("user", "", 1), False),
        ({"type": "queue-operation", "operation": "enqueue", "content": "x", "sessionId": "s-1"}, False),
        ({"type": "file-history-snapshot", "messageId": "m", "snapshot": {}}, False),
        ({"type": "system", "subtype": "api_error", "error": {"status": 529}, "sessionId": "s-1"}, False),
        ({"type": "progress", "data": {"message": line("user", "inner", 1)}, "sessionId": "s-1"}, False),
    ],
)
def test_who_is_a_user(record: Record, spoken: bool) -> None:
    """Only what a human typed begins a turn."""
    kinds = [event["type"] for event in imported("claude-code", record)]
    assert ("user.message" in kinds) == spoken


def test_a_command_is_the_users_when_the_model_answers_it() -> None:
    """Commands of the client itself print something and are over; custom ones become a prompt."""
    command = "<command-message>tidy</command-message>\n<command-name>/tidy</command-name>"
    own = [
        line("user", command, 1),
        line("user", [{"type": "text", "text": "prompt"}], 1, isMeta=True),
        use("a", 2),
        result("a", "ok", 3),
    ]
    clients = [
        line("user", "<command-name>/model</command-name>", 4),
        line("user", "<local-command-stdout>set</local-command-stdout>", 5),
        line("assistant", [{"type": "text", "text": "Go on."}], 6),
    ]
    assert [kind for (kind,) in told(imported("claude-code", *own, *clients))].count("user.message") == 1


@pytest.mark.parametrize(
    "stop",
    [
        [line("user", [{"type": "text", "text": "[Request interrupted by user for tool use]"}], 9)],
        [line("user", "do something else", 9)],
        [line("user", "the day after", 9) | {"timestamp": "2026-01-06T10:00:00Z"}],
        [],
    ],
)
def test_a_call_given_up_is_no_timeout(stop: list[Record]) -> None:
    """Interrupted, passed over, or the last line of a killed client: neither good nor bad."""
    events = imported("claude-code", use("a", 1), *stop)
    assert calls(events) == [("Bash", "cancelled", "interrupted")]
    later = [line("user", "x", 3000 + number * 60, sessionId=f"s-{number + 2}") for number in range(3)]
    outputs = decided(read("claude-code", lines_of(use("a", 1), *stop, *later)))
    assert not any(kind.startswith(("trust", "breaker", "tool_call")) for kind, _ in outputs)


def test_a_result_after_its_call_was_given_up_is_told() -> None:
    """One call has one end."""
    run = ImportRun()
    stop = line("user", "[Request interrupted by user]", 2)
    assert calls(imported("claude-code", use("a", 1), stop, result("a", "x", 3), run=run)) == [
        ("Bash", "cancelled", "interrupted")
    ]
    assert run.skipped.first == ["log:3: a result that came after its call was abandoned"]


def test_a_line_counts_once() -> None:
    """A resumed session copies the lines of the one before, a compaction some of its own: the same ids again."""
    first = [line("user", "go", 1, uuid="u1"), use("a", 2, uuid="u2"), result("a", "x", 3, uuid="u3")]
    copies = [record | {"sessionId": "s-2"} for record in first]
    resumed = [*copies, line("user", "more", 9, uuid="u4", sessionId="s-2")]
    run = ImportRun()
    one, two = imported("claude-code", *first, first[1], run=run), imported("claude-code", *resumed, run=run)
    assert len(told(one)) == 3
    assert told(two) == [("user.message",)]
    assert run.skipped.repeated == 4


def test_ids_do_not_change_as_a_log_grows() -> None:
    """Importing again adds what is new and repeats the rest."""
    log = [line("user", "go", 1, uuid="u1"), use("a", 2, uuid="u2"), result("a", "x", 3, uuid="u3")]
    grown = [*log, use("b", 4, uuid="u4"), result("b", "y", 5, uuid="u5")]
    before = [event["id"] for event in imported("claude-code", *log)]
    after = [event["id"] for event in imported("claude-code", *grown)]
    assert before[-1] == after[-1], "the turn ends once, though later"
    assert after[: len(before) - 1] == before[:-1]
    assert len(after) == len(before) + 2


def test_parallel_calls_of_one_message_on_many_lines() -> None:
    """Each with its own result, whatever their order; a call written twice counts once."""
    events = imported(
        "claude-code", use("a", 1), use("b", 1), use("b", 1), result("b", "second", 2), result("a", "first", 3)
    )
    assert pairs(events) == [({"command": "run b"}, "second"), ({"command": "run a"}, "first")]


def test_side_chains_are_sessions_of_their_own() -> None:
    """By their agent, by the call that began them, or, in older logs, by the line they descend from."""
    chain: dict[str, Any] = {"isSidechain": True}
    events = imported(
        "claude-code",
        use("task", 1, "Task"),
        use("x", 2, uuid="x1", parentUuid=None, **chain),
        use("y", 2, uuid="y1", parentUuid=None, **chain),
        result("y", "of y", 3, uuid="y2", parentUuid="y1", **chain),
        result("x", "of x", 3, uuid="x2", parentUuid="x1", **chain),
        use("z", 4, agentId="a7", **chain),
        line("assistant", [{"type": "text", "text": "hi"}], 5, parent_tool_use_id="task"),
    )
    by_session = {event["session_id"] for event in events if event["type"] != "session.started"}
    assert by_session == {"s-1", "s-1/sidechain-x1", "s-1/sidechain-y1", "s-1/a7", "s-1/task"}
    assert {event["session_id"]: event["result"] for event in events if "result" in event} == {
        "s-1/sidechain-x1": "of x",
        "s-1/sidechain-y1": "of y",
    }
    assert {event.get("agent_id") for event in events if event["session_id"] == "s-1/a7"} == {"a7"}


def test_calls_that_the_server_makes_are_answered_in_the_models_own_message() -> None:
    """Web search and MCP connectors; an error is an object."""
    parts = [
        {"type": "server_tool_use", "id": "w1", "name": "web_search", "input": {"query": "x"}},
        {
            "type": "web_search_tool_result",
            "tool_use_id": "w1",
            "content": [{"type": "web_search_result", "title": "t"}],
        },
        {"type": "server_tool_use", "id": "w2", "name": "web_search", "input": {"query": "y"}},
        {
            "type": "web_search_tool_result",
            "tool_use_id": "w2",
            "content": {"type": "web_search_tool_result_error", "error_code": "max_uses_exceeded"},
        },
        {"type": "mcp_tool_use", "id": "m1", "name": "find", "server_name": "tracker", "input": {}},
        {"type": "mcp_tool_result", "tool_use_id": "m1", "is_error": True, "content": [{"type": "text", "text": "no"}]},
    ]
    events = imported("claude-code", line("assistant", parts, 1))
    assert calls(events) == [
        ("web_search", "success", None),
        ("web_search", "error", "max_uses_exceeded"),
        ("find", "error", "tool_error"),
    ]
    assert next(event["service"] for event in events if event.get("service")) == "tracker"


def test_what_the_client_says_in_the_models_place_is_left_out() -> None:
    """Errors of the API, with or without the model's name for them."""
    text = [{"type": "text", "text": "API Error: 529"}]
    assert told(imported("claude-code", line("assistant", text, 1, model="<synthetic>"))) == []
    assert told(imported("claude-code", line("assistant", text, 1, isApiErrorMessage=True))) == []


def test_output_streamed_as_json_has_no_times() -> None:
    """`--output-format stream-json`: events a second apart, sub-agents beside their callers."""
    events = imported(
        "claude-code",
        {"type": "system", "subtype": "init", "session_id": "s-9", "cwd": "/w/shop", "model": "claude-x"},
        {"type": "user", "session_id": "s-9", "message": {"role": "user", "content": "go"}},
        {
            "type": "assistant",
            "session_id": "s-9",
            "message": {"model": "claude-x", "content": [{"type": "tool_use", "id": "a", "name": "Read", "input": {}}]},
        },
        {
            "type": "user",
            "session_id": "s-9",
            "message": {"content": [{"type": "tool_result", "tool_use_id": "a", "content": "x"}]},
        },
        {"type": "result", "subtype": "success", "session_id": "s-9"},
    )
    assert {event["session_id"] for event in events} == {"s-9"}
    assert [event["time"][17:19] for event in events] == ["00", "01", "01", "02", "03", "03"]


def test_durations_are_the_tools_own_where_they_are_told() -> None:
    """Else from line to line, which includes waiting for a permission."""
    events = imported(
        "claude-code",
        use("a", 1),
        result("a", "x", 61, toolUseResult={"durationMs": 1500}),
        use("b", 70),
        result("b", "x", 72),
    )
    assert [event.get("duration_ms") for event in events if event["type"] == "tool_call.finished"] == [1500, 2000]


def test_odd_lines_are_told_and_the_rest_is_kept() -> None:
    """With line and reason."""
    run = ImportRun()
    odd = line("assistant", [{"type": "tool_use", "id": "a", "name": "Bash", "input": {}}], 1)
    events = imported(
        "claude-code",
        odd,
        b"garbage\n",
        result("nobody", "x", 2),
        result("a", "ok", 3),
        b'{"type":"user","mess',
        run=run,
    )
    assert calls(events) == [("Bash", "success", None)]
    assert [text.partition(" (")[0] for text in run.skipped.first] == [
        "log:2: not JSON",
        "log:3: a result whose call is not in the log",
        "log:5: not JSON",
    ]


def test_a_huge_call_becomes_an_event() -> None:
    """A file of five megabytes written by the model, and read back."""
    huge = "x" * 5_000_000
    events = imported("claude-code", use("a", 1, "Write", {"file_path": "/a/b", "content": huge}), result("a", huge, 2))
    started = next(event for event in events if event["type"] == "tool_call.started")
    assert started["args"]["file_path"] == "/a/b"
    assert len(orjson.dumps(events)) < 100_000


def test_a_clock_set_back_does_not_turn_the_session_round() -> None:
    """A log is in the order in which things happened."""
    events = imported("claude-code", line("user", "go", 60), use("a", 50), result("a", "x", 55))
    assert [event["time"] for event in events] == sorted(event["time"] for event in events)


def test_an_obvious_loop_and_a_healthy_session() -> None:
    """The same failing command again and again is seen; work is not."""
    looping = [line("user", "go", 0)]
    working = [line("user", "go", 0)]
    for number in range(8):
        looping += [
            use(f"l{number}", number * 5 + 1, arguments={"command": "make"}),
            result(f"l{number}", "Exit code 2\nno rule", number * 5 + 2, is_error=True),
        ]
        working += [
            use(f"w{number}", number * 5 + 1, "Edit", {"file_path": f"/a/{number}", "new_string": "x"}),
            result(f"w{number}", f"edited {number}", number * 5 + 2),
        ]
    assert ("pattern.detected", "error_retry_loop") in decided(read("claude-code", lines_of(*looping)))
    assert not [kind for kind, _ in decided(read("claude-code", lines_of(*working))) if kind == "pattern.detected"]


def says(text: str, second: float, **more: Any) -> Record:
    """The model writes a message; `message` adds to its fields."""
    fields = more.pop("message", {})
    record = line("assistant", [{"type": "text", "text": text}], second, **more)
    return record | {"message": record["message"] | fields}


def attached(kind: str, second: float, **more: Any) -> Record:
    """The client attaches something to what the model reads."""
    time = line("user", "", second)["timestamp"]
    return {"type": "attachment", "sessionId": "s-1", "timestamp": time, "attachment": {"type": kind, **more}}


def system(kind: str, second: float, **more: Any) -> Record:
    """The client notes what happened."""
    time = line("user", "", second)["timestamp"]
    return {"type": "system", "subtype": kind, "sessionId": "s-1", "timestamp": time, **more}


def queue(operation: str, second: float, text: str | None = None) -> Record:
    """A text enters or leaves the queue of what the model is to be told."""
    record = system("", second) | {"type": "queue-operation", "operation": operation}
    return record if text is None else record | {"content": text}


def kinds(events: Events) -> list[str]:
    """Types of events, inputs with their source, without the session's start."""
    return [e.get("source") or e["type"] for e in events if e["type"] != "session.started"]


REPORT = "<task-notification>\n<status>completed</status>\n</task-notification>\nFull transcript: /tmp/x"


@pytest.mark.parametrize(
    ("record", "source"),
    [
        (line("user", REPORT, 5), "report"),
        (line("user", "12 of 12", 5, origin={"kind": "task-notification"}), "report"),
        (line("user", "look again", 5, origin={"kind": "task-notification", "subkind": "scheduled-trigger"}), "timer"),
        (line("user", '<teammate-message teammate_id="lead">\nsecond part</teammate-message>', 5), "agent"),
        (line("user", "a peer says", 5, origin={"kind": "peer"}), "agent"),
        (line("user", "Stop hook feedback:\nrun the tests", 5, isMeta=True), "hook"),
        (system("scheduled_task_fire", 5, content="look again"), "timer"),
    ],
)
def test_others_wake_the_model(record: Record, source: str) -> None:
    """Each gives it a turn of its own; the turn before has ended with its last message."""
    events = imported("claude-code", line("user", "go", 1), says("I wait.", 2), record, says("It is done.", 6))
    assert kinds(events) == [
        *("user.message", "turn.started", "model.text", "turn.ended"),
        *(source, "turn.started", "model.text", "turn.ended"),
    ]
    assert [event["turn_index"] for event in events if event["type"] == "model.text"] == [0, 1]
    assert [event["time"][17:19] for event in events if event["type"] == "turn.ended"] == ["02", "06"]


@pytest.mark.parametrize(
    ("record", "told_of_it"),
    [
        (attached("hook_success", 5, content="mind the style"), ["hook"]),
        (attached("hook_success", 5, content=""), []),
        (attached("hook_additional_context", 5, content=["mind the style"]), ["hook"]),
        (attached("hook_blocking_error", 5, blockingError={"blockingError": "no"}), ["hook"]),
        (attached("task_status", 5, status="completed"), ["report"]),
        (attached("queued_command", 5, prompt=REPORT, commandMode="task-notification"), ["report"]),
        (attached("queued_command", 5, prompt="and commit", origin={"kind": "human"}), ["user.message"]),
        (attached("queued_command", 5, prompt="/model", commandMode="prompt"), ["client"]),
        (attached("file", 5, filename="a.txt"), []),
        (line("user", "Base directory for this skill: /x", 5, isMeta=True), ["client"]),
        (line("user", "<system-reminder>be nice</system-reminder>", 5), ["client"]),
        (line("user", '<teammate-message teammate_id="a">idle</teammate-message>', 5), ["agent"]),
    ],
)
def test_what_the_model_is_told_while_it_works(record: Record, told_of_it: list[str]) -> None:
    """It closes no call and ends no turn."""
    events = imported(
        "claude-code", line("user", "go", 1), use("a", 2), result("a", "x", 4), record, use("b", 6), result("b", "y", 7)
    )
    call = ["tool_call.started", "tool_call.finished"]
    assert kinds(events) == ["user.message", "turn.started", *call, *told_of_it, *call, "turn.ended"]


def test_a_person_may_speak_below_a_reminder() -> None:
    """The words count that are the user's."""
    text = "<system-reminder>\nIt runs.\n</system-reminder>\n\nCan we write a guide?"
    (spoken,) = (e for e in imported("claude-code", line("user", text, 1)) if e["type"] == "user.message")
    assert spoken["words"] == 5
    command = "<command-name>/tidy</command-name>\n<command-args>all of it</command-args>"
    (typed,) = (
        e for e in imported("claude-code", line("user", command, 1), says("Yes.", 2)) if e["type"] == "user.message"
    )
    assert typed["words"] == 4


@pytest.mark.parametrize(
    ("moves", "told_of_it"),
    [
        ([queue("enqueue", 3, "commit then"), queue("remove", 5)], ["user.message"]),
        ([queue("enqueue", 3, '{"task_id":"a1"}'), queue("remove", 5)], ["report"]),
        ([queue("enqueue", 3, "commit then"), queue("popAll", 5, "commit then"), queue("remove", 5)], []),
        ([queue("enqueue", 3, "commit then")], []),
        (
            [queue("enqueue", 3, REPORT), attached("queued_command", 3, prompt=REPORT), queue("remove", 5, REPORT)],
            ["report"],
        ),
    ],
)
def test_what_leaves_the_queue_is_told_once(moves: list[Record], told_of_it: list[str]) -> None:
    """Older versions write nothing else of it, later ones an attachment, too."""
    events = imported("claude-code", line("user", "go", 1), use("a", 2), result("a", "x", 4), *moves, says("So.", 6))
    call = ["tool_call.started", "tool_call.finished"]
    assert kinds(events) == ["user.message", "turn.started", *call, *told_of_it, "model.text", "turn.ended"]


def test_a_report_from_the_queue_is_a_turn_though_no_line_tells_of_it() -> None:
    """Its line may come later, or never; the note on the turn before may come after it."""
    for late in ([], [line("user", REPORT, 9)]):
        events = imported(
            "claude-code",
            line("user", "go", 1),
            says("I wait.", 2),
            *(queue("enqueue", 8, REPORT), queue("dequeue", 8), system("stop_hook_summary", 3), *late),
            says("It is done.", 10),
        )
        assert kinds(events) == [
            *("user.message", "turn.started", "model.text", "turn.ended"),
            *("report", "turn.started", "model.text", "turn.ended"),
        ]


@pytest.mark.parametrize(
    "records",
    [
        [system("compact_boundary", 3), line("user", "the story so far", 3, isCompactSummary=True)],
        [line("user", "the story so far", 3, isCompactSummary=True, isVisibleInTranscriptOnly=True)],
        [system("microcompact_boundary", 3)],
    ],
)
def test_a_compaction_is_no_message(records: list[Record]) -> None:
    """It counts once, with its summary, and the turn goes on."""
    events = imported("claude-code", line("user", "go", 1), *records, says("On.", 4))
    assert kinds(events) == ["user.message", "turn.started", "context.compacted", "model.text", "turn.ended"]


@pytest.mark.parametrize(
    ("stop", "ended"),
    [
        ([says("Done.", 5, message={"stop_reason": "end_turn"})], "05"),
        ([says("Done.", 5, message={"stop_reason": None}), system("turn_duration", 40)], "05"),
        ([says("Done.", 5), system("stop_hook_summary", 40)], "05"),
        ([says("Done.", 5), line("user", "and now", 50)], "05"),
        ([use("a", 5), line("user", "[Request interrupted by user]", 9)], "09"),
        ([says("API Error: 529", 9, model="<synthetic>")], "09"),
        ([says("Done.", 5)], "05"),
        ([use("a", 5), result("a", "x", 7)], "07"),
    ],
)
def test_a_turn_ends_when_the_model_rests(stop: list[Record], ended: str) -> None:
    """Not when the client writes it down, the user speaks again, or the log is cut."""
    events = imported("claude-code", line("user", "go", 1), *stop)
    assert next(e["time"][17:19] for e in events if e["type"] == "turn.ended") == ended


def test_a_log_cut_in_the_middle_of_a_turn_is_no_stall() -> None:
    """Though the session is known to end its turns; nor is the time until the next prompt."""
    turn = [line("user", "go", 1), says("Done.", 5), system("turn_duration", 6)]
    cut = [line("user", "on", 100), use("a", 101), result("a", "x", 102)]
    later = [line("user", "x", 3000, sessionId="s-2")]
    assert ("pattern.detected", "stalled_turn") not in decided(read("claude-code", lines_of(*turn, *cut, *later)))


def test_calls_name_their_message() -> None:
    """All of its lines have one id; thoughts are no messages, and blanks are nothing."""
    parts: list[Record] = [
        {"type": "thinking", "thinking": "hm"},
        {"type": "thinking", "thinking": ""},
        {"type": "text", "text": "\n\n"},
        {"type": "tool_use", "id": "a", "name": "Read", "input": {}},
        {"type": "tool_use", "id": "b", "name": "Read", "input": {}},
    ]
    records = [line("assistant", [part], 1) for part in parts]
    for record in records:
        record["message"]["id"] = "msg_1"
    events = imported("claude-code", *records)
    assert [event.get("message_id") for event in events if event["type"] == "tool_call.started"] == ["msg_1"] * 2
    assert [(e["text"], e["thought"]) for e in events if e["type"] == "model.text"] == [("hm", True)]


def test_the_prompt_of_a_sub_agent_is_of_an_agent() -> None:
    """Nobody typed it."""
    events = imported("claude-code", line("user", "look for it", 1, isSidechain=True, agentId="a7"))
    assert kinds(events) == ["agent", "turn.started", "turn.ended"]


def test_names_of_any_length_and_marks_of_any_kind() -> None:
    """A field may hold any JSON."""
    run = ImportRun()
    chain = {"isSidechain": True, "agentId": "a" * 300}
    odd = [system("x", 2) | {"subtype": ["turn_duration"]}, attached("x", 2) | {"attachment": ["x"]}]
    events = imported(
        "claude-code", line("user", "go", 1), *odd, use("a", 3, **chain), says("Done.", 4, **chain), run=run
    )
    assert kinds(events).count("model.text") == 1
    assert run.skipped.count == 0


@pytest.mark.parametrize("text", [" " * 300_000, "<tool_use_error>" + "\n" * 300_000, "<system-reminder>" * 20_000])
def test_texts_of_any_shape_take_time_by_their_length(text: str) -> None:
    """A pattern that reads a text again from each of its places would take minutes."""
    events = imported("claude-code", line("user", text, 1), use("t", 2), result("t", text, 3, is_error=True))
    assert calls(events) == [("Bash", "error", "tool_error")]
