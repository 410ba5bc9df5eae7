"""The same text again and again, in one message or across messages (docs/detection.md)."""

from __future__ import annotations

from time import process_time

import pytest
from story import Story
from trustfold.projections.snapshot import codec_of
from trustfold.projections.topology import STAGES

SENTENCE = "The directory does not exist yet, it seems to me."


def test_the_same_text_across_messages() -> None:
    """Five, eight and ten times, whatever else the messages say, however the same failing call lies between."""
    story = Story()
    story.fails("bash", {"command": "ls /nowhere"}, message="no such directory")
    for number in range(10):
        story.says(f"{SENTENCE} Attempt {number}.")
        story.fails("bash", {"command": "ls /nowhere"}, message="no such directory")
    assert story.found("text_loop") == [("minor", 5), ("moderate", 8), ("severe", 10)]


def test_the_same_text_within_a_message() -> None:
    """A chant, sentence by sentence or line by line."""
    for chant in (f"{SENTENCE} " * 5, f"{SENTENCE}\n" * 5):
        story = Story()
        story.says(chant)
        assert story.found("text_loop") == [("minor", 5)]


def test_a_chant_without_sentences() -> None:
    """A model that repeats a phrase until it is cut off."""
    story = Story()
    story.says("and so on and on, to the end of all ends of it, " * 12)
    assert [severity for severity, _ in story.found("text_loop")] == ["severe"]


def test_spacing_and_case_do_not_hide_a_repeat() -> None:
    """What differs only at the margins is the same text."""
    story = Story()
    for text in (SENTENCE, f"  {SENTENCE}", SENTENCE.upper(), f"{SENTENCE}\n", f"Well then. {SENTENCE}"):
        story.says(text)
    assert story.found("text_loop") == [("minor", 5)]


@pytest.mark.parametrize(
    "text",
    [
        "```\n" + "x = compute_the_value(of_this, and_that)\n" * 30 + "```",
        "~~~python\n" + "print('the same line of a program')\n" * 30,
        "| left column | right column |\n" * 30,
        "- the same point of a list, again\n" * 30,
        "* the same point of a list, again\n" * 30,
        "1. the same point of a list, again\n" * 30,
        "> a quoted line that comes back again\n" * 30,
        "# A heading that comes back again\n" * 30,
        "────────────────────────────────────\n" * 30,
        "Done. " * 60,
    ],
    ids=["code", "open code", "table", "dashes", "stars", "numbers", "quote", "headings", "rules", "short words"],
)
def test_what_repeats_by_nature_is_exempt(text: str) -> None:
    """Code, tables, lists, headings, quotes, rules, and words too short to mean anything."""
    story = Story()
    for _ in range(2):
        story.says(text)
    assert story.found("text_loop") == []


def test_news_starts_the_count_afresh() -> None:
    """Saying the same before each new step is a habit, not a loop."""
    story = Story()
    for number in range(12):
        story.says("Let me look at the next file of the package.")
        story.works("read_file", {"path": f"/{number}"}, result=str(number))
    assert story.found("text_loop") == []


@pytest.mark.parametrize("source", ["report", "agent", "timer", "hook", "client"])
def test_anybody_who_speaks_starts_the_count_afresh(source: str) -> None:
    """A line at each report is an answer each time."""
    story = Story()
    for _ in range(20):
        story.is_woken(source)
        story.says(SENTENCE)
    assert story.found("text_loop") == []


def test_it_may_stop_a_run() -> None:
    """The same text ten times is proof enough."""
    story = Story()
    for _ in range(10):
        story.thinks(SENTENCE)
    assert story.nudges()[-1] == ("text_loop", "interrupt")


def test_a_new_message_clears_it() -> None:
    """The model says something else."""
    story = Story()
    for _ in range(5):
        story.says(SENTENCE)
    story.says("I have found the reason: the path was wrong from the start.")
    assert "text_loop" in story.cleared()


def test_a_chant_that_begins_and_ends_within_sentences() -> None:
    """Ten laps of a text that is cut off in the middle of a word are ten, not nine."""
    story = Story()
    story.says("The directory is empty, so I look again. The directory is em" * 10)
    assert story.found("text_loop") == [("severe", 10)]


def test_thoughts_can_chant() -> None:
    """A model that repeats itself to itself is stuck all the same."""
    story = Story()
    for _ in range(5):
        story.thinks(SENTENCE)
    assert story.found("text_loop") == [("minor", 5)]


def test_publishers_that_keep_their_texts_are_understood() -> None:
    """Equal digests are equal texts."""
    story = Story()
    for _ in range(5):
        story.event("model.text", text_digest="d1")
    assert story.found("text_loop") == [("minor", 5)]


def test_no_text_is_kept() -> None:
    """Neither in the state nor in a decision."""
    story = Story()
    for number in range(8):
        story.says(f"My password is tulip and {SENTENCE} {number}")
    session = next(stage for stage in STAGES if stage.name == "session")
    kept = codec_of(session).encode(story.state(), None) + b"".join(o.value or b"" for o in story.outputs)
    assert b"tulip" not in kept
    assert b"directory" not in kept


def test_what_is_remembered_of_texts_is_bounded() -> None:
    """Long messages full of new sentences push the old ones out."""
    story = Story()
    for message in range(20):
        story.thinks(" ".join(f"Sentence {number} of message {message} says it." for number in range(100)))
    assert len(story.state().detectors.text_loop.said) == 64


@pytest.mark.parametrize("text", ["```\nx\n```\n{}.", "~~~{}.", "```{}."])
def test_a_message_is_read_in_time_that_grows_with_its_length(text: str) -> None:
    """Twenty thousand empty lines beside a block of code must not hold up the partition for seconds."""
    story, begun = Story(), process_time()
    story.says(text.format("\n" * 19_900))
    _ = story.outputs
    assert process_time() - begun < 0.5
