"""Two sessions at once in one project, of one agent or of two: what one does decides nothing in the other.

Trust of a key is the workspace's, and meant to be shared (docs/trust.md); everything else is a session's own.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from fixed_rules import Rules
from starlette.testclient import TestClient
from trustfold.streams.embedded.engine import EmbeddedEngine
from trustfold.streams.embedded.server import make_app
from trustfold.web.routes import more_routes

AGENTS = ("claude", "codex", "gemini", "qwen", "copilot", "opencode")
PAIRS = [*((agent, agent) for agent in AGENTS), ("claude", "codex"), ("gemini", "qwen"), ("copilot", "opencode")]
"""Agents beside their like, and beside another whose shell has the same name."""


class Terminal:
    """One session of an agent; its calls have ids that another session's calls have, too."""

    def __init__(self, server: TestClient, folder: Path, agent: str, session: str) -> None:
        self.server, self.folder, self.agent, self.session = server, folder, agent, session
        self.calls = 0

    def _send(self, event: str, **payload: Any) -> str:
        known = {"hook_event_name": event, "session_id": self.session, "cwd": str(self.folder)}
        if self.agent == "copilot":
            known = {"sessionId": self.session, "cwd": str(self.folder)}
        if self.agent == "opencode":
            payload["input"] = {"sessionID": self.session, **payload.get("input", {})}
            known = {"hook_event_name": event, "directory": str(self.folder)}
        found = self.server.post(f"/hooks/{self.agent}?event={event}", content=orjson.dumps(known | payload))
        assert found.status_code == 200
        return found.text

    def says(self, prompt: str) -> str:
        """The user's prompt; returns the answer."""
        self.calls += 1  # for Qwen Code's ids of prompts
        match self.agent:
            case "gemini":
                return self._send("BeforeAgent", prompt=prompt)
            case "copilot":
                return self._send("userPromptSubmitted", prompt=prompt)
            case "opencode":
                return self._send("chat.message", output={"text": prompt})
            case "qwen":  # a prompt is known by its new id, with the next call
                return ""
        return self._send("UserPromptSubmit", prompt=prompt)

    def runs(self, command: str, error: str = "") -> str:
        """Call the shell; returns the answers before and after. A refused call does not run."""
        self.calls += 1
        call_id, args, text = f"t{self.calls}", {"command": command}, error or "nothing new"
        shell = {"claude": "Bash", "codex": "Bash"}.get(self.agent, "run_shell_command")
        call: dict[str, Any] = {"tool_name": shell, "tool_input": args, "tool_use_id": call_id}
        match self.agent:
            case "claude" | "qwen":
                call |= {"tool_call_id": call_id} if self.agent == "qwen" else {}
                before = self._send("PreToolUse", **call)
                ended = call | {"tool_response": text, "status": "error" if error else "success"}
                if self.agent == "qwen":
                    parts = {"response_parts": [{"functionResponse": {"response": {"output": text}}}]}
                    ended["tool_response"] = parts | {"execution_status": "completed"}
                failed = self._send("PostToolUseFailure", error=error, **call) if error and "deny" not in before else ""
                return before + ("" if "deny" in before else failed + self._send("PostToolBatch", tool_calls=[ended]))
            case "codex":
                before = self._send("PreToolUse", **call)
                response = f"Process exited with code {int(bool(error))}\nOutput:\n{text}"
                return before + ("" if "deny" in before else self._send("PostToolUse", **call, tool_response=response))
            case "gemini":
                call.pop("tool_use_id")
                before = self._send("BeforeTool", **call)
                response = f"Output: {text}" + (f"\nExit Code: {1}" if error else "")
                told = {"llmContent": response}
                return before + ("" if "deny" in before else self._send("AfterTool", **call, tool_response=told))
            case "copilot":
                call = {"toolName": "bash", "toolArgs": args}
                before = self._send("preToolUse", **call)
                told = {
                    "resultType": "success",
                    "textResultForLlm": f"{text}\n<exited with exit code {int(bool(error))}>",
                }
                return before + ("" if "deny" in before else self._send("postToolUse", **call, toolResult=told))
        about = {"tool": "bash", "callID": call_id}
        before = self._send("tool.execute.before", input=about, output={"args": args})
        ended = {"output": text, "metadata": {"exit": int(bool(error))}}
        if "refusal" in before:
            return before
        return before + self._send("tool.execute.after", input=about | {"args": args}, output=ended)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[TestClient]:
    """A server in this process."""
    path = tmp_path / "store.sqlite"
    app = make_app(EmbeddedEngine.open(path, Rules()), path, more=more_routes)
    with TestClient(app, base_url="http://127.0.0.1:8321") as client:
        yield client


def loops(terminal: Terminal) -> Iterator[str]:
    """A session that repeats itself until it is paused, tries something else, and is told to go on."""
    yield terminal.says("go")
    for command in (*["./look"] * 6, "./other"):
        yield terminal.runs(command)


def works(terminal: Terminal) -> Iterator[str]:
    """A healthy session, with some of the other's commands."""
    yield terminal.says("do this")
    for number in range(8):
        yield terminal.runs("./look" if number == 4 else f"./work {number}")


@pytest.mark.parametrize(("one", "two"), PAIRS)
def test_each_is_told_what_it_would_be_told_alone(one: str, two: str, server: TestClient, tmp_path: Path) -> None:
    """Loops, nudges and a pause of one, step by step beside the work of the other, and beside another loop."""
    alone = [*loops(Terminal(server, tmp_path, one, "alone"))]
    assert "Stopped after 6 equal calls" in "".join(alone)
    assert "trustfold" in alone[-1]
    beside, working = loops(Terminal(server, tmp_path, one, "a")), works(Terminal(server, tmp_path, two, "b"))
    steps = [(first, second) for first, second in zip(beside, working, strict=False)]
    assert [first for first, _ in steps] == alone
    assert {text.replace("{}", "") for _, text in steps} == {""}
    assert {text.replace("{}", "") for text in working} == {""}
    paused = server.get("/v1/hooks").json()["paused"]
    assert (bool(paused["a"]), bool(paused["b"])) == (True, False)
    again = [Terminal(server, tmp_path, agent, name) for agent, name in ((one, "c"), (two, "d"))]
    both = [(first, second) for first, second in zip(*map(loops, again), strict=True)]
    assert [first for first, _ in both] == alone
    assert "Stopped after 6 equal calls" in "".join(second for _, second in both)


@pytest.mark.parametrize(("one", "two"), PAIRS)
def test_who_speaks_in_one_lifts_no_pause_in_the_other(one: str, two: str, server: TestClient, tmp_path: Path) -> None:
    """A pause ends by the words of its own user."""
    paused, other = Terminal(server, tmp_path, one, "a"), Terminal(server, tmp_path, two, "b")
    assert "Stopped" in "".join(loops(paused))
    for prompt in ("go on", "and this"):
        other.says(prompt)
        assert "Stopped" not in other.runs(f"./work {len(prompt)}")
    assert "Stopped" in paused.runs("./other")


@pytest.mark.parametrize(("one", "two"), PAIRS)
def test_trust_of_a_key_is_the_projects(one: str, two: str, server: TestClient, tmp_path: Path) -> None:
    """Three failures, of whichever session, escalate the key; a session of another project is not asked."""
    first, second = Terminal(server, tmp_path, one, "a"), Terminal(server, tmp_path, two, "b")
    elsewhere = Terminal(server, tmp_path / "elsewhere", two, "c")
    for number, terminal in enumerate((first, second, first)):
        terminal.runs(f"./release {number}", "release: Permission denied")
    for terminal in (first, second):
        assert "command=release' is escalated" in terminal.runs("./release 4")
    assert "trustfold" not in elsewhere.runs("./release 5")


@pytest.mark.parametrize(
    ("changes", "agent"),
    [*(("nothing", agent) for agent in AGENTS), *zip(("git", "elsewhere") * 3, AGENTS, strict=True)],
)
def test_evidence_of_no_change_is_true_beside_another_session(
    changes: str, agent: str, server: TestClient, tmp_path: Path
) -> None:
    """A test that stays red is no unchanged retry if the other session has changed a file, or may have a database."""
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    (tmp_path / ".gitignore").write_text("store*\n")
    one, two = Terminal(server, tmp_path, agent, "a"), Terminal(server, tmp_path, agent, "b")
    said = ""
    for number in range(5):
        if changes == "git":
            (tmp_path / "area.py").write_text("x" * number)
        two.runs(f"make database-{number}" if changes == "elsewhere" else f"cat area-{number}.py")
        said += one.runs("pytest -q", "Exit code 1\n1 failed")
    assert ("nothing was changed" in said) is (changes == "nothing"), said
