"""The plugin for Google ADK, against the package itself."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest
from examples import check_examples
from google.adk.agents import LlmAgent
from google.adk.agents.run_config import RunConfig, StreamingMode
from google.adk.events import Event, EventActions
from google.adk.events.event_actions import EventCompaction
from google.adk.models import BaseLlm, LlmResponse
from google.adk.runners import InMemoryRunner
from google.adk.tools import FunctionTool
from google.genai import types
from kit import SAME_RESULT, block, endings, escalate, events, kinds, new_guard, paired, sessions, step_sizes
from trustfold.guard import SyncToolGuard
from trustfold.integrations.google_adk import TrustfoldPlugin

NUMBERS = itertools.count()
CONFIRM = "adk_request_confirmation"


class Scripted(BaseLlm):
    """A model that says what it is told to say, and keeps what it was asked."""

    steps: list[Any]
    asked: list[str] = []
    names_calls: bool = True

    async def generate_content_async(self, llm_request, stream=False):
        self.asked.append(str(llm_request.contents))
        step = self.steps[len(self.asked) - 1]
        parts = [types.Part(text=step if isinstance(step, str) else "I look.")]
        for name, args in () if isinstance(step, str) else step:
            call_id = f"c{next(NUMBERS)}" if self.names_calls else None
            call = types.FunctionCall(id=call_id, name=name, args=args)
            parts.append(types.Part(function_call=call))
        if stream:
            yield LlmResponse(content=types.Content(role="model", parts=parts[:1]), partial=True)
        yield LlmResponse(content=types.Content(role="model", parts=parts), model_version="scripted-1")


def look(place: str) -> dict:
    """Look."""
    return {"seen": f"nothing at {place}"}


def fail(place: str) -> dict:
    """Fail."""
    raise TimeoutError(f"no answer from {place}")


def hides(place: str) -> dict:
    """Fail, and say so."""
    return {"error": f"no such place: {place}"}


class App:
    """A runner and its session."""

    def __init__(self, guard: Any, steps: Any, *tools: Any, streams: bool = False) -> None:
        self.model = Scripted(model="scripted-1", steps=list(steps), asked=[])
        agent = LlmAgent(name="a", model=self.model, tools=list(tools))
        plugins = [] if guard is None else [TrustfoldPlugin(guard)]
        self.runner = InMemoryRunner(agent=agent, app_name="a", plugins=plugins)
        self.session = asyncio.run(self.runner.session_service.create_session(app_name="a", user_id="u"))
        self.config = RunConfig(streaming_mode=StreamingMode.SSE if streams else StreamingMode.NONE)

    def say(self, *parts: Any, sync: bool = False) -> list[Any]:
        said = [types.Part(text=part) if isinstance(part, str) else part for part in parts]
        options = {
            "user_id": "u", "session_id": self.session.id, "run_config": self.config,
            "new_message": types.Content(role="user", parts=said),
        }  # fmt: skip
        if sync:
            return list(self.runner.run(**options))

        async def main():
            return [event async for event in self.runner.run_async(**options)]

        return asyncio.run(main())


def answers(made: list[Any]) -> list[Any]:
    return [response.response for event in made for response in event.get_function_responses()]


ways = pytest.mark.parametrize("how", ["sync", "async", "stream"])


@ways
def test_a_run_is_told(how):
    guard = new_guard()
    app = App(guard, [[("look", {"place": "a"})], "Done."], look, streams=how == "stream")
    assert answers(app.say("go", sync=how == "sync")) == [{"seen": "nothing at a"}]
    assert kinds(guard) == [
        "session.started", "user.message", "turn.started", "model.text",
        "tool_call.started", "tool_call.finished", "model.text", "turn.ended",
    ]  # fmt: skip
    assert {event["model"] for event in events(guard, "tool_call.finished")} == {"scripted-1"}
    assert sessions(guard) == [app.session.id]


@ways
def test_an_exception_is_the_same_and_is_counted_once(how):
    guard = new_guard()
    with pytest.raises(TimeoutError, match="no answer from a"):
        App(guard, [[("fail", {"place": "a"})]], fail, streams=how == "stream").say("go", sync=how == "sync")
    assert endings(guard) == [("fail", "timeout")]
    assert paired(guard)


def test_failures_that_the_framework_hides_are_seen():
    guard = new_guard()
    steps = [[("hides", {"place": "a"})], [("look", {})], "Done."]
    assert answers(App(guard, steps, look, hides).say("go")) == answers(App(None, steps, look, hides).say("go"))
    assert endings(guard) == [("hides", "error"), ("look", "error")]


def test_a_tool_that_does_not_exist_is_a_call_that_never_ran():
    guard = new_guard()
    steps = [[("invented", {})], "Done."]
    assert answers(App(guard, steps, look).say("go")) == answers(App(None, steps, look).say("go"))
    assert endings(guard) == [("invented", "rejected")]
    assert paired(guard)


@pytest.mark.parametrize("names_calls", [True, False])
def test_calls_of_one_message_are_one_step(names_calls):
    guard = new_guard()
    steps = [[("look", {"place": "a"}), ("look", {"place": "b"})], [("look", {"place": "c"})], "Done."]
    app = App(guard, steps, look)
    app.model.names_calls = names_calls
    app.say("find it, please")
    assert step_sizes(guard) == [2, 1]
    assert [event["words"] for event in events(guard, "user.message")] == [3]


def test_a_shortened_history_is_told_once():
    guard = new_guard()
    app = App(guard, ["One.", "Two.", "Three."], look)
    app.say("one")
    actions = EventActions(
        compaction=EventCompaction(
            start_timestamp=0, end_timestamp=1, compacted_content=types.Content(role="model", parts=[])
        )
    )
    summary = Event(author="user", invocation_id="i", actions=actions)
    session = asyncio.run(app.runner.session_service.get_session(app_name="a", user_id="u", session_id=app.session.id))
    asyncio.run(app.runner.session_service.append_event(session, summary))
    app.say("two")
    app.say("three")
    assert kinds(guard).count("context.compacted") == 1
    assert kinds(guard).index("context.compacted") > kinds(guard).index("turn.ended")


def test_a_loop_is_said_in_the_next_request_and_once():
    guard = new_guard()
    app = App(guard, [*[[("look", {"place": "a"})]] * 3, "So be it.", "Yes?"], look)
    app.say("go")
    app.say("again")
    assert [asked.count(SAME_RESULT) for asked in app.model.asked] == [0, 0, 0, 1, 0]
    assert len(events(guard, "user.message")) == 2


def test_a_blocked_tool_is_refused_with_the_reason():
    guard = new_guard()
    block(guard, "look")
    (told,) = answers(App(guard, [[("look", {"place": "a"})], "Done."], look).say("go"))
    assert "it deleted a table" in told["error"]
    assert "manual reset required" in told["error"]


@pytest.mark.parametrize("granted", [True, False])
def test_approval_is_the_framework_s_own(granted):
    guard = new_guard()
    escalate(guard, "look")
    app = App(guard, [[("look", {"place": "a"})], "Done."], look)
    (asked,) = [call for event in app.say("go") for call in event.get_function_calls() if call.name == CONFIRM]
    assert "3/3 failures" in str(asked.args)
    assert "tool_call.started" not in kinds(guard)
    answer = types.FunctionResponse(id=asked.id, name=CONFIRM, response={"confirmed": granted})
    made = answers(app.say(types.Part(function_response=answer)))
    assert ({"seen": "nothing at a"} in made) == granted
    assert endings(guard) == [("look", "success" if granted else "error")]
    assert [event["granted"] for event in events(guard, "permission.resolved")] == [granted]
    assert len(events(guard, "user.message")) == 1
    assert len(sessions(guard)) == 1


def test_a_tool_that_asks_by_itself_is_no_failure():
    guard = new_guard()
    app = App(guard, [[("look", {"place": "a"})], "Done."], FunctionTool(look, require_confirmation=True))
    (asked,) = [call for event in app.say("go") for call in event.get_function_calls() if call.name == CONFIRM]
    answer = types.FunctionResponse(id=asked.id, name=CONFIRM, response={"confirmed": True})
    app.say(types.Part(function_response=answer))
    assert endings(guard) == [("look", "cancelled"), ("look", "success")]


def test_parallel_calls_are_told_each_once():
    guard = new_guard()
    calls = [("look", {"place": str(number)}) for number in range(8)]
    assert len(answers(App(guard, [calls, "Done."], look).say("go"))) == 8
    assert endings(guard) == [("look", "success")] * 8
    assert paired(guard)


def test_the_kill_switch_and_shadow():
    for options in ({"enabled": False}, {"shadow": True}):
        guard = new_guard(**options)
        block(guard, "look")
        app = App(guard, [*[[("look", {"place": "a"})]] * 3, "Done."], look)
        assert answers(app.say("go")) == [{"seen": "nothing at a"}] * 3
        assert SAME_RESULT not in app.model.asked[-1]
        assert bool(events(guard)) == ("shadow" in options)


def test_a_guard_that_blocks_serves_runs():
    with SyncToolGuard.in_memory(workspace_id="w1") as guard:
        assert answers(App(guard, [[("look", {"place": "a"})], "Done."], look).say("go")) == [{"seen": "nothing at a"}]
        assert endings(guard.guard) == [("look", "success")]


def test_the_examples_of_the_documentation():
    check_examples("Google ADK")
