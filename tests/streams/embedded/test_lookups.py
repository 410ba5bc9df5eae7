"""Reading a store for one session, one event, one decision: by the indexes, and without them."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import orjson
import pytest
from fixed_rules import Rules
from story import Story
from trustfold.streams.embedded.engine import EmbeddedEngine, SubmitRequest
from trustfold.streams.embedded.store_views import BLOCK_BITS, StoredDecision, StoredEvent, StoreViews

URL = {"url": "https://api.example.com/data"}


def two_sessions() -> Story:
    """Two sessions taking turns at a tool that is broken: trust is lost, a circuit opens; a call is never finished."""
    story = Story()
    for number in range(6):
        story.moved(session=f"s{number % 2}").fails("http_request", URL, http_status=503)
    story.moved(session="s1").started("deploy", deadline_ms=1000)
    story.after(minutes=5).user_says()
    return story


@pytest.fixture(params=["with indexes", "written by an older version"])
def views(tmp_path: Path, request: pytest.FixtureRequest) -> StoreViews:
    """A store of both sessions, with lines that are no events between them."""
    path = tmp_path / "store.sqlite"
    with EmbeddedEngine.open(path, Rules()) as engine:
        engine.ingest([b"{", b'["no event"]', b'{"session_id": 5}', b"\xff\x00"])
        for topic, value in two_sessions().records:
            engine.submit([SubmitRequest(topic, [value])], arrived_ms=1_767_607_200_000)
    if request.param != "with indexes":
        with sqlite3.connect(path) as connection:
            for (name,) in connection.execute(
                "SELECT name FROM sqlite_schema WHERE sql LIKE '%json_extract%'"
            ).fetchall():
                connection.execute(f"DROP INDEX {name}")
    return StoreViews.open(path)


def bodies(found: list[StoredEvent] | list[StoredDecision]) -> list[dict[str, Any]]:
    """Records that were found, parsed."""
    return [orjson.loads(one.value) for one in found]


def test_a_session_is_read_alone_and_in_order(views: StoreViews) -> None:
    """All events of one session and none of the other; the latest of them where only some are wanted, page by page."""
    written = [orjson.loads(value) for _, value in two_sessions().records]
    of_s1 = [one["id"] for one in written if one["session_id"] == "s1"]
    every = views.session_events("s1")
    assert [one["id"] for one in bodies(every)] == of_s1
    last = views.session_events("s1", limit=3)
    assert [one["id"] for one in bodies(last)] == of_s1[-3:]
    before = views.session_events("s1", before=last[0].seq, limit=2)
    assert [one["id"] for one in bodies(before)] == of_s1[-5:-3]
    assert views.session_events("nobody") == []


def test_what_the_engine_appended_belongs_to_the_session(views: StoreViews) -> None:
    """The finish that the engine wrote for a call past its deadline."""
    (appended,) = (one for one in bodies(views.appended_events("s1")) if one["type"] != "time.passed")
    assert (appended["type"], appended["status"]) == ("tool_call.finished", "timeout")
    assert all(one["type"] == "time.passed" for one in bodies(views.appended_events("s0")))


def test_decisions_of_a_session_and_circuits_of_its_time(views: StoreViews) -> None:
    """Escalations name the session; a circuit names none and is found by its time."""
    kinds = {one["type"] for one in bodies(views.session_decisions("s0"))}
    assert "trust.changed" in kinds
    opened = bodies(views.circuit_changes(0, 1 << 50))[0]
    assert (opened["type"], opened["to"]) == ("breaker.changed", "open")
    assert views.circuit_changes(0, 1) == []
    newest = views.session_decisions("s0", limit=1)
    assert newest == views.session_decisions("s0")[-1:]
    assert views.session_decisions("s0", before=newest[0].offset) == views.session_decisions("s0")[:-1]


def test_a_decision_leads_to_its_events(views: StoreViews) -> None:
    """The ids in `caused_by` lead to events of both sessions, oldest first; also to a finish that was appended."""
    escalated = next(one for one in bodies(views.session_decisions("s0")) if one["type"] == "trust.changed")
    found = views.decision(escalated["id"])
    assert found is not None
    assert orjson.loads(found.value) == escalated
    behind = bodies(views.events_of([*escalated["caused_by"], "unknown"]))
    assert [one["id"] for one in behind] == list(escalated["caused_by"])
    assert {one["session_id"] for one in behind} == {"s0", "s1"}
    assert views.decision(escalated["caused_by"][0]) is None
    timeout = next(one for one in bodies(views.appended_events("s1")) if one["type"] == "tool_call.finished")
    assert bodies(views.events_of([timeout["id"]])) == [timeout]


def test_a_session_over_many_blocks_is_read_whole(tmp_path: Path) -> None:
    """The indexes are looked into block by block; a session's events in several blocks come in one order."""
    path = tmp_path / "store.sqlite"
    with EmbeddedEngine.open(path, Rules()) as engine:
        story = Story(session="long")
        for _ in range(3):
            story.user_says()
        engine.ingest([value for _, value in story.records[:1]])
    with sqlite3.connect(path) as connection:
        for number, (_, value) in enumerate(story.records[1:], 1):
            place = number * 3 << BLOCK_BITS
            connection.execute("INSERT INTO log VALUES (?, 'events', NULL, ?, -1)", (place, value))
    views = StoreViews.open(path)
    assert [one["id"] for one in bodies(views.session_events("long"))] == [
        orjson.loads(value)["id"] for _, value in story.records
    ]
    assert len(views.session_events("long", limit=2)) == 2
    assert len(views.events_of([orjson.loads(value)["id"] for _, value in story.records])) == 3
