"""The LangChain middleware and the LangGraph tool node, against the packages themselves."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from examples import check_examples
from kit import SAME_RESULT, block, endings, escalate, events, kinds, new_guard, paired, sessions, step_sizes
from langchain.agents import create_agent
from langchain.agents.middleware import SummarizationMiddleware, ToolRetryMiddleware
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import tools_condition
from langgraph.types import Command, interrupt
from trustfold.guard import SyncToolGuard
from trustfold.integrations.langchain import TrustfoldMiddleware, guarded_tool_node


class Scripted(GenericFakeChatModel):
    """A model that says what it is told to say, and keeps what it was asked."""

    asked: list[Any] = []

    def bind_tools(self, tools, **options):
        return self

    def _generate(self, messages, *args, **options):
        self.asked.append(list(messages))
        return super()._generate(messages, *args, **options)


def model(*steps: Any) -> Scripted:
    """Each step is a text, or calls as (tool, arguments)."""
    made = []
    for number, step in enumerate(steps):
        calls = [] if isinstance(step, str) else list(step)
        made.append(
            AIMessage(
                step if isinstance(step, str) else "I look.",
                tool_calls=[
                    {"name": name, "args": args, "id": f"c{number}-{i}"} for i, (name, args) in enumerate(calls)
                ],
                response_metadata={"model_name": "scripted-1"},
            )
        )
    return Scripted(messages=iter(made), asked=[])


@tool
def look(place: str) -> str:
    """Look."""
    return f"nothing at {place}"


@tool
def fail(place: str) -> str:
    """Fail."""
    raise TimeoutError(f"no answer from {place}")


@tool
def asks_itself(place: str) -> str:
    """Ask the user."""
    return interrupt("which?")


def run(agent: Any, how: str, given: Any = "go", **options: Any) -> Any:
    """Run an agent in one of the ways it can be run."""
    given = given if not isinstance(given, str) else {"messages": [HumanMessage(given)]}
    if how == "sync":
        return agent.invoke(given, **options)
    if how == "async":
        return asyncio.run(agent.ainvoke(given, **options))
    return list(agent.stream(given, stream_mode="values", **options))[-1]


ways = pytest.mark.parametrize("how", ["sync", "async", "stream"])


@ways
def test_a_run_is_told(how):
    guard = new_guard()
    agent = create_agent(model([("look", {"place": "a"})], "Done."), [look], middleware=[TrustfoldMiddleware(guard)])
    out = run(agent, how)
    assert [type(one).__name__ for one in out["messages"]] == ["HumanMessage", "AIMessage", "ToolMessage", "AIMessage"]
    assert kinds(guard) == [
        "session.started", "user.message", "turn.started", "model.text",
        "tool_call.started", "tool_call.finished", "model.text", "turn.ended",
    ]  # fmt: skip
    assert {event["model"] for event in events(guard, "tool_call.finished")} == {"scripted-1"}
    assert len({event["session_id"] for event in events(guard)}) == 1


@ways
def test_calls_of_one_message_are_one_step(how):
    guard = new_guard()
    steps = [("look", {"place": "a"}), ("look", {"place": "b"})], [("look", {"place": "c"})], "Done."
    run(create_agent(model(*steps), [look], middleware=[TrustfoldMiddleware(guard)]), how, "find it, please")
    assert step_sizes(guard) == [2, 1]
    assert [event["words"] for event in events(guard, "user.message")] == [3]


@ways
def test_a_summary_is_no_message_of_the_user_and_is_told_once(how):
    guard = new_guard()
    steps = [*[[("look", {"place": str(number)})] for number in range(4)], "Done."]
    summarizer = model(*["The story so far."] * 9)
    shorten = SummarizationMiddleware(summarizer, trigger=("messages", 6), keep=("messages", 2))
    run(create_agent(model(*steps), [look], middleware=[TrustfoldMiddleware(guard), shorten]), how)
    assert kinds(guard).count("context.compacted") == len(summarizer.asked) > 0
    assert kinds(guard).count("user.message") == 1


@ways
def test_an_exception_is_the_same_and_is_seen(how):
    guard = new_guard()
    agent = create_agent(model([("fail", {"place": "a"})]), [fail], middleware=[TrustfoldMiddleware(guard)])
    with pytest.raises(TimeoutError, match="no answer from a"):
        run(agent, how)
    assert endings(guard) == [("fail", "timeout")]
    assert paired(guard)


@ways
def test_a_failure_that_the_framework_hides_is_seen(how):
    guard = new_guard()
    wrong = model([("look", {"nowhere": 1}), ("invented", {})], "Done.")
    agent = create_agent(wrong, [look], middleware=[TrustfoldMiddleware(guard)])
    out = run(agent, how)
    assert [one.status for one in out["messages"] if isinstance(one, ToolMessage)] == ["error", "error"]
    assert sorted(endings(guard)) == [("invented", "error"), ("look", "error")]


def test_a_failure_that_is_only_said_in_json_is_seen():
    guard = new_guard()

    @tool
    def order() -> dict:
        """Order."""
        return {"success": False, "error": "out of stock"}

    out = run(create_agent(model([("order", {})], "Done."), [order], middleware=[TrustfoldMiddleware(guard)]), "sync")
    assert json.loads(out["messages"][2].content) == {"success": False, "error": "out of stock"}
    assert endings(guard) == [("order", "error")]


@ways
def test_a_loop_is_said_in_the_next_request_and_once(how):
    guard = new_guard()
    scripted = model(*[[("look", {"place": "a"})]] * 3, "So be it.")
    agent = create_agent(scripted, [look], middleware=[TrustfoldMiddleware(guard)])
    run(agent, how)
    heard = [sum(SAME_RESULT in one.text for one in request) for request in scripted.asked]
    assert heard == [0, 0, 0, 1]
    assert isinstance(scripted.asked[-1][-1], HumanMessage)
    assert len(events(guard, "user.message")) == 1


def test_shadow_says_nothing():
    guard = new_guard(shadow=True)
    block(guard, "look")
    scripted = model(*[[("look", {"place": "a"})]] * 3, "So be it.")
    run(create_agent(scripted, [look], middleware=[TrustfoldMiddleware(guard)]), "sync")
    assert not any(SAME_RESULT in one.text for one in scripted.asked[-1])
    assert endings(guard) == [("look", "success")] * 3


def test_the_kill_switch_leaves_the_agent_alone():
    guard = new_guard(enabled=False)
    out = run(
        create_agent(model([("look", {"place": "a"})], "Done."), [look], middleware=[TrustfoldMiddleware(guard)]),
        "sync",
    )
    assert out["messages"][2].content == "nothing at a"
    assert events(guard) == []


@ways
def test_a_blocked_tool_is_refused_with_the_reason(how):
    guard = new_guard()
    block(guard, "look")
    out = run(
        create_agent(model([("look", {"place": "a"})], "Done."), [look], middleware=[TrustfoldMiddleware(guard)]), how
    )
    assert "it deleted a table" in out["messages"][2].content
    assert "manual reset required" in out["messages"][2].content
    assert out["messages"][2].status == "error"
    assert [one for one in endings(guard) if one[1] in {"success", "timeout"}] == []


@pytest.mark.parametrize("how", ["sync", "async"])
@pytest.mark.parametrize("answer", ["approve", "reject"])
def test_approval_is_the_framework_s_own(how, answer):
    guard = new_guard()
    escalate(guard, "look")
    agent = create_agent(
        model([("look", {"place": "a"})], "Done."), [look],
        middleware=[TrustfoldMiddleware(guard)], checkpointer=InMemorySaver(),
    )  # fmt: skip
    thread = {"configurable": {"thread_id": "t1"}}
    waiting = run(agent, how, config=thread)["__interrupt__"][0]
    assert waiting.value["name"] == "look"
    assert "3/3 failures" in waiting.value["description"]
    assert "tool_call.started" not in kinds(guard)
    out = run(agent, how, Command(resume={"type": answer, "message": "not today"}), config=thread)
    if answer == "approve":
        assert out["messages"][2].content == "nothing at a"
        assert endings(guard) == [("look", "success")]
    else:
        assert "not today" in out["messages"][2].content
        assert endings(guard) == [("look", "error")]
    assert [event["granted"] for event in events(guard, "permission.resolved")] == [answer == "approve"]
    assert len(events(guard, "permission.requested")) == 1
    assert len(events(guard, "user.message")) == 1
    assert len(events(guard, "model.text")) == 2
    assert sessions(guard) == ["t1"]


def test_without_a_checkpointer_nobody_is_asked():
    guard = new_guard(unattended="deny")
    escalate(guard, "look")
    out = run(
        create_agent(model([("look", {"place": "a"})], "Done."), [look], middleware=[TrustfoldMiddleware(guard)]),
        "sync",
    )
    assert "trustfold approve" in out["messages"][2].content


def test_parallel_calls_are_approved_each_by_itself():
    guard = new_guard()
    escalate(guard, "look")
    calls = [("look", {"place": "a"}), ("look", {"place": "b"})]
    agent = create_agent(
        model(calls, "Done."), [look], middleware=[TrustfoldMiddleware(guard)], checkpointer=InMemorySaver()
    )
    thread = {"configurable": {"thread_id": "t1"}}
    waiting = run(agent, "sync", config=thread)["__interrupt__"]
    answers = {one.id: {"type": "approve" if one.value["args"]["place"] == "b" else "reject"} for one in waiting}
    out = run(agent, "sync", Command(resume=answers), config=thread)
    assert ["nothing at" in one.content for one in out["messages"][2:4]] == [False, True]
    assert paired(guard)


def test_a_tool_s_own_interrupt_passes_and_is_no_failure():
    guard = new_guard()
    agent = create_agent(
        model([("asks_itself", {"place": "a"})], "Done."), [asks_itself],
        middleware=[TrustfoldMiddleware(guard)], checkpointer=InMemorySaver(),
    )  # fmt: skip
    thread = {"configurable": {"thread_id": "t1"}}
    assert run(agent, "sync", config=thread)["__interrupt__"][0].value == "which?"
    out = run(agent, "sync", Command(resume="this"), config=thread)
    assert out["messages"][2].content == "this"
    assert endings(guard) == [("asks_itself", "cancelled"), ("asks_itself", "success")]


def test_history_is_not_told_again():
    guard = new_guard()
    agent = create_agent(
        model("Hello.", "Hello again."), [look], middleware=[TrustfoldMiddleware(guard)], checkpointer=InMemorySaver()
    )
    thread = {"configurable": {"thread_id": "t1"}}
    run(agent, "sync", "one", config=thread)
    run(agent, "async", "two", config=thread)
    assert kinds(guard) == ["session.started"] + ["user.message", "turn.started", "model.text", "turn.ended"] * 2
    history = [HumanMessage("one"), AIMessage("Hello."), HumanMessage("two")]
    guard = new_guard()
    run(create_agent(model("Hi."), [look], middleware=[TrustfoldMiddleware(guard)]), "sync", {"messages": history})
    assert kinds(guard).count("user.message") == 1


@pytest.mark.parametrize("how", ["sync", "async"])
def test_parallel_calls_are_told_each_once(how):
    guard = new_guard()
    calls = [("look", {"place": str(number)}) for number in range(8)]
    out = run(create_agent(model(calls, "Done."), [look], middleware=[TrustfoldMiddleware(guard)]), how)
    assert [one.content for one in out["messages"][2:10]] == [f"nothing at {number}" for number in range(8)]
    assert endings(guard) == [("look", "success")] * 8
    assert paired(guard)


def test_twins_of_a_reader_are_one_call_and_each_has_its_answer():
    guard = new_guard()
    guard.register("slow", read_only=True)
    made = []

    @tool
    async def slow(place: str) -> str:
        """Look slowly."""
        made.append(place)
        await asyncio.sleep(0.05)
        return "seen"

    twins = [("slow", {"place": "a"})] * 2
    out = run(create_agent(model(twins, "Done."), [slow], middleware=[TrustfoldMiddleware(guard)]), "async")
    assert made == ["a"]
    assert [(one.content, one.tool_call_id) for one in out["messages"][2:4]] == [("seen", "c0-0"), ("seen", "c0-1")]


def test_an_agent_inside_of_a_tool_has_a_session_of_its_own():
    guard = new_guard()
    inner = create_agent(model([("look", {"place": "in"})], "Inner."), [look], middleware=[TrustfoldMiddleware(guard)])

    @tool
    def delegate(task: str) -> str:
        """Delegate."""
        return inner.invoke({"messages": [HumanMessage(task)]})["messages"][-1].content

    outer = create_agent(
        model([("delegate", {"task": "x"})], "Done."), [delegate],
        middleware=[TrustfoldMiddleware(guard)], checkpointer=InMemorySaver(),
    )  # fmt: skip
    run(outer, "sync", config={"configurable": {"thread_id": "t1"}})
    of = {event["tool_name"]: event["session_id"] for event in events(guard, "tool_call.finished")}
    assert of["delegate"] == "t1"
    assert of["look"].startswith("t1/")
    assert sessions(guard) == ["t1", of["look"]]


def test_retries_inside_are_one_call():
    guard = new_guard()
    answers = iter([TimeoutError("no"), TimeoutError("no"), "yes"])

    @tool
    def flaky() -> str:
        """Try."""
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    again = ToolRetryMiddleware(max_retries=3, initial_delay=0, jitter=False)
    agent = create_agent(model([("flaky", {})], "Done."), [flaky], middleware=[TrustfoldMiddleware(guard), again])
    run(agent, "sync")
    assert endings(guard) == [("flaky", "success")]


def test_the_surrounding_session_is_the_session():
    guard = new_guard()
    agent = create_agent(model([("look", {"place": "a"})], "Done."), [look], middleware=[TrustfoldMiddleware(guard)])

    async def main():
        async with guard.session("mine"):
            await agent.ainvoke({"messages": [HumanMessage("go")]})

    asyncio.run(main())
    assert {event["session_id"] for event in events(guard)} == {"mine"}
    assert sessions(guard) == ["mine"]


def test_threads_at_the_same_time_have_sessions_of_their_own():
    guard = new_guard()
    middleware = TrustfoldMiddleware(guard)

    async def one(thread):
        agent = create_agent(
            model([("look", {"place": thread})], "Done."), [look], middleware=[middleware], checkpointer=InMemorySaver()
        )
        await agent.ainvoke({"messages": [HumanMessage("go")]}, {"configurable": {"thread_id": thread}})

    async def main():
        await asyncio.gather(*(one(f"t{number}") for number in range(5)))

    asyncio.run(main())
    assert sorted(sessions(guard)) == [f"t{number}" for number in range(5)]
    assert len(endings(guard)) == 5


def test_a_guard_that_blocks_serves_both():
    with SyncToolGuard.in_memory(workspace_id="w1") as guard:
        for how in ("sync", "async"):
            agent = create_agent(
                model([("look", {"place": how})], "Done."), [look], middleware=[TrustfoldMiddleware(guard)]
            )
            assert run(agent, how)["messages"][2].content == f"nothing at {how}"
        assert endings(guard.guard) == [("look", "success")] * 2


def test_a_pause_holds_until_the_user_speaks():
    guard = new_guard()
    middleware = TrustfoldMiddleware(guard)
    thread = {"configurable": {"thread_id": "t1"}}
    inbox = middleware._conversations.of("t1").session.inbox

    def pause(moment):
        inbox.paused, inbox.pause_reason = True, "You are going in circles."

    scripted = model(
        [("look", {"place": "a"})], [("look", {"place": "b"})], "Waiting.", [("look", {"place": "c"})], "Done."
    )
    agent = create_agent(scripted, [look], middleware=[middleware], checkpointer=InMemorySaver())
    guard.hooks.after_tool_call(pause)
    out = run(agent, "sync", config=thread)
    assert out["messages"][4].content == "trustfold: You are going in circles."
    assert len(endings(guard)) == 1
    out = run(agent, "sync", "go on", config=thread)
    assert out["messages"][-2].content == "nothing at c"


# --- the tool node ----------------------------------------------------------------------------------------------------


def graph(guard: Any, scripted: Scripted, *, checkpointer: Any = None, tools: Any = (look,)) -> Any:
    made = StateGraph(MessagesState)
    made.add_node("model", lambda state: {"messages": [scripted.invoke(state["messages"])]})
    made.add_node("tools", guarded_tool_node(list(tools), guard))
    made.add_edge(START, "model")
    made.add_conditional_edges("model", tools_condition)
    made.add_edge("tools", "model")
    return made.compile(checkpointer=checkpointer)


@ways
def test_a_node_guards_and_tells(how):
    guard = new_guard()
    scripted = model(*[[("look", {"place": "a"})]] * 3, "So be it.")
    run(graph(guard, scripted, checkpointer=InMemorySaver()), how, config={"configurable": {"thread_id": "t1"}})
    assert endings(guard) == [("look", "success")] * 3
    assert sum(SAME_RESULT in one.text for one in scripted.asked[-1]) == 1
    assert kinds(guard)[:4] == ["session.started", "user.message", "turn.started", "model.text"]
    assert len(events(guard, "user.message")) == 1
    assert sessions(guard) == ["t1"]


@pytest.mark.parametrize("how", ["sync", "async"])
def test_a_node_asks_for_approval(how):
    guard = new_guard()
    escalate(guard, "look")
    agent = graph(guard, model([("look", {"place": "a"})], "Done."), checkpointer=InMemorySaver())
    thread = {"configurable": {"thread_id": "t1"}}
    assert run(agent, how, config=thread)["__interrupt__"]
    out = run(agent, how, Command(resume={"type": "approve"}), config=thread)
    assert out["messages"][2].content == "nothing at a"
    assert endings(guard) == [("look", "success")]


def test_an_approval_in_a_node_of_several_calls_must_name_its_call():
    guard = new_guard()
    escalate(guard, "look")
    calls = [("look", {"place": "a"}), ("look", {"place": "b"})]
    agent = graph(guard, model(calls, "Done."), checkpointer=InMemorySaver())
    thread = {"configurable": {"thread_id": "t1"}}
    assert run(agent, "sync", config=thread)["__interrupt__"]
    answer: Any = {"c0-1": {"type": "approve"}, "c0-0": {"type": "reject"}}
    out = run(agent, "sync", Command(resume=answer), config=thread)
    for _ in range(2):
        if "__interrupt__" in out:
            out = run(agent, "sync", Command(resume=answer), config=thread)
    assert ["nothing at" in one.content for one in out["messages"][2:4]] == [False, True]

    guard = new_guard()
    escalate(guard, "look")
    agent = graph(guard, model(calls, "Done."), checkpointer=InMemorySaver())
    run(agent, "sync", config=thread)
    out = run(agent, "sync", Command(resume={"type": "approve"}), config=thread)
    if "__interrupt__" in out:
        out = run(agent, "sync", Command(resume={"type": "approve"}), config=thread)
    assert not any("nothing at" in one.content for one in out["messages"][2:4])


def test_the_examples_of_the_documentation():
    check_examples("LangChain and LangGraph")
