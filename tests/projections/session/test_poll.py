"""Unchanged looks of a waiting kind, judged by their pace (docs/detection.md)."""

from __future__ import annotations

from typing import Any

import pytest
from fixed_rules import BehaviourRules, Rules
from story import Story

LINE = ("bash", {"command": "sleep 5; gh pr checks 7"})
TOOL = ("process", {"action": "poll", "id": 1})


def looks(story: Story, times: int, *, every: float, look: tuple[str, dict[str, Any]] = TOOL) -> Story:
    """Unchanged looks at a pace in seconds."""
    for _ in range(times):
        story.after(every - 4).works(*look, result="still running")
    return story


@pytest.mark.parametrize(
    "look", [LINE, TOOL, ("write_stdin", {"session": 1, "chars": ""})], ids=["line", "tool", "write"]
)
def test_fast_looks_are_counted(look: tuple[str, dict[str, Any]]) -> None:
    """Ten and twenty of them, and no repetition beside; the model is told to wait longer, and never paused."""
    story = looks(Story(), 40, every=4, look=look)
    assert story.patterns() == [("poll", "minor", 10), ("poll", "moderate", 20)]
    assert {kind for _, kind in story.nudges()} == {"gentle", "direct"}
    assert not story.decided("pattern.detected", severity="minor").get("notify_user")


def test_patient_looks_are_judged_by_time_alone() -> None:
    """Half an hour unchanged is told to the person, once, and never to the model."""
    assert looks(Story(), 29, every=60).patterns() == []
    story = looks(Story(), 120, every=60)
    assert [pattern for pattern, *_ in story.patterns()] == ["poll"]
    told = story.decided("pattern.detected")
    assert told["notify_user"]
    assert "not changed" in told["message"]
    assert story.nudges() == []


def test_a_change_ends_it() -> None:
    """And the looks count anew."""
    story = looks(Story(), 10, every=4).works(*TOOL, result="finished")
    assert story.cleared() == ["poll"]
    assert looks(story, 9, every=4).found("poll") == [("minor", 10)]


def test_a_number_that_moves_is_a_change() -> None:
    """A job that counts is alive."""
    story = Story()
    for number in range(50):
        story.works(*TOOL, result=f"{number} of 50 done")
    assert story.patterns() == []


def test_looks_that_fail_are_polls_too() -> None:
    """A server that is not up yet: ten fast looks, and no retry beside."""
    story = Story().fails(*LINE, with_="", message="checks pending", times=10)
    assert story.patterns() == [("poll", "minor", 10)]


def test_a_look_with_a_wait_between_is_a_poll() -> None:
    """Sleep, look, sleep, look: no repetition and no cycle."""
    story = Story()
    for _ in range(30):
        story.after(60).works("bash", {"command": "sleep 60"}, result="")
        story.works("job_state", {"id": 7}, result="running")
    assert {pattern for pattern, *_ in story.patterns()} <= {"poll"}
    assert story.nudges() == []


def test_a_line_that_only_waits_is_no_look() -> None:
    """Sleeping often is patience."""
    assert looks(Story(), 60, every=60, look=("bash", {"command": "sleep 55"})).patterns() == []


def test_an_action_ends_it() -> None:
    """Something was done meanwhile."""
    story = looks(Story(), 10, every=4).works("edit_file", {"path": "/a"})
    assert story.cleared() == ["poll"]


def test_looks_of_one_batch_are_one() -> None:
    """Three looks in a message, three times."""
    story = Story()
    for number in range(4):
        for _ in range(3):
            call = story.started(*TOOL, message_id=f"m{number}")
            story.finished(call, "process", result="still running")
    assert story.patterns() == []


def test_the_pace_is_the_rules() -> None:
    """Whoever polls a fast machine sets another."""
    rules = Rules(behaviour=BehaviourRules(fast_poll_seconds=2.0, slow_poll_seconds=60.0))
    story = looks(Story(rules=rules), 30, every=4)
    assert len(story.found("poll")) == 1
    assert story.nudges() == []


def test_patient_looks_of_any_kind_are_polls() -> None:
    """Who lets a minute pass before the same look waits, whatever the look is; a model may think for half of one."""
    look = ("bash", {"command": "docker ps"})
    assert looks(Story(), 25, every=65, look=look).patterns() == []
    assert looks(Story(), 3, every=16, look=look).patterns() == [("repetitive_calls", "minor", 3)]
    assert looks(Story(), 19, every=30, look=look).patterns() == []
    assert looks(Story(), 29, every=30, look=look).patterns() == [("repetitive_calls", "minor", 20)]


def test_looks_in_turn_with_a_wait_in_each_round_are_no_second_reading() -> None:
    """A slow deployment is looked at from three sides."""
    story = Story()
    for _ in range(12):
        story.after(40).works("bash", {"command": "sleep 40; kubectl get pods"}, result="web-0 0/1 Pending")
        story.works("bash", {"command": "kubectl get events"}, result="Warning FailedScheduling: no node fits")
        story.works("bash", {"command": "kubectl get nodes"}, result="n1 Ready\nn2 NotReady")
    assert story.patterns() == []
