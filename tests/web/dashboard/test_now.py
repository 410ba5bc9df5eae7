"""The Now page: what needs a person stands first, in words, whatever its names hold, and stays small."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

import orjson
import pytest
from dashboard_kit import before, dashboard, failures
from fixed_rules import TO_OPEN
from hypothesis import given
from hypothesis import strategies as st
from trustfold.projections.incidents import STATES, family_of, of_family
from trustfold.schemas.public_state import PublicState
from trustfold.streams.embedded.sign_in import RoleTokens
from trustfold.web.dashboard.current_state import MAX_KEPT, OutputRecord, StateBoard
from trustfold.web.dashboard.embedded_source import EmbeddedSource
from trustfold.web.dashboard.incident_ranking import IncidentRanking
from trustfold.web.dashboard.now import PAGE_ROWS, NowQuery, now_page
from trustfold.web.dashboard.render import clock
from trustfold.web.dashboard.tool import states_of, targets_words

NOW = datetime(2026, 11, 22, 12, 0, tzinfo=UTC)
NOW_MS = round(NOW.timestamp() * 1000)


def at(seconds: float) -> str:
    """A time, so many seconds before now."""
    return (NOW - timedelta(seconds=seconds)).isoformat(timespec="milliseconds")


def state(kind: str, key: str, word: str = "", age: float = 60, workspace: str = "w", **more: Any) -> OutputRecord:
    """A public state."""
    record = {
        "schema_version": "1.0",
        "type": "state.updated",
        "id": f"{kind}-{key}",
        "time": at(age),
        "since": at(age),
        "kind": kind,
        "key": key,
    }
    record |= {"workspace_id": workspace, "scope": "tool"} | ({"state": word} if word else {}) | more
    return OutputRecord("state", f"{kind}:{workspace}\x1f{key}", orjson.dumps(record))


def pattern(session: str, **about: Any) -> OutputRecord:
    """A pattern that opens, or is over."""
    return OutputRecord("nudges", session, pattern_of(session, **about))


def pattern_of(
    session: str, *, kind: str = "pattern.detected", severity: str = "minor", age: float = 60, **own: Any
) -> bytes:
    """The same as a record."""
    record: dict[str, Any] = {"schema_version": "1.0", "type": kind, "id": f"p-{session}", "time": at(age)}
    record |= {"session_id": session, "pattern": "error_retry_loop"}
    record |= {"severity": severity, "repetitions": 7, "tool_sequence": ["bash", "bash"], "fingerprint": "f"}
    return orjson.dumps(record | own)


def board_of(*changes: OutputRecord) -> StateBoard:
    """A board with records on it."""
    board = StateBoard()
    board.apply(changes)
    return board


def titles(board: StateBoard, asked: NowQuery | None = None, now: datetime = NOW) -> list[str]:
    """What the list shows, in order."""
    return [row.incident.subject for row in now_page(board, asked or NowQuery(), now).rows]


EVERY = (
    state("trust", "fine", "trusted", failures=1.0),
    state("quality", "demoted", score=0.2, registered_score=0.9),
    state("breaker", "tool:probed", "half_open", reason="cooldown_over"),
    state("breaker", "tool:open", "open", open_until=at(-30), reason="consecutive", consecutive=5),
    state("trust", "asks", "escalated", reason="3/3 failures in 1h", failures=3.0, threshold=3),
    state("trust", "refused", "blocked", reason="declined 5 times"),
    state("trust", "taken", "removed"),
    state("breaker", "tool:watched", "closed", mode="observe"),
    pattern("s-stuck"),
)


def test_the_worst_stands_first() -> None:
    """By severity, then by state; what is well or handled is not in the list."""
    assert titles(board_of(*EVERY)) == ["refused", "asks", "tool:open", "s-stuck", "tool:probed", "demoted"]
    assert titles(board_of(*EVERY), NowQuery("handled")) == ["tool:watched", "taken"]
    assert titles(board_of(*EVERY), NowQuery("ok")) == ["fine"]
    counts = dict(now_page(board_of(*EVERY), NowQuery(), NOW).counts)
    assert counts["handled"] == 2
    assert sum(counts.values()) == len(EVERY)


def test_among_equals_the_newest_stands_first() -> None:
    """By when the present state began, not by when it was last counted."""
    ages = {"a": 30, "b": 10, "c": 20}
    board = board_of(*(state("trust", key, "escalated", age=age) for key, age in ages.items()))
    assert titles(board) == ["b", "c", "a"]


def test_an_open_circuit_becomes_half_open_by_itself() -> None:
    """When its time is over; nothing has to be recorded for that."""
    board = board_of(state("breaker", "tool:t", "open", open_until=at(-30), reason="consecutive", consecutive=5))
    words = [now_page(board, NowQuery(), NOW + timedelta(seconds=late)).rows[0].incident.state for late in (0, 29, 31)]
    assert words == ["open", "open", "half-open"]


def test_a_session_is_stuck_until_it_breaks_out_or_falls_silent() -> None:
    """A cleared pattern takes it off the list; after an hour without news it is no more about now."""
    board = board_of(pattern("s1"), pattern("s2"))
    board.apply([pattern("s1", kind="pattern.cleared", age=30)])
    assert titles(board) == ["s2"]
    assert titles(board, now=NOW + timedelta(hours=1)) == []


def test_a_row_says_why_since_when_and_what_resolves_it() -> None:
    """The reason in a sentence, the count beside its threshold, and the order that helps first."""
    decision = {
        "schema_version": "1.0",
        "type": "trust.changed",
        "id": "d1",
        "time": at(60),
        "key": "asks",
        "scope": "tool",
        "from": "trusted",
    }
    decision |= {"to": "escalated", "trigger": "count", "reason": "3/3 failures in 1h"}
    board = board_of(*EVERY, OutputRecord("escalations", "w\x1fasks", orjson.dumps(decision)))
    rows = {row.incident.subject: row for row in now_page(board, NowQuery(), NOW).rows}
    asks = rows["asks"]
    assert (asks.reason, asks.value, asks.incident.since_ms) == ("3/3 failures in 1h.", "now 3/3", NOW_MS - 60_000)
    assert asks.why_url == "/decisions/d1"
    assert asks.url == "/tools/asks?workspace=w"
    first = {title: row.orders[0] for title, row in rows.items()}
    assert first == {
        "refused": "reset", "asks": "approve", "s-stuck": "false-alarm", "tool:open": "close", "tool:probed": "close",
        "demoted": "quality",
    }  # fmt: skip
    assert rows["s-stuck"].reason == "Error retry loop: bash 7 times."
    assert rows["tool:open"].reason == "5 failures in a row."
    assert rows["tool:open"].onward == "a probe in 30s"


def test_a_stuck_session_says_what_a_person_should_know() -> None:
    """Its row names the call, or has the text for a person where there is one."""
    told = {"request": "make all", "message": "The agent cannot find make.", "notify_user": True}
    board = board_of(
        pattern("s1", request="make all"), pattern("s2", **told), pattern("s3", **told | {"notify_user": False})
    )
    reasons = {row.incident.subject: row.reason for row in now_page(board, NowQuery(), NOW).rows}
    assert reasons == {
        "s1": "Error retry loop: bash `make all` 7 times.",
        "s2": "The agent cannot find make.",
        "s3": "Error retry loop: bash `make all` 7 times.",
    }


def test_sessions_with_trouble_are_told_as_they_are_now(tmp_path: Path) -> None:
    """On Now, over HTTP and after a restart as on the page of sessions; decisions tell only some counts."""
    call = {"schema_version": "1.0", "session_id": "s1", "tool_name": "bash", "status": "error"}
    lines = []
    for number in range(40):
        own = {"call_id": f"c{number}", "error": {"message": "no rule"}, "args": {"command": "make all"}}
        started = call | own | {"id": f"a{number}", "type": "tool_call.started", "time": before(90 - 2 * number)}
        lines += [
            started,
            started | {"id": f"b{number}", "type": "tool_call.finished", "time": before(89 - 2 * number)},
        ]
    asks = lines[-2] | {"session_id": "s2", "time": before(2), "id": "a", "args": {"command": "git push"}}
    lines += [asks, asks | {"type": "permission.requested", "id": "b"}]
    with dashboard(tmp_path) as client:
        assert client.post("/v1/events", content=b"\n".join(map(orjson.dumps, lines))).status_code == 200
        incidents = [client.get("/v1/incidents").json()["incidents"]]
        pages = [client.get("/sessions").text, client.get("/").text]
    with dashboard(tmp_path) as client:
        incidents.append(client.get("/v1/incidents").json()["incidents"])
        pages.append(client.get("/").text)
    counts = [set(re.findall(r"(\d+) times", page.partition('id="tools"')[0])) for page in pages]
    assert counts == [{"40"}] * 3
    assert incidents[0] == incidents[1]
    waiting, stuck, *_ = (one["cause"] for one in incidents[0])
    assert waiting == "waits for an answer: bash git push"
    assert re.findall(r"(\d+) times", stuck) == ["40"]


def test_a_session_that_ends_in_the_batch_in_which_it_was_stuck_is_no_incident(tmp_path: Path) -> None:
    """Its decisions come with its end: it is over."""
    ended = {"schema_version": "1.0", "id": "end", "type": "session.ended", "time": before(1), "session_id": "s1"}
    with dashboard(tmp_path) as client:
        client.post("/v1/events", content=failures("bash", 3) + b"\n" + orjson.dumps(ended))
        found = client.get("/v1/incidents").json()["incidents"]
    assert {one["kind"] for one in found} == {"tool"}


def test_why_is_known_after_a_restart(tmp_path: Path) -> None:
    """Also of a state that began before the latest decisions of all."""
    with dashboard(tmp_path) as client:
        client.post("/v1/events", content=failures("first"))
        for number in range(80):
            client.post("/v1/events", content=failures(f"t{number}", session=f"s{number}"))
    with dashboard(tmp_path) as client:
        page = client.get("/?q=first").text
    assert "/decisions/" in page.partition('id="attention"')[2].partition("</section>")[0]


def call(tool: str, age: float, verdict: str = "failure", workspace: str = "w", **more: Any) -> OutputRecord:
    """The record of a call that ended so many seconds ago."""
    record = {"type": "call.outcome", "time_ms": NOW_MS - round(age * 1000), "workspace_id": workspace, "call_id": "c"}
    record |= {"tool_name": tool, "verdict": verdict, "outcome": "failed"} | more
    return OutputRecord("outcomes", f"{workspace}\x1ftool:{tool}", orjson.dumps(record))


def test_tools_are_listed_with_every_failure_of_the_last_hour() -> None:
    """Failed calls count also where trust does not; expected failures, plugins' reports and older calls do not."""
    board = board_of(
        state("trust", "http_request", "blocked", failure_history=[at(90)]),
        *(call("http_request", age, service="api.example.com") for age in range(100, 3600, 125)),
        call("http_request", 3700), call("http_request", 50, "success"), call("http_request", 50, "neutral"),
        call("http_request", 50, expected=True), call("http_request", 50, call_id=""),
        OutputRecord("outcomes", "w\x1fservice:x", call("http_request", 50).value.replace(b'"outcome"', b'"other"')),
        *(call("make", age) for age in range(60, 72)), call("make", 60, workspace="v"),
    )  # fmt: skip
    found = now_page(board, NowQuery(), NOW).tools
    assert [(one.word, one.name, one.where, len(one.ticks)) for one in found] == [
        ("blocked", "http_request", "w", 28), ("ok", "service:api.example.com", "w", 28),
        ("ok", "make", "w", 12), ("ok", "make", "v", 1),
    ]  # fmt: skip
    assert found[0].ticks[-1] == round(100 - 100 / 36, 1)
    assert [one.where for one in now_page(board, NowQuery.of({"workspace": "v"}), NOW).tools] == ["v"]
    assert now_page(board, NowQuery(), NOW + timedelta(hours=1)).tools[0].ticks == ()


def test_failures_of_the_hour_are_known_after_a_restart(tmp_path: Path) -> None:
    """They are read from the store."""
    with dashboard(tmp_path) as client:
        client.post("/v1/events", content=failures("deploy", 3, time=before(120)))
        told = client.get("/").text.partition('id="tools"')[2]
        assert "3 failures in the last hour" in told
    with dashboard(tmp_path) as client:
        assert "3 failures in the last hour" in client.get("/").text.partition('id="tools"')[2]


def test_a_failure_counts_once_for_a_tool_and_for_an_outage() -> None:
    """A failure is in the history of its path, its tool and its service; each of them keeps only some."""

    def failed(key: str, seconds: range, word: str = "blocked") -> OutputRecord:
        return state("trust", key, word, failure_history=[at(one) for one in seconds])

    path, service = "fetch|domain=api.example.com", "service:api.example.com"
    board = board_of(
        failed(path, range(100, 200, 10)),
        failed(service, range(100, 200, 10)),
        failed("fetch", range(50, 140, 10), "trusted"),
    )
    page = now_page(board, NowQuery(), NOW)
    assert {row.incident.subject: len(row.ticks) for row in page.rows} == {service: 10}


def test_a_tools_page_shows_the_states_of_its_workspace() -> None:
    """Those of other workspaces are left out, unless it shows all."""
    board = board_of(state("trust", "bash|command=rm", "blocked", workspace="w"),
                     state("trust", "bash|command=make", "blocked", workspace="v"))  # fmt: skip
    assert [one.incident.workspace for one in states_of(board, "bash", NOW, ("v",))] == ["v"]
    assert {one.incident.workspace for one in states_of(board, "bash", NOW)} == {"v", "w"}


def test_a_tool_that_is_trusted_as_a_whole_says_how_many_of_its_targets_are_not() -> None:
    """Beside a failure rate of 100 % "trusted" alone would mislead."""
    keys = [("fetch|domain=a", "escalated"), ("fetch|domain=b", "escalated"), ("fetch|domain=c", "blocked")]
    states = [state("trust", key, word) for key, word in keys]
    said = "The tool as a whole is trusted; of its targets 1 is blocked, 2 are escalated."
    for whole in ((), (state("trust", "fetch", "trusted", failures=2.0),)):
        assert targets_words(board_of(*states, *whole), "fetch") == said
    assert targets_words(board_of(*states, state("trust", "fetch", "escalated")), "fetch") == ""
    assert targets_words(board_of(*states), "fetch|domain=a") == ""
    assert targets_words(board_of(*states), "fetch", ("elsewhere",)) == ""


def test_the_list_is_filtered_by_the_url() -> None:
    """By workspace, by a part of the key, by state; the counts are those of what is left."""
    board = board_of(
        state("trust", "bash|command=git", "escalated", workspace="a"),
        state("trust", "bash|command=rm", "blocked", workspace="a"),
        state("trust", "bash|command=git", "escalated", workspace="b"),
    )
    assert titles(board, NowQuery.of({"workspace": "a", "q": "GIT"})) == ["bash|command=git"]
    assert dict(now_page(board, NowQuery.of({"workspace": "a"}), NOW).counts) == {"blocked": 1, "escalated": 1}
    assert NowQuery.of({"state": "nonsense", "page": "-3"}) == NowQuery()


def test_nothing_to_show_has_four_reasons() -> None:
    """They ask for different things, and must not be mixed."""
    assert now_page(StateBoard(), NowQuery(), NOW).empty == "nothing"
    well = board_of(state("trust", "fine", "trusted", failures=1.0))
    assert now_page(well, NowQuery(), NOW).empty == "well"
    assert now_page(well, NowQuery.of({"q": "zzz"}), NOW).empty == "matches"
    assert now_page(well, NowQuery(), NOW, fault="the disk is full").empty == "fault"


@given(
    st.lists(
        st.tuples(
            st.sampled_from("abcde"), st.sampled_from(["blocked", "escalated", "trusted", None]), st.integers(1, 99)
        )
    )
)
def test_places_are_in_order_however_they_came(steps: list[tuple[str, str | None, int]]) -> None:
    """The same as if all were sorted anew; counts and tools agree with the incidents."""
    ranking, last = IncidentRanking(), {}
    for number, (key, word, age) in enumerate(steps):
        board = board_of(state("trust", key, word, age=age) if word else OutputRecord("state", key, None))
        last[key] = next(iter(board.states.values()), None)
        ranking.put(key, last[key])
        if number % 2:
            ranking.ranked(NOW_MS)
    families: dict[str, list[PublicState]] = {}
    for known in filter(None, last.values()):
        families.setdefault(family_of(known), []).append(known)
    found = list(ranking.ranked(NOW_MS))
    assert found == sorted(one for family in families.values() for one in of_family(family, NOW_MS))
    assert +ranking.counts == {word: n for word in STATES if (n := sum(one.state == word for one in found))}
    assert set(ranking.tools) == {(one.workspace, one.subject) for one in found}


def test_names_with_markup_stay_text(tmp_path: Path) -> None:
    """Also those that turn the direction of writing, or command a terminal; what a form sends back is whole."""
    with dashboard(tmp_path, RoleTokens(local_orders=True)) as client:
        hostile = failures("t<img src=x onerror=alert(1)>\u202ey", TO_OPEN, session="s<b>1")
        client.post("/v1/events", content=hostile)
        page = client.get("/").text.replace("<wbr>", "")
    assert "<img" not in page
    assert "<b>" not in page
    assert "t&lt;img src=x onerror=alert(1)&gt;\\u202ey</a>" in page
    assert 'name="key" value="t&lt;img src\\=x onerror\\=alert(1)&gt;\u202ey"' in page


def test_a_decision_of_another_day_shows_its_date() -> None:
    """Events may be older than their arrival; a time of day alone would place them at today."""
    assert ">12:00:00</time>" in clock(NOW, NOW)
    assert ">00:00:00</time>" in clock(NOW.replace(hour=0), NOW)
    assert ">2026-11-21 23:59:59</time>" in clock(NOW.replace(hour=0) - timedelta(seconds=1), NOW)


def test_a_page_of_ten_thousand_keys_is_small_and_quick(tmp_path: Path) -> None:
    """Fifty rows, with all orders: 200 kB with everything that is loaded beside it."""
    with dashboard(tmp_path, RoleTokens(local_orders=True)) as client:
        heard = client.app.state.service.writer.heard  # type: ignore[attr-defined]
        (source,) = (one.__self__ for one in heard if isinstance(one.__self__, EmbeddedSource))
        more = {"reason": "3/3 failures in 1h", "failures": 3.0, "threshold": 3, "workspace": "workspace"}
        keys = (f"tool{n % 100}|command={'x' * 60}{n}" for n in range(10_000))
        source.board.apply([state("trust", key, "escalated", n, **more) for n, key in enumerate(keys)])
        client.get("/")
        began = time.perf_counter()
        page = client.get("/?page=3")
        took = time.perf_counter() - began
        beside = sum(len(client.get(path).content) for path in re.findall(r'(?:src|href)="(/static/[^"]+)"', page.text))
    assert page.text.count("data-row") == PAGE_ROWS
    assert "Page 3 of 200" in page.text
    assert len(page.content) + beside <= 200_000
    assert took < 30, "it is slow by an order of magnitude"


def test_any_query_is_answered(tmp_path: Path) -> None:
    """What is wrong in it counts as not asked."""
    with dashboard(tmp_path) as client:
        for query in ("page=999999", "page=x", "state=%00", "workspace=%F0%9F%98%80&q=%22%3E"):
            assert client.get(f"/?{query}").status_code == 200


def test_beside_a_reason_stands_only_what_is_still_counted_and_no_command() -> None:
    """As a count of now; a blocked key is past its threshold; what waits for an operator says so without a command."""
    common: dict[str, Any] = {
        "failures": 1,
        "threshold": 3,
        "reason": "10 more failures without a success while escalated",
    }
    shown = {}
    for word, more in (("escalated", {}), ("blocked", {}), ("recovering", {"recovery_pending": True})):
        board = StateBoard()
        board.apply([state("trust", "deploy", word, **common, **more)])
        (row,) = now_page(board, NowQuery(), NOW).rows
        shown[word] = row.value, row.onward
        assert "trustfold" not in row.reason
    assert shown == {
        "escalated": ("now 1/3", "the next success starts recovery"),
        "blocked": ("", "manual reset required"),
        "recovering": ("now 1/3", ""),
    }


@pytest.mark.parametrize(
    "value",
    [
        b"not JSON",
        b"[]",
        b'{"type": "pattern.detected"}',
        pattern_of("s2").replace(b'"error_retry_loop"', b"7"),
        pattern_of("s2").replace(b'"minor"', b'"enormous"'),
        pattern_of("s2").replace(at(60).encode(), b"yesterday"),
    ],
)
def test_a_record_that_cannot_be_read_breaks_no_page(value: bytes) -> None:
    """It is skipped and counted; what came before and after it is shown."""
    board = board_of(pattern("s1"), OutputRecord("nudges", "s2", value), pattern("s3"))
    assert titles(board) == ["s1", "s3"]
    assert titles(board) == ["s1", "s3"]
    assert board.skipped == 1
    board.apply([OutputRecord("state", "trust:w\x1fother", value), *EVERY])
    assert "asks" in titles(board)
    assert board.skipped == 2


def test_fields_of_a_later_version_break_no_page() -> None:
    """They are ignored, whatever they hold."""
    later = {"mood": {"since": [1]}, "state_of_mind": None}
    board = board_of(state("trust", "asks", "escalated", **later), pattern("s1"))
    assert titles(board) == ["asks", "s1"]
    assert board.skipped == 0


def test_a_board_that_nobody_reads_keeps_no_more_than_it_needs() -> None:
    """A server without visitors runs for months: repeated decisions and keys that come and go leave nothing behind."""
    board = StateBoard()
    for _ in range(10):
        board.apply(change for _ in range(300) for change in (pattern("s1"), pattern("s1", kind="pattern.cleared")))
        board.apply(OutputRecord("state", f"trust:w\x1fkey{number}", None) for number in range(600))
    assert len(board._decided) + len(board._new) <= 3_000
    assert not board.sessions


@pytest.mark.parametrize("poison", [b'{"type":"permission.requested","a":' * 3_000, b'{"type":"permission.\xff"}', b""])
def test_an_event_that_nobody_can_read_is_passed_over(poison: bytes) -> None:
    """Whatever a publisher sends, the state is told of what comes behind it."""
    board = StateBoard()
    asks = {"session_id": "s", "time": "2026-01-05T10:00:00Z", "type": "permission.requested", "call_id": "c"}
    board.hear([poison, orjson.dumps(asks)])
    assert list(board.sessions) == ["s"]


def test_a_session_that_asks_without_end_takes_no_more_memory() -> None:
    """Nor one whose calls are lost without end: the latest are kept."""
    board = StateBoard()
    event = {"session_id": "s", "time": "2026-01-05T10:00:00Z"}
    board.hear(
        orjson.dumps(event | {"type": "permission.requested", "call_id": f"c{number}"})
        for number in range(3 * MAX_KEPT)
    )
    lost = event | {"type": "tool_call.finished", "status": "lost"}
    board.apply(OutputRecord("events", "s", orjson.dumps(lost | {"call_id": f"l{n}"})) for n in range(3 * MAX_KEPT))
    (news,) = board.sessions.values()
    assert (len(news.asks), news.asks[-1].call_id, len(news.lost)) == (MAX_KEPT, f"c{3 * MAX_KEPT - 1}", MAX_KEPT)


def test_a_publishers_clock_that_is_ahead_is_told(tmp_path: Path) -> None:
    """On every page, beside how old the data is."""
    event = orjson.dumps(
        {"schema_version": "1.0", "id": "e1", "type": "user.message", "time": before(-7_200), "session_id": "s"}
    )
    with dashboard(tmp_path) as client:
        assert "Clocks differ" not in client.get("/").text
        client.post("/v1/events", content=event)
        assert "Clocks differ: 1 event came from a clock that is ahead of this one" in client.get("/").text


def test_decisions_about_danger_and_about_failures_have_pages_side_by_side(tmp_path: Path) -> None:
    """Each is among the other's related decisions."""
    danger = {"schema_version": "1.0", "session_id": "s9", "call_id": "c1", "tool_name": "bash"}
    start = danger | {"id": "d0", "type": "tool_call.started", "time": before(2), "args": {"command": "rm -rf ~/"}}
    end = danger | {"id": "d1", "type": "tool_call.finished", "time": before(1), "status": "success", "result": "ok"}
    with dashboard(tmp_path) as client:
        client.post("/v1/events", content=failures("deploy", 3))
        client.post("/v1/events", content=orjson.dumps(start) + b"\n" + orjson.dumps(end))
        found = [orjson.loads(line)["value"] for line in client.get("/v1/decisions?topics=escalations").iter_lines()]
        assert [one["type"] for one in found] == ["trust.changed", "trust.danger_noted"]
        for one in found:
            assert client.get(f"/decisions/{quote(one['id'], safe='')}").status_code == 200
