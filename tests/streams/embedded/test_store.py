"""The file of the embedded engine: one process, our own format, readers beside the writer."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from scenarios import cli_command_failures
from trustfold.errors import StateIncompatible
from trustfold.rules.rules import RuleSet
from trustfold.streams.embedded.engine import EmbeddedEngine
from trustfold.streams.embedded.store import StoreError, StoreLocked
from trustfold.streams.embedded.store_views import StoreViews

HOLD = """
import sys
from trustfold.streams.embedded.engine import EmbeddedEngine
engine = EmbeddedEngine.open(sys.argv[1])
engine.announce("http://127.0.0.1:8321")
print("open", flush=True)
sys.stdin.read()
"""


def test_a_second_process_is_refused_in_plain_words(tmp_path: Path) -> None:
    """While one process has the store another is told which one, and where it answers; a killed one blocks nobody."""
    path = tmp_path / "store.sqlite"
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "open\n"
        with pytest.raises(StoreLocked, match=rf"in use by process {holder.pid}; ask it with --url http") as refused:
            EmbeddedEngine.open(path)
        assert refused.value.address == "http://127.0.0.1:8321"
        assert str(path) in str(refused.value)
        holder.kill()
    EmbeddedEngine.open(path).close()


def test_the_same_process_cannot_open_it_twice(tmp_path: Path) -> None:
    """Two engines over one file would fold twice, so the second is refused while the first is open; by a link, too."""
    first = EmbeddedEngine.open(tmp_path / "store.sqlite")
    (tmp_path / "link.sqlite").symlink_to("store.sqlite")
    for name in ("store.sqlite", "link.sqlite"):
        with pytest.raises(StoreLocked, match=rf"in use by process {os.getpid()}; wait for it to end"):
            EmbeddedEngine.open(tmp_path / name)
    first.close()
    EmbeddedEngine.open(tmp_path / "store.sqlite").close()


def test_readers_see_commits_while_the_engine_runs(tmp_path: Path) -> None:
    """A read-only view of an open store shows every batch that was acknowledged, and never locks the writer."""
    path = tmp_path / "store.sqlite"
    with EmbeddedEngine.open(path, RuleSet()) as engine:
        views = StoreViews.open(path)
        assert views.states() == {}
        for _, value in cli_command_failures().records:
            engine.ingest([value])
            assert views.states() == engine.views.states()
            assert views.decisions() == engine.views.decisions()
        assert views.states()
        assert views.next_offset() == views.decisions(["state", "escalations"])[-1].offset + 1
        views.close()


def test_a_missing_store_is_an_error_for_readers(tmp_path: Path) -> None:
    """A reader does not make a store where there is none."""
    with pytest.raises(StoreError, match="no such store; `trustfold up --store"):
        StoreViews.open(tmp_path / "none.sqlite")
    assert list(tmp_path.iterdir()) == []


def test_folders_are_made(tmp_path: Path) -> None:
    """The engine makes the folders on the way to a new store."""
    EmbeddedEngine.open(tmp_path / "a" / "b" / "store.sqlite").close()
    assert (tmp_path / "a" / "b" / "store.sqlite").is_file()


def test_foreign_files_are_left_alone(tmp_path: Path) -> None:
    """A text file or somebody else's database is refused, and not changed."""
    text = tmp_path / "notes.txt"
    text.write_text("not a database, but long enough to be taken for one\n" * 40)
    other = tmp_path / "other.sqlite"
    with sqlite3.connect(other) as connection:
        connection.execute("CREATE TABLE theirs (x)")
    connection.close()
    for path in (text, other):
        before = path.read_bytes()
        for opening in (EmbeddedEngine.open, StoreViews.open):
            with pytest.raises(StoreError, match="not a trustfold store"):
                opening(path)
        assert path.read_bytes() == before


def test_other_formats_are_refused(tmp_path: Path) -> None:
    """A store that a newer trustfold wrote says so."""
    path = tmp_path / "store.sqlite"
    EmbeddedEngine.open(path).close()
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version=99")
    connection.close()
    with pytest.raises(StoreError, match="store of format 99, this trustfold reads format 1"):
        EmbeddedEngine.open(path)


def test_states_of_another_version_are_refused_before_anything_is_folded(tmp_path: Path) -> None:
    """States this version cannot read stop it at the start, not in the middle of somebody's batch."""
    path = tmp_path / "store.sqlite"
    with EmbeddedEngine.open(path, RuleSet()) as engine:
        engine.ingest([value for _, value in cli_command_failures().records])
    with sqlite3.connect(path) as connection:
        connection.execute(
            "UPDATE states SET snapshot = CAST(X'63' || substr(snapshot, 2) AS BLOB) WHERE stage = 'tool'"
        )
    connection.close()
    with pytest.raises(StateIncompatible, match="tool states have version 99"):
        EmbeddedEngine.open(path)


def test_a_half_made_store_is_finished(tmp_path: Path) -> None:
    """A file from a process that was killed before the tables were made is taken for a new one."""
    path = tmp_path / "store.sqlite"
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.close()
    with EmbeddedEngine.open(path) as engine:
        assert engine.views.decisions() == []
