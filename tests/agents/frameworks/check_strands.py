"""The hooks for Strands, against the package itself."""

from __future__ import annotations

import asyncio
import itertools
import json
from typing import Any

import pytest
from examples import check_examples
from kit import SAME_RESULT, block, endings, escalate, events, kinds, new_guard, paired, sessions, step_sizes
from strands import Agent, ToolContext, tool
from strands.models import Model
from trustfold.guard import SyncToolGuard
from trustfold.integrations.strands import TrustfoldHookProvider

NUMBERS = itertools.count()


class Scripted(Model):
    """A model that says what it is told to say, and keeps what it was asked."""

    def __init__(self, *steps: Any) -> None:
        self.config = {"model_id": "scripted-1"}
        self.steps = steps
        self.asked: list[str] = []

    def update_config(self, **config):
        self.config |= config

    def get_config(self):
        return self.config

    async def structured_output(self, *args, **options):
        raise NotImplementedError
        yield

    async def stream(self, messages, *args, **options):
        self.asked.append(json.dumps(messages))
        step = self.steps[len(self.asked) - 1]
        yield {"messageStart": {"role": "assistant"}}
        yield {"contentBlockStart": {"start": {}}}
        yield {"contentBlockDelta": {"delta": {"text": step if isinstance(step, str) else "I look."}}}
        yield {"contentBlockStop": {}}
        for name, given in () if isinstance(step, str) else step:
            yield {"contentBlockStart": {"start": {"toolUse": {"name": name, "toolUseId": f"c{next(NUMBERS)}"}}}}
            yield {"contentBlockDelta": {"delta": {"toolUse": {"input": json.dumps(given)}}}}
            yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": "end_turn" if isinstance(step, str) else "tool_use"}}


@tool
def look(place: str) -> str:
    """Look."""
    return f"nothing at {place}"


@tool
def fail(place: str) -> str:
    """Fail."""
    raise TimeoutError(f"no answer from {place}")


@tool
def hides(place: str) -> dict:
    """Fail, and say so."""
    return {"status": "error", "content": [{"text": f"no such place: {place}"}]}


@tool(context=True)
def asks_itself(tool_context: ToolContext) -> str:
    """Ask the user."""
    return tool_context.interrupt("which", reason="which?")


def agent_of(guard: Any, model: Scripted, *tools: Any, **options: Any) -> Agent:
    hooks = [TrustfoldHookProvider(guard)] if guard is not None else []
    return Agent(model=model, tools=list(tools), hooks=hooks, callback_handler=None, **options)


def run(agent: Agent, how: str, given: Any = "go") -> Any:
    """Run an agent in one of the ways it can be run."""
    if how == "sync":
        return agent(given)

    async def streamed():
        async for event in agent.stream_async(given):
            if "result" in event:
                return event["result"]
        return None

    return asyncio.run(streamed() if how == "stream" else agent.invoke_async(given))


def results(agent: Agent) -> list[Any]:
    blocks = [one for message in agent.messages for one in message["content"]]
    return [(one["toolResult"]["status"], str(one["toolResult"]["content"])) for one in blocks if "toolResult" in one]


ways = pytest.mark.parametrize("how", ["sync", "async", "stream"])


@ways
def test_calls_of_one_message_are_one_step(how):
    guard = new_guard()
    steps = [("look", {"place": "a"}), ("look", {"place": "b"})], [("look", {"place": "c"})], "Done."
    run(agent_of(guard, Scripted(*steps), look), how, "find it, please")
    assert step_sizes(guard) == [2, 1]
    assert [event["words"] for event in events(guard, "user.message")] == [3]


def test_a_shortened_history_is_told():
    guard = new_guard()
    agent = agent_of(guard, Scripted([("look", {"place": "a"})], "One.", "Two.", "Three."), look)
    run(agent, "sync")
    run(agent, "sync", "two")
    assert "context.compacted" not in kinds(guard)
    del agent.messages[:-2]
    run(agent, "sync", "three")
    assert kinds(guard).count("context.compacted") == 1


@ways
def test_a_run_is_told(how):
    guard = new_guard()
    agent = agent_of(guard, Scripted([("look", {"place": "a"})], "Done."), look)
    run(agent, how)
    assert results(agent) == [("success", "[{'text': 'nothing at a'}]")]
    assert kinds(guard) == [
        "session.started", "user.message", "turn.started", "model.text",
        "tool_call.started", "tool_call.finished", "model.text", "turn.ended",
    ]  # fmt: skip
    assert {event["model"] for event in events(guard, "tool_call.finished")} == {"scripted-1"}
    assert sessions(guard) == [agent.session_id]


@ways
def test_failures_that_the_framework_hides_are_seen(how):
    guard = new_guard()
    steps = [("fail", {"place": "a"})], [("hides", {"place": "a"})], [("look", {})], [("invented", {})], "Done."
    bare, agent = (agent_of(one, Scripted(*steps), look, fail, hides) for one in (None, guard))
    run(bare, how)
    run(agent, how)
    assert results(agent) == results(bare)
    assert endings(guard) == [("fail", "timeout"), ("hides", "error"), ("look", "error"), ("invented", "error")]
    assert events(guard, "tool_call.finished")[0]["error"]["type"] == "TimeoutError"
    assert paired(guard)


@ways
def test_a_loop_is_said_in_the_next_request_and_once(how):
    guard = new_guard()
    model = Scripted(*[[("look", {"place": "a"})]] * 3, "So be it.")
    run(agent_of(guard, model, look), how)
    assert [asked.count(SAME_RESULT) for asked in model.asked] == [0, 0, 0, 1]
    assert len(events(guard, "user.message")) == 1


@ways
def test_a_blocked_tool_is_refused_with_the_reason(how):
    guard = new_guard()
    block(guard, "look")
    agent = agent_of(guard, Scripted([("look", {"place": "a"})], "Done."), look)
    run(agent, how)
    ((status, told),) = results(agent)
    assert status == "error"
    assert "it deleted a table" in told
    assert "manual reset required" in told


@pytest.mark.parametrize("how", ["sync", "async"])
@pytest.mark.parametrize("answer", ["approve", "no"])
def test_approval_is_the_framework_s_own(how, answer):
    guard = new_guard()
    escalate(guard, "look")
    agent = agent_of(guard, Scripted([("look", {"place": "a"})], "Done."), look)
    (asked,) = run(agent, how).interrupts
    assert "3/3 failures" in asked.reason["description"]
    assert "tool_call.started" not in kinds(guard)
    run(agent, how, [{"interruptResponse": {"interruptId": asked.id, "response": answer}}])
    assert ("nothing at a" in str(results(agent))) == (answer == "approve")
    assert endings(guard) == [("look", "success" if answer == "approve" else "error")]
    assert [event["granted"] for event in events(guard, "permission.resolved")] == [answer == "approve"]
    assert len(events(guard, "user.message")) == 1
    assert len(events(guard, "model.text")) == 2


def test_parallel_calls_are_approved_each_by_itself():
    guard = new_guard()
    escalate(guard, "look")
    agent = agent_of(guard, Scripted([("look", {"place": "a"}), ("look", {"place": "b"})], "Done."), look)
    asked = run(agent, "async").interrupts
    given = [(one.id, "approve" if one.reason["args"]["place"] == "b" else "no") for one in asked]
    run(agent, "async", [{"interruptResponse": {"interruptId": number, "response": said}} for number, said in given])
    assert "nothing at b" in str(results(agent))
    assert "nothing at a" not in str(results(agent))


def test_a_tool_s_own_interrupt_passes_and_is_no_failure():
    guard = new_guard()
    agent = agent_of(guard, Scripted([("asks_itself", {})], "Done."), asks_itself)
    (asked,) = run(agent, "sync").interrupts
    run(agent, "sync", [{"interruptResponse": {"interruptId": asked.id, "response": "this"}}])
    assert results(agent) == [("success", "[{'text': 'this'}]")]
    assert endings(guard) == [("asks_itself", "cancelled"), ("asks_itself", "success")]


def test_parallel_calls_are_told_each_once():
    guard = new_guard()
    agent = agent_of(guard, Scripted([("look", {"place": str(number)}) for number in range(8)], "Done."), look)
    run(agent, "async")
    assert len(results(agent)) == 8
    assert endings(guard) == [("look", "success")] * 8
    assert paired(guard)


def test_an_agent_inside_of_a_tool_has_a_session_of_its_own():
    guard = new_guard()

    @tool
    def delegate(task: str) -> str:
        """Delegate."""
        return str(agent_of(guard, Scripted([("look", {"place": "in"})], "Inner."), look)(task))

    agent = agent_of(guard, Scripted([("delegate", {"task": "x"})], "Done."), delegate)
    run(agent, "sync")
    of = {event["tool_name"]: event["session_id"] for event in events(guard, "tool_call.finished")}
    assert of["delegate"] == agent.session_id
    assert of["look"] != of["delegate"]


def test_a_second_question_is_a_second_turn():
    guard = new_guard()
    agent = agent_of(guard, Scripted("One.", "Two."), look)
    run(agent, "sync", "one")
    run(agent, "async", "two")
    assert kinds(guard) == ["session.started"] + ["user.message", "turn.started", "model.text", "turn.ended"] * 2


def test_the_kill_switch_and_shadow():
    for options in ({"enabled": False}, {"shadow": True}):
        guard = new_guard(**options)
        block(guard, "look")
        model = Scripted(*[[("look", {"place": "a"})]] * 3, "Done.")
        agent = agent_of(guard, model, look)
        run(agent, "sync")
        assert [status for status, _ in results(agent)] == ["success"] * 3
        assert SAME_RESULT not in model.asked[-1]
        assert bool(events(guard)) == ("shadow" in options)


def test_a_guard_that_blocks_serves_runs():
    with SyncToolGuard.in_memory(workspace_id="w1") as guard:
        for how in ("sync", "async"):
            run(agent_of(guard, Scripted([("look", {"place": "a"})], "Done."), look), how)
        assert endings(guard.guard) == [("look", "success")] * 2


def test_the_examples_of_the_documentation():
    check_examples("Strands")
