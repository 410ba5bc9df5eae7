"""File systems of a test's own: small ones, which are soon full, and views that cannot be written.

Mounting needs rights; without them a test is skipped with the reason.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def small_disk(folder: Path, size: str) -> Iterator[Path]:
    """An empty file system of a size such as `160m`, at a folder that is made."""
    folder.mkdir()
    with _mounted(folder, "-t", "tmpfs", "-o", f"size={size}", "tmpfs"):
        yield folder


@contextmanager
def read_only(folder: Path, source: Path) -> Iterator[Path]:
    """The files of `source` at a folder that is made, which cannot be written there."""
    folder.mkdir()
    with _mounted(folder, "--bind", "-o", "ro", str(source)):
        if not os.statvfs(folder).f_flag & os.ST_RDONLY:  # older versions of mount bind first
            _mount("-o", "remount,bind,ro", str(folder))
        yield folder


def fill(folder: Path) -> Path:
    """Take all room of a file system; returns the file that has it."""
    ballast = folder / "ballast"
    for size in (1 << 16, 1):
        with ballast.open("ab", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(bytes(size))
    return ballast


@contextmanager
def _mounted(folder: Path, *how: str) -> Iterator[None]:
    _mount(*how, str(folder))
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=False)


def _mount(*how: str) -> None:
    done = subprocess.run(["mount", *how], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"no file system can be mounted here: {done.stderr.strip()}")
