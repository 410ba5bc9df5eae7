"""Compaction of a history: merges small files, deletes old ones.

A merged file covers the files it was made from, so no query counts a row twice (`catalogue`); covered files are
deleted once no query can still be reading them.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from datetime import date, timedelta
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from ..projections.rule_source import RULES_TOPIC
from .files import DataFile, counted, data_files, delete
from .history_error import HistoryError, HistoryFull
from .parquet import ParquetWriter

LARGE_BYTES = 64 * 1024 * 1024  # Files of this size in bytes or more are not merged: half a million events
ENOUGH = 8  # Minimum number of adjacent small files of the current day to merge; for earlier days it is two

# Seconds before covered files are deleted: `YOUNG_S` until the merged file counts, then time for running queries
GRACE_S = 120.0


# Topics that are never deleted by age: a replay needs them, and they are small
NEVER_OLD = frozenset({"settings", RULES_TOPIC})


class CompactionResult(NamedTuple):
    """Result of a compaction, in numbers of files."""

    merged: int
    covered: int
    expired: int


def tidy(
    root: Path,
    writer: ParquetWriter,
    owned: Iterable[tuple[str, int]],
    today: date,
    keep_days: int | None = None,
    *,
    grace_s: float = GRACE_S,
) -> CompactionResult:
    """Merge small files, delete covered files and those older than `keep_days` days; only in owned partitions."""
    places = set(owned)
    files = [file for file in data_files(root) if (file.topic, file.partition) in places]
    kept, covered = counted(files)
    gone = 0
    for old in covered:
        gone += _delete_covered(old, kept, grace_s)
    expired = 0
    if keep_days is not None:
        for file in _expired(kept, today - timedelta(days=keep_days)):
            delete(file.path)
            kept.remove(file)
            expired += 1
    merged = 0
    for group in _mergeable(kept, today):
        first, last = group[0], group[-1]
        paths = [file.path for file in group]
        target = first.path.with_name(f"{first.partition}-{first.first}-{last.last}.parquet")
        try:
            writer.merge(paths, target, writer.count(paths))
        except HistoryFull:
            break
        except HistoryError:
            continue  # a file is damaged, or its rows are too wide: leave them unmerged
        merged += len(group)
    return CompactionResult(merged, gone, expired)


def _delete_covered(old: DataFile, kept: list[DataFile], grace_s: float) -> int:
    by = next(file for file in kept if file.covers(old))
    if time.time() - by.path.stat().st_mtime < grace_s:
        return 0
    delete(old.path)
    return 1


def _expired(kept: list[DataFile], before: date) -> list[DataFile]:
    """Files older than a day; never the last file of a partition, whose name gives the next offset."""
    found: list[DataFile] = []
    for (topic, _), group in groupby(kept, key=lambda file: (file.topic, file.partition)):
        if topic in NEVER_OLD:
            continue
        found += [file for file in list(group)[:-1] if file.day < before]
    return found


def _mergeable(kept: list[DataFile], today: date) -> Iterator[list[DataFile]]:
    """Groups of adjacent small files of one partition and one day; each group is merged into one file."""
    for (_, _, day), run in groupby(kept, key=lambda file: (file.topic, file.partition, file.day)):
        group: list[DataFile] = []
        size = 0
        for file in [*run, None]:
            bytes_ = file.path.stat().st_size if file is not None else LARGE_BYTES
            if file is None or size + bytes_ > LARGE_BYTES:
                if len(group) >= (2 if day < today else ENOUGH):
                    yield group
                group, size = [], 0
            if file is not None and bytes_ < LARGE_BYTES:
                group.append(file)
                size += bytes_
