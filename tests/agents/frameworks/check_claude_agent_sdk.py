"""The hooks for the Claude Agent SDK, against the package and the program that it brings along."""

from __future__ import annotations

import asyncio
import os
from typing import Any

import pytest
from claude_agent_sdk import (
    ClaudeAgentOptions,
    ClaudeSDKClient,
    HookMatcher,
    PermissionResultAllow,
    PermissionResultDeny,
    ResultMessage,
)
from examples import check_examples
from fake_model import DONE, FakeModel
from kit import block, endings, escalate, events, kinds, new_guard, paired
from trustfold.integrations.claude_agent_sdk import trustfold_hooks


def run(guard: Any, commands: Any, folder: Any, prompt: str = "go", then: str = "", **options: Any) -> tuple[str, str]:
    """Let the agent run shell commands; returns its answer, and all that its model was told."""
    with FakeModel(commands) as model:
        environ = {
            "ANTHROPIC_BASE_URL": model.url, "ANTHROPIC_API_KEY": "sk-fake", "HOME": str(folder),
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "PATH": os.environ["PATH"], "IS_SANDBOX": "1",
        }  # fmt: skip
        options.setdefault("allowed_tools", ["Bash"])
        options.setdefault("hooks", trustfold_hooks(guard, model="scripted-1") if guard is not None else None)
        made = ClaudeAgentOptions(cwd=str(folder), env=environ, setting_sources=[], **options)

        async def main():
            async with ClaudeSDKClient(made) as client:
                for text in filter(None, (prompt, then)):
                    await client.query(text)
                    async for message in client.receive_response():
                        if isinstance(message, ResultMessage):
                            result = message.result
            return result

        return asyncio.run(main()), model.said()


def test_a_run_is_told_and_failures_are_seen(tmp_path):
    guard = new_guard()
    answer, _ = run(guard, ["echo ok", "ls /nowhere"], tmp_path)
    assert answer == DONE
    assert kinds(guard)[:3] == ["session.started", "user.message", "turn.started"]
    assert kinds(guard)[-2:] == ["model.text", "turn.ended"]
    assert endings(guard) == [("Bash", "success"), ("Bash", "error")]
    assert {event["model"] for event in events(guard, "tool_call.finished")} == {"scripted-1"}
    assert paired(guard)


def test_who_spoke_is_told(tmp_path):
    guard = new_guard()
    run(guard, ["echo ok"], tmp_path, prompt="find it, please")
    run(guard, ["echo ok"], tmp_path, prompt="<task-notification>the build has ended</task-notification>")
    assert [event["words"] for event in events(guard, "user.message")] == [3]
    assert [event["source"] for event in events(guard, "input.received")] == ["report"]
    assert kinds(guard).count("turn.started") == 2


def test_a_shortened_context_is_told(tmp_path):
    guard = new_guard()
    run(guard, ["echo ok"], tmp_path, then="/compact")
    assert kinds(guard).count("context.compacted") == 1


def test_a_loop_is_said_in_the_next_request(tmp_path):
    guard = new_guard()
    _, told = run(guard, ["echo same"] * 4, tmp_path)
    assert "3 times and gave the same result" in told


def test_a_blocked_tool_is_refused_with_the_reason(tmp_path):
    guard = new_guard()
    block(guard, "Bash")
    _, told = run(guard, ["touch made"], tmp_path)
    assert "it deleted a table" in told
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize("granted", [True, False])
def test_approval_is_the_framework_s_own(tmp_path, granted):
    guard = new_guard()
    escalate(guard, "Bash")
    asked = []

    async def decide(name, args, context):
        asked.append(name)
        return PermissionResultAllow() if granted else PermissionResultDeny(message="not today")

    _, told = run(guard, ["touch made"], tmp_path, can_use_tool=decide)
    assert asked == ["Bash"]
    assert (tmp_path / "made").exists() == granted
    assert ("not today" in told) != granted
    assert endings(guard) == [("Bash", "success")] * granted


def test_a_call_that_somebody_else_denies_is_cancelled(tmp_path):
    guard = new_guard()

    async def deny(told, tool_use_id, context):
        answer = {"permissionDecision": "deny", "permissionDecisionReason": "no"}
        return {"hookSpecificOutput": {"hookEventName": "PreToolUse", **answer}}

    hooks = trustfold_hooks(guard, {"PreToolUse": [HookMatcher(hooks=[deny])]})
    run(guard, ["touch made"], tmp_path, hooks=hooks)
    assert not (tmp_path / "made").exists()
    assert endings(guard) == [("Bash", "cancelled")]


def test_the_examples_of_the_documentation(tmp_path, monkeypatch):
    with FakeModel(["echo shipped"] * 3) as model:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", model.url)
        monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-fake")
        monkeypatch.setenv("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1")
        monkeypatch.setenv("HOME", str(tmp_path))
        monkeypatch.setenv("IS_SANDBOX", "1")
        check_examples("Claude Agent SDK")
