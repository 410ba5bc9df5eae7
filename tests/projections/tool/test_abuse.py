"""What a hostile agent or publisher cannot get: others' trust, an acquittal, an escalation that nobody is told of."""

from __future__ import annotations

from typing import Any

import orjson
from fixed_rules import Rules, TrustRules
from hypothesis import given
from hypothesis import strategies as st
from story import Story
from trustfold.guard.state_cache import StateView
from trustfold.projections.emitter import StageOutput
from trustfold.rules.calls import ToolRules
from trustfold.rules.rules import EscalationPatch
from trustfold.schemas.vocabulary import TrustState

RM, GIT = ({"command": f"{word} x"} for word in ("rm", "git"))


def view_of(outputs: list[StageOutput]) -> StateView:
    """What a guard knows that has followed these decisions."""
    view = StateView()
    for output in outputs:
        if output.topic == "state":
            view.apply(output.key, output.value)
    return view


def state_of(story: Story, *keys: str) -> TrustState:
    """What a guard thinks of a call with these keys."""
    trust = view_of(story.outputs).trust("w1", keys)
    return trust.state if trust is not None else TrustState.TRUSTED


def told(story: Story) -> list[tuple[str, str]]:
    """Changes of trust that a user is notified of: key and new state."""
    return [(one["key"], one["to"]) for one in story.all("trust.changed") if not one.get("silent")]


# --- keys that publishers give ----------------------------------------------------------------------------------------


def private(story: Story, tool: str, key: str, *, times: int, **fields: Any) -> None:
    """Failures of a tool whose publisher keeps the arguments to itself and names a key."""
    for _ in range(times):
        call = story.started(tool, failure_key=key, **fields)
        story.finished(call, tool, status="error", result=None, error={"severity": "server_error"})


def test_a_given_key_of_another_tool_is_not_believed() -> None:
    """A tool that says it counts as `deploy` makes only calls of its own ask, on the key that it gave."""
    story = Story()
    private(story, "liar", "deploy", times=4)
    assert state_of(story, "deploy") is TrustState.TRUSTED
    assert state_of(story, "liar|key=deploy", "liar") is TrustState.ESCALATED


def test_a_given_key_cannot_hide_the_state_of_a_service() -> None:
    """The service has lost trust; a tool that names the service as its own key does not write over that."""
    story = Story().fails("mcp__jira__search", with_="timeout", times=2)
    private(story, "liar", "service:jira", times=4)
    keys = ("mcp__jira__create|mcp_server=jira", "mcp__jira__create", "service:jira")
    assert state_of(story, *keys) is TrustState.ESCALATED


def test_a_given_key_that_names_a_service_counts_for_one() -> None:
    """The server that a key names is the call's, unless the event names another: no failure falls between the two."""
    story = Story()
    private(story, "search", "search|mcp_server=jira", times=4)
    assert state_of(story, "search|mcp_server=jira", "search", "service:jira") is TrustState.ESCALATED
    private(story, "find", "find|mcp_server=github", service="wiki", times=4)
    assert state_of(story, "service:github") is TrustState.TRUSTED
    assert state_of(story, "find|mcp_server=wiki", "find", "service:wiki") is TrustState.ESCALATED


def test_a_private_call_of_a_domain_still_counts_for_it() -> None:
    """A key of the publisher's own tool names the domain: it is believed."""
    story = Story()
    private(story, "http_request", "http_request|domain=api.example.com", times=3)
    assert state_of(story, "service:api.example.com") is TrustState.ESCALATED


def test_a_workspace_cannot_pass_for_a_user() -> None:
    """A workspace called `user:bob` says nothing about Bob elsewhere."""
    story = Story(workspace="user:bob").fails("deploy", times=3)
    assert view_of(story.outputs).trust("w1", ("deploy",), "bob") is None


# --- full tables ------------------------------------------------------------------------------------------------------


def few_keys() -> Rules:
    """Four fine keys per tool."""
    return Rules(trust=TrustRules(max_fine_keys=4))


def test_keys_whose_failures_have_lapsed_make_room() -> None:
    """Four commands failed once, hours ago; the fifth is followed all the same, and the first is no longer shown."""
    story = Story(rules=few_keys())
    for number in range(4):
        story.fails("bash", {"command": f"x{number} y"})
        story.works("bash", {"command": f"x{number} y"}, times=3)
    story.after(minutes=120).fails("bash", RM, times=3)
    assert state_of(story, "bash|command=rm", "bash") is TrustState.ESCALATED
    assert "trust:w1\x1fbash|command=x0" not in view_of(story.outputs).keys()  # noqa: SIM118 - no mapping


def test_denials_of_ever_new_keys_fill_no_table_for_good() -> None:
    """A user declines one new command after the other; a failing one is followed all the same."""
    story = Story(rules=few_keys())
    for number in range(6):
        call = story.started("bash", {"command": f"x{number} y"})
        story.finished(call, "bash", status="error", result=None, error={"type": "user_rejected"})
    story.fails("bash", RM, times=3)
    assert state_of(story, "bash|command=rm", "bash") is TrustState.ESCALATED


def test_a_full_table_never_makes_a_dangerous_command_block_its_tool() -> None:
    """Every key is in trouble, and then comes a dangerous command: git is no more blocked than before."""
    story = Story(rules=few_keys())
    for number in range(4):
        story.fails("bash", {"command": f"x{number} y"}, times=3)
    story.fails("bash", {"command": "rm -rf /"}, with_="")
    assert all(key != "bash" for key, to in told(story) if to == "blocked")


# --- nobody is told ---------------------------------------------------------------------------------------------------


def test_a_key_recovers_with_its_service_and_its_next_escalation_is_told() -> None:
    """It was escalated silently as part of the outage: who was never told of it is not asked once that is over."""
    search, create = "mcp__jira__search", "mcp__jira__create"
    story = Story()
    for _ in range(3):
        story.fails(search, with_="timeout")
    story.after(minutes=31).works(create, times=3)
    assert story.moves("service:jira")[-1] == ("recovering", "trusted")
    own = story.decided("trust.changed", key=f"{search}|mcp_server=jira")
    assert (own["from"], own["to"], own["silent"], own["part_of"]) == ("escalated", "trusted", True, "service:jira")
    story.fails(search, with_="permission", times=3)
    assert told(story)[-1] == (f"{search}|mcp_server=jira", "escalated")


def test_keys_over_arguments_of_an_mcp_tool_are_told_with_their_tool() -> None:
    """They live with the tool, whose record is published then: it is told, and stands for its keys."""
    story = Story(rules=Rules(tools=ToolRules(key_by="args")))
    for _ in range(3):
        for number in range(4):
            story.fails("mcp__jira__search", {"q": number}, with_="corruption")
    silent = [one for one in story.all("trust.changed") if one.get("silent")]
    assert told(story) == [("mcp__jira__search", "escalated")]
    assert len(silent) == 4
    assert {one["part_of"] for one in silent} == {"mcp__jira__search"}


def test_a_quiet_service_does_not_silence_its_keys() -> None:
    """`notify_user` is off for services as a whole only: their keys are told."""
    quiet = TrustRules(service_default=EscalationPatch(count_threshold=2, notify_user=False))
    story = Story(rules=Rules(trust=quiet)).fails("mcp__jira__search", with_="timeout", times=3)
    assert told(story) == [("mcp__jira__search|mcp_server=jira", "escalated")]


def test_the_removal_of_a_covered_key_is_told() -> None:
    """Its escalation was silent; that it is refused from now on is news."""
    story = Story().fails("mcp__jira__search", with_="timeout", times=3)
    story.command("tool.remove", "mcp__jira__search|mcp_server=jira")
    assert told(story)[-1] == ("mcp__jira__search|mcp_server=jira", "removed")


TOOLS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("mcp__jira__search", {}),
    ("mcp__jira__create", {}),
    ("bash", RM),
    ("bash", GIT),
    ("bash", {"command": "ls x"}),
    ("bash", {"command": "$X y"}),
    ("http_request", {"url": "https://api.example.com/v1"}),
    ("http_request", {"url": "https://api.example.com/v2"}),
)
KEYS = ("bash", "bash|command=rm", "service:jira", "mcp__jira__search|mcp_server=jira", "http_request")
ORDERS = ("trust.reset", "trust.recover", "trust.approve", "tool.remove", "tool.restore")
call_steps = st.tuples(
    st.just("call"),
    st.integers(0, len(TOOLS) - 1),
    st.sampled_from(("", "", "server_error", "timeout", "permission", "security")),
    st.integers(1, 4),
)
order_steps = st.tuples(st.just("order"), st.sampled_from(ORDERS), st.sampled_from(KEYS), st.just(0))
time_steps = st.tuples(st.just("time"), st.sampled_from((5, 31, 70)), st.just(""), st.just(0))


@given(st.lists(st.one_of(call_steps, call_steps, call_steps, order_steps, time_steps), min_size=4, max_size=40))
def test_nothing_asks_or_refuses_of_which_nobody_was_told(steps: list[tuple[Any, ...]]) -> None:
    """Of every key that is not trusted, its own change or that of the wider one was shown since it last was."""
    story = Story()
    for kind, what, which, times in steps:
        if kind == "time":
            story.after(minutes=what)
        elif kind == "order":
            story.command(what, which)
        else:
            tool, args = TOOLS[what]
            for _ in range(times):
                story.fails(tool, args, with_=which) if which else story.works(tool, args)
    shown: set[str] = set()
    for output in story.outputs:
        if output.topic != "escalations" or output.value is None:
            continue
        one = orjson.loads(output.value)
        if one["type"] != "trust.changed":
            continue
        key, to = one["key"], one["to"]
        if to == "trusted":
            shown.discard(key)
        elif not one.get("silent"):
            shown.add(key)
        elif to in {"escalated", "blocked", "removed"}:
            assert one.get("part_of") in shown, one
