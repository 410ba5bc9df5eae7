"""What people ask first, counted again in plain Python over one history; and the same under filters."""

from __future__ import annotations

import re
import shlex
from collections import Counter, defaultdict
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import cached_property
from math import sqrt
from pathlib import Path
from random import Random
from typing import Any

import duckdb
import orjson
import pytest
from recorded import record, replayed, rows, told
from story import Story
from trustfold.history.catalogue import connect, save
from trustfold.history.column_memory import ColumnMemory
from trustfold.history.filters import EVERYTHING, HistoryFilters
from trustfold.history.queries import ask, run
from trustfold.history.reports import BY_NAME, QUESTIONS
from two_days import MODELS, two_days

Body = dict[str, Any]
Rows = list[tuple[Any, ...]]
MIDDLE = datetime(2026, 1, 6, 6, tzinfo=UTC)


class Lived:
    """Two days recorded while they happened: events, decisions, and the history of both."""

    def __init__(self, root: Path) -> None:
        self.root = root
        records = list(two_days())
        record(root, records, live=True)
        self.events: list[Body] = [orjson.loads(value) for _, value in records]
        outputs = [output for output in replayed(records) if output.topic in {"escalations", "breakers", "nudges"}]
        self.decisions: list[Body] = [orjson.loads(output.value or b"") for output in outputs]
        self.finishes = [one for one in self.events if one["type"] == "tool_call.finished"]

    @cached_property
    def connection(self) -> duckdb.DuckDBPyConnection:
        """The catalogue of all of it."""
        return connect(self.root, threads=2)

    def ask(self, query: str, filters: HistoryFilters = EVERYTHING) -> Rows:
        """Answer of the catalogue."""
        if filters == EVERYTHING:
            return self.connection.execute(query).fetchall()
        return rows(self.root, query, filters=filters)


@pytest.fixture(scope="session")
def lived(tmp_path_factory: pytest.TempPathFactory) -> Lived:
    """One history for all of these tests."""
    return Lived(tmp_path_factory.mktemp("lived"))


def failed(one: Body) -> bool:
    """Whether a call of the two days failed."""
    return one["status"] != "success"


def at(body: Body) -> datetime:
    """When it happened."""
    return datetime.fromisoformat(body["time"])


def wilson(successes: int, trials: int) -> tuple[float, float]:
    """The 95 % interval of a share, from the formula of the textbook."""
    z, share = 1.959964, successes / trials
    middle, half = share + z * z / (2 * trials), z * sqrt(share * (1 - share) / trials + z * z / (4 * trials * trials))
    return (middle - half) / (1 + z * z / trials), (middle + half) / (1 + z * z / trials)


def test_nudges_that_were_delivered_count(lived: Lived) -> None:
    """Decided while it happened they were; their effect is a share with its interval."""
    judged = {one["nudge_id"]: one["effective"] for one in lived.decisions if one["type"] == "nudge.judged"}
    groups: defaultdict[tuple[str, str], list[bool | None]] = defaultdict(list)
    for one in lived.decisions:
        if one["type"] == "nudge.issued":
            groups[one["pattern"], one["nudge_type"]].append(judged.get(one["id"]))
    found = lived.ask(
        "SELECT pattern, nudge_type, issued, delivered, judged, effective, rate_low, rate_high FROM nudge_effectiveness"
    )
    assert {row[:2] for row in found} == set(groups)
    for pattern, kind, issued, delivered, known, effective, low, high in found:
        effects = [one for one in groups[pattern, kind] if one is not None]
        assert (issued, delivered) == (len(groups[pattern, kind]), len(groups[pattern, kind]))
        assert (known, effective) == (len(effects), sum(effects))
        if effects:
            assert (low, high) == pytest.approx(wilson(sum(effects), len(effects)), abs=1e-6)
    assert lived.ask("SELECT bool_and(delivered) FROM patterns") == [(True,)]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_nudges_of_every_model_and_tool_counted_again(seed: int, tmp_path: Path) -> None:
    """Decided at once, a minute later, later than that, or after days; a nudge has the tools of its causes."""
    chance, story, delays = Random(seed), Story(), dict[str, int]()
    for number in range(24):
        story.moved(session=f"s{number}")
        story.model = chance.choice(MODELS)
        delays[story.session] = chance.choice((0, 60_000, 60_001, 3 * 86_400_000))
        story.user_says()
        for _ in range(chance.randrange(1, 3)):
            tool = chance.choice(("bash", "write", "fetch"))
            story.fails(tool, {"n": number}, message="no such thing", times=chance.randrange(2, 7))
            if chance.random() < 0.6:
                story.works(chance.choice(("bash", "write", "fetch")), {"other": number})
    record(
        tmp_path, story.records, live=True, delay_ms=lambda value: delays.get(orjson.loads(value).get("session_id"), 0)
    )
    causes = {body["id"]: body for body in (orjson.loads(value) for _, value in story.records)}
    decisions = [orjson.loads(one.value or b"") for one in replayed(story.records) if one.topic == "nudges"]
    judged = {one["nudge_id"]: one["effective"] for one in decisions if one["type"] == "nudge.judged"}
    expected: defaultdict[HistoryFilters, Counter[str]] = defaultdict(Counter)
    for one in (one for one in decisions if one["type"] == "nudge.issued"):
        of = [causes[cause] for cause in one["caused_by"]]
        by_model = {HistoryFilters(models=(body["model"],)) for body in of}
        by_tool = {HistoryFilters(tools=(body["tool_name"],)) for body in of if "tool_name" in body}
        for filters in {EVERYTHING} | by_model | by_tool:
            delivered = delays[one["session_id"]] <= 60_000
            known = delivered and one["id"] in judged
            expected[filters] += Counter(
                issued=1, delivered=delivered, judged=known, effective=known and judged[one["id"]]
            )
    assert {filters.tools for filters in expected} >= {("bash",), ("write",), ("fetch",)}
    query = "SELECT sum(issued), sum(delivered), sum(judged), sum(effective) FROM nudge_effectiveness"
    memory = ColumnMemory(tmp_path)
    assert memory.refresh()
    for filters, counts in expected.items():
        with connect(tmp_path, filters=filters, query=query) as files, memory.connection(filters, query=query) as kept:
            for connection in (files, kept):
                wanted = tuple(counts[name] for name in ("issued", "delivered", "judged", "effective"))
                assert connection.execute(query).fetchall() == [wanted], filters
    memory.close()


def test_what_was_computed_over_a_recording_was_delivered_to_nobody(tmp_path: Path) -> None:
    """A log that is folded days later could tell the agent nothing, nor could a nudge that no answer carried."""
    story = Story().fails("deploy", {"to": "x"}, message="no", times=4)
    told(tmp_path / "late", story, arrived_ms=int((story.now + timedelta(days=3)).timestamp() * 1000))
    query = "SELECT sum(issued) > 0, sum(delivered), sum(judged) FROM nudge_effectiveness"
    held = Story()
    held.event("session.started", reports_deliveries=True)
    told(tmp_path / "held", held.fails("deploy", {"to": "x"}, message="no", times=4).works("deploy", {"to": "x"}))
    assert rows(tmp_path / "held", query) == [(True, 0, 0)]
    assert rows(tmp_path / "late", query) == [(True, 0, 0)]
    assert rows(tmp_path / "late", "SELECT bool_or(delivered) FROM patterns") == [(False,)]


def test_sessions_are_ranked_by_the_calls_that_led_nowhere(lived: Lived) -> None:
    """By the lower bound of their share: calls that failed, and those of loops that did not."""
    failures = Counter(one["session_id"] for one in lived.finishes if failed(one))
    found = lived.ask("SELECT session_id, failures, wasted_calls, led_nowhere, calls FROM sessions_to_look_at")
    loops = dict(lived.ask("SELECT session_id, sum(wasted_calls)::BIGINT FROM loops WHERE NOT failing GROUP BY ALL"))
    assert {row[0]: row[3] for row in found} == {
        name: failures[name] + loops.get(name, 0) for name in {*failures, *loops, *(row[0] for row in found)}
    }
    bounds = [round(wilson(row[3], row[4])[0], 6) for row in found]
    assert bounds == sorted(bounds, reverse=True)


def test_what_loops_cost_each_model(lived: Lived) -> None:
    """Their calls and seconds, against all of the model's."""
    found = {
        row[0]: row[1:]
        for row in lived.ask("SELECT model, wasted_calls, wasted_seconds, of_calls, of_seconds FROM loops_by_model")
    }
    calls: defaultdict[str, list[float]] = defaultdict(list)
    for one in lived.finishes:
        calls[one["model"]].append(one["duration_ms"] / 1000)
    wasted = Counter(dict(lived.ask("SELECT model, sum(wasted_calls)::BIGINT FROM loops GROUP BY ALL")))
    assert found
    for model, (wasted_calls, seconds, of_calls, of_seconds) in found.items():
        assert (wasted_calls, of_calls) == (wasted[model], len(calls[model]))
        assert (seconds, of_seconds) == pytest.approx((wasted_calls * 0.1, sum(calls[model])))


def test_what_got_worse(lived: Lived) -> None:
    """This day against the one before: only where the interval of the change leaves out 0."""
    end = max(map(at, lived.events))
    middle = end - timedelta(days=1)
    counts: defaultdict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for one in lived.finishes:
        if at(one) >= end - timedelta(days=2):
            for key in (("tool", one["tool_name"]), ("model", one["model"])):
                counts[key][("now " if at(one) >= middle else "before ") + ("failed" if failed(one) else "good")] += 1
    found = lived.ask(
        "SELECT kind, name, verdict, failures, calls, failures_before, calls_before, low, high, change_low, "
        "change_high FROM compared_rates(INTERVAL 1 DAY)"
    )
    assert {row[:2] for row in found} == set(counts)
    for kind, name, verdict, *rest in found:
        one = counts[kind, name]
        k, n = one["now failed"], one["now failed"] + one["now good"]
        k0, n0 = one["before failed"], one["before failed"] + one["before good"]
        assert rest[:4] == [k, n, k0, n0]
        (low, high), (low0, high0) = wilson(k, n), wilson(k0, n0)
        change = k / n - k0 / n0
        down = change - sqrt((k / n - low) ** 2 + (high0 - k0 / n0) ** 2)
        up = change + sqrt((high - k / n) ** 2 + (k0 / n0 - low0) ** 2)
        assert rest[4:] == pytest.approx([low, high, down, up], abs=1e-6)
        few = min(n, n0) < 10
        assert verdict == (
            "too few calls" if few else "worse" if down > 0 else "better" if up < 0 else "no change shown"
        )
    assert ("tool", "http_request", "worse") in {row[:3] for row in found}


def test_intervals_of_the_textbook(lived: Lived) -> None:
    """Newcombe's example, 56 of 70 against 48 of 80, is 0.0524 to 0.3339; no trials have no interval."""
    low, high = "wilson_low", "wilson_high"
    squares = (
        f"(0.8 - {low}(56, 70)) ** 2 + ({high}(48, 80) - 0.6) ** 2",
        f"({high}(56, 70) - 0.8) ** 2 + (0.6 - {low}(48, 80)) ** 2",
    )
    found = lived.ask(f"SELECT round(0.2 - sqrt({squares[0]}), 4), round(0.2 + sqrt({squares[1]}), 4)")
    assert found == [(0.0524, 0.3339)]
    assert lived.ask("SELECT wilson_low(0, 0), wilson_low(0, 9), wilson_high(9, 9)") == [(None, 0.0, 1.0)]


def test_too_few_calls_say_nothing(tmp_path: Path) -> None:
    """Three failures of three are no finding."""
    story = Story().works("search", times=30).works("rare", times=30).after(minutes=24 * 60)
    told(tmp_path, story.works("search", times=30).fails("rare", times=3))
    query = "SELECT name, verdict FROM compared_rates(INTERVAL 1 DAY) WHERE kind = 'tool' ORDER BY name"
    assert rows(tmp_path, query) == [("rare", "too few calls"), ("search", "no change shown")]


def test_new_failures_are_new_and_old_ones_back(tmp_path: Path) -> None:
    """Seen never before, seen before but not in the period before, or seen in both."""
    story = Story()
    story.fails("a", message="alpha broke").fails("a", message="gamma broke").after(minutes=10 * 24 * 60)
    story.fails("a", message="gamma broke").after(minutes=7 * 24 * 60)
    story.fails("a", message="alpha broke").fails("a", message="beta broke", times=2).fails("a", message="gamma broke")
    told(tmp_path, story)
    found = rows(tmp_path, "SELECT signature, seen, failures FROM compared_signatures(INTERVAL 7 DAY)")
    new = rows(tmp_path, "SELECT name, times FROM new_things() WHERE kind = 'failure'")
    assert {(name.rpartition(": ")[2], *rest) for name, *rest in found} == {
        ("alpha broke", "back", 1),
        ("beta broke", "new", 2),
    }
    assert [(name.rpartition(": ")[2], times) for name, times in new] == [("beta broke", 2)]


def test_who_is_asked_for_nothing(tmp_path: Path) -> None:
    """Granted, and the call did not fail: nobody had needed to ask."""
    story = Story(user="ann")
    for number, (answer, good) in enumerate([(True, True), (True, True), (True, False), (False, True), (None, True)]):
        call = f"ask-{number}"
        story.event("permission.requested", call_id=call, tool_name="bash")
        if answer is None:
            continue
        story.event("permission.resolved", call_id=call, tool_name="bash", granted=answer, method="user")
        if answer:
            story.started("bash", {"command": "make"}, call=call)
            story.finished(call, "bash", status="success" if good else "error", result=None)
    story.event("permission.resolved", call_id="by-rule", tool_name="bash", granted=True, method="policy")
    told(tmp_path, story)
    query = "SELECT user_id, tool_name, asked, granted_times, denied, unanswered, false_asks, share FROM ask_rates"
    assert rows(tmp_path, query) == [("ann", "bash", 5, 3, 1, 1, 2, 0.5)]
    assert rows(tmp_path, "SELECT count(*), median(waited) FROM asks") == [(6, timedelta(seconds=2))]


@pytest.mark.parametrize("seed", range(3))
def test_false_asks_of_every_model_and_tool_counted_again(seed: int, tmp_path: Path) -> None:
    """Requests and answers are missing, twice or out of place; calls fail, end twice or are never made."""
    chance, story = Random(seed), Story(user="ann")
    for number in range(120):
        story.model, story.session = chance.choice(MODELS), f"s{number % 7}"
        call, tool = f"c{number % 50}", chance.choice(("bash", "write", "fetch"))
        every = ("requested", "resolved", "finished")
        steps = [kind for kind in every for _ in range(chance.choice((0, 1, 1, 1, 2)))]
        if chance.random() < 0.2:
            chance.shuffle(steps)
        for step in steps:
            if step == "finished":
                story.started(tool, {"n": number}, call=call)
                story.finished(call, tool, status=chance.choice(("success", "error")), result=None)
            else:
                granted = {"granted": chance.random() < 0.8, "method": "user"} if step == "resolved" else {}
                story.event(f"permission.{step}", call_id=call, tool_name=tool, **granted)
    told(tmp_path, story)
    of_call: defaultdict[tuple[str, str], list[Body]] = defaultdict(list)
    for body in (orjson.loads(value) for _, value in story.records):
        of_call[body["session_id"], body["call_id"]].append(body)
    asked, false = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    for events in of_call.values():
        requested = any(one["type"] == "permission.requested" for one in events)
        for place, one in enumerate(events):
            if one["type"] == ("permission.requested" if requested else "permission.resolved"):
                later = events[place:]
                answer = next((e for e in later if e["type"] == "permission.resolved"), {})
                ended = next((e for e in later if e["type"] == "tool_call.finished"), {})
                asked[one["model"], one["tool_name"]] += 1
                false[one["model"], one["tool_name"]] += bool(
                    answer.get("granted") and ended.get("status") == "success"
                )
    memory = ColumnMemory(tmp_path)
    assert memory.refresh()
    query = "SELECT model, tool_name, count(*), count(*) FILTER (for_nothing) FROM asks GROUP BY ALL"
    with connect(tmp_path, query=query) as files, memory.connection(query=query) as kept:
        for connection in (files, kept):
            found = {row[:2]: row[2:] for row in connection.execute(query).fetchall()}
            assert found == {place: (count, false[place]) for place, count in asked.items()}
    memory.close()


def test_retries_that_paid_off(tmp_path: Path) -> None:
    """At once, after something else, and inside one call; a call after a success is none."""
    story = Story()
    story.fails("fetch", {"q": 1}).works("fetch", {"q": 1}, times=2)
    story.fails("fetch", {"q": 2}).works("edit").works("fetch", {"q": 2})
    story.fails("fetch", {"q": 3}, times=2)
    story.works("fetch", {"q": 4}, attempts=3)
    told(tmp_path, story)
    assert rows(tmp_path, "SELECT tool_name, kind, retried, succeeded FROM retry_success ORDER BY kind") == [
        ("fetch", "after other calls", 1, 1),
        ("fetch", "at once", 2, 1),
        ("fetch", "inside the call", 1, 1),
    ]


def test_retries_counted_again(lived: Lived) -> None:
    """Over two days: a call of a session with the same arguments whose last one had failed, by what came in between."""
    starts = {one["call_id"]: one for one in lived.events if one["type"] == "tool_call.started"}
    expected: Counter[tuple[str, str, bool]] = Counter()
    for session in {one["session_id"] for one in lived.finishes}:
        last: dict[str, tuple[int, bool]] = {}
        for place, one in enumerate(one for one in lived.finishes if one["session_id"] == session):
            call = one["tool_name"] + repr(starts[one["call_id"]]["args"])
            before, had_failed = last.get(call, (0, False))
            if had_failed:
                kind = "at once" if place == before + 1 else "after other calls"
                expected[one["tool_name"], kind, not failed(one)] += 1
            last[call] = place, failed(one)
    found = lived.ask("SELECT tool_name, kind, paid_off, count(*) FROM retries GROUP BY ALL")
    assert {row[:3]: row[3] for row in found} == expected
    assert expected


def test_calls_of_one_moment_stand_in_the_order_of_the_log(tmp_path: Path) -> None:
    """A retry is at once when nothing was recorded between it and the failure, whatever the ids are."""
    story = Story().fails("fetch", {"q": 1}).works("edit").works("fetch", {"q": 1})
    story.fails("fetch", {"q": 2}).works("fetch", {"q": 2})
    lines = [orjson.loads(value) for _, value in story.records]
    for number, line in enumerate(lines):
        line |= {"time": "2026-01-05T10:00:00.000Z", "id": f"00000000-0000-0000-0000-{999 - number:012d}"}
    record(tmp_path, [("events", orjson.dumps(line)) for line in lines])
    found = rows(tmp_path, "SELECT kind, paid_off, calls_between FROM retries ORDER BY kind")
    assert found == [("after other calls", True, 1), ("at once", True, 0)]


def test_what_needs_somebody_now(tmp_path: Path) -> None:
    """What is lost and open and stuck, most urgent first, with the order that ends it; what has passed is not there."""
    story = Story().fails("search", http_status=503, times=6)
    told(tmp_path, story)
    columns = "SELECT state, subject, orders FROM incidents"
    with connect(tmp_path, query=columns) as history:
        _, found = run(history, columns)
    assert ("escalated", "search", ["trustfold reset 'search' --workspace 'w1'"]) in found
    assert ("stuck", "s1", None) in found
    assert len(found) == 2
    early = HistoryFilters(until=datetime(2026, 1, 5, 10, 0, 3, tzinfo=UTC))
    with connect(tmp_path, filters=early, query=columns) as history:
        assert run(history, columns)[1] == []


def test_filters_narrow_outages(tmp_path: Path) -> None:
    """By tool, model and session, in keys, scores and sessions; whether a session is over counts unfiltered."""
    story = Story(session="a", model="m").fails("search", {"url": "https://a.example.com/1"}, http_status=503, times=6)
    story.model = "n"
    story.moved(session="b").fails("deploy", {"to": "x"}, message="no", times=6)
    story.moved(session="c").fails("deploy", {"to": "y"}, message="no", times=6).event("session.ended")
    told(tmp_path, story)

    def found(**named: str) -> set[tuple[str, str]]:
        filters = HistoryFilters(**{f"{name}s": (value,) for name, value in named.items()})
        query = "SELECT kind, subject FROM incidents"
        with connect(tmp_path, filters=filters, query=query) as history:
            _, answer = run(history, query)
        return set(answer)

    search, deploy = {("tool", "search"), ("session", "a")}, {("tool", "deploy"), ("session", "b")}
    assert found() == search | deploy
    assert found(tool="search") == found(model="m") == found(session="a") == search
    assert found(session="c") == {("tool", "deploy")}
    assert found(tool="other") == set()


def test_incidents_are_ranked_before_they_are_read(tmp_path: Path) -> None:
    """A connection that has not ranked them says so, instead of giving none."""
    told(tmp_path, Story().fails("search", http_status=503, times=6))
    with (
        connect(tmp_path, query="incidents") as history,
        pytest.raises(duckdb.Error, match=r"history\.incidents\.rank"),
    ):
        history.execute("FROM incidents").fetchall()


def test_memory_ranks_the_same_incidents_as_the_files(tmp_path: Path) -> None:
    """Servers leave out what no other page needs."""
    told(tmp_path, Story().fails("search", http_status=503, times=6))
    memory = ColumnMemory(tmp_path)
    memory.refresh()
    query = "FROM incidents"
    with memory.connection(query=query) as kept, connect(tmp_path, query=query) as history:
        assert run(kept, query) == run(history, query)
    memory.close()


def test_the_order_that_ends_it_can_be_pasted_into_a_shell(lived: Lived) -> None:
    """Keys hold bars, which would make two commands of one."""
    _, found = run(lived.connection, "SELECT unnest(orders) FROM incidents WHERE state = 'blocked'")
    assert ["trustfold", "reset", "bash|command=make", "--workspace", "team-1"] in [
        shlex.split(one) for (one,) in found
    ]


def test_an_outage_names_its_service_and_its_tool(lived: Lived) -> None:
    """In columns of their own."""
    found = lived.ask("SELECT DISTINCT subject, service, tool FROM outages")
    assert ("service:search.example.com", "search.example.com", None) in found
    assert ("http_request|domain=search.example.com|path_prefix=v1", "search.example.com", "http_request") in found
    assert ("bash|command=make", None, "bash") in found


PLACE = ("workspace_id", "tool_name", "model")
PASSES: dict[str, tuple[HistoryFilters, Callable[[Body], bool]]] = {
    "since": (HistoryFilters(since=MIDDLE), lambda one: at(one) >= MIDDLE),
    "until": (HistoryFilters(until=MIDDLE), lambda one: at(one) < MIDDLE),
    "workspace": (HistoryFilters(workspaces=("team-1",)), lambda one: one["workspace_id"] == "team-1"),
    "tool": (HistoryFilters(tools=("bash", "read_file")), lambda one: one["tool_name"] in {"bash", "read_file"}),
    "model": (HistoryFilters(models=("large-1",)), lambda one: one["model"] == "large-1"),
    "session": (HistoryFilters(sessions=("session-07", "it's")), lambda one: one["session_id"] == "session-07"),
    "all": (
        HistoryFilters(MIDDLE, None, ("team-1",), ("bash",), ("small-3",)),
        lambda one: at(one) >= MIDDLE and tuple(map(one.get, PLACE)) == ("team-1", "bash", "small-3"),
    ),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", PASSES)
def test_filters_hold_in_every_question(name: str, lived: Lived) -> None:
    """Calls, sessions, tools and models, counted again; every question answers under all filters at once."""
    filters, passes = PASSES[name]
    calls = [one for one in lived.finishes if passes(one)]
    with connect(lived.root, threads=2, filters=filters) as connection:
        tools = connection.execute(
            "SELECT tool_name, calls, failures, sessions FROM tool_health(min_calls := 1)"
        ).fetchall()
        pairs = connection.execute("SELECT model, tool_name, calls FROM model_tool_matrix").fetchall()
        for question in QUESTIONS if name == "all" else ():
            ask(connection, question, 5)
    expected = {
        tool: (len(ones), sum(map(failed, ones)), len({one["session_id"] for one in ones}))
        for tool in {one["tool_name"] for one in calls}
        for ones in [[one for one in calls if one["tool_name"] == tool]]
    }
    assert {row[0]: row[1:] for row in tools} == expected
    assert {row[:2]: row[2] for row in pairs} == Counter((one["model"], one["tool_name"]) for one in calls)


def test_decisions_pass_with_the_events_behind_them(lived: Lived) -> None:
    """All steps of a key pass together, so that its outage keeps its end; patterns pass with their calls."""
    by_tool = lived.ask("SELECT subject, recovered IS NULL FROM outages", HistoryFilters(tools=("http_request",)))
    everything = lived.ask("SELECT subject, recovered IS NULL FROM outages")
    assert set(by_tool) == {row for row in everything if "search.example.com" in row[0]}
    tools = {one["id"]: one.get("tool_name") for one in lived.events}
    expected = {
        one["id"]
        for one in lived.decisions
        if one["type"] == "pattern.detected" and "bash" in {tools.get(cause) for cause in one["caused_by"]}
    }
    assert {row[0] for row in lived.ask("SELECT id FROM patterns", HistoryFilters(tools=("bash",)))} == expected
    assert expected


def test_the_present_is_where_the_record_ends_whatever_is_filtered(lived: Lived) -> None:
    """A tool that was not called for a day is not judged by a day of its own."""
    end = max(map(at, lived.events)).replace(tzinfo=None)
    for filters in (EVERYTHING, HistoryFilters(tools=("bash",)), HistoryFilters(sessions=("session-00",))):
        assert lived.ask("FROM recorded_until", filters) == [(end,)]
    assert lived.ask("FROM recorded_until", HistoryFilters(until=MIDDLE)) == [(MIDDLE.replace(tzinfo=None),)]


def test_several_histories_are_one(lived: Lived, tmp_path: Path) -> None:
    """What is in two of them counts once."""
    story = Story(session="elsewhere").works("deploy")
    lines = [(topic, value.replace(b'"00000000-', b'"00000009-')) for topic, value in story.records]
    record(tmp_path / "one", lines)
    query = "SELECT count(*), count(DISTINCT session_id) FROM events"
    (alone,) = lived.ask(query)
    with connect((lived.root, tmp_path / "one"), threads=2) as connection:
        assert connection.execute(query).fetchall() == [(alone[0] + 2, alone[1] + 1)]
        assert connection.execute("SELECT count(DISTINCT history) FROM recorded").fetchall() == [(2,)]
    record(tmp_path / "copy", lines)
    with connect((tmp_path / "one", tmp_path / "copy"), threads=2) as connection:
        assert connection.execute(query).fetchall() == [(2, 1)]


def test_what_an_answer_leaves_out_is_counted(lived: Lived) -> None:
    """Rows beyond the limit; none where all are there."""
    everything, some = (ask(lived.connection, BY_NAME["sessions"], limit) for limit in (100, 3))
    all_days, days = (ask(lived.connection, BY_NAME["failures"], limit) for limit in (100, 4))
    assert everything.left_out == 0
    assert (len(some.rows), some.left_out) == (3, len(everything.rows) - 3)
    assert len(days.rows) + days.left_out == len(all_days.rows)
    kept = {row[0] for row in days.rows}
    assert [row for row in all_days.rows if row[0] in kept] == days.rows


def test_a_saved_catalogue_is_whole_and_opens_in_older_databases(lived: Lived, tmp_path: Path) -> None:
    """Comments on every column, incidents of then; its number is that of DuckDB 1.0, which BI tools bring."""
    save(lived.root, tmp_path / "catalogue.duckdb")
    assert int.from_bytes((tmp_path / "catalogue.duckdb").read_bytes()[12:20], "little") <= 64
    with duckdb.connect(str(tmp_path / "catalogue.duckdb"), read_only=True) as connection:
        found = connection.execute(
            "SELECT table_name, column_name, comment FROM duckdb_columns() WHERE NOT internal"
        ).fetchall()
        blocked = connection.execute("SELECT subject FROM incidents WHERE state = 'blocked'").fetchall()
    assert ("bash|command=make",) in blocked
    assert len(found) > 300
    bare = [f"{view}.{name}" for view, name, comment in found if not comment or re.sub(r"\W", "", comment) == name]
    assert not bare, f"write a line in history/sql/column_comments.txt for {', '.join(bare)}"
