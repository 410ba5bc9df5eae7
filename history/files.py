"""Files of a history: their names, which of them count, and ownership for writing.

    ROOT/TOPIC/date=YYYY-MM-DD/PARTITION-FIRST-LAST.parquet

A file holds the records of one partition from FIRST to LAST, offsets included, that arrived on one day (UTC). So the
names alone give what is recorded: a recorder continues after the highest LAST. A file whose range is within that of
another file has been merged into it and does not count; it is deleted once no query can still be reading it.
"""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import UTC, date, datetime
from itertools import count
from pathlib import Path
from typing import IO, NamedTuple

from ..security.private_files import DIRECTORY_MODE, FILE_MODE, make_directory, make_file
from .history_error import HistoryTaken

_NAME = re.compile(r"(\d+)-(\d+)-(\d+)\.parquet")
_DAY = re.compile(r"date=(\d{4}-\d\d-\d\d)")
_LOCKS = ".locks"
# Partition of `events` for those that the embedded engine appended while it folded; they have their own numbering. No
# broker has so many partitions.
APPENDED_PARTITION = 1_000_000

YOUNG_S = 30  # Seconds before a merged file replaces its parts; longer than any query takes to list files
SOURCE = ".source"  # File that names the source of the records of a directory

# File with the secret by which lines of results are hashed; recorders that share partitions need the same
LINE_KEY = ".line-key"

TEMPORARY = ".tmp"  # Folder of unfinished files; on the same file system, so that a rename is atomic


class DataFile(NamedTuple):
    """Parquet file with the values in its path."""

    path: Path
    topic: str
    day: date
    partition: int
    first: int
    last: int

    def covers(self, other: DataFile) -> bool:
        """True if this file contains all records of the other file."""
        same = (self.topic, self.partition) == (other.topic, other.partition)
        return same and self.path != other.path and self.first <= other.first and other.last <= self.last


def source_of(root: Path) -> str:
    """Source of a directory's records: `store ...`, `kafka ...` or `files ...`; empty if unknown."""
    try:
        return (root / SOURCE).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def places_of(root: Path) -> Iterator[Path]:
    """A directory and those beside it, `NAME-2` and so on, of further sources; the last one holds no records."""
    place = root
    for number in count(2):
        yield place
        if not source_of(place):
            return
        place = root.with_name(f"{root.name}-{number}")


def place_of(root: Path, source: str) -> Path:
    """The first of `places_of` a directory that holds nothing, or the records of a source."""
    return next(place for place in places_of(root) if source_of(place) in {"", source})


def kafka_source(cluster_id: str, topic_prefix: str) -> str:
    """Source, as in `source_of`, of a directory with the topics of a Kafka deployment."""
    return f"kafka {cluster_id} {topic_prefix}*"


def store_source(identity: object, path: Path) -> str:
    """Source, as in `source_of`, of a directory with the records of a store; one without an id is named by its path."""
    return f"store {identity or path.absolute()}"


def name_of(partition: int, first: int, last: int) -> str:
    """File name for a range of offsets."""
    return f"{partition}-{first}-{last}.parquet"


def folder_of(root: Path, topic: str, day: date) -> Path:
    """Folder for a topic's records of a day."""
    return root / topic / f"date={day.isoformat()}"


def day_of(time_ms: int) -> date:
    """Day, in UTC, of a time in milliseconds."""
    return datetime.fromtimestamp(time_ms / 1000, UTC).date()


def data_files(root: Path, topic: str | None = None) -> Iterator[DataFile]:
    """All finished files, of one topic or of all, unordered; other files and folders are skipped."""
    for above in (root / topic,) if topic else _within(root):
        if above.name.startswith("."):
            continue
        for folder in _within(above):
            dated = _DAY.fullmatch(folder.name)
            day = _date(dated[1]) if dated else None
            if day is None:
                continue
            for path in _within(folder):
                named = _NAME.fullmatch(path.name)
                if named:
                    yield DataFile(path, above.name, day, *map(int, named.groups()))


def _within(folder: Path) -> list[Path]:
    """Entries of a folder; none if it does not exist (another process may have removed it) or is not a folder."""
    try:
        return list(folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []


def _date(text: str) -> date | None:
    try:
        return date.fromisoformat(text)
    except ValueError:
        return None


def counted(files: Iterable[DataFile]) -> tuple[list[DataFile], list[DataFile]]:
    """Files that count, by partition and offset, and files covered by another one."""
    kept: list[DataFile] = []
    covered: list[DataFile] = []
    # Of files with the same start the widest is first, so a covering file always precedes the files it covers.
    for one in sorted(files, key=lambda file: (file.topic, file.partition, file.first, -file.last, str(file.path))):
        (covered if kept and kept[-1].covers(one) else kept).append(one)
    return kept, covered


def next_offset(root: Path, topic: str, partition: int) -> int:
    """First offset that is not recorded yet; 0 for a partition without files."""
    return max((file.last + 1 for file in data_files(root, topic) if file.partition == partition), default=0)


def last_files(root: Path, topic: str, partition: int, since: int = 0, most: int = 16) -> list[Path]:
    """Last files of a partition from an offset on, at most `most`."""
    kept, _ = counted(file for file in data_files(root, topic) if file.partition == partition)
    return [file.path for file in kept[-most:] if file.last >= since]


class PartitionLock:
    """Lock on writing one partition of a topic, held by one process until it exits, even by a crash.

    Without it, two recorders of one directory could write the same records twice after a rebalance, since the one
    that lost the partition may not know it yet.
    """

    def __init__(self, root: Path, topic: str, partition: int) -> None:
        """Acquire the lock.

        Raises:
            HistoryTaken: another process holds it.
            OSError: the directory cannot be written.
        """
        folder = root / _LOCKS
        make_directory(folder)
        self._lock = _locked(folder / f"{topic}-{partition}")
        if self._lock is None:
            raise HistoryTaken(
                f"{root}: another process records partition {partition} of {topic} there; stop it, or give this one "
                "another --history"
            )

    def release(self) -> None:
        """Release the lock."""
        if self._lock is not None:
            self._lock.close()


def claim(root: Path, name: str, file: str = SOURCE) -> str:
    """Write the source of a directory's records, or of one topic's, unless it has one; returns the source in the file.

    Raises:
        OSError: the directory cannot be written.
    """
    path, made = root / file, root / f"{file}.new"
    make_directory(root / _LOCKS)
    make_file(root / _LOCKS / "source")
    with (root / _LOCKS / "source").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        known = path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
        if not known:
            make_file(made)
            made.write_text(name, encoding="utf-8")
            put_in_place(made, path)
        return known or name


class ScratchFolder:
    """Folder for unfinished files; removes the folders left by killed processes."""

    def __init__(self, root: Path) -> None:
        """Create a folder.

        Raises:
            OSError: the directory cannot be written.
        """
        above = root / TEMPORARY
        make_directory(above)
        for abandoned in _within(above):
            with suppress(OSError):  # it belongs to another user, or another process removes it at the same time
                lock = _locked(abandoned / "lock") if (abandoned / "lock").exists() else None
                if lock is not None:
                    with lock:
                        _remove(abandoned)
        for number in range(1 << 30):
            self.folder = above / f"{os.getpid()}-{number}"
            try:
                self.folder.mkdir(mode=DIRECTORY_MODE)
            except FileExistsError:
                continue
            # Until it is locked, a process starting now may consider it abandoned.
            with suppress(FileNotFoundError):
                self._lock = _locked(self.folder / "lock")
                if self._lock is not None:
                    break

    def clear(self) -> None:
        """Remove files left by an interrupted write; the next start removes those that cannot be removed now."""
        with suppress(OSError):
            for path in self.folder.iterdir():
                if path.name != "lock":
                    path.unlink()

    def close(self) -> None:
        """Remove the folder, if possible."""
        with suppress(OSError):
            _remove(self.folder)
        if self._lock is not None:
            self._lock.close()


def _remove(folder: Path) -> None:
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()


def _locked(path: Path) -> IO[str] | None:
    """Lock a file; returns None if another process holds the lock or has just removed the file."""
    make_file(path)
    lock = path.open("a")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        return None
    with suppress(FileNotFoundError):
        if path.stat().st_ino == os.fstat(lock.fileno()).st_ino:
            return lock
    lock.close()
    return None


def put_in_place(made: Path, target: Path) -> None:
    """Move a finished file to its name, atomically and durably."""
    with made.open("rb") as file:
        os.fchmod(file.fileno(), FILE_MODE)
        os.fsync(file.fileno())
    while True:
        _make(target.parent)
        try:
            made.rename(target)
        except FileNotFoundError:
            if target.parent.exists() or not made.exists():
                raise
            continue  # another process has just removed the empty folder
        break
    _sync(target.parent)


def delete(path: Path) -> None:
    """Remove a file, and its folder if that is then empty.

    Raises:
        OSError: it cannot be removed.
    """
    path.unlink(missing_ok=True)
    with suppress(OSError):  # not empty
        path.parent.rmdir()


def _make(folder: Path) -> None:
    """Create a folder and its parents durably: they and their files survive a power cut."""
    if not folder.is_dir():
        _make(folder.parent)
        folder.mkdir(mode=DIRECTORY_MODE, exist_ok=True)
        _sync(folder.parent)


def _sync(folder: Path) -> None:
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
