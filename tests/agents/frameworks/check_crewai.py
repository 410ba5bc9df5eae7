"""The guarded tools and hooks for CrewAI, against the package itself."""

from __future__ import annotations

import os

os.environ |= {"CREWAI_DISABLE_TELEMETRY": "true", "OTEL_SDK_DISABLED": "true", "CREWAI_TRACING_ENABLED": "false"}

import sys
from typing import Any

import pytest
from crewai import Agent, BaseLLM, Crew, Task
from crewai.hooks import get_before_llm_call_hooks, register_before_llm_call_hook, unregister_before_llm_call_hook
from crewai.tools import tool
from examples import check_examples
from kit import block, endings, escalate, events, kinds, new_guard, paired, step_sizes
from trustfold.guard import SyncToolGuard
from trustfold.guard.testing import decided
from trustfold.integrations.crewai import TrustfoldCrew


class Scripted(BaseLLM):
    """A model that says what it is told to say, and keeps what it was asked."""

    steps: list[Any] = []
    asked: list[str] = []

    def call(self, messages, tools=None, callbacks=None, available_functions=None, **options):
        if not self._invoke_before_llm_call_hooks(messages, options.get("from_agent")):
            raise ValueError("blocked")
        self.asked.append(str(messages))
        return self.steps[len(self.asked) - 1]

    def supports_function_calling(self):
        return False


def asks(name: str, args: str) -> str:
    return f"Thought: I look.\nAction: {name}\nAction Input: {args}"


DONE = "Thought: I now know the final answer\nFinal Answer: Done."


@tool("look")
def look(place: str) -> str:
    """Look."""
    return f"nothing at {place}"


@tool("fail")
def fail(place: str) -> str:
    """Fail."""
    raise PermissionError(f"not at {place}")


def run(guard: Any, steps: Any, *tools: Any) -> tuple[str, Scripted]:
    """Let a crew of one agent work at one task."""
    for one in tools:
        one.cache_function = lambda *_: False
    model = Scripted(model="scripted-1", steps=list(steps), asked=[])
    with TrustfoldCrew(guard) as trustfold:
        agent = Agent(role="r", goal="g", backstory="b", tools=trustfold.guarded(tools), llm=model, cache=False)
        task = Task(description="Find it.", expected_output="e", agent=agent)
        return str(Crew(agents=[agent], tasks=[task], cache=False).kickoff()), model


def test_a_run_is_told():
    guard = new_guard()
    answer, model = run(guard, [asks("look", '{"place": "a"}'), DONE], look)
    assert answer == "Done."
    assert "nothing at a" in model.asked[-1]
    assert endings(guard) == [("look", "success")]
    assert kinds(guard)[:3] == ["session.started", "user.message", "turn.started"]
    assert len(events(guard, "user.message")) == 1
    assert len({event["session_id"] for event in events(guard)}) == 1
    assert paired(guard)
    assert get_before_llm_call_hooks() == []


def test_calls_follow_the_message_that_makes_them():
    guard = new_guard()
    run(guard, [asks("look", '{"place": "a"}'), asks("look", '{"place": "b"}'), DONE], look)
    assert step_sizes(guard) == [1, 1]
    assert [event["words"] for event in events(guard, "user.message")] == [2]
    assert "context.compacted" not in kinds(guard)


def test_a_shortened_history_is_told():
    guard = new_guard()

    def shorten(context):
        if context.iterations == 2:
            del context.messages[2:]

    register_before_llm_call_hook(shorten)
    try:
        run(guard, [asks("look", '{"place": "a"}'), asks("look", '{"place": "b"}'), DONE], look)
    finally:
        unregister_before_llm_call_hook(shorten)
    assert kinds(guard).count("context.compacted") == 1


def test_an_exception_is_the_framework_s_and_is_seen():
    guard = new_guard()
    _, model = run(guard, [asks("fail", '{"place": "a"}'), DONE], fail)
    assert "not at a" in model.asked[-1]
    assert set(endings(guard)) == {("fail", "error")}
    assert events(guard, "tool_call.finished")[0]["error"]["type"] == "PermissionError"


def test_a_blocked_tool_is_refused_with_the_reason():
    guard = new_guard()
    block(guard, "look")
    _, model = run(guard, [asks("look", '{"place": "a"}'), DONE], look)
    assert "it deleted a table" in model.asked[-1]
    assert "nothing at a" not in model.asked[-1]


def test_a_loop_is_said_in_the_next_request():
    guard = new_guard()
    _, model = run(guard, [*[asks("look", '{"place": "a"}'), asks("look", '{"place": "b"}')] * 3, DONE], look)
    assert endings(guard) == [("look", "success")] * 6
    said = [nudge["message"] for nudge in decided(guard, "nudge.issued")]
    assert said
    assert all(message in model.asked[-1] for message in said)
    assert not any(message in model.asked[0] for message in said)


@pytest.mark.parametrize("granted", [True, False])
def test_a_person_at_the_terminal_is_asked(monkeypatch, granted):
    guard = new_guard()
    escalate(guard, "look")
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    monkeypatch.setattr("builtins.input", lambda *_: "approve" if granted else "no")
    _, model = run(guard, [asks("look", '{"place": "a"}'), DONE], look)
    assert ("nothing at a" in model.asked[-1]) == granted
    assert [event["granted"] for event in events(guard, "permission.resolved")] == [granted]


def test_a_guard_that_blocks_and_the_kill_switch():
    with SyncToolGuard.in_memory(workspace_id="w1") as guard:
        run(guard, [asks("look", '{"place": "a"}'), DONE], look)
        assert endings(guard.guard) == [("look", "success")]
    guard = new_guard(enabled=False)
    _, model = run(guard, [asks("look", '{"place": "a"}'), DONE], look)
    assert "nothing at a" in model.asked[-1]
    assert events(guard) == []


def test_the_examples_of_the_documentation(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    check_examples("CrewAI")
