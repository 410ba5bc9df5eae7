"""The History, Tools and Models pages: what they show is what is recorded, whatever names are in it."""

from __future__ import annotations

import asyncio
import csv
import re
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from html import unescape
from io import StringIO
from pathlib import Path
from typing import Any

import orjson
import pytest
from command_line import trustfold
from dashboard_kit import HERE, failures
from duckdb import DuckDBPyConnection
from fixed_rules import TO_OPEN, Rules
from recorded import record
from starlette.datastructures import QueryParams
from starlette.testclient import TestClient
from story import Story
from trustfold.errors import TrustfoldError
from trustfold.history.catalogue import connect
from trustfold.history.charts import objects
from trustfold.history.filters import EVERYTHING, HistoryFilters
from trustfold.history.page import shown_as, style
from trustfold.history.queries import ask
from trustfold.history.reports import BY_NAME, QUESTIONS, CatalogueQuestion, QuestionAnswer
from trustfold.streams.embedded.engine import EmbeddedEngine
from trustfold.streams.embedded.server import make_app
from trustfold.web.dashboard import history_answers
from trustfold.web.dashboard.history import BY_DAY, COMPARE, GROUPS, QuestionQuery, shown
from trustfold.web.dashboard.history_answers import HistoryArchive, QuestionRequest, QuestionUnanswered, TimedAnswer
from trustfold.web.dashboard.history_filters import PageFilters, bucket_of
from trustfold.web.dashboard.models import measured
from trustfold.web.dashboard.render import static_files
from trustfold.web.dashboard.routes import _asked_most
from trustfold.web.dashboard.tool import PageSubject, four_numbers
from trustfold.web.routes import more_routes
from two_days import two_days

NOW = datetime(2026, 1, 8, 12, tzinfo=UTC)
EVIL = "<img src=x onerror=alert(1)>"


def client_of(folder: Path, history: Path | None) -> TestClient:
    """A client of `up` that shows a history."""
    path = folder / "store.sqlite"
    app = make_app(EmbeddedEngine.open(path, Rules()), path, more=partial(more_routes, history=history))
    return TestClient(app, base_url=HERE, follow_redirects=False)


@pytest.fixture(scope="module")
def calls() -> list[dict[str, Any]]:
    """Finished calls of the two days."""
    found = [orjson.loads(value) for _, value in two_days()]
    return [one for one in found if one["type"] == "tool_call.finished"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two recorded days in `h`, with a tool and a session whose names are markup."""
    folder = tmp_path_factory.mktemp("pages")
    story = Story(session=EVIL, model="<b>m</b>")
    story.fails(EVIL, times=12, message="<script>alert(2)</script> failed")
    evil = [(topic, value.replace(b'"00000000-', b'"00000099-')) for topic, value in story.records]
    record(folder / "h", [*two_days(), *evil], live=True)
    return folder


@pytest.fixture(scope="module")
def client(folder: Path) -> Iterator[TestClient]:
    """`up` over the two days."""
    with client_of(folder, folder / "h") as found:
        yield found


@pytest.fixture(scope="module")
def catalogue(folder: Path) -> Iterator[DuckDBPyConnection]:
    """The catalogue of the two days."""
    with connect(folder / "h", threads=2) as connection:
        yield connection


def cells(text: str) -> list[list[str]]:
    """Texts of the last table of a page."""
    rows = re.findall(r"<tr>(<td.*?)</tr>", text[text.rindex("<table>") :], re.DOTALL)
    return [
        [unescape(re.sub(r"<[^>]+>", "", cell)) for cell in re.findall(r"<td[^>]*>(.*?)</td>", row, re.DOTALL)]
        for row in rows
    ]


# --- the query string ------------------------------------------------------------------------------------------------


def narrowed(query: str) -> PageFilters:
    """What a query string narrows a page to."""
    return PageFilters.of(QueryParams(query), NOW)


def test_a_query_string_says_which_part_of_the_history_is_meant() -> None:
    """A span is live, two bounds are fixed, a name may be given several times, a mistake is told and does no harm."""
    assert narrowed("").filters == HistoryFilters(NOW - timedelta(days=7))
    assert narrowed("since=all&tool=a&tool=b&tool=&model=m").filters == HistoryFilters(
        None, None, (), ("a", "b"), ("m",)
    )
    fixed = narrowed("since=2026-01-01&until=2026-01-03T00:00")
    assert (fixed.filters.since, fixed.filters.until) == (
        datetime(2026, 1, 1, tzinfo=UTC),
        datetime(2026, 1, 3, tzinfo=UTC),
    )
    for wrong in ("since=soon", "until=%00", "since=2026-01-03&until=2026-01-01", "since=99999999999999w"):
        found = narrowed(wrong)
        assert found.fault, wrong
        assert found.filters == HistoryFilters(NOW - timedelta(days=7))


@pytest.mark.parametrize("since", ["400000d", "0001-01-01", "2000-01-01&until=9999-12-31"])
def test_a_time_with_nothing_as_long_before_it_has_no_period_before(since: str) -> None:
    """As long before it lies before all time."""
    found = narrowed(f"since={since}")
    assert not found.fault
    assert found.before is None
    assert found.changes(-1) is None


def test_whoever_asks_again_in_a_moment_asks_for_the_same() -> None:
    """So an answer that is kept is found again, also that of the period before."""
    later = PageFilters.of(QueryParams(""), NOW + timedelta(seconds=3))
    assert (later.filters, later.before) == (narrowed("").filters, narrowed("").before)


def test_periods_follow_one_another_without_a_gap() -> None:
    """Earlier and back is where one was; beyond now there is nothing later."""
    here = narrowed("since=2026-01-03&until=2026-01-04&tool=a")
    earlier = here.changes(-1)
    assert earlier == {"since": "2026-01-02T00:00:00Z", "until": "2026-01-03T00:00:00Z"}
    assert narrowed(f"since={earlier['since']}&until={earlier['until']}").changes(1) == here.fixed()
    assert narrowed("since=7d").changes(1) is None
    assert narrowed("since=all").changes(-1) is None
    assert here.before == HistoryFilters(datetime(2026, 1, 2, tzinfo=UTC), datetime(2026, 1, 3, tzinfo=UTC), (), ("a",))


def test_a_plot_has_at_most_about_a_hundred_points() -> None:
    """From minutes to years."""
    for length in (timedelta(minutes=5), timedelta(hours=7), timedelta(days=7), timedelta(days=600)):
        assert length / bucket_of(length) <= 100


# --- models of pages -------------------------------------------------------------------------------------------------


def test_pages_of_a_table_have_every_row_once() -> None:
    """The second page begins where the first ends; the last one may be short."""
    rows = [(f"t{number}", number) for number in range(25)]
    seen = []
    for page in (1, 2, 3):
        asked = QuestionQuery.of(QueryParams(f"page={page}&rows=10"), NOW)
        limit = asked.page * asked.rows
        answer = QuestionAnswer(BY_NAME["signatures"], ["a", "b"], rows[:limit], max(25 - limit, 0))
        part = shown(TimedAnswer(answer, NOW), asked)
        assert (part.total, part.last) == (25, 3)
        seen += part.answer.rows
    assert seen == rows


def test_few_calls_are_no_claim() -> None:
    """Only their counts are shown."""
    assert measured(2, 3, "/x") == ("2/3", "", None, "/x")
    assert measured(4, 10, "/x")[:3] == ("40 % (4/10)", "17 % to 69 %", 0.4)
    assert measured(0, 0, "/x").text == ""


def test_the_sentence_about_what_needs_somebody_counts_all_of_it(tmp_path: Path) -> None:
    """Also where the page shows some rows only."""
    story = Story()
    for number in range(5):
        story.moved(session=f"s{number}").fails(f"tool-{number}", times=3)
    record(tmp_path / "h", story.records, live=True)
    with client_of(tmp_path, tmp_path / "h") as client:
        page = client.get("/history/now?since=all&rows=2").text
    assert len(cells(page)) == 2
    assert re.search(r">5 escalated[^<]*\. First: tool-\d ", page)


def test_tools_say_whether_the_last_hour_was_better_than_the_one_before(tmp_path: Path) -> None:
    """By the failures of both, at the end of what is recorded; not where only the last hour is shown."""
    story = Story()
    story.fails("worse").fails("better", times=3).after(minutes=70).works("calm")
    story.fails("worse", times=2).fails("better").works("calm")
    record(tmp_path / "h", story.records, live=True)
    with client_of(tmp_path, tmp_path / "h") as client:
        whole = client.get("/tools?since=all").text
        fields = [orjson.loads(value) for _, value in story.records]
        latest = client.get("/tools", params={"since": fields[-10]["time"], "until": fields[-1]["time"]}).text
    assert trends(whole) == {"worse": "2 ▲ 1 before", "better": "1 ▼ 3 before", "calm": ""}
    assert trends(latest)["worse"] == "2"


def trends(page: str) -> dict[str, str]:
    """Failures of the last hour, by tool, of the table of tools."""
    rows = [
        re.findall(r"<td[^>]*>(.*?)</td>", row, re.DOTALL)
        for row in re.findall(r"<tr data-row>(.*?)</tr>", page, re.DOTALL)
    ]
    texts = [[" ".join(unescape(re.sub(r"<[^>]+>", "", cell)).split()) for cell in row] for row in rows]
    return {row[1]: row[4] for row in texts}


def test_keys_are_tools_services_or_keys_of_tools() -> None:
    """Each has its own calls; `tool:bash` is the tool."""
    assert PageSubject.of("tool:bash") == PageSubject.of("bash")
    assert [PageSubject.of(key).calls for key in ("bash", "service:x.org", "bash|command=git")] == [
        "tool_name = $name",
        "service = $name",
        "failure_key = $name",
    ]


def test_the_four_numbers_of_a_tool() -> None:
    """With those before, where there were any."""
    row = {
        "calls": 30,
        "failures": 9,
        "judged": 20,
        "rate": 0.45,
        "rate_low": 0.26,
        "rate_high": 0.66,
        "p50_ms": 5.0,
        "p95_ms": 9.0,
        "sessions": 3,
    }
    before = row | {"calls": 25, "failures": 1}
    assert [(one.value, one.verdict) for one in four_numbers(row, before)] == [
        ("30", ""),
        ("45 %", "worse"),
        ("9", ""),
        ("5 ms", ""),
    ]
    assert {one.before for one in four_numbers(row, None)} == {""}


# --- the archive -----------------------------------------------------------------------------------------------------


async def test_an_answer_is_kept_and_then_found_anew_in_the_background(tmp_path: Path) -> None:
    """Who asks meanwhile gets the old one, at once; one that is very old is given to nobody."""
    record(tmp_path, [*two_days()][:200], live=True)
    clock = [0.0]
    archive = HistoryArchive(tmp_path, clock=lambda: clock[0])
    try:
        first = await archive.ask(BY_NAME["overview"])
        assert await archive.ask(BY_NAME["overview"]) is first
        clock[0] = 60
        assert await archive.ask(BY_NAME["overview"]) is first
        (task,) = archive._asked.values()
        newer = await task
        assert newer.at >= first.at
        assert await archive.ask(BY_NAME["overview"]) is newer
        clock[0] = 6000
        assert await archive.ask(BY_NAME["overview"]) is not newer
    finally:
        archive.close()


@pytest.mark.slow
async def test_filters_that_change_between_questions_are_those_of_each_question(tmp_path: Path) -> None:
    """A question replaces filters only in the views that it reads: each answer is that of a new catalogue."""
    record(tmp_path, [*two_days()], live=True)
    archive = HistoryArchive(tmp_path)
    middle = datetime(2026, 1, 6, tzinfo=UTC)
    every = [
        EVERYTHING,
        HistoryFilters(since=middle),
        HistoryFilters(until=middle, models=("small-3",)),
        HistoryFilters(tools=("bash",)),
    ]
    new = [connect(tmp_path, filters=filters, threads=2) for filters in every]
    try:
        for number, question in enumerate(QUESTIONS):
            place = number % len(every)
            filters, expected = every[place], ask(new[place], question, 50)
            found = (await archive.ask(question, filters)).answer
            assert (found.rows, found.left_out) == (expected.rows, expected.left_out), (question.name, filters)
    finally:
        archive.close()
        for connection in new:
            connection.close()


async def until(found: Callable[[], bool]) -> None:
    """Wait for what happens in the background."""
    while not found():  # noqa: ASYNC110 - nothing tells it
        await asyncio.sleep(0.01)


async def test_usual_answers_of_a_long_history_are_found_ahead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the first question, from memory, and again when they are old; until nobody asks any more."""
    monkeypatch.setattr(history_answers, "LITTLE", 10)
    monkeypatch.setattr(history_answers, "LOOK_S", 0)
    record(tmp_path, [*two_days()][:200], live=True)
    clock = [0.0]
    archive = HistoryArchive(tmp_path, clock=lambda: clock[0])
    usual = [QuestionRequest(EVERYTHING, BY_NAME[name], 50) for name in ("tools", "asks")]
    broken = QuestionRequest(EVERYTHING, CatalogueQuestion("broken", "?", "SELECT no_such_column LIMIT $limit"), 50)
    archive.find_ahead(lambda: [broken, *usual])
    started, tried = archive._started, Counter[QuestionRequest]()
    monkeypatch.setattr(archive, "_started", lambda wanted: (tried.update([wanted]), started(wanted))[1])
    try:
        await archive.ask(BY_NAME["overview"])
        await until(lambda: all(wanted in archive._kept for wanted in usual))
        await asyncio.sleep(0.1)
        assert {tried[wanted] for wanted in (broken, *usual)} == {1}
        old, _ = archive._kept[usual[0]]
        clock[0] = 301
        await until(lambda: archive._kept[usual[0]][0] is not old)
        clock[0] = 5000
        assert archive._ahead is not None
        await archive._ahead
        assert (await archive.ask(BY_NAME["tools"])).answer.rows == old.answer.rows
        assert not archive._ahead.done()
    finally:
        archive.close()


async def test_a_history_in_memory_is_asked_without_making_catalogues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those for two questions at a time are made when it has been loaded, whoever asks later."""
    monkeypatch.setattr(history_answers, "LITTLE", 10)
    record(tmp_path, [*two_days()][:200], live=True)
    archive = HistoryArchive(tmp_path)
    try:
        from_files = await archive.ask(BY_NAME["overview"])
        await until(lambda: archive._loading is not None and archive._loading.done())
        made = list(archive._made)
        assert len(made) == 3
        questions = [BY_NAME[name] for name in ("tools", "asks", "patterns", "models", "overview")]
        for filters in (EVERYTHING, HistoryFilters(tools=("bash",))):
            found = await asyncio.gather(*(archive.ask(question, filters, 51) for question in questions))
            assert found[-1].answer.columns == from_files.answer.columns
        assert archive._made == made
    finally:
        archive.close()


def test_what_pages_ask_for_over_long_times_is_found_ahead() -> None:
    """Over 7 and 30 days, and over everything."""
    ahead = Counter(wanted.filters for wanted in _asked_most(NOW))
    for since in ("7d", "30d", "all"):
        assert ahead[narrowed(f"since={since}").filters] > len(BY_NAME), since


async def test_a_query_that_takes_too_long_is_given_up(tmp_path: Path) -> None:
    """The answer says what to do, and the next question is answered."""
    record(tmp_path, [*two_days()][:50], live=True)
    archive = HistoryArchive(tmp_path, limit_s=0.3)
    endless = CatalogueQuestion(
        "endless",
        "?",
        "SELECT count(*) FROM range(1000000) a, range(1000000) b WHERE a.range * b.range % 7 = 3 LIMIT $limit",
    )
    try:
        await archive.ask(CatalogueQuestion("first", "?", "SELECT 1 LIMIT $limit"))
        with pytest.raises(QuestionUnanswered, match="choose a shorter time"):
            await archive.ask(endless)
        assert (await archive.ask(CatalogueQuestion("one", "?", "SELECT 1 LIMIT $limit"))).answer.rows == [(1,)]
    finally:
        archive.close()


def test_the_report_has_the_colours_of_the_pages() -> None:
    """Light and dark: every state and severity, and nothing that a picture uses is undefined."""

    def tokens(text: str) -> list[tuple[str, str]]:
        return sorted(re.findall(r"(--(?:state|sev)-[\w-]+):\s*(#\w+)", text))

    pages = static_files()["dashboard.css"][0].decode()
    assert tokens(style("report")) == [one for one in tokens(pages) if not one[0].startswith("--sev-text")]
    used = set(re.findall(r"var\((--[\w-]+)\)", style("plots")))
    assert used <= set(re.findall(r"(--[\w-]+):", pages + style("plots")))
    assert used <= set(re.findall(r"(--[\w-]+):", style("report", "plots")))


# --- pages -----------------------------------------------------------------------------------------------------------


def test_every_question_has_a_page_and_a_way_to_it(client: TestClient) -> None:
    """Each in one group; each page has an answer, a query to copy and its files."""
    listed = [name for _, names in GROUPS for name in names]
    assert sorted(listed) == sorted([*BY_NAME, "by-day", "compare"])
    text = client.get("/history?since=all&tool=bash").text
    for question in (*QUESTIONS, COMPARE, BY_DAY):
        url = f"/history/{question.name}?since=all&amp;tool=bash"
        assert f'href="{url}"' in text
        page = client.get(unescape(url))
        assert (page.status_code, "trustfold sql" in page.text) == (200, True), question.name


def test_the_numbers_of_a_page_are_those_counted_by_hand(client: TestClient, calls: list[dict[str, Any]]) -> None:
    """Of the tools, of one tool, of the models."""
    failed = Counter(one["tool_name"] for one in calls if one["status"] != "success")
    every = Counter(one["tool_name"] for one in calls)
    rows = client.get("/history/tools.json?since=all").json()
    assert {row["tool"]: (row["calls"], row["failures"]) for row in rows} == {
        name: (n, failed[name]) for name, n in every.items()
    }
    page = client.get("/tools/bash?since=all").text
    assert f'<b>{every["bash"]}</b> <span class="name">calls' in page
    assert f"({failed['bash']}/{every['bash']})" in page
    models = client.get("/models?since=all").text
    for model in ("large-1", "medium-2", "small-3"):
        own = [one for one in calls if one["model"] == model]
        bad = sum(one["status"] != "success" for one in own)
        assert f"({bad}/{len(own)})" in models


def test_what_got_worse_did_so_against_the_period_before(client: TestClient) -> None:
    """Also where the shown time begins after it: the search failed on the second day, as it had not on the first."""
    rows = client.get("/history/worse.json?since=2026-01-06T01:17&until=2026-01-07T01:18").json()
    assert [row["name"] for row in rows] == ["http_request"]
    assert client.get("/history/worse.json?since=2026-01-05T01:17&until=2026-01-06T01:18").json() == []


def test_what_needs_somebody_now_does_not_end_where_the_shown_time_begins(client: TestClient) -> None:
    """What was blocked before it, and still is, is listed."""
    rows = client.get("/history/now.json?since=all").json()
    assert rows
    assert client.get("/history/now.json?since=2026-01-07T01:17").json() == rows


def test_files_have_the_rows_of_the_table(client: TestClient) -> None:
    """The same page, the same order; so has JSON."""
    for query in ("since=all&rows=3&page=2", "since=all&tool=bash"):
        shown_rows = cells(client.get(f"/history/signatures?{query}").text)
        saved = list(csv.reader(StringIO(client.get(f"/history/signatures.csv?{query}").text)))
        assert [row[0] for row in saved[1:]] == [row[0] for row in shown_rows]
        assert len(saved[0]) == len(shown_rows[0])
        assert len(client.get(f"/history/signatures.json?{query}").json()) == len(shown_rows) > 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("page", "names"),
    [
        ("/tools/bash", ["over-time", "failures-of", "states", "by-model", "by-session_id"]),
        ("/tools/service:search.example.com", ["over-time", "failures-of", "by-model"]),
        ("/tools/bash%7Ccommand=pytest", ["by-model"]),
        ("/tools", ["every-tool"]),
        ("/models", ["every-model"]),
    ],
)
def test_rows_and_query_of_every_picture_are_offered(
    client: TestClient, catalogue: DuckDBPyConnection, page: str, names: list[str]
) -> None:
    """As CSV, as JSON, and as SQL that gives the same rows: nothing in it has to be filled in."""
    text = client.get(f"{page}?since=all").text
    for name in names:
        links = [unescape(one) for one in re.findall(r'href="([^"]+)" download', text) if f"download={name}." in one]
        csv_file, json_file = (client.get(one) for one in links)
        rows = json_file.json()
        assert len(list(csv.reader(StringIO(csv_file.text)))) == len(rows) + 1 > 1
        (sql,) = re.findall(rf"of {name}</span></summary>.*?<pre[^>]*>(.*?)</pre>", text, re.DOTALL)
        assert len(catalogue.execute(unescape(sql)).fetchall()) == len(rows)
    assert client.get(f"{page}?since=all&download=nothing.csv").status_code == 404


def test_a_history_of_another_store_is_not_shown_and_said(tmp_path: Path) -> None:
    """On every page that reads it, and in the head of all; the pages of this store's own present work."""
    story = Story(session="theirs").fails("bash", times=9)
    record(tmp_path / "h", story.records, live=True)
    (tmp_path / "h" / ".source").write_text("store of somebody else")
    with client_of(tmp_path, tmp_path / "h") as client:
        assert "holds the history of store of somebody else" in client.get("/").text
        for path in ("/history", "/history/tools", "/models"):
            assert "holds the history of store of somebody else" in client.get(path).text
        assert client.get("/sessions/theirs").status_code == 404


def test_a_decision_that_the_store_has_deleted_is_found_in_the_history(tmp_path: Path) -> None:
    """With the calls behind it, which are deleted, too; the history goes on being this store's own."""
    with client_of(tmp_path, tmp_path / "h") as client:
        assert client.post("/v1/events", content=failures("deploy", TO_OPEN)).status_code == 200
        (decision, *_) = [
            orjson.loads(line)["value"]["id"]
            for line in client.get("/v1/decisions?topics=escalations").text.splitlines()
        ]
        known = client.get(f"/decisions/{decision}").text
    recorded = trustfold("record", "--once", "--store", "store.sqlite", "--history", "h", cwd=tmp_path)
    assert recorded.returncode == 0, recorded.stderr
    with sqlite3.connect(tmp_path / "store.sqlite") as store:
        store.execute("DELETE FROM outputs")
        store.execute("DELETE FROM log WHERE seq < (SELECT max(seq) FROM log)")
    with client_of(tmp_path, tmp_path / "h") as client:
        assert client.get("/decisions/nothing").status_code == 404
        later = client.get(f"/decisions/{decision}").text
    calls = re.compile(r'class="tl-who key"><a data-open href="([^"]+)"')
    assert len(calls.findall(later)) == len(calls.findall(known)) == 3


def test_a_difference_of_rates_is_in_points() -> None:
    """From 4 % to 32 % is 28 points more, and not 28 %."""
    shown = [shown_as("change", value) for value in (0.28, -0.034, 0.0)]
    assert shown == ["+28 points", "-3.4 points", "+0.0 points"]
    assert shown_as("rate", 0.28) == "28 %"


def test_names_stay_text(client: TestClient) -> None:
    """On every page that shows them, in tables, pictures and titles."""
    for url in (
        "/tools?since=all",
        f"/tools/{EVIL}?since=all",
        "/models?since=all",
        "/history/signatures?since=all",
        "/history/models?since=all",
        "/history/look-first?since=all",
        f"/history/tools?since=all&tool={EVIL}",
    ):
        text = client.get(url).text
        assert "&lt;" in text, url
        assert not re.search(r"<(img|script>|b>m)", text), url
        assert "style=" not in text, url


def test_filters_stay_on_the_way(client: TestClient) -> None:
    """From the question to its pages, files and other periods; a cell leads to the failures behind it."""
    text = unescape(client.get("/history/models?since=2026-01-06&until=2026-01-07&model=small-3&rows=9").text)
    links = re.findall(r'href="([^"]+)"', text)
    for part in ("/history/models?", "/history/models.csv?", "/history/signatures?"):
        found = [one for one in links if one.startswith(part)]
        assert found, part
        assert all("since=" in one and "model=small-3" in one for one in found if "rows" in one or "signatures" in one)
    assert any("since=2026-01-05T00%3A00%3A00Z&until=2026-01-06T00%3A00%3A00Z" in one for one in links)
    assert any("tool=bash" in one for one in links if one.startswith("/history/signatures?"))


def test_what_is_not_there_is_said_with_a_way_back(client: TestClient) -> None:
    """No such question, no such tool, nothing in this time."""
    for url, back in (("/history/nope", "/history"), ("/history/tools.exe", "/history"), ("/tools/nobody", "/tools")):
        found = client.get(url)
        assert (found.status_code, f'href="{back}"' in found.text) == (404, True), url
    page = client.get("/tools/bash?since=2020-01-01&until=2020-01-02").text
    assert "No calls in this time" in page
    assert "?since=all" in page
    nothing = unescape(client.get("/history/tools?since=2020-01-01&until=2020-01-02").text)
    assert "Nothing found" in nothing
    assert BY_NAME["tools"].empty.partition("'")[0] in nothing
    assert "is not before" in client.get("/history?since=2026-01-02&until=2026-01-01").text


def test_without_a_history_a_page_says_what_to_do_and_what_is_known_now(tmp_path: Path) -> None:
    """The states are live; a history that begins later is found."""
    with client_of(tmp_path, tmp_path / "h") as client:
        client.post("/v1/events", content=failures("deploy", 6))
        for url in ("/history", "/history/tools", "/models", "/tools/deploy"):
            found = client.get(url)
            assert (found.status_code, "trustfold up --history" in found.text) == (200, True), url
        assert "deploy" in client.get("/tools").text
        assert "state-escalated" in client.get("/tools/deploy").text
        assert client.get("/tools/other").status_code == 404
        record(tmp_path / "h", [*two_days()][:80], live=True)
        until = time.monotonic() + 30
        while "No history" in (page := client.get("/history?since=all").text) and time.monotonic() < until:
            time.sleep(0.1)
        assert "events of" in page


@pytest.mark.parametrize("query", ["page=999999&rows=10000", "page=999999", "rows=999999&page=7"])
def test_no_page_asks_for_more_than_a_server_can_keep(query: str) -> None:
    """However far somebody leafs."""
    asked = QuestionQuery.of(QueryParams(query), NOW)
    assert asked.page * asked.rows <= 50_000


async def test_answers_from_memory_are_those_from_the_files(tmp_path: Path) -> None:
    """A short history is in memory for the first question; what is recorded later is in the answers after it."""
    records = [*two_days()]
    record(tmp_path, records[:300], live=True)
    clock = [0.0]
    archive = HistoryArchive(tmp_path, clock=lambda: clock[0])
    try:
        assert (await archive.ask(BY_NAME["overview"])).answer.rows[0][0] == 300
        assert archive._memory is not None
        assert archive._memory.ready
        record(tmp_path, records[:400], live=True)
        clock[0] = 10_000
        assert (await archive.ask(BY_NAME["overview"])).answer.rows[0][0] == 400
    finally:
        archive.close()


async def test_a_damaged_file_is_named_and_its_mending_noticed(tmp_path: Path) -> None:
    """What was taken into memory before it is not given as if it were all."""
    record(tmp_path, [*two_days()][:300], live=True)
    clock = [0.0]
    archive = HistoryArchive(tmp_path, clock=lambda: clock[0])
    try:
        first = (await archive.ask(BY_NAME["overview"])).answer
        record(tmp_path, [*two_days()][:400], live=True)
        file = max((tmp_path / "events").rglob("*.parquet"), key=lambda one: int(one.stem.rpartition("-")[2]))
        whole = file.read_bytes()
        file.write_bytes(b"PAR1 and no more")
        clock[0] = 10_000
        with pytest.raises(TrustfoldError, match=file.name):
            await archive.ask(BY_NAME["overview"])
        file.write_bytes(whole)
        clock[0] = 20_000
        assert (await archive.ask(BY_NAME["overview"])).answer.rows[0][0] == first.rows[0][0] + 100
    finally:
        archive.close()


@pytest.mark.parametrize("key", ["bash", "service:search.example.com", "bash|command=pytest", "never-called"])
def test_what_the_page_of_a_tool_asks_at_once_is_what_its_questions_answer(
    key: str, catalogue: DuckDBPyConnection
) -> None:
    """Numbers, points in time, and the first rows by model, agent and session, with the number of further rows."""
    subject, used = PageSubject.of(key), {"step_ms": 3_600_000}
    name = {"name": subject.name}
    answer = ask(catalogue, subject.grouped(), 1000, {**name, **used, "shown": 5})
    numbers, over, by = subject.taken_apart(answer)
    assert answer.left_out == 0
    (expected,) = objects(ask(catalogue, subject.numbers(), 1, name))
    assert {column: numbers[column] for column in expected} == expected
    assert over == ask(catalogue, subject.over_time(), 1000, {**name, **used})
    assert by == [ask(catalogue, one, 5, name) for one in subject.every_by()]
    assert bool(numbers["calls"]) == (key != "never-called")


def test_a_failure_is_new_back_or_escalating(tmp_path: Path) -> None:
    """New was never there before; what was there before the shown time is back; one that grows escalates."""
    story = Story(model="m")
    story.fails("deploy", message="disk is full", times=2)
    story.after(minutes=60 * 48)
    began = story.now
    for hour in range(90):
        story.moved(session=f"s{hour}").fails("deploy", {"n": hour}, message="quota is exceeded").after(minutes=56)
        if hour % 10 == 0:
            story.fails("deploy", {"n": hour}, message="host is away")
    for _ in range(6):
        story.fails("deploy", message="disk is full", times=2).fails("deploy", message="lease is lost", times=2)
        story.fails("deploy", message="host is away", times=6).after(minutes=30)
    record(tmp_path / "h", story.records, decisions=False)
    with client_of(tmp_path, tmp_path / "h") as client:
        page = client.get(f"/tools/deploy?since={began:%Y-%m-%dT%H:%M:%S}&until={story.now:%Y-%m-%dT%H:%M:%S}").text
    rows = [re.sub(r"<[^>]+>", " ", row) for row in re.findall(r"<tr data-row>(.*?)</tr>", page, re.DOTALL)]
    found = {name: next(row for row in rows if name in row) for name in ("disk", "lease", "host", "quota")}
    states = {name: re.findall(r"\b(new|back|escalating)\b", row) for name, row in found.items()}
    assert states == {"disk": ["back"], "lease": ["new"], "host": ["escalating"], "quota": []}
