"""Merging and deleting files: no row is counted twice or lost at any moment."""

from __future__ import annotations

import os
from datetime import date
from pathlib import Path

import pytest
from recorded import ARRIVED, DAY_MS, rows
from recorded import small_event as event
from trustfold.history.compaction import CompactionResult, tidy
from trustfold.history.files import DataFile, counted, data_files
from trustfold.history.parquet import ParquetWriter
from trustfold.history.recorder import PartitionRecorder


def small_files(root: Path, count: int, *, day: int = 0, first: int = 0) -> None:
    """Files of three events each."""
    recorder = PartitionRecorder(root)
    recorder.own("events", 0)
    for number in range(count):
        for offset in range(first + number * 3, first + number * 3 + 3):
            recorder.add("events", 0, offset, ARRIVED + day * DAY_MS, b"s1", event(offset))
        recorder.flush()
    recorder.close()


def offsets(root: Path) -> list[int]:
    """Offsets that the catalogue shows."""
    return [row[0] for row in rows(root, 'SELECT "offset" FROM recorded_events ORDER BY 1')]


def tidied(root: Path, today: str, keep_days: int | None = None, grace_s: float = 0) -> CompactionResult:
    """One round."""
    writer = ParquetWriter(root)
    try:
        return tidy(root, writer, [("events", 0)], date.fromisoformat(today), keep_days, grace_s=grace_s)
    finally:
        writer.close()


def test_small_files_become_one_and_are_deleted_later(tmp_path: Path) -> None:
    """Between merge and deletion both lie there, and every row counts once."""
    small_files(tmp_path, 10)
    assert tidied(tmp_path, "2026-01-05") == CompactionResult(merged=10, covered=0, expired=0)
    assert len(list(data_files(tmp_path))) == 11
    assert offsets(tmp_path) == list(range(30))
    assert tidied(tmp_path, "2026-01-05", grace_s=3600).covered == 0
    os.utime(tmp_path / "events/date=2026-01-05/0-0-29.parquet", (ARRIVED / 1000, ARRIVED / 1000))
    assert offsets(tmp_path) == list(range(30)), "now the merged one counts"
    assert rows(tmp_path, "SELECT count(*) FROM files_of('events') WHERE NOT hidden") == [(1,)]
    assert tidied(tmp_path, "2026-01-05").covered == 10
    assert [file.path.name for file in data_files(tmp_path)] == ["0-0-29.parquet"]
    assert offsets(tmp_path) == list(range(30))


def test_a_few_files_of_today_are_left_alone_and_of_yesterday_merged(tmp_path: Path) -> None:
    """A day that is over gets no more files, so two are worth it."""
    small_files(tmp_path, 3)
    assert tidied(tmp_path, "2026-01-05").merged == 0
    assert tidied(tmp_path, "2026-01-06").merged == 3


def test_files_of_two_days_are_never_merged(tmp_path: Path) -> None:
    """Also where a late record has put an earlier day behind a later one."""
    small_files(tmp_path, 2)
    small_files(tmp_path, 2, day=1, first=6)
    small_files(tmp_path, 2, day=0, first=12)
    assert tidied(tmp_path, "2026-01-09").merged == 6
    assert tidied(tmp_path, "2026-01-09").covered == 6
    assert sorted(file.path.name for file in data_files(tmp_path)) == [
        "0-0-5.parquet",
        "0-12-17.parquet",
        "0-6-11.parquet",
    ]
    assert offsets(tmp_path) == list(range(18))


def test_old_days_are_deleted_but_never_the_last_file(tmp_path: Path) -> None:
    """The last name of a partition says where to go on, however old it is."""
    small_files(tmp_path, 1)
    small_files(tmp_path, 1, day=1, first=3)
    assert tidied(tmp_path, "2026-02-20", keep_days=30).expired == 1
    assert offsets(tmp_path) == [3, 4, 5]
    assert not (tmp_path / "events" / "date=2026-01-05").exists()
    assert tidied(tmp_path, "2026-12-31", keep_days=30).expired == 0


@pytest.mark.parametrize(
    ("ranges", "expected"),
    [
        ([(0, 9)], [(0, 9)]),
        ([(0, 4), (5, 9), (0, 9)], [(0, 9)]),
        ([(0, 9), (10, 19), (0, 19), (20, 29)], [(0, 19), (20, 29)]),
        ([(0, 9), (0, 9)], [(0, 9)]),
    ],
)
def test_a_covered_file_does_not_count(ranges: list[tuple[int, int]], expected: list[tuple[int, int]]) -> None:
    """Whatever is inside of another range is in that file."""
    day = date(2026, 1, 5)
    files = [DataFile(Path(f"{number}"), "events", day, 0, *range_) for number, range_ in enumerate(ranges)]
    kept, covered = counted(files)
    assert [(file.first, file.last) for file in kept] == expected
    assert len(kept) + len(covered) == len(files)
