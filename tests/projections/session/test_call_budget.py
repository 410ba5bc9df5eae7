"""Calls in one turn (docs/detection.md)."""

from __future__ import annotations

from fixed_rules import BehaviourRules, NudgeRules, Rules
from story import Story
from trustfold.rules.rules import SeverityLadder

SMALL = Rules(behaviour=BehaviourRules(call_budget=SeverityLadder(minor=4, moderate=6, severe=8)))


def busy(story: Story, calls: int, *, tool: str = "consult", start: int = 0) -> Story:
    """That many calls, each with news."""
    for number in range(start, start + calls):
        story.works(tool, {"q": f"q{number}"}, result=str(number))
    return story


def test_calls_in_all_and_of_each_tool() -> None:
    """Reported at each step only, not at every call after it."""
    story = Story(rules=SMALL)
    story.turn_starts()
    busy(story, 3)
    busy(story, 6, tool="run_job")
    assert story.found("call_budget") == [("minor", 4), ("moderate", 6), ("minor", 4), ("severe", 8), ("moderate", 6)]


def test_it_is_told_to_the_person_and_not_to_the_model() -> None:
    """Long turns of honest work exist; a policy of the operator may tell the model all the same."""
    story = busy(Story(rules=SMALL), 9)
    assert {one["notify_user"] for one in story.all("pattern.detected")} == {True}
    assert "4 calls in one turn" in story.all("pattern.detected")[0]["message"]
    assert story.nudges() == []
    told = Rules(behaviour=SMALL.behaviour, nudges=NudgeRules(texts={"call_budget.minor": "{count} calls are enough."}))
    assert busy(Story(rules=told), 4).decided("nudge.issued")["message"] == "4 calls are enough."


def test_a_new_turn_has_a_new_budget() -> None:
    """And the one before is over."""
    story = Story(rules=SMALL)
    for turn in range(3):
        story.turn_starts()
        busy(story, 3, start=turn * 10)
    assert story.patterns() == []
    busy(story, 1, start=99)
    story.turn_starts()
    assert story.cleared() == ["call_budget", "call_budget"]


def test_without_turns_the_user_starts_them() -> None:
    """Three calls, a user message, three calls."""
    story = busy(Story(rules=SMALL), 3)
    story.user_says()
    assert busy(story, 3, start=9).patterns() == []


def test_it_outlasts_the_window_and_progress() -> None:
    """Only the end of the turn ends it."""
    story = busy(Story(rules=SMALL), 60)
    story.works("edit_file", {"path": "/a", "text": 1})
    assert story.cleared() == []


def test_what_is_remembered_of_tools_is_bounded() -> None:
    """A session that calls two hundred tools still counts them in all."""
    story = Story(rules=SMALL)
    for number in range(200):
        story.works(f"tool_{number}", {"q": number}, result=str(number))
    assert len(story.state().tools) == 64
    assert story.state().detectors.call_budget.calls == 200
