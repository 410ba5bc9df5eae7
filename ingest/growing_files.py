"""Tracking of growing files and their read positions across restarts, rotation and truncation.

Theory of operation. The position of each file is saved: how many bytes of whole lines have been published, and a digest
of its first bytes, which identifies the file if it is renamed or replaced. After a restart a growing file is read from
its beginning, to know its sessions, but records before its position are not published again. A position is saved once
its events are acknowledged; events published twice because of a crash in between have the same ids and change nothing.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from ..errors import TrustfoldError
from ..security.private_files import make_directory, replace_file
from . import Defaults, Run
from .following import Growing, Marks, growing

SUFFIX = ".jsonl"
"""Suffix of logs found in a directory; a file given by name may have any suffix."""

HEAD_BYTES = 512
"""Number of first bytes that identify a file; they include the session id of a log line."""

CHUNK_BYTES = 1024 * 1024
"""Bytes read of a file before its events are published."""

RECENT_S = 2 * 86_400
"""Sessions idle for less than this may continue in another file, which repeats their lines."""


class Place(NamedTuple):
    """Published position of a file.

    Attributes:
        offset: bytes of whole lines.
        head: digest of the first `size` bytes.
        size: number of bytes in the digest, at most `HEAD_BYTES`.
    """

    offset: int
    head: str
    size: int


@dataclass
class _File:
    path: Path
    log: Growing
    marks: Marks
    read: int = 0
    said: set[bytes] = field(default_factory=set)


class Following:
    """Tracker of all files below some paths.

    Attributes:
        run: import state, with the skipped lines of all files.
    """

    def __init__(
        self, paths: Sequence[Path], places: Path, *, run: Run, workspace: str = "", from_start: bool = False
    ) -> None:
        """Continue at the positions in `places`; without that file, at the ends, or the beginnings (`from_start`)."""
        self.run = run
        self._paths = paths
        self._file = places
        self._workspace = workspace
        self._marks: set[str] = set()
        self._files: dict[Path, _File] = {}
        self._stamps: dict[Path, tuple[int, int, int]] = {}
        known = _read_places(places)
        self._places = known or {}
        found = list(self.found())
        if known is None:
            ends = {} if from_start else {str(path): place_at_the_end(path) for path in found}
            self._places = {path: place for path, place in ends.items() if place is not None}
            self._keep()  # events from now on are new for a first run, too
        self._look_for_renamed(found)
        for path in found:
            if str(path) in self._places and _age_of(path) < RECENT_S:
                self._take_up(path)

    def found(self) -> Iterator[Path]:
        """All current logs, sorted by name."""
        for path in self._paths:
            if path.is_dir():
                yield from sorted(file for file in path.rglob(f"*{SUFFIX}") if file.is_file())
            elif path.is_file():
                yield path

    def news(self) -> Iterator[tuple[Path, list[bytes]]]:
        """Yield new events, file by file; call `published` before taking the next batch."""
        found = list(self.found())
        self._look_for_renamed(found)
        for path in found:
            try:
                about = path.stat()
            except OSError:  # it was deleted since
                continue
            stamp = (about.st_ino, about.st_mtime_ns, about.st_size)
            if self._stamps.get(path) == stamp:
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
        head = _first(path, min(HEAD_BYTES, file.log.taken))
        place = Place(file.log.taken, _digest(head), len(head))
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
        file = self._files.get(path)
        size = path.stat().st_size
        place = self._places.get(str(path))
        if file is None:
            if place is not None and size == place.offset and _is_same(path, place):
                return [], False
            file = self._take_up(path)
        elif size < file.read or (place is not None and not _is_same(path, place)):
            file = self._again(file)
        if size <= file.read:
            return [], False
        data = _piece(path, file.read)
        file.read += len(data)
        events = file.log.take(data)
        new = [event for event in events if _id_of(event) not in file.said]
        file.said.update(map(_id_of, new))
        if not new and data:
            self.published(path)
        return new, file.read < size

    def _take_up(self, path: Path) -> _File:
        """Read a file up to its position, to restore the state of its sessions."""
        file = self._open(path)
        place = self._places.get(str(path))
        if place is None or not _is_same(path, place):
            self._places.pop(str(path), None)
            return file
        while file.read < place.offset:
            data = _piece(path, file.read, place.offset - file.read)
            if not data:
                break
            file.read += len(data)
            file.said.update(map(_id_of, file.log.take(data)))
        return file

    def _look_for_renamed(self, found: Sequence[Path]) -> None:
        """Move the state of renamed files to their new names."""
        for path in found:
            if path in self._files or str(path) in self._places:
                continue
            head = _first(path, HEAD_BYTES)
            for name, place in self._places.items():
                old = Path(name)
                if place.size and _digest(head[: place.size]) == place.head and not _is_same(old, place):
                    self._places[str(path)] = self._places.pop(name)
                    if (file := self._files.pop(old, None)) is not None:
                        file.path = path
                        self._files[path] = file
                    break

    def _again(self, old: _File) -> _File:
        """Read a truncated or replaced file from its beginning; repeated events are recognised by their ids."""
        old.marks.forget()
        self._places.pop(str(old.path), None)
        file = self._open(old.path)
        file.said = old.said
        return file

    def _open(self, path: Path) -> _File:
        about = Defaults("", self._workspace, path.stem, str(path), self.run)
        log, marks = growing(about, self._marks)
        self._files[path] = _File(path, log, marks)
        return self._files[path]


def place_at_the_end(path: Path) -> Place | None:
    """Position after the last whole line of a file; None if it cannot be read."""
    try:
        with path.open("rb") as file:
            head = file.read(HEAD_BYTES)
            end = at = file.seek(0, os.SEEK_END)
            while at > 0:
                begin = max(0, at - CHUNK_BYTES)
                file.seek(begin)
                if (found := file.read(at - begin).rfind(b"\n")) >= 0:
                    end = begin + found + 1
                    break
                at = begin
            else:
                end = 0
    except OSError:
        return None
    head = head[:end]
    return Place(end, _digest(head), len(head))


def _piece(path: Path, offset: int, most: int = CHUNK_BYTES) -> bytes:
    with path.open("rb") as file:
        file.seek(offset)
        return file.read(min(most, CHUNK_BYTES))


def _is_same(path: Path, place: Place) -> bool:
    """True if a position belongs to the file."""
    try:
        return path.stat().st_size >= place.offset and _digest(_first(path, place.size)) == place.head
    except OSError:
        return False


def _first(path: Path, size: int) -> bytes:
    """First bytes of a file; empty if it cannot be read."""
    try:
        with path.open("rb") as file:
            return file.read(size)
    except OSError:
        return b""


def _digest(data: bytes) -> str:
    return blake2b(data, digest_size=16).hexdigest()


def _id_of(event: bytes) -> bytes:
    found: dict[str, Any] = orjson.loads(event)
    return blake2b(str(found["id"]).encode(), digest_size=8).digest()


def _age_of(path: Path) -> float:
    try:
        return time.time() - path.stat().st_mtime
    except OSError:
        return RECENT_S


def _read_places(file: Path) -> dict[str, Place] | None:
    """Saved positions; None if there are none or they cannot be read."""
    try:
        kept = orjson.loads(file.read_bytes())["files"]
        return {str(path): Place(int(one["offset"]), str(one["head"]), int(one["size"])) for path, one in kept.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
