"""Files and directories that only their owner can read: what agents did is nobody else's business."""

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
    """Make a directory and those above it for the owner alone; those that exist stay as they are.

    Raises:
        OSError: it cannot be made.
    """
    if not path.is_dir():
        if path.parent != path:
            make_directory(path.parent)
        path.mkdir(mode=DIRECTORY_MODE, exist_ok=True)


def make_file(path: Path) -> None:
    """Make an empty file for the owner alone; one that exists stays as it is.

    Raises:
        OSError: it cannot be made.
    """
    os.close(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, FILE_MODE))


def open_private(path: str | Path) -> BinaryIO:
    """Open a file to be written from its beginning; one that is made is for the owner alone, whatever the umask.

    One that exists keeps its mode: its owner has decided who reads it.

    Raises:
        OSError: it cannot be opened.
    """
    return open(path, "wb", opener=lambda name, flags: os.open(name, flags, FILE_MODE))


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Wait until nobody else changes what is in a directory, which is made, and keep others waiting meanwhile.

    Raises:
        OSError: it cannot be made, or written to.
    """
    make_directory(directory)
    descriptor = os.open(directory / ".lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, FILE_MODE)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def replace_file(path: Path, text: str, mode: int = FILE_MODE) -> None:
    """Write a file in one step: whoever reads it sees the old text or the new one, and never with a wider mode.

    Raises:
        OSError: it cannot be written; the old one stays.
    """
    waiting = path.with_name(f".{path.name}.new")
    waiting.unlink(missing_ok=True)
    descriptor = os.open(waiting, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, FILE_MODE)
    with os.fdopen(descriptor, "wb") as out:
        out.write(text.encode())
    waiting.chmod(mode)
    waiting.replace(path)
