"""What goes wrong around a recorder: values nobody expects, disks that fail, files that are not whole."""

from __future__ import annotations

import errno
import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from recorded import ARRIVED, DAY_MS, one, rows, small_event
from trustfold.history import compaction, event_rows, files, parquet
from trustfold.history import recorder as recorder_module
from trustfold.history.files import SOURCE, TEMPORARY, ScratchFolder, counted, data_files
from trustfold.history.history_error import HistoryError, HistoryFull
from trustfold.history.parquet import RECORDED_TOPICS
from trustfold.history.queries import stream
from trustfold.history.recorder import PartitionRecorder
from trustfold.schemas.examples import EXAMPLES

NUMBERS = [
    "0",
    "-1",
    "1.5",
    "1e18",
    "1e300",
    "1e999",
    *(str(sign * (1 << bits)) for bits in (31, 63, 64, 80) for sign in (1, -1)),
]
TEXTS = ['""', '"\\u0000"', '"\\ud800"', '"2026-01-05T10:00:00Z"', '"0001-01-01T00:00:00+14:00"', '"\\u2028\\n\'\\""']
OTHERS = ["true", "null", "[]", "{}", "[null,1]", '{"partition":"x","offset":{}}', "NaN"]
FIELDS = [
    "time_ms",
    "http_status",
    "status_code",
    "exit_code",
    "count",
    "offset",
    "partition",
    "record",
    "args",
    "result",
]


def writes(
    recorder: PartitionRecorder, *values: bytes | None, topic: str = "events", arrived_ms: int = ARRIVED
) -> None:
    """Take a topic and record values of it, from its next offset on."""
    following = recorder.own(topic, 0)
    for offset, value in enumerate(values, following):
        recorder.add(topic, 0, offset, arrived_ms, None, value)
    recorder.flush()


@pytest.mark.slow
@given(
    st.sampled_from(RECORDED_TOPICS),
    st.sampled_from(sorted(EXAMPLES)),
    st.lists(
        st.tuples(st.sampled_from([*FIELDS, "*"]), st.integers(0, 30), st.sampled_from([*NUMBERS, *TEXTS, *OTHERS])),
        min_size=1,
        max_size=4,
    ),
    st.sampled_from([-1, 0, ARRIVED, ARRIVED * 1000, ARRIVED * 1_000_000, 1 << 62]),
)
@settings(deadline=None, max_examples=25)
def test_whatever_stands_in_a_record_it_becomes_a_row(
    tmp_path_factory: pytest.TempPathFactory,
    topic: str,
    example: str,
    changes: list[tuple[str, int, str]],
    arrived_ms: int,
) -> None:
    """One bad value would be written again and again, and nothing after it would ever be recorded."""
    body = {name: orjson.dumps(value).decode() for name, value in EXAMPLES[example].items()}
    for field, number, text in changes:
        body[sorted(body)[number % len(body)] if field == "*" else field] = text
    result = "{" + ",".join(f'"{field}":{text}' for field, _, text in changes) + "}"
    values = [
        "{" + ",".join(f'"{name}":{text}' for name, text in fields.items()) + "}"
        for fields in (body, body | {"args": result}, body | {"result": result})
    ]
    root = tmp_path_factory.mktemp("history")
    recorder = PartitionRecorder(root)
    writes(recorder, *(value.encode() for value in values), topic=topic, arrived_ms=arrived_ms)
    recorder.close()
    assert rows(root, f"SELECT count(*) FROM recorded_{topic.replace('-', '_')}") == [(3,)]
    shutil.rmtree(root)


def test_a_record_that_is_too_large_keeps_its_place(tmp_path: Path) -> None:
    """No reader takes it either, and it would not fit into what waits."""
    recorder = PartitionRecorder(tmp_path)
    writes(recorder, b'{"id":"c1","reason":"' + b"x" * 8_000_000 + b'"}', topic="commands")
    recorder.close()
    assert rows(tmp_path, "SELECT fault, size > 8000000, record FROM recorded_commands") == [("too_large", True, None)]


def test_a_fault_of_ours_keeps_the_place_of_the_event(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the folds do; what comes after it is recorded."""

    def broken(*_: object) -> None:
        raise ArithmeticError

    recorder = PartitionRecorder(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(event_rows, "_encode", broken)
        writes(recorder, small_event(0))
    writes(recorder, small_event(1))
    recorder.close()
    found = rows(tmp_path, 'SELECT "offset", id, fault FROM recorded_events ORDER BY 1')
    assert found == [(0, None, "internal_error"), (1, "e1", None)]


def test_an_arrival_in_another_unit_is_unknown(tmp_path: Path) -> None:
    """A publisher that stamps its records in nanoseconds stops nobody; they lie with the day of their recording."""
    recorder = PartitionRecorder(tmp_path, clock=lambda: ARRIVED / 1000)
    writes(recorder, small_event(0), arrived_ms=ARRIVED * 1_000_000)
    recorder.close()
    assert one(tmp_path, "SELECT arrived, date::VARCHAR AS date FROM recorded_events") == {
        "arrived": None,
        "date": "2026-01-05",
    }


def test_a_clock_that_is_set_back_delays_nothing(tmp_path: Path) -> None:
    """What waits is written, though by the clock it has not begun to wait."""
    now = [1000.0]
    recorder = PartitionRecorder(tmp_path, clock=lambda: now[0], flush_s=30)
    recorder.own("events", 0)
    recorder.add("events", 0, 0, ARRIVED, None, small_event(0))
    assert not recorder.due
    now[0] -= 3600
    assert recorder.due
    recorder.close()


@pytest.mark.slow
@pytest.mark.parametrize("call", ["fsync", "mkdir", "rename", "open"])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
def test_a_file_system_that_fails_anywhere_loses_nothing(
    call: str, number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each call in turn fails once; it is told as one sentence, and afterwards every row is there once."""
    for nth in range(30):
        root = tmp_path / str(nth)
        recorder = PartitionRecorder(root, max_rows=10)
        recorder.own("events", 0)
        for offset in range(3):
            recorder.add("events", 0, offset, ARRIVED + offset * DAY_MS, None, small_event(offset))
        with monkeypatch.context() as patched:
            failed = _fails_once(patched, call, nth, OSError(number, os.strerror(number)))
            if told := _told_at(recorder):
                assert isinstance(told, HistoryFull) == (number == errno.ENOSPC)
        for offset in range(3, 5):
            recorder.add("events", 0, offset, ARRIVED + 2 * DAY_MS, None, small_event(offset))
        assert recorder.flush() == {("events", 0): 5}
        recorder.close()
        kept, _ = counted(data_files(root))
        assert [offset for file in kept for offset in range(file.first, file.last + 1)] == list(range(5))
        if not failed:
            return
    pytest.fail("more calls than expected")


def _told_at(recorder: PartitionRecorder) -> HistoryError | None:
    try:
        recorder.flush()
    except HistoryError as error:
        return error
    return None


def _fails_once(patched: pytest.MonkeyPatch, call: str, nth: int, error: OSError) -> list[bool]:
    """Let the n-th use of a call of the file system fail; the answer is filled once it has."""
    owner: Any = os if call == "fsync" else Path
    real: Callable[..., Any] = getattr(owner, call)
    failed: list[bool] = []
    calls = [0]

    def call_of(*arguments: Any, **options: Any) -> Any:
        calls[0] += 1
        if calls[0] == nth + 1:
            failed.append(True)
            raise error
        return real(*arguments, **options)

    patched.setattr(owner, call, call_of)
    return failed


def test_a_directory_that_is_taken_away_is_told(tmp_path: Path) -> None:
    """In a sentence, when something is written and when the recorder ends."""
    root = tmp_path / "history"
    recorder = PartitionRecorder(root)
    writes(recorder, small_event(0))
    shutil.rmtree(root)
    with pytest.raises(HistoryError, match="cannot be written"):
        writes(recorder, small_event(1))
    recorder.close()


def test_a_new_folder_is_as_durable_as_what_is_in_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its name is flushed before anybody commits what the files hold."""
    recorder = PartitionRecorder(tmp_path)
    flushed: list[str] = []
    real = os.fsync

    def fsync(number: int) -> None:
        flushed.append(str(Path(f"/proc/self/fd/{number}").readlink()))
        real(number)

    monkeypatch.setattr(os, "fsync", fsync)
    writes(recorder, small_event(0))
    recorder.close()
    day = tmp_path / "events" / "date=2026-01-05"
    assert [str(day), str(day.parent), str(tmp_path)] == sorted(flushed[1:], reverse=True)


def test_a_damaged_file_is_named_and_stops_no_tidying(tmp_path: Path) -> None:
    """A file of no bytes says that something is recorded which is not: the next start tells; what runs goes on."""
    recorder = PartitionRecorder(tmp_path)
    for number in range(compaction.ENOUGH):
        writes(recorder, small_event(number))
    damaged = tmp_path / "events" / "date=2026-01-05" / "0-3-3.parquet"
    damaged.write_bytes(b"")
    assert recorder.tidy().merged == 0
    writes(recorder, small_event(8))
    recorder.close()
    again = PartitionRecorder(tmp_path)
    with pytest.raises(HistoryError, match=r"0-3-3\.parquet.*move it elsewhere if it is damaged"):
        again.own("events", 0)
    again.close()


@pytest.mark.slow
def test_wide_rows_are_merged_and_looked_back_at_within_bounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Long arguments fit well into a small file and not at all into memory."""
    monkeypatch.setattr(parquet, "MEMORY", "256MB")
    monkeypatch.setattr(recorder_module, "LOOK_BACK_BYTES", 8_000_000)
    recorder = PartitionRecorder(tmp_path, max_bytes=1 << 30)
    recorder.own("events", 0)
    for offset in range(8000):
        call = {"type": "tool_call.started", "call_id": f"c{offset}", "tool_name": "t", "args": {"text": "y" * 20_000}}
        recorder.add("events", 0, offset, ARRIVED, None, small_event(offset, **call))
        if offset % 500 == 499:
            recorder.flush()
    assert recorder.tidy().merged == 16
    recorder.close()
    again = PartitionRecorder(tmp_path)
    assert again.own("events", 0) == 8000
    again.add("events", 0, 8000, ARRIVED, None, small_event(7999))
    again.flush()
    again.close()
    assert rows(tmp_path, 'SELECT count(*) FROM recorded_events WHERE repeated AND "offset" = 8000') == [(1,)]


def test_a_day_that_another_process_has_just_emptied_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Recorders of other partitions delete the folders of days that hold nothing any more."""
    recorder = PartitionRecorder(tmp_path)
    real = files._make
    emptied: list[Path] = []

    def made(folder: Path) -> None:
        real(folder)
        if not emptied and folder.name.startswith("date="):
            emptied.append(folder)
            folder.rmdir()

    monkeypatch.setattr(files, "_make", made)
    writes(recorder, small_event(0))
    recorder.close()
    assert emptied
    assert rows(tmp_path, "SELECT id FROM recorded_events") == [("e0",)]


def test_strange_names_in_a_history_are_passed_over(tmp_path: Path) -> None:
    """Folders of no day and files of no range are others' business."""
    for name in ("events/date=2026-13-45/0-0-0.parquet", "events/date=2026-01-05/x.txt", "events/y/0-0-0.parquet", "z"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"")
    assert list(data_files(tmp_path)) == []


@pytest.mark.parametrize("left", [b"", b"\xff\xfe"])
def test_a_source_that_was_not_written_whole(left: bytes, tmp_path: Path) -> None:
    """Nothing is written again; noise belongs to nobody."""
    (tmp_path / SOURCE).write_bytes(left)
    recorder = PartitionRecorder(tmp_path)
    if left:
        with pytest.raises(HistoryError.__bases__[0], match="holds the history of"):
            recorder.from_source("store A")
    else:
        recorder.from_source("store A")
        assert (tmp_path / SOURCE).read_text() == "store A"
    recorder.close()


def test_recorders_that_start_at_the_same_moment_keep_their_workshops(tmp_path: Path) -> None:
    """None takes the folder of another one for abandoned."""
    for _ in range(20):
        made: list[ScratchFolder] = []
        barrier = threading.Barrier(8)

        def start(made: list[ScratchFolder] = made, barrier: threading.Barrier = barrier) -> None:
            barrier.wait()
            made.append(ScratchFolder(tmp_path))

        threads = [threading.Thread(target=start) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len({workshop.folder for workshop in made}) == 8
        assert all((workshop.folder / "lock").exists() for workshop in made)
        for workshop in made:
            workshop.close()
    assert list((tmp_path / TEMPORARY).iterdir()) == []


class MergedAway:
    """A connection that finds files gone, so many times, at the first page or at a later one."""

    description = (("n",),)

    def __init__(self, times: int, page: int) -> None:
        self.left, self.at, self.asked, self._page = times, page, 0, 0

    def execute(self, *_: object) -> MergedAway:
        """Ask."""
        self.asked, self._page = self.asked + 1, 0
        return self

    def fetchmany(self, _size: int) -> list[tuple[int]]:
        """Three pages of a row."""
        self._page += 1
        if self._page == self.at and self.left:
            self.left -= 1
            raise duckdb.IOException("No files found that match the pattern")
        return [(self._page,)] if self._page <= 3 else []


@pytest.mark.parametrize(("times", "page", "asked"), [(0, 1, 1), (1, 1, 2), (2, 1, 0), (1, 2, 0)])
def test_a_stream_whose_files_were_merged_away_is_asked_for_again(times: int, page: int, asked: int) -> None:
    """Once, and only while nothing of it was given: rows are neither doubled nor left out in silence."""
    connection: Any = MergedAway(times, page)

    def read() -> list[tuple[int]]:
        columns, pages = stream(connection, "SELECT n FROM numbers")
        assert columns == ["n"]
        return [row for page in pages for row in page]

    if not asked:
        with pytest.raises(HistoryError):
            read()
    else:
        assert (read(), connection.asked) == ([(1,), (2,), (3,)], asked)
