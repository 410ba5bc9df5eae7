"""Messages in a row without a call, and messages that say again what was said (docs/detection.md)."""

from __future__ import annotations

import pytest
from story import Story

# --- monologue ----------------------------------------------------------------------------------------------------


def test_messages_without_a_call() -> None:
    """Six, eight and ten messages with neither a call nor anybody who speaks between them; it never stops the run."""
    story = Story()
    for number in range(20):
        story.says(f"Is this observation {number}?")
    assert story.found("monologue") == [("minor", 6), ("moderate", 8), ("severe", 10)]
    assert {kind for pattern, kind in story.nudges() if pattern == "monologue"} == {"gentle", "direct"}


@pytest.mark.parametrize("between", ["call", "user", "report", "agent", "timer", "hook", "client"])
def test_a_call_or_anybody_who_speaks_ends_a_monologue(between: str) -> None:
    """A chat is no monologue, neither is work with commentary, nor answers to what others say."""
    story = Story()
    for number in range(20):
        story.says(f"Is this observation {number}?")
        if number % 4 == 3:
            if between == "call":
                story.works("read_file", {"path": f"/{number}"}, result=str(number))
            elif between == "user":
                story.user_says()
            else:
                story.is_woken(between)
    assert story.found("monologue") == []


def test_a_monologue_is_over_when_a_call_starts() -> None:
    """Not only when it has finished."""
    story = Story()
    for number in range(6):
        story.says(f"Is this observation {number}?")
    story.started("read_file", {"path": "/a"})
    assert story.cleared() == ["monologue"]


def test_empty_texts_and_thoughts_are_no_messages() -> None:
    """However many there are."""
    story = Story()
    for number in range(20):
        story.thinks(f"Is this observation {number}?")
        story.says("")
    assert story.patterns() == []


def test_our_own_nudges_end_nothing() -> None:
    """They are no user message: the monologue goes on and grows more severe."""
    story = Story()
    for number in range(8):
        story.says(f"Is this observation {number}?")
    assert [pattern for pattern, _ in story.nudges()] == ["monologue", "monologue"]


# --- restated -----------------------------------------------------------------------------------------------------

PLAN = "The plan is to read the file, to change the second line of it and to run the tests again after that?"


def says_again(story: Story, times: int) -> Story:
    """The same plan with other words around it."""
    words = "first then later also still again now finally anyway besides".split()
    for number in range(times):
        story.says(f"As I said {words[number % len(words)]} number {number}: {PLAN}")
    return story


def test_messages_that_say_again_what_was_said() -> None:
    """Four, six and ten restatements, each followed by another message; the first said something new."""
    story = says_again(Story(), 12)
    assert story.found("restated") == [("minor", 4), ("moderate", 6), ("severe", 10)]
    assert "interrupt" not in {kind for pattern, kind in story.nudges() if pattern == "restated"}


def test_a_restatement_that_a_call_follows_is_none() -> None:
    """A model may say before each call what it is about."""
    story = Story()
    for number in range(12):
        says_again(story, 1)
        story.works("read_file", {"path": f"/{number}"}, result=str(number))
    assert story.found("restated") == []


@pytest.mark.parametrize("speaker", ["user", "report", "agent"])
def test_anybody_who_speaks_ends_restatements(speaker: str) -> None:
    """They asked for it."""
    story = says_again(Story(), 6)
    assert story.found("restated") == [("minor", 4)]
    story.user_says() if speaker == "user" else story.is_woken(speaker)
    assert "restated" in story.cleared()
    for _ in range(9):
        says_again(story, 1)
        story.user_says() if speaker == "user" else story.is_woken(speaker)
    assert len(story.found("restated")) == 1


def test_messages_of_fewer_than_eight_words_restate_nothing() -> None:
    """Such as `Done`, or `Let us see`."""
    story = Story()
    for _ in range(12):
        story.says("Is that fine with you, then, friend?")
    assert story.found("restated") == []


def test_messages_that_say_something_new_restate_nothing() -> None:
    """A few common words are no restatement."""
    story = Story()
    topics = "parser lexer printer linter folder reader writer loader mapper joiner sorter filter".split()
    for number, topic in enumerate(topics):
        others = " ".join(f"{topic}{one}" for one in range(12))
        story.says(f"I have looked at the {topic} {number} and found {others} in it?")
    assert story.found("restated") == []
