"""The same error with other arguments, and tools that do not exist (docs/detection.md)."""

from __future__ import annotations

from story import Story

MISSING = "Error: No such tool available"


def queries_fail(story: Story, times: int, *, start: int = 0, message: str = "no such table: orders") -> Story:
    """Different queries, one error."""
    for number in range(start, start + times):
        story.fails("sql_execute", {"q": number}, message=message)
    return story


# --- same_error_loop ----------------------------------------------------------------------------------------------


def test_one_error_whatever_the_arguments() -> None:
    """Five, eight and twelve different calls that fail the same way."""
    story = queries_fail(Story(), 13)
    assert story.found("same_error_loop") == [("minor", 5), ("moderate", 8), ("severe", 12)]


def test_a_success_of_the_tool_ends_it() -> None:
    """The count starts afresh, and what was reported is cleared."""
    story = queries_fail(Story(), 5).works("sql_execute", {"q": "good"})
    assert "same_error_loop" in story.cleared()
    assert queries_fail(story, 4, start=20).found("same_error_loop") == [("minor", 5)]


def test_a_success_of_another_tool_does_not() -> None:
    """Looking elsewhere, even writing elsewhere, does not make the tool work."""
    story = queries_fail(Story(), 4).works("write_file", {"path": "/notes"})
    assert queries_fail(story, 1, start=20).found("same_error_loop") == [("minor", 5)]


def test_another_error_starts_another_streak() -> None:
    """Different errors are diagnosis."""
    story = Story()
    for number in range(12):
        story.fails("sql_execute", {"q": number}, message=f"no such table: t{number % 2}")
    assert story.found("same_error_loop") == []


def test_the_same_call_again_counts_once() -> None:
    """Unchanged retries are another pattern's."""
    story = Story().fails("sql_execute", {"q": 1}, times=9)
    assert story.found("same_error_loop") == []
    assert story.found("error_retry_loop") != []


def test_a_parallel_batch_that_fails_together_is_one_step() -> None:
    """A dozen edits whose server went away have not been tried a dozen times."""
    story = Story()
    calls = [story.started("edit_file", {"n": number}) for number in range(12)]
    for call in calls:
        story.finished(call, "edit_file", status="error", result=None, error={"message": "gone"})
    assert story.found("same_error_loop") == []


def test_expected_failures_say_nothing() -> None:
    """A search without a match is an answer."""
    story = Story()
    for number in range(9):
        story.fails("grep", {"pattern": number}, message="exit 1", expected_failure=True)
    assert story.found("same_error_loop") == []


def test_a_user_message_ends_the_streak() -> None:
    """Four failures, the user speaks, four failures: nothing."""
    story = queries_fail(Story(), 4)
    story.user_says()
    assert queries_fail(story, 4, start=9).found("same_error_loop") == []


# --- unknown_tool -------------------------------------------------------------------------------------------------


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
