"""Tracking of growing files and their read positions across restarts, rotation and truncation.

Theory of operation. The position of each file is saved: how many bytes of whole lines have been published, a digest
of its first bytes, which identifies the file if it is renamed or replaced, and one of the bytes before the position,
which tell whether it was rewritten. What a file that is rotated away says last is read under any name that begins as
its own. After a restart a growing file is read from
its beginning, to know its sessions, but records before its position are not published again. A position is saved once
its events are acknowledged; events published twice because of a crash in between have the same ids and change nothing.
"""

from __future__ import annotations

import glob
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import orjson

from ..errors import TrustfoldError
from ..security.private_files import make_directory, replace_file
from . import ImportRun, LogDefaults
from .following import GrowingLog, LogMarks, growing

SUFFIX = ".jsonl"  # Suffix of logs found in a directory; a file given by name may have any suffix
HEAD_BYTES = 512  # Number of first bytes that identify a file; they include the session id of a log line
CHUNK_BYTES = 1024 * 1024  # Bytes read of a file before its events are published
RECENT_S = 2 * 86_400  # Sessions idle for less than this may continue in another file, which repeats their lines
Stamp = tuple[int, int, int]  # Inode, time of change and size of a file


class FilePosition(NamedTuple):
    """Published position of a file."""

    offset: int  # bytes of whole lines
    head: str  # digest of the first `size` bytes
    size: int  # number of bytes in the digest, at most `HEAD_BYTES`
    last: str = ""  # digest of as many bytes before the position; empty if an earlier version saved it


@dataclass
class _FollowedFile:
    path: Path
    log: GrowingLog
    marks: LogMarks
    read: int = 0
    last: bytes = b""

    def take(self, data: bytes) -> list[bytes]:
        """Take the next bytes; returns their events."""
        self.read += len(data)
        self.last = (self.last + data)[-HEAD_BYTES:]
        return self.log.take(data)


class FileFollower:
    """Tracker of all files below some paths."""

    def __init__(
        self, paths: Sequence[Path], places: Path, *, run: ImportRun, workspace: str = "", from_start: bool = False
    ) -> None:
        """Continue at the positions in `places`; without that file, at the ends, or the beginnings (`from_start`)."""
        self.run = run  # import state, with the skipped lines of all files
        self._paths = paths
        self._file = places
        self._workspace = workspace
        self._marks: set[str] = set()
        self._said: set[bytes] = set()
        self._files: dict[Path, _FollowedFile] = {}
        self._stamps: dict[Path, Stamp] = {}
        known = _read_places(places)
        self._places = known or {}
        found = list(self.found())
        if known is None:
            ends = {} if from_start else {str(path): place_at_the_end(path) for path in found}
            self._places = {path: place for path, place in ends.items() if place is not None}
            self._keep()  # events from now on are new for a first run, too
        self._look_for_renamed(found, map(Path, list(self._places)))
        for path in self.found():
            if str(path) in self._places and _age_of(path) < RECENT_S:
                self._take_up(path)

    def found(self) -> Iterator[Path]:
        """All current logs, sorted by name, after those that were rotated away."""
        named = [path for path in self._paths if path.is_file()]
        below = [sorted(path.rglob(f"*{SUFFIX}")) for path in self._paths if path.is_dir()]
        logs = dict.fromkeys([*named, *(file for files in below for file in files if file.is_file())])
        yield from (path for name in list(self._places) if (path := Path(name)) not in logs and path.is_file())
        yield from logs

    def news(self) -> Iterator[tuple[Path, list[bytes]]]:
        """Yield new events, file by file; call `published` before taking the next batch."""
        stamps = {path: stamp for path in self.found() if (stamp := _stamp_of(path)) is not None}
        self._look_for_renamed(
            stamps, [path for path, known in self._stamps.items() if _is_cut(stamps.get(path), known)]
        )
        for path in self.found():
            stamp = _stamp_of(path)
            if stamp is None or self._stamps.get(path) == stamp:
                continue
            while True:
                try:
                    events, more = self._more_of(path)
                except OSError as error:  # it may be back at the next poll
                    self.run.skipped.add(str(path), 0, error.strerror or str(error))
                    break
                if events:
                    yield path, events
                if not more:
                    self._stamps[path] = stamp
                    break

    def published(self, path: Path) -> None:
        """Save the position of a file whose events have been acknowledged.

        Raises:
            TrustfoldError: the position cannot be saved.
        """
        file = self._files[path]
        place = _place_at(path, file.log.taken)
        if self._places.get(str(path)) != place:
            self._places[str(path)] = place
            self._keep()

    def _keep(self) -> None:
        written = {path: place._asdict() for path, place in sorted(self._places.items())}
        try:
            make_directory(self._file.parent)
            replace_file(self._file, orjson.dumps({"files": written}).decode())
        except OSError as error:
            raise TrustfoldError(
                f"{self._file}: cannot be written ({error.strerror}); it holds the positions of published events"
            ) from error

    def _more_of(self, path: Path) -> tuple[list[bytes], bool]:
        """Events of the next chunk of a file, and whether there may be more."""
        with path.open("rb") as opened:
            size = os.fstat(opened.fileno()).st_size
            file = self._files.get(path)
            place = self._places.get(str(path))
            if file is None:
                if place is not None and size == place.offset and _is_same(path, place):
                    return [], False
                file = self._take_up(path)
            elif (
                size < file.read
                or _piece(opened, file.read - len(file.last), len(file.last)) != file.last
                or (place is not None and not _is_same(path, place))
            ):
                file = self._again(file)
            data = _piece(opened, file.read)
        new = [event for event in file.take(data) if _id_of(event) not in self._said]
        self._said.update(map(_id_of, new))
        if not new and data:
            self.published(path)
        return new, file.read < size

    def _take_up(self, path: Path) -> _FollowedFile:
        """Read a file up to its position, to restore the state of its sessions."""
        file = self._open(path)
        place = self._places.get(str(path))
        if place is None or not _is_same(path, place):
            self._places.pop(str(path), None)
            return file
        with path.open("rb") as opened:
            while file.read < place.offset and (data := _piece(opened, file.read, place.offset - file.read)):
                self._said.update(map(_id_of, file.take(data)))
        return file

    def _look_for_renamed(self, found: Iterable[Path], gone: Iterable[Path]) -> None:
        """Move the state of files that are gone to their new names: of a log, or of any file beside it named alike."""
        new = [path for path in found if path not in self._files and str(path) not in self._places]
        moves: dict[Path, Path] = {}
        for old in gone:
            self._stamps.pop(old, None)
            place = self._places.get(str(old))
            if place is None or not place.size or _is_same(old, place):
                continue
            beside = sorted(old.parent.glob(f"{glob.escape(old.stem)}*"))
            moved = (path for path in (*new, *beside) if path not in moves.values() and _is_same(path, place))
            if (path := next(moved, None)) is not None:
                moves[old] = path
        places = {path: self._places.pop(str(old)) for old, path in moves.items()}
        files = {path: self._files.pop(old) for old, path in moves.items() if old in self._files}
        self._places |= {str(path): place for path, place in places.items()}
        for path, file in files.items():
            file.path = path
        self._files |= files

    def _again(self, old: _FollowedFile) -> _FollowedFile:
        """Read a truncated or replaced file from its beginning; repeated events are recognised by their ids."""
        old.marks.forget()
        self._places.pop(str(old.path), None)
        return self._open(old.path)

    def _open(self, path: Path) -> _FollowedFile:
        about = LogDefaults("", self._workspace, path.stem, str(path), self.run)
        log, marks = growing(about, self._marks)
        self._files[path] = _FollowedFile(path, log, marks)
        return self._files[path]


def place_at_the_end(path: Path) -> FilePosition | None:
    """Position after the last whole line of a file; None if it cannot be read."""
    try:
        with path.open("rb") as file:
            end = at = file.seek(0, os.SEEK_END)
            while at > 0:
                begin = max(0, at - CHUNK_BYTES)
                if (found := _piece(file, begin, at - begin).rfind(b"\n")) >= 0:
                    end = begin + found + 1
                    break
                at = begin
            else:
                end = 0
    except OSError:
        return None
    return _place_at(path, end)


def _place_at(path: Path, offset: int) -> FilePosition:
    """Position in a file, with the digests of what stands there."""
    size = min(HEAD_BYTES, offset)
    return FilePosition(offset, _digest_of(path, 0, size), size, _digest_of(path, offset - size, size))


def _piece(file: BinaryIO, offset: int, most: int = CHUNK_BYTES) -> bytes:
    file.seek(offset)
    return file.read(min(most, CHUNK_BYTES))


def _is_same(path: Path, place: FilePosition) -> bool:
    """True if a position belongs to the file."""
    if _digest_of(path, 0, place.size) != place.head:
        return False
    return not place.last or _digest_of(path, place.offset - place.size, place.size) == place.last


def _is_cut(stamp: Stamp | None, known: Stamp) -> bool:
    """True if there is another file than before, a shorter one or none."""
    return stamp is None or stamp[0] != known[0] or stamp[2] < known[2]


def _stamp_of(path: Path) -> Stamp | None:
    """Stamp of a file; None without a file."""
    try:
        about = path.stat()
    except OSError:
        return None
    return about.st_ino, about.st_mtime_ns, about.st_size


def _digest_of(path: Path, offset: int, size: int) -> str:
    """Digest of some bytes of a file; empty if it cannot be read, or ends before."""
    try:
        with path.open("rb") as file:
            data = _piece(file, offset, size)
    except OSError:
        return ""
    return blake2b(data, digest_size=16).hexdigest() if len(data) == size else ""


def _id_of(event: bytes) -> bytes:
    found: dict[str, Any] = orjson.loads(event)
    return blake2b(str(found["id"]).encode(), digest_size=8).digest()


def _age_of(path: Path) -> float:
    try:
        return time.time() - path.stat().st_mtime
    except OSError:
        return RECENT_S


def _read_places(file: Path) -> dict[str, FilePosition] | None:
    """Saved positions; None if there are none or they cannot be read."""
    try:
        kept = orjson.loads(file.read_bytes())["files"]
        return {
            str(path): FilePosition(int(one["offset"]), str(one["head"]), int(one["size"]), str(one.get("last", "")))
            for path, one in kept.items()
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
