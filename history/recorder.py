"""Recorder: writes records into Parquet files exactly once, even if it is killed at any time.

Theory of operation. The names of the finished files are the only persistent state: the next offset of a partition is
one more than the highest in a name, so a restart continues there and ignores repeated records. Rows wait in memory as
lines of JSON until there are enough or they are old enough; a file is written to a temporary folder and renamed, and
only then may the source's position be committed. If the disk is full, the caller stops reading and tries again, so
memory stays within its limit.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from secrets import token_hex

import msgspec

from ..errors import ConfigError
from ..schemas.codec import MAX_BYTES as MAX_RECORD_BYTES
from ..security.private_files import make_directory
from ..security.redaction import redact_record
from .columns import END_MS
from .compaction import CompactionResult, tidy
from .decision_rows import COLUMNS, row_of
from .event_rows import EventReader
from .files import (
    APPENDED_PARTITION,
    LINE_KEY,
    PartitionLock,
    claim,
    day_of,
    folder_of,
    last_files,
    name_of,
    next_offset,
)
from .history_error import HistoryError, HistoryFull
from .locations import refuse_address
from .parquet import ParquetWriter, unwritable
from .session_cache import RecentCache

MAX_BYTES = 48 * 1024 * 1024  # Maximum waiting rows over all partitions, in bytes: about 60,000 events
MAX_ROWS = 120_000  # Maximum waiting rows over all partitions: one row group of a file

# Maximum events read back at a start, to restore open calls, repeats and loops: less than a second of work
LOOK_BACK = 20_000

LOOK_BACK_BYTES = 32 * 1024 * 1024  # Maximum bytes of these events
CALLS = "outcomes"  # Topic of the records of calls
FLUSH_S = 30.0  # Maximum seconds that a row waits, which is the lag of the history

DAY_MS = 86_400_000

Place = tuple[str, int]  # Topic, by its catalogue name, and partition


@dataclass(slots=True)
class _RowBatch:
    """Rows of one partition for one file; `day` counts days since 1970."""

    day: int
    first: int
    last: int
    lines: list[bytes] = field(default_factory=list)


@dataclass(slots=True)
class _PartitionState:
    """State of a partition that this process records."""

    owned: PartitionLock
    following: int  # first offset neither in a file nor waiting
    written: int  # first offset that is not in a file
    reader: EventReader
    calls: RecentCache[str, bool]  # causes of the latest records of calls, which a worker writes again after a crash
    batches: list[_RowBatch] = field(default_factory=list)


@dataclass(slots=True)
class RecorderCounts:
    """Counters of a recorder since its start."""

    records: Counter[str] = field(default_factory=Counter)  # rows written, by topic
    files: Counter[str] = field(default_factory=Counter)  # files written, by topic; without merged files
    file_bytes: Counter[str] = field(default_factory=Counter)  # size of these files, by topic
    # records stored with a fault instead of their content, by reason code
    unreadable: Counter[str] = field(default_factory=Counter)
    flushes: int = 0  # flushes that wrote all waiting rows
    flush_failures: int = 0  # flushes that failed; their remaining rows still wait
    flush_seconds: float = 0.0  # total duration of both
    disk_full: bool = False  # True if the last flush failed because the disk was full


class PartitionRecorder:
    """Recorder of partitions into one directory.

    Attributes:
        rows: number of waiting rows.
        bytes: size of the waiting rows.
        flush_s: maximum seconds that a row waits.
        counts: counters since the start.
    """

    def __init__(
        self,
        root: Path,
        *,
        max_bytes: int = MAX_BYTES,
        max_rows: int = MAX_ROWS,
        flush_s: float = FLUSH_S,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Record into a directory, which is created if missing.

        Raises:
            ConfigError: it is the address of an object store.
            HistoryError: it cannot be written.
        """
        refuse_address(root)
        try:
            make_directory(root)
            self._key = claim(root, token_hex(), LINE_KEY).strip().encode()
        except OSError as error:
            raise unwritable(root, error) from error
        self.root = root
        self.rows = self.bytes = 0
        self.counts = RecorderCounts()
        self._max_bytes, self._max_rows, self.flush_s, self._clock = max_bytes, max_rows, flush_s, clock
        self._parts: dict[Place, _PartitionState] = {}
        self._since: float | None = None
        self._encode = msgspec.json.Encoder().encode
        self._writer = ParquetWriter(root)

    def from_source(self, name: str) -> None:
        """Set the source of the records, so that offsets of two sources are never mixed.

        Raises:
            ConfigError: the directory holds the records of another source.
            HistoryError: it cannot be written.
        """
        try:
            known = claim(self.root, name)
        except OSError as error:
            raise unwritable(self.root, error) from error
        if known != name:
            raise ConfigError(
                f"{self.root} holds the history of {known}, this is {name}; name another directory (--history)"
            )

    def own(self, topic: str, partition: int, at_least: int = 0) -> int:
        """Acquire a partition; returns the offset to read from, at least the source's own position `at_least`.

        Raises:
            HistoryTaken: another process records it here.
        """
        part = self._parts.get((topic, partition))
        if part is None:
            try:
                owned = PartitionLock(self.root, topic, partition)
            except OSError as error:
                raise unwritable(self.root, error) from error
            following = max(next_offset(self.root, topic, partition), at_least)
            part = self._parts[topic, partition] = _PartitionState(
                owned, following, following, EventReader(self._key), RecentCache()
            )
            if partition == APPENDED_PARTITION and (topic, 0) in self._parts:
                part.reader = self._parts[topic, 0].reader  # it has the starts of the calls that are closed there
            if topic not in COLUMNS or topic == CALLS:
                since = next_offset(self.root, topic, partition) - LOOK_BACK
                files = last_files(self.root, topic, partition, since)
                for cause in self._writer.last_calls(files, since) if topic == CALLS else ():
                    part.calls.keep(cause, value=True)
                for row in self._writer.last_records(files, since, LOOK_BACK_BYTES) if topic != CALLS else ():
                    part.reader.row(partition, *row)
        return part.following

    def disown(self, topic: str, partition: int) -> None:
        """Release a partition and drop its waiting rows; its next owner reads them again."""
        part = self._parts.pop((topic, partition), None)
        if part is not None:
            for batch in part.batches:
                self._forget(batch)
            part.owned.release()

    def add(
        self, topic: str, partition: int, offset: int, arrived_ms: int, key: bytes | None, value: bytes | None
    ) -> None:
        """Add one record of an owned partition; an already recorded one is ignored.

        Offsets increase; `arrived_ms` is the record timestamp in milliseconds, -1 when unknown; without a value it is a
        tombstone.
        """
        part = self._parts[topic, partition]
        if offset < part.following:
            return
        if 0 < arrived_ms < END_MS:
            day = arrived_ms // DAY_MS
        else:  # unknown, or in another unit
            arrived_ms, day = -1, int(self._clock() * 1000) // DAY_MS
        name = None if key is None else key.decode(errors="replace")
        if value is not None and topic != CALLS and len(value) <= MAX_RECORD_BYTES:  # of a larger one its size is kept
            value = redact_record(value)  # what the stages tell each other holds no secrets
        row = (
            row_of(topic, partition, offset, arrived_ms, name, value)
            if topic in COLUMNS
            else part.reader.row(partition, offset, arrived_ms, name, value)
        )
        if row.get("outcome") is not None and part.calls.known(str(row["cause"]), value=True):  # type: ignore[typeddict-item]
            row["repeated"] = True  # type: ignore[typeddict-unknown-key]
        if (fault := row.get("fault")) is not None:
            self.counts.unreadable[str(fault)] += 1
        line = self._encode(row) + b"\n"
        if self._since is None:
            self._since = self._clock()
        batches = part.batches
        if not batches or batches[-1].day < day:  # a late record is filed under the day of the records before it
            batches.append(_RowBatch(day, part.following, offset))
        batches[-1].lines.append(line)
        batches[-1].last = offset
        part.following = offset + 1
        self.rows += 1
        self.bytes += len(line)

    @property
    def recorded(self) -> int:
        """Number of rows written since the start."""
        return self.counts.records.total()

    @property
    def waiting_s(self) -> float:
        """Seconds that the oldest waiting row has waited; 0 without waiting rows."""
        since = self._since
        return 0.0 if since is None or not self.rows else max(self._clock() - since, 0.0)

    def written(self) -> dict[Place, int]:
        """First offset not in a file, by owned partition."""
        return {place: part.written for place, part in list(self._parts.items())}

    @property
    def full(self) -> bool:
        """True if the waiting rows must be written before reading more."""
        return self.bytes >= self._max_bytes or self.rows >= self._max_rows

    @property
    def due(self) -> bool:
        """True if it is time to write: enough rows wait, they waited long enough, or the clock was set back."""
        return self.full or (self._since is not None and not 0 <= self._clock() - self._since < self.flush_s)

    def flush(self) -> dict[Place, int]:
        """Write all waiting rows; returns the next offset of every partition, which may now be committed.

        Raises:
            HistoryFull: the disk is full; the remaining rows still wait, and the flush can be repeated.
            HistoryError: it cannot be written for another reason.
        """
        began = time.monotonic()
        try:
            self._write_all()
        except HistoryError as error:
            self.counts.flush_failures += 1
            self.counts.disk_full = isinstance(error, HistoryFull)
            raise
        finally:
            self.counts.flush_seconds += time.monotonic() - began
        if self._since is not None:
            self.counts.flushes += 1
        self.counts.disk_full = False
        self._since = None
        return self.written()

    def _write_all(self) -> None:
        for (topic, partition), part in self._parts.items():
            while part.batches:
                batch = part.batches[0]
                name = name_of(partition, batch.first, batch.last)
                target = folder_of(self.root, topic, day_of(batch.day * DAY_MS)) / name
                self._writer.write(topic, batch.lines, len(batch.lines), target)
                self._forget(part.batches.pop(0))
                part.written = batch.last + 1
                self.counts.records[topic] += len(batch.lines)
                self.counts.files[topic] += 1
                self.counts.file_bytes[topic] += target.stat().st_size

    def tidy(self, keep_days: int | None = None) -> CompactionResult:
        """Merge small files of the owned partitions, and delete those too old; call it between flushes.

        If the disk is full or a file is damaged, nothing is merged.

        Raises:
            HistoryError: an old file cannot be deleted.
        """
        today = day_of(int(self._clock() * 1000))
        try:
            return tidy(self.root, self._writer, set(self._parts), today, keep_days)
        except OSError as error:
            raise unwritable(self.root, error) from error

    def close(self) -> None:
        """Release all partitions and drop waiting rows; the next start reads them again."""
        for place in list(self._parts):
            self.disown(*place)
        self._writer.close()

    def _forget(self, batch: _RowBatch) -> None:
        self.rows -= len(batch.lines)
        self.bytes -= sum(map(len, batch.lines))
