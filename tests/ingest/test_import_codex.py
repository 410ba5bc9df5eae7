"""Session logs of Codex, from the first document to the rollouts of today."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from import_kit import calls, decided, imported, lines_of, pairs, read, told
from trustfold.ingest import ImportRun

Record = dict[str, Any]


def at(second: float, kind: str, **payload: Any) -> Record:
    """A line of a rollout, ten o'clock and some seconds."""
    time = f"2026-01-05T10:{int(second) // 60:02d}:{second % 60:06.3f}Z"
    return {"timestamp": time, "type": kind, "payload": payload}


def item(second: float, **payload: Any) -> Record:
    """An item of the conversation."""
    return at(second, "response_item", **payload)


def shown(second: float, **payload: Any) -> Record:
    """An event for the screen."""
    return at(second, "event_msg", **payload)


def call(call_id: str, second: float, name: str = "exec_command", **arguments: Any) -> Record:
    """The model calls a function."""
    text = orjson.dumps(arguments or {"cmd": f"run {call_id}"}).decode()
    return item(second, type="function_call", name=name, arguments=text, call_id=call_id)


def output(call_id: str, second: float, given: Any, kind: str = "function_call_output") -> Record:
    """What it gave."""
    return item(second, type=kind, call_id=call_id, output=given)


def message(second: float, role: str, *texts: str) -> Record:
    """A message."""
    return item(second, type="message", role=role, content=[{"type": "input_text", "text": text} for text in texts])


META = at(0, "session_meta", id="r-1", cwd="/src/shop", timestamp="2026-01-05T10:00:00Z")
HEAD = "Chunk ID: 7dc909\nWall time: 0.2500 seconds\nProcess exited with code {}\nOriginal token count: 9\nOutput:\n{}"


def as_json(exit_code: int, text: str, seconds: float = 0.5) -> str:
    """An output of the versions before unified execution."""
    about = {"exit_code": exit_code, "duration_seconds": seconds}
    return orjson.dumps({"output": text, "metadata": about}).decode()


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (HEAD.format(0, "Exit code: 1\nError: in a log that was read"), ("success", None)),
        (HEAD.format(1, "boom"), ("error", "exit_code_1")),
        (HEAD.format(-9, ""), ("error", "exit_code_-9")),
        ("Exit code: 2\nWall time: 0.1 seconds\nOutput:\nboom", ("error", "exit_code_2")),
        ("Wall time: 10.0 seconds\nProcess running with session ID 7\nOutput:\n", ("success", None)),
        (as_json(0, "Error: what a file holds"), ("success", None)),
        (as_json(1, "exec command rejected by user"), ("error", "user_rejected")),
        ({"content": "boom", "success": False}, ("error", "tool_error")),
        ({"content": "patch rejected by user", "success": False}, ("error", "user_rejected")),
        ({"content": "fine", "success": True}, ("success", None)),
        ("aborted by user after 5.0s", ("cancelled", "interrupted")),
        ("Wall time: 3.2 seconds\naborted by user", ("cancelled", "interrupted")),
        ("apply_patch verification failed: no such file", ("error", "tool_error")),
        ("failed to parse function arguments: missing field", ("rejected", "tool_error")),
        ("unsupported call: frobnicate", ("rejected", "tool_error")),
        ('err: "deadline has elapsed"', ("error", "tool_error")),
        ([{"type": "input_text", "text": "fine"}, {"type": "input_image", "image_url": "data:"}], ("success", None)),
        ("", ("success", None)),
    ],
)
def test_how_a_call_ended(given: Any, expected: tuple[str, str | None]) -> None:
    """In the words of every version."""
    assert calls(imported("codex", META, call("c", 1), output("c", 3, given))) == [("Bash", *expected)]


@pytest.mark.parametrize(
    ("given", "plain", "exit_code", "duration_ms"),
    [
        (as_json(3, "boom", 2.5), "boom", 3, 2500),
        (HEAD.format(3, "boom\nOutput:\nmore"), "boom\nOutput:\nmore", 3, 250),
        ("Exit code: 2\nWall time: 0.1 seconds\nOutput:\nboom", "boom", 2, 100),
        ("Chunk ID: 1\nWall time: 5.0 seconds\nProcess running with session ID 7\nOutput:\n", "", None, 5000),
        ([{"type": "input_text", "text": "Wall time: 0.1 seconds\nOutput:"}], "", None, 100),
        ("a log\nWall time: 3.0 seconds\nOutput:\nx", "a log\nWall time: 3.0 seconds\nOutput:\nx", None, 3000),
    ],
)
def test_a_result_is_the_plain_output(given: Any, plain: str, exit_code: int | None, duration_ms: float) -> None:
    """Without the random words before it; exit code and duration have fields of their own."""
    events = imported("codex", META, call("c", 1), output("c", 9, given))
    (finished,) = (event for event in events if event["type"] == "tool_call.finished")
    assert (finished["result"], finished["duration_ms"]) == (plain, duration_ms)
    assert (finished.get("error") or {}).get("type") == (f"exit_code_{exit_code}" if exit_code else None)


def test_looks_at_a_running_command_are_equal_while_it_says_nothing() -> None:
    """Empty writes to its terminal; pictures differ where they do."""
    quiet = "Chunk ID: {}\nWall time: 5.00{} seconds\nProcess running with session ID 7\nOutput:\n"
    picture = {"type": "input_image", "image_url": "data:one"}
    events = imported(
        "codex",
        META,
        call("a", 1, "write_stdin", session_id=7, chars=""),
        output("a", 6, quiet.format("1a", 1)),
        call("b", 7, "write_stdin", session_id=7, chars=""),
        output("b", 12, quiet.format("2b", 2)),
        call("c", 13, "view_image", path="x.png"),
        output("c", 14, [picture]),
        call("d", 15, "view_image", path="x.png"),
        output("d", 16, [picture | {"image_url": "data:two"}]),
    )
    assert pairs(events)[:2] == [({"session_id": 7, "chars": ""}, "")] * 2
    one, two = (result for _, result in pairs(events)[2:])
    assert one.startswith("[image ")
    assert one != two


def test_calls_between_two_outputs_are_one_message() -> None:
    """Whatever else the model says with them."""
    events = imported(
        "codex",
        META,
        message(1, "user", "go"),
        item(2, type="reasoning", summary=[{"type": "summary_text", "text": "hm"}]),
        call("a", 2),
        message(2, "assistant", "And"),
        call("b", 2),
        output("a", 3, "x"),
        output("b", 3, "y"),
        call("c", 4),
        output("c", 5, "z"),
    )
    one, two, three = (event["message_id"] for event in events if event["type"] == "tool_call.started")
    assert one == two != three
    assert told(events, "thought")[1] == ("model.text", True)


def test_compactions_count_once() -> None:
    """The item and its event for the screen are one; turns taken back shorten the context, too."""
    events = imported(
        "codex",
        META,
        at(1, "compacted", message="the story so far", replacement_history=[]),
        shown(1, type="context_compacted"),
        shown(9, type="context_compacted"),
        shown(20, type="thread_rolled_back", num_turns=1),
    )
    assert [event["time"][17:19] for event in events if event["type"] == "context.compacted"] == ["01", "09", "20"]


def test_the_prompt_of_a_sub_agent_is_of_an_agent() -> None:
    """Nobody typed it."""
    meta = at(0, "session_meta", id="r-3", source={"subagent": {"thread_spawn": {"parent_thread_id": "r-1"}}})
    assert told(imported("codex", meta, message(1, "user", "look for it")), "source") == [("input.received", "agent")]


def test_turns_end_when_the_model_rests() -> None:
    """A record that the client writes later, the next prompt and the end of the log change nothing of it."""
    events = imported(
        "codex",
        META,
        message(1, "user", "go"),
        message(5, "assistant", "Done."),
        shown(500, type="task_complete"),
        message(600, "user", "## My request for Codex:\nand now\n"),
        call("a", 601),
        message(3000, "user", "on"),
        message(3004, "assistant", "Well."),
    )
    assert [event["time"][14:19] for event in events if event["type"] == "turn.ended"] == ["00:05", "10:01", "50:04"]
    assert [event["words"] for event in events if event["type"] == "user.message"] == [1, 2, 1]


@pytest.mark.parametrize(
    ("end", "given", "expected"),
    [
        (
            {
                "type": "exec_command_end",
                "exit_code": 7,
                "duration": {"secs": 1, "nanos": 5_000_000},
                "status": "failed",
            },
            "boom",
            ("error", "exit_code_7"),
        ),
        (
            {"type": "exec_command_end", "exit_code": 0, "duration": {"secs": 1, "nanos": 5_000_000}},
            "Error: quoted",
            ("success", None),
        ),
        (
            {"type": "patch_apply_end", "success": False, "status": "declined", "stderr": ""},
            "no",
            ("error", "user_rejected"),
        ),
        ({"type": "patch_apply_end", "success": False, "stderr": "conflict"}, "no", ("error", "tool_error")),
        (
            {
                "type": "mcp_tool_call_end",
                "result": {"Ok": {"isError": True, "content": [{"type": "text", "text": "down"}]}},
            },
            "down",
            ("error", "ToolError"),
        ),
        ({"type": "mcp_tool_call_end", "result": {"Err": "timed out"}}, "x", ("error", "tool_error")),
        ({"type": "mcp_tool_call_end", "result": {"Ok": {"content": []}}}, "x", ("success", None)),
    ],
)
def test_events_for_the_screen_know_how_a_call_ended(end: Record, given: str, expected: tuple[str, Any]) -> None:
    """Where the output for the model leaves it out."""
    events = imported("codex", META, call("c", 1), shown(3, call_id="c", **end), output("c", 9, given))
    assert calls(events) == [("Bash", *expected)]
    assert events[-1]["duration_ms"] == (1005 if "duration" in end else 8000)


@pytest.mark.parametrize(
    ("record", "spoken"),
    [
        (message(1, "user", "fix it"), True),
        (message(1, "user", "<environment_context>\n<cwd>/x</cwd>\n</environment_context>"), False),
        (message(1, "user", "<environment_context>x</environment_context>", "fix it"), True),
        (message(1, "user", "# AGENTS.md instructions for /x\n\n<INSTRUCTIONS>be good</INSTRUCTIONS>"), False),
        (message(1, "user", "<user_shell_command>ls</user_shell_command>"), False),
        (message(1, "user", "<skill>\n<name>x</name>\n</skill>"), False),
        (item(1, type="message", role="user", content=[{"type": "input_image", "image_url": "data:"}]), True),
        (message(1, "developer", "permissions"), False),
        (shown(1, type="user_message", message="fix it"), False),
        (at(1, "compacted", message="the story so far", replacement_history=[]), False),
    ],
)
def test_who_is_a_user(record: Record, spoken: bool) -> None:
    """What the client adds by itself begins no turn; what stands twice counts once."""
    assert (told(imported("codex", META, record)) == [("user.message",)]) == spoken


@pytest.mark.parametrize(
    "stop",
    [
        [shown(5, type="turn_aborted", reason="interrupted")],
        [message(5, "user", "<turn_aborted>\nThe user interrupted.\n</turn_aborted>")],
        [message(5, "user", "do something else")],
        [],
    ],
)
def test_a_call_given_up_is_no_timeout(stop: list[Record]) -> None:
    """Interrupted, passed over, or the last line of a killed client."""
    assert calls(imported("codex", META, call("c", 1), *stop)) == [("Bash", "cancelled", "interrupted")]


def test_calls_that_the_server_makes_are_whole() -> None:
    """A web search has no output of its own."""
    search = item(1, type="web_search_call", status="completed", action={"type": "search", "query": "x"})
    events = imported("codex", META, search, search)
    assert calls(events) == [("web_search", "success", None)] * 2
    assert pairs(events)[0][0] == {"type": "search", "query": "x"}


def test_kinds_of_calls() -> None:
    """Shells as one command line, patches as they are, MCP with its server."""
    words = orjson.dumps({"command": ["bash", "-lc", "git status"]}).decode()
    events = imported(
        "codex",
        META,
        item(1, type="function_call", name="shell", arguments=words, call_id="a"),
        item(
            1,
            type="local_shell_call",
            call_id="b",
            status="completed",
            action={"type": "exec", "command": ["ls", "-l"]},
        ),
        item(1, type="custom_tool_call", name="apply_patch", input="*** Begin Patch", call_id="c"),
        item(1, type="function_call", name="find", namespace="mcp__tracker", arguments="{}", call_id="d"),
        output("b", 2, "of b"),
        output("d", 2, "of d"),
        output("c", 2, "of c", "custom_tool_call_output"),
        output("a", 2, "of a"),
    )
    assert pairs(events) == [
        ({"command": "ls -l"}, "of b"),
        ({}, "of d"),
        ({"input": "*** Begin Patch"}, "of c"),
        ({"command": "git status"}, "of a"),
    ]
    assert [event["service"] for event in events if "service" in event] == ["mcp__tracker"]


def test_the_model_is_that_of_the_turn() -> None:
    """It may change within a session."""
    events = imported(
        "codex",
        META,
        at(0, "turn_context", model="m-1"),
        call("a", 1),
        output("a", 2, "x"),
        at(3, "turn_context", model="m-2"),
        call("b", 4),
        output("b", 5, "x"),
    )
    assert [event.get("model") for event in events] == [None, "m-1", "m-1", "m-2", "m-2"]


def test_a_fork_repeats_the_calls_of_its_parent() -> None:
    """They count once, in the session that made them."""
    parent = [META, call("call_0123456789abcdef", 1), output("call_0123456789abcdef", 2, "x")]
    fork = [
        at(9, "session_meta", id="r-2", forked_from_id="r-1"),
        call("call_0123456789abcdef", 9),
        output("call_0123456789abcdef", 9, "x"),
        call("call_fedcba9876543210", 10),
        output("call_fedcba9876543210", 11, "y"),
    ]
    run = ImportRun()
    assert len(calls(imported("codex", *parent, run=run))) == 1
    assert pairs(imported("codex", *fork, run=run)) == [({"command": "run call_fedcba9876543210"}, "y")]
    assert run.skipped.repeated == 2


def test_older_logs() -> None:
    """Items without a wrapping, with lines of state between; and one document before that."""
    items = [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "go"}]},
        {"type": "function_call", "name": "shell", "arguments": '{"command":["ls"]}', "call_id": "a"},
        {"type": "function_call_output", "call_id": "a", "output": as_json(0, "x")},
    ]
    header = {"id": "old-1", "timestamp": "2026-01-05T10:00:00Z", "instructions": None}
    lines = imported("codex", header, {"record_type": "state"}, *items)
    document = imported("codex", {"session": header, "items": items}, whole=True)
    for events in (lines, document):
        assert [event["type"] for event in events if not event["type"].startswith("turn.")] == [
            "session.started",
            "user.message",
            "tool_call.started",
            "tool_call.finished",
        ]
        assert {event["session_id"] for event in events} == {"old-1"}
        assert {event["time"][:10] for event in events} == {"2026-01-05"}


def test_a_log_without_its_head_is_named_after_its_file() -> None:
    """Its calls count all the same."""
    events = imported("codex", call("a", 1), output("a", 2, "x"), source="rollout-7")
    assert {event["session_id"] for event in events} == {"rollout-7"}


def test_an_outage_opens_the_circuit() -> None:
    """A server that times out again and again."""
    log = [META, message(0, "user", "go")]
    for number in range(12):
        log += [
            call(f"c{number}", number * 20 + 1, "fetch", url=f"https://api.example.com/v1/{number}"),
            output(f"c{number}", number * 20 + 9, {"content": "503 service unavailable", "success": False}),
        ]
    assert ("breaker.changed", "open") in decided(read("codex", lines_of(*log)))
