"""Streaks and incidents under two sets of rules: caught, lost, earlier, later, counted again in plain Python."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from pathlib import Path

import orjson
import pytest
from fixed_rules import TO_OPEN, Rules
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs
from recorded import replayed, told
from refolded import compared, lenient, nervous
from story import Story
from trustfold.history.filters import HistoryFilters
from trustfold.history.whatif.compare import ShiftReport
from trustfold.history.whatif.fold_incidents import FoldIncident, IncidentCollector, shifts
from trustfold.rules.rules import SeverityLadder

SWAPPED = {"caught": "lost", "lost": "caught", "earlier": "later", "later": "earlier", "otherwise": "otherwise"}


def repetitive(*, minor: int, moderate: int = 8, severe: int = 9) -> Rules:
    """Rules under which so many equal calls are a loop."""
    ladder = SeverityLadder(minor=minor, moderate=moderate, severe=severe)
    return structs.replace(Rules(), behaviour=structs.replace(Rules().behaviour, repetitive_calls=ladder))


def of_loops(shifted: list[ShiftReport]) -> list[ShiftReport]:
    """What is about repeated calls."""
    return [one for one in shifted if one.subject == "repetitive_calls"]


def looping() -> Story:
    """Three sessions: one that asks twice, one three times, one five times."""
    story = Story(session="twice").works("compute", {"q": 1}, result="nothing", times=2)
    story.moved(session="thrice").works("read_file", {"path": "/a"}).works("compute", {"q": 2}, result="no", times=3)
    return story.moved(session="often").works("compute", {"q": 3}, result="never", times=5)


def test_a_lower_threshold_catches_one_streak_and_sees_the_others_earlier(tmp_path: Path) -> None:
    """With the call of the session at which each begins, and the id of that call."""
    story = looping()
    told(tmp_path, story)
    found = {one.session: one for one in of_loops(compared(tmp_path, nervous()).shifts)}
    assert {name: (one.how, one.calls_earlier) for name, one in found.items()} == {
        "twice": ("caught", None),
        "thrice": ("earlier", 1),
        "often": ("earlier", 1),
    }
    finished = [orjson.loads(value) for _, value in story.records if b"tool_call.finished" in value]
    calls = [one["call_id"] for one in finished if one["session_id"] == "thrice"]
    before, after = found["thrice"].before, found["thrice"].after
    assert before is not None
    assert after is not None
    assert (before.call, after.call) == (4, 3), "the first call of this session was another one"
    assert (before.call_id, after.call_id) == (calls[3], calls[2])
    assert (before.nudges, found["often"].after.worst) == ("1 gentle", "moderate")  # type: ignore[union-attr]


def test_a_higher_threshold_loses_streaks_and_sees_the_others_later(tmp_path: Path) -> None:
    """The same as before, the other way round."""
    told(tmp_path, looping())
    found = {
        one.session: (one.how, one.calls_earlier) for one in of_loops(compared(tmp_path, repetitive(minor=5)).shifts)
    }
    assert found == {"thrice": ("lost", None), "often": ("later", -2)}


def test_a_streak_that_goes_less_far_is_told_otherwise(tmp_path: Path) -> None:
    """It begins at the same call, and the model is told something else."""
    told(tmp_path, Story().works("compute", {"q": 1}, result="nothing", times=6))
    (one,) = of_loops(compared(tmp_path, repetitive(minor=3, moderate=4, severe=9)).shifts)
    assert one.how == "otherwise"
    assert one.before is not None
    assert one.after is not None
    assert (one.before.worst, one.after.worst) == ("severe", "moderate")
    assert (one.before.call, one.calls_earlier) == (one.after.call, 0)


def test_incidents_of_keys_tell_which_calls_would_have_been_asked_about(tmp_path: Path) -> None:
    """Three failures escalate under the shipped rules: two calls that work are asked about, and one that breaks."""
    story = Story().fails("deploy", times=3)
    story.works("deploy", times=2)
    story.fails("deploy", times=1)
    told(tmp_path, story)
    found = compared(tmp_path, lenient())
    (one,) = [one for one in found.shifts if one.kind == "trust"]
    assert (one.how, one.subject) == ("lost", "deploy")
    assert one.before is not None
    assert (one.before.asked, one.before.went_well, one.before.broke) == (3, 2, 1)
    assert len(one.before.calls) == 3
    assert found.held["before"] == {"well": 2, "broke": 1}
    assert not found.held["after"]


def test_an_incident_that_begins_later_is_counted_in_calls_of_its_key(tmp_path: Path) -> None:
    """Calls of another tool in between do not count."""
    story = Story()
    for number in range(6):
        story.fails("deploy", times=1).works("search", {"q": number})
    told(tmp_path, story)
    (one,) = [one for one in compared(tmp_path, lenient()).shifts if one.kind == "trust"]
    assert (one.how, one.calls_earlier) == ("later", -2)


def test_a_circuit_that_opens_earlier_refuses_more(tmp_path: Path) -> None:
    """Two failures open it in place of more: the calls after them are refused."""
    told(tmp_path, Story().fails("fetch", times=TO_OPEN + 1, with_="timeout"))
    tool = structs.replace(Rules().breakers.tool, consecutive_failures=2)
    other = structs.replace(Rules(), breakers=structs.replace(Rules().breakers, tool=tool))
    (one,) = [one for one in compared(tmp_path, other).shifts if one.kind == "circuit"]
    assert (one.how, one.subject, one.calls_earlier) == ("earlier", "tool:fetch", TO_OPEN - 2)
    assert one.before is not None
    assert one.after is not None
    assert (one.before.refused, one.after.refused) == (1, TO_OPEN - 1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("filters", "sessions"),
    [
        (HistoryFilters(sessions=("twice",)), {"twice"}),
        (HistoryFilters(tools=("compute",)), {"twice", "thrice", "often"}),
        (HistoryFilters(tools=("read_file",)), set()),
        (HistoryFilters(workspaces=("w1",)), {"twice", "thrice", "often"}),
        (HistoryFilters(workspaces=("elsewhere",)), set()),
        (HistoryFilters(models=("nobody",)), set()),
    ],
)
def test_filters_hold_in_a_comparison_as_in_the_questions(
    tmp_path: Path, filters: HistoryFilters, sessions: set[str]
) -> None:
    """Everything is folded; what passes is compared."""
    told(tmp_path, looping())
    found = compared(tmp_path, nervous(), filters=filters)
    assert {one.session for one in of_loops(found.shifts)} == sessions
    assert {example.session for example in found.difference.added} >= sessions
    assert found.recorded.again == found.recorded.count


def test_until_leaves_out_what_was_decided_later(tmp_path: Path) -> None:
    """And since what was decided before."""
    story = looping()
    middle = story.now
    story.after(minutes=90).moved(session="late").works("compute", {"q": 4}, result="none", times=2)
    told(tmp_path, story)
    until = compared(tmp_path, nervous(), filters=HistoryFilters(until=middle + timedelta(minutes=1)))
    since = compared(tmp_path, nervous(), filters=HistoryFilters(since=middle + timedelta(minutes=1)))
    assert {one.session for one in of_loops(until.shifts)} == {"twice", "thrice", "often"}
    assert {one.session for one in of_loops(since.shifts)} == {"late"}


LENGTHS = st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 9), st.booleans()), min_size=1, max_size=8)


def incidents_of(steps: list[tuple[str, int, bool]], minor: int) -> list[FoldIncident]:
    """Streaks that rules find in a story of runs of equal calls; each run breaks off the one before."""
    story = Story()
    for name, times, again in steps:
        story.moved(session=name).works("compute", {"q": 0 if again else times}, result="same", times=times)
        story.works("write_file", {"path": f"/{times}"})
    found = IncidentCollector()
    for position, output in enumerate(replayed(story.records, repetitive(minor=minor))):
        found.take(output.time_ms, [output])
        assert position >= 0
    return found.all


@given(LENGTHS, st.integers(2, 6))
def test_the_same_rules_catch_nothing_and_lose_nothing(steps: list[tuple[str, int, bool]], minor: int) -> None:
    """Whatever happened."""
    once, again = incidents_of(steps, minor), incidents_of(steps, minor)
    assert shifts(once, again) == ([], len(once))


@given(LENGTHS, st.integers(2, 6), st.integers(2, 6))
def test_each_streak_is_in_one_shift_and_swapped_sides_swap_the_words(
    steps: list[tuple[str, int, bool]], one: int, other: int
) -> None:
    """None is counted twice or forgotten; what one side catches the other loses."""
    first, second = incidents_of(steps, one), incidents_of(steps, other)
    there, alike = shifts(first, second)
    back, alike_back = shifts(second, first)
    assert alike == alike_back
    assert Counter(SWAPPED[shift.how] for shift in there) == Counter(shift.how for shift in back)
    for side, every in ((0, first), (1, second)):
        taken = [id(incident) for shift in there for incident in (shift.before, shift.after)[side]]
        assert len(taken) == len(set(taken)) <= len(every)
    if one > other:
        assert not [shift for shift in there if shift.how in {"lost", "later"}]
