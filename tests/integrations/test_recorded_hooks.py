"""What every agent really sent, hook by hook: the events that follow, and the answers that may carry something."""

from __future__ import annotations

import json
from typing import Any

import orjson
import pytest
from hook_kit import Conversation, recorded
from trustfold.ingest.hooks import DIALECTS, HookAnswer
from trustfold.ingest.hooks.dialect import CallBegan
from trustfold.integrations.hook_session import HookVerdict
from trustfold.projections.local_topology import LocalTopology
from trustfold.rules.rules import RuleSet

AGENTS = sorted(DIALECTS)
WITH_TEXTS = {"claude", "qwen", "opencode"}
"""Those that tell each message; of the others only the last one of a turn is known, or none."""

LAST_WORDS = "All done, the file does not exist."


def log(_path: str) -> bytes:
    """The end of the agent's own log of the recorded session, as Codex and Qwen Code write it."""
    ends = [
        {"type": "CommandExecution", "id": f"call_{number}", "exit_code": code, "status": status}
        for number, (code, status) in enumerate([(1, "failed"), (1, "failed"), (0, "completed")])
    ]
    lines: list[Any] = [{"type": "event_msg", "payload": {"type": "item_completed", "item": end}} for end in ends]
    prompt = {"role": "user", "parts": [{"text": "run three steps"}]}
    lines.append({"uuid": "u0", "type": "user", "message": prompt})
    for number in range(3):
        parts = [{"text": f"I will run step {number}."}, {"functionCall": {"id": f"call_{number}"}}]
        lines.append({"uuid": f"m{number}", "type": "assistant", "message": {"role": "model", "parts": parts}})
    return b"half a line\n" + b"\n".join(map(orjson.dumps, lines))


def played(agent: str) -> Conversation:
    """The whole recorded session."""
    conversation = Conversation(agent, log)
    for event, payload in recorded(agent):
        assert conversation.hook(payload, event) == {}, "nothing is known, so nothing is said"
    return conversation


@pytest.mark.parametrize("agent", AGENTS)
def test_two_failures_and_a_success(agent: str) -> None:
    """A command that fails twice and another that works are three whole calls, in one turn of one session."""
    told = played(agent).told("status")
    calls = [one for one in told if one[0].startswith("tool_call")]
    assert [status for kind, status in calls if kind == "tool_call.finished"] == ["error", "error", "success"]
    assert [kind for kind, _ in calls] == ["tool_call.started", "tool_call.finished"] * 3
    kinds = [kind for kind, _ in told]
    assert kinds[:3] == ["session.started", "user.message", "turn.started"]
    assert kinds.count("user.message") == kinds.count("turn.started") == kinds.count("turn.ended") == 1
    assert kinds[-1] == ("turn.ended" if agent in {"qwen", "opencode"} else "session.ended")


@pytest.mark.parametrize("agent", AGENTS)
def test_the_length_of_the_prompt_is_told(agent: str) -> None:
    """Without its text."""
    [prompt] = [event for event in played(agent).events if event["type"] == "user.message"]
    assert prompt["words"] == 3
    assert "text" not in prompt


@pytest.mark.parametrize("agent", AGENTS)
def test_each_call_has_its_command_and_its_pair(agent: str) -> None:
    """Start and finish share an id, which no other call has; the arguments are the model's."""
    events = played(agent).events
    starts = [event for event in events if event["type"] == "tool_call.started"]
    ends = [event for event in events if event["type"] == "tool_call.finished"]
    assert [event["args"]["command"] for event in starts] == ["cat missing.txt", "cat missing.txt", "echo fine"]
    assert [event["call_id"] for event in starts] == [event["call_id"] for event in ends]
    assert len({event["call_id"] for event in starts}) == 3
    assert all("No such file" in event["error"]["message"] for event in ends[:2])


@pytest.mark.parametrize("agent", AGENTS)
def test_the_same_failure_twice_is_the_same(agent: str) -> None:
    """Numbers that an agent's client writes behind the output, of processes or shells, set no two failures apart."""
    first, second, _ = (event for event in played(agent).events if event["type"] == "tool_call.finished")
    assert (first["error"], first.get("result")) == (second["error"], second.get("result"))


@pytest.mark.parametrize("agent", AGENTS)
def test_what_the_model_said_is_told_once(agent: str) -> None:
    """Each message is one event, also where the agent tells its last one again at the end of the turn."""
    texts = [event["text"] for event in played(agent).events if event["type"] == "model.text"]
    steps = ["I will run step 0.", "I will run step 1.", "I will run step 2.", LAST_WORDS]
    if agent in WITH_TEXTS:
        assert texts == steps
    elif agent == "gemini":
        assert texts == ["\n".join(steps)]
    else:
        assert texts == ([] if agent == "copilot" else [LAST_WORDS])


@pytest.mark.parametrize("agent", AGENTS)
def test_the_folds_take_every_event(agent: str) -> None:
    """No event becomes a dead letter, and times never run backwards within a call."""
    events = played(agent).events
    outputs = LocalTopology(RuleSet()).feed("events", [json.dumps(event).encode() for event in events])
    assert [out.value for out in outputs if out.topic == "dead-letters"] == []
    assert {event["session_id"] for event in events} == {events[0]["session_id"]}
    assert {(event["workspace_id"], event["user_id"]) for event in events} == {("shop", "ada")}
    assert len({event["id"] for event in events}) == len(events)


FREE = HookVerdict()
REFUSED = HookVerdict(refusal="tool 'x' is blocked")
ASKED = HookVerdict(question="tool 'x' is escalated")

DENIED: dict[str, Any] = {
    "claude": ("deny", "permissionDecision"),
    "codex": ("deny", "permissionDecision"),
    "qwen": ("deny", "permissionDecision"),
    "gemini": ("deny", "decision"),
    "copilot": ("deny", "permissionDecision"),
    "cursor": ("deny", "permission"),
}


@pytest.mark.parametrize("agent", AGENTS)
@pytest.mark.parametrize(("verdict", "word"), [(REFUSED, "blocked"), (ASKED, "escalated")])
def test_a_refusal_and_a_question(agent: str, verdict: HookVerdict, word: str) -> None:
    """A call that may not be made is denied with its reason; a question is asked by those that can ask."""
    conversation = Conversation(agent, log)
    answers = [
        answer
        for event, payload in recorded(agent)
        if (answer := conversation.hook(payload, event, lambda _call: verdict))
    ]
    assert len(answers) == 3
    assert all(word in json.dumps(answer) for answer in answers)
    asks = verdict is ASKED and conversation.dialect.can_ask
    assert conversation.dialect.can_ask == (agent not in {"codex", "gemini", "opencode", "cursor"})
    if agent == "opencode":
        assert all(list(answer) == ["refusal"] for answer in answers)
    else:
        wanted, name = DENIED[agent]
        own = answers[0].get("hookSpecificOutput", answers[0])
        assert own[name] == ("ask" if asks else wanted)
    if not asks:
        ends = [event["error"]["type"] for event in conversation.events if event["type"] == "tool_call.finished"]
        assert ends == ["blocked_by_guard"] * 3
        outputs = LocalTopology(RuleSet()).feed("events", [json.dumps(event).encode() for event in conversation.events])
        assert {output.topic for output in outputs} & {"escalations", "nudges", "dead-letters"} == set()


@pytest.mark.parametrize("agent", AGENTS)
def test_an_answer_without_words_is_empty(agent: str) -> None:
    """Nothing to say is no field at all: an agent's own permissions and prompts go on as without hooks."""
    assert DIALECTS[agent].write("PreToolUse", HookAnswer()) == {}


@pytest.mark.parametrize("agent", AGENTS)
def test_an_unclear_payload_is_no_hook_or_tells_nothing(agent: str) -> None:
    """Payloads without a session are passed over, unknown events tell nothing, odd fields harm nothing."""
    dialect = DIALECTS[agent]
    assert dialect.read({}, "", log) is None
    for event, payload in recorded(agent):
        for name in payload:
            for odd in (None, [], {}, 7, True, "x" * 100_000, [[]], {"a": {"b": []}}):
                Conversation(agent, log).hook(payload | {name: odd}, event)
        hook = dialect.read(payload | {"hook_event_name": "SomethingNew"}, "somethingNew", log)
        assert hook is None or not any(isinstance(one, CallBegan) for one in hook.happened)
