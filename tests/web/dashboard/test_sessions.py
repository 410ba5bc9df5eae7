"""The pages of sessions and decisions: what they show, how many clicks lead to it, and what hostile names do there."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Collection
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast
from urllib.parse import unquote

import orjson
import pytest
from dashboard_kit import dashboard
from fixed_rules import Rules
from recorded import told
from starlette.testclient import TestClient
from story import Story
from trustfold.history import catalogue
from trustfold.streams.embedded.store_views import StoreViews
from trustfold.web.dashboard.recorded_events import RecordedEvents
from trustfold.web.dashboard.session import TimelineCache
from trustfold.web.dashboard.source import PlacedRecord

LINES = {"content-type": "application/x-ndjson"}
PAGE_BYTES = 200_000
"""Bound of a page, whatever a session holds."""

HOSTILE = '<script>alert(1)</script>\u202e\u0007"onmouseover="x'


def publish(client: TestClient, story: Story) -> None:
    """Send a story to the server."""
    for start in range(0, len(story.records), 200):
        lines = b"\n".join(value for _, value in story.records[start : start + 200])
        assert client.post("/v1/events", content=lines, headers=LINES).json()["dead_letters"] == 0


def hrefs(text: str, beginning: str) -> list[str]:
    """Links of a page that begin like this, as a browser would follow them."""
    found = [unquote(one.replace("&amp;", "&")) for one in re.findall(r'href="([^"]+)"', text)]
    return [one for one in found if one.startswith(beginning)]


def of_now(story: Story) -> Story:
    """The story, moved so that it ends now: what was long ago is stuck no more."""
    story.now = datetime.now(UTC)
    return story


def test_list_page_and_history_agree_on_the_failures_of_a_session(tmp_path: Path) -> None:
    """An expected failure is none, a red test is one though its tool has answered, an open call is neither.

    Over Kafka the list is made of the recorded history, by the same definition.
    """
    story = of_now(Story())
    story.works("bash", {"command": "ls"}).fails(
        "bash", {"command": "make"}, message="make: *** [all] Error 2", times=2
    )
    story.fails("bash", {"command": "grep x"}, message="no such line", expected_failure=True)
    story.fails("bash", {"command": "sleep"}, status="cancelled").event(
        "tool_call.started", call_id="o", tool_name="bash"
    )
    with dashboard(tmp_path) as client:
        publish(client, story)
        pages = [client.get(path).text for path in ("/sessions", "/sessions/s1")]
    assert all("failed 50\u00a0% (2/4), 15\u00a0% to 85\u00a0%" in page for page in pages)
    told(tmp_path / "h", story)
    (tmp_path / "h" / ".source").write_text("kafka cluster")
    recorded = RecordedEvents(tmp_path / "h", limit_s=60)
    (summary,) = asyncio.run(recorded._latest())
    recorded.close()
    assert (summary.calls, summary.failed, summary.judged) == (5, 2, 4)


def test_a_stuck_sessions_repeated_call_is_two_clicks_away(tmp_path: Path) -> None:
    """From the start page to the session, where the loop stands on top with its price."""
    story = of_now(Story(session="agents/7"))
    story.works("bash", {"command": "git status"}, result="same", times=6)
    with dashboard(tmp_path) as client:
        publish(client, story)
        start = client.get("/").text
        (link, *_) = hrefs(start, "/sessions/")
        page = client.get(link)
    assert page.status_code == 200
    assert "git status" in page.text
    assert "×6" in page.text
    assert "repetitive calls" in page.text
    for shown in (start, page.text):
        assert "The agent repeats itself" in shown
    assert page.text.count("The agent repeats itself") == 2  # on top, and where it was said
    assert "(severe)</a> 6 times: bash <code>git status</code>" in page.text


def test_the_cause_of_an_escalation_is_three_clicks_away(tmp_path: Path) -> None:
    """Start page, decision, and the failed calls stand there; a third click shows them in their session."""
    story = of_now(Story())
    story.fails("deploy", {"to": "production"}, message="no space left", times=3)
    with dashboard(tmp_path) as client:
        publish(client, story)
        why = hrefs(client.get("/").text, "/decisions/")
        pages = [client.get(link).text for link in why]
        decision = next(text for text in pages if "deploy escalated" in text)
        assert decision.count("no space left") >= 3
        assert "trust count_threshold" in decision
        (first, *_) = hrefs(decision, "/sessions/s1?at=")
        path, _, anchor = first.partition("#")
        session = client.get(path).text
    assert f'id="{anchor}"' in session


def test_hostile_names_and_payloads_stay_text(tmp_path: Path) -> None:
    """Markup is escaped, control and bidirectional characters are visible, on every page that shows them."""
    story = of_now(Story(session=f"s {HOSTILE}", model=HOSTILE))
    story.says(HOSTILE)
    story.fails(HOSTILE, {"command": HOSTILE}, message=HOSTILE, times=6)
    with dashboard(tmp_path) as client:
        publish(client, story)
        (link, *_) = re.findall(r'href="(/sessions/[^"]+)"', client.get("/sessions").text)
        page = client.get(link.replace("&amp;", "&"))
        (call, *_) = re.findall(r'href="(\?open=[^"]+)"', page.text)
        opened = client.get(link.replace("&amp;", "&") + call.replace("&amp;", "&").partition("#")[0])
        decisions = [client.get(one) for one in sorted(set(hrefs(page.text, "/decisions/")))]
        pages = [client.get("/sessions"), page, opened, *decisions]
    assert len(decisions) > 3
    assert "arguments" in opened.text
    for one in pages:
        assert one.status_code == 200
        assert "<script>alert" not in one.text
        assert '"onmouseover="' not in one.text
        assert "\u202e" not in one.text
        assert "\u0007" not in one.text
        assert "\\u202e" in one.text


def test_a_long_session_is_a_small_page(tmp_path: Path) -> None:
    """Entries with large payloads: the last 200 of them, the rest on demand, and payloads cut until asked."""
    story = Story(session="long")
    for number in range(220):
        story.says(f"message {number} " + "word " * 400)
        story.works("bash", {"command": f"command {number} " + "y" * 5000}, result="line\n" * 3000)
    with dashboard(tmp_path) as client:
        publish(client, story)
        page = client.get("/sessions/long")
        assert len(page.content) < PAGE_BYTES
        seen = set(re.findall(r"message (\d+) ", page.text))
        while older := re.search(r'rel="prev" href="([^"]+)"', page.text):
            page = client.get("/sessions/long" + older[1])
            assert len(page.content) < PAGE_BYTES
            seen |= set(re.findall(r"message (\d+) ", page.text))
        assert seen == {str(number) for number in range(220)}
        opener = hrefs(client.get("/sessions/long?kind=calls").text, "?kind=calls&open=")[0]
        capped = client.get("/sessions/long" + opener.partition("#")[0])
        (every, *_) = [one for one in hrefs(capped.text, "?") if "all=" in one]
        whole = client.get("/sessions/long" + every.partition("#")[0])
    assert "Show all" in capped.text
    assert len(whole.content) > len(capped.content) + 5000


def test_an_open_page_grows(tmp_path: Path) -> None:
    """Asked again, the page has what came since, and the page of another session is left alone."""
    story = Story()
    story.works("search", {"q": "first"})
    with dashboard(tmp_path) as client:
        publish(client, story)
        assert "first" in client.get("/sessions/s1").text
        before = len(story.records)
        story.says("something new")
        story.records = story.records[before:]
        publish(client, story)
        fragment = client.get("/sessions/s1", headers={"HX-Request": "true"}).text
    assert "something new" in fragment
    assert "first" in fragment
    assert 'data-topics="session:s1"' in fragment


def test_filters_are_links_and_say_what_they_hide(tmp_path: Path) -> None:
    """Only errors; only one kind; nothing that matches says so and leads back."""
    story = Story()
    story.works("search", {"q": "good one"})
    story.fails("deploy", {"to": "bad one"})
    with dashboard(tmp_path) as client:
        publish(client, story)
        errors = client.get("/sessions/s1?only=errors").text
        none = client.get("/sessions/s1?kind=circuits").text
    assert "<h1>search q=good one <small" in errors  # what it began with is its title
    assert "bad one" in errors.partition('id="timeline"')[2]
    assert "good one" not in errors.partition('id="timeline"')[2]
    assert "Nothing matches" in none


def test_what_is_not_there_is_said(tmp_path: Path) -> None:
    """An unknown session, an unknown decision, an event that is gone: words, and a status that says the same."""
    with dashboard(tmp_path) as client:
        missing = client.get("/sessions/nobody")
        assert (missing.status_code, "Nothing is kept of this session" in missing.text) == (404, True)
        unknown = client.get("/decisions/nothing")
        assert (unknown.status_code, "not kept" in unknown.text) == (404, True)
        assert "Nothing recorded yet" in client.get("/sessions").text
        story = Story()
        story.says("hello")
        publish(client, story)
        assert "not among what is kept" in client.get("/sessions/s1?at=gone").text


def test_sessions_are_ranked_and_told_apart(tmp_path: Path) -> None:
    """Stuck first; each row with what it did last; filters by model, workspace and text."""
    story = of_now(Story())
    story.moved(session="calm", workspace="w2").works("read_file", {"path": "notes.txt"})
    story.moved(session="stuck", workspace="w1").works("bash", {"command": "make"}, result="same", times=4)
    with dashboard(tmp_path) as client:
        publish(client, story)
        text = client.get("/sessions").text
        assert text.index("/sessions/stuck") < text.index("/sessions/calm")
        assert "notes.txt" in text
        assert "/sessions/calm" not in client.get("/sessions?state=stuck").text
        assert "/sessions/stuck" not in client.get("/sessions?workspace=w2").text
        assert "Nothing matches" in client.get("/sessions?q=zzz").text


def test_programs_get_the_timeline_as_one_document(tmp_path: Path) -> None:
    """The same as the page shows, for the command line and others."""
    story = Story(session="a/b")
    story.works("search", {"q": "x"}, result="same", times=4)
    with dashboard(tmp_path) as client:
        publish(client, story)
        document = client.get("/v1/sessions/a%2Fb").json()
    assert document["session_id"] == "a/b"
    assert document["loops"][0]["wasted_calls"] == 3
    assert {one["kind"] for one in document["items"]} >= {"calls", "patterns", "nudges"}


async def test_a_session_that_takes_long_to_find_holds_up_no_other() -> None:
    """Each is read for itself."""

    class Slow:
        """A source in which one session is looked for until somebody lets it end."""

        rules = Rules()

        def __init__(self) -> None:
            self.found = asyncio.Event()

        async def events(self, *, session: str, limit: int) -> list[PlacedRecord]:
            """None; those of the slow one late."""
            if session == "slow":
                await self.found.wait()
            return []

        async def decisions(self, **_: Any) -> list[PlacedRecord]:
            """None."""
            return []

        async def recorded(self, _session: str) -> None:
            """None."""

    source = Slow()
    shelf = TimelineCache(cast("Any", source))
    slow = asyncio.create_task(shelf.timeline("slow"))
    await asyncio.sleep(0)
    assert (await asyncio.wait_for(shelf.timeline("quick"), 60)).session_id == "quick"
    assert not slow.done()
    source.found.set()
    assert (await slow).session_id == "slow"


async def test_a_look_into_the_recorded_history_that_takes_too_long_is_given_up(tmp_path: Path) -> None:
    """The page goes without, and the next look finds what is there."""
    story = Story().works("bash", times=3)
    told(tmp_path, story)
    (tmp_path / ".source").write_text("kafka cluster")
    recorded = RecordedEvents(tmp_path, limit_s=0.5)
    endless = "SELECT count(*) FROM range(1000000) a, range(1000000) b WHERE a.range * b.range % 7 = 3"
    try:
        assert await recorded._ask(endless, []) == []
        await recorded.events("s1", None, 1)
        recorded._limit_s = 60
        assert len(await recorded.events("s1", None, 10)) == 6
    finally:
        recorded.close()


async def test_the_recorded_history_is_opened_once_for_all_sessions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That takes seconds, which whoever asks for an unknown session would wait; a newly recorded topic is seen."""
    opened: list[Path] = []
    connect = catalogue.connect

    def counted(root: Path, **options: Any) -> Any:
        opened.append(root)
        return connect(root, **options)

    monkeypatch.setattr(catalogue, "connect", counted)
    history = tmp_path / "history"
    told(history, Story().works("bash", {"command": "make"}, result="same", times=4))
    (history / "nudges").rename(tmp_path / "nudges")
    recorded = RecordedEvents(history, limit_s=60)
    try:
        for number in range(6):
            assert await recorded.timeline(f"nobody-{number}", Rules()) is None
        before = await recorded.timeline("s1", Rules())
        assert len(opened) <= 2  # one for each thread
        (tmp_path / "nudges").rename(history / "nudges")
        after = await recorded.timeline("s1", Rules())
    finally:
        recorded.close()
    assert before is not None
    assert after is not None
    assert len(after.items) > len(before.items)


async def test_a_session_is_shown_by_its_decisions_where_its_events_are_gone(tmp_path: Path) -> None:
    """An old session is in no topic and not in the history, but it was nudged today."""

    class Decisions:
        """A source without events."""

        rules = Rules()

        async def events(self, **_: Any) -> list[PlacedRecord]:
            """None."""
            return []

        async def recorded(self, _session: str) -> None:
            """Not recorded."""

        async def decisions(self, **_: Any) -> list[PlacedRecord]:
            """One."""
            return kept

    with dashboard(tmp_path) as client:
        publish(client, Story().works("bash", {"command": "make"}, result="same", times=4))
        answer = client.get("/v1/decisions?topics=nudges&after=0").content
    kept = [
        PlacedRecord(number, orjson.loads(line)["value"]) for number, line in enumerate(answer.splitlines()) if line
    ]
    whole = await TimelineCache(cast("Any", Decisions())).timeline("s1")
    assert kept
    assert whole.items


def test_only_sessions_with_news_are_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The list costs what has changed since it was last shown, and shows what a new server would."""
    read: list[str] = []
    sessions = StoreViews.sessions

    def counted(views: StoreViews, keys: Collection[bytes] | None = None) -> list[tuple[str, Any]]:
        found = sessions(views, keys)
        read.extend(name for name, _ in found)
        return found

    def listed(client: TestClient) -> list[str]:
        rows = client.get("/sessions").text.partition('id="sessions"')[2].replace("<wbr>", "")
        return re.findall(r"data-open>([^<]+)</a>.*?([0-9]+) call", rows, re.DOTALL)

    with dashboard(tmp_path) as client:
        for number in range(20):
            publish(client, of_now(Story(session=f"s{number}")).works("bash", {"command": "ls"}))
        client.get("/sessions")
        monkeypatch.setattr(StoreViews, "sessions", counted)
        assert len(listed(client)) == 20
        assert read == []
        story = of_now(Story(session="s7"))
        story._ids = 1 << 30
        publish(client, story.works("bash", {"command": "pwd"}, times=2))
        before = listed(client)
        assert read == ["s7"]
        assert ("s7", "3") in before
        ended = of_now(Story(session="s8"))
        ended._ids = 2 << 30
        ended.event("session.ended")
        publish(client, ended)
        before = listed(client)
    with dashboard(tmp_path) as client:
        assert listed(client) == before
