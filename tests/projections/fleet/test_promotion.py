"""Promotion: a tool that fails in several workspaces of one user, as told by calls (docs/design/semantics.md#trust)."""

from __future__ import annotations

from typing import Any

import pytest
from fixed_rules import FleetRules, Rules, TrustRules
from story import Story
from trustfold.guard.request import GuardedCall
from trustfold.guard.state_cache import StateView
from trustfold.guard.tools import ToolRegistration
from trustfold.projections.fleet.fleet_state import MAX_PLACES, DistrustedWorkspace, UserTrust
from trustfold.projections.fleet.promotion import (
    STATES,
    TRANSITIONS,
    add_report,
    mean_rate,
    move,
    promote_or_demote,
)
from trustfold.schemas.standings import ToolStanding
from trustfold.schemas.vocabulary import RecoveryMode, TrustState, TrustTrigger

RULES = FleetRules()
PUBLIC = "trust:user:ada\x1fdeploy"


def failing(story: Story, *workspaces: str, failures: int = 5, successes: int = 0) -> Story:
    """The tool `deploy` works and then fails in each of the workspaces."""
    for workspace in workspaces:
        story.moved(workspace=workspace).works("deploy", times=successes)
        story.fails("deploy", times=failures)
    return story


def user_moves(story: Story, user: str = "ada") -> list[tuple[str, str, str]]:
    """Transitions of a user's trust: from, to, trigger."""
    return [(one["from"], one["to"], one["trigger"]) for one in story.all("trust.changed", scope="user", user_id=user)]


def test_a_tool_that_fails_in_three_workspaces_is_escalated_for_the_user() -> None:
    """Not in two; in the third, with the fifth call there: state, reason, evidence, texts, expiry."""
    story = failing(Story(user="ada"), "w1", "w2")
    assert user_moves(story) == []
    failing(story, "w3", failures=4)
    assert user_moves(story) == []
    failing(story, "w3", failures=1)
    assert user_moves(story) == [("trusted", "escalated", "promotion")]
    told = story.decided("trust.changed", scope="user")
    assert told["key"] == "deploy"
    assert told["reason"] == "fails across 3 workspaces: 100% of calls (limit 50%)"
    assert (told["count"], told["threshold"], told["session_id"]) == (1.0, 0.5, "s1")
    assert len(told["caused_by"]) == 3
    assert told["caused_by"][-1].endswith(f"{story._ids:x}"), "the newest evidence stands last"
    assert "in all your workspaces" in told["notification"]
    assert told["reason"] in told["permission_warning"]
    assert "workspace_id" not in told
    state = story.public(PUBLIC)
    assert state is not None
    assert (state["kind"], state["scope"], state["user_id"], state["key"]) == ("trust", "user", "ada", "deploy")
    assert (state["state"], state["failure_rate"], state["measured"]) == ("escalated", 1.0, 15)
    assert state["expires_at"] == told["expires_at"] == "2026-01-06T10:01:00.000Z", "a day later"


@pytest.mark.parametrize(
    ("told", "promoted"),
    [
        ({"failures": 5}, True),
        ({"failures": 4}, False),  # too few calls
        ({"failures": 5, "successes": 4}, True),  # 56 %
        ({"failures": 5, "successes": 5}, False),  # half is not more than half
    ],
)
def test_rate_and_number_of_calls_matter(told: dict[str, int], promoted: bool) -> None:
    """At least five calls in each workspace, and more than half of them failing in the mean."""
    assert bool(user_moves(failing(Story(user="ada"), "w1", "w2", "w3", **told))) is promoted


def test_workspaces_of_other_users_and_of_nobody_count_for_nobody() -> None:
    """Three workspaces of three users are no pattern of one; calls without a user have no fleet."""
    story = Story()
    for name in ("ada", "bob", "eve"):
        failing(story.moved(user=name, session=name), f"of {name}")
    assert story.all("trust.changed", scope="user") == []
    assert failing(Story(), "w1", "w2", "w3").all("trust.changed", scope="user") == []


def test_everybody_who_uses_the_tools_is_told() -> None:
    """Two people share three workspaces: the tool is escalated for both, under ids of their own."""
    story = Story()
    for workspace in ("w1", "w2", "w3"):
        for user in ("ada", "bob"):
            story.moved(user=user, session=f"of {user}")
            failing(story, workspace)
    assert user_moves(story, "ada") == user_moves(story, "bob") == [("trusted", "escalated", "promotion")]
    ids = [one["id"] for one in story.all("trust.changed", scope="user")]
    assert len(set(ids)) == 2


def test_a_user_who_comes_late_hears_of_a_tool_that_fails() -> None:
    """The tool is escalated already when the second user begins to use it."""
    story = failing(Story(user="ada"), "w1", "w2", "w3")
    for workspace in ("w1", "w2", "w3"):
        story.moved(workspace=workspace, user="bob", session="of bob").fails("deploy")
    assert user_moves(story, "bob") == [("trusted", "escalated", "promotion")]


def test_recovery_in_one_of_three_workspaces_demotes() -> None:
    """Two are no pattern any more; the public state is gone."""
    story = failing(Story(user="ada"), "w1", "w2", "w3")
    story.after(minutes=31).works("deploy", times=3)
    assert story.decided("trust.changed", scope="tool")["trigger"] == "recovery"
    assert user_moves(story)[-1] == ("escalated", "trusted", "demotion")
    last = story.decided("trust.changed", scope="user")
    assert last["reason"] == "not trusted in 2 of 3 workspaces any more"
    assert "no longer requires approval" in last["notification"]
    assert "permission_warning" not in last
    assert story.public(PUBLIC) is None


def test_an_operators_reset_demotes() -> None:
    """What an operator forgives in a workspace counts there no more; the order is the cause."""
    story = failing(Story(user="ada"), "w1", "w2", "w3")
    order = story.command("trust.reset", "tool:deploy")
    assert user_moves(story)[-1] == ("escalated", "trusted", "demotion")
    assert story.decided("trust.changed", scope="user")["caused_by"][-1] == order


def test_a_falling_rate_demotes_below_the_release_and_not_before() -> None:
    """Between 40 and 50 % nothing moves; below 40 % the escalation ends, though all three are still not trusted."""
    asks = Rules(trust=TrustRules(recovery_mode=RecoveryMode.ASK))
    story = failing(Story(user="ada", rules=asks), "w1", "w2", "w3")

    def succeed(times: int) -> None:
        for workspace in ("w1", "w2", "w3"):
            story.moved(workspace=workspace).works("deploy", times=times)

    succeed(6)  # 45 %
    assert len(user_moves(story)) == 1
    succeed(4)  # a third
    assert user_moves(story)[-1] == ("escalated", "trusted", "demotion")
    assert "calls failing across 3 workspaces (limit 40%)" in story.decided("trust.changed", scope="user")["reason"]
    assert {one["to"] for one in story.all("trust.changed", key="deploy", scope="tool")} == {"escalated", "recovering"}


def test_an_escalation_expires() -> None:
    """After its duration without a word it ends: by a tick, or when the next standing reveals it, under one id."""
    half_a_day = Rules(fleet=FleetRules(duration_seconds=43_200))
    ticked = failing(Story(user="ada", rules=half_a_day), "w1", "w2", "w3").after(minutes=12 * 60)
    ticked.tick()
    revealed = failing(Story(user="ada", rules=half_a_day), "w1", "w2", "w3").after(minutes=12 * 60)
    revealed.fails("deploy")
    for story in (ticked, revealed):
        assert user_moves(story)[-1] == ("escalated", "trusted", "expiry")
        assert story.public(PUBLIC) is None
    last = ticked.decided("trust.changed", scope="user")
    assert last["time"] == "2026-01-05T22:01:00.000Z", "at its own time"
    assert revealed.decided("trust.changed", scope="user") == last


def test_what_was_told_before_an_expiry_promotes_nothing_again() -> None:
    """One more failure after it is not three workspaces; three of them are."""
    story = failing(Story(user="ada"), "w1", "w2", "w3").after(minutes=24 * 60)
    failing(story, "w1")
    failing(story, "w2")
    assert user_moves(story)[-1] == ("escalated", "trusted", "expiry")
    failing(story, "w3")
    assert user_moves(story)[-1] == ("trusted", "escalated", "promotion")


def test_the_rules_can_be_set_and_switched_off() -> None:
    """Two workspaces and three calls, or nothing at all."""
    strict = Rules(fleet=FleetRules(workspaces=2, min_calls=3, duration_seconds=60))
    story = failing(Story(user="ada", rules=strict), "w1", "w2", failures=3)
    assert user_moves(story) == [("trusted", "escalated", "promotion")]
    off = Story(user="ada", rules=Rules(fleet=FleetRules(enabled=False)))
    assert not [output for output in failing(off, "w1", "w2", "w3").outputs if output.topic == "standings"]
    with pytest.raises(ValueError, match=r"release_rate 0\.6 must not be above failure_rate 0\.5"):
        FleetRules(release_rate=0.6)


# --- the machine ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("trigger", TrustTrigger)
def test_the_table_is_all_there_is(state: TrustState, trigger: TrustTrigger) -> None:
    """Every move in every state leads where the table says, and elsewhere changes nothing at all."""
    record = UserTrust("ada", "deploy", state=state, escalated_at=1, expires_at=2)
    change = move(record, trigger, RULES, 10_000, [DistrustedWorkspace(4, 3, 1, "e1")])
    wanted = TRANSITIONS.get((state, trigger))
    if wanted is None:
        assert change is None
        assert record == UserTrust("ada", "deploy", state=state, escalated_at=1, expires_at=2)
        return
    assert change is not None
    assert (change.before, change.after, record.state) == (state, wanted, wanted)
    assert (change.workspaces, change.rate, change.calls, change.causes) == (1, 0.75, 4, ("e1",))
    assert bool(record.expires_at) is (wanted is TrustState.ESCALATED)


def test_every_state_can_be_left() -> None:
    """No state without an exit."""
    assert {state for state, _ in TRANSITIONS} == set(STATES) == set(TRANSITIONS.values())


def standing(workspace: str, calls: int, failures: int, **fields: Any) -> ToolStanding:
    """How the tool stands in a workspace."""
    told: dict[str, Any] = {"id": "s", "time_ms": 0, "user_id": "ada", "tool_name": "deploy", "state": "escalated"}
    return ToolStanding(**told | {"workspace_id": workspace, "calls": calls, "failures": failures} | fields)


def test_the_bounds_are_exact() -> None:
    """Means that are equal to a bound but for rounding neither promote nor demote."""
    record = UserTrust("ada", "deploy")
    for workspace, failures in (("w1", 3), ("w2", 5), ("w3", 7)):
        add_report(record, standing(workspace, 10, failures), 1)
    assert promote_or_demote(record, RULES, 1) is None
    add_report(record, standing("w3", 10, 8), 2)
    assert promote_or_demote(record, RULES, 2) is not None
    for workspace, failures in (("w1", 3), ("w2", 4), ("w3", 5)):
        add_report(record, standing(workspace, 10, failures), 3)
    assert mean_rate(record.places.values()) < 0.4, "by rounding"
    assert promote_or_demote(record, RULES, 3) is None


def test_workspaces_are_bounded_and_the_longest_unheard_goes_first() -> None:
    """However many workspaces a user has, so many are remembered; each hearing counts anew."""
    record = UserTrust("ada", "deploy")
    for number in range(MAX_PLACES):
        add_report(record, standing(f"w{number}", 5, 5), number)
    add_report(record, standing("w0", 5, 5), 100)
    add_report(record, standing("one more", 5, 5), 101)
    assert len(record.places) == MAX_PLACES
    assert "w0" in record.places
    assert "w1" not in record.places


CALLS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "a command": ("bash", {"command": "terraform apply"}, {}),
    "a domain": ("http_request", {"url": "https://api.shop.example/v1/orders"}, {"with_": "", "http_status": 503}),
    "a server": ("mcp__atlassian__search", {"query": "x"}, {"with_": "timeout", "status": "timeout"}),
}
KEYS = {
    "a command": "bash|command=terraform",
    "a domain": "service:api.shop.example",
    "a server": "service:atlassian",
}


@pytest.mark.parametrize("kind", CALLS)
def test_what_fails_in_three_workspaces_asks_in_the_fourth(kind: str) -> None:
    """A command, an HTTP service and an MCP server are escalated for the user as tools are, for others they are not."""
    tool, args, how = CALLS[kind]
    story = Story(user="ada")
    for workspace in ("w1", "w2", "w3"):
        story.moved(workspace=workspace).fails(tool, args, times=6, **how)
    told = [one for one in story.all("trust.changed", scope="user") if one["key"] == KEYS[kind]]
    assert [(one["from"], one["to"], one["trigger"]) for one in told] == [("trusted", "escalated", "promotion")]
    view = StateView()
    for output in story.outputs:
        if output.topic == "state":
            view.apply(output.key, output.value)
    call = GuardedCall(ToolRegistration(name=tool), args, "s", "w4")
    for user, asked in (("ada", True), ("eve", False)):
        assert (view.trust("w4", call.trust_keys, user) is not None) is asked


def test_a_command_that_works_again_demotes() -> None:
    """In one of three workspaces; its neighbours behind the same shell were never meant."""
    story = Story(user="ada")
    for workspace in ("w1", "w2", "w3"):
        story.moved(workspace=workspace).fails("bash", {"command": "terraform apply"}, times=6)
        story.works("bash", {"command": "ls"}, times=9)
    story.works("bash", {"command": "terraform apply"}, times=3)
    moved = [(one["key"], one["to"]) for one in story.all("trust.changed", scope="user")]
    assert moved == [("bash|command=terraform", "escalated"), ("bash|command=terraform", "trusted")]
    assert story.public("trust:user:ada\x1fbash|command=terraform") is None
