"""Looks at the tools that bring nothing new, and plans that are written again unchanged (docs/detection.md)."""

from __future__ import annotations

from story import Story

# --- introspection_loop -------------------------------------------------------------------------------------------


def test_looks_at_the_tools_without_news() -> None:
    """Three, five and eight of them; different tools count together, whatever their arguments."""
    story = Story()
    for number in range(8):
        story.works("list_tools" if number % 2 else "get_tool_schemas", {"n": number}, result="the same old tools")
    assert story.found("introspection_loop") == [("minor", 3), ("moderate", 5), ("severe", 8)]


def test_looks_that_bring_news_are_work() -> None:
    """A catalogue of thirty tools is read one schema after another."""
    story = Story()
    for number in range(30):
        story.works("get_tool_schemas", {"n": number}, result=f"schema of tool {number}")
    assert story.patterns() == []


def test_any_other_call_ends_them() -> None:
    """Whatever comes of it."""
    story = Story().works("list_tools", result="the same", times=3).fails("run_step", {"n": 1})
    assert "introspection_loop" in story.cleared()
    assert story.works("list_tools", result="the same", times=2).found("introspection_loop") == [("minor", 3)]


def test_equal_looks_are_named_twice_and_nudged_once() -> None:
    """They are repetition, too; neither detector hides the other, and the first in the table speaks."""
    story = Story().works("list_tools", {}, result="same", times=3)
    assert {name for name, _, _ in story.patterns()} == {"introspection_loop", "repetitive_calls"}
    assert story.nudges() == [("repetitive_calls", "gentle")]


# --- planning_loop ------------------------------------------------------------------------------------------------


def test_a_plan_written_again_unchanged() -> None:
    """Three, five and eight times, whatever is read between."""
    story = Story()
    for number in range(8):
        story.works("TodoWrite", {"todos": ["fix it"]}, result=f"saved {number}")
        story.works("read_file", {"path": f"/{number}"}, result=f"text {number}")
    assert story.found("planning_loop") == [("minor", 3), ("moderate", 5), ("severe", 8)]


def test_plans_that_change_are_work() -> None:
    """A list whose marks move, and thoughts that go on."""
    story = Story()
    for number in range(20):
        story.works("TodoWrite", {"todos": ["fix it"], "done": number}, result="saved")
        story.works("think", {"thought": f"step {number}"}, result="ok")
    assert story.patterns() == []


def test_a_step_of_the_plan_or_another_plan_clears_it() -> None:
    """An action is what the plan is for."""
    for breaks in ("action", "change"):
        story = Story().works("TodoWrite", {"todos": ["fix it"]}, result="saved", times=3)
        if breaks == "action":
            story.works("edit_file", {"path": "/a"})
        else:
            story.works("TodoWrite", {"todos": ["do it in another way"]}, result="saved")
        assert "planning_loop" in story.cleared(), breaks
