"""Results that bring nothing new: reads of what was seen, and known answers to other requests (docs/detection.md)."""

from __future__ import annotations

from typing import Any

import pytest
from story import Story

# --- healthy reading ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tool", "page"),
    [
        ("read_file", lambda n: {"path": "/big.log", "offset": n * 100, "limit": 100}),
        ("view", lambda n: {"path": "/big.log", "view_range": [n * 50 + 1, n * 50 + 50]}),
        ("search_items", lambda n: {"q": "x", "page": str(n)}),
        ("crm_lookup", lambda n: {"cursor": n * 7}),
        ("bash", lambda n: {"command": f"sed -n '{n * 200 + 1},{n * 200 + 200}p' big.log"}),
    ],
)
def test_paging_forward_with_new_pages_is_reading(tool: str, page: Any) -> None:
    """However many there are."""
    story = Story()
    for number in range(100):
        story.works(tool, page(number), result="\n".join(f"row {number * 50 + row} of the log" for row in range(50)))
    assert story.patterns() == []


def test_many_reads_with_news_are_work() -> None:
    """Three hundred files are a large code base."""
    story = Story()
    for number in range(300):
        story.works("read_file", {"path": f"/src/{number}.py"}, result=f"content {number} of the file")
    assert story.patterns() == []


# --- reread -------------------------------------------------------------------------------------------------------


def reads(story: Story, windows: list[tuple[int, int]], *, tool: str = "read_file") -> Story:
    """Windows of one file, each as (first line, last line)."""
    for first, last in windows:
        text = "\n".join(f"line {number * number * 7919} of the file" for number in range(first, last))
        story.works(tool, {"path": "/big.py", "from": first, "to": last}, result=text)
    return story


def test_a_second_pass_over_a_file_is_seen_by_its_lines() -> None:
    """In other windows than the first."""
    story = reads(Story(), [(0, 30), (30, 60), (60, 90), (90, 120)])
    assert story.patterns() == []
    reads(story, [(start, start + 12) for start in range(0, 100, 10)])
    assert story.found("reread") == [("minor", 6), ("moderate", 10)]
    assert "interrupt" not in {kind for _, kind in story.nudges()}


def test_windows_that_overlap_and_go_forward_bring_news() -> None:
    """Some of their lines are new."""
    story = reads(Story(), [(start, start + 40) for start in range(0, 1200, 30)])
    assert story.patterns() == []


def test_windows_of_a_long_result_are_known() -> None:
    """A whole file was read at once; of its lines a sample is enough."""
    story = reads(Story(), [(0, 1500)])
    reads(story, [(start, start + 60) for start in range(0, 900, 50)])
    assert [severity for severity, _ in story.found("reread")] == ["minor", "moderate"]


@pytest.mark.parametrize("ends", ["news", "action", "forgets", "user"])
def test_what_ends_rereading(ends: str) -> None:
    """News, an action, a user, and a context that was shortened: then everything may be read again."""
    story = reads(reads(Story(), [(0, 30)]), [(start, start + 9) for start in range(0, 18, 3)])
    assert story.found("reread") == [("minor", 6)]
    if ends == "news":
        reads(story, [(900, 940)])
    elif ends == "action":
        story.works("edit_file", {"path": "/a"})
    elif ends == "user":
        story.user_says()
    else:
        story.forgets()
    assert "reread" in story.cleared()


def test_after_the_context_was_shortened_reading_again_is_no_loop() -> None:
    """The model has forgotten it; of a call repeated since then only the repeats since then count."""
    story = Story()
    for _ in range(5):
        reads(story, [(0, 40), (40, 80), (80, 120)])
        reads(story, [(0, 40)])
        story.forgets()
    assert story.patterns() == []


def test_short_results_are_known_only_in_a_row() -> None:
    """`4` and `ok` come from everywhere."""
    story = Story()
    for number in range(20):
        story.works("count_rows", {"t": number}, result=str(number % 3))
    assert story.found("reread") == []


def test_searches_that_find_nothing_are_no_reread() -> None:
    """Nothing is not what was seen before."""
    story = Story()
    for number in range(9):
        story.works("grep", {"pattern": f"word {number}"}, result="no matches found")
    assert story.found("reread") == []


# --- stagnation ---------------------------------------------------------------------------------------------------

ANSWER = "The opening hours are from nine to five on weekdays, and the shop is closed on Sundays."


def asks(story: Story, times: int, *, tool: str = "ask_assistant", answer: str = ANSWER, start: int = 0) -> Story:
    """Other words, the same answer."""
    for number in range(start, start + times):
        story.works(tool, {"query": f"when is it open, wording {number}"}, result=answer)
    return story


def test_other_words_for_the_same_answer() -> None:
    """Six, ten and fifteen known answers; the first was news. It never stops the run."""
    story = asks(Story(), 16)
    assert story.found("stagnation") == [("minor", 6), ("moderate", 10), ("severe", 15)]
    assert {kind for pattern, kind in story.nudges() if pattern == "stagnation"} == {"gentle", "direct"}


def test_a_long_known_answer_of_a_shell_counts_whole() -> None:
    """Only an exact search that finds nothing counts half."""
    long = "\n".join(f"{number:04} the same row of a long report" for number in range(200))
    story = Story()
    for number in range(7):
        story.works("bash", {"command": f"cat reports/{number}.txt"}, result=long)
    assert story.found("stagnation") == [("minor", 6)]


def test_lines_that_echo_the_request_do_not_hide_it() -> None:
    """A heading with the query, and nothing else that differs."""
    story = Story()
    for number in range(7):
        query = f"opening hours wording {number}"
        story.works("ask_assistant", {"query": query}, result=f'Results for query: "{query}"\n{ANSWER}')
    assert story.found("stagnation") == [("minor", 6)]


def test_nothing_of_an_exact_search_counts_half() -> None:
    """Twelve words that do not stand in the code tell something each; of a search that guesses, six are enough."""
    assert asks(Story(), 12, tool="grep", answer="no matches").found("stagnation") == []
    assert asks(Story(), 13, tool="grep", answer="no matches").found("stagnation") == [("minor", 6)]
    assert asks(Story(), 7, tool="web_search", answer="no matches").found("stagnation") == [("minor", 6)]


def test_a_new_answer_ends_it() -> None:
    """The count starts afresh."""
    story = asks(asks(Story(), 7), 1, answer="Something else.", start=50)
    assert "stagnation" in story.cleared()
    assert asks(story, 5, start=60).found("stagnation") == [("minor", 6)]


def test_an_action_ends_it_and_so_does_a_shorter_context() -> None:
    """What was answered then is forgotten."""
    story = asks(Story(), 7).works("edit_file", {"path": "/a"})
    assert "stagnation" in story.cleared()
    story = asks(Story(), 7)
    story.forgets()
    assert "stagnation" in story.cleared()


@pytest.mark.parametrize(
    ("tool", "args", "answer"),
    [
        ("edit_file", "path", "The file has been updated and looks as it should look now."),
        ("bash", "command", "Everything is in order, nothing to be done for you here."),
        ("compute", "n", "done"),
        ("compute", "n", {"content": [{"type": "text", "text": "valid"}], "isError": False}),
        ("fetch_row", "n", ""),
    ],
    ids=["actions", "lines of unknown effect", "acknowledgements", "content blocks", "empty results"],
)
def test_what_may_answer_the_same_all_day(tool: str, args: str, answer: Any) -> None:
    """Actions, programs, words that say that it worked, and results that some clients leave out."""
    story = Story()
    for number in range(30):
        story.works(tool, {args: f"do-it {number}"}, result=answer)
    assert story.patterns() == []


def test_two_programs_of_one_shell_are_two_tools() -> None:
    """`find` that finds what `ls` has shown has not answered the same."""
    story = Story()
    for number in range(5):
        story.works("bash", {"command": f"ls dir{number}"}, result="alpha.txt and its siblings")
        story.works("bash", {"command": f"cat dir{number}/x"}, result="alpha.txt and its siblings")
    assert story.found("stagnation") == []


# --- self_appending -----------------------------------------------------------------------------------------------


def grows(words: list[str]) -> Story:
    """A command to which a word is added at each call, and the answer that stays the same."""
    story = Story()
    for number in range(1, len(words) + 1):
        story.works("bash", {"command": "grep -v alpha " + " ".join(words[:number])}, result="nothing of the kind")
    return story


WORDS = "beta gamma delta epsilon zeta eta theta iota kappa".split()


def test_a_command_that_only_grows() -> None:
    """Five and eight of them, each with the one before inside."""
    story = grows(WORDS[:9])
    assert story.found("self_appending") == [("minor", 5), ("moderate", 8)]
    assert "interrupt" not in {kind for _, kind in story.nudges()}


def test_a_command_that_does_not_contain_the_one_before_ends_it() -> None:
    """A fresh start is what the nudge asks for."""
    story = grows(WORDS[:5]).works("bash", {"command": "ls -la /somewhere"}, result="")
    assert "self_appending" in story.cleared()


def test_commands_that_grow_and_bring_news_are_work() -> None:
    """A pipeline is built up step by step."""
    story = Story()
    for number in range(1, 9):
        command = "cat access.log " + " ".join(f"| step{one}" for one in range(number))
        story.works("bash", {"command": command}, result=f"{number} other lines than before")
    assert story.found("self_appending") == []


def test_a_longer_word_is_another_command() -> None:
    """`ls /a`, `ls /ab`, `ls /abc`: other directories."""
    story = Story()
    for number in range(1, 9):
        story.works("bash", {"command": "ls /home/" + "abcdefghi"[:number]}, result="")
    assert story.found("self_appending") == []
