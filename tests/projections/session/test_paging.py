"""Paging and planning: calls that differ each time and still lead nowhere (docs/detection.md)."""

from __future__ import annotations

import pytest
from story import Story


@pytest.mark.parametrize(
    ("tool", "page"),
    [
        ("read_file", lambda n: {"path": "/big.log", "offset": n * 100, "limit": 100}),
        ("read_file", lambda n: {"path": "/big.log", "start": n * 50 + 1, "end": n * 50 + 50}),
        ("view", lambda n: {"path": "/big.log", "view_range": [n * 50 + 1, n * 50 + 50]}),
        ("search_items", lambda n: {"q": "x", "page": str(n)}),
        ("crm_lookup", lambda n: {"cursor": n * 7}),
        ("bash", lambda n: {"command": f"sed -n '{n * 200 + 1},{n * 200 + 200}p' big.log"}),
    ],
)
def test_one_argument_that_grows(tool: str, page: object) -> None:
    """Twelve pages, though every one of them is news."""
    story = Story()
    for number in range(12):
        story.works(tool, page(number), result=f"page {number}")  # type: ignore[operator]
    assert story.found("paging_loop") == [("minor", 12)]


def test_it_rises_at_twenty_and_thirty() -> None:
    """And says how many pages it were."""
    story = Story()
    for number in range(31):
        story.works("read_file", {"path": "/big", "offset": number}, result=str(number))
    assert story.found("paging_loop") == [("minor", 12), ("moderate", 20), ("severe", 30)]


def test_other_calls_may_lie_between() -> None:
    """Two files paged through in turn are two series."""
    story = Story()
    for number in range(12):
        for path in ("/a", "/b"):
            story.works("read_file", {"path": path, "offset": number}, result=f"{path} {number}")
    assert story.found("paging_loop") == [("minor", 12), ("minor", 12)]


@pytest.mark.parametrize(
    "offsets", [[5, 4, 3, 2, 1] * 6, [1, 2, 3, 4] * 6, [7] * 20], ids=["falling", "round and round", "standing"]
)
def test_only_steady_growth_is_paging(offsets: list[int]) -> None:
    """Anything else starts the series afresh."""
    story = Story()
    for number, offset in enumerate(offsets):
        story.works("read_file", {"path": "/big", "offset": offset}, result=str(number))
    assert story.found("paging_loop") == []


def test_different_things_read_are_no_pages() -> None:
    """The path is part of the call."""
    story = Story()
    for number in range(30):
        story.works("read_file", {"path": f"/f{number}", "offset": number}, result=str(number))
    assert story.found("paging_loop") == []


def test_actions_are_never_paged() -> None:
    """The thirtieth booking is the thirtieth booking."""
    story = Story()
    for number in range(30):
        story.works("book_seat", {"row": number}, result=f"booked {number}")
    assert story.patterns() == []


def test_progress_ends_a_series_and_clears_it() -> None:
    """Acting on what was read is what the nudge asked for."""
    story = Story()
    for number in range(12):
        story.works("read_file", {"path": "/big", "offset": number}, result=str(number))
    story.works("edit_file", {"path": "/big", "text": "x"})
    assert story.cleared() == ["paging_loop"]
    assert [one["effective"] for one in story.all("nudge.judged")] == [True]


def test_planning_rises_with_the_count() -> None:
    """Three, five and eight planning calls without another call."""
    story = Story()
    for number in range(8):
        story.works("TodoWrite", {"todos": [number]}, result=f"saved {number}")
    assert story.found("planning_loop") == [("minor", 3), ("moderate", 5), ("severe", 8)]


def test_any_other_call_ends_planning() -> None:
    """Plan, plan, act is how it should be."""
    story = Story()
    for number in range(5):
        for step in range(2):
            story.works("think", {"thought": f"{number} {step}"}, result=f"{number} {step}")
        story.works("read_file", {"path": f"/{number}"}, result=str(number))
    assert story.found("planning_loop") == []


def test_planning_is_cleared_by_the_first_step() -> None:
    """Whatever comes of it."""
    story = Story()
    for number in range(3):
        story.works("think", {"thought": number}, result=str(number))
    story.fails("run_step", {"n": 1})
    assert "planning_loop" in story.cleared()
