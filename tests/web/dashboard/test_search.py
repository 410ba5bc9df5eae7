"""The search page: what it finds by a text, where its links lead, and what text of others does to it."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from dashboard_kit import dashboard, failures
from recorded import told
from starlette.testclient import TestClient
from story import Story
from trustfold.streams.embedded import store_views
from trustfold.web.dashboard.history_answers import QuestionUnanswered
from trustfold.web.dashboard.recorded_events import RecordedEvents
from trustfold.web.dashboard.search import searched
from trustfold.web.dashboard.source import Record, SearchResult

LINES = {"content-type": "application/x-ndjson"}


def publish(client: TestClient, story: Story) -> None:
    """Send a story to the server."""
    lines = b"\n".join(value for _, value in story.records)
    assert client.post("/v1/events", content=lines, headers=LINES).json()["dead_letters"] == 0


def found(client: TestClient, text: str) -> list[str]:
    """Links of what is found."""
    page = client.get("/search", params={"q": text})
    assert page.status_code == 200
    main = page.text.partition('<main id="main"')[2].partition("</main>")[0]
    return [unescape(one) for one in re.findall(r'href="(/[^"]+)"', main)]


def a_story() -> Story:
    """A session with a command, a path, an error and a message."""
    story = Story(session="agents/7")
    story.now = datetime.now(UTC)
    story.user_says()
    story.says("Now I mend the Größe of 100% of_them.")
    story.works("read_file", {"path": "src/checkout/cart.py"}, result="def cart(): ...")
    story.fails("bash", {"command": "make deploy TARGET=blue"}, message="no space left on /dev/sda1")
    return story


def test_a_session_is_found_by_any_of_its_texts(tmp_path: Path) -> None:
    """Commands, paths, errors, messages and ids, in upper or lower case; signs of a pattern stand for themselves."""
    with dashboard(tmp_path) as client:
        publish(client, a_story())
        publish(client, Story(session="other").works("bash", {"command": "ls"}))
        for text in ("make deploy TARGET", "MAKE DEPLOY", "src/checkout/cart", "no space", "Größe", "100% o", "nts/7"):
            sessions = [one for one in found(client, text) if one.startswith("/sessions/")]
            assert sessions, text
            assert all(one.startswith("/sessions/agents/7") for one in sessions), text
        for text in ("100%of", "100_ of", "f%them", "tool_call.finished", "schema_version", "nobody"):
            assert found(client, text) == [], text


def test_a_call_is_shown_where_it_is_in_its_session(tmp_path: Path) -> None:
    """The link of a call leads to the page of its session that holds it."""
    with dashboard(tmp_path) as client:
        publish(client, a_story())
        link = next(one for one in found(client, "TARGET=blue") if "#e-" in one)
        page = client.get(link.partition("#")[0]).text
        assert "is not among what is kept" not in page
        assert f'id="{link.partition("#")[2]}"' in page


def test_keys_and_decisions_are_found(tmp_path: Path) -> None:
    """A key by its name or the words of its last error, with its state; a decision by its whole id."""
    with dashboard(tmp_path) as client:
        client.post("/v1/events", content=failures("pay_invoice"), headers=LINES)
        assert "/tools/pay_invoice?workspace=default" in found(client, "invoice")
        assert "/tools/pay_invoice?workspace=default" in found(client, "internal error")
        decision = next(one for one in found(client, "invoice") if one.startswith("/decisions/"))
        assert decision in found(client, decision.removeprefix("/decisions/"))


def test_every_page_has_the_box(tmp_path: Path) -> None:
    """It is in the head of the page, and works without scripts; a short text asks for a longer one."""
    with dashboard(tmp_path) as client:
        for path in ("/", "/sessions", "/tools", "/models", "/history", "/search", "/sessions/nobody"):
            assert '<form class="search" method="get" action="/search"' in client.get(path).text
        assert "At least 2 characters" in client.get("/search?q=x").text


def test_markup_stays_text(tmp_path: Path) -> None:
    """Markup in the searched text and in the excerpts is escaped."""
    markup = "<img src=x onerror=alert(1)>\u202e"
    story = Story(session="s1")
    story.fails("bash", {"command": f"echo {markup}"}, message=markup)
    with dashboard(tmp_path) as client:
        publish(client, story)
        page = client.get("/search", params={"q": markup[:-1]}).text
    assert "&lt;img src=x" in page
    assert "<img" not in page
    assert "\u202e" not in page


def test_a_search_looks_at_a_bounded_number_of_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The latest records of the log; of a session few places are shown, and the others counted."""
    with dashboard(tmp_path) as client:
        publish(client, Story(session="old").works("bash", {"command": "seek me"}))
        publish(client, Story(session="new").works("bash", {"command": "seek me too"}, times=9))
        assert {one.partition("?")[0] for one in found(client, "seek me")} == {"/sessions/old", "/sessions/new"}
        assert "and 5 more in this session" in client.get("/search?q=seek+me").text
        monkeypatch.setattr(store_views, "MAX_SEARCHED", 18)
        assert {one.partition("?")[0] for one in found(client, "seek me")} == {"/sessions/new"}


async def test_older_events_come_from_the_history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those in front of an offset; one that takes too long says that it was left out."""
    told(tmp_path, a_story())
    (tmp_path / ".source").write_text("kafka cluster")
    recorded = RecordedEvents(tmp_path, limit_s=60)
    try:
        older = await recorded.search("make DEPLOY", 10)
        assert [one.session_id for one in searched(older.records, "make DEPLOY")] == ["agents/7"]
        assert await recorded.search("make deploy", 10, before=1) == SearchResult([])

        def slow(_work: object) -> Any:
            raise QuestionUnanswered("slow")

        monkeypatch.setattr(recorded, "_read", slow)
        assert "was not searched" in (await recorded.search("make deploy", 10)).left_out
    finally:
        recorded.close()


def test_the_start_and_the_end_of_a_call_are_one_place() -> None:
    """Both hold its id; the call is listed once."""
    both: list[Record] = [
        {"id": name, "type": "tool_call", "session_id": "s", "call_id": "call-77", "time": "2026-01-01T00:00:00Z"}
        for name in ("finished", "started")
    ]
    (session,) = searched(both, "call-77")
    assert len(session.places) == 1
    assert session.more == 0
