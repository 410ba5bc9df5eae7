"""The columns in memory: every question has the answer that it has from the files, whatever happens to them."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest
from duckdb import DuckDBPyConnection
from recorded import calls_in, record, rows, small_event, told
from story import Story
from trustfold.history.catalogue import connect, narrow, relations
from trustfold.history.column_memory import ColumnMemory
from trustfold.history.compaction import tidy
from trustfold.history.files import data_files
from trustfold.history.filters import HistoryFilters
from trustfold.history.history_error import HistoryError
from trustfold.history.parquet import ParquetWriter
from trustfold.history.queries import ask
from trustfold.history.recorder import PartitionRecorder
from trustfold.history.reports import QUESTIONS, CatalogueQuestion
from trustfold.web.dashboard.models import _MODELS
from trustfold.web.dashboard.tool import _TOOLS, PageSubject
from two_days import two_days

MIDDLE = datetime(2026, 1, 6, 6, tzinfo=UTC)
FILTERS = (
    HistoryFilters(since=MIDDLE),
    HistoryFilters(until=MIDDLE, tools=("bash",)),
    HistoryFilters(since=MIDDLE, models=("large-1",)),
    HistoryFilters(workspaces=("default",), sessions=("s1", "session-1")),
)
SUBJECT = PageSubject.of("bash")
OF_PAGES = (
    _TOOLS,
    _MODELS,
    SUBJECT.numbers(),
    SUBJECT.failures(),
    SUBJECT.over_time(),
    SUBJECT.spans(),
    SUBJECT.by("model", ""),
)
COUNT = "SELECT (SELECT count(*) FROM events), (SELECT count(*) FROM tool_calls), (SELECT count(*) FROM decisions)"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two days, with calls that the engine closed and that were answered after it."""
    folder = tmp_path_factory.mktemp("memory")
    story = Story(session="late", model="large-1")
    slow, lost = (story.started("deploy", {"to": "x"}, deadline_ms=1000) for _ in range(2))
    story.after(minutes=30).works("bash", {"command": "ls"}).tick()
    story.finished(slow, "deploy")
    moved = [(topic, value.replace(b'"00000000-', b'"00000088-')) for topic, value in story.records]
    record(folder, [*two_days(), *moved], live=True)
    assert lost
    return folder


@pytest.fixture
def memory(root: Path) -> Iterator[ColumnMemory]:
    """All of it in memory."""
    made = ColumnMemory(root)
    assert made.refresh()
    yield made
    made.close()


@pytest.mark.slow
def test_every_question_is_answered_as_from_the_files(root: Path, memory: ColumnMemory) -> None:
    """Those of the catalogue and those of pages; under every kind of filter from the same records."""
    with connect(root, threads=2) as files, memory.connection() as kept:
        for question in (*QUESTIONS, *OF_PAGES):
            given = {"name": "bash", "step_ms": 3_600_000} if question in OF_PAGES[2:] else {}
            given = {name: value for name, value in given.items() if f"${name}" in question.sql}
            assert ask(kept, question, 1000, given) == ask(files, question, 1000, given), question.name
        names = [name for name, kind, _ in relations(files) if kind == "view" and re.match("recorded_|carried_", name)]
        assert len(names) > 10
        every = {name: placed(files, name) for name in names}
        for filters in FILTERS:
            narrow(files, root, filters=filters)
            narrow(kept, root, filters=filters, rows=memory.rows)
            found = {name: placed(files, name) for name in names}
            assert {name: placed(kept, name) for name in names} == found
            assert found != every


def placed(connection: DuckDBPyConnection, view: str) -> list[tuple[Any, ...]]:
    """Places in the log of the rows of a view; all columns of one without."""
    columns = connection.execute(f"FROM {view} LIMIT 0").description
    read = '"partition", "offset"' if "offset" in {name for name, *_ in columns} else "*"
    return sorted(connection.execute(f"SELECT {read} FROM {view}").fetchall())


def counted(memory: ColumnMemory, query: str = COUNT) -> tuple[int, ...]:
    """One row of its catalogue."""
    with memory.connection(query=query) as connection:
        return connection.execute(query).fetchall()[0]


def from_files(root: Path, query: str = COUNT) -> tuple[int, ...]:
    """The same from the files."""
    return rows(root, query)[0]


def small(root: Path, first: int, last: int) -> None:
    """Record events of these numbers, as one file."""
    recorder = PartitionRecorder(root)
    recorder.own("events", 0)
    for number in range(first, last):
        recorder.add("events", 0, number, -1, None, small_event(number))
    recorder.flush()
    recorder.close()


def test_what_is_recorded_later_is_taken_once(tmp_path: Path) -> None:
    """Also when its files are merged, before or after they were taken, and when the merged ones are deleted."""
    made = ColumnMemory(tmp_path)
    small(tmp_path, 0, 3)
    assert made.refresh()
    small(tmp_path, 3, 5)
    assert made.waiting() == 2
    made.refresh()
    assert counted(made)[0] == 5
    small(tmp_path, 5, 9)
    writer = ParquetWriter(tmp_path)
    tidied = tidy(tmp_path, writer, [("events", 0)], date(2030, 1, 1))
    assert tidied.merged == 3
    made.refresh()
    assert counted(made)[0] == 9
    for file in data_files(tmp_path):
        os.utime(file.path, (time.time() - 1000,) * 2)
    assert tidy(tmp_path, writer, [("events", 0)], date(2030, 1, 1)).covered == 3
    made.refresh()
    assert counted(made) == from_files(tmp_path) == (9, 0, 0)
    writer.close()
    made.close()


def test_calls_are_noted_whenever_what_makes_them_notable_comes(tmp_path: Path) -> None:
    """Requests for permission and failures of files that are loaded after those of the calls they are about."""
    story = Story(session="asked")
    story.works("bash", {"command": "ls"})
    call = story.started("deploy", {"to": "x"})
    story.event("permission.requested", call_id=call, tool_name="deploy")
    story.event("permission.resolved", call_id=call, tool_name="deploy", granted=True, method="user")
    story.finished(call, "deploy")
    story.fails("make", {"target": "all"}).works("bash", {"command": "vi"}).works("make", {"target": "all"})
    story.works("read", {"path": "a"}, times=3)
    made = ColumnMemory(tmp_path)
    recorder = PartitionRecorder(tmp_path)
    recorder.own("events", 0)
    recorder.own("outcomes", 0)
    for offset, (_, value) in enumerate(story.records):
        recorder.add("events", 0, offset, -1, None, value)
        recorder.flush()
    for offset, value in enumerate(calls_in(story.records)):
        recorder.add("outcomes", 0, offset, -1, None, value)
        recorder.flush()
    recorder.close()
    asked = "SELECT 'events', \"offset\" FROM recorded_events WHERE type LIKE 'permission.%'"
    failed = "SELECT 'outcomes', \"offset\" FROM recorded_outcomes WHERE verdict = 'failure'"
    later = {*rows(tmp_path, asked), *rows(tmp_path, failed)}
    assert len(later) == 3
    hidden = [file.path for file in data_files(tmp_path) if (file.topic, file.first) in later]
    for path in hidden:
        path.rename(tmp_path / path.name)
    assert made.refresh()
    assert counted(made, "SELECT (SELECT count(*) FROM asks), (SELECT count(*) FROM retries)") == (0, 0)
    for path in hidden:
        (tmp_path / path.name).rename(path)
    made.refresh()
    answer = (
        "SELECT (SELECT list(outcome) FROM asks), (SELECT list(calls_between) FROM retries), "
        "(SELECT max(times) FROM loops)"
    )
    assert counted(made, answer) == from_files(tmp_path, answer) == (["succeeded"], [1], 3)
    made.close()


def test_retries_of_calls_that_the_engine_closed_count(tmp_path: Path) -> None:
    """Also where the retry is loaded later than the finish that the engine appended."""
    story = Story()
    story.started("make", {"target": "all"}, deadline_ms=1000)
    story.after(minutes=30).tick()
    story.works("make", {"target": "all"})
    closed, again = calls_in(story.records)
    recorder = PartitionRecorder(tmp_path)
    recorder.own("outcomes", 0)
    recorder.add("outcomes", 0, 0, -1, None, closed)
    recorder.flush()
    made = ColumnMemory(tmp_path)
    made.refresh()
    recorder.add("outcomes", 0, 1, -1, None, again)
    recorder.flush()
    recorder.close()
    made.refresh()
    query = "SELECT kind, paid_off FROM retries"
    assert counted(made, query) == from_files(tmp_path, query) == ("at once", True)
    made.close()


def test_a_loop_is_of_the_model_that_began_to_repeat_itself(tmp_path: Path) -> None:
    """In whatever order the calls are loaded, where a session goes on with another model."""
    story = Story(model="large-1").works("read", {"path": "a"}, times=2)
    story.model = "small-1"
    story.works("read", {"path": "a"}, times=2)
    recorder = PartitionRecorder(tmp_path)
    recorder.own("outcomes", 0)
    for offset, value in enumerate(calls_in(story.records)):
        recorder.add("outcomes", 0, offset, -1, None, value)
        recorder.flush()
    recorder.close()
    repeated = next(file.path for file in data_files(tmp_path, "outcomes") if file.first == 1)
    repeated.rename(tmp_path / repeated.name)
    made = ColumnMemory(tmp_path)
    made.refresh()
    (tmp_path / repeated.name).rename(repeated)
    made.refresh()
    query = "SELECT model, wasted_calls FROM loops_by_model"
    assert counted(made, query) == from_files(tmp_path, query) == ("large-1", 3)
    made.close()


def test_questions_about_calls_read_no_other_events(tmp_path: Path) -> None:
    """A finish that came twice, and what could not be read, is kept apart and counts as in the files."""
    story = Story().works("bash", times=3).fails("make", {"target": "all"})
    values = [value for _, value in story.records]
    recorder = PartitionRecorder(tmp_path)
    recorder.own("events", 0)
    recorder.own("outcomes", 0)
    for offset, value in enumerate([*values, *values, b"no JSON", b'{"type": "tool_call.finished"}']):
        recorder.add("events", 0, offset, -1, None, value)
    for offset, value in enumerate(calls_in(story.records) * 2):
        recorder.add("outcomes", 0, offset, -1, None, value)
    recorder.flush()
    recorder.close()
    made = ColumnMemory(tmp_path)
    assert made.refresh()
    assert counted(made) == from_files(tmp_path) == (len(values), 4, 0)
    every = "SELECT count(*), count(*) FILTER (repeated), count(fault), count(type) FROM recorded_events"
    assert counted(made, every) == from_files(tmp_path, every)
    assert counted(made, every)[:3] == (2 * len(values) + 2, len(values), 2)
    asked = "SELECT tool_name, count(*) FROM tool_calls GROUP BY ALL"
    with made.connection(query=asked) as connection:
        plan = connection.execute(f"EXPLAIN {asked}").fetchall()[0][1]
    assert "calls" in plan
    assert "others" not in plan
    made.close()


def test_what_is_deleted_for_its_age_is_gone(tmp_path: Path) -> None:
    """And the rest stays."""
    small(tmp_path, 0, 4)
    small(tmp_path, 4, 6)
    made = ColumnMemory(tmp_path)
    made.refresh()
    min(data_files(tmp_path), key=lambda file: file.first).path.unlink()
    made.refresh()
    assert counted(made) == from_files(tmp_path) == (2, 0, 0)
    made.close()


def test_a_long_history_is_left_in_its_files(tmp_path: Path) -> None:
    """And taken when it has become shorter."""
    small(tmp_path, 0, 4)
    small(tmp_path, 4, 6)
    made = ColumnMemory(tmp_path, most_rows=5)
    assert not made.refresh()
    min(data_files(tmp_path), key=lambda file: file.first).path.unlink()
    assert made.refresh()
    assert counted(made)[0] == 2
    made.close()


def test_a_damaged_file_leaves_nothing_half_taken(tmp_path: Path) -> None:
    """What could be read counts once when the file is mended."""
    told(tmp_path, Story().works("bash", times=3))
    small(tmp_path, 100, 104)
    made = ColumnMemory(tmp_path)
    file = max(data_files(tmp_path, "events"), key=lambda one: one.last).path
    whole = file.read_bytes()
    file.write_bytes(b"PAR1 and no more")
    with pytest.raises(HistoryError):
        made.refresh()
    assert not made.ready
    file.write_bytes(whole)
    assert made.refresh()
    assert counted(made) == from_files(tmp_path)
    made.close()


def test_a_query_goes_on_while_more_is_taken(tmp_path: Path) -> None:
    """It sees the history as it was when it began."""
    small(tmp_path, 0, 10)
    made = ColumnMemory(tmp_path)
    made.refresh()
    with made.connection(query="events") as connection:
        cursor = connection.execute("SELECT id FROM events")
        cursor.fetchone()
        small(tmp_path, 10, 20)
        made.refresh()
        assert len(cursor.fetchall()) == 9
        assert ask(connection, CatalogueQuestion("all", "?", "SELECT count(*) FROM events LIMIT $limit"), 1).rows == [
            (20,)
        ]
    made.close()


def test_decisions_are_seen_with_their_causes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader between two steps of a refresh sees the history as it was: a filter by tool would miss decisions."""
    story = Story()
    told(tmp_path, story.works("bash"))
    made = ColumnMemory(tmp_path)
    made.refresh()
    name_causes = ColumnMemory._name_causes
    seen: list[tuple[int, ...]] = []

    def looked_at(memory: ColumnMemory) -> None:
        seen.append(counted(memory))
        name_causes(memory)

    monkeypatch.setattr(ColumnMemory, "_name_causes", looked_at)
    before = counted(made)
    record(tmp_path, Story(session="s2").fails("bash", times=5).records, live=True)
    made.refresh()
    assert (seen, counted(made)) == ([before], from_files(tmp_path))
    assert counted(made)[2] > before[2]
    made.close()
