"""Commands on a full disk and on one that is mounted read-only: which path, why, and what to do."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from command_line import trustfold
from mounts import fill, read_only, small_disk
from recorded import small_event
from trustfold.streams.embedded.engine import EmbeddedEngine
from trustfold.streams.embedded.store import StoreError


@pytest.fixture
def full(tmp_path: Path) -> Iterator[Path]:
    """A folder on a full disk."""
    with small_disk(tmp_path / "full", "1m") as disk:
        fill(disk)
        yield disk


@pytest.fixture
def fixed(tmp_path: Path) -> Iterator[Path]:
    """A folder that is mounted read-only, with a store in it."""
    source = tmp_path / "source"
    source.mkdir()
    with EmbeddedEngine.open(source / "s.sqlite") as engine:
        engine.ingest([small_event(1)])
    with read_only(tmp_path / "fixed", source) as folder:
        yield folder


def fault_of(folder: Path, *words: object) -> str:
    """Run a command that must end with 1; returns its message, which is one line."""
    done = trustfold(*map(str, words), cwd=folder)
    assert done.returncode == 1, (done.stdout, done.stderr)
    (said,) = done.stderr.decode().splitlines()
    return said


def doctored(folder: Path, disk: Path) -> dict[str, str]:
    """Advice of `doctor` for a store and a history on a disk, by check; both must be reported as faults."""
    names = {"TRUSTFOLD_DB": str(disk / "new" / "t.sqlite"), "TRUSTFOLD_HISTORY": str(disk / "history")}
    done = trustfold("doctor", "--json", cwd=folder, env=names)
    found = {one["check"]: one for one in json.loads(done.stdout)["checks"] if one["status"] == "fix"}
    return {check: f"{one['found']} → {one['advice']}" for check, one in found.items()}


def events(folder: Path, count: int) -> Path:
    """A file of events."""
    path = folder / "events.ndjson"
    path.write_bytes(b"\n".join(small_event(number) for number in range(count)))
    return path


def test_a_full_disk(full: Path, tmp_path: Path) -> None:
    """Nothing starts, and every message names the path, the disk and another way; `doctor` sees it before."""
    store = full / "t.sqlite"
    assert fault_of(tmp_path, "up", "--store", store, "--port", "0") == (
        f"trustfold: {store}: the disk is full; nothing of the last write was kept: free some space there and try "
        "again, or name another store (--store, TRUSTFOLD_DB)"
    )
    history = full / "new" / "history"
    assert fault_of(tmp_path, "record", events(tmp_path, 1), "--history", history) == (
        f"trustfold: {history}: the disk is full; free some space there, or name another directory (--history, "
        "TRUSTFOLD_HISTORY), and start again: what is recorded stays"
    )
    found = doctored(tmp_path, full)
    assert found.keys() == {"store", "history"}
    for check, variable in (("store", "TRUSTFOLD_DB"), ("history", "TRUSTFOLD_HISTORY")):
        assert "0.0 KiB free of 1.0 MiB: the disk is full → free some space in " in found[check]
        assert f"or name another place ({variable})" in found[check]


def test_a_disk_that_is_full_at_any_step_of_a_start(tmp_path: Path) -> None:
    """However far a store was made, the message is the same."""
    refused = 0
    with small_disk(tmp_path / "small", "1m") as disk:
        ballast = fill(disk)
        store, size = disk / "t.sqlite", ballast.stat().st_size
        for left in range(0, 640 << 10, 16 << 10):
            os.truncate(ballast, size - left)
            try:
                EmbeddedEngine.open(store).close()
            except StoreError as error:
                refused += 1
                assert str(error).startswith(f"{store}: the disk is full; ")  # noqa: PT017 - some starts succeed
            for made in disk.glob("t.sqlite*"):
                made.unlink()
    assert 5 < refused < 40


def test_a_disk_that_fills_up_under_a_recording(tmp_path: Path) -> None:
    """Files of events are read to where there was room; with room again the rest is recorded, and nothing twice."""
    path = events(tmp_path, 3000)
    with small_disk(tmp_path / "small", "600k") as disk:
        said = fault_of(tmp_path, "record", path, "--history", disk / "h")
        assert f"{disk / 'h'}: the disk is full; " in said
        assert "record the same files again: what is there is not recorded twice" in said


def test_a_disk_that_is_mounted_read_only(fixed: Path, tmp_path: Path) -> None:
    """The messages say so, instead of a right that nobody could give."""
    why = "its file system is mounted read-only; mount it for writing, or name another"
    for store in (fixed / "s.sqlite", fixed / "new" / "t.sqlite"):
        assert fault_of(tmp_path, "up", "--store", store, "--port", "0") == (
            f"trustfold: {store}: {why} store (--store, TRUSTFOLD_DB)"
        )
    history = fixed / "history"
    assert fault_of(tmp_path, "record", events(tmp_path, 1), "--history", history) == (
        f"trustfold: {history}: {why} directory (--history, TRUSTFOLD_HISTORY)"
    )
    found = doctored(tmp_path, fixed)
    assert found.keys() == {"store", "history"}
    for check, variable in (("store", "TRUSTFOLD_DB"), ("history", "TRUSTFOLD_HISTORY")):
        assert f"cannot be written: the file system of {fixed} is mounted read-only → mount it" in found[check]
        assert f"name another place ({variable})" in found[check]
