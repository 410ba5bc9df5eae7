"""The embedded engine over HTTP, in a real process: durable answers, bad input, followers, access, stopping."""

from __future__ import annotations

import gzip
import json
import random
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson
import pytest
from command_line import Up, up
from fixed_rules import Rules
from scenarios import announce_without_action, cli_command_failures, mcp_server_dies
from trustfold.projections.local_topology import LocalTopology
from trustfold.streams.embedded.store_views import StoreViews
from waiting import wait_until

pytestmark = pytest.mark.usefixtures("fixed_rules_file")

BLOCKED = [value for _, value in cli_command_failures().records]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Up]:
    """A server over a new store."""
    with up("--store", "store.sqlite", cwd=tmp_path) as running:
        yield running


def finished(number: int, **fields: Any) -> bytes:
    """A lone finish of a call, in a session of its own, just now."""
    body = {
        "schema_version": "1.0",
        "id": f"id-{number}",
        "type": "tool_call.finished",
        "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "session_id": f"s{number}",
        "call_id": "c",
        "tool_name": "deploy",
        "status": "success",
    }
    return orjson.dumps(body | fields)


def test_events_in_decisions_out(server: Up) -> None:
    """What is posted as lines is folded and can be read as decisions, with offsets to go on from."""
    assert server.post("/v1/events", b"\n".join(BLOCKED)) == {"accepted": len(BLOCKED), "dead_letters": 0}
    found = server.lines("/v1/decisions")
    expected = [out for out in LocalTopology(Rules()).feed("events", BLOCKED) if out.topic == "escalations"]
    assert [orjson.dumps(one["value"]) for one in found] == [out.value for out in expected]
    assert [(one["topic"], one["key"]) for one in found] == [("escalations", out.key) for out in expected]
    assert server.lines(f"/v1/decisions?after={found[0]['offset']}") == found[1:]
    assert server.lines("/v1/decisions?limit=1") == found[:1]
    assert server.lines("/v1/decisions?topics=nudges,breakers") == []
    state = server.get("/v1/state")
    blocked = {one["key"] for one in state["states"] if one.get("state") == "blocked"}
    assert blocked == {"bash|danger=root"}
    assert state["recovery_mode"] == "auto"
    assert server.lines(f"/v1/decisions?topics=state,escalations&after={state['offset']}") == []


def test_decisions_of_one_session(server: Up) -> None:
    """Whatever else is decided in between; a follower gets only them, too."""
    server.post("/v1/events", b"\n".join(BLOCKED))
    server.post("/v1/events", b"\n".join(value for _, value in mcp_server_dies().records))
    everything = server.lines("/v1/decisions")
    own = [one for one in everything if one["value"]["session_id"] == "mcp"]
    assert 0 < len(own) < len(everything)
    assert server.lines("/v1/decisions?session=mcp") == own
    assert server.lines("/v1/decisions?session=mcp&limit=1") == own[:1]
    assert server.lines(f"/v1/decisions?session=mcp&after={own[0]['offset']}") == own[1:]
    assert server.lines("/v1/decisions?session=nobody") == []
    connection = server.connect()
    connection.request("GET", "/v1/decisions?session=mcp&follow=true")
    answer = connection.getresponse()
    assert [json.loads(answer.readline()) for _ in own] == own
    connection.close()


def test_one_object_may_span_lines(server: Up) -> None:
    """A body declared as JSON is one event, however it is laid out; lines are still lines under that name."""
    pretty = json.dumps(json.loads(BLOCKED[0]), indent=2).encode()
    assert server.post("/v1/events", pretty, Content_Type="application/json")["accepted"] == 1
    two = b"\n".join(BLOCKED[1:3])
    assert server.post("/v1/events", two, Content_Type="application/json; charset=utf-8")["accepted"] == 2
    assert server.post("/v1/events", b"\r\n" + BLOCKED[3] + b"\r\n\r\n", Content_Type="")["accepted"] == 1
    assert server.post("/v1/events", b"") == {"accepted": 0, "dead_letters": 0}


def test_bad_lines_are_dead_letters(server: Up) -> None:
    """Lines that cannot be processed are counted, explained and kept; the good ones beside them are folded."""
    body = b"\n".join([BLOCKED[0], b"not json", b'{"type":"nonsense"}', b"\xff\xfe", b"[" * 100, BLOCKED[1]])
    answer = server.post("/v1/events", body)
    assert (answer["accepted"], answer["dead_letters"]) == (2, 4)
    assert answer["faults"][0]["reason"] == "not_json"
    letters = server.lines("/v1/dead-letters")
    assert [one["value"]["reason"] for one in letters] == [fault["reason"] for fault in answer["faults"]]
    assert letters[0]["value"]["value"] == "not json"
    again = orjson.dumps({"offsets": [one["offset"] for one in letters[:2]]})
    assert server.post("/v1/dead-letters/republish", again) == {"republished": 2, "dead_letters": 2}
    assert len(server.lines("/v1/dead-letters")) == 4
    assert len(server.lines("/v1/dead-letters?all=true")) == 6
    for nonsense in (b"", b"{}", b'{"offsets":"x"}', b'{"offsets":[999]}', b'{"offsets":1}'):
        status, _ = server.request("POST", "/v1/dead-letters/republish", nonsense)
        assert status == 400


def test_no_bytes_make_it_fail(server: Up) -> None:
    """Any bytes at all are answered with counts, never with a fault of the server's."""
    chance = random.Random(1)
    pieces = [*BLOCKED, b"{", b'"', b"\x00", b"null", b"\xe2\x82", b"1e999", b"\\ud800", b"\n", b"[]"]
    for _ in range(60):
        parts = [chance.choice(pieces) if chance.random() < 0.7 else chance.randbytes(20) for _ in range(6)]
        for kind in ("application/json", "application/x-ndjson"):
            server.post("/v1/events", b"".join(parts), Content_Type=kind)
    assert server.get("/healthz") == {"status": "ok"}


def test_bodies_have_limits(server: Up) -> None:
    """Compressed bodies are unpacked; too large, broken and unknown ones are refused with the reason."""
    body = gzip.compress(b"\n".join(BLOCKED))
    assert server.post("/v1/events", body, Content_Encoding="gzip")["accepted"] == len(BLOCKED)
    bomb = gzip.compress(b" " * (17 << 20))
    for content, encoding, status in (
        (bomb, "gzip", 413),
        (b" " * (17 << 20), "identity", 413),
        (b"plain", "gzip", 400),
        (body[:-9], "gzip", 400),
        (body, "br", 415),
    ):
        got, answer = server.request("POST", "/v1/events", content, {"Content-Encoding": encoding})
        assert got == status
        assert json.loads(answer)["error"]
    assert server.lines("/v1/dead-letters") == []


def test_a_body_sent_again_changes_nothing(server: Up) -> None:
    """A publisher that heard no answer posts the same bytes once more and gets the first answer."""
    body = b"\n".join([*BLOCKED, b"bad"])
    first = server.post("/v1/events", body)
    second = server.post("/v1/events", body)
    assert (second["accepted"], second["dead_letters"], second["repeated"]) == (len(BLOCKED), 1, True)
    assert first["dead_letters"] == 1
    assert len(server.lines("/v1/dead-letters?all=true")) == 1


def test_commands_answer_with_what_they_did(server: Up) -> None:
    """An order is folded at once and its decisions are the answer; a bad one says what is wrong with it."""
    server.post("/v1/events", b"\n".join(BLOCKED))
    order = {
        "schema_version": "1.0",
        "id": "o1",
        "type": "trust.reset",
        "time": "2026-01-05T12:00:00Z",
        "key": "bash",
        "workspace_id": "w1",
    }
    answer = server.post("/v1/commands", orjson.dumps(order))
    assert [(one["key"], one["to"]) for one in answer["decisions"]] == [("bash|danger=root", "trusted")]
    assert all(one.get("state", "trusted") == "trusted" for one in server.get("/v1/state")["states"])
    bad = server.post("/v1/commands", orjson.dumps(order | {"id": "o2", "type": "trust.reste"}))
    assert bad["dead_letters"] == 1
    assert bad["faults"][0]["reason"] == "unknown_type"


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/v1/decisions?after=x", 400),
        ("/v1/decisions?after=-1", 400),
        ("/v1/decisions?limit=many", 400),
        ("/v1/decisions?topics=outcomes", 400),
        ("/v1/dead-letters?after=9999999999999999999999", 400),
        ("/v1/nothing", 404),
        ("/v1/events", 405),
    ],
)
def test_wrong_requests_are_explained(server: Up, path: str, status: int) -> None:
    """A wrong parameter, path or method gets its status and one sentence."""
    got, body = server.request("GET", path)
    assert got == status
    assert json.loads(body)["error"]


def test_followers_get_decisions_as_they_are_made(server: Up) -> None:
    """A follower gets what is there, then each decision once, in order, without asking again."""
    lines = [value for _, value in announce_without_action().records]
    server.post("/v1/events", b"\n".join(lines[:8]))
    connection = server.connect()
    connection.request("GET", "/v1/decisions?follow=true")
    stream = connection.getresponse()
    server.post("/v1/events", b"\n".join(lines[8:]))
    expected = server.lines("/v1/decisions")
    assert len(expected) > 5
    assert [json.loads(stream.readline()) for _ in expected] == expected
    server.post("/v1/events", b"\n".join(BLOCKED))
    assert json.loads(stream.readline())["topic"] == "escalations"
    connection.close()


def test_browsers_follow_as_server_sent_events(server: Up) -> None:
    """Events carry the offset as id, so that a browser which lost the connection goes on where it was."""
    server.post("/v1/events", b"\n".join(value for _, value in mcp_server_dies().records))
    server.post("/v1/events", b"\n".join(BLOCKED))
    expected = server.lines("/v1/decisions")

    def follow(**headers: str) -> list[dict[str, str]]:
        connection = server.connect()
        given = {"Accept": "text/event-stream"} | {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request("GET", "/v1/decisions", headers=given)
        stream = connection.getresponse()
        assert stream.getheader("Content-Type", "").startswith("text/event-stream")
        events: list[dict[str, str]] = [{}]
        wanted = len(expected) - int(headers.get("Last_Event_ID", "0") != "0")
        while len(events) <= wanted:
            line = stream.readline().decode().rstrip("\n")
            if line:
                name, _, value = line.partition(": ")
                events[-1][name] = value
            else:
                events.append({})
        connection.close()
        return events[:-1]

    events = follow()
    assert [json.loads(event["data"]) for event in events] == expected
    assert [int(event["id"]) for event in events] == [one["offset"] for one in expected]
    assert {event["event"] for event in events} == {"trust.changed", "trust.danger_noted"}
    assert follow(Last_Event_ID=events[0]["id"]) == events[1:]


def test_what_falls_due_is_told_without_another_event(server: Up) -> None:
    """A call that does not finish is closed as a timeout once its deadline has passed, by the clock's tick alone."""
    started = finished(1, type="tool_call.started", deadline_ms=300)
    server.post("/v1/events", started)
    closed = wait_until(lambda: server.lines("/v1/decisions?topics=events"), what="the appended finish")
    assert (closed[0]["value"]["call_id"], closed[0]["value"]["status"]) == ("c", "timeout")
    assert {one["value"]["type"] for one in closed[1:]} <= {"time.passed"}  # the call goes on being overdue
    assert wait_until(lambda: server.get("/v1/state")["states"], what="the failure of deploy")


def test_many_publishers_at_once(server: Up, tmp_path: Path) -> None:
    """Small requests from many threads are all acknowledged and all kept, each once."""

    def publish(publisher: int) -> int:
        return sum(
            int(server.post("/v1/events", finished(publisher * 100 + number))["accepted"]) for number in range(20)
        )

    with ThreadPoolExecutor(8) as threads:
        assert sum(threads.map(publish, range(8))) == 160
    assert server.stop() == 0
    with_views = StoreViews.open(tmp_path / "store.sqlite")
    rows = with_views._all("SELECT value FROM log WHERE topic = 'events'")
    with_views.close()
    assert len({orjson.loads(value)["id"] for (value,) in rows}) == len(rows) == 160


def test_a_foreign_page_gets_nothing(server: Up) -> None:
    """Without a token only this machine's names are answered, and no page of another site."""
    for headers, status in (
        ({"Host": "evil.example"}, 421),
        ({"Host": "evil.example:8321"}, 421),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Host": "localhost:1"}, 200),
        ({"Host": "[::1]:1"}, 200),
        ({"Host": "127.0.0.1", "Origin": "http://127.0.0.1"}, 200),
    ):
        got, body = server.request("GET", "/v1/state", None, headers)
        assert got == status, (headers, body)


def test_a_token_is_asked_for(tmp_path: Path) -> None:
    """With a token set, nobody reads or writes without it; only the health check is open."""
    with up(cwd=tmp_path, env={"TRUSTFOLD_TOKEN": "secret", "TRUSTFOLD_DB": "store.sqlite"}) as server:
        for path in ("/v1/state", "/v1/decisions"):
            assert server.request("GET", path)[0] == 401
            assert server.request("GET", path, None, {"Authorization": "Bearer wrong"})[0] == 401
            assert server.request("GET", path, None, {"Authorization": "Bearer secret"})[0] == 200
        assert server.request("POST", "/v1/events", BLOCKED[0])[0] == 401
        assert server.request("GET", "/healthz")[0] == 200
    assert (tmp_path / "store.sqlite").is_file()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_it_stops_when_told(server: Up, tmp_path: Path, number: signal.Signals, code: int) -> None:
    """A signal ends the open streams and the process; what was acknowledged is in the store."""
    connection = server.connect()
    connection.request("GET", "/v1/decisions?follow=true")
    stream = connection.getresponse()
    server.post("/v1/events", b"\n".join(BLOCKED))
    assert stream.readline()
    assert server.stop(number) == code
    stream.read()
    connection.close()
    views = StoreViews.open(tmp_path / "store.sqlite")
    assert [one.output.type for one in views.decisions()] == ["trust.changed", "trust.danger_noted"]
    views.close()


def test_a_killed_server_keeps_what_it_acknowledged(server: Up, tmp_path: Path) -> None:
    """After kill -9 a new server has every acknowledged event, and a repeat of the last request changes nothing."""
    for line in BLOCKED:
        server.post("/v1/events", line)
    before = server.lines("/v1/decisions?topics=escalations,state")
    server.process.kill()
    server.process.wait()
    with up("--store", "store.sqlite", cwd=tmp_path) as again:
        assert again.lines("/v1/decisions?topics=escalations,state") == before
        assert again.post("/v1/events", BLOCKED[-1])["repeated"]
        assert again.lines("/v1/decisions?topics=escalations,state") == before


def test_more_lines_than_a_transaction_bears_are_refused(server: Up) -> None:
    """A hundred thousand in one body would keep hooks waiting for many seconds; nothing of it is folded."""
    status, answer = server.request("POST", "/v1/events", b"{\n" * 100_001)
    assert status == 413
    assert b"in pieces" in answer
    assert server.lines("/v1/dead-letters") == []
