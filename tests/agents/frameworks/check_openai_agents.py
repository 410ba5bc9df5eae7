"""The hooks and guarded tools of OpenAI Agents, against the package itself."""

from __future__ import annotations

import asyncio
import itertools
import json
from typing import Any

import pytest
from agents import Agent, ModelResponse, Runner, RunState, Usage, function_tool, handoff, set_tracing_disabled
from agents.models.interface import Model
from examples import check_examples
from kit import SAME_RESULT, block, endings, escalate, events, kinds, new_guard, paired, sessions, step_sizes
from openai.types.responses import (
    Response,
    ResponseCompletedEvent,
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
)
from trustfold.guard import SyncToolGuard
from trustfold.integrations.openai_agents import TrustfoldRunHooks

set_tracing_disabled(disabled=True)
NUMBERS = itertools.count()


class Scripted(Model):
    """A model that says what it is told to say, and keeps what it was asked."""

    model = "scripted-1"

    def __init__(self, *steps: Any) -> None:
        self.steps = list(steps)
        self.asked: list[Any] = []

    def _output(self, given: Any) -> list[Any]:
        self.asked.append(json.dumps(given, default=str))
        step = self.steps[len(self.asked) - 1]
        text = step if isinstance(step, str) else "I look."
        part = ResponseOutputText(text=text, type="output_text", annotations=[])
        said = ResponseOutputMessage(
            id=f"m{len(self.asked)}", content=[part], role="assistant", status="completed", type="message"
        )
        calls = [] if isinstance(step, str) else step
        return [said] + [
            ResponseFunctionToolCall(
                name=name, arguments=args if isinstance(args, str) else json.dumps(args),
                call_id=f"c{next(NUMBERS)}", type="function_call",
            )
            for number, (name, args) in enumerate(calls)
        ]  # fmt: skip

    async def get_response(self, system_instructions, input, *args, **options):
        return ModelResponse(output=self._output(input), usage=Usage(), response_id=None)

    async def stream_response(self, system_instructions, input, *args, **options):
        response = Response(
            id="r", created_at=0, model="f", object="response", output=self._output(input),
            tool_choice="auto", tools=[], parallel_tool_calls=True,
        )  # fmt: skip
        yield ResponseCompletedEvent(response=response, sequence_number=0, type="response.completed")


@function_tool
def look(place: str) -> str:
    """Look."""
    return f"nothing at {place}"


@function_tool
def fail(place: str) -> str:
    """Fail."""
    raise TimeoutError(f"no answer from {place}")


@function_tool(failure_error_function=None)
def raises(place: str) -> str:
    """Fail for good."""
    raise LookupError(place)


def run(agent: Any, how: str, hooks: Any, given: Any = "go", **options: Any) -> Any:
    """Run an agent in one of the ways it can be run."""
    if how == "sync":
        return Runner.run_sync(agent, given, hooks=hooks, **options)

    async def streamed():
        result = Runner.run_streamed(agent, given, hooks=hooks, **options)
        async for _ in result.stream_events():
            pass
        return result

    return asyncio.run(streamed() if how == "stream" else Runner.run(agent, given, hooks=hooks, **options))


def outputs(result: Any) -> list[str]:
    return [str(item.output) for item in result.new_items if item.type == "tool_call_output_item"]


ways = pytest.mark.parametrize("how", ["sync", "async", "stream"])


@ways
def test_calls_of_one_message_are_one_step(how):
    guard = new_guard()
    hooks = TrustfoldRunHooks(guard)
    steps = [("look", {"place": "a"}), ("look", {"place": "b"})], [("look", {"place": "c"})], "Done."
    run(Agent(name="a", model=Scripted(*steps), tools=hooks.guarded([look])), how, hooks, "find it, please")
    assert step_sizes(guard) == [2, 1]
    assert [event["words"] for event in events(guard, "user.message")] == [3]


@ways
def test_a_shortened_history_is_told_once(how):
    guard = new_guard()
    hooks = TrustfoldRunHooks(guard)
    history = [
        {"type": "compaction", "id": "cmp-1", "encrypted_content": "x"},
        {"role": "user", "content": "go"},
    ]
    model = Scripted([("look", {"place": "a"})], "Done.")
    run(Agent(name="a", model=model, tools=hooks.guarded([look])), how, hooks, history)
    assert kinds(guard).count("context.compacted") == 1


@ways
def test_a_run_is_told(how):
    guard = new_guard()
    hooks = TrustfoldRunHooks(guard)
    agent = Agent(name="a", model=Scripted([("look", {"place": "a"})], "Done."), tools=hooks.guarded([look]))
    result = run(agent, how, hooks)
    assert (result.final_output, outputs(result)) == ("Done.", ["nothing at a"])
    assert kinds(guard) == [
        "session.started", "user.message", "turn.started", "model.text",
        "tool_call.started", "tool_call.finished", "model.text", "turn.ended",
    ]  # fmt: skip
    assert {event["model"] for event in events(guard, "tool_call.finished")} == {"scripted-1"}
    assert len(sessions(guard)) == 1


@ways
def test_a_failure_that_the_framework_hides_is_seen(how):
    guard = new_guard()
    hooks = TrustfoldRunHooks(guard)
    bare = run(Agent(name="a", model=Scripted([("fail", {"place": "a"})], "Done."), tools=[fail]), how, None)
    agent = Agent(name="a", model=Scripted([("fail", {"place": "a"})], "Done."), tools=hooks.guarded([fail]))
    assert outputs(run(agent, how, hooks)) == outputs(bare)
    assert endings(guard) == [("fail", "timeout")]
    assert events(guard, "tool_call.finished")[0]["error"]["type"] == "TimeoutError"


def test_arguments_that_do_not_fit_are_the_model_s_failure():
    guard = new_guard()
    hooks = TrustfoldRunHooks(guard)
    steps = [("look", {"nowhere": 1}), ("look", "no json")]
    bare = run(Agent(name="a", model=Scripted(steps, "Done."), tools=[look]), "async", None)
    agent = Agent(name="a", model=Scripted(steps, "Done."), tools=hooks.guarded([look]))
    assert outputs(run(agent, "async", hooks)) == outputs(bare)
    assert endings(guard) == [("look", "error")] * 2


@ways
def test_an_exception_of_the_tool_is_raised_as_without_us(how):
    guard = new_guard()
    hooks = TrustfoldRunHooks(guard)
    caught = []
    for tools, given in (([raises], None), (hooks.guarded([raises]), hooks)):
        with pytest.raises(Exception) as info:  # noqa: PT011 - whatever the framework makes of it
            run(Agent(name="a", model=Scripted([("raises", {"place": "a"})]), tools=tools), how, given)
        caught.append((type(info.value), str(info.value), type(info.value.__cause__)))
    assert caught[0] == caught[1]
    assert endings(guard) == [("raises", "error")]


@ways
def test_a_loop_is_said_in_the_next_request_and_once(how):
    guard = new_guard()
    hooks = TrustfoldRunHooks(guard)
    model = Scripted(*[[("look", {"place": "a"})]] * 3, "So be it.")
    result = run(Agent(name="a", model=model, tools=hooks.guarded([look])), how, hooks)
    assert [asked.count(SAME_RESULT) for asked in model.asked] == [0, 0, 0, 1]
    assert SAME_RESULT not in json.dumps(result.to_input_list(), default=str)
    assert len(events(guard, "user.message")) == 1


@ways
def test_a_blocked_tool_is_refused_with_the_reason(how):
    guard = new_guard()
    block(guard, "look")
    hooks = TrustfoldRunHooks(guard)
    agent = Agent(name="a", model=Scripted([("look", {"place": "a"})], "Done."), tools=hooks.guarded([look]))
    told = outputs(run(agent, how, hooks))[0]
    assert "it deleted a table" in told
    assert "manual reset required" in told


@ways
@pytest.mark.parametrize("granted", [True, False])
def test_approval_is_the_framework_s_own(how, granted):
    guard = new_guard()
    escalate(guard, "look")
    hooks = TrustfoldRunHooks(guard)
    agent = Agent(name="a", model=Scripted([("look", {"place": "a"})], "Done."), tools=hooks.guarded([look]))
    result = run(agent, how, hooks)
    assert [item.name for item in result.interruptions] == ["look"]
    assert "tool_call.started" not in kinds(guard)
    state = result.to_state()
    if granted:
        state.approve(result.interruptions[0])
    else:
        state.reject(result.interruptions[0])
    result = run(agent, how, hooks, state)
    assert result.final_output == "Done."
    assert (outputs(result) == ["nothing at a"]) == granted
    assert endings(guard) == [("look", "success")] * granted
    assert len(events(guard, "permission.requested")) == granted
    assert len(events(guard, "user.message")) == 1
    assert len(events(guard, "model.text")) == 2
    assert len(sessions(guard)) == 1


def test_a_run_that_was_stored_goes_on_without_telling_again():
    guard = new_guard()
    escalate(guard, "look")
    hooks = TrustfoldRunHooks(guard)
    agent = Agent(name="a", model=Scripted([("look", {"place": "a"})], "Done."), tools=hooks.guarded([look]))

    async def main():
        async with guard.session("mine"):
            stored = (await Runner.run(agent, "go", hooks=hooks)).to_state().to_string()
            state = await RunState.from_string(agent, stored)
            state.approve(state.get_interruptions()[0])
            return await Runner.run(agent, state, hooks=hooks)

    assert asyncio.run(main()).final_output == "Done."
    assert endings(guard) == [("look", "success")]
    assert len(events(guard, "user.message")) == 1
    assert sessions(guard) == ["mine"]


def test_what_the_framework_would_ask_about_by_itself_is_not_asked():
    guard = new_guard()
    escalate(guard, "other")
    hooks = TrustfoldRunHooks(guard)

    @function_tool
    def count(times: int = 3) -> str:
        """Count; a text is made a number."""
        return str(times)

    agent = Agent(
        name="a", model=Scripted([("count", {"times": "7"}), ("count", {})], "Done."), tools=hooks.guarded([count])
    )
    assert outputs(run(agent, "async", hooks)) == ["7", "3"]


def test_a_tool_that_always_asks_still_does():
    guard = new_guard()
    hooks = TrustfoldRunHooks(guard)

    @function_tool(needs_approval=True)
    def order() -> str:
        """Order."""
        return "ordered"

    agent = Agent(name="a", model=Scripted([("order", {})], "Done."), tools=hooks.guarded([order]))
    result = run(agent, "async", hooks)
    assert [item.name for item in result.interruptions] == ["order"]
    assert endings(guard) == []


def test_handoffs_pass():
    guard = new_guard()
    hooks = TrustfoldRunHooks(guard)
    second = Agent(name="second", model=Scripted([("look", {"place": "b"})], "Second."), tools=hooks.guarded([look]))
    name = handoff(second).tool_name
    first = Agent(name="first", model=Scripted([(name, {})]), tools=hooks.guarded([look]), handoffs=[second])
    result = run(first, "async", hooks)
    assert (result.final_output, result.last_agent is second) == ("Second.", True)
    assert endings(guard) == [("look", "success")]
    assert len(sessions(guard)) == 1
    assert len(events(guard, "user.message")) == 1


def test_parallel_calls_are_told_each_once():
    guard = new_guard()
    hooks = TrustfoldRunHooks(guard)
    calls = [("look", {"place": str(number)}) for number in range(8)]
    result = run(Agent(name="a", model=Scripted(calls, "Done."), tools=hooks.guarded([look])), "async", hooks)
    assert outputs(result) == [f"nothing at {number}" for number in range(8)]
    assert endings(guard) == [("look", "success")] * 8
    assert paired(guard)


def test_an_agent_as_a_tool_has_a_session_of_its_own():
    guard = new_guard()
    hooks = TrustfoldRunHooks(guard)
    inner = Agent(name="inner", model=Scripted([("look", {"place": "in"})], "Inner."), tools=hooks.guarded([look]))
    delegate = inner.as_tool("delegate", "Delegate.", hooks=hooks)
    outer = Agent(
        name="outer", model=Scripted([("delegate", {"input": "x"})], "Done."), tools=hooks.guarded([delegate])
    )
    assert run(outer, "async", hooks).final_output == "Done."
    of = {event["tool_name"]: event["session_id"] for event in events(guard, "tool_call.finished")}
    assert of["look"].startswith(f"{of['delegate']}/")


def test_a_conversation_of_several_runs_is_told_once():
    guard = new_guard()
    hooks = TrustfoldRunHooks(guard)
    agent = Agent(name="a", model=Scripted("One.", "Two."), tools=hooks.guarded([look]))

    async def main():
        async with guard.session("mine"):
            first = await Runner.run(agent, "one", hooks=hooks)
            await Runner.run(agent, [*first.to_input_list(), {"role": "user", "content": "two"}], hooks=hooks)

    asyncio.run(main())
    assert kinds(guard)[:-1] == ["session.started"] + ["user.message", "turn.started", "model.text", "turn.ended"] * 2


def test_the_tools_of_the_user_stay_as_they_are():
    guard = new_guard()
    before = dict(vars(look))
    made = TrustfoldRunHooks(guard).guarded([look])[0]
    assert vars(look) == before
    assert (made.name, made.params_json_schema) == (look.name, look.params_json_schema)


def test_the_kill_switch_and_shadow():
    for options in ({"enabled": False}, {"shadow": True}):
        guard = new_guard(**options)
        block(guard, "look")
        hooks = TrustfoldRunHooks(guard)
        model = Scripted(*[[("look", {"place": "a"})]] * 3, "Done.")
        result = run(Agent(name="a", model=model, tools=hooks.guarded([look])), "async", hooks)
        assert outputs(result) == ["nothing at a"] * 3
        assert SAME_RESULT not in model.asked[-1]
        assert bool(events(guard)) == ("shadow" in options)


def test_a_guard_that_blocks_serves_runs():
    with SyncToolGuard.in_memory(workspace_id="w1") as guard:
        hooks = TrustfoldRunHooks(guard)
        for how in ("sync", "async"):
            agent = Agent(name="a", model=Scripted([("look", {"place": how})], "Done."), tools=hooks.guarded([look]))
            assert outputs(run(agent, how, hooks)) == [f"nothing at {how}"]
        assert endings(guard.guard) == [("look", "success")] * 2


def test_the_examples_of_the_documentation():
    check_examples("OpenAI Agents")
