"""Calls to tools that do not exist (docs/detection.md)."""

from __future__ import annotations

from story import Story

MISSING = "Error: No such tool available"


def test_calls_to_tools_that_do_not_exist() -> None:
    """Three, five and ten, whatever the arguments."""
    story = Story()
    for number in range(10):
        story.fails("exec", {"c": number}, message="Tool exec not found")
    assert story.found("unknown_tool") == [("minor", 3), ("moderate", 5), ("severe", 10)]


def test_made_up_names_count_together_and_real_calls_may_lie_between() -> None:
    """A model that makes up every second tool has not understood what it can do."""
    story = Story()
    for number in range(3):
        story.fails(f"tool_{number}", message=f"{MISSING}: tool_{number}")
        story.works("read_file", {"path": f"/{number}"}, result=str(number))
    assert story.found("unknown_tool") == [("minor", 3)]
    assert story.decided("pattern.detected")["tool_sequence"] == ["tool_0", "tool_1", "tool_2"]


def test_slips_far_apart_are_no_pattern() -> None:
    """More than a window of steps between two of them starts the count afresh."""
    story = Story()
    for slip in range(4):
        story.fails("exec", {"c": slip}, message="Tool exec not found")
        for number in range(31):
            story.works("query_db", {"slip": slip, "q": number}, result=f"{slip} {number}")
    assert story.found("unknown_tool") == []


def test_an_answer_in_the_result_is_understood() -> None:
    """MCP servers that answer with `isError` and a text."""
    story = Story()
    for number in range(3):
        call = story.started("mcp__db__rows", {"n": number})
        answer = {"isError": True, "content": [{"type": "text", "text": "Unknown tool: rows"}]}
        story.finished(call, "mcp__db__rows", result=answer)
    assert story.found("unknown_tool") == [("minor", 3)]


def test_the_nudge_about_a_missing_tool_goes_before_the_one_about_retrying_it() -> None:
    """That there is no such tool is the more useful thing to say."""
    story = Story().fails("exec", {"c": 1}, message="Tool exec not found", times=3)
    assert {name for name, _, _ in story.patterns()} >= {"unknown_tool", "error_retry_loop"}
    assert story.nudges() == [("unknown_tool", "gentle")]
    assert "exec" in story.decided("nudge.issued")["message"]


def test_calls_that_the_client_rejected_for_their_name_count() -> None:
    """They never ran, and the model has to hear of it."""
    story = Story()
    for number in range(3):
        call = story.started("exec", {"c": number})
        story.finished(call, "exec", status="rejected", result=None, error={"message": "Tool exec not found"})
    assert story.found("unknown_tool") == [("minor", 3)]
    assert story.all("trust.changed") == []
