"""What the adapters of frameworks have in common, without any framework."""

import ast
import asyncio
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from trustfold.guard import SyncToolGuard, ToolGuard
from trustfold.guard.testing import guard_for_tests, published, set_state
from trustfold.integrations import conversation as module
from trustfold.integrations.conversation import ConversationIndex

FRAMEWORKS = {
    "agents",
    "claude_agent_sdk",
    "crewai",
    "google",
    "langchain",
    "langchain_core",
    "langgraph",
    "pydantic_ai",
    "strands",
}
FOLDER = Path(module.__file__).parent


def test_no_framework_is_imported_unless_its_adapter_is():
    """Not even by the core of the adapters."""
    program = f"""
import sys
import trustfold.integrations, trustfold.integrations.conversation
loaded = {{name.partition(".")[0] for name in sys.modules}}
assert not loaded & {FRAMEWORKS!r}, loaded & {FRAMEWORKS!r}
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_only_adapters_import_a_framework_and_each_only_its_own():
    """Every other module of the package knows none."""
    found = {}
    for path in FOLDER.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.level == 0:
                names = [node.module]
            for name in names:
                if (root := name.partition(".")[0]) in FRAMEWORKS:
                    found.setdefault(path.stem, set()).add(root)
    assert found["langchain"] == {"langchain", "langchain_core", "langgraph"}
    assert all(len(roots) == 1 for stem, roots in found.items() if stem != "langchain")


def kinds(guard):
    """Types of all published events."""
    return [event["type"] for event in published(guard)]


def test_a_message_with_an_id_is_told_once():
    """A framework that comes to it again tells nothing new."""
    guard = guard_for_tests()
    conversation = ConversationIndex(guard).of("s")
    for _ in range(2):
        conversation.prompted("go", "m1")
        conversation.said("I look.", model="m", message_id="m2")
    conversation.turn_over()
    conversation.turn_over()
    assert kinds(guard) == ["session.started", "user.message", "turn.started", "model.text", "turn.ended"]


def test_the_calls_of_a_message_are_one_step():
    """By the ids that the message names, or by an id that the adapter gives; other calls are in none."""
    guard = guard_for_tests()
    conversation = ConversationIndex(guard).of("s")
    conversation.said("", calls=["c1", "c2"])
    first = conversation.message_id
    conversation.said("I look.", message_id="m2", calls=["c3"])
    for call_id in ("c1", "c2", "c3", "c4"):
        conversation.call_blocking("look", lambda **_: 1, {}, call_id=call_id)
    conversation.call_blocking("look", lambda **_: 1, {}, message_id="mine")
    conversation.rejected("look", "not an object", "arguments must be an object", "c3")
    steps = [event.get("message_id") for event in published(guard, "tool_call.started")]
    assert steps == [first, first, "m2", None, "mine", "m2"]
    assert [event["status"] for event in published(guard, "tool_call.finished")][-1] == "rejected"


def test_what_is_forgotten_is_bounded(monkeypatch):
    """The calls requested first are forgotten first."""
    monkeypatch.setattr(module, "MAX_TOLD", 2)
    guard = guard_for_tests()
    conversation = ConversationIndex(guard).of("s")
    conversation.said("", calls=["c1", "c2", "c3"])
    for call_id in ("c1", "c3"):
        conversation.call_blocking("look", lambda **_: 1, {}, call_id=call_id)
    assert ["message_id" in event for event in published(guard, "tool_call.started")] == [False, True]


def test_a_shortened_history_is_told_by_its_summary_or_its_length():
    """A summary once, and each request with fewer messages than the one before."""
    guard = guard_for_tests()
    conversation = ConversationIndex(guard).of("s")
    conversation.compacted("summary-1")
    conversation.compacted("summary-1")
    assert kinds(guard) == ["session.started", "context.compacted"]
    for messages in (1, 3, 5, 2, 2, 4):
        conversation.requested(messages)
    assert kinds(guard) == ["session.started", "context.compacted", "context.compacted"]


def test_the_prompt_of_an_inner_agent_is_its_caller_s():
    """No person has spoken to it."""
    guard = guard_for_tests()
    conversations = ConversationIndex(guard)

    def delegate(**_):
        conversations.of(conversations.name_for()).prompted("find it")

    conversations.of("outer").call_blocking("delegate", delegate, {}, call_id="c1")
    assert [event["source"] for event in published(guard, "input.received")] == ["agent"]
    assert published(guard, "user.message") == []


def test_a_run_that_ended_without_a_word_is_closed_by_the_next():
    """It was interrupted, or it has raised."""
    guard = guard_for_tests()
    conversation = ConversationIndex(guard).of("s")
    conversation.prompted("one")
    conversation.prompted("two")
    turn = ["user.message", "turn.started"]
    assert kinds(guard) == ["session.started", *turn, "turn.ended", *turn]


def test_silence_of_a_framework_is_no_stalled_turn():
    """Nobody says when a run was broken off."""
    guard = guard_for_tests()
    conversation = ConversationIndex(guard).of("s")
    conversation.prompted("go")
    guard.clock.move(3600)
    guard.memory.tick()
    assert conversation.nudges() == ""


def test_the_surrounding_session_wins_and_an_inner_agent_has_its_own():
    """In coroutines and in threads that wait."""
    guard = guard_for_tests()
    conversations = ConversationIndex(guard)
    names = []

    async def main():
        async with guard.session("mine"):
            outer = conversations.of(conversations.name_for("thread"))
            assert outer.session.session_id == "mine"

            async def tool(**_):
                names.append(conversations.name_for("thread"))

            await outer.call("delegate", tool, {}, call_id="c1")
            outer.call_blocking(
                "delegate", lambda **_: names.append(conversations.name_for("thread")), {}, call_id="c2"
            )

    asyncio.run(main())
    assert names == ["mine/c1", "mine/c2"]
    assert conversations.name_for("thread") == "thread"
    assert conversations.name_for() != conversations.name_for()


def test_many_conversations_are_ended_oldest_first(monkeypatch):
    """The one unused longest goes."""
    monkeypatch.setattr(module, "MAX_CONVERSATIONS", 2)
    guard = guard_for_tests()
    conversations = ConversationIndex(guard)
    for name in ("a", "b", "a", "c"):
        conversations.of(name)
    assert [event["session_id"] for event in published(guard, "session.ended")] == ["b"]


def test_threads_meet_one_conversation():
    """Its session begins once."""
    conversations = ConversationIndex(guard_for_tests())
    met = []
    threads = [threading.Thread(target=lambda: met.append(conversations.of("s"))) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({id(one) for one in met}) == 1


def test_a_declined_call_stays_declined_until_the_model_speaks_again():
    """Models may use the id of a call again."""
    conversation = ConversationIndex(guard_for_tests()).of("s")
    conversation.said("", message_id="m1")
    conversation.decline("c1", "rm", "not today")
    conversation.said("", message_id="m1")
    assert "not today" in conversation.declined("c1")
    conversation.said("", message_id="m2")
    assert conversation.declined("c1") == ""


async def test_a_refusal_forbids_the_detour_unless_the_service_is_down():
    """What a person or a rule refused is not to be done by another call; while a service is down, it may be."""
    guard = guard_for_tests()
    set_state(guard, "trust", "rm", state="blocked", scope="workspace")
    set_state(guard, "breaker", "tool:fetch", state="open", open_until="2999-01-01T00:00:00Z")
    conversation = ConversationIndex(guard).of("s")
    conversation.decline("c1", "mail")
    refused = [await conversation.call(name, lambda **_: 1, {}) for name in ("rm", "fetch")]
    texts = [conversation.declined("c1"), *map(conversation.refusal, refused)]
    assert all(text.startswith("trustfold: ") for text in texts)
    assert [text.count("Do not try to reach the same goal another way") for text in texts] == [1, 1, 0]
    assert "use another tool or try again later." in texts[2]


def test_shadow_asks_and_says_nothing():
    """What would have been said is in the events."""
    guard = guard_for_tests(shadow=True)
    set_state(guard, "trust", "rm", state="escalated", scope="workspace")
    conversation = ConversationIndex(guard).of("s")
    conversation.session.inbox.paused = True
    assert (conversation.question("rm", {}), conversation.pause(), conversation.nudges()) == ("", "", "")


@pytest.mark.parametrize("kind", [ToolGuard, SyncToolGuard])
def test_calls_from_a_foreign_loop_run_their_tool_on_it(kind):
    """The guard's own work is done on the loop it lives on."""
    home = asyncio.new_event_loop()
    thread = threading.Thread(target=home.run_forever)
    thread.start()
    guard = SyncToolGuard.in_memory() if kind is SyncToolGuard else ToolGuard.in_memory()
    if kind is ToolGuard:
        guard.home = home
    try:
        conversation = ConversationIndex(guard).of("s")

        async def tool(**args):
            await asyncio.sleep(0)
            return asyncio.get_running_loop(), args

        async def main():
            result = await conversation.call("t", tool, {"a": 1})
            assert result.output == (asyncio.get_running_loop(), {"a": 1})

        asyncio.run(main())
        assert conversation.call_blocking("t", threading.get_ident.__call__, {}).output == threading.get_ident()
    finally:
        home.call_soon_threadsafe(home.stop)
        thread.join()
        home.close()
        if kind is SyncToolGuard:
            guard.close()


def test_a_call_from_a_foreign_loop_can_be_cancelled():
    """The tool is cancelled, and the call ends."""
    with SyncToolGuard.in_memory() as guard:
        conversation = ConversationIndex(guard).of("s")
        ended = []

        async def tool(**_):
            try:
                await asyncio.sleep(60)
            finally:
                ended.append(True)

        async def main():
            task = asyncio.create_task(conversation.call("t", tool, {}))
            await asyncio.sleep(0.05)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            for _ in range(100):
                if ended and published(guard.guard, "tool_call.finished"):
                    break
                await asyncio.sleep(0.02)

        asyncio.run(main())
        assert ended
        assert [event["status"] for event in published(guard.guard, "tool_call.finished")] == ["cancelled"]


async def test_a_registered_tool_states_the_workspace_after_its_calls():
    """Also where an adapter makes them: of a shell that can change files, the state of the project is evidence."""
    states = iter(["w1:a", "w1:b"])
    guard = guard_for_tests()
    guard.register("bash", workspace_digest=lambda: next(states))
    conversation = ConversationIndex(guard).of("s")
    for _ in range(2):
        await conversation.call("bash", lambda **_: "1 failed", {"command": "make"})
    ended = [event for event in published(guard) if event["type"] == "tool_call.finished"]
    assert [event["workspace_digest"] for event in ended] == ["w1:a", "w1:b"]
