"""Steps: the calls of one message of the model, which has seen none of their results (docs/detection.md)."""

from __future__ import annotations

from typing import Any

from story import Story

READ = ("read_file", {"path": "/src/a.py"})


def message(story: Story, name: str, calls: list[tuple[str, dict[str, Any]]], *, fails: bool = False) -> Story:
    """Calls of one message, made one after another."""
    for tool, args in calls:
        call = story.started(tool, args, message_id=name)
        if fails:
            story.finished(call, tool, status="error", result=None, error={"message": "it broke"})
        else:
            story.finished(call, tool, result="same")
    return story


def test_twins_of_one_message_are_one_step() -> None:
    """Some clients publish one call after another; ten equal ones in one message are one mistake."""
    assert message(Story(), "m1", [READ] * 10).patterns() == []
    assert message(Story(), "m1", [("bash", {"command": "broken"})] * 10, fails=True).patterns() == []
    assert message(Story(), "m1", [("sql_execute", {"n": n}) for n in range(12)], fails=True).patterns() == []


def test_equal_calls_of_different_messages_are_steps() -> None:
    """Three messages, three steps."""
    story = Story()
    for number in range(3):
        message(story, f"m{number}", [READ, READ])
    assert story.found("repetitive_calls") == [("minor", 3)]


def test_calls_of_other_messages_that_overlap_are_steps_of_their_own() -> None:
    """A message's id says more than the order in which calls finish."""
    story = Story()
    calls = [story.started(*READ, message_id=f"m{number}") for number in range(3)]
    for call in calls:
        story.finished(call, "read_file", result="same")
    assert story.found("repetitive_calls") == [("minor", 3)]


def test_without_an_id_calls_that_overlap_are_one_step() -> None:
    """Three identical calls started together count once."""
    story = Story()
    for _ in range(2):
        calls = [story.started("read_file", {"path": "/src/a.py", "n": n}) for n in range(2)]
        for call in calls:
            story.finished(call, "read_file", result="same")
    assert story.patterns() == []


def test_messages_of_a_cycle_are_its_steps() -> None:
    """A batch and a call, three times."""
    story = Story()
    for lap in range(3):
        message(story, f"a{lap}", [("query_db", {"q": 1}), ("query_db", {"q": 2})])
        message(story, f"b{lap}", [("query_db", {"q": 3})])
    assert story.found("alternating_loop") == [("minor", 3)]


# --- who spoke ----------------------------------------------------------------------------------------------------


def test_failures_count_on_over_a_shortened_context() -> None:
    """Reading again is no loop then; failing again is."""
    story = Story()
    for _ in range(4):
        story.works(*READ, result="same").fails("bash", {"command": "broken"}, message="it broke")
        story.forgets()
    assert story.patterns() == [("error_retry_loop", "minor", 3), ("error_retry_loop", "moderate", 4)]


def test_a_shortened_context_concerns_every_agent_of_the_session() -> None:
    """The client says it once."""
    story = Story()
    for _ in range(5):
        for agent in ("a", "b"):
            story.finished(story.started(*READ, agent_id=agent), "read_file", result="same")
        story.forgets()
    assert story.patterns() == []


def test_an_input_is_no_user_message() -> None:
    """A report ends no streak of failing calls."""
    story = Story()
    for _ in range(3):
        story.fails("bash", {"command": "broken"}, message="it broke")
        story.is_woken("hook")
    assert story.found("error_retry_loop") == [("minor", 3)]


def test_a_user_message_ends_all_streaks_but_what_is_missing() -> None:
    """What was opened is closed."""
    story = Story().works(*READ, result="same", times=3)
    story.fails("bash", {"command": "broken"}, message="it broke", times=3)
    story.user_says()
    assert sorted(story.cleared()) == ["error_retry_loop", "repetitive_calls"]
