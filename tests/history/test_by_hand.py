"""The main views against the same numbers counted by hand: in plain Python, from what the folds said of every call."""

from __future__ import annotations

from collections import Counter, defaultdict
from datetime import UTC, datetime, timedelta
from statistics import median
from typing import Any

import orjson
import pytest
from recorded import lines_of
from trustfold.history.catalogue import connect
from trustfold.history.charts import objects
from trustfold.history.findings import finding
from trustfold.history.queries import ask as answer
from trustfold.history.recorder import PartitionRecorder
from trustfold.history.reports import BY_NAME
from trustfold.projections.local_topology import LocalTopology
from trustfold.recording.files import record_files
from trustfold.rules.rules import RuleSet
from two_days import two_days

Body = dict[str, Any]
BAD = {"open", "forced_open", "escalated", "blocked", "removed"}
GOOD = {"closed", "trusted"}


class Hand:
    """Everything counted from raw events, outcomes and decisions; nothing here comes from a history."""

    def __init__(self, lines: list[bytes]) -> None:
        self.events: dict[str, Body] = {}
        self.calls: list[Body] = []
        self.decisions: list[Body] = []
        topology = LocalTopology(RuleSet())
        seen: set[str] = set()
        outputs = [output for line in lines for output in self._fold(topology, line)]
        for output in (*outputs, *topology.tick(topology.stream_time)):
            if output.value is None or (output.id and output.id in seen):
                continue
            seen.add(output.id or "")
            body = orjson.loads(output.value)
            if output.topic == "events":
                self.events.setdefault(body["id"], body | {"ours": True})
            elif output.topic == "outcomes" and body["type"] == "call.outcome" and body["scope"].startswith("tool:"):
                self.calls.append(body)
            elif output.topic in {"escalations", "breakers", "nudges"}:
                self.decisions.append(body)
        self.calls = [
            one for one in self.calls if self.events.get(one["cause"], {}).get("type") == "tool_call.finished"
        ]

    def _fold(self, topology: LocalTopology, line: bytes) -> list[Any]:
        found = topology.feed("events", (line,))
        if not any(output.topic == "dead-letters" for output in found):
            body = orjson.loads(line)
            self.events.setdefault(body["id"], body)
        return found

    def failed(self, call: Body) -> bool:
        """Whether a call failed and was not expected to."""
        return call["verdict"] == "failure" and not call.get("expected")

    def of(self, kind: str) -> list[Body]:
        """Decisions of one type, in the order in which they were taken."""
        return [one for one in self.decisions if one["type"] == kind]

    def of_events(self, kind: str) -> int:
        """Number of events of one type."""
        return sum(one["type"] == kind for one in self.events.values())

    def counted(self, *names: str) -> dict[tuple[Any, ...], tuple[int, int, float | None]]:
        """Calls, failures and failure rate by fields of a call."""
        groups: defaultdict[tuple[Any, ...], list[Body]] = defaultdict(list)
        for call in self.calls:
            groups[tuple(call.get(name) or "unknown" for name in names)].append(call)
        return {key: self.tally(calls) for key, calls in groups.items()}

    def tally(self, calls: list[Body]) -> tuple[int, int, float | None]:
        """How many, how many failed, and what share of those that failed or did not."""
        failed = sum(map(self.failed, calls))
        judged = sum(call["verdict"] != "neutral" for call in calls)
        return len(calls), failed, round(failed / judged, 9) if judged else None

    def outages(self) -> list[tuple[str, str, str, datetime, datetime | None, int]]:
        """Machine, workspace, subject, beginning, end, setbacks."""
        found: list[list[Any]] = []
        current: dict[tuple[str, str, str], list[Any]] = {}
        for one in self.decisions:
            if one["type"] not in {"breaker.changed", "trust.changed"}:
                continue
            machine = one["type"].partition(".")[0]
            key = machine, one.get("workspace_id") or "default", one.get("breaker_key") or one["key"]
            if one["to"] in BAD:
                if key not in current:
                    current[key] = [*key, moment(one), None, 0]
                    found.append(current[key])
                current[key][5] += 1
            elif one["to"] in GOOD and key in current:
                current.pop(key)[4] = moment(one)
        return [tuple(one) for one in found]


def moment(body: Body) -> datetime:
    """Its time, UTC, as DuckDB gives it."""
    return datetime.fromisoformat(body["time"]).astimezone(UTC).replace(tzinfo=None)


def week(time: datetime) -> Any:
    """The Monday of a time's week."""
    return (time - timedelta(days=time.weekday())).date()


TRACES = ("pi_sessions", "tau_airline_gpt4o")
"""Recorded runs with calls that never end, days without anything, call ids used again."""


TOTALLED = """look-first new worse loop-costs asks retries tools signatures recovery patterns loops nudges false-alarms
    dead-letters""".split()
"""Questions whose sentences speak of more than the listed rows."""


@pytest.fixture(scope="module", params=["two_days", *(pytest.param(name, marks=pytest.mark.slow) for name in TRACES)])
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The same run counted by hand and recorded: a made one, and recorded ones."""
    folder = tmp_path_factory.mktemp(request.param)
    lines = [value for _, value in two_days()] if request.param == "two_days" else lines_of(request.param)
    file = folder / "events.ndjson"
    file.write_bytes(b"\n".join(lines))
    recorder = PartitionRecorder(folder / "h")
    record_files(recorder, (str(file),), RuleSet())
    recorder.close()
    with connect(folder / "h", threads=2) as connection:
        yield Hand(lines), connection


@pytest.fixture
def both(run: Any) -> Any:
    """The run counted by hand, and a function that queries its history."""
    hand, connection = run
    return hand, lambda query: connection.execute(query).fetchall()


def test_calls_and_failures(both: Any) -> None:
    """Of every tool, of every model with every tool, and over the days."""
    hand, ask = both
    rate = "round(failure_rate, 9)"
    found = ask(f"SELECT tool_name, calls, failures, {rate}, never_finished, lost FROM tool_health(min_calls := 1)")
    assert {(row[0],): row[1:4] for row in found} == hand.counted("tool_name")
    closed = Counter(hand.events[one["cause"]]["status"] for one in hand.calls if hand.events[one["cause"]].get("ours"))
    assert [sum(row[place] for row in found) for place in (4, 5)] == [closed[word] for word in ("timeout", "lost")]
    found = ask(f"SELECT model, tool_name, calls, failures, {rate} FROM model_tool_matrix")
    assert {row[:2]: row[2:] for row in found} == hand.counted("model", "tool_name")
    tool = hand.calls[0]["tool_name"]
    days: defaultdict[Any, list[Body]] = defaultdict(list)
    for call in hand.calls:
        if call["tool_name"] == tool:
            days[moment(hand.events[call["cause"]]).date()].append(call)
    by_day = {
        day: (
            sum(call["verdict"] != "neutral" for call in calls),
            *hand.tally(calls)[1:],
        )
        for day, calls in days.items()
    }
    found = ask(f"SELECT beginning::DATE, calls, failures, {rate} FROM failure_rate('{tool}', INTERVAL 1 DAY)")
    assert {row[0]: row[1:] for row in found} == by_day


def test_sessions(both: Any) -> None:
    """From their first event to their last, over as many days as they take."""
    hand, ask = both
    times: defaultdict[str, list[datetime]] = defaultdict(list)
    for event in hand.events.values():
        if not event.get("ours"):
            times[event["session_id"]].append(moment(event))
    calls = Counter(call["session_id"] for call in hand.calls)
    failures = Counter(call["session_id"] for call in hand.calls if hand.failed(call))
    stuck = Counter(one["session_id"] for one in hand.of("pattern.detected"))
    expected = {
        name: (min(at), max(at), len(at), calls[name], failures[name], stuck[name] or None)
        for name, at in times.items()
    }
    found = ask("SELECT session_id, began, ended, events, calls, failures, patterns FROM sessions")
    assert {row[0]: row[1:] for row in found} == expected


def test_outages_and_recovery(both: Any) -> None:
    """Of trust and of circuits; and every step of their time lines."""
    hand, ask = both
    outages = hand.outages()
    found = ask("SELECT machine, workspace, subject, began, recovered, setbacks FROM outages")
    assert Counter(found) == Counter(outages)
    lasted: defaultdict[tuple[str, str], list[timedelta | None]] = defaultdict(list)
    for machine, _, subject, began, recovered, _ in outages:
        lasted[machine, subject].append(recovered - began if recovered else None)
    expected = {}
    for key, spans in lasted.items():
        known = [span.total_seconds() for span in spans if span is not None]
        expected[key] = (len(spans), len(known), round(median(known), 1) if known else None)
    found = ask("SELECT machine, subject, outages, recovered, round(epoch(median), 1) FROM time_to_recovery")
    assert {row[:2]: row[2:] for row in found} == expected
    for kind, view, key in (
        ("breaker.changed", "breaker_timeline", "breaker_key"),
        ("trust.changed", "trust_timeline", "trust_key"),
    ):
        steps: defaultdict[tuple[str, str], list[Body]] = defaultdict(list)
        for one in hand.of(kind):
            steps[one["workspace_id"], one.get(key) or one["key"]].append(one)
        wanted = {place: [(one["to"], moment(one)) for one in ones] for place, ones in steps.items()}
        found = ask(f'SELECT workspace, {key}, list((to_state, time) ORDER BY time, "offset") FROM {view} GROUP BY ALL')
        assert {row[:2]: row[2] for row in found} == wanted
        ends = [
            (one["id"], moment(next_) if next_ else None)
            for ones in steps.values()
            for one, next_ in zip(ones, [*ones[1:], None], strict=True)
        ]
        assert sorted(ask(f"SELECT id, until FROM {view}"), key=str) == sorted(ends, key=str)


def test_the_whole(both: Any) -> None:
    """Events, sessions and calls of the overview are exact; marks of passed time are no events."""
    hand, ask = both
    publishers = [one for one in hand.events.values() if not one.get("ours")]
    overview = BY_NAME["overview"].sql.replace("$limit", "1")
    sessions = len({one["session_id"] for one in publishers})
    failures = sum(map(hand.failed, hand.calls))
    first, last = min(map(moment, publishers)), max(map(moment, publishers))
    lost = sum(one["outcome"] == "lost" for one in hand.calls)
    assert ask(overview) == [(len(publishers), sessions, len(hand.calls), failures, lost, 0, first, last)]
    assert ask("SELECT count(*) FROM events WHERE type = 'time.passed'") == [(0,)]


def test_totals_of_sentences(run: Any) -> None:
    """They are of all that happened, however few rows are listed, and those of one thing agree with one another."""
    hand, connection = run
    totals = {name: answer(connection, BY_NAME[name], 1).totals for name in TOTALLED}
    failed = [one for one in hand.calls if hand.failed(one)]
    judged = [one for one in hand.calls if one["verdict"] != "neutral"]
    (whole,) = objects(answer(connection, BY_NAME["overview"], 1))
    assert (
        totals["tools"].get("all_failures", len(failed))
        == totals["signatures"].get("all_failures", len(failed))
        == len(failed)
    )
    assert whole["failures"] + whole["reported"] == len(failed)
    assert totals["tools"].get("all_judged", len(judged)) == len(judged)
    outages = hand.outages()
    assert totals["recovery"].get("all_outages", 0) == len(outages)
    assert totals["recovery"].get("all_recovered", 0) == sum(one[4] is not None for one in outages)
    assert totals["nudges"].get("all_issued", 0) == len(hand.of("nudge.issued"))
    assert totals["loops"].get("all_calls") == totals["loop-costs"].get("all_calls")
    asked = hand.of_events("permission.requested")
    assert totals["asks"].get("all_asked", 0) <= asked
    for name, found in totals.items():
        if found:
            every = answer(connection, BY_NAME[name], 1000)
            assert finding(answer(connection, BY_NAME[name], 1)) == finding(every), name


def test_patterns_and_nudges(both: Any) -> None:
    """Streaks by model, and what became of what models were told: over a recording nobody was told."""
    hand, ask = both
    streaks: Counter[tuple[str, str]] = Counter()
    told: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
    lasting: set[tuple[str, str, str]] = set()
    for one in hand.decisions:
        if one["type"] in {"pattern.detected", "pattern.cleared"}:
            streak = one["session_id"], one["pattern"], one["fingerprint"]
            if one["type"] == "pattern.cleared":
                lasting.discard(streak)
                continue
            place = one.get("model") or "unknown", one["pattern"]
            streaks[place] += streak not in lasting
            told[place].add(one["session_id"])
            lasting.add(streak)
    used: defaultdict[str, set[str]] = defaultdict(set)
    for call in hand.calls:
        used[call.get("model") or "unknown"].add(call["session_id"])
    for (model, _), sessions in told.items():
        used[model] |= sessions
    expected = {place: (times, len(told[place]), len(used[place[0]])) for place, times in streaks.items()}
    found = ask("SELECT model, pattern, times, sessions, of_sessions FROM pattern_rates")
    assert {row[:2]: row[2:] for row in found} == expected
    judged = {one["nudge_id"]: one["effective"] for one in hand.of("nudge.judged")}
    nudges: defaultdict[tuple[str, str], list[bool | None]] = defaultdict(list)
    for one in hand.of("nudge.issued"):
        nudges[one["pattern"], one["nudge_type"]].append(judged.get(one["id"]))
    found = ask("SELECT pattern, nudge_type, issued, delivered, judged, effective FROM nudge_effectiveness")
    assert {row[:2]: row[2:] for row in found} == {key: (len(ones), 0, 0, 0) for key, ones in nudges.items()}
    found = ask("SELECT pattern, nudge_type, count(effective), count(*) FILTER (effective) FROM nudges GROUP BY ALL")
    assert {row[:2]: row[2:] for row in found} == {
        key: (sum(one is not None for one in ones), sum(one is True for one in ones)) for key, ones in nudges.items()
    }


def test_reasons_of_each_week(both: Any) -> None:
    """Monday to Sunday, UTC."""
    hand, ask = both
    reasons: Counter[tuple[Any, ...]] = Counter()
    for one in hand.decisions:
        if one["type"] == "trust.changed" and one["to"] in {"escalated", "blocked"}:
            reasons[week(moment(one)), "trust", one["trigger"]] += 1
        elif one["type"] == "breaker.changed" and one["to"] == "open":
            reasons[week(moment(one)), "breaker", one["trigger"]] += 1
        elif one["type"] == "pattern.detected":
            reasons[week(moment(one)), "behaviour", one["pattern"]] += 1
    for call in hand.calls:
        if hand.failed(call):
            reasons[week(moment(hand.events[call["cause"]])), "failure", call["severity"]] += 1
    found = {row[:3]: row[3] for row in ask("SELECT week, machine, reason, times FROM top_reasons_per_week")}
    assert found == {key: times for key, times in reasons.items() if key in found}
    per_week = Counter(key[:2] for key in reasons)
    assert Counter(key[:2] for key in found) == {key: min(number, 10) for key, number in per_week.items()}
