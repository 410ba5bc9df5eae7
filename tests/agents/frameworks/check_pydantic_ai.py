"""The capability for Pydantic AI, against the package itself."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest
from examples import check_examples
from kit import SAME_RESULT, block, endings, escalate, events, kinds, new_guard, paired, sessions, step_sizes
from pydantic_ai import Agent, ApprovalRequired, DeferredToolRequests, DeferredToolResults, ModelRetry, RunContext
from pydantic_ai.messages import CompactionPart, ModelRequest, ModelResponse, TextPart, ToolCallPart, UserPromptPart
from pydantic_ai.models.function import DeltaToolCall, FunctionModel
from trustfold.guard import SyncToolGuard
from trustfold.integrations.pydantic_ai import TrustfoldCapability

NUMBERS = itertools.count()


class Script:
    """What a model is to say, step by step, and what it was asked."""

    def __init__(self, *steps: Any) -> None:
        self.steps = list(steps)
        self.asked: list[Any] = []

    def answer(self, messages, info):
        self.asked.append(str(messages))
        step = self.steps[len(self.asked) - 1]
        if isinstance(step, str):
            return ModelResponse(parts=[TextPart(step)])
        calls = [ToolCallPart(name, args, tool_call_id=f"c{next(NUMBERS)}") for name, args in step]
        return ModelResponse(parts=[TextPart("I look."), *calls])

    async def stream(self, messages, info):
        response = self.answer(messages, info)
        for number, part in enumerate(response.parts):
            if isinstance(part, TextPart):
                yield part.content
            else:
                call = DeltaToolCall(part.tool_name, part.args_as_json_str(), tool_call_id=part.tool_call_id)
                yield {number: call}

    def model(self):
        return FunctionModel(self.answer, stream_function=self.stream, model_name="scripted-1")


def look(place: str) -> str:
    """Look."""
    return f"nothing at {place}"


def fail(place: str) -> str:
    """Fail."""
    raise TimeoutError(f"no answer from {place}")


def agent_of(guard: Any, script: Script, *tools: Any, **options: Any) -> Agent:
    capabilities = [TrustfoldCapability(guard)] if guard is not None else []
    return Agent(script.model(), tools=list(tools), capabilities=capabilities, **options)


def run(agent: Any, how: str, given: Any = "go", **options: Any) -> Any:
    """Run an agent in one of the ways it can be run."""
    if how == "sync":
        return agent.run_sync(given, **options)

    async def streamed():
        async def take(ctx, stream):
            async for _ in stream:
                pass

        return await agent.run(given, event_stream_handler=take, **options)

    return asyncio.run(streamed() if how == "stream" else agent.run(given, **options))


def returned(result: Any) -> list[str]:
    parts = [part for message in result.all_messages() for part in message.parts]
    return [str(part.content) for part in parts if part.part_kind in {"tool-return", "retry-prompt"}]


ways = pytest.mark.parametrize("how", ["sync", "async", "stream"])


@ways
def test_calls_of_one_message_are_one_step(how):
    guard = new_guard()
    steps = [("look", {"place": "a"}), ("look", {"place": "b"})], [("look", {"place": "c"})], "Done."
    run(agent_of(guard, Script(*steps), look), how, "find it, please")
    assert step_sizes(guard) == [2, 1]
    assert [event["words"] for event in events(guard, "user.message")] == [3]


@ways
def test_a_shortened_history_is_told_once(how):
    guard = new_guard()
    history = [ModelRequest([UserPromptPart("hello")]), ModelResponse([CompactionPart("so far", id="cmp-1")])]
    agent = agent_of(guard, Script([("look", {"place": "a"})], "Done."), look)
    run(agent, how, message_history=history)
    assert kinds(guard).count("context.compacted") == 1


@ways
def test_a_run_is_told(how):
    guard = new_guard()
    result = run(agent_of(guard, Script([("look", {"place": "a"})], "Done."), look), how)
    assert returned(result) == ["nothing at a"]
    assert kinds(guard) == [
        "session.started", "user.message", "turn.started", "model.text",
        "tool_call.started", "tool_call.finished", "model.text", "turn.ended",
    ]  # fmt: skip
    assert {event["model"] for event in events(guard, "tool_call.finished")} == {"scripted-1"}
    assert len(sessions(guard)) == 1


def test_an_answer_that_is_read_as_it_comes_is_told():
    guard = new_guard()
    agent = agent_of(guard, Script("Done."), look)

    async def main():
        async with agent.run_stream("go") as result:
            assert [text async for text in result.stream_text()][-1] == "Done."

    asyncio.run(main())
    assert kinds(guard) == ["session.started", "user.message", "turn.started", "model.text", "turn.ended"]


@ways
def test_an_exception_is_the_same_and_is_seen(how):
    guard = new_guard()
    with pytest.raises(TimeoutError, match="no answer from a"):
        run(agent_of(guard, Script([("fail", {"place": "a"})]), fail), how)
    assert endings(guard) == [("fail", "timeout")]
    assert kinds(guard)[-1] == "turn.ended"
    assert paired(guard)


@ways
def test_failures_that_the_framework_hides_are_seen(how):
    guard = new_guard()
    steps = [("look", {"nowhere": 1})], "Done."
    bare = run(agent_of(None, Script(*steps), look), how)
    result = run(agent_of(guard, Script(*steps), look), how)
    assert len(returned(result)) == len(returned(bare)) == 1
    assert endings(guard) == [("look", "rejected")]
    assert paired(guard)


@ways
def test_a_request_to_try_again_is_no_failure(how):
    guard = new_guard()
    answers = iter([ModelRetry("not like this"), "ok"])

    def picky(place: str) -> str:
        """Pick."""
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    result = run(agent_of(guard, Script([("picky", {"place": "a"})], [("picky", {"place": "b"})], "Done."), picky), how)
    assert returned(result)[-1] == "ok"
    assert endings(guard) == [("picky", "cancelled"), ("picky", "success")]


@ways
def test_a_loop_is_said_in_the_next_request_and_once(how):
    guard = new_guard()
    script = Script(*[[("look", {"place": "a"})]] * 3, "So be it.")
    result = run(agent_of(guard, script, look), how)
    assert [asked.count(SAME_RESULT) for asked in script.asked] == [0, 0, 0, 1]
    assert SAME_RESULT not in str(result.all_messages())
    assert len(events(guard, "user.message")) == 1


@ways
def test_a_blocked_tool_is_refused_with_the_reason(how):
    guard = new_guard()
    block(guard, "look")
    told = returned(run(agent_of(guard, Script([("look", {"place": "a"})], "Done."), look), how))[0]
    assert "it deleted a table" in told
    assert "manual reset required" in told


@pytest.mark.parametrize("how", ["sync", "async"])
@pytest.mark.parametrize("granted", [True, False])
def test_approval_is_the_framework_s_own(how, granted):
    guard = new_guard()
    escalate(guard, "look")
    script = Script([("look", {"place": "a"})], "Done.")
    agent = agent_of(guard, script, look, output_type=[str, DeferredToolRequests])
    waiting = run(agent, how)
    (call,) = waiting.output.approvals
    assert call.tool_name == "look"
    assert "tool_call.started" not in kinds(guard)
    answers = DeferredToolResults(approvals={call.tool_call_id: granted})
    result = run(agent, how, None, message_history=waiting.all_messages(), deferred_tool_results=answers)
    assert result.output == "Done."
    assert ("nothing at a" in returned(result)) == granted
    assert endings(guard) == [("look", "success")] * granted
    assert [event["granted"] for event in events(guard, "permission.resolved")] == [granted]
    assert len(events(guard, "user.message")) == 1
    assert len(events(guard, "model.text")) == 2
    assert len(sessions(guard)) == 1


def test_an_agent_that_cannot_defer_is_not_made_to():
    guard = new_guard(unattended="deny")
    escalate(guard, "look")
    told = returned(run(agent_of(guard, Script([("look", {"place": "a"})], "Done."), look), "async"))[0]
    assert "trustfold approve" in told


def test_a_tool_s_own_request_for_approval_passes():
    guard = new_guard()

    def order(ctx: RunContext[None]) -> str:
        """Order."""
        if not ctx.tool_call_approved:
            raise ApprovalRequired
        return "ordered"

    agent = agent_of(guard, Script([("order", {})], "Done."), order, output_type=[str, DeferredToolRequests])
    waiting = run(agent, "async")
    (call,) = waiting.output.approvals
    answers = DeferredToolResults(approvals={call.tool_call_id: True})
    result = run(agent, "async", None, message_history=waiting.all_messages(), deferred_tool_results=answers)
    assert result.output == "Done."
    assert endings(guard) == [("order", "cancelled"), ("order", "success")]


def test_parallel_calls_are_told_each_once():
    guard = new_guard()
    calls = [("look", {"place": str(number)}) for number in range(8)]
    result = run(agent_of(guard, Script(calls, "Done."), look), "async")
    assert returned(result) == [f"nothing at {number}" for number in range(8)]
    assert endings(guard) == [("look", "success")] * 8
    assert paired(guard)


def test_an_agent_inside_of_a_tool_has_a_session_of_its_own():
    guard = new_guard()
    inner = agent_of(guard, Script([("look", {"place": "in"})], "Inner."), look)

    async def delegate(task: str) -> str:
        """Delegate."""
        return (await inner.run(task)).output

    run(agent_of(guard, Script([("delegate", {"task": "x"})], "Done."), delegate), "async")
    of = {event["tool_name"]: event["session_id"] for event in events(guard, "tool_call.finished")}
    assert of["look"].startswith(f"{of['delegate']}/")


def test_history_is_not_told_again():
    guard = new_guard()
    agent = agent_of(guard, Script("One.", "Two."), look)
    first = run(agent, "sync", "one")
    run(agent, "async", "two", message_history=first.all_messages())
    assert kinds(guard) == ["session.started"] + ["user.message", "turn.started", "model.text", "turn.ended"] * 2


def test_twins_of_a_reader_are_one_call_and_each_has_its_answer():
    guard = new_guard()
    guard.register("slow", read_only=True)
    made = []

    async def slow(place: str) -> str:
        """Look slowly."""
        made.append(place)
        await asyncio.sleep(0.05)
        return "seen"

    assert (
        returned(run(agent_of(guard, Script([("slow", {"place": "a"})] * 2, "Done."), slow), "async")) == ["seen"] * 2
    )
    assert made == ["a"]


def test_the_kill_switch_and_shadow():
    for options in ({"enabled": False}, {"shadow": True}):
        guard = new_guard(**options)
        block(guard, "look")
        script = Script(*[[("look", {"place": "a"})]] * 3, "Done.")
        assert returned(run(agent_of(guard, script, look), "async")) == ["nothing at a"] * 3
        assert SAME_RESULT not in script.asked[-1]
        assert bool(events(guard)) == ("shadow" in options)


def test_a_guard_that_blocks_serves_runs():
    with SyncToolGuard.in_memory(workspace_id="w1") as guard:
        for how in ("sync", "async"):
            script = Script([("look", {"place": how})], "Done.")
            assert returned(run(agent_of(guard, script, look), how)) == [f"nothing at {how}"]
        assert endings(guard.guard) == [("look", "success")] * 2


def test_the_examples_of_the_documentation():
    check_examples("Pydantic AI")
