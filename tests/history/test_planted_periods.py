"""Histories whose numbers are known: what is asked of two periods, counted from what was planted."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

from recorded import rows, told
from story import START, Story
from trustfold.history.catalogue import connect
from trustfold.history.filters import HistoryFilters
from trustfold.history.queries import ask
from trustfold.history.reports import BY_NAME
from trustfold.history.summary import PeriodShare, counts, numbers

HALF = START.replace(tzinfo=None) + timedelta(minutes=30)


def counted(root: Path, begin: datetime = HALF) -> dict[str, PeriodShare]:
    """Counts of a summary, before and after a time."""
    with connect(root, threads=2, query="tool_calls patterns asks nudges outages recorded_until") as connection:
        return counts(connection, begin)


def test_a_session_that_was_stuck_without_a_call_is_among_the_sessions(tmp_path: Path) -> None:
    """So no share of sessions is beyond all of them, in the summary and among the models."""
    story = Story(model="m")
    for number in range(12):
        story.moved(session=f"talks-{number}")
        for _ in range(8):
            story.says("Let me look at the file once more to be sure of what it says.")
    for number in range(10):
        story.moved(session=f"works-{number}").works("read_file", {"path": str(number)})
    told(tmp_path, story)
    stuck = rows(tmp_path, "SELECT count(DISTINCT session_id) FROM patterns")[0][0]
    assert stuck == 12
    found = counted(tmp_path, datetime(2026, 1, 1))  # noqa: DTZ001 - as the catalogue gives times
    assert found["stuck"] == PeriodShare(12, 22, 0, 0)
    assert numbers(found, 0, comparable=False)


def test_calls_for_nothing_belong_to_the_period_in_which_they_were_made(tmp_path: Path) -> None:
    """A loop that goes on from one period into the next does not count whole in either."""
    story = Story(model="m")
    story.works("status", {"of": "build"}, result="pending", times=14)
    story.after(minutes=40).works("status", {"of": "build"}, result="pending", times=2)
    told(tmp_path, story)
    assert counted(tmp_path)["wasted"] == PeriodShare(2, 2, 13, 14)
    assert (counted(tmp_path)["seconds"].hits, counted(tmp_path)["seconds"].hits_before) == (0, 1)


def test_what_lies_in_the_future_belongs_to_no_period(tmp_path: Path) -> None:
    """A clock that goes wrong changes no number of the last days, nor is it news."""
    story = Story(model="m").works("read_file", {"path": "a"}, times=2)
    story.now = datetime.now(UTC) + timedelta(days=400)
    story.moved(session="s2").fails("teleport", times=12)
    told(tmp_path, story, decisions=False)
    assert counted(tmp_path, datetime(2026, 1, 1))["failures"] == PeriodShare(0, 2, 0, 0)  # noqa: DTZ001
    assert rows(tmp_path, "SELECT name FROM new_things(INTERVAL 1000 DAY) WHERE kind = 'tool'") == [("read_file",)]


def test_a_model_that_nobody_named_is_asked_for_as_unknown(tmp_path: Path) -> None:
    """Answers call it so, and links of pages filter by that name."""
    story = Story().fails("deploy", times=2)
    story.model = "m"
    story.moved(session="s2").fails("deploy", times=3)
    told(tmp_path, story)
    for model, failed in (("unknown", 2), ("m", 3)):
        query = "SELECT model, failures FROM model_tool_matrix"
        assert rows(tmp_path, query, filters=HistoryFilters(models=(model,))) == [(model, failed)]


def test_sessions_with_a_large_share_for_nothing_come_before_long_ones_that_fail_as_all_do(tmp_path: Path) -> None:
    """Nor does one failure of one call lead."""
    story = Story(model="m")
    for number in range(4):
        story.moved(session=f"long-{number}")
        for call in range(120):
            act = story.fails if call % 10 == number else story.works
            act(f"tool_{call % 7}", {"path": f"{number}-{call}"})
    story.moved(session="short").fails("deploy", {"to": "x"})
    story.moved(session="circling").works("status", {"of": "build"}, result="pending", times=9)
    told(tmp_path, story)
    found = rows(tmp_path, "SELECT session_id, led_nowhere, calls FROM sessions_to_look_at")
    assert found[0] == ("circling", 8, 9)
    assert ("short", 1, 1) in found[1:]
    assert {row[1:] for row in found if row[0].startswith("long")} == {(12, 120)}


def test_no_limit_hides_all_failures(tmp_path: Path) -> None:
    """A day with more kinds of failures than rows are wanted is shown whole."""
    story = Story()
    for severity in ("server_error", "invalid_input", "validation"):
        story.fails("deploy", {"to": severity}, with_=severity)
    told(tmp_path, story)
    with connect(tmp_path, threads=2, query=BY_NAME["failures"].sql) as connection:
        found = ask(connection, BY_NAME["failures"], 1)
    assert len(found.rows) == 3
    assert found.left_out == 0


def test_pages_of_an_answer_have_every_row_once(tmp_path: Path) -> None:
    """What is equal in all that an answer is ordered by stands in one order, whatever the limit."""
    story = Story(model="m")
    for number in range(24):
        story.works(f"tool_{number * 7 % 24:02}", {"path": "a"}, times=20)
    told(tmp_path, story, decisions=False)
    with connect(tmp_path, query=BY_NAME["tools"].sql + BY_NAME["models"].sql) as connection:
        for name in ("tools", "models"):
            whole = [row[0] for row in ask(connection, BY_NAME[name], 1000).rows]
            assert whole == sorted(whole)
            assert [row[0] for row in ask(connection, BY_NAME[name], 17).rows] == whole[:17]
