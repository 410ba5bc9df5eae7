"""A conversation between its hooks: calls held until they end, who is blamed, subagents, pauses, nudges."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

import orjson
import pytest
from hook_kit import START_MS, STEP_MS, Conversation
from trustfold.integrations.hook_session import HookVerdict
from trustfold.projections.local_topology import LocalTopology
from trustfold.rules.rules import RuleSet
from trustfold.schemas.codec import decode_decision
from trustfold.schemas.decisions import NudgeIssued, PatternDetected
from trustfold.schemas.event_base import epoch_ms

PATTERN = {"pattern": "repetitive_calls", "severity": "minor"}


def base(event: str, **fields: Any) -> dict[str, Any]:
    """A payload of Claude Code."""
    return {"hook_event_name": event, "session_id": "s", "cwd": "/home/ada/shop", **fields}


def bash(event: str, number: int = 0, command: str = "make", **fields: Any) -> dict[str, Any]:
    """The same about a call."""
    return base(event, tool_name="Bash", tool_input={"command": command}, tool_use_id=f"t{number}", **fields)


def gemini(event: str, command: str = "make", **fields: Any) -> dict[str, Any]:
    """A payload of Gemini CLI about a call."""
    return base(event, tool_name="run_shell_command", tool_input={"command": command}, **fields)


def decision(**own: Any) -> Any:
    """A decision as the folds make it."""
    fields = {"schema_version": "1.0", "time": "2026-11-22T00:00:00.000Z", "session_id": "s", "caused_by": ["e"]}
    return decode_decision(json.dumps(fields | own).encode())


def nudge(message: str, lane: str = "context_hint", **own: Any) -> NudgeIssued:
    """A nudge."""
    fields = {"type": "nudge.issued", "id": "n", "nudge_type": "gentle", "message": message, "lane": lane}
    decoded = decision(**fields | PATTERN | {"pattern_id": "p"} | own)
    assert isinstance(decoded, NudgeIssued)
    return decoded


def detected(message: str, **own: Any) -> PatternDetected:
    """A pattern of which a person is told."""
    fields = {"type": "pattern.detected", "id": "p", "repetitions": 3, "tool_sequence": [], "fingerprint": "f"}
    decoded = decision(**fields | PATTERN | {"duration_ms": 0, "notify_user": True, "message": message} | own)
    assert isinstance(decoded, PatternDetected)
    return decoded


def time_of(event: dict[str, Any]) -> int:
    """When an event happened, milliseconds since the epoch."""
    return epoch_ms(datetime.fromisoformat(event["time"]))


@pytest.fixture
def claude() -> Conversation:
    """A conversation whose user has spoken."""
    conversation = Conversation("claude")
    conversation.hook(base("UserPromptSubmit", prompt="go"))
    return conversation


def test_a_call_begins_when_it_may_be_made(claude: Conversation) -> None:
    """Its start is told at once; its duration is the tool's, without the time that a person thought about it."""
    claude.hook(bash("PreToolUse"))
    assert claude.told()[-1] == ("tool_call.started",)
    claude.now_ms += 3_600_000
    claude.hook(bash("PostToolUse", tool_response={"stdout": "ok"}, duration_ms=40))
    assert claude.told("duration_ms")[-2:] == [("tool_call.started", None), ("tool_call.finished", 40)]


@pytest.mark.parametrize(("asked", "calls", "wanted"), [(False, 1, 3 * STEP_MS), (True, 1, None), (False, 2, None)])
def test_a_call_that_the_agent_does_not_time(asked: bool, calls: int, wanted: int | None) -> None:
    """Its time is that between its hooks, unless a person was asked, or other calls of the message had to end, too."""
    conversation = Conversation("claude")
    conversation.hook(bash("PreToolUse"))
    conversation.now_ms += STEP_MS
    conversation.hook(bash("PermissionRequest" if asked else "Notification"))
    batch = [bash("", number, tool_response="ok") for number in range(calls)]
    conversation.hook(base("PostToolBatch", tool_calls=batch))
    ended = [one for one in conversation.told("status", "duration_ms") if one[0] == "tool_call.finished"]
    assert ended[0] == ("tool_call.finished", "success", wanted)


def test_calls_side_by_side_are_no_loop(claude: Conversation) -> None:
    """Four equal calls of one message are one step."""
    for number in range(4):
        claude.hook(bash("PreToolUse", number))
    for number in range(4):
        claude.hook(bash("PostToolUse", number, tool_response={"stdout": "ok"}))
    outputs = LocalTopology(RuleSet()).feed("events", [json.dumps(event).encode() for event in claude.events])
    assert [output for output in outputs if output.topic == "nudges"] == []


def test_only_the_end_of_a_message_tells_what_the_client_rejected(claude: Conversation) -> None:
    """Claude Code reports nothing else of a call that it rejects itself; what a hook told before is not told again."""
    claude.hook(bash("PreToolUse", 0))
    claude.hook(bash("PostToolUse", 0, tool_response={"stdout": "ok"}))
    claude.hook(
        base(
            "PostToolBatch",
            tool_calls=[
                {
                    "tool_name": name,
                    "tool_input": {"file_path": "a"},
                    "tool_use_id": f"t{number}",
                    "tool_response": text,
                }
                for number, (name, text) in enumerate(
                    [
                        ("Bash", "ok"),
                        ("Edit", "<tool_use_error>String to replace not found in file.</tool_use_error>"),
                        ("Edit", "<tool_use_error>File has not been read yet.</tool_use_error>"),
                        ("Write", "Claude requested permissions to write to a, but you haven't granted it yet."),
                        ("Read", "1\ta"),
                    ]
                )
            ],
        )
    )
    ends = [event for event in claude.events if event["type"] == "tool_call.finished"]
    assert [(one["tool_name"], one["status"], (one.get("error") or {}).get("type")) for one in ends] == [
        ("Bash", "success", None),
        ("Edit", "error", "tool_error"),
        ("Edit", "rejected", "tool_error"),
        ("Write", "error", "user_rejected"),
        ("Read", "success", None),
    ]


def test_codex_reads_in_its_log_how_a_patch_ended() -> None:
    """There is no hook after `apply_patch`: the next one finds its end, and older calls of the log are not told."""
    log = b"".join(
        orjson.dumps({"type": "response_item", "payload": payload}) + b"\n"
        for payload in (
            {"type": "function_call_output", "call_id": "t8", "output": "of an earlier server"},
            {"type": "custom_tool_call", "call_id": "t0", "name": "apply_patch", "input": "*** Begin Patch"},
            {"type": "custom_tool_call_output", "call_id": "t0", "output": "Exit code: 0\nOutput:\nSuccess."},
            {"type": "function_call", "call_id": "t1", "name": "exec_command", "arguments": "{}"},
            {"type": "function_call", "call_id": "t2", "name": "exec_command", "arguments": "{}"},
        )
    )
    conversation = Conversation("codex", lambda _path: log)
    conversation.hook(bash("PreToolUse", 0, transcript_path="r.jsonl"))
    for number in (2, 1):
        conversation.hook(bash("PreToolUse", number, transcript_path="r.jsonl"))
    told = [one for one in conversation.told("call_id", "status", "message_id") if one[0].startswith("tool_call")]
    assert told == [
        ("tool_call.started", "t0", None, "t0"),
        ("tool_call.finished", "t0", "success", None),
        ("tool_call.started", "t2", None, "t1"),
        ("tool_call.started", "t1", None, "t1"),
    ]


def test_a_long_call_or_a_person_who_thinks_is_no_stall(claude: Conversation) -> None:
    """Between two hooks a command runs, or a person is asked, for as long as it takes: nobody is nudged or paused."""
    claude.hook(bash("PreToolUse"))
    topology = LocalTopology(RuleSet())
    topology.feed("events", [json.dumps(event).encode() for event in claude.events])
    claude.now_ms += 3_600_000
    outputs = topology.tick(claude.now_ms)
    claude.events.clear()
    claude.hook(bash("PostToolUse", tool_response={"stdout": "ok"}))
    outputs += topology.feed("events", [json.dumps(event).encode() for event in claude.events])
    assert [output.type for output in outputs if output.topic in {"patterns", "nudges"}] == []


@pytest.mark.parametrize(
    "ending",
    [
        base("UserPromptSubmit", prompt="no, something else"),
        base("Stop", last_assistant_message="I was not allowed."),
        base("SessionEnd", reason="other"),
        base("PostToolBatch", tool_calls=[{"tool_name": "Bash", "tool_use_id": "t0"}]),
    ],
    ids=lambda payload: payload["hook_event_name"],
)
def test_a_call_that_nobody_allowed_was_cancelled(claude: Conversation, ending: dict[str, Any]) -> None:
    """A denied prompt brings no end of the call; it is closed as cancelled, and never as a timeout of the tool."""
    claude.hook(bash("PreToolUse"))
    claude.hook(ending)
    finished = [event for event in claude.events if event["type"] == "tool_call.finished"]
    assert [event["status"] for event in finished] == ["cancelled"]


def test_an_end_without_a_start_is_a_whole_call(claude: Conversation) -> None:
    """A server that was started in the middle of a call sees it end; the end told twice counts once."""
    claude.hook(bash("PostToolUse", tool_response={"stdout": "ok"}))
    claude.hook(bash("PostToolUse", tool_response={"stdout": "ok"}))
    assert [kind for (kind,) in claude.told()].count("tool_call.finished") == 1


def test_prompts_that_no_person_wrote(claude: Conversation) -> None:
    """A prompt of the client's own ends no streak: neither a reminder nor a wake-up."""
    for more in ({"source": "schedule_wakeup"}, {"prompt": "<task-notification>done</task-notification>"}):
        claude.hook(base("UserPromptSubmit") | {"prompt": "look again"} | more)
    assert [kind for (kind,) in claude.told()].count("user.message") == 1


def test_a_call_that_the_client_refused_never_ran(claude: Conversation) -> None:
    """A file that was not read first is nothing that the tool does wrong."""
    claude.hook(bash("PreToolUse"))
    claude.hook(bash("PostToolUseFailure", error="File has not been read yet. Read it first before writing to it."))
    assert claude.events[-1]["status"] == "rejected"


def test_who_spoke_is_told(claude: Conversation) -> None:
    """The user with the number of words; work in the background, other agents, timers and the client by their kind."""
    claude.hook(base("Stop"))
    for more in (
        {"prompt": "<task-notification>the build has ended</task-notification>"},
        {"prompt": '<teammate-message teammate_id="a">done</teammate-message>'},
        {"prompt": "look again", "source": "schedule_wakeup"},
        {"prompt": "look again", "source": "system"},
        {"prompt": "<system-reminder>mind the style</system-reminder>Now fix the tests, please"},
        {"prompt": "", "source": "system"},
    ):
        claude.hook(base("UserPromptSubmit") | more)
    told = [one for one in claude.told("source", "words") if one[0] in {"user.message", "input.received"}]
    assert told == [
        ("user.message", None, 1),
        ("input.received", "report", None),
        ("input.received", "agent", None),
        ("input.received", "timer", None),
        ("input.received", "client", None),
        ("user.message", None, 5),
        ("input.received", "client", None),
    ]
    kinds = [kind for (kind,) in claude.told()]
    assert kinds.count("turn.started") == 3, "a report wakes a resting model; the next inputs come into its turn"


@pytest.mark.parametrize(
    ("agent", "event", "payload"),
    [
        ("claude", "", base("PostCompact", trigger="auto")),
        ("codex", "", base("SessionStart", source="compact")),
        ("qwen", "", base("SessionStart", source="compact")),
        ("gemini", "", base("PreCompress", trigger="manual")),
        ("copilot", "preCompact", {"sessionId": "s", "trigger": "auto"}),
        ("cursor", "", base("preCompact", trigger="auto")),
        ("opencode", "", {"hook_event_name": "event:session.compacted", "input": {"sessionID": "s"}}),
    ],
)
def test_a_shortened_context_is_told(agent: str, event: str, payload: dict[str, Any]) -> None:
    """In each agent's own words; a session that begins has forgotten nothing."""
    conversation = Conversation(agent)
    conversation.hook(base("SessionStart", source="startup"))
    conversation.hook(payload, event)
    assert [kind for (kind,) in conversation.told()] == ["session.started", "context.compacted"]


def test_a_shortened_context_is_no_agent_of_its_own(claude: Conversation) -> None:
    """Claude Code reports the end of an agent without a kind: its own, that has written the summary."""
    claude.hook(base("SubagentStop", agent_id="a1", agent_type="", last_assistant_message="They looked around."))
    claude.hook(base("PostCompact", trigger="manual"))
    assert claude.told()[-2:] == [("turn.started",), ("context.compacted",)]


def test_what_gemini_says_before_every_request_is_no_shortened_context() -> None:
    """It fires the hook whenever it looks whether the context is too long, which it hardly ever is."""
    conversation = Conversation("gemini")
    conversation.hook(base("BeforeAgent", prompt="look"))
    conversation.hook(base("PreCompress", trigger="auto"))
    assert "context.compacted" not in [kind for (kind,) in conversation.told()]


def test_a_batch_of_calls_is_one_step(claude: Conversation) -> None:
    """Once the agent tells the ends of batches; what comes after text or a prompt is another step."""

    def batch(*numbers: int) -> list[Any]:
        before = len(claude.events)
        for number in numbers:
            claude.hook(bash("PreToolUse", number))
        for number in numbers:
            claude.hook(bash("PostToolUse", number, tool_response={"stdout": "ok"}))
        claude.hook(base("PostToolBatch", tool_calls=[{"tool_use_id": f"t{number}"} for number in numbers]))
        return [one.get("message_id") for one in claude.events[before:] if one["type"] == "tool_call.started"]

    batch(0)
    first, second = batch(1, 2), batch(3)
    assert len({*first, *second}) == 2
    claude.hook(bash("PreToolUse", 4))  # interrupted: no end of the batch is told
    claude.hook(base("UserPromptSubmit", prompt="no"))
    fifth = batch(5)
    [fourth] = [one["message_id"] for one in claude.events if one.get("call_id") == "t4" and "message_id" in one]
    assert len({*first, *second, fourth, *fifth}) == 4
    assert None not in {*first, *second, fourth, *fifth}


def test_agents_that_tell_no_batches_tell_no_steps() -> None:
    """Calls that are not known to be of one message must not be taken for one step."""
    conversation = Conversation("codex")
    conversation.hook(base("UserPromptSubmit", prompt="go"))
    for number in range(3):
        conversation.hook(bash("PreToolUse", number))
        conversation.hook(bash("PostToolUse", number, tool_response="ok"))
    assert not any("message_id" in one for one in conversation.events)


def test_pieces_of_a_message_are_one_message(claude: Conversation) -> None:
    """A message that is displayed in pieces, with another one between, is told whole at its end."""
    for message, delta, final in (("a", "I will ", False), ("b", "Other.", True), ("a", "look.", True)):
        claude.hook(base("MessageDisplay", message_id=message, delta=delta, final=final))
    assert [event["text"] for event in claude.events if event["type"] == "model.text"] == ["Other.", "I will look."]


def test_a_subagent_is_a_session_of_its_own(claude: Conversation) -> None:
    """Calls of a subagent between those of the main one belong to another session."""
    claude.hook(bash("PreToolUse", 0))
    claude.hook(bash("PreToolUse", 1, agent_id="a1"))
    claude.hook(bash("PostToolUse", 1, agent_id="a1", tool_response={}))
    claude.hook(bash("PostToolUse", 0, tool_response={}))
    claude.hook(base("SubagentStop", agent_id="a1"))
    ends = [(event["session_id"], event["call_id"]) for event in claude.events if event["type"] == "tool_call.finished"]
    assert ends == [("s/a1", "t1"), ("s", "t0")]
    assert claude.told("session_id")[-1] == ("session.ended", "s/a1")


def test_calls_without_ids_are_paired_in_order() -> None:
    """Equal calls under way at once are paired first come, first served; another one is not touched."""
    conversation = Conversation("gemini")
    for command in ("make", "make", "ls"):
        conversation.hook(gemini("BeforeTool", command))
    conversation.hook(gemini("AfterTool", "ls", tool_response={"llmContent": "Output: a"}))
    for code in (1, 2):
        text = f"Output: no\nExit Code: {code}\nProcess Group PGID: 7"
        conversation.hook(gemini("AfterTool", "make", tool_response={"llmContent": text}))
    told = [one for one in conversation.told("call_id", "status") if one[0] == "tool_call.finished"]
    assert [one[1:] for one in told] == [("call-3", "success"), ("call-1", "error"), ("call-2", "error")]


def test_a_question_that_nobody_could_answer_is_no_success(claude: Conversation) -> None:
    """Without a person Claude Code tells the model the question as the result: the call was not made."""
    asked = claude.hook(bash("PreToolUse"), check=lambda _call: HookVerdict(question="`make` is escalated"))
    question = asked["hookSpecificOutput"]["permissionDecisionReason"]
    call = {"tool_name": "Bash", "tool_input": {"command": "make"}, "tool_use_id": "t0"}
    claude.hook(base("PostToolBatch", tool_calls=[call | {"tool_response": question}]))
    ends = [event for event in claude.events if event["type"] == "tool_call.finished"]
    assert [(one["status"], one["error"]["type"]) for one in ends] == [("error", "user_rejected")]


def test_an_approved_call_ends_as_its_result_says(claude: Conversation) -> None:
    """A question alone refuses nothing."""
    claude.hook(bash("PreToolUse"), check=lambda _call: HookVerdict(question="`make` is escalated"))
    call = {"tool_name": "Bash", "tool_input": {"command": "make"}, "tool_use_id": "t0"}
    claude.hook(base("PostToolBatch", tool_calls=[call | {"tool_response": "made"}]))
    assert claude.told("status")[-1] == ("tool_call.finished", "success")


def test_the_end_of_a_refused_call_blames_nobody(claude: Conversation) -> None:
    """It is told as refused; an agent that reports our refusal as a failure of the tool is not believed."""
    answer = claude.hook(bash("PreToolUse"), check=lambda _call: HookVerdict(refusal="blocked"))
    assert answer["hookSpecificOutput"]["permissionDecision"] == "deny"
    claude.hook(bash("PostToolUseFailure", error="PreToolUse:Bash hook error: blocked"))
    ends = [event["error"]["type"] for event in claude.events if event["type"] == "tool_call.finished"]
    assert ends == ["blocked_by_guard"]
    claude.hook(bash("PreToolUse"))
    claude.hook(bash("PostToolUse", tool_response={}))
    assert claude.told()[-1] == ("tool_call.finished",)


def test_in_shadow_the_call_is_made_all_the_same(claude: Conversation) -> None:
    """A refusal that nobody hears refuses nothing: the call counts."""
    claude.sessions["s", ""].deliver(nudge("Read the error."))
    claude.hook(bash("PreToolUse"), check=lambda _call: HookVerdict(refusal="blocked"), shadow=True)
    claude.hook(bash("PostToolUse", tool_response={}), shadow=True)
    assert claude.told()[-1] == ("tool_call.finished",)  # and nothing was delivered


def test_an_agent_that_cannot_ask_may_try_what_leads_back() -> None:
    """While a key recovers, only calls that succeed restore trust: where nobody can be asked they may be made."""
    conversation = Conversation("codex")
    asked = HookVerdict(question="escalated")
    assert conversation.hook(bash("PreToolUse"), check=lambda _call: asked) != {}
    assert conversation.hook(bash("PreToolUse"), check=lambda _call: asked._replace(may_try=True)) == {}


def test_a_nudge_waits_for_an_answer_that_can_carry_it(claude: Conversation) -> None:
    """A nudge goes into the next answer that brings words to the model, once, and that is told; an old one is not."""
    claude.sessions["s", ""].deliver(nudge("It failed.", id="old"))
    claude.sessions["s", ""].deliver(nudge("Read the error."))
    claude.sessions["s", ""].deliver(decision(type="nudge.withdrawn", id="w", nudge_id="old"))
    assert claude.hook(base("MessageDisplay", message_id="m", delta="x", final=True)) == {}
    assert "nudge.delivered" not in {event["type"] for event in claude.events}
    answer = claude.hook(bash("PreToolUse"))
    assert answer == {
        "hookSpecificOutput": {"hookEventName": "PreToolUse", "additionalContext": "(hint) Read the error."}
    }
    assert claude.hook(bash("PostToolUse", tool_response={})) == {}
    assert [event["nudge_id"] for event in claude.events if event["type"] == "nudge.delivered"] == ["n"]


def test_a_pause_holds_until_the_user_speaks(claude: Conversation) -> None:
    """Calls are refused with the reason, so that the model can say it; questions to the user are not."""
    claude.sessions["s", ""].deliver(nudge("Stopped after 6 calls. Make no further calls.", "pause"))
    for number in range(2):
        refused = claude.hook(bash("PreToolUse", number))["hookSpecificOutput"]
        assert refused["permissionDecision"] == "deny"
        assert refused["permissionDecisionReason"] == "trustfold: Stopped after 6 calls. Make no further calls."
        assert "continue" not in claude.hook(base("PostToolBatch", tool_calls=[]))
    question = base("PreToolUse", tool_name="AskUserQuestion", tool_input={}, tool_use_id="q")
    assert "permissionDecision" not in claude.hook(question).get("hookSpecificOutput", {})
    assert claude.hook(base("UserPromptSubmit", prompt="go on")) == {}
    assert claude.hook(bash("PreToolUse", 2)) == {}
    assert claude.told().count(("nudge.delivered",)) == 1  # the first refusal carried it


def test_a_withdrawn_pause_is_none(claude: Conversation) -> None:
    """What it was about is over before a call could be refused."""
    claude.sessions["s", ""].deliver(nudge("Stopped after 6 calls.", "pause"))
    claude.sessions["s", ""].deliver(decision(type="nudge.withdrawn", id="w", nudge_id="n"))
    assert claude.hook(bash("PreToolUse")) == {}


def test_a_run_that_goes_on_in_a_pause_is_ended(claude: Conversation) -> None:
    """After three refused calls, at the end of the message: Claude Code ignores it at the end of a failed call."""
    claude.sessions["s", ""].deliver(nudge("Stopped after 6 calls.", "pause"))
    for number in range(3):
        claude.hook(bash("PreToolUse", number))
    assert "continue" not in claude.hook(bash("PostToolUseFailure", 2, error="denied"))
    stopped = claude.hook(base("PostToolBatch", tool_calls=[]))
    assert stopped == {"continue": False, "stopReason": "trustfold: Stopped after 6 calls."}
    alone = claude.hook(base("PostToolBatch", tool_calls=[]), attended=False)
    assert "continue" not in alone, "without a terminal Claude Code would print an empty line"


@pytest.mark.parametrize(
    ("agent", "failed", "later"),
    [
        (
            "gemini",
            gemini("AfterTool", tool_response={"llmContent": "no", "error": {"message": "no"}}),
            gemini("AfterTool", tool_response={"llmContent": "Output: yes"}),
        ),
    ],
)
def test_what_an_agent_would_drop_waits(agent: str, failed: dict[str, Any], later: dict[str, Any]) -> None:
    """A nudge is given with the next answer that reaches the model."""
    conversation = Conversation(agent)
    conversation.hook(gemini("BeforeTool"))
    conversation.sessions["s", ""].deliver(nudge("Read the error."))
    assert conversation.hook(failed) == {}
    conversation.hook(gemini("BeforeTool"))
    assert "Read the error." in json.dumps(conversation.hook(later))


def test_a_pause_for_announcements_lets_the_call_pass(claude: Conversation) -> None:
    """The call that was missing ends it, and the text that asked for that call is no longer due."""
    claude.sessions["s", ""].deliver(nudge("Make the announced call.", "pause", pattern="announce_no_action"))
    assert claude.hook(bash("PreToolUse")) == {}
    assert claude.hook(bash("PostToolUse", tool_response={})) == {}


def test_a_person_is_told_once_and_the_model_is_not(claude: Conversation) -> None:
    """In the next answer that can show it; where the run is ended, as its reason."""
    claude.sessions["s", ""].deliver(detected("flask is missing."))
    claude.sessions["s", ""].deliver(detected("quiet", id="q", notify_user=False))
    assert claude.hook(base("MessageDisplay", message_id="m", delta="x", final=True)) == {}
    assert claude.hook(bash("PreToolUse")) == {"systemMessage": "trustfold: flask is missing."}
    claude.sessions["s", ""].deliver(detected("flask is missing."))
    assert claude.hook(bash("PostToolUse", tool_response={})) == {}
    claude.hook(bash("PreToolUse", 1))
    claude.sessions["s", ""].deliver(nudge("Stopped after 6 calls.", "pause"))
    for number in range(2, 5):
        claude.hook(bash("PreToolUse", number))
    claude.sessions["s", ""].deliver(detected("It repeats itself.", id="p2"))
    stopped = claude.hook(base("PostToolBatch", tool_calls=[]))
    assert stopped == {"continue": False, "stopReason": "trustfold: It repeats itself."}


@pytest.mark.parametrize(
    ("agent", "event", "answer"),
    [
        ("qwen", "PostToolBatch", {"systemMessage": "trustfold: told"}),
        ("codex", "PostToolUse", {"systemMessage": "trustfold: told"}),
        ("gemini", "AfterTool", {"systemMessage": "trustfold: told"}),
        ("opencode", "tool.execute.after", {"notice": "trustfold: told"}),
        ("copilot", "postToolUse", {}),
        ("cursor", "postToolUse", {}),
    ],
)
def test_each_agent_shows_a_person_what_it_can(agent: str, event: str, answer: dict[str, Any]) -> None:
    """By its own field; two agents have none, and there the dashboard tells it."""
    payload = bash(event, tool_response={}) | {"sessionId": "s", "input": {"sessionID": "s"}}
    conversation = Conversation(agent)
    conversation.hook(payload)
    conversation.sessions["s", ""].deliver(detected("told"))
    assert conversation.hook(payload) == answer
    assert conversation.hook(payload) == {}


def test_time_never_runs_backwards(claude: Conversation) -> None:
    """A clock that is set back between two hooks gives no event an earlier time than the one before it."""
    claude.now_ms = START_MS - 60_000
    claude.hook(base("MessageDisplay", message_id="m", delta="x", final=True))
    assert time_of(claude.events[-1]) == START_MS + STEP_MS


def test_a_flood_of_open_calls_is_bounded(claude: Conversation) -> None:
    """Starts that never end are forgotten beyond a number, and their ends are whole calls."""
    for number in range(1_000):
        claude.hook(bash("PreToolUse", number))
    assert len(claude.sessions["s", ""]._open) <= 200
    claude.hook(bash("PostToolUse", 0, tool_response={}))
    assert claude.told()[-1] == ("tool_call.finished",)


def qwen_record(kind: str, *parts: dict[str, Any], **fields: Any) -> bytes:
    """A line of Qwen Code's log."""
    return orjson.dumps({"uuid": f"u{parts}", "type": kind, "message": {"parts": list(parts)}, **fields}) + b"\n"


def qwen_call(number: int, text: str = "") -> bytes:
    """The line of a message that makes a call."""
    called = {"functionCall": {"id": f"c{number}"}}
    return qwen_record("assistant", *([{"text": text}] if text else []), called)


PROMPT = qwen_record("user", {"text": "fix the price now"})
RESULT = qwen_record("tool_result", {"functionResponse": {"id": "c1"}})
REPORT = qwen_record("user", {"text": "it is done"}, subtype="notification")
WITHIN = qwen_record("user", {"text": "no, stop"}, subtype="mid_turn_user_message")


@pytest.mark.parametrize(
    ("logs", "told"),
    [
        ([PROMPT + qwen_call(1), PROMPT + qwen_call(1) + RESULT + qwen_call(2)], [("user.message", None, 4)]),
        ([b"", PROMPT + qwen_call(1) + RESULT + qwen_call(2)], [("user.message", None, None)]),
        ([b"", b""], [("user.message", None, None)]),
        ([PROMPT, PROMPT], [("user.message", None, 4)]),
        ([PROMPT + qwen_call(1), PROMPT + qwen_call(1) + RESULT], [("user.message", None, 4)]),
        (
            [PROMPT + qwen_call(1), PROMPT + qwen_call(1) + RESULT + REPORT + qwen_call(2)],
            [("user.message", None, 4), ("input.received", "report", None)],
        ),
        (
            [PROMPT + qwen_call(1), PROMPT + qwen_call(1) + RESULT + WITHIN + qwen_call(2)],
            [("user.message", None, 4), ("user.message", None, 2)],
        ),
        ([PROMPT + PROMPT + qwen_call(1), b""], [("user.message", None, 4)] * 2),
    ],
    ids=["prompt", "late", "no log", "ends with it", "ends late", "report", "within a turn", "two prompts"],
)
def test_qwen_tells_who_spoke_by_its_log(logs: list[bytes], told: list[tuple[Any, ...]]) -> None:
    """Once, with the first call after it, also where the log comes late or is none."""
    read = iter(logs)
    qwen = Conversation("qwen", lambda _path: next(read))
    for number in range(1, len(logs) + 1):
        call = {"tool_name": "ls", "tool_input": {}, "tool_call_id": f"c{number}", "prompt_id": "s########0"}
        qwen.hook(base("PreToolUse", **call))
    assert [one for one in qwen.told("source", "words") if one[0] in {"user.message", "input.received"}] == told


def test_qwen_tells_at_the_end_of_a_turn_without_calls_what_it_answered() -> None:
    """And not again at the end of a turn with calls, whose last message answers their results."""
    said = qwen_record("assistant", {"text": "done"})
    whole = [PROMPT + said, PROMPT + qwen_call(1), RESULT + said]
    logs = iter([b"".join(whole[:length]) for length in (1, 2, 3)])
    qwen = Conversation("qwen", lambda _path: next(logs))
    qwen.hook(base("Stop", last_assistant_message="done", prompt_id="p0"))
    qwen.hook(base("PreToolUse", tool_name="ls", tool_input={}, tool_call_id="c1", prompt_id="p1"))
    qwen.hook(base("Stop", last_assistant_message="done", prompt_id="p1"))
    assert qwen.told("words").count(("user.message", 4)) == 2


@pytest.mark.parametrize("log", [b"", PROMPT, PROMPT + qwen_call(2)], ids=["late", "message late", "whole"])
def test_a_prompt_lifts_the_pause_of_qwen_however_late_its_log_is(log: bytes) -> None:
    """The first call after it is made; a pause that another server gave stays, until the log shows who spoke."""
    logs = iter([PROMPT + qwen_call(1), log])
    qwen = Conversation("qwen", lambda _path: next(logs))
    call = {"tool_name": "ls", "tool_input": {}}
    qwen.hook(base("PreToolUse", **call, tool_call_id="c1", prompt_id="p0"))
    qwen.sessions["s", ""].deliver(nudge("Stopped.", "pause"))
    assert qwen.hook(base("PreToolUse", **call, tool_call_id="c2", prompt_id="p1")) == {}


def test_the_pause_of_qwen_outlives_a_restart_while_its_log_is_late() -> None:
    """The id of a prompt says nothing to a server that has not heard the turn begin."""
    qwen = Conversation("qwen")
    hook = qwen.dialect.read(base("PreToolUse", prompt_id="p0"), "", lambda _path: b"")
    assert hook is not None
    qwen.session(hook).deliver(nudge("Stopped.", "pause"))
    call = {"tool_name": "ls", "tool_input": {}, "tool_call_id": "c1", "prompt_id": "p0"}
    assert "Stopped" in str(qwen.hook(base("PreToolUse", **call)))


@pytest.mark.parametrize("duration", [{"secs": "null"}, {"secs": [1], "nanos": 2}, {"nanos": None}, "soon", 7])
def test_a_strange_duration_in_the_rollout_of_codex_loses_no_call(duration: Any) -> None:
    """It alone is unknown."""
    item = {"type": "CommandExecution", "id": "t1", "exit_code": 1, "status": "failed", "duration": duration}
    line = orjson.dumps({"type": "event_msg", "payload": {"type": "item_completed", "item": item}})
    codex = Conversation("codex", lambda _path: line)
    codex.hook(bash("PreToolUse", 1))
    codex.hook(bash("PostToolUse", 1, tool_response="no such file"))
    assert ("tool_call.finished", "error") in codex.told("status")


def test_a_paused_subagent_goes_on_when_it_is_called_again() -> None:
    """What has ended and is called again has a new task."""
    claude = Conversation("claude")
    inside = {"agent_id": "a1", "agent_type": "scout"}
    claude.hook(bash("PreToolUse", 1, **inside))
    claude.sessions["s", "a1"].deliver(nudge("Stopped.", "pause", session_id="s/a1"))
    assert "Stopped" in str(claude.hook(bash("PreToolUse", 2, **inside)))
    claude.hook(base("SubagentStop", **inside))
    assert claude.hook(bash("PreToolUse", 3, **inside)) == {}


@pytest.mark.parametrize("trailer", ["<shellId: 3 completed with exit code 3>", "<exited with exit code 3>"])
def test_every_last_line_of_copilot_tells_the_exit_code(trailer: str) -> None:
    """As in its log; the line is no part of the result."""
    copilot = Conversation("copilot")
    call = {"sessionId": "s", "toolName": "bash", "toolArgs": {"command": "make"}}
    copilot.hook(call, "preToolUse")
    result = {"resultType": "success", "textResultForLlm": f"broken\n{trailer}"}
    copilot.hook(call | {"toolResult": result}, "postToolUse")
    ended = copilot.events[-1]
    assert (ended["status"], ended["error"]["type"], ended["result"]) == ("error", "exit_code_3", "broken")


def test_copilot_tells_agents_and_background_work_from_the_user() -> None:
    """A subagent names the session that started it; its prompt is that agent's, and a notice is a report or nothing."""
    copilot = Conversation("copilot")
    inner = {"sessionId": "a1", "agentId": "a1", "agentType": "scout", "parentAgentId": "s"}
    about = {"hook_event_name": "Notification", "sessionId": "s", "message": "Agent scout is idle."}
    copilot.hook({"sessionId": "s", "prompt": "look around"}, "userPromptSubmitted")
    copilot.hook(inner | {"prompt": "Look around here."}, "userPromptSubmitted")
    copilot.hook(inner | {"toolName": "bash", "toolArgs": {"command": "ls"}}, "preToolUse")
    copilot.hook(inner | {"stopReason": "end_turn"}, "agentStop")
    copilot.hook(about | {"notification_type": "permission_prompt"}, "notification")
    copilot.hook(about | {"notification_type": "agent_idle"}, "notification")
    told = [one for one in copilot.told("session_id", "source", "words") if one[0].endswith(("message", "received"))]
    assert told == [
        ("user.message", "s", None, 2),
        ("input.received", "s/a1", "agent", None),
        ("input.received", "s", "report", None),
    ]
    assert ("session.ended", "s/a1") in copilot.told("session_id")


def opencode(event: str, given: dict[str, Any], output: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    """A payload of the plugin."""
    return {"hook_event_name": event, "input": {"sessionID": "s", **given}, "output": output or {}, **more}


@pytest.mark.parametrize(
    ("event", "given", "output", "status", "kind"),
    [
        ("tool.execute.after", {}, "bash terminated command after exceeding timeout 5 ms", "timeout", "timeout"),
        ("tool.execute.after", {}, "half\nUser aborted the command", "cancelled", "interrupted"),
        ("event:message.part.updated", {}, "The user rejected permission to use this tool", "error", "user_rejected"),
        ("event:message.part.updated", {}, "Tool execution aborted", "cancelled", "interrupted"),
        ("tool.execute.after", {"tool": "invalid"}, "no such tool", "rejected", "invalid_arguments"),
    ],
)
def test_calls_of_opencode_end_as_its_log_says(
    event: str, given: dict[str, Any], output: str, status: str, kind: str
) -> None:
    """A command that was stopped, what a person denied, and a call that fits no tool."""
    conversation = Conversation("opencode")
    call = {"tool": "bash", "callID": "c1", "args": {"command": "make", "tool": "grep"}} | given
    state = {"status": "error", "error": output, "input": call["args"]}
    part = {"type": "tool", "tool": call["tool"], "callID": "c1", "state": state}
    conversation.hook(opencode("tool.execute.before", call, {"args": call["args"]}))
    conversation.hook(opencode(event, call | {"part": part}, {"output": output, "metadata": {}}))
    ended = conversation.events[-1]
    assert (ended["status"], ended["error"]["type"]) == (status, kind)
    assert ended["tool_name"] == ("grep" if given else "bash")


def test_a_task_of_opencode_is_another_agents_word() -> None:
    """Of a session that another one began; its name is as in the log, and its end is that of the session."""
    conversation = Conversation("opencode")
    conversation.hook(opencode("chat.message", {}, {"text": "look around"}))
    inner = {"sessionID": "a1"}
    conversation.hook(opencode("chat.message", inner, {"text": "Look around here."}, parent="s"))
    conversation.hook(opencode("event:session.idle", inner, parent="s"))
    told = conversation.told("session_id", "source", "words")
    assert ("user.message", "s", None, 2) in told
    assert ("input.received", "s/a1", "agent", None) in told
    assert told[-1] == ("session.ended", "s/a1", None, None)


@pytest.mark.parametrize(
    ("result", "status"),
    [
        ({"resultType": "timeout", "textResultForLlm": "took too long"}, "timeout"),
        ({"resultType": "failure", "textResultForLlm": "Tool 'look' does not exist. Available are: bash"}, "rejected"),
    ],
)
def test_calls_of_copilot_end_as_its_log_says(result: dict[str, Any], status: str) -> None:
    """One that ran out of time, and one for which there is no tool."""
    copilot = Conversation("copilot")
    call = {"sessionId": "s", "toolName": "look", "toolArgs": {}}
    copilot.hook(call, "preToolUse")
    copilot.hook(call | {"toolResult": result}, "postToolUseFailure")
    assert copilot.events[-1]["status"] == status
