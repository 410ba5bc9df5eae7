"""Views and macros: each says what it is, and counts what a story says."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import duckdb
import pytest
from recorded import ARRIVED, as_older_files, calls_in, one, record, replayed, rows, small_event, told
from story import Story
from trustfold.history.catalogue import connect, relations
from trustfold.history.column_memory import ColumnMemory
from trustfold.history.files import data_files
from trustfold.history.queries import ask
from trustfold.history.recorder import PartitionRecorder
from trustfold.history.reports import QUESTIONS


def an_outage() -> Story:
    """A tool breaks, its circuit opens and closes again, trust is lost and comes back."""
    story = Story()
    story.fails("search", http_status=503, times=6)
    story.after(minutes=40)
    return story.works("search", times=12)


def test_everything_has_a_comment_and_can_be_asked(tmp_path: Path) -> None:
    """Views as they are, macros with plausible arguments, over a history with nothing of most topics in it."""
    told(tmp_path, Story().works("search"), decisions=False)
    arguments = {"tool": "'search'", "digest": "'x'", "pattern": "'events'"}
    with connect(tmp_path, threads=2) as connection:
        found = relations(connection)
        assert len(found) > 30
        for relation in found:
            assert relation.comment, relation.name
            if relation.kind == "view":
                connection.execute(f"FROM {relation.name}")
            if relation.kind != "macro":
                continue
            name, _, rest = relation.name.partition("(")
            given = [arguments[one] for one in rest.rstrip(")").split(", ") if one in arguments]
            connection.execute(f"FROM {name}({', '.join(given)})")
        for question in QUESTIONS:
            assert len(ask(connection, question, 7).rows) <= 7


def test_questions_name_no_option_of_a_command() -> None:
    """Pages show the same words, and have fields where a command has options."""
    assert [one.name for one in QUESTIONS if "--" in one.reads + one.empty] == []


def test_an_outage_has_a_beginning_an_end_and_setbacks(tmp_path: Path) -> None:
    """For the circuit and for trust; the mean time to recovery follows."""
    told(tmp_path, an_outage())
    outages = {
        row[0]: row[1:]
        for row in rows(tmp_path, "SELECT machine, lasted, setbacks FROM outages WHERE subject LIKE '%search'")
    }
    assert outages.keys() == {"breaker", "trust"}
    assert timedelta(minutes=40) < outages["breaker"][0] < timedelta(minutes=45)
    recovery = rows(tmp_path, "SELECT machine, outages, recovered FROM mttr('search')")
    assert recovery == [("breaker", 1, 1), ("trust", 1, 1)]
    assert rows(tmp_path, "SELECT openings, closings, flaps FROM flapping('search', INTERVAL 1 DAY)") == [(1, 1, False)]
    steps = rows(tmp_path, "SELECT to_state FROM breaker_timeline WHERE breaker_key = 'tool:search' ORDER BY time")
    assert [state for (state,) in steps] == ["open", "half_open", "closed"]


def test_what_lasts_has_no_end(tmp_path: Path) -> None:
    """It counts as an outage and not in the time to recovery."""
    told(tmp_path, Story().fails("search", http_status=503, times=6))
    assert set(rows(tmp_path, "SELECT outages, recovered, mean FROM time_to_recovery")) == {(1, 0, None)}


def test_loops_cost_what_came_after_the_first_call(tmp_path: Path) -> None:
    """Four equal calls with one result waste three; polling with news is no loop."""
    story = Story()
    story.works("compute", {"q": 1}, result="same", times=4, cost_usd=0.5)
    for number in range(5):
        story.works("poll", {"job": 7}, result=f"state {'abcde'[number]}")
    told(tmp_path, story)
    cost = one(
        tmp_path, "SELECT tool_name, loops, wasted_calls, wasted_seconds, wasted_usd, longest FROM cost_of_loops"
    )
    assert cost == {
        "tool_name": "compute",
        "loops": 1,
        "wasted_calls": 3,
        "wasted_seconds": 0.3,
        "wasted_usd": 1.5,
        "longest": 4,
    }


def test_a_record_written_again_after_a_restart_counts_once(tmp_path: Path) -> None:
    """A worker that crashed writes records of calls again, at new offsets; the recorder was restarted between."""
    values = calls_in(Story().works("compute", {"q": 1}, times=5).records)
    for first in (0, 5):
        recorder = PartitionRecorder(tmp_path)
        recorder.own("outcomes", 0)
        for offset, value in enumerate(values[: 2 + first], first):
            recorder.add("outcomes", 0, offset, ARRIVED, None, value)
        recorder.flush()
        recorder.close()
    assert rows(tmp_path, "SELECT count(*), max(same_result) FROM tool_calls") == [(5, 5)]
    assert rows(tmp_path, "SELECT count(*) FILTER (repeated), count(*) FROM recorded_outcomes") == [(2, 7)]


def test_neutral_calls_count_in_no_rate(tmp_path: Path) -> None:
    """Refusals, cancelled and cached calls are calls, neither failed nor good; expected failures are not failures."""
    story = Story().fails("search", times=2).works("search", times=2)
    story.finished(story.started("search"), "search", status="cancelled", result=None)
    story.fails("search", message="no", with_="", expected_failure=True)
    story.finished(story.started("search"), "search", status="error", result=None, error={"type": "user_rejected"})
    told(tmp_path, story)
    health = one(tmp_path, "SELECT calls, failures, failure_rate, denied FROM tool_health(min_calls := 1)")
    assert health == {"calls": 7, "failures": 2, "failure_rate": 0.4, "denied": 1}
    assert rows(tmp_path, "FROM tool_health(min_calls := 8)") == []


def test_nudges_their_effect_and_what_people_think_of_them(tmp_path: Path) -> None:
    """A nudge that helped, judged false by a person, named with its tool."""
    story = Story()
    story.fails("deploy", {"to": "x"}, message="no", times=3)
    story.works("write_file", {"path": "a"}, result="new")
    (nudge, *_) = story.all("nudge.issued")
    story.event("feedback.false_alarm", output_id=nudge["id"], reason="it was me")
    told(tmp_path, story)
    found = one(tmp_path, "SELECT pattern, false_alarm FROM nudges WHERE id = ?", nudge["id"])
    assert found == {"pattern": "error_retry_loop", "false_alarm": True}
    alarm = one(tmp_path, "SELECT subject, reason, tool_name FROM false_alarms")
    assert alarm == {"subject": "error_retry_loop", "reason": "it was me", "tool_name": "deploy"}
    assert rows(tmp_path, "SELECT subject, judged_false FROM alarms_judged_false") == [("error_retry_loop", 1)]
    assert rows(tmp_path, "SELECT sum(false_alarms) FROM nudge_effectiveness") == [(1,)]


def test_sessions_sum_up(tmp_path: Path) -> None:
    """Calls, failures, how stuck it was at worst."""
    told(tmp_path, Story().fails("deploy", {"to": "x"}, message="no", times=6))
    session = one(tmp_path, "SELECT calls, failures, worst, workspace FROM sessions")
    assert session == {"calls": 6, "failures": 6, "worst": 3, "workspace": "w1"}


@pytest.mark.slow
def test_outputs_written_twice_count_once(tmp_path: Path) -> None:
    """Workers may repeat outputs after a crash, under their old ids."""
    story = an_outage()
    told(tmp_path / "once", story)
    record(tmp_path / "twice", story.records)
    recorder = PartitionRecorder(tmp_path / "twice")
    repeated = [output for output in replayed(story.records) if output.topic == "breakers"]
    start = recorder.own("breakers", 0)
    for number, output in enumerate(repeated):
        recorder.add("breakers", 0, start + number, -1, None, output.value)
    recorder.flush()
    recorder.close()
    for query in (
        "SELECT count(*) FROM breaker_timeline",
        "SELECT count(*) FROM decisions",
        "SELECT sum(setbacks) FROM outages",
    ):
        assert rows(tmp_path / "once", query) == rows(tmp_path / "twice", query), query


def test_a_call_that_never_finished_counts_as_its_timeout(tmp_path: Path) -> None:
    """Once, although the engine may append it in its log and say so in its outputs."""
    story = Story()
    story.started("sleepy", deadline_ms=1000)
    story.after(minutes=5)
    story.user_says()
    appended = [output for output in replayed(story.records) if output.topic == "events"]
    record(tmp_path, [*story.records, *[("events", output.value) for output in appended]] * 2)
    assert rows(tmp_path, "SELECT tool_name, severity, timed_out_unanswered FROM tool_calls") == [
        ("sleepy", "timeout", True)
    ]
    assert rows(tmp_path, "SELECT never_finished FROM tool_health(min_calls := 1)") == [(1,)]


def test_files_of_older_versions_are_read(tmp_path: Path) -> None:
    """A column that a file does not have is NULL; one that nobody knows any more is ignored by the views."""
    told(tmp_path, Story().fails("search"), decisions=False)
    (file,) = data_files(tmp_path, "outcomes")
    older = file.path.with_name(f"{file.partition}-100-102.parquet")
    with duckdb.connect() as connection:
        connection.execute(
            "COPY (SELECT * EXCLUDE (signature, same_result) "
            f'REPLACE ("offset" + 100 AS "offset", cause || \'x\' AS cause), '
            f"7 AS forgotten FROM '{file.path}') TO '{older}' (FORMAT parquet)"
        )
    assert rows(tmp_path, "SELECT signature FROM failures ORDER BY 1 NULLS LAST") == [
        ("tool_error: it broke",),
        (None,),
    ]


def test_calls_of_files_whose_recorder_judged_them_are_records(tmp_path: Path) -> None:
    """In files and in memory, beside those of newer files."""
    story = Story(model="m1").works("search", {"q": 1}, times=3).fails("bash", {"command": "make"}, times=2)
    story.finished(story.started("fetch"), "fetch", status="cancelled", result=None)
    story.started("deploy", deadline_ms=1000)
    story.after(minutes=5).event("session.ended")
    story.event("failure.reported", tool_name="search", error={"type": "Broken", "message": "no index"})
    lines = [*story.records, *[("events", one.value) for one in replayed(story.records) if one.topic == "events"]]
    query = (
        "SELECT id, call_id, tool_name, model, failure_key, outcome, verdict, severity, signature, same_result, "
        "duration_ms, timed_out_unanswered, started, time FROM call_records WHERE tool_name <> 'new' ORDER BY id"
    )
    record(tmp_path, lines)
    expected = rows(tmp_path, query)
    assert len(expected) == 8
    as_older_files(tmp_path)
    assert rows(tmp_path, query) == expected
    newer = calls_in(Story(session="s9").works("new").records)
    recorder = PartitionRecorder(tmp_path)
    recorder.own("outcomes", 0)
    recorder.add("outcomes", 0, 0, ARRIVED, None, newer[0])
    recorder.flush()
    recorder.close()
    assert rows(tmp_path, query) == expected
    memory = ColumnMemory(tmp_path)
    assert memory.refresh()
    with memory.connection(query=f"{query} tool_calls") as connection:
        assert connection.execute(query).fetchall() == expected
        assert connection.execute("SELECT count(*) FROM tool_calls").fetchall() == [(8,)]
    memory.close()
    for file in data_files(tmp_path, "events"):
        file.path.unlink()
    memory = ColumnMemory(tmp_path)
    memory.refresh()
    with memory.connection(query="tool_calls") as connection:
        assert connection.execute("SELECT count(*) FROM tool_calls").fetchall() == [(1,)]
    memory.close()


def test_a_name_that_is_no_view_is_an_error(tmp_path: Path) -> None:
    """Not a variable of the program that happens to be called so."""
    told(tmp_path, Story().works("search"))
    whoever = [1, 2, 3]
    with connect(tmp_path, query="FROM whoever") as connection, pytest.raises(duckdb.CatalogException):
        connection.execute("FROM whoever")
    assert whoever


def test_odd_names_and_values_are_kept(tmp_path: Path) -> None:
    """Quotes, newlines, other scripts, numbers at the edge: nothing a publisher sends upsets a file."""
    odd = "näme \"quoted\"\n'x' \\ 工具 \u2028 💥"
    story = Story(session=odd)
    story.works(odd, {"n": 1, "f": 1e-300, "deep": [[[{}]]]}, result="x")
    story.records = [(topic, value.replace(b'"n":1', b'"n":1' + b"0" * 30)) for topic, value in story.records]
    story.records.append(("events", small_event(9, session_id="s", text_digest="a\tb")))
    told(tmp_path, story)
    assert rows(tmp_path, "SELECT session_id, tool_name FROM tool_calls") == [(odd, odd)]
    assert rows(tmp_path, "SELECT count(*), count(fault) FROM recorded_events") == [(3, 0)]
