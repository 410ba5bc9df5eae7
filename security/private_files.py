"""Files and directories with access for their owner only, as they hold records of agents' work, and where they lie."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

FILE_MODE = 0o600
DIRECTORY_MODE = 0o700


def make_directory(path: Path) -> None:
    """Create a directory and its parents with access for the owner only; existing ones are unchanged.

    Raises:
        OSError: it cannot be created.
    """
    if not path.is_dir():
        if path.parent != path:
            make_directory(path.parent)
        path.mkdir(mode=DIRECTORY_MODE, exist_ok=True)


def is_read_only(path: Path) -> bool:
    """Whether a path, existing or not, lies on a file system that is mounted read-only."""
    return bool(os.statvfs(existing(path)).f_flag & os.ST_RDONLY)


def existing(path: Path) -> Path:
    """Return a path, or the nearest of its parents that exists, as an absolute path."""
    place = path.absolute()
    while not place.exists():
        place = place.parent
    return place


def make_file(path: Path) -> None:
    """Create an empty file with access for the owner only; an existing one is unchanged.

    Raises:
        OSError: it cannot be created.
    """
    os.close(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, FILE_MODE))


def open_private(path: str | Path) -> BinaryIO:
    """Open a file for writing and truncate it; a new one is accessible to its owner only, whatever the umask.

    An existing file keeps its mode, which its owner has chosen.

    Raises:
        OSError: it cannot be opened.
    """
    return open(path, "wb", opener=lambda name, flags: os.open(name, flags, FILE_MODE))


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Create a directory and hold an exclusive lock on it; waits for other holders.

    Raises:
        OSError: it cannot be created or written to.
    """
    make_directory(directory)
    descriptor = os.open(directory / ".lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, FILE_MODE)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def replace_file(path: Path, text: str, mode: int = FILE_MODE) -> None:
    """Replace a file atomically: readers see the old or the new text, never with wider access.

    Raises:
        OSError: it cannot be written; the old file is unchanged.
    """
    waiting = path.with_name(f".{path.name}.new")
    waiting.unlink(missing_ok=True)
    descriptor = os.open(waiting, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, FILE_MODE)
    with os.fdopen(descriptor, "wb") as out:
        out.write(text.encode())
    waiting.chmod(mode)
    waiting.replace(path)
