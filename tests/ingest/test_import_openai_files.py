"""Files of transcripts: what is one session in them, as APIs, proxies, datasets and benchmarks write them."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from import_kit import calls, decided, imported, lines_of, pairs, read, told
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
CHAT = [USER, asks(("1", "f", A)), answers("1", "x"), {"role": "assistant", "content": "Done."}]


@pytest.mark.parametrize(
    "record",
    [
        {"messages": CHAT},
        {"messages": orjson.dumps(CHAT).decode()},
        {"traj": CHAT, "task_id": 3, "trial": 0, "reward": 1.0, "info": {"task": {}}},
        {"trajectory": CHAT, "instance_id": "x__y-1"},
        {"conversation": CHAT},
        {
            "request": {"messages": CHAT[:3], "model": "m"},
            "response": {"choices": [{"message": CHAT[3]}, {"message": CHAT[1]}]},
        },
        {"body": {"messages": CHAT[:3]}, "response": {"body": {"choices": [{"message": CHAT[3]}]}}, "custom_id": "r-1"},
        {"custom_id": "r", "response": {"status_code": 200, "body": {"input": CHAT, "output": []}}},
        {"object": "list", "data": CHAT},
        {"simulations": [{"id": "sim", "messages": CHAT}], "info": {}},
        {"input": {"messages": CHAT[:3]}, "preferred_output": [CHAT[3]], "non_preferred_output": [CHAT[1]]},
    ],
)
def test_transcripts_in_all_kinds_of_files(record: Item) -> None:
    """Each call once, one session, from one line or a document."""
    for whole in (True, False):
        events = imported("openai", record, whole=whole)
        assert told(events, "tool_name") == [
            ("user.message", None),
            ("tool_call.started", "f"),
            ("tool_call.finished", "f"),
            ("model.text", None),
        ]
        assert len({event["session_id"] for event in events}) == 1


def test_runs_of_swe_agent() -> None:
    """A step is a thought, a command and what it printed."""
    steps = [
        {"thought": "look", "action": "ls\n", "observation": "a b", "execution_time": 0.25},
        {"response": "run", "action": "make", "observation": "Traceback (most recent call last):\n x"},
        {"thought": "give up", "action": "", "observation": ""},
    ]
    events = imported(
        "openai", {"trajectory": steps, "history": CHAT, "info": {"exit_status": "submitted"}}, whole=True
    )
    assert calls(events) == [("bash", "success", None), ("bash", "error", "tool_error")]
    assert pairs(events)[0] == ({"command": "ls"}, "a b")
    assert next(event["duration_ms"] for event in events if "duration_ms" in event) == 250


def test_calls_of_a_simulated_user_are_nobodys() -> None:
    """In tau2-bench the user has tools, too."""
    events = imported(
        "openai",
        USER,
        {
            "role": "user",
            "content": None,
            "tool_calls": [{"id": "u", "name": "toggle", "arguments": {}, "requestor": "user"}],
        },
        {"role": "tool", "id": "u", "requestor": "user", "content": "on"},
    )
    assert told(events) == [("user.message",)]


def test_runs_of_one_task_are_sessions_of_their_own() -> None:
    """Named after file, task and trial; the same task again gets a number."""
    run = {"task_id": 3, "traj": CHAT}
    records = [
        run | {"trial": 0},
        run | {"trial": 1},
        {"instance_id": "a", "messages": CHAT},
        {"instance_id": "a", "messages": CHAT},
        {"messages": CHAT, "id": "own"},
    ]
    events = imported("openai", records, source="gpt")
    assert list(dict.fromkeys(event["session_id"] for event in events)) == [
        "gpt/3/0",
        "gpt/3/1",
        "gpt/a",
        "gpt/a#2",
        "own",
    ]


def test_logged_requests_repeat_the_conversation_so_far() -> None:
    """They go on with one session; a call counts once."""
    second = [*CHAT, USER, asks(("2", "f", B)), answers("2", "y")]
    requests = [
        {"id": "chatcmpl-1", "messages": CHAT[:1], "choices": [{"message": CHAT[1]}]},
        {"id": "chatcmpl-2", "messages": CHAT[:3], "choices": [{"message": CHAT[3]}]},
        {"id": "chatcmpl-3", "messages": [{"role": "user", "content": "other"}], "choices": [{"message": CHAT[3]}]},
        {"id": "chatcmpl-4", "messages": second, "choices": [{"message": CHAT[3] | {"refusal": None}}]},
    ]
    events = imported("openai", *requests)
    assert pairs(events) == [(A, "x"), (B, "y")]
    assert len({event["session_id"] for event in events}) == 2
    assert [kind for (kind,) in told(events)].count("user.message") == 3


def test_an_id_is_one_session() -> None:
    """Requests logged with a session id, each with all that was said, or with what is new."""
    grown = {"session_id": "s", "messages": [*CHAT, USER, asks(("2", "f", B)), answers("2", "y")]}
    new = {"session_id": "s", "messages": [USER, asks(("3", "f", A)), answers("3", "z")]}
    events = imported("openai", {"session_id": "s", "messages": CHAT}, grown, grown, new)
    assert [result for _, result in pairs(events)] == ["x", "y", "z"]
    assert {event["session_id"] for event in events} == {"s"}


def test_responses_go_on_with_the_one_before() -> None:
    """`previous_response_id` ties them into one session."""
    events = imported(
        "openai",
        {
            "id": "resp_1",
            "input": "go",
            "output": [{"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}"}],
        },
        {
            "id": "resp_2",
            "previous_response_id": "resp_1",
            "input": [{"type": "function_call_output", "call_id": "1", "output": "x"}],
            "output": [],
        },
    )
    assert calls(events) == [("f", "success", None)]
    assert pairs(events) == [({}, "x")]
    assert len({event["session_id"] for event in events}) == 1


def test_sessions_without_times_follow_one_another() -> None:
    """An hour apart, so that none is in another's way."""
    events = imported("openai", [{"messages": CHAT}, {"messages": [*CHAT[::-1], USER]}])
    times = {event["session_id"]: (event["type"], event["time"]) for event in reversed(events)}
    assert times == {
        "log#1": ("session.started", "2020-01-01T00:00:00.000Z"),
        "log#2": ("session.started", "2020-01-01T01:00:04.000Z"),
    }


def test_what_is_no_transcript_is_told() -> None:
    """With its line; the others are kept."""
    run = ImportRun()
    broken = {"role": "assistant", "tool_calls": [3]}
    events = imported("openai", {"messages": CHAT}, {"foo": 1}, {"messages": [USER, broken]}, run=run)
    assert len(calls(events)) == 1
    assert [text.partition(" (")[0] for text in run.skipped.first] == [
        "log:2: no message and no transcript",
        "log:3: of an unexpected shape",
    ]


def test_secrets_are_taken_out_where_that_is_asked_for() -> None:
    """Of arguments, of results and errors that repeat them, and of texts."""
    from trustfold.guard.privacy import secrets_in
    from trustfold.security.redaction import redact

    key = "sk-" + "a1B2" * 10
    items = [
        USER,
        asks(("1", "login", {"password": "hunter22", "user": "ann"}), text=f"I use {key}."),
        answers("1", "Error: hunter22 is wrong"),
    ]
    kept = orjson.dumps(imported("openai", {"messages": items})).decode()
    taken = orjson.dumps(
        imported("openai", {"messages": items}, run=ImportRun(redact=redact, secrets_in=secrets_in))
    ).decode()
    assert "hunter22" in kept
    assert "hunter22" not in taken
    assert key not in taken
    assert "ann" in taken


def test_an_obvious_loop_and_a_healthy_session() -> None:
    """The same call with the same answer again and again is seen; different ones are not."""
    looping, working = [USER], [USER]
    for number in range(8):
        looping += [asks((f"{number}", "search", A)), answers(f"{number}", "nothing")]
        working += [asks((f"{number}", "search", {"q": number})), answers(f"{number}", f"found {number}")]
    found = decided(read("openai", lines_of({"messages": looping})))
    assert ("pattern.detected", "repetitive_calls") in found
    assert not [kind for kind, _ in decided(read("openai", lines_of({"messages": working}))) if "pattern" in kind]
