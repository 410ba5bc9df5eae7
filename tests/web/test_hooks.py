"""The endpoint of agents' hooks: nudges and refusals come back, and nothing that is sent makes an agent stop."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread
from typing import Any

import orjson
import pytest
from command_line import Up, up
from fixed_rules import Rules
from hook_kit import recorded
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from starlette.testclient import TestClient
from trustfold.ingest.hooks import DIALECTS
from trustfold.integrations.agent_config import AGENTS, CLIENT, HookLink, client_source, connected
from trustfold.integrations.hook_client import ANSWER_S, MAX_BYTES, MAX_READ_BYTES, PAUSE_S, shortened
from trustfold.integrations.policy import HookPolicy
from trustfold.streams.embedded.engine import EmbeddedEngine
from trustfold.streams.embedded.publishers import HOOKS
from trustfold.streams.embedded.server import make_app
from trustfold.streams.embedded.sign_in import RoleTokens
from trustfold.web.hooks import BUSY_FOLD_S, FOLD_S, MAX_BODY_BYTES, AgentHooks, read_tail
from trustfold.web.routes import more_routes

TOKEN = "secret"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[TestClient]:
    """A server in this process."""
    path = tmp_path / "store.sqlite"
    app = make_app(EmbeddedEngine.open(path, Rules()), path, more=more_routes)
    with TestClient(app, base_url="http://127.0.0.1:8321") as client:
        yield client


class Agent:
    """Claude Code at work in a folder."""

    def __init__(self, server: TestClient, folder: Path | str, query: str = "") -> None:
        self.server, self.folder, self.query = server, folder, query
        self.session = f"session in {folder or 'no folder'}"[-200:]
        self.calls = 0
        self.hook("UserPromptSubmit", prompt="go")

    def hook(self, event: str, **fields: Any) -> dict[str, Any]:
        """Send a hook; returns the answer."""
        payload = {"hook_event_name": event, "session_id": self.session, "cwd": str(self.folder), **fields}
        answer = self.server.post(f"/hooks/claude{self.query}", json=payload)
        assert answer.status_code == 200
        found: dict[str, Any] = answer.json()
        return found

    def runs(self, command: str, error: str = "", **fields: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """Call the shell; returns the answers before and after, where all calls of the message have ended."""
        self.calls += 1
        call = {"tool_name": "Bash", "tool_input": {"command": command}, "tool_use_id": f"t{self.calls}"}
        before = self.hook("PreToolUse", **call, **fields)
        failed = self.hook("PostToolUseFailure", error=error, duration_ms=5, **call, **fields) if error else {}
        after = self.hook("PostToolBatch", tool_calls=[call | {"tool_response": error or "nothing new"}], **fields)
        return before, failed or after


def context(answer: dict[str, Any]) -> str:
    """What an answer brings to the model."""
    return str(answer.get("hookSpecificOutput", {}).get("additionalContext", ""))


def test_a_loop_is_named_in_the_next_answer(server: TestClient, tmp_path: Path) -> None:
    """The third equal call with the same result brings a nudge, the sixth a pause until the user speaks."""
    agent = Agent(server, tmp_path)
    answers = [agent.runs("./look") for _ in range(6)]
    assert [context(after) for _, after in answers[:2]] == ["", ""]
    assert "`./look` was called 3 times" in context(answers[2][1])
    assert "`./look` has given the same result 4 times" in context(answers[3][1])
    assert "Stopped after 6 equal calls of `./look`" in context(answers[5][1])
    assert "continue" not in answers[5][1]
    before, _ = agent.runs("./other")
    refused = before["hookSpecificOutput"]
    assert refused["permissionDecision"] == "deny"
    assert refused["permissionDecisionReason"].startswith("trustfold: Stopped after 6 equal calls of `./look`")
    assert agent.hook("UserPromptSubmit", prompt="go on") == {}
    assert agent.runs("./other") == ({}, {})


def test_the_user_lifts_the_pause_of_subagents_too(server: TestClient, tmp_path: Path) -> None:
    """The user speaks to the main agent alone; of another session nothing is lifted."""
    agent, other = Agent(server, tmp_path), Agent(server, tmp_path / "other")
    inside = {"agent_id": "a1", "agent_type": "scout"}
    for _ in range(6):
        agent.runs("./look", **inside)
    assert "Stopped" in str(agent.runs("./other", **inside)[0])
    other.hook("UserPromptSubmit", prompt="go on")
    assert "Stopped" in str(agent.runs("./other", **inside)[0])
    agent.hook("UserPromptSubmit", prompt="go on")
    assert agent.runs("./other", **inside)[0] == {}


def test_a_pause_outlives_the_server(tmp_path: Path) -> None:
    """A server that starts again refuses the calls of a paused session, until the user has spoken."""
    path = tmp_path / "store.sqlite"

    def started() -> TestClient:
        app = make_app(EmbeddedEngine.open(path, Rules()), path, more=more_routes)
        return TestClient(app, base_url="http://127.0.0.1:8321")

    with started() as first:
        agent = Agent(first, tmp_path)
        for _ in range(6):
            agent.runs("./look")
        paused = first.get("/v1/hooks").json()["paused"]
        assert paused[agent.session].startswith("Stopped after 6 equal calls")
    with started() as second:
        agent.server = second
        refused = agent.runs("./other")[0]["hookSpecificOutput"]["permissionDecisionReason"]
        assert refused == f"trustfold: {paused[agent.session]}"
        assert agent.hook("UserPromptSubmit", prompt="go on") == {}
        assert second.get("/v1/hooks").json()["paused"] == {agent.session: ""}
    with started() as third:
        agent.server = third
        assert agent.runs("./other")[0] == {}


def test_three_failures_make_the_next_call_a_question(server: TestClient, tmp_path: Path) -> None:
    """A command that failed three times must be allowed by a person, in that project only, until an operator resets."""
    agent = Agent(server, tmp_path)
    for number in range(3):
        agent.runs(f"./release {number}", "Exit code 1\nrelease: Permission denied")
    before, _ = agent.runs("./release 4")
    assert before["hookSpecificOutput"]["permissionDecision"] == "ask"
    assert "3/3 failures" in before["hookSpecificOutput"]["permissionDecisionReason"]
    assert agent.runs("./look")[0] == {}
    elsewhere = Agent(server, tmp_path / "other")
    assert elsewhere.runs("./release 4")[0] == {}
    states = [one for one in server.get("/v1/state").json()["states"] if one["key"] == "Bash|command=release"]
    assert [(one["state"], one["workspace_id"]) for one in states] == [("escalated", str(tmp_path))]


def test_a_session_stays_in_its_workspace(server: TestClient, tmp_path: Path) -> None:
    """A shell that changes its folder takes no call to another workspace; without any folder it is the default one."""
    shop = tmp_path / "shop"
    for first, folders in ((shop, [shop, shop / "src", tmp_path, shop]), ("", [""] * 4)):
        agent = Agent(server, first)
        before: dict[str, Any] = {}
        for number, folder in enumerate(folders):
            agent.folder = folder
            before, _ = agent.runs(f"./release {number}", "Exit code 1\nrelease: Permission denied")
        assert before["hookSpecificOutput"]["permissionDecision"] == "ask"
        keys = {(one["key"], one.get("workspace_id")) for one in server.get("/v1/state").json()["states"]}
        assert ("Bash|command=release", str(first) or "default") in keys


def test_an_approval_lets_one_call_pass(tmp_path: Path) -> None:
    """An operator approves a key once: the next call passes without a question and uses it up, a twin beside it not."""
    path = tmp_path / "store.sqlite"
    app = make_app(EmbeddedEngine.open(path, Rules()), path, roles=RoleTokens(local_orders=True), more=more_routes)
    with TestClient(app, base_url="http://127.0.0.1:8321") as server:
        agent = Agent(server, tmp_path)
        for number in range(3):
            agent.runs(f"./release {number}", "Exit code 1\nrelease: Permission denied")
        order = {"schema_version": "1.0", "id": "o", "type": "trust.approve", "key": "Bash|command=release"}
        order |= {"time": "2026-11-22T00:00:00Z", "workspace_id": str(tmp_path)}
        assert server.post("/v1/commands", json=order).json()["accepted"] == 1
        call = {"tool_name": "Bash", "tool_input": {"command": "./release 4"}}
        assert agent.hook("PreToolUse", tool_use_id="a", **call) == {}
        assert "ask" in json.dumps(agent.hook("PreToolUse", tool_use_id="b", **call))
        agent.hook("PostToolUse", tool_use_id="a", tool_response={"stdout": "released"}, **call)
        state = next(one for one in server.get("/v1/state").json()["states"] if one["key"] == "Bash|command=release")
        assert (state["state"], "approval_id" in state) == ("escalated", False)
        assert "ask" in json.dumps(agent.runs("./release 5")[0])


def test_a_dangerous_command_is_a_question_before_it_runs(server: TestClient, tmp_path: Path) -> None:
    """With its command and what it would do; what was nearly run leaves a trace, and others run on."""
    agent = Agent(server, tmp_path)
    before, _ = agent.runs("git push --force origin main")
    answer = before["hookSpecificOutput"]
    assert answer["permissionDecision"] == "ask"
    said = answer["permissionDecisionReason"]
    assert said.startswith("trustfold: `git push --force origin main` would overwrite a remote branch by force")
    assert f"`trustfold approve 'Bash|danger=forced_push' --once --workspace '{tmp_path}'`" in said
    assert agent.runs("git push --force-with-lease origin topic")[0] == {}
    [noted] = map(orjson.loads, server.get("/v1/decisions?topics=escalations").content.splitlines())
    told = noted.get("value", noted)
    assert (told["type"], told["key"], told["made"]) == ("trust.danger_noted", "Bash|danger=forced_push", True)


def test_edits_beside_the_agent_end_a_streak(server: TestClient, tmp_path: Path) -> None:
    """A test that stays red while somebody edits is no unchanged retry; with nothing edited it is one."""
    for name, edits in (("edited", True), ("left", False)):
        folder = tmp_path / name
        folder.mkdir()
        subprocess.run(["git", "init", "-q"], cwd=folder, check=True)
        (folder / "area.py").write_text("")
        agent, said = Agent(server, folder), ""
        for number in range(5):
            if edits:
                (folder / "area.py").write_text("x" * number)
            said += context(agent.runs("pytest -q", "Exit code 1\n1 failed")[1])
        assert ("nothing was changed" in said) is not edits, said


def test_shadow_says_nothing_and_tells_what_it_would_have_said(server: TestClient, tmp_path: Path) -> None:
    """In shadow every answer is empty, calls go on, and the words can be read."""
    agent = Agent(server, tmp_path, "?shadow=1")
    assert [agent.runs("./look") for _ in range(7)] == [({}, {})] * 7
    overview = server.get("/v1/hooks").json()
    assert overview["agents"]["claude"]["hooks"] == 15
    assert {one["kind"] for one in overview["said"]} >= {"context", "refusal"}
    assert all(one["shadow"] for one in overview["said"])


def test_states_of_an_earlier_run_hold(tmp_path: Path) -> None:
    """What was not trusted before the server was started again is asked about at the first call."""
    path = tmp_path / "store.sqlite"
    for run in range(2):
        app = make_app(EmbeddedEngine.open(path, Rules()), path, more=more_routes)
        with TestClient(app, base_url="http://127.0.0.1:8321") as client:
            agent = Agent(client, tmp_path)
            if run == 0:
                for number in range(3):
                    agent.runs(f"./release {number}", "Exit code 1\nrelease: Permission denied")
            else:
                assert "escalated" in json.dumps(agent.runs("./release 4")[0])


ODD = {
    "claude": r'"tool_input": {"command": "git push --force origin main", "description": "half a face \ud83d"}',
    "gemini": '"tool_input": {"command": "git push --force origin main", "description": "caf\xe9"}',
    "copilot": r'"toolArgs": "{\"command\": \"git push --force origin main\", \"description\": \"\\ud83d\"}"',
    "codex": '"tool_input": {"command": "git push --force origin main", "yield_time_ms": NaN}',
}
"""Arguments that strict readers of JSON refuse: half a character, as a program cuts texts, Latin 1, no number."""


@pytest.mark.parametrize("agent", ODD)
def test_no_dangerous_command_passes_for_text_that_is_not_unicode(
    server: TestClient, agent: str, tmp_path: Path
) -> None:
    """A payload that another reader would refuse is read all the same, also where arguments are JSON in a text."""
    event = {"gemini": "BeforeTool", "copilot": "preToolUse"}.get(agent, "PreToolUse")
    call = f'"tool_name": "bash", "toolName": "bash", "tool_use_id": "t", {ODD[agent]}'
    body = f'{{"session_id": "s", "sessionId": "s", "cwd": "{tmp_path}", {call}}}'
    answer = server.post(f"/hooks/{agent}?event={event}", content=body.encode("latin-1"))
    assert "would overwrite a remote branch by force" in answer.text
    assert server.get("/v1/hooks").json()["faults"] == {}


HOSTILE = (
    *(b"", b"null", b"[]", b"7", b'"x"', b"{", b"\xff\xfe", b'{"session_id": 7}', b"[" * 100_000, b"{}" * 100),
    b'{"session_id": "s", "hook_event_name": "PreToolUse", "tool_input": ' + b'{"a":' * 200 + b"1" + b"}" * 201,
    b'{"session_id": "s", "hook_event_name": "PostToolUse", "tool_name": "B", "tool_response": "'
    + b"x" * 3_000_000
    + b'"}',
    b'{"session_id": "' + b"s" * 5000 + b'", "hook_event_name": "UserPromptSubmit", "prompt": "a", "cwd": "\\u0000"}',
    b'{"session_id": "s", "hook_event_name": "PostToolUse", "transcript_path": "/dev/zero.jsonl", "tool_use_id": "t"}',
    b" " * (9 << 20),
)


@pytest.mark.parametrize("agent", [*AGENTS, "unknown", "..", "%2e%2e"])
def test_hostile_payloads_are_answered_with_nothing(server: TestClient, agent: str) -> None:
    """Broken, huge and hostile payloads are answered with 200 and an empty object; nothing becomes a dead letter."""
    for body in HOSTILE:
        answer = server.post(f"/hooks/{agent}?event=preToolUse", content=body)
        if agent == "..":
            assert answer.status_code in {200, 404, 405}
            continue
        assert (answer.status_code, answer.content) == (200, b"{}"), body[:80]
    assert server.get("/v1/dead-letters").text == ""


anything = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.floats(allow_nan=False) | st.text(max_size=30),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=12), inner, max_size=3),
    max_leaves=10,
)


@pytest.mark.parametrize("agent", AGENTS)
def test_altered_payloads_never_make_a_fault(agent: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Recorded payloads with other values in any field are answered, become good events, and count no fault."""
    path = tmp_path_factory.mktemp("store") / "store.sqlite"
    hooks = list(recorded(agent))
    app = make_app(EmbeddedEngine.open(path, Rules()), path, more=more_routes)
    with TestClient(app, base_url="http://127.0.0.1:8321") as client:

        @settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
        @given(st.data())
        def send(data: st.DataObject) -> None:
            event, payload = data.draw(st.sampled_from(hooks))
            names = st.sampled_from(sorted(payload))
            altered = payload | data.draw(st.dictionaries(names, anything, max_size=3))
            answer = client.post(f"/hooks/{agent}", params={"event": event}, content=orjson.dumps(altered))
            assert answer.status_code == 200

        send()
        assert client.get("/v1/hooks").json()["faults"] == {}
        assert client.get("/v1/dead-letters").text == ""


def test_the_tail_of_a_log_and_of_nothing_else(tmp_path: Path) -> None:
    """Only the end of a regular file of lines is read; a pipe, a folder or another file is not."""
    log = tmp_path / "rollout.jsonl"
    log.write_bytes(b"x" * 1_000_000 + b"end")
    assert read_tail(str(log)).endswith(b"end")
    assert len(read_tail(str(log))) < 300_000
    (tmp_path / "folder.jsonl").mkdir()
    (tmp_path / "secret.txt").write_text("secret")
    for path in (tmp_path / "folder.jsonl", tmp_path / "secret.txt", tmp_path / "none.jsonl", "a\x00.jsonl", ""):
        assert read_tail(str(path)) == b""


# --- the client ------------------------------------------------------------------------------------------------------


PATIENT_S = 50.0
"""Timeout of an answer where the machine may be busy, and only what is answered counts."""


class Client:
    """The command that agents run, in a folder of its own."""

    def __init__(self, home: Path, token: str = TOKEN, answer_s: float = ANSWER_S) -> None:
        self.file = home / CLIENT
        self.late = home / "hooks.late"
        self.file.write_text(client_source().replace(f"ANSWER_S = {ANSWER_S}", f"ANSWER_S = {answer_s}"))
        (home / "endpoint").write_text(f"127.0.0.1:9\n{token}\n")

    def run(self, body: bytes, *words: str) -> subprocess.CompletedProcess[bytes]:
        """Send standard input on."""
        command = [sys.executable, "-I", "-S", str(self.file), *words]
        return subprocess.run(command, input=body, capture_output=True, timeout=60, check=False, env={})


def silent(done: subprocess.CompletedProcess[bytes]) -> bool:
    """Whether a command ended well and printed nothing anywhere."""
    return (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


@pytest.fixture
def deep(tmp_path: Path) -> Path:
    """A folder whose path is longer than that of a socket may be."""
    folder = tmp_path / ("d" * 60) / ("e" * 60)
    folder.mkdir(parents=True, mode=0o700)
    folder.chmod(0o700)
    return folder


STORE = ("--store", "trustfold.sqlite")


@pytest.mark.usefixtures("fixed_rules_file")
def test_the_client_brings_the_answer_back(deep: Path) -> None:
    """Three failing commands of Codex: the fourth is refused in the words of Codex, through the client."""
    with up(*STORE, cwd=deep, env={"TRUSTFOLD_TOKEN": TOKEN}) as server:
        client = Client(deep, answer_s=PATIENT_S)
        assert stat.S_IMODE((deep / "trustfold.sqlite.sock").stat().st_mode) == 0o600
        base = {"session_id": "s", "cwd": str(deep), "tool_name": "Bash", "model": "m"}
        for number in range(3):
            call = base | {"tool_input": {"command": f"./release {number}"}, "tool_use_id": f"t{number}"}
            assert silent(client.run(orjson.dumps(call | {"hook_event_name": "PreToolUse"}), "codex"))
            text = "Process exited with code 1\nOutput:\nrelease: Permission denied"
            ended = call | {"hook_event_name": "PostToolUse", "tool_response": text}
            assert client.run(orjson.dumps(ended), "codex").returncode == 0
        last = base | {"tool_input": {"command": "./release 4"}, "tool_use_id": "t4", "hook_event_name": "PreToolUse"}
        done = client.run(orjson.dumps(last), "codex")
        own = json.loads(done.stdout)["hookSpecificOutput"]
        assert (own["permissionDecision"], done.returncode, done.stderr) == ("deny", 0, b"")
        assert "trustfold reset" in own["permissionDecisionReason"]
        assert silent(client.run(orjson.dumps(last), "codex", "--shadow"))
        for body in HOSTILE:
            assert silent(client.run(body, "codex"))
        assert silent(Client(deep, "wrong", PATIENT_S).run(orjson.dumps(last), "codex"))
        status, _ = server.request("POST", "/hooks/codex", orjson.dumps(last))
        assert status == 401, "another user of this machine has no token"
        assert not client.late.exists()
        deep.chmod(0o755)
        assert silent(Client(deep).run(orjson.dumps(last), "codex")), "anybody could have made that socket"


LARGE = "x = 'line'\n" * (6 << 17)
"""Text of 9 MB as JSON, more than the server reads."""

LARGE_CALLS = {
    "claude": ("PreToolUse", {"tool_name": "Bash", "tool_input": {"note": LARGE, "command": "rm -rf /"}}),
    "codex": ("PreToolUse", {"tool_name": "Bash", "tool_input": {"command": f"cat <<'E'\n{LARGE}E\nrm -rf /"}}),
    "gemini": ("BeforeTool", {"tool_name": "run_shell_command", "tool_input": {"command": f"rm -rf / # {LARGE}"}}),
    "copilot": ("preToolUse", {"toolName": "bash", "toolArgs": json.dumps({"a": LARGE, "command": "rm -rf /"})}),
    "qwen": ("PreToolUse", {"tool_name": "run_shell_command", "tool_input": {"a": [LARGE] * 3, "command": "rm -rf /"}}),
    "cursor": ("preToolUse", {"tool_name": "Shell", "tool_input": {"a": [LARGE[:9]] * 900_000, "command": "rm -rf /"}}),
}
"""A dangerous call of each agent, as large as its arguments may make it."""


@pytest.mark.usefixtures("fixed_rules_file")
def test_no_dangerous_call_passes_because_it_is_large(deep: Path) -> None:
    """The client cuts long texts and lists, wherever they are; what cannot be cut is counted, and `doctor` says so."""
    with up(*STORE, cwd=deep, env={"TRUSTFOLD_TOKEN": TOKEN}) as server:
        client = Client(deep, answer_s=PATIENT_S)
        for agent, (event, call) in LARGE_CALLS.items():
            payload = {"hook_event_name": event, "session_id": agent, "sessionId": agent, "cwd": str(deep)} | call
            answer = client.run(orjson.dumps(payload), agent, event).stdout.decode()
            assert "would remove a root, system or home directory" in answer, agent
        names = orjson.dumps({"session_id": "s", "tool_input": dict.fromkeys(map(str, range(1_000_000)), 0)})
        assert len(names) > MAX_BODY_BYTES
        too_long = b'{"session_id": "s", "prompt": "' + b" " * MAX_READ_BYTES + b'"}'
        for number, body in enumerate((names, too_long), 1):
            assert silent(client.run(body, "claude"))
            _, known = server.request("GET", "/v1/hooks", headers={"Authorization": f"Bearer {TOKEN}"})
            assert json.loads(known)["faults"] == {"too_large": number}
        assert not client.late.exists()


def test_what_the_client_cuts_stays_distinct() -> None:
    """Payloads that differ only in what is cut out differ afterwards, and those that do not are equal."""
    cut = [shortened(bytearray(orjson.dumps({"result": LARGE + end + LARGE}))) for end in ("a", "b", "a")]
    assert cut[0] == cut[2] != cut[1]
    assert len(cut[0]) < MAX_BYTES
    assert json.loads(cut[0])["result"].startswith(LARGE[:1000])
    assert json.loads(cut[0])["result"].endswith(LARGE[-1000:])


@pytest.mark.slow
@pytest.mark.usefixtures("fixed_rules_file")
def test_a_server_that_hangs_costs_half_a_second_once(deep: Path) -> None:
    """The first hook waits for it, the next ones do not ask; it is asked again half a minute later."""
    hook = orjson.dumps({"session_id": "s", "hook_event_name": "UserPromptSubmit", "prompt": "go"})
    with up(*STORE, cwd=deep, env={"TRUSTFOLD_TOKEN": TOKEN}) as server:
        client = Client(deep)
        plain = min(_seconds(client, hook) for _ in range(5))
        os.kill(server.process.pid, signal.SIGSTOP)
        try:
            assert ANSWER_S <= _seconds(client, hook) < ANSWER_S + 5
            assert stat.S_IMODE(client.late.stat().st_mode) == 0o600
            assert min(_seconds(client, hook) for _ in range(5)) < plain + ANSWER_S / 2
            os.utime(client.late, (time.time() - PAUSE_S - 1,) * 2)
            assert _seconds(client, hook) >= ANSWER_S
        finally:
            os.kill(server.process.pid, signal.SIGCONT)
        os.utime(client.late, (time.time() - PAUSE_S - 1,) * 2)
        before = _received(server)
        assert silent(client.run(hook, "codex"))
        assert _received(server) == before + 1


def _seconds(client: Client, hook: bytes) -> float:
    began = time.monotonic()
    assert silent(client.run(hook, "codex"))
    return time.monotonic() - began


def _received(server: Up) -> int:
    _, body = server.request("GET", "/v1/hooks", headers={"Authorization": f"Bearer {TOKEN}"})
    return int(json.loads(body)["agents"]["codex"]["hooks"])


def test_the_client_tells_a_foreign_program_nothing(tmp_path: Path) -> None:
    """What listens at the server's port gets neither the token nor a command, and its answer is not passed on."""
    heard: list[bytes] = []

    class Foreign(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            heard.append(self.rfile.read(int(self.headers["Content-Length"])))
            answer = b'{"hookSpecificOutput": {"hookEventName": "PreToolUse", "permissionDecision": "allow"}}'
            self.send_response(200)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

    with ThreadingHTTPServer(("127.0.0.1", 0), Foreign) as foreign:
        Thread(target=foreign.serve_forever, daemon=True).start()
        client = Client(tmp_path)
        (tmp_path / "endpoint").write_text(f"127.0.0.1:{foreign.server_port}\n{TOKEN}\n")
        for agent in AGENTS:
            text = connected(agent, "", HookLink(tmp_path, sys.executable))
            assert TOKEN not in text
            assert str(foreign.server_port) not in text
            assert silent(client.run(b'{"session_id": "s"}', agent))
        foreign.shutdown()
    assert heard == []


def test_the_client_is_silent_without_a_server(tmp_path: Path) -> None:
    """No server, no token, no words, a server that has died: nothing is printed and the exit code is 0."""
    client = Client(tmp_path)
    assert silent(client.run(b"{}", "codex"))
    assert silent(client.run(b"{}"))
    assert silent(client.run(b"{}", "../../v1/commands", "x y"))
    left = socket.socket(socket.AF_UNIX)
    left.bind(str(tmp_path / "trustfold.sqlite.sock"))
    left.close()
    for endpoint in ("127.0.0.1:x\n\n", "", "nonsense", "a\x00b:1\nt\n"):
        (tmp_path / "endpoint").write_text(endpoint)
        assert silent(client.run(b"{}", "codex"))
    (tmp_path / "endpoint").unlink()
    assert silent(client.run(b"{}", "codex"))
    assert not client.late.exists(), "who refuses at once costs nothing"


@pytest.mark.parametrize("plugin", [False, True], ids=["client", "plugin"])
def test_an_answer_that_never_ends_is_left(plugin: bool, tmp_path: Path) -> None:
    """The time is for the whole answer, however it drips."""
    ended = Event()

    def drip(listener: socket.socket) -> None:
        with contextlib.suppress(OSError), listener.accept()[0] as connection:
            connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 9999\r\n\r\n{")
            while not ended.wait(0.05):
                connection.sendall(b" ")

    client = Client(tmp_path)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "trustfold.sqlite.sock"))
        listener.listen()
        thread = Thread(target=drip, args=(listener,))
        thread.start()
        if plugin:
            assert asked_by_plugin(tmp_path, 2) == [{}, {}]
        else:
            assert silent(client.run(b"{}", "codex"))
        ended.set()
        thread.join()
    assert client.late.exists()
    assert stat.S_IMODE(client.late.stat().st_mode) == 0o600


def test_the_plugin_leaves_a_silent_server_where_requests_end_without_an_error(tmp_path: Path) -> None:
    """Bun, in which OpenCode runs plugins, only closes a request that is destroyed."""
    client = Client(tmp_path)
    as_bun = (
        'import { ClientRequest } from "node:http";\n'
        "const { destroy } = ClientRequest.prototype;\n"
        "ClientRequest.prototype.destroy = function () {\n"
        '  return destroy.call(this.removeAllListeners("error").on("error", () => {}));\n'
        "};\n"
    )
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "trustfold.sqlite.sock"))
        listener.listen()
        assert asked_by_plugin(tmp_path, 2, as_bun) == [{}, {}]
    assert client.late.exists()


def asked_by_plugin(
    home: Path, times: int, before: str = "", answer_s: float = ANSWER_S, args: str = "{ command: `./release ${n}` }"
) -> list[Any]:
    """Let OpenCode's plugin report calls, after other code; returns what each threw, as text, or an empty object."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed here")
    plugin = connected("opencode", "", HookLink(home, sys.executable))
    known = f"ANSWER_MS = {ANSWER_S * 1000:.0f}"
    assert known in plugin
    (home / "plugin.mjs").write_text(plugin.replace(known, f"ANSWER_MS = {answer_s * 1000:.0f}"))
    (home / "run.mjs").write_text(
        f'{before}import {{ Trustfold }} from "./plugin.mjs";\n'
        "const plugin = await Trustfold({ client: {}, directory: process.argv[2] });\n"
        'const begun = { type: "session.created", properties: { info: { id: "inner", parentID: "s" } } };\n'
        "await plugin.event({ event: begun });\n"
        'const prompt = { parts: [{ type: "text", text: "look around" }] };\n'
        'await plugin["chat.message"]({ sessionID: "inner" }, prompt);\n'
        "const found = [];\n"
        f"for (let n = 0; n < {times}; n++) {{\n"
        '  const call = { tool: "bash", sessionID: "s", callID: `c${n}` };\n'
        '  const ended = { output: "", metadata: { exit: 1 } };\n'
        f'  const before = plugin["tool.execute.before"](call, {{ args: {args} }});\n'
        "  found.push(await before.then(() => ({}), (error) => error.message));\n"
        '  ended.output = "release: Permission denied";\n'
        '  await plugin["tool.execute.after"](call, ended);\n'
        "}\n"
        "console.log(JSON.stringify(found));\n"
    )
    done = subprocess.run([node, home / "run.mjs", home], capture_output=True, timeout=60, check=True)
    found: list[Any] = json.loads(done.stdout)
    return found


@pytest.mark.usefixtures("fixed_rules_file")
def test_the_plugin_brings_the_answer_back(tmp_path: Path) -> None:
    """OpenCode's plugin asks by the same socket: the call after three failures is refused; it names parents."""
    with up(*STORE, cwd=tmp_path, env={"TRUSTFOLD_TOKEN": TOKEN}) as server:
        Client(tmp_path)
        *free, refused = asked_by_plugin(tmp_path, 4, answer_s=PATIENT_S)
        assert free == [{}] * 3
        assert "trustfold reset" in refused
        _, known = server.request("GET", "/v1/hooks", headers={"Authorization": f"Bearer {TOKEN}"})
        assert set(json.loads(known)["paused"]) == {"s", "s/inner"}
        large = '"x = 1\\n".repeat(2 ** 21)'
        for args in (
            f"{{ note: {large}, command: 'rm -rf /' }}",
            f"{{ command: `cat <<E\\n${{{large}}}E\\nrm -rf /` }}",
        ):
            assert (
                "would remove a root, system or home directory" in asked_by_plugin(tmp_path, 1, "", PATIENT_S, args)[0]
            )
        tmp_path.chmod(0o755)
        assert asked_by_plugin(tmp_path, 1) == [{}]


def test_the_client_imports_the_standard_library_alone() -> None:
    """It runs where nothing of ours is installed."""
    code = f"import sys; sys.argv = ['x']; exec(compile({client_source()!r}, 'hook', 'exec'), {{'__name__': 'x'}})"
    check = "; print(*[name for name in sys.modules if name.split('.')[0] not in sys.stdlib_module_names])"
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code + check], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.split() == ["__main__"] or done.stdout.split() == []


@pytest.mark.parametrize(("busy", "most"), [(False, FOLD_S), (True, BUSY_FOLD_S)])
async def test_a_disk_that_hangs_costs_its_time_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, busy: bool, most: float
) -> None:
    """While events wait to be folded, the hooks after them are answered at once; less is waited beside publishers."""
    path = tmp_path / "store.sqlite"
    engine = EmbeddedEngine.open(path, Rules())
    service = make_app(engine, path).state.service
    hung = asyncio.get_running_loop().create_future()
    waits: list[float] = []

    async def wait(what: Any, **limits: float) -> Any:
        waits.append(limits["timeout"])
        return set(), what

    monkeypatch.setattr(service.writer, "submit", lambda _request, *, urgent: hung if urgent else None)
    monkeypatch.setattr("trustfold.web.hooks.asyncio.wait", wait)
    monkeypatch.setattr("trustfold.web.hooks.FOLD_S", FOLD_S)
    monkeypatch.setattr("trustfold.web.hooks.BUSY_FOLD_S", BUSY_FOLD_S)
    service.writer.busy = busy
    hooks = AgentHooks(service, HookPolicy())
    hook = DIALECTS["claude"].read(
        {"session_id": "s", "hook_event_name": "UserPromptSubmit", "prompt": "go"}, "", read_tail
    )
    assert hook is not None
    for _ in range(3):
        assert await hooks._answer(DIALECTS["claude"], hook, HOOKS, shadow=False) == {}
    assert waits == [most]
    hung.cancel()
    await service.close()


def test_every_agent_has_a_dialect() -> None:
    """What can be connected is understood."""
    assert set(AGENTS) == set(DIALECTS)
