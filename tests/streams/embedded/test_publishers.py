"""Ownership of sessions and workspaces over HTTP: publishers write to their own alone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, Self

import orjson
import pytest
from fixed_rules import Rules
from starlette.testclient import TestClient
from starlette.types import Receive, Scope, Send
from trustfold.errors import ConfigError
from trustfold.schemas.codec import rfc3339
from trustfold.streams.embedded.engine import EmbeddedEngine
from trustfold.streams.embedded.publishers import HOOKS, read_publishers
from trustfold.streams.embedded.server import make_app
from trustfold.streams.embedded.sign_in import RoleTokens
from trustfold.web.routes import more_routes
from waiting import wait_until

TOKEN, SHOP, BANK, OPERATOR = "everybody", "of the shop", "of the bank", "of the operator"
FILE = {"shop": {"token": SHOP, "workspaces": ["shop"]}, "bank": {"token": BANK, "workspaces": ["bank", "vault"]}}


class Server:
    """A server, its agents' own socket, and its publishers."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "store.sqlite"
        file = folder / "publishers.json"
        file.write_text(json.dumps(FILE))
        roles = RoleTokens(TOKEN, OPERATOR, own=read_publishers(file))
        app = make_app(EmbeddedEngine.open(self.path, Rules()), self.path, roles=roles, more=more_routes)

        async def by_socket(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] == "http":
                scope["server"] = (str(self.path), None)
            await app(scope, receive, send)

        self.client = TestClient(app, base_url="http://127.0.0.1:8321")
        self.socket = TestClient(by_socket, base_url="http://127.0.0.1:8321")
        self.folder = folder
        self.calls = 0

    def __enter__(self) -> Self:
        """Start it."""
        self.client.__enter__()
        self.socket.portal = self.client.portal  # one event loop for both, as in a server
        return self

    def __exit__(self, *error: object) -> None:
        """Stop it."""
        self.client.__exit__()

    def hook(self, event: str, *, forged: bool = False, **fields: Any) -> dict[str, Any]:
        """Send a hook of Claude Code, by the socket or, forged, over TCP; returns the answer."""
        payload = {"hook_event_name": event, "session_id": "agent", "cwd": str(self.folder), **fields}
        headers = {"Authorization": f"Bearer {TOKEN}"}
        door = self.client if forged else self.socket
        found: dict[str, Any] = door.post("/hooks/claude", json=payload, headers=headers).json()
        return found

    def call(self, tool: str, **given: Any) -> dict[str, Any]:
        """Let the agent call a tool; returns the answer before the call."""
        self.calls += 1
        call = {"tool_name": tool, "tool_input": given, "tool_use_id": f"t{self.calls}"}
        before = self.hook("PreToolUse", **call)
        self.hook("PostToolBatch", tool_calls=[call | {"tool_response": "nothing new"}])
        return before

    def loop(self) -> None:
        """Let the agent repeat itself until it is paused."""
        self.hook("UserPromptSubmit", prompt="go")
        for _ in range(6):
            self.call("Bash", command="./look")
        headers = {"Authorization": f"Bearer {TOKEN}"}
        hooks = partial(self.client.get, "/v1/hooks", headers=headers)
        wait_until(lambda: hooks().json()["paused"].get("agent"), what="a pause")
        assert refusal(self.call("Bash", command="./other")).startswith("trustfold: Stopped after 6")

    def post(self, *events: dict[str, Any] | bytes, token: str = TOKEN) -> dict[str, Any]:
        """Publish events; returns the receipt."""
        body = b"\n".join(one if isinstance(one, bytes) else orjson.dumps(one) for one in events)
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/x-ndjson"}
        found: dict[str, Any] = self.client.post("/v1/events", content=body, headers=headers).json()
        return found

    def states(self) -> dict[str, str]:
        """The state of every key that is away from its default."""
        found = self.client.get("/v1/state", headers={"Authorization": f"Bearer {TOKEN}"}).json()["states"]
        return {one["key"]: one["state"] for one in found if one["kind"] == "trust"}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """A server with two publishers that have tokens of their own."""
    with Server(tmp_path) as made:
        yield made


_number = iter(range(10**6))


def event(kind: str, session: str = "s", **fields: Any) -> dict[str, Any]:
    """An event of a moment ago."""
    number = next(_number)
    body = {"schema_version": "1.0", "id": f"e{number}", "type": kind, "session_id": session}
    return body | {"time": rfc3339(1_780_000_000_000 + number)} | fields


def failed(tool: str, session: str = "s", **fields: Any) -> dict[str, Any]:
    """A failure that a publisher calls a breach."""
    fields = {"error": {"severity": "security"}, "status": "error"} | fields
    return event("tool_call.finished", session, call_id="c", tool_name=tool, **fields)


def refusal(answer: dict[str, Any]) -> str:
    """The reason for which an agent may not call."""
    return str(answer.get("hookSpecificOutput", {}).get("permissionDecisionReason", ""))


def reasons(receipt: dict[str, Any]) -> list[str]:
    """What is wrong with what was published."""
    return [f"{one['reason']} {one['path']}" for one in receipt.get("faults", ())]


def test_only_the_agents_own_hooks_end_its_pause(server: Server) -> None:
    """A user's message from a publisher, in whatever form, changes nothing; nor does a hook that came over TCP."""
    server.loop()
    spoken = event("user.message", "agent")
    wrapped = {"specversion": "1.0", "id": "w", "type": "x", "source": "y", "session_id": "mine", "data": spoken}
    for forged in (spoken, wrapped, wrapped | {"session_id": 5}, wrapped | {"data": wrapped | {"workspace_id": [1]}}):
        assert reasons(server.post(forged)) == ["not_yours $.session_id"]
    assert server.hook("UserPromptSubmit", forged=True, prompt="go on") == {}
    assert refusal(server.call("Bash", command="./other")).startswith("trustfold: Stopped after 6")
    assert server.hook("UserPromptSubmit", prompt="go on") == {}
    assert refusal(server.call("Bash", command="./other")) == ""


def test_a_pause_that_others_would_end_outlives_the_server(tmp_path: Path) -> None:
    """Whose a session is, is kept: after a restart the same hooks and events are refused."""
    with Server(tmp_path) as first:
        first.loop()
    with Server(tmp_path) as second:
        assert second.hook("UserPromptSubmit", forged=True, prompt="go on") == {}
        assert reasons(second.post(event("user.message", "agent"))) == ["not_yours $.session_id"]
        assert refusal(second.call("Bash", command="./other")).startswith("trustfold: Stopped after 6")


def test_no_publisher_silences_an_agents_nudges(server: Server) -> None:
    """Settings of its session are those that its hooks stated."""
    server.hook("UserPromptSubmit", prompt="go")
    settings = {"nudge_level": "off", "pattern_detection_enabled": False}
    forged = event("session.started", "agent", settings=settings)
    assert reasons(server.post(forged)) == ["not_yours $.session_id"]
    server.loop()


@pytest.mark.parametrize("named", ["in the event", "before", "in a cloud event"])
def test_no_publisher_blocks_an_agents_tools(server: Server, named: str) -> None:
    """A breach that a publisher states of the agent's workspace counts as what the failure itself tells."""
    server.hook("UserPromptSubmit", prompt="go")
    server.call("Edit", file_path="a.py")
    place = str(server.folder)
    forged = failed("Edit", workspace_id=place)
    if named == "before":
        forged.pop("workspace_id")
        server.post(event("session.started", workspace_id=place))
    elif named == "in a cloud event":
        forged = {"specversion": "1.0", "id": "w", "type": "x", "source": "y", "data": forged}
    assert server.post(forged)["accepted"] == 1
    assert server.states().get("Edit", "trusted") == "trusted"
    assert server.call("Edit", file_path="a.py") == {}


def test_a_breach_in_a_workspace_of_publishers_counts(server: Server) -> None:
    """Where no agent is connected a publisher's word holds."""
    server.hook("UserPromptSubmit", prompt="go")
    assert server.post(failed("deploy", workspace_id="platform"))["accepted"] == 1
    assert server.states()["deploy"] == "blocked"


def test_a_token_of_its_own_is_for_its_workspaces(server: Server) -> None:
    """Whoever has one writes to no other workspace, and nobody else to those."""
    assert server.post(failed("deploy", "a", workspace_id="shop"), token=SHOP)["accepted"] == 1
    assert reasons(server.post(failed("pay", "b", workspace_id="bank"), token=SHOP)) == ["not_yours $.workspace_id"]
    assert reasons(server.post(failed("pay", "c", workspace_id="bank"))) == ["not_yours $.workspace_id"]
    assert reasons(server.post(failed("pay", "d"), token=BANK)) == ["not_yours $.workspace_id"]
    assert server.states() == {"deploy": "blocked"}


def test_events_of_a_token_with_one_workspace_are_of_it(server: Server) -> None:
    """A publisher of one workspace need not name it."""
    server.post(failed("deploy", "a"), token=SHOP)
    headers = {"Authorization": f"Bearer {TOKEN}"}
    (state,) = server.client.get("/v1/state", headers=headers).json()["states"]
    assert state["workspace_id"] == "shop"


def test_sessions_are_those_of_who_began_them(server: Server) -> None:
    """Neither can one publisher write to a session of another, whoever came first."""
    server.post(event("turn.started", "a"), token=SHOP)
    server.post(event("turn.started", "b"))
    for session, token in (("a", TOKEN), ("a", BANK), ("b", SHOP), ("b", BANK)):
        forged = event("user.message", session, workspace_id={SHOP: "shop", BANK: "bank"}.get(token, "w"))
        assert reasons(server.post(forged, token=token)) == ["not_yours $.session_id"], (session, token)
    assert server.post(event("turn.ended", "a"), token=SHOP)["accepted"] == 1
    assert server.post(event("turn.ended", "b"))["accepted"] == 1
    assert server.post(event("turn.ended", "a"), token=OPERATOR)["accepted"] == 1


def test_what_is_refused_is_a_dead_letter_that_an_operator_may_take(server: Server) -> None:
    """Nothing is lost: it can be published again by who may say everything."""
    server.post(event("turn.started", "a"), token=SHOP)
    assert server.post(event("user.message", "a"), event("user.message", "b")) == {
        "accepted": 1,
        "dead_letters": 1,
        "faults": [
            {
                "reason": "not_yours",
                "path": "$.session_id",
                "message": "this session is that of another publisher; use an id of your own",
            }
        ],
    }
    headers = {"Authorization": f"Bearer {OPERATOR}"}
    (letter,) = (orjson.loads(line) for line in server.client.get("/v1/dead-letters", headers=headers).iter_lines())
    answer = server.client.post("/v1/dead-letters/republish", json={"offsets": [letter["offset"]]}, headers=headers)
    assert answer.json() == {"republished": 1, "dead_letters": 0}


BROKEN = [
    b'{"schema_version":"1.0","id":"b","type":"turn.started","session_id":"s","time":5}',
    b'{"schema_version":"1.0","id":"\\ud800","type":"turn.started","session_id":"s","time":"2026-05-01T00:00:00Z"}',
    b'{"schema_version":"1.0","id":"b","type":"turn.started","session_id":"s","time":"soon"}',
    b'{"session_id":"s"}',
]


@pytest.mark.parametrize("broken", BROKEN)
def test_a_rejected_event_hides_no_session(server: Server, broken: bytes) -> None:
    """The page of its session, and the session for commands, show everything else."""
    server.post(event("turn.started", text="hello"), event("model.text", text="hello"))
    assert server.post(broken)["dead_letters"] == 1
    headers = {"Authorization": f"Bearer {OPERATOR}"}
    document = server.client.get("/v1/sessions/s", headers=headers)
    assert document.status_code == 200
    assert document.json()["items"]
    assert server.client.get("/sessions/s", headers=headers).status_code == 200


def test_rejected_events_do_not_push_a_session_off_its_page(server: Server) -> None:
    """However many there are of its id."""
    server.post(event("model.text", text="hello"))
    server.post(*BROKEN[:1] * 600)
    headers = {"Authorization": f"Bearer {OPERATOR}"}
    assert server.client.get("/v1/sessions/s", headers=headers).json()["items"]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", "no file of publishers"),
        ('{"a": {"token": "x"}}', "no file of publishers"),
        ('{"a": {"token": "", "workspaces": ["w"]}}', "needs a token"),
        ('{"a": {"token": "x", "workspaces": ["w"]}, "b": {"token": "x", "workspaces": ["v"]}}', "no other publisher"),
        ('{"a": {"token": "x", "workspaces": []}}', "name the workspaces"),
        ('{"a": {"token": "x", "workspaces": ["default"]}}', "everybody's"),
        (json.dumps({HOOKS.name: {"token": "x", "workspaces": ["w"]}}), "no publisher's name"),
    ],
)
def test_a_wrong_file_of_publishers_is_refused(tmp_path: Path, content: str, said: str) -> None:
    """It says what is wrong."""
    file = tmp_path / "publishers.json"
    file.write_text(content)
    with pytest.raises(ConfigError, match=said):
        read_publishers(file)
