"""Work that is announced and not carried out (docs/detection.md)."""

from __future__ import annotations

import pytest
from story import Story
from trustfold.projections.session import announcing

WILL = "I'll fix the bug now."


def turn(story: Story, *texts: str, call: bool = False) -> Story:
    """A turn with messages, and a call if told."""
    story.turn_starts()
    for text in texts:
        story.says(text)
    if call:
        story.works("edit_file", {"n": len(story.records)}, result=str(len(story.records)))
    story.turn_ends()
    return story


# --- turns that end with an announcement --------------------------------------------------------------------------


def test_turns_that_end_with_an_announcement() -> None:
    """Two, three and four; the fourth in a row, nobody speaking between, may stop the run."""
    story = Story()
    for _ in range(4):
        turn(story, WILL)
    assert story.found("announce_no_action") == [("minor", 2), ("moderate", 3), ("severe", 4)]
    assert [kind for _, kind in story.nudges()] == ["gentle", "direct", "interrupt"]
    assert story.decided("nudge.issued", nudge_type="interrupt")["message"].startswith("Stopped after 4 turns")


def test_the_pause_ends_with_the_next_call() -> None:
    """That is what was announced."""
    story = Story()
    for _ in range(4):
        turn(story, WILL)
    story.started("edit_file", {"path": "/a"})
    assert "announce_no_action" in story.cleared()
    story.turn_ends()
    assert turn(story, WILL).found("announce_no_action")[3:] == []


@pytest.mark.parametrize(("words", "counts"), [(1, True), (4, True), (5, False), (40, False), (None, False)])
def test_a_bare_continue_answers_nothing(words: int | None, counts: bool) -> None:
    """Fewer than five words let the turns count on; they never stop the run, since somebody spoke."""
    story = Story()
    for _ in range(6):
        turn(story, WILL)
        story.user_says(words)
    expected = [("minor", 2), ("moderate", 3), ("severe", 4)] if counts else []
    assert story.found("announce_no_action") == expected
    assert "interrupt" not in {kind for _, kind in story.nudges()}


@pytest.mark.parametrize("source", ["report", "agent", "timer", "hook", "client"])
def test_a_message_that_answers_somebody_is_an_answer(source: str) -> None:
    """An agent that waits for its background work writes a line at each report."""
    story = Story()
    for number in range(12):
        story.is_woken(source)
        turn(story, f"I'll wait for the other {number} of them, and will look again.")
    assert story.patterns() == []


def test_turns_end_with_structure_only_by_a_known_phrase() -> None:
    """In a language without phrases a turn that ends with a message may be an answer."""
    story = Story()
    for _ in range(6):
        turn(story, "Most kijavítom a hibát.")
    assert story.found("announce_no_action") == []


def test_turns_with_a_call_between_are_work() -> None:
    """Say it, do it."""
    story = Story()
    for _ in range(8):
        turn(story, WILL, call=True)
    assert story.patterns() == []


def test_a_look_at_the_tools_is_not_the_announced_call() -> None:
    """The turns count on."""
    story = Story()
    for number in range(3):
        story.turn_starts()
        story.says(WILL)
        story.works("list_tools", {"n": number}, result=f"tools {number}")
        story.turn_ends()
    assert story.found("announce_no_action") == [("minor", 2), ("moderate", 3)]


def test_a_turn_that_only_looks_at_the_tools_has_not_done_what_was_announced() -> None:
    """Not even an announcement any more; a turn in which nothing happens says nothing."""
    story = turn(turn(turn(Story(), WILL), WILL), WILL)
    story.turn()
    assert len(story.found("announce_no_action")) == 2
    story.turn_starts()
    story.works("list_tools", {}, result="tools")
    story.turn_ends()
    assert story.found("announce_no_action")[2:] == [("severe", 4)]
    assert turn(Story(), "It is done.").works("list_tools", {}, result="tools").turn().patterns() == []


def test_a_second_end_of_a_turn_is_no_silent_turn() -> None:
    """Only open turns can end."""
    story = Story()
    for _ in range(3):
        turn(story, WILL)
    for _ in range(3):
        story.turn_ends()
    assert [severity for severity, _ in story.found("announce_no_action")] == ["minor", "moderate"]


# --- within a turn ------------------------------------------------------------------------------------------------


def test_known_phrases_within_a_turn() -> None:
    """Three, four and six; two progress notes are no loop, and it never stops the run."""
    story = Story()
    for number in range(7):
        story.says(f"I'll do step {number} now.")
    assert story.found("announce_no_action") == [("minor", 3), ("moderate", 4), ("severe", 6)]
    assert "interrupt" not in {kind for _, kind in story.nudges()}


@pytest.mark.parametrize(
    "text",
    [
        "Most kijavítom a hibát.",
        "Nyt korjaan virheen.",
        "지금 수정하겠습니다.",
        "سأصلح الخطأ الآن.",
        "The file has three lines.",
    ],
)
def test_message_after_message_announces_in_any_language(text: str) -> None:
    """What is followed by another message, and by no call, promised something: four, six and eight of them."""
    story = Story()
    for number in range(9):
        story.says(f"{text} ({number}) ok.")
    assert story.found("announce_no_action") == [("minor", 4), ("moderate", 6), ("severe", 8)]
    texts = [one["message"] for one in story.all("nudge.issued", pattern="announce_no_action")]
    assert "followed by another message and by no call" in texts[0]


def test_announcements_followed_by_work_are_fine() -> None:
    """The way coding agents write: say it, do it."""
    story = Story()
    for number in range(8):
        story.says("Now let me look at the next file.")
        story.works("read_file", {"path": f"/{number}"}, result=f"{number}")
    assert story.patterns() == []


def test_a_call_or_anybody_who_speaks_keeps_messages_from_announcing() -> None:
    """Work with commentary, a chat, and answers to reports."""
    story = Story()
    for number in range(12):
        story.says("Most kijavítom a hibát.")
        story.says("Az első sor hibás.")
        if number % 3 == 0:
            story.works("edit_file", {"n": number}, result=str(number))
        elif number % 3 == 1:
            story.user_says()
        else:
            story.is_woken()
    assert story.found("announce_no_action") == []


@pytest.mark.parametrize(
    "text", ["Shall I proceed now?", "Let me know if you need anything else.", "I'll need your user ID to go on."]
)
def test_questions_and_offers_are_no_announcements(text: str) -> None:
    """Messages that hand the word to the user announce nothing, however many there are."""
    story = Story()
    for _ in range(5):
        story.says(text)
    assert story.found("announce_no_action") == []


GREEK = "Να συνεχίσω;"  # noqa: RUF001 - Greek letters, and a semicolon that asks


@pytest.mark.parametrize("text", ["Folytassam?", "続けますか？", "هل أتابع؟", GREEK, "¿Sigo?", "**Shall I go on?**"])
def test_questions_end_with_a_question_mark_of_their_script(text: str) -> None:
    """They hand the word to the user, who may be slow."""
    story = Story()
    for _ in range(5):
        turn(story, text, text)
    assert story.found("announce_no_action") == []


def test_empty_messages_say_nothing() -> None:
    """Some clients write one before each call, or after each stream."""
    story = Story()
    for _ in range(20):
        story.says("")
        story.says(" \n")
    assert story.patterns() == []


def test_thoughts_do_not_count() -> None:
    """Neither as messages nor as announcements."""
    story = Story()
    for number in range(9):
        story.thinks(f"I'll do step {number} now.")
    assert story.patterns() == []


def test_publishers_may_keep_texts_private() -> None:
    """With a digest and the announces flag the pattern is found all the same."""
    story = Story()
    for number in range(3):
        story.event("model.text", text_digest=f"d{number}", announces=True)
    assert story.found("announce_no_action") == [("minor", 3)]


def test_a_publisher_that_keeps_texts_private_says_what_announces() -> None:
    """`announces: false` is its word; without it structure decides."""
    for announces, expected in ((False, []), (None, [("minor", 4)])):
        story = Story()
        for number in range(5):
            story.event("model.text", text_digest=f"d{number}", announces=announces)
        assert story.found("announce_no_action") == expected


def test_publishers_of_finishes_only_are_understood() -> None:
    """A lone finish follows an announcement up."""
    story = Story()
    for number in range(6):
        story.says("I'll write the file now.")
        story.finished(f"c{number}", "write_file", result=f"written {number}")
    assert story.found("announce_no_action") == []


def test_phrases_of_the_rules_announce_too() -> None:
    """In any case, at the beginning of a word; without them the same text announces nothing."""
    assert announcing.announces("Alsdann folgt die Datei.", ("ALSDANN",))
    assert not announcing.announces("Alsdann folgt die Datei.")
    assert not announcing.announces("Dannalsdann folgt die Datei.", ("alsdann",))


def test_announcements_that_were_followed_by_work_are_no_evidence() -> None:
    """A later report names the messages since the last call, and none of before."""
    story = Story()
    for _ in range(3):
        story.says("I'll fix the bug now.")
    story.works("edit_file", {"path": "/a"})
    later = [story.says("I'll run the tests now.") for _ in range(3)]
    told = story.decided("pattern.detected", pattern="announce_no_action")
    assert (told["repetitions"], told["caused_by"]) == (3, later)
