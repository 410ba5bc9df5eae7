"""Tools whose calls fail with other arguments: the same way, or in ever new ways (docs/detection.md)."""

from __future__ import annotations

import pytest
from story import Story


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


def test_what_the_error_repeats_of_the_arguments_is_no_other_error() -> None:
    """An error that quotes the path is the same error for every path."""
    story = Story()
    for name in "alpha beta gamma delta epsilon".split():
        story.fails("open_ticket", {"name": name}, message=f"{name} is no known queue")
    assert story.found("same_error_loop") == [("minor", 5)]


def test_searches_that_find_nothing_have_not_failed() -> None:
    """That there is no such file is an answer."""
    story = Story()
    for number in range(12):
        story.fails("read_file", {"path": f"/src/{number}.py"}, with_="not_found", message="no such file")
    assert story.found("same_error_loop") == []


def test_it_never_stops_a_run() -> None:
    """Its third step is for the person."""
    story = queries_fail(Story(), 40)
    assert {kind for pattern, kind in story.nudges() if pattern == "same_error_loop"} == {"gentle", "direct"}
    assert story.decided("pattern.detected", pattern="same_error_loop", severity="severe")["notify_user"]


# --- failure_streak -----------------------------------------------------------------------------------------------


def fumbles(story: Story, times: int, *, start: int = 0, tool: str = "sql_execute") -> Story:
    """Other arguments and another error each time."""
    words = "column table index schema view trigger sequence role cursor type".split()
    for number in range(start, start + times):
        story.fails(tool, {"q": number}, message=f"unknown {words[number % len(words)]}")
    return story


def test_failures_in_a_row_whatever_the_error() -> None:
    """Six and nine of one tool."""
    assert fumbles(Story(), 20).found("failure_streak") == [("minor", 6), ("moderate", 9)]


@pytest.mark.parametrize(
    ("tool", "result"), [("sql_execute", "rows"), ("write_file", "written"), ("compute", "a value")], ids=str
)
def test_a_success_of_the_tool_or_progress_of_another_ends_a_streak(tool: str, result: str) -> None:
    """The tool works, the model acts elsewhere, or something of unknown effect has happened."""
    story = fumbles(Story(), 6).works(tool, {"n": 1}, result=result)
    assert "failure_streak" in story.cleared()
    assert fumbles(story, 5, start=20).found("failure_streak") == [("minor", 6)]


def test_reading_between_failures_is_no_progress() -> None:
    """Whoever reads on and fails on is still stuck."""
    story = Story()
    for number in range(6):
        fumbles(story, 1, start=number).works("read_file", {"path": f"/{number}"}, result=f"text {number}")
    assert story.found("failure_streak") == [("minor", 6)]


def test_another_tool_has_a_streak_of_its_own() -> None:
    """Five failures each are two short streaks."""
    story = Story()
    for number in range(5):
        fumbles(story, 1, start=number)
        fumbles(story, 1, start=number, tool="send_mail")
    assert story.found("failure_streak") == []


def test_a_batch_that_fails_together_is_one_failure() -> None:
    """Its calls knew nothing of one another."""
    story = Story()
    calls = [story.started("sql_execute", {"n": number}) for number in range(9)]
    for number, call in enumerate(calls):
        story.finished(call, "sql_execute", status="error", result=None, error={"message": f"error {number} of it"})
    assert story.found("failure_streak") == []


def test_waits_and_expected_failures_are_no_failures() -> None:
    """A line that waits is a poll; a failure that the publisher expected is an answer."""
    story = Story()
    for number in range(9):
        story.fails("bash", {"command": f"sleep 9; curl -f http://localhost:{number}/"}, message=f"refused {number}")
        story.fails("sql_execute", {"n": number}, message=f"nothing {number}", expected_failure=True)
    assert story.found("failure_streak") == []


def test_calls_that_the_client_rejected_are_failures_of_the_model() -> None:
    """Counted here, and nowhere else."""
    story = Story()
    for number in range(6):
        call = story.started("edit_file", {"n": number})
        error = {"message": f"argument {'abcdef'[number]} does not fit"}
        story.finished(call, "edit_file", status="rejected", result=None, error=error)
    assert story.found("failure_streak") == [("minor", 6)]
    assert story.all("trust.changed") == []


def test_a_user_message_ends_a_streak_of_failures() -> None:
    """What the user says may be the help."""
    story = fumbles(Story(), 5)
    story.user_says()
    assert fumbles(story, 5, start=20).found("failure_streak") == []


def test_a_changed_workspace_ends_it() -> None:
    """The user edits while the agent runs the type check: its failures show another state each time."""
    story = Story()
    for number in range(8):
        story.fails(
            "bash", {"command": f"tsc -p {number}"}, message=f"error {number}", workspace_digest=f"state {number}"
        )
    assert story.found("failure_streak") == []
    assert Story().fails("bash", {"command": "tsc"}, times=8, workspace_digest="one state").found("failure_streak")


def test_tools_that_fail_with_the_same_message_count_together() -> None:
    """One cause behind several tools; a success of any of them, or a short message, tells otherwise."""
    tools = ["web_search", "web_fetch", "web_extract"]

    def told(message: str, *, works: bool = False) -> Story:
        story = Story()
        for number in range(6):
            story.fails(tools[number % 3], {"q": f"q{number}"}, message=message)
            if works and number == 3:
                story.works("web_fetch", {"q": "else"})
        return story

    story = told("crawler API error: insufficient credits")
    assert story.found("same_error_loop") == [("minor", 5)]
    assert story.decided("nudge.issued")["message"].startswith("5 calls of different tools have failed the same way")
    assert told("crawler API error: insufficient credits", works=True).patterns() == []
    assert told("failed").found("same_error_loop") == []


@pytest.mark.parametrize(
    ("line", "edits"),
    [
        ("sed -i s/a{}/b/ m.py && pytest -q", True),
        ("cat > m.py <<'EOF'\nx = {}\nEOF\npython m.py", True),
        ("mkdir -p out{} && pytest -q", False),
        ("pytest -q m{}.py 2>&1 | tee out.log", False),
    ],
)
def test_a_line_that_edits_before_it_fails_is_another_try(line: str, edits: bool) -> None:
    """Edit and test in one command is work as in two."""
    story = Story()
    for number in range(8):
        story.fails("bash", {"command": line.format(number)}, message="1 failed: assert 3 == 3.5")
    assert (story.patterns() == []) is edits


def test_a_cancelled_edit_of_the_same_tool_ends_it() -> None:
    """Edits by the shell whose end nobody reported, and tests by the shell."""
    story = Story()
    for number in range(8):
        edit = {"command": f"patch -p1 < {number}.diff"}
        story.finished(story.started("bash", edit), "bash", status="cancelled")
        story.fails("bash", {"command": "pytest -q"}, message="1 failed")
    assert story.patterns() == []
