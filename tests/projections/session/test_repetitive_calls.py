"""The same call with the same result (docs/detection.md)."""

from __future__ import annotations

import pytest
from fixed_rules import Rules
from story import Story
from trustfold.rules.rules import ToolRules

READ = ("read_file", {"path": "/src/a.py"})


def test_same_call_same_result_rises_at_three_four_and_six() -> None:
    """One open pattern whose severity rises, not one detection per call."""
    story = Story().works(*READ, result="same", times=7)
    assert story.found("repetitive_calls") == [("minor", 3), ("moderate", 4), ("severe", 6)]


def test_with_news_between_it_holds_a_step_later() -> None:
    """Four, five and seven: a model that learns something between two equal looks may well have a reason."""
    story = Story()
    for number in range(7):
        story.works(*READ, result="same").works("fetch_row", {"n": number}, result=f"row {number}")
    assert story.found("repetitive_calls") == [("minor", 4), ("moderate", 5), ("severe", 7)]


def test_with_unknown_effects_between_it_is_a_hint() -> None:
    """A program that ran between may have changed what is asked about: six times, a hint, and never more."""
    story = Story()
    for number in range(20):
        story.works(*READ, result="same").works("compute", {"n": number}, result=f"value {number}")
    assert story.found("repetitive_calls") == [("minor", 6)]
    assert set(story.nudges()) == {("repetitive_calls", "gentle")}
    assert {one["severity"] for one in story.all("nudge.issued")} == {"minor"}


def test_steps_outside_of_the_window_are_forgotten() -> None:
    """Once in a long while is no loop."""
    story = Story()
    for look in range(6):
        story.works(*READ, result="same")
        for number in range(30):
            story.works("fetch_row", {"look": look, "n": number}, result=f"row {look} {number}")
    assert story.patterns() == []


def test_a_changed_result_is_progress() -> None:
    """A counter that moves is news, however often it is read."""
    story = Story()
    for number in range(20):
        story.works("job_state", {"id": 7}, result=f"{number} of 20 done")
    assert story.patterns() == []


def test_another_result_ends_it() -> None:
    """The next streak is new."""
    story = Story().works(*READ, result="same", times=3).works(*READ, result="other")
    assert story.cleared() == ["repetitive_calls"]


def test_an_action_ends_it() -> None:
    """Read, edit, read: each look is at something else."""
    story = Story()
    for number in range(9):
        story.works(*READ, result="the text that is edited", times=2).works("edit_file", {"path": "/x", "n": number})
    assert story.patterns() == []


def test_an_action_that_is_repeated_is_no_progress() -> None:
    """The same edit with the same answer has changed nothing since the first."""
    story = Story().works("edit_file", {"path": "/x", "old": "a", "new": "b"}, result="edited", times=6)
    assert story.found("repetitive_calls") == [("minor", 3), ("moderate", 4), ("severe", 6)]


def test_volatile_parts_do_not_hide_a_loop() -> None:
    """Times, durations, process ids and UUIDs are no news."""
    story = Story()
    for number in range(4):
        story.works(
            "exec_query", {"q": 1}, result=f"no rows ({number}.5 ms) pid {900 + number} at 2026-01-05T10:00:0{number}Z"
        )
    assert story.found("repetitive_calls") == [("minor", 3), ("moderate", 4)]


def test_argument_order_does_not_matter() -> None:
    """Canonical arguments: the same call in another key order is the same call."""
    story = Story()
    for args in ({"a": 1, "b": 2}, {"b": 2, "a": 1}, {"a": 1, "b": 2}):
        story.works("lookup_item", args, result="same")
    assert story.found("repetitive_calls") == [("minor", 3)]


def test_distinct_arguments_are_work() -> None:
    """Thirty writes to thirty files, all answered the same, are a batch."""
    story = Story()
    for number in range(30):
        story.works("write_file", {"path": f"/f{number}"}, result="written")
    assert story.patterns() == []


def test_failures_are_retries_and_no_repetition() -> None:
    """What fails is another pattern's; a program that answers by its exit code has not failed."""
    story = Story().fails("bash", {"command": "broken"}, message="fail", times=6)
    assert story.found("repetitive_calls") == []
    assert story.found("error_retry_loop") != []


@pytest.mark.parametrize("between", ["timer", "report", "agent"])
def test_what_woke_the_model_is_a_wait(between: str) -> None:
    """The same look after each report is no loop of equal calls."""
    story = Story()
    for _ in range(9):
        story.works(*READ, result="same")
        story.is_woken(between)
    assert story.found("repetitive_calls") == []


def test_hooks_and_the_client_are_no_wait() -> None:
    """They speak at every call, and nothing changes by it."""
    story = Story()
    for _ in range(3):
        story.works(*READ, result="same")
        story.is_woken("hook")
    assert story.found("repetitive_calls") == [("minor", 3)]


def test_a_user_message_ends_a_streak() -> None:
    """Two repeats, a user message, two repeats: nothing."""
    story = Story().works(*READ, times=2)
    story.user_says()
    assert story.works(*READ, times=2).patterns() == []


def test_loops_are_seen_across_turns() -> None:
    """A turn's start forgets nothing."""
    story = Story()
    for turn in range(4):
        story.event("turn.started", turn_index=turn)
        story.works(*READ)
    assert story.found("repetitive_calls") == [("minor", 3), ("moderate", 4)]


def test_two_unknown_results_are_never_the_same() -> None:
    """Where the publisher gives neither result nor digest, nothing says that a call brought nothing new."""
    story = Story()
    for number in range(8):
        story.works("query_db", {"q": 1}, result=None)
        story.works("read_file", {"path": f"/f{number % 2}"}, result=None)
    assert story.patterns() == []
    for _ in range(3):
        call = story.started("query_db", {"q": 2})
        story.event("tool_call.finished", call_id=call, tool_name="query_db", status="success", result_digest="same")
    assert story.found("repetitive_calls") == [("minor", 3)]


def test_calls_without_arguments_or_digest_are_not_taken_for_equal() -> None:
    """A publisher that keeps its arguments to itself gets no false alarm."""
    story = Story()
    for number in range(6):
        story.event("tool_call.started", call_id=f"c{number}", tool_name="edit_file")
        story.event(
            "tool_call.finished", call_id=f"c{number}", tool_name="edit_file", status="success", result="File updated."
        )
    assert story.patterns() == []


def test_volatile_arguments_do_not_tell_calls_apart() -> None:
    """Elements of a page are numbered anew at each look: the same click with another number is the same."""
    rules = Rules(tools=ToolRules(volatile_args={"click": frozenset({"ref"})}))
    told = []
    for given in (rules, Rules()):
        story = Story(rules=given)
        for number in range(20):
            story.works("click", {"name": "Next", "ref": number}, result="nothing happened")
        told.append({pattern for pattern, *_ in story.patterns()})
    assert told == [{"repetitive_calls"}, set()]
