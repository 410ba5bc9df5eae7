"""Periods of the history from the command line: what needs somebody now, and what is compared with what."""

from __future__ import annotations

import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import orjson
import pytest
from click.testing import CliRunner
from recorded import told
from story import START, Story
from trustfold.cli.history import history
from trustfold.cli.report import report


def answered(root: Path, *arguments: str) -> str:
    """What `trustfold history` says."""
    done = CliRunner().invoke(history, [*arguments, "--history", str(root)], env={"COLUMNS": "200"})
    assert done.exit_code == 0, done.output
    return done.output


def rows(root: Path, *arguments: str) -> list[dict[str, Any]]:
    """The rows of its JSON."""
    found: list[dict[str, Any]] = orjson.loads(answered(root, *arguments, "--json"))["rows"]
    return found


def lost_trust(root: Path, hours: int) -> Path:
    """A key loses trust, and so many hours later something else is worked on."""
    story = Story(model="m").fails("deploy", {"to": "x"}, message="no", times=6)
    told(root, story.after(minutes=60 * hours).moved(session="s2").works("read_file", {"path": "a"}), live=True)
    return root


@pytest.fixture
def blocked_early(tmp_path: Path) -> Path:
    """A key that lost trust in the morning, and work on something else a day later."""
    return lost_trust(tmp_path, 26)


def test_an_escalation_whose_cooldown_is_over_still_needs_somebody(tmp_path: Path) -> None:
    """Its state is the same until a call of it succeeds; `status` and the pages say so, too."""
    found = rows(lost_trust(tmp_path, 3), "now")
    assert ("escalated", "deploy") in {(row["state"], row["subject"]) for row in found}


@pytest.mark.slow
def test_reports_tell_what_needs_somebody_and_what_they_compare_with(tmp_path: Path) -> None:
    """A report of the last day has an older escalation, too, and says how much of the day before is recorded."""
    lost = lost_trust(tmp_path, 23)
    since = ("--since", "2026-01-05T20:00")
    every = rows(lost, "now")
    assert rows(lost, "now", *since) == every
    done = CliRunner().invoke(report, ["--json", *since, "--history", str(lost)])
    assert orjson.loads(done.stdout)["now"] == every
    page = lost / "report.html"
    CliRunner().invoke(report, ["--html", str(page), *since, "--history", str(lost)])
    text = page.read_text()
    assert "trustfold reset &#x27;deploy&#x27; --workspace &#x27;w1&#x27;" in text
    assert "against as long before, of which only the time from 2026-01-05 10:00:02 on is recorded." in text


@pytest.mark.parametrize(
    ("hours", "says"),
    [
        ("1h", "against as long before"),
        ("18h", "of which only the time from 2026-01-05 10:00:02 on is recorded"),
        ("48h", "nothing before it is recorded"),
    ],
)
def test_how_much_of_the_time_before_is_recorded_is_said(blocked_early: Path, hours: str, says: str) -> None:
    """A change against half a day is none against a day."""
    assert says in answered(blocked_early, "compare", "--with", hours)
    if hours == "1h":
        assert "only" not in answered(blocked_early, "compare", "--with", hours)


def test_a_filter_by_tool_does_not_move_the_beginning_of_the_records(blocked_early: Path) -> None:
    """A tool that was not called yet was not unrecorded."""
    told_ = answered(blocked_early, "compare", "--with", "1h", "--tool", "read_file")
    assert "against as long before" in told_
    assert "only" not in told_


@pytest.mark.slow
@pytest.mark.parametrize("zone", ["America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu"])
def test_days_are_those_of_utc_wherever_the_command_runs(
    tmp_path: Path, zone: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also on days of 23 and 25 hours there: a failure each hour is 24 failures a day."""
    story = Story(model="m")
    story.now = START.replace(month=3, day=7, hour=0, minute=0) - timedelta(seconds=4)
    for number in range(3 * 24):
        story.moved(session=f"s{number}").fails("deploy", {"n": number}).after(minutes=60, seconds=-4)
    told(tmp_path, story, decisions=False)
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    found = rows(tmp_path, "failures")
    assert [(row["day"], row["failures"]) for row in found] == [(f"2026-03-0{day}", 24) for day in (7, 8, 9)]
    since = rows(tmp_path, "overview", "--since", "2026-03-08", "--until", "2026-03-09")
    assert since[0]["failures"] == 24
    assert since[0]["first"] < "2026-03-08T00:01"
    assert rows(tmp_path, "overview", "--since", "2026-03-08T00:00+05:45")[0]["failures"] == 48 + 5


def test_the_end_of_a_period_is_not_in_it_and_its_beginning_is(tmp_path: Path) -> None:
    """So that two periods next to each other have every event once."""
    story = Story()
    story.now = START - timedelta(seconds=2)
    story.event("user.message")
    story.after(seconds=58).event("user.message")
    told(tmp_path, story)
    first = rows(tmp_path, "overview", "--until", "2026-01-05T10:01:00")[0]["events"]
    second = rows(tmp_path, "overview", "--since", "2026-01-05T10:01:00")[0]["events"]
    assert (first, second) == (1, 1)
