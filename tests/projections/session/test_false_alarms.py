"""`feedback.false_alarm`: the model is left alone, the count is kept (docs/design/semantics.md#nudges)."""

from __future__ import annotations

import pytest
from story import Story

CALL = ("consult", {"about": "a"})


def nudged() -> Story:
    """A session with one gentle nudge."""
    return Story().works(*CALL, result="same", times=3)


def test_a_false_alarm_is_not_nudged_again() -> None:
    """Its pattern is still reported, for history; the model is left alone about it."""
    story = nudged()
    story.objects(story.decided("nudge.issued")["id"])
    story.works(*CALL, result="same", times=6)
    assert story.found("repetitive_calls") == [("minor", 3), ("moderate", 4), ("severe", 6)]
    assert story.nudges() == [("repetitive_calls", "gentle")]


def test_it_stays_so_for_the_session() -> None:
    """Through a user message and a new streak; another call is another matter."""
    story = nudged()
    story.objects(story.decided("nudge.issued")["id"])
    story.user_says()
    story.works(*CALL, result="same", times=4)
    story.works("consult", {"about": "b"}, result="same", times=3)
    assert story.nudges() == [("repetitive_calls", "gentle"), ("repetitive_calls", "gentle")]


def test_another_pattern_of_the_same_event_may_speak() -> None:
    """What was silenced hides nothing."""
    story = Story().works("list_tools", result="same", times=3)
    story.objects(story.decided("nudge.issued")["id"])
    story.works("list_tools", result="same")
    assert story.nudges() == [("repetitive_calls", "gentle"), ("introspection_loop", "gentle")]


def test_it_is_counted_by_pattern_and_tool() -> None:
    """Once per nudge, however often it is said."""
    story = nudged()
    first = story.decided("nudge.issued")["id"]
    story.objects(first)
    story.objects(first)
    story.works("consult", {"about": "b"}, result="same", times=3)
    story.objects(story.decided("nudge.issued")["id"])
    assert [(one.pattern, one.tool_name, one.count) for one in story.state().feedback.false_alarms] == [
        ("repetitive_calls", "consult", 2)
    ]


def test_whether_a_wrong_nudge_helped_is_not_judged() -> None:
    """There was nothing to help."""
    story = nudged()
    story.objects(story.decided("nudge.issued")["id"])
    for number in range(9):
        story.works("query_db", {"q": number}, result=str(number))
    assert story.all("nudge.judged") == []


def test_a_report_may_be_objected_to_where_nudges_are_off() -> None:
    """By the id of the open pattern."""
    story = Story()
    story.event("session.settings_changed", settings={"nudge_level": "off"})
    story.works(*CALL, result="same", times=3)
    story.objects(story.decided("pattern.detected")["id"])
    story.event("session.settings_changed", settings={"nudge_level": "full"})
    assert story.works(*CALL, result="same", times=3).nudges() == []


@pytest.mark.parametrize("output", ["never-seen", "00000000-0000-8000-8000-000000000000"])
def test_unknown_outputs_change_nothing(output: str) -> None:
    """Escalations are known to the tool stage, and old nudges to history."""
    story = nudged()
    story.objects(output)
    assert story.works(*CALL, result="same").nudges() == [
        ("repetitive_calls", "gentle"),
        ("repetitive_calls", "direct"),
    ]
    assert story.state().feedback.false_alarms == []


def test_what_is_remembered_is_bounded() -> None:
    """A platform that objects to everything."""
    story = Story()
    for number in range(50):
        story.works(f"consult_{number}", {"about": "a"}, result="same", times=3)
        story.objects(story.decided("nudge.issued")["id"])
    state = story.state()
    assert len(state.feedback.false_alarms) == len(state.feedback.muted) == 32
    assert state.feedback.issued == []
