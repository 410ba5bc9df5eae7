"""What the tool stage tells the fleet: little, and enough."""

from __future__ import annotations

import msgspec
import pytest
from story import Story
from trustfold.projections.tool.tool_state import MAX_USERS
from trustfold.schemas.standings import Standing, ToolStanding


def standings(story: Story, subject: str = "") -> list[ToolStanding]:
    """Everything told of tools as a whole, or of another key, in order."""
    told = [
        msgspec.json.decode(output.value, type=Standing)
        for output in story.outputs
        if output.topic == "standings" and output.value
    ]
    return [one for one in told if isinstance(one, ToolStanding) and one.subject == subject]


def said(story: Story) -> list[tuple[str, int, int]]:
    """State, calls and failures of each standing."""
    return [(str(one.state), one.calls, one.failures) for one in standings(story)]


def test_a_trusted_tool_tells_nothing() -> None:
    """Not with success, not with failures below the threshold, however many calls there are."""
    story = Story(user="ada").works("deploy", times=30).fails("deploy", times=2).works("deploy", times=30)
    assert standings(story) == []


def test_a_tool_that_lost_trust_tells_its_steps() -> None:
    """The loss with the calls before it; when the counts begin to mean something; each tenth of the rate after that."""
    story = Story(user="ada").works("deploy").fails("deploy", times=3)
    assert said(story) == [("escalated", 4, 3)]
    story.fails("deploy")
    assert said(story)[1:] == [("escalated", 5, 4)]
    story.fails("deploy", times=3)
    assert said(story)[2:] == [], "from 80 % to 88 % is no news"
    story.works("deploy", times=2)
    assert said(story)[2:] == [("escalated", 10, 7)]


def test_the_end_is_told_twice() -> None:
    """Once when it comes, with clean counts, and again with the first call some minutes later; then no more."""
    story = Story(user="ada").fails("deploy", times=3)
    story.command("trust.reset", "tool:deploy")
    assert said(story)[-1] == ("trusted", 0, 0)
    before = len(said(story))
    story.works("deploy", times=3)
    assert len(said(story)) == before
    story.after(minutes=11).works("deploy", times=3).after(minutes=11).works("deploy", times=3)
    assert said(story)[before:] == [("trusted", 4, 0)]


def test_calls_leave_the_window() -> None:
    """What failed more than an hour ago is no part of the counts."""
    story = Story(user="ada").works("deploy", times=9).after(minutes=40).fails("deploy", times=3)
    assert said(story) == [("escalated", 12, 3)]
    story.after(minutes=30).fails("deploy")
    assert said(story)[-1] == ("escalated", 4, 4)
    story.after(minutes=600).fails("deploy")
    assert said(story)[-1] == ("escalated", 1, 1)


def test_only_what_the_rule_counts_is_counted() -> None:
    """Refusals, cancellations and failures outside the filter are neither calls nor failures here."""
    story = Story(user="ada")
    story.fails("deploy", with_="transient").fails("deploy", with_="", status="cancelled").works("deploy")
    story.fails("deploy", times=3)
    assert said(story) == [("escalated", 4, 3)]


def test_services_and_commands_tell_of_themselves() -> None:
    """A service as a whole, and a command of a shell; a path of a service tells nothing."""
    story = Story(user="ada").fails("http_request", {"url": "https://a.example/x"}, http_status=503, times=3)
    story.fails("bash", {"command": "terraform apply"}, times=3)
    assert [one.failures for one in standings(story, "service:a.example")] == [3]
    assert [one.failures for one in standings(story, "bash|command=terraform")] == [3]
    assert standings(story, "http_request|domain=a.example|path_prefix=/x") == []


@pytest.mark.parametrize("order", ["trust.reset", "trust.recover"])
def test_an_order_about_a_fine_key_leaves_the_tool(order: str) -> None:
    """The tool as a whole stays where it is, and its counts too."""
    story = Story(user="ada")
    for command in ("git pull", "npm test", "make all", "make all"):
        story.fails("bash", {"command": command})
    before = said(story)
    story.command(order, "bash|command=make")
    assert said(story) == before
    story.fails("bash", {"command": "make all"})
    assert said(story)[-1] == ("escalated", 5, 5)


def test_whoever_was_told_of_the_trouble_hears_of_its_end() -> None:
    """With more users than are remembered, newcomers do not push out those who were told."""
    story = Story()
    for number in range(MAX_USERS + 3):
        story.moved(user=f"u{number}", session=f"s{number}").fails("deploy")
    told = {one.user_id for one in standings(story)}
    assert len(told) == MAX_USERS
    story.command("trust.reset", "tool:deploy")
    assert {one.user_id for one in standings(story) if one.state == "trusted"} == told


def test_places_in_the_log_rise() -> None:
    """What one partition of one topic makes the stage tell rises in its origin, so that repeats can be told."""
    story = Story(user="ada").fails("deploy", times=6)
    story.command("trust.reset", "tool:deploy")
    story.fails("deploy", times=6)
    story.command("trust.reset", "tool:deploy")
    spaces: dict[str, list[int]] = {}
    for one in standings(story):
        spaces.setdefault(one.space, []).append(one.origin)
    assert set(spaces) == {"outcomes/0", "commands/0"}
    for origins in spaces.values():
        assert origins == sorted(set(origins))
