"""What an analyst takes the numbers for is what they are: nothing counted twice, nothing ordered or named by chance."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import orjson
from recorded import one, record, replayed, rows, told
from story import Story
from trustfold.history.catalogue import connect
from trustfold.history.filters import HistoryFilters
from trustfold.history.queries import ask
from trustfold.history.recorder import PartitionRecorder
from trustfold.history.reports import BY_NAME


def appended_to(story: Story) -> list[bytes]:
    """What the engine appends to the log while it folds a story."""
    return [output.value for output in replayed(story.records) if output.topic == "events" and output.value]


def written(root: Path, topic: str, bodies: list[dict[str, Any]], *, times: int = 1) -> None:
    """Decisions as they came from a worker, all of them several times if it crashed in between."""
    recorder = PartitionRecorder(root)
    first = recorder.own(topic, 0)
    for number, body in enumerate(bodies * times):
        recorder.add(topic, 0, first + number, -1, None, orjson.dumps({"time": "2026-01-05T10:00:00Z"} | body))
    recorder.flush()
    recorder.close()


def test_a_call_that_finishes_after_its_deadline_is_one_call(tmp_path: Path) -> None:
    """It is the failure that the folds have counted; what comes later is an event of the session."""
    story = Story(model="m1")
    call = story.started("bash", {"command": "git fetch"}, deadline_ms=1000)
    story.after(minutes=5)
    story.finished(call, "bash")
    record(tmp_path, [*story.records, *[("events", line) for line in appended_to(story)]])
    found = one(
        tmp_path,
        "SELECT outcome, verdict, timed_out_unanswered, failure_key, model, summary, severity, started < time AS began "
        "FROM tool_calls",
    )
    assert found == {
        "outcome": "failed",
        "verdict": "failure",
        "timed_out_unanswered": True,
        "failure_key": "bash|command=git",
        "model": "m1",
        "summary": "git fetch",
        "severity": "timeout",
        "began": True,
    }
    assert rows(tmp_path, "SELECT events, ended - began FROM sessions") == [(2, timedelta(minutes=5, seconds=2))]
    assert rows(tmp_path, "SELECT failure_rate, never_finished FROM tool_health(min_calls := 1)") == [(1.0, 1)]


def test_a_lost_call_is_neither_a_failure_nor_a_timeout(tmp_path: Path) -> None:
    """Nobody had said how long it may take. Its end, written by the engine a day later, lengthens no session."""
    story = Story()
    story.works("search").started("think")
    story.after(minutes=2 * 24 * 60)
    story.moved(session="s2").works("search")
    record(tmp_path, [*story.records, *[("events", line) for line in appended_to(story)]])
    found = one(tmp_path, "SELECT outcome, verdict, timed_out_unanswered FROM tool_calls WHERE tool_name = 'think'")
    assert found == {"outcome": "lost", "verdict": "neutral", "timed_out_unanswered": False}
    assert rows(tmp_path, "SELECT count(*) FROM failures") == [(0,)]
    health = one(tmp_path, "SELECT lost, never_finished FROM tool_health(min_calls := 1) WHERE tool_name = 'think'")
    assert health == {"lost": 1, "never_finished": 0}
    lasted = one(tmp_path, "SELECT events, ended - began AS lasted FROM sessions WHERE session_id = 's1'")
    assert lasted == {"events": 3, "lasted": timedelta(seconds=4)}


def test_passed_time_is_no_event(tmp_path: Path) -> None:
    """The engine marks it in its log; a session ended with what its publisher sent last."""
    story = Story()
    story.event("session.started", reports_turn_ends=True)
    story.event("turn.started")
    story.started("sleepy", deadline_ms=1000)
    story.after(minutes=60)
    story.moved(session="s2").works("search")
    appended = appended_to(story)
    assert any(b"time.passed" in line for line in appended)
    record(tmp_path, [*story.records, *[("events", line) for line in appended]])
    assert rows(tmp_path, "SELECT count(*) FROM events WHERE appended IS NOT TRUE") == [(len(story.records),)]
    assert rows(tmp_path, "SELECT events, ended - began FROM sessions ORDER BY session_id") == [
        (3, timedelta(seconds=4)),
        (2, timedelta(seconds=2)),
    ]


def test_a_long_call_within_its_deadline_is_a_call(tmp_path: Path) -> None:
    """Only a timeout takes its place."""
    story = Story()
    call = story.started("build")
    story.after(minutes=5)
    story.finished(call, "build")
    told(tmp_path, story)
    assert rows(tmp_path, "SELECT status FROM tool_calls") == [("success",)]


def test_a_second_finish_of_a_call_counts_nowhere(tmp_path: Path) -> None:
    """As in the folds; two calls open at once under one id are two."""
    story = Story()
    call = story.started("search", {"q": 1})
    story.finished(call, "search")
    story.finished(call, "search", status="error", error={"type": "late"})
    for query in (2, 3):
        story.started("search", {"q": query}, call="same")
    for _ in range(3):
        story.finished("same", "search")
    told(tmp_path, story)
    assert rows(tmp_path, "SELECT status, count(*), count(DISTINCT call_digest) FROM tool_calls GROUP BY ALL") == [
        ("success", 3, 3)
    ]


def test_a_session_says_how_it_ended(tmp_path: Path) -> None:
    """In the publisher's words; of a session that nobody has ended nothing is said."""
    story = Story().works("search")
    story.event("session.ended", reason="gave up")
    story.moved(session="s2").event("session.ended")
    story.moved(session="s3").works("search")
    told(tmp_path, story)
    found = rows(tmp_path, "SELECT session_id, outcome FROM sessions ORDER BY session_id")
    assert found == [("s1", "gave up"), ("s2", "ended"), ("s3", None)]


def test_a_workspace_has_one_name_in_all_views(tmp_path: Path) -> None:
    """Files name it as events do."""
    told(tmp_path, Story(workspace="w1").works("search"))
    views = "SELECT table_name, column_name FROM duckdb_columns() WHERE NOT internal AND column_name = 'workspace_id'"
    assert rows(tmp_path, views + " AND NOT regexp_matches(table_name, '^(recorded|carried)_')") == []
    assert rows(tmp_path, "SELECT DISTINCT workspace FROM events JOIN tool_calls USING (session_id, workspace)") == [
        ("w1",)
    ]


def test_who_and_where_is_said_once_in_a_session(tmp_path: Path) -> None:
    """A model, a workspace and a user that only earlier events named are those of later ones."""
    story = Story(workspace="w7", user="ann", model="large-1")
    story.event("session.started")
    story.workspace, story.user, story.model = None, None, None  # type: ignore[assignment]
    story.fails("search", times=3)
    told(tmp_path, story)
    assert rows(tmp_path, "SELECT model, calls FROM model_tool_matrix") == [("large-1", 3)]
    assert rows(tmp_path, "SELECT DISTINCT workspace, user_id FROM failures") == [("w7", "ann")]
    assert set(rows(tmp_path, "SELECT model, of_sessions, rate FROM pattern_rates")) == {("large-1", 1, 1.0)}


def test_transitions_of_one_moment_stand_in_the_order_of_the_log(tmp_path: Path) -> None:
    """Also when a worker wrote them twice: ids say nothing about order."""
    steps = [("c", "closed", "open"), ("b", "open", "half_open"), ("a", "half_open", "closed")]
    bodies = [
        {"id": f"{name}{key}", "type": "breaker.changed", "breaker_key": f"tool:{key}", "from": before, "to": after}
        for key in range(40)
        for name, before, after in steps
    ]
    written(tmp_path, "breakers", bodies, times=2)
    found = rows(tmp_path, 'SELECT list(to_state ORDER BY time, "offset") FROM breaker_timeline GROUP BY breaker_key')
    assert found == [(["open", "half_open", "closed"],)] * 40
    assert rows(tmp_path, "SELECT count(*), count(recovered), max(setbacks) FROM outages") == [(40, 40, 1)]
    assert rows(tmp_path, "SELECT count(*) FROM breaker_timeline WHERE until IS NULL AND to_state <> 'closed'") == [
        (0,)
    ]


def test_a_pattern_ends_with_what_was_cleared_after_it(tmp_path: Path) -> None:
    """Not with what another streak of the same moment ended with."""
    same = {"session_id": "s", "pattern": "monologue", "fingerprint": "0", "severity": "minor"}
    written(
        tmp_path,
        "nudges",
        [
            {"id": "1", "type": "pattern.detected"} | same,
            {"id": "2", "type": "pattern.cleared"} | same,
            {"id": "3", "type": "pattern.detected"} | same,
        ],
    )
    assert rows(tmp_path, "SELECT id, cleared_at IS NULL FROM patterns ORDER BY id") == [("1", False), ("3", True)]


def test_trust_of_users_is_not_trust_of_a_workspace(tmp_path: Path) -> None:
    """One tool escalated for two users and in the default workspace is three outages, of which one has ended."""
    moves = [("ann", "escalated"), ("bob", "escalated"), (None, "escalated"), ("ann", "trusted")]
    written(
        tmp_path,
        "escalations",
        [
            {
                "id": str(number),
                "type": "trust.changed",
                "time": f"2026-01-05T10:0{number}:00Z",
                "key": "bash",
                "scope": "user" if user else "tool",
                "user_id": user,
                "to": state,
            }
            for number, (user, state) in enumerate(moves)
        ],
    )
    found = rows(tmp_path, "SELECT user_id, workspace, lasted FROM outages ORDER BY began")
    assert found == [("ann", None, timedelta(minutes=3)), ("bob", None, None), (None, "default", None)]
    assert rows(tmp_path, "SELECT count(*) FROM trust_timeline WHERE until IS NULL") == [(3,)]


def test_an_alarm_is_counted_once_and_what_ends_one_is_none(tmp_path: Path) -> None:
    """A pattern and its nudge are one alarm; trust that comes back and a circuit that closes are good news."""
    story = Story()
    story.fails("deploy", {"to": "x"}, message="no", times=3)
    (nudge, *_) = story.all("nudge.issued")
    escalated = story.decided("trust.changed", key="deploy", to="escalated")
    story.after(minutes=90)
    story.works("deploy", {"to": "x"}, times=12)
    story.event("feedback.false_alarm", output_id=nudge["id"])
    story.event("feedback.false_alarm", output_id=nudge["pattern_id"])
    story.event("feedback.false_alarm", output_id=escalated["id"])
    told(tmp_path, story)
    found = rows(tmp_path, "SELECT topic, subject, alarms, judged_false, share FROM alarms_judged_false ORDER BY 1")
    assert found == [("escalations", "deploy", 1, 1, 1.0), ("nudges", "error_retry_loop", 1, 1, 1.0)]


def test_a_streak_counts_once_however_severe_it_became(tmp_path: Path) -> None:
    """As `trustfold patterns` counts; `severe` says how many rose so far."""
    story = Story(model="m")
    story.fails("deploy", {"to": "x"}, message="no", times=7)
    told(tmp_path, story)
    found = rows(tmp_path, "SELECT times, severe FROM pattern_rates WHERE pattern = 'error_retry_loop'")
    assert found == [(1, 1)]


def test_a_rate_is_a_share_of_sessions(tmp_path: Path) -> None:
    """Sessions without a call can be stuck, too."""
    story = Story(model="m")
    for session in ("s1", "s2"):
        story.session = session
        for number in range(8):
            story.says(f"Here is thought number {'abcdefgh'[number]}.")
    story.moved(session="s3").works("search")
    told(tmp_path, story)
    assert rows(tmp_path, "SELECT sessions, of_sessions FROM pattern_rates WHERE pattern = 'monologue'") == [(2, 3)]


def test_a_build_after_every_edit_is_no_loop(tmp_path: Path) -> None:
    """What answers the same after something was done brings news: it still holds. Without work between it does not."""
    story = Story()
    for number in range(6):
        story.works("edit_file", {"path": "a.py", "text": f"version {'abcdef'[number]}"}, result="done")
        story.works("bash", {"command": "npm run build"}, result="built")
    story.works("bash", {"command": "npm run build"}, result="built", times=3)
    told(tmp_path, story)
    assert rows(tmp_path, "SELECT times, wasted_calls FROM loops") == [(4, 3)]


def test_a_loop_costs_what_is_left_of_it(tmp_path: Path) -> None:
    """Calls, seconds and dollars are of the same calls, also where retention or --since cut the beginning off."""
    story = Story()
    story.works("compute", {"q": 1}, result="same", times=6, cost_usd=0.5)
    story.moved(session="s2").works("compute", {"q": 1}, result="same", times=6, cost_usd=0.5)
    told(tmp_path, story)
    middle = story.now - timedelta(seconds=7)
    query = "SELECT wasted_calls, wasted_usd, longest FROM cost_of_loops"
    assert rows(tmp_path, query, filters=HistoryFilters(since=middle)) == [(2, 1.0, 6)]


def test_what_a_model_made_is_among_its_failures(tmp_path: Path) -> None:
    """An expected failure is nobody's fault."""
    story = Story(model="m")
    story.fails("search", with_="invalid_input", expected_failure=True).fails("search", with_="invalid_input")
    told(tmp_path, story)
    assert rows(tmp_path, "SELECT failures, own_making FROM model_tool_matrix") == [(1, 1)]


def test_a_session_that_changed_its_model_has_its_last_one(tmp_path: Path) -> None:
    """And a session that named no workspace is in the default one, as everywhere."""
    story = Story(model="zeta")
    story.workspace = None  # type: ignore[assignment]
    story.works("search")
    story.model = "alpha"
    story.works("search")
    told(tmp_path, story)
    assert rows(tmp_path, "SELECT model, workspace FROM sessions") == [("alpha", "default")]


def test_a_limit_keeps_the_latest_days(tmp_path: Path) -> None:
    """A plot that has no room for everything shows what is new."""
    story = Story()
    for _ in range(4):
        story.fails("search").after(minutes=24 * 60)
    told(tmp_path, story, decisions=False)
    with connect(tmp_path, query=BY_NAME["failures"].sql) as connection:
        answer = ask(connection, BY_NAME["failures"], 2)
    assert [str(row[0]) for row in answer.rows] == ["2026-01-07", "2026-01-08"]


def test_a_circuit_that_is_still_open_has_no_end(tmp_path: Path) -> None:
    """It did not end when another circuit last moved."""
    told(tmp_path, Story().fails("search", http_status=503, times=6))
    with connect(tmp_path, query=BY_NAME["breakers"].sql) as connection:
        answer = ask(connection, BY_NAME["breakers"], 5)
    assert dict(zip(answer.columns, answer.rows[0], strict=True))["ended"] is None


def test_a_record_is_the_event_as_it_came(tmp_path: Path) -> None:
    """What a row adds from its session is in columns only, so that it folds again as it did."""
    story = Story(model="m").works("search")
    story.model = None
    story.works("search")
    record(tmp_path, story.records)
    assert rows(tmp_path, "SELECT count(*) FROM events WHERE record->>'$.model' IS NULL AND model = 'm'") == [(2,)]


def test_a_zero_is_not_nothing(tmp_path: Path) -> None:
    """A call that cost nothing, and one of which nobody said what it cost."""
    record(tmp_path, Story().works("lookup", cost_usd=0).works("search").records)
    assert rows(tmp_path, "SELECT tool_name, cost_usd FROM tool_calls ORDER BY time") == [
        ("lookup", 0),
        ("search", None),
    ]
