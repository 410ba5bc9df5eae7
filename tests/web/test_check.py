"""Asking before a call over HTTP: the guard's decision, approvals that are used once, and nothing that is published."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import orjson
import pytest
from fixed_rules import TO_OPEN, CallRules, Rules
from starlette.testclient import TestClient
from trustfold.rules.calls import DangerRules
from trustfold.streams.embedded.engine import EmbeddedEngine
from trustfold.streams.embedded.server import make_app
from trustfold.streams.embedded.sign_in import RoleTokens
from trustfold.streams.embedded.store_views import StoreViews
from trustfold.web.routes import more_routes

TOOL = "deploy"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[TestClient]:
    """A server in this process that takes orders."""
    path = tmp_path / "store.sqlite"
    app = make_app(EmbeddedEngine.open(path, Rules()), path, roles=RoleTokens(local_orders=True), more=more_routes)
    with TestClient(app, base_url="http://127.0.0.1:8321") as client:
        yield client


def before(seconds: float) -> str:
    """A time, so many seconds ago."""
    return (datetime.now(UTC) - timedelta(seconds=seconds)).isoformat(timespec="milliseconds")


def check(server: TestClient, tool: str = TOOL, **fields: Any) -> dict[str, Any]:
    """Ask about a call; returns the answer."""
    answer = server.post("/v1/check", json={"tool_name": tool, **fields})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def fail(server: TestClient, tool: str = TOOL, *, times: int = 3, **fields: Any) -> None:
    """Let a tool fail: three times, and it must be asked about; five times, and its circuit opens."""
    failures = [
        {
            "schema_version": "1.0",
            "id": f"{tool}-{number}",
            "type": "tool_call.finished",
            "time": before(20 - number),
            "session_id": "s1",
            "call_id": f"{tool}-{number}",
            "tool_name": tool,
            "status": "error",
            "error": {"type": "HTTPError", "http_status": 500, "message": "internal error"},
            **fields,
        }
        for number in range(times)
    ]
    assert server.post("/v1/events", content=b"\n".join(map(orjson.dumps, failures))).json()["dead_letters"] == 0


def approve(server: TestClient, key: str = TOOL, order: str = "order-1", **fields: Any) -> None:
    """Approve one call, as an operator."""
    command = {"schema_version": "1.0", "id": order, "type": "trust.approve", "time": before(0), "key": key}
    assert server.post("/v1/commands", json=command | fields).json()["dead_letters"] == 0


def test_a_call_that_nothing_is_held_against_is_allowed(server: TestClient) -> None:
    """With the keys under which it counts, narrowest first."""
    assert check(server, "bash", args={"command": "git push"}) == {
        "allowed": True,
        "ask": False,
        "code": "allowed",
        "message": "",
        "keys": ["bash|command=git", "bash"],
    }


def test_a_tool_that_failed_must_be_asked_about_and_an_open_circuit_refuses(server: TestClient) -> None:
    """With the reason in words; other tools and other workspaces are free."""
    fail(server)
    asked = check(server)
    assert (asked["allowed"], asked["ask"], asked["code"]) == (True, True, "approval_required")
    assert "3/3 failures" in asked["message"]
    assert check(server, "other")["code"] == check(server, workspace_id="w2")["code"] == "allowed"
    fail(server, "fetch", times=TO_OPEN)
    refused = check(server, "fetch")
    assert (refused["allowed"], refused["ask"], refused["code"]) == (False, False, "circuit_open")


def test_a_removed_tool_is_refused(server: TestClient) -> None:
    """A whole event may be sent, too, as it would be published."""
    remove = {"schema_version": "1.0", "id": "o", "type": "tool.remove", "time": before(0), "key": TOOL}
    server.post("/v1/commands", json=remove)
    event = {"schema_version": "1.0", "id": "e", "type": "tool_call.started", "time": before(0), "call_id": "c"}
    assert check(server, **event, session_id="s1")["code"] == "removed"


def test_workspace_and_user_are_the_sessions_own(server: TestClient) -> None:
    """A call that names no workspace counts in that of its session, and so it is checked there."""
    fail(server, workspace_id="shop")
    assert check(server, session_id="s1")["ask"]
    assert not check(server)["ask"]
    assert not check(server, session_id="s1", workspace_id="blog")["ask"]


def test_an_approval_lets_one_call_pass(server: TestClient) -> None:
    """It is shown to everybody and given to one; the event of the call uses it up for good."""
    fail(server)
    approve(server)
    for _ in range(2):
        shown = check(server)
        assert (shown["allowed"], shown["ask"], shown["code"]) == (True, False, "approved")
        assert "approvals" not in shown
    assert check(server, use=True)["approvals"] == ["order-1"]
    late = check(server, use=True)
    assert late["ask"]
    assert "approvals" not in late
    assert "3/3 failures" in late["message"]
    fail(server, times=1, id="approved", call_id="approved", status="success", error=None, approvals=["order-1"])
    (trust,) = (one for one in server.get("/v1/state").json()["states"] if one["kind"] == "trust")
    assert "approval_id" not in trust
    approve(server, order="order-2")
    assert check(server, use=True)["approvals"] == ["order-2"]


def test_an_approval_of_a_session_lets_all_of_its_calls_pass(server: TestClient) -> None:
    """None of them uses it up; calls of other sessions ask as before."""
    fail(server)
    approve(server, session_id="s7")
    for _ in range(2):
        asked = check(server, use=True, session_id="s7")
        assert (asked["code"], "approvals" in asked) == ("approved", False)
    assert check(server, use=True, session_id="s8")["ask"]
    assert check(server, use=True)["ask"]


def test_a_coding_agent_uses_the_same_approval(server: TestClient, tmp_path: Path) -> None:
    """Once in all: its hook takes it, its events name it, and nobody else passes by it."""
    folder = str(tmp_path)
    fail(server, "Deploy", workspace_id=folder)
    approve(server, "Deploy", workspace_id=folder)
    call = {"session_id": "a", "cwd": folder, "tool_name": "Deploy", "tool_input": {}, "tool_use_id": "t1"}
    shadow = server.post("/hooks/claude?shadow=1", json={"hook_event_name": "PreToolUse", **call, "session_id": "b"})
    assert shadow.json() == {}
    assert check(server, "Deploy", workspace_id=folder)["code"] == "approved"
    assert server.post("/hooks/claude", json={"hook_event_name": "PreToolUse", **call}).json() == {}
    assert check(server, "Deploy", workspace_id=folder)["ask"]
    server.post("/hooks/claude", json={"hook_event_name": "PostToolUse", "tool_response": {}, **call})
    (trust,) = (one for one in server.get("/v1/state").json()["states"] if one["kind"] == "trust")
    assert "approval_id" not in trust
    again = server.post("/hooks/claude", json={"hook_event_name": "PreToolUse", **call, "tool_use_id": "t2"}).json()
    assert again["hookSpecificOutput"]["permissionDecision"] == "ask"


@pytest.mark.parametrize(
    ("tool", "args", "words", "key"),
    [
        (
            "Bash",
            {"command": "rm -rf ~/"},
            "`rm -rf ~/` would remove a root, system or home directory",
            "Bash|danger=root",
        ),
        ("pg_query", {"sql": "DROP TABLE x"}, "`pg_query` would drop a table", "pg_query|danger=database"),
    ],
)
def test_a_dangerous_call_is_asked_about_before_it_runs(
    server: TestClient, tool: str, args: dict[str, str], words: str, key: str
) -> None:
    """The answer says what would happen and what a person may do; an approval lets one such call pass."""
    answer = check(server, tool, args=args)
    assert (answer["allowed"], answer["ask"], answer["code"]) == (True, True, "approval_required")
    assert answer["message"] == f"{words}; a person may let one call pass: `trustfold approve '{key}' --once`"
    assert answer["keys"][0] == key
    assert check(server, tool, args={"command": "rm -rf build", "sql": "SELECT 1"})["code"] == "allowed"
    assert check(server, tool, failure_key=key)["ask"], "for a publisher that keeps the arguments to itself"
    approve(server, key)
    assert check(server, tool, args=args, use=True)["approvals"] == ["order-1"]
    assert check(server, tool, args=args)["ask"]


def test_what_the_rules_deny_nobody_may_approve(tmp_path: Path) -> None:
    """Levels and exceptions are those of the engine's rules."""
    calls = CallRules(security_allow=("^rm -rf ~/scratch/?$",), danger=DangerRules(root="deny", forced_push="observe"))
    path = tmp_path / "store.sqlite"
    app = make_app(EmbeddedEngine.open(path, Rules(calls=calls)), path, more=more_routes)
    with TestClient(app, base_url="http://127.0.0.1:8321") as server:
        refused = check(server, "Bash", args={"command": "rm -rf ~"})
        assert (refused["allowed"], refused["code"]) == (False, "blocked")
        assert "the rules refuse this (calls.danger.root)" in refused["message"]
        assert check(server, "Bash", args={"command": "git push --force"})["code"] == "allowed"
        assert check(server, "Bash", args={"command": "rm -rf ~/scratch"})["code"] == "allowed"


def test_nothing_is_published(server: TestClient, tmp_path: Path) -> None:
    """The log and the decisions are what they were."""
    fail(server)
    tail = StoreViews.open(tmp_path / "store.sqlite")
    ends = tail.ends()
    for _ in range(3):
        check(server, session_id="s1", use=True)
    assert tail.ends() == ends


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "not JSON"),
        (b"[]", "tool_name"),
        (b'{"args": {}}', "tool_name"),
        (b'{"tool_name": "a", "use": 1}', "use"),
        (b'{"tool_name": "a", "type": "tool_call.finished"}', "tool_call.started"),
        (b'{"tool_name": "a\\u001f"}', "U+001F"),
        (b'{"tool_name": "a", "session_id": 7}', "session_id"),
        (b'{"tool_name": "a", "args": ' + b"[" * 300 + b"]" * 300 + b"}", ""),
        (b'{"tool_name": "a", "args": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", ""),
    ],
)
def test_what_is_no_call_is_said(server: TestClient, body: bytes, words: str) -> None:
    """400, with the field that is wrong."""
    answer = server.post("/v1/check", content=body)
    assert answer.status_code == 400
    assert words in answer.json()["error"]


def test_secrets_make_no_key(server: TestClient) -> None:
    """The keys are those under which the call's events count, where secrets are hidden."""
    secret = "ghp_" + "a1B2" * 9
    assert secret not in orjson.dumps(check(server, "bash", args={"command": f"curl -H 'token: {secret}'"})).decode()
