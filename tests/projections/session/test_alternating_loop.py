"""Cycles of steps that repeat (docs/detection.md)."""

from __future__ import annotations

import orjson
import pytest
from fixed_rules import BehaviourRules
from story import Story
from trustfold.rules.rules import SeverityLadder


def circle(laps: int, *, story: Story | None = None) -> Story:
    """Two queries in turn, with the same results each time."""
    story = story or Story()
    for _ in range(laps):
        story.works("query_db", {"q": 1}, result="one").works("query_db", {"q": 2}, result="two")
    return story


@pytest.mark.parametrize("period", [2, 3, 4, 5, 6])
def test_cycles_of_two_to_six_calls(period: int) -> None:
    """Three laps of any short cycle with the same results."""
    story = Story()
    for _ in range(3):
        for number in range(period):
            story.works("query_db", {"q": number}, result=f"r{number}")
    assert story.found("alternating_loop") == [("minor", 3)]


def test_it_rises_at_three_four_and_six_laps() -> None:
    """The sixth lap may stop the run."""
    story = circle(6)
    assert story.found("alternating_loop") == [("minor", 3), ("moderate", 4), ("severe", 6)]
    assert story.nudges()[-1] == ("alternating_loop", "interrupt")


def test_edits_that_undo_each_other_are_a_cycle() -> None:
    """Each of them is an action, and nothing is won."""
    story = Story()
    for _ in range(4):
        story.works("edit_file", {"path": "/a", "old": "x", "new": "y"}, result="edited")
        story.works("edit_file", {"path": "/a", "old": "y", "new": "x"}, result="edited")
    assert story.found("alternating_loop") == [("minor", 3), ("moderate", 4)]


def test_a_wait_in_the_cycle_makes_it_a_look_from_time_to_time() -> None:
    """Whether a line that waits, or something that woke the model."""
    for wait in ("sleep", "timer"):
        story = Story()
        for _ in range(9):
            story.works("query_db", {"q": 1}, result="one").works("query_db", {"q": 2}, result="two")
            story.works("bash", {"command": "sleep 60"}, result="") if wait == "sleep" else story.is_woken("timer")
        assert story.found("alternating_loop") == [], wait


def test_the_evidence_of_a_cycle_is_all_of_it() -> None:
    """Every call of the laps told, the one that completed them last."""
    story = circle(3)
    told = story.decided("pattern.detected", pattern="alternating_loop")
    finishes = [
        record["id"] for _, value in story.records if (record := orjson.loads(value))["type"].endswith("finished")
    ]
    assert told["caused_by"] == finishes
    assert told["tool_sequence"] == ["query_db"] * 6


def test_a_cycle_takes_at_least_two_laps() -> None:
    """With one lap any two calls would be a loop; such a rule is refused."""
    with pytest.raises(ValueError, match="2 laps"):
        BehaviourRules(alternating_loop=SeverityLadder(minor=1, moderate=2, severe=3))


def test_one_call_repeated_is_no_cycle() -> None:
    """AAAAAA is repetition, and only that."""
    assert Story().works("query_db", {"q": 1}, times=12).found("alternating_loop") == []


def test_a_cycle_with_changing_results_is_progress() -> None:
    """The same calls in turn, with news each time, are no loop."""
    story = Story()
    for lap in range(6):
        for number in range(2):
            story.works("query_db", {"q": number}, result=f"lap {lap}")
    assert story.patterns() == []


def test_a_step_out_of_the_cycle_ends_it_although_it_fails() -> None:
    """Trying something else breaks the cycle; it begins to count anew."""
    story = circle(3)
    assert "alternating_loop" not in story.cleared()
    story.fails("query_db", {"q": 3})
    assert "alternating_loop" in story.cleared()


@pytest.mark.parametrize("last", ["success", "cancelled"])
def test_a_batch_counts_whoever_finishes_last(last: str) -> None:
    """A neutral call at the end of a parallel batch does not hide the cycle."""
    story = Story()
    for _ in range(3):
        calls = [story.started("foo", {"a": 1}), story.started("bar", {"b": 1})]
        story.finished(calls[0], "foo")
        story.finished(calls[1], "bar", status=last, result=None if last == "cancelled" else "ok")
        story.works("baz", {"c": 1})
    assert story.found("alternating_loop") == [("minor", 3)]


def test_equal_calls_in_a_batch_do_not_cancel_out() -> None:
    """Batches of two equal calls with new arguments each time are no cycle."""
    story = Story()
    for lap in range(4):
        calls = [story.started("foo", {"lap": lap}), story.started("foo", {"lap": lap, "x": 1})]
        for call in calls:
            story.finished(call, "foo", result="same")
        story.works("baz", {"c": 1})
    assert story.found("alternating_loop") == []
