"""Files and directories that only their owner can read: what agents did is nobody else's business."""

from __future__ import annotations

import os
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
