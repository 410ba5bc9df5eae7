"""The report: its numbers counted again in plain Python, what it ranks first, and the page it makes of both."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from html import escape
from pathlib import Path
from typing import Any

import orjson
import pytest
from browser_kit import browsing
from click.testing import CliRunner
from duckdb import DuckDBPyConnection
from recorded import record, replayed
from trustfold.cli.report import report
from trustfold.history.catalogue import connect
from trustfold.history.charts import picture
from trustfold.history.filters import EVERYTHING, HistoryFilters
from trustfold.history.findings import finding
from trustfold.history.queries import ask
from trustfold.history.report_page import SHOWN, ReportContent, report_page
from trustfold.history.reports import BY_NAME, QUESTIONS, QuestionAnswer, against_before
from trustfold.history.summary import (
    PeriodShare,
    SummaryPeriod,
    counts,
    look_here_first,
    numbers,
    period_of,
    window_of,
)
from two_days import two_days

Body = dict[str, Any]
MIDDLE = datetime(2026, 1, 6, 6, tzinfo=UTC)
MADE = datetime(2026, 1, 8, tzinfo=UTC)


def naive(time: datetime | str) -> datetime:
    """A time as the catalogue gives it."""
    found = datetime.fromisoformat(time) if isinstance(time, str) else time
    return found.astimezone(UTC).replace(tzinfo=None)


class Lived:
    """Two days recorded while they happened, and all that was decided."""

    def __init__(self, root: Path) -> None:
        self.root = root
        records = list(two_days())
        record(root, records, live=True)
        self.events: list[Body] = [orjson.loads(value) for _, value in records]
        outputs = [output for output in replayed(records) if output.topic in {"escalations", "breakers", "nudges"}]
        self.decisions: list[Body] = [orjson.loads(output.value or b"") for output in outputs]


@pytest.fixture(scope="module")
def lived(tmp_path_factory: pytest.TempPathFactory) -> Lived:
    """One history for all of these tests."""
    return Lived(tmp_path_factory.mktemp("lived"))


@pytest.fixture(scope="module")
def whole(lived: Lived) -> Iterator[DuckDBPyConnection]:
    """The catalogue of all of it."""
    with connect(lived.root, threads=2) as connection:
        yield connection


@pytest.fixture(scope="module")
def answers(whole: DuckDBPyConnection) -> dict[str, QuestionAnswer]:
    """All answers over the two days."""
    return {question.name: ask(whole, question, 400) for question in QUESTIONS}


@pytest.mark.parametrize("filters", [EVERYTHING, HistoryFilters(since=MIDDLE)])
def test_every_key_is_at_every_moment_in_the_state_that_the_last_change_said(
    lived: Lived, filters: HistoryFilters
) -> None:
    """Also where the filtered time begins after that change; before the first one nothing is claimed."""
    changes: dict[tuple[str, str, str], list[tuple[datetime, str, str]]] = {}
    for one in lived.decisions:
        if one["type"] in {"trust.changed", "breaker.changed"}:
            machine = one["type"].partition(".")[0]
            key = machine, one.get("workspace_id") or "default", one.get("breaker_key") or one["key"]
            changes.setdefault(key, []).append((naive(one["time"]), one["from"], one["to"]))
    with connect(lived.root, threads=2, filters=filters, query="state_spans") as connection:
        spans = connection.execute(
            "SELECT machine, workspace, subject, state, began, ended FROM state_spans"
        ).fetchall()
        window = window_of(connection)
    assert window is not None
    assert {row[:3] for row in spans} == changes.keys()
    known = {(*key, to, time) for key, steps in changes.items() for time, _, to in steps}
    assert {row[:5] for row in spans} <= known
    step = (window.end - window.begin) / 200
    for key, steps in changes.items():
        own = [row[3:] for row in spans if row[:3] == key]
        for number in range(1, 200):
            moment = window.begin + number * step
            expected = [to for time, _, to in steps if time <= moment][-1:]
            found = [state for state, began, ended in own if began <= moment and (ended is None or moment < ended)]
            assert found == expected


def test_no_state_is_claimed_before_the_first_record(lived: Lived) -> None:
    """However early the chosen time begins: nobody knows what was before."""
    first = min(naive(one["time"]) for one in lived.decisions) - timedelta(days=2)
    filters = HistoryFilters(since=MIDDLE - timedelta(days=400))
    with connect(lived.root, threads=2, filters=filters, query="state_spans") as connection:
        (began,) = connection.execute("SELECT min(began) FROM state_spans").fetchall()[0]
    assert began > first


def test_the_numbers_of_a_period_and_of_the_one_before(lived: Lived, whole: DuckDBPyConnection) -> None:
    """Each event counts in the period in which it happened."""
    found = counts(whole, naive(MIDDLE))
    ((wasted,),) = whole.execute("SELECT sum(wasted_calls)::INTEGER FROM cost_of_loops").fetchall()
    ((outages,),) = whole.execute("SELECT count(*) FROM outages").fetchall()

    def both(ones: list[Body], named: str = "") -> list[int]:
        recent = [one for one in ones if naive(one["time"]) >= naive(MIDDLE)]
        older = [one for one in ones if one not in recent]
        return [len({one[named] for one in part} if named else part) for part in (recent, older)]

    calls = [one for one in lived.events if one["type"] == "tool_call.finished"]
    failures = [one for one in calls if one["status"] != "success"]
    stuck = [one for one in lived.decisions if one["type"] == "pattern.detected"]
    judged = [one for one in lived.decisions if one["type"] == "nudge.judged"]
    issued = [one for one in lived.decisions if one["type"] == "nudge.issued"]
    assert [found["calls"].hits, found["calls"].hits_before] == both(calls)
    (failed, failed_before), (every, every_before) = both(failures), both(calls)
    assert found["failures"] == PeriodShare(failed, every, failed_before, every_before)
    assert [found["stuck"].hits, found["stuck"].hits_before] == both(stuck, "session_id")
    assert [found["stuck"].trials, found["stuck"].trials_before] == both(calls, "session_id")
    helped = {one["nudge_id"] for one in judged if one["effective"]}
    assert [found["nudges"].hits, found["nudges"].hits_before] == both([one for one in issued if one["id"] in helped])
    assert found["wasted"].hits + found["wasted"].hits_before == wasted > 0
    assert found["outages"].hits + found["outages"].hits_before == outages > 0


def test_a_change_has_the_interval_of_the_textbook() -> None:
    """Newcombe's example; few calls have none; what is worse depends on what is counted."""
    share = PeriodShare(56, 70, 48, 80)
    assert share.change == pytest.approx((0.2, 0.0524, 0.3339), abs=1e-4)
    assert (share.verdict(), share.verdict(more_is_worse=False)) == ("worse", "better")
    assert PeriodShare(3, 3, 0, 100).change is None
    assert PeriodShare(11, 100, 10, 100).verdict() == ""


def test_the_period_is_what_was_asked_for(whole: DuckDBPyConnection) -> None:
    """From `since` on, else the last days; where nothing is before, nothing is compared."""
    every = period_of(whole, None, timedelta(days=7))
    last = period_of(whole, None, timedelta(hours=12))
    asked = period_of(whole, MIDDLE, timedelta(days=7))
    assert every is not None and last is not None and asked is not None  # noqa: PT018
    assert not every.comparable
    assert (last.end - last.begin, last.begin - last.before) == (timedelta(hours=12), timedelta(hours=12))
    assert (asked.begin, asked.begin - asked.before) == (naive(MIDDLE), asked.end - naive(MIDDLE))
    told = numbers({"failures": PeriodShare(1, 10)}, 3, comparable=False)
    assert [(one.value, one.before) for one in told[:2]] == [("3", ""), ("10 %", "")]


def test_a_new_failure_is_new_against_the_period_before(whole: DuckDBPyConnection) -> None:
    """With a beginning given, what was before it is looked at, and not taken for nothing."""
    end, begin = datetime(2026, 1, 7, 1, 17, 52), datetime(2026, 1, 5, 13)  # noqa: DTZ001
    worse, new = (
        ask(whole, one, 9) for one in (against_before(BY_NAME[name], end - begin) for name in ("worse", "new"))
    )
    known = whole.execute("SELECT DISTINCT signature FROM failures WHERE time < ?", [begin]).fetchall()
    assert worse.question.name == "worse"
    assert new.rows
    assert not {row[1:2] for row in new.rows} & set(known)


def test_what_needs_somebody_stands_before_what_got_worse_and_what_is_new(answers: dict[str, QuestionAnswer]) -> None:
    """Ranked, bounded, and the rest is counted."""
    now = answers["now"]
    many = now._replace(rows=now.rows * 9)
    worse = QuestionAnswer(
        BY_NAME["worse"],
        ["kind", "name", "rate", "failures", "calls", "failures_before", "calls_before"],
        [("tool", "http_request", 0.1, 13, 124, 2, 82)],
    )
    found = look_here_first(answers | {"now": many, "worse": worse})
    marks = [one.mark for one in found]
    assert marks[:6] == ["blocked"] * 4 + ["more", "worse"]
    assert found[4].subject == "5 more"
    assert found[5].says == "the tool fails in 10 % (13/124) of its calls, against 2.4 % (2/82) before"
    assert found[0].order == "trustfold reset 'bash|command=make' --workspace 'team-1'"
    assert len(found) <= 8
    assert not look_here_first({})


def test_every_question_says_its_finding(answers: dict[str, QuestionAnswer]) -> None:
    """One sentence each, also of nothing, and of a part it says so."""
    for answer in answers.values():
        assert len(finding(answer)) > 3, answer.question.name
        assert finding(answer._replace(rows=[])) == (answer.question.empty or "Nothing is recorded that answers this.")
        picture(answer)
    assert finding(answers["tools"]) == "7.4 % (75/1,018) of the calls failed; worst: bash, 26 % (60/234)."
    assert finding(answers["tools"]._replace(left_out=3)) == finding(answers["tools"])
    told = {
        "sessions": "8 of 48 sessions were stuck, 2026-01-05 10:00:02 to 2026-01-07 01:17:52; most: session-31 with "
        "4 reports of patterns.",
        "recent": "53 decisions, 2026-01-05 13:23:26 to 2026-01-06 21:58:12; the last: nudge.issued error_retry_loop",
        "reasons": "Why trust was lost, circuits opened, models were stuck and calls failed in the weeks of "
        "2026-01-05 to 2026-01-05; most often validation (failure), 35 times in that of 2026-01-05.",
    }
    for name, said in told.items():
        assert finding(answers[name]) == said, name
        assert finding(answers[name]._replace(rows=answers[name].rows[:1], left_out=9)) == said, name
    assert finding(answers["models"]._replace(left_out=3)).startswith(f"In the first {len(answers['models'].rows)} of ")


def test_a_row_without_a_value_has_no_bar() -> None:
    """A nudge that was never judged has not failed to help."""
    columns = "nudge issued rate rate_low rate_high delivered judged effective false_alarms".split()
    rows = [("a gentle", 3, 0.5, 0.1, 0.9, 3, 2, 1, 0), ("b gentle", 2, None, None, None, 0, 0, 0, 0)]
    drawn = picture(QuestionAnswer(BY_NAME["nudges"], columns, rows, 4))
    assert drawn.svg.count("<g><title>") == 1
    assert "50 % (1/2), 10 % to 90 %" in drawn.svg
    assert drawn.notes == ("1 row has no rate and no bar.", "The plot is of 2 rows; 4 are left out.")


def test_the_page_is_ordered_linked_and_needs_nothing(answers: dict[str, QuestionAnswer]) -> None:
    """Numbers, then what to look at, then pictures; decisions last; every link has its end; no script is allowed."""
    begin = datetime(2026, 1, 5)  # noqa: DTZ001
    period = SummaryPeriod(begin, begin + timedelta(days=1), begin + timedelta(days=2))
    told = numbers({"failures": PeriodShare(9, 20, 1, 20)}, 1, comparable=True)
    text = report_page(
        ReportContent("T", period, None, "tool <b>", MADE, told, look_here_first(answers), list(answers.values()))
    )
    places = [
        text.index(part) for part in ('class="numbers"', "Look here first", 'id="now"', 'id="failures"', 'id="recent"')
    ]
    assert places == sorted(places)
    assert set(re.findall(r'href="#([^"]+)"', text)) <= set(re.findall(r'id="([^"]+)"', text))
    assert "▲ worse" in text
    assert "45 %" in text
    assert "+00:00" in text
    assert "Only tool &lt;b&gt;." in text
    silent = [answer.question for answer in answers.values() if not answer.rows]
    assert silent
    assert all(escape(question.empty) in text for question in silent)
    assert max(part.count("<tr>") for part in text.split("<table>")) <= SHOWN + 1
    (style,) = re.findall(r"<style>(.*?)</style>", text, re.DOTALL)
    assert f"style-src 'sha256-{b64encode(sha256(style.encode()).digest()).decode()}'" in text
    assert not re.search(r"<script|<link|\bstyle=|\bsrc=|url\(", text)


@pytest.mark.parametrize(
    ("before", "first", "says"),
    [
        (MIDDLE - timedelta(days=1), None, ", against as long before."),
        (
            MIDDLE - timedelta(days=1),
            MIDDLE - timedelta(hours=4),
            ", against as long before, of which only the time from 2026-01-06 02:00:00 on is recorded.",
        ),
        (MIDDLE, None, "; there is nothing before to compare with."),
    ],
)
def test_the_page_says_how_much_of_the_time_before_is_recorded(
    before: datetime, first: datetime | None, says: str
) -> None:
    """As `history compare` does."""
    period = SummaryPeriod(naive(before), naive(MIDDLE), naive(MIDDLE + timedelta(days=1)), first and naive(first))
    assert says in report_page(ReportContent("T", period, None, "", MADE, [], [], []))


# --- on paper ---------------------------------------------------------------------------------------------------------

BEYOND = """() => [...document.querySelectorAll("main *")].filter((one) => {
  const box = one.getBoundingClientRect();
  return box.width && box.right > document.documentElement.clientWidth + 1;
}).map((one) => one.outerHTML.slice(0, 120))"""
"""Elements that reach beyond the right edge."""

A4 = {"width": 703, "height": 1010}
"""Pixels of a page within its margins."""


@pytest.mark.slow
def test_a_report_is_four_pages_of_a4(tmp_path: Path) -> None:
    """It says of which project and period it is, and nothing of it is cut off at an edge."""
    root, page = tmp_path / "shop" / ".trustfold" / "history", tmp_path / "report.html"
    record(root, two_days(), live=True)
    done = CliRunner().invoke(report, ["--html", str(page), "--history", str(root)])
    assert done.exit_code == 0, done.output
    with browsing() as browser:
        tab = browser.new_page(viewport=A4)
        tab.goto(page.as_uri())
        assert tab.title() == "What the agents' tools did in shop, 2026-01-05 to 2026-01-07"
        printed = tab.pdf(format="A4", prefer_css_page_size=True, print_background=True)
        tab.emulate_media(media="print")
        assert tab.evaluate(BEYOND) == []
        assert "Printed are the first 5 rows" in tab.inner_text("main")
    assert 2 <= len(re.findall(rb"/Type\s*/Page[^s]", printed)) <= 4
