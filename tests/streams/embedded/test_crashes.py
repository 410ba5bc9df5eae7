"""A kill or a fault at any point: nothing acknowledged is lost, nothing is doubled, the outputs are the same."""

from __future__ import annotations

import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from scenarios import ALL
from trustfold.rules.rules import RuleSet
from trustfold.streams.embedded.engine import EmbeddedEngine, SubmitRequest
from trustfold.streams.embedded.store import StoreError
from warm_process import WarmProcess

BATCH = 7
KILLS = 6

INGEST = """
import sys
from trustfold.streams.embedded.engine import EmbeddedEngine, SubmitRequest
lines = open(sys.argv[2], "rb").read().splitlines()
engine = EmbeddedEngine.open(sys.argv[1])
for first in range(0, len(lines), int(sys.argv[3])):
    (receipt,) = engine.submit([SubmitRequest("events", lines[first : first + int(sys.argv[3])], b"batch %d" % first)])
    print("repeated" if receipt.repeated else "new", first, flush=True)
engine.tick(engine.stream_time)
print("done", flush=True)
"""
"""A publisher that sends everything from the start again, as one does that does not know what was acknowledged."""


def a_day() -> list[bytes]:
    """Events of many sessions and workspaces, some hundred."""
    lines: list[bytes] = []
    for number in range(12):
        for name, story in sorted(ALL.items()):
            for _, value in story().records:
                told = value.replace(b'"w1"', b'"w%d"' % (number % 3)).replace(b'"00000000-', b'"%08d-' % number)
                lines.append(told.replace(b'"session_id":"', b'"session_id":"%d-%b-' % (number, name.encode())))
    return lines


def contents(path: Path) -> dict[str, list[Any]]:
    """Everything the store holds."""
    connection = sqlite3.connect(path)
    try:
        tables = ("log", "outputs", "states", "public", "positions")
        return {name: connection.execute(f"SELECT * FROM {name} ORDER BY 1, 2").fetchall() for name in tables}
    finally:
        connection.close()


def undisturbed(path: Path, lines: list[bytes]) -> dict[str, list[Any]]:
    """What the store holds after a run that nothing interrupts."""
    with EmbeddedEngine.open(path, RuleSet()) as engine:
        for first in range(0, len(lines), BATCH):
            engine.submit([SubmitRequest("events", lines[first : first + BATCH], b"batch %d" % first)])
        engine.tick(engine.stream_time)
    return contents(path)


def started(store: Path, events: Path) -> subprocess.Popen[str]:
    """A process that ingests."""
    return WarmProcess(
        [sys.executable, "-c", INGEST, str(store), str(events), str(BATCH)], stdout=subprocess.PIPE, text=True
    )


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 4))])
def test_a_killed_process_loses_and_doubles_nothing(seed: int, tmp_path: Path) -> None:
    """Killed again and again at random points and sent everything again, the store ends as if nothing had happened."""
    lines = a_day()
    events = tmp_path / "events.ndjson"
    events.write_bytes(b"\n".join(lines))
    expected = undisturbed(tmp_path / "undisturbed.sqlite", lines)
    chance = random.Random(seed)
    store = tmp_path / "store.sqlite"
    acknowledged: set[str] = set()
    for _ in range(KILLS):
        with started(store, events) as process:
            assert process.stdout is not None
            for line in _until(process.stdout, new=chance.randrange(1, 12)):
                state, first = line.split()
                assert state == "repeated" or first not in acknowledged, "acknowledged, and folded again"
                acknowledged.add(first)
            moment = time.perf_counter() + chance.random() * 0.004
            while time.perf_counter() < moment:
                pass
            process.send_signal(signal.SIGKILL)
            # The kill may cut the last line short: what was not said whole was not acknowledged.
            whole = (line for line in process.stdout if line.endswith("\n"))
            acknowledged |= {line.split()[1] for line in whole if line.startswith(("new", "repeated"))}
    with started(store, events) as process:
        assert process.stdout is not None
        assert process.stdout.read().endswith("done\n")
    assert contents(store) == expected


def _until(lines: Iterator[str], *, new: int) -> Iterator[str]:
    """Acknowledgements until so many were for new batches."""
    for line in lines:
        if line.startswith("done"):
            return
        yield line
        new -= line.startswith("new")
        if new <= 0:
            return


class Failing:
    """A connection that fails at its nth statement inside a transaction."""

    def __init__(self, connection: sqlite3.Connection, at: int) -> None:
        self._connection = connection
        self._left = at
        self.failed = False

    def _count(self) -> None:
        if self._connection.in_transaction:
            self._left -= 1
            if self._left == 0:
                self.failed = True
                raise sqlite3.OperationalError("database or disk is full")

    def execute(self, statement: str, *arguments: Any) -> Any:
        """Run a statement, or fail."""
        if not statement.startswith("ROLLBACK"):
            self._count()
        return self._connection.execute(statement, *arguments)

    def executemany(self, statement: str, rows: Any) -> Any:
        """Run a statement over rows, and fail in their midst."""
        done = self._connection.executemany(statement, rows)
        self._count()
        return done

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)


def test_a_fault_at_any_statement_leaves_the_last_commit(tmp_path: Path) -> None:
    """Whichever statement of a batch fails, nothing of it stays, in memory or on disk, and sending it again works."""
    lines = a_day()[:120]
    expected = undisturbed(tmp_path / "undisturbed.sqlite", lines)
    with EmbeddedEngine.open(tmp_path / "store.sqlite", RuleSet()) as engine:
        failed, at = 0, 0
        for first in range(0, len(lines), BATCH):
            request = SubmitRequest("events", lines[first : first + BATCH], b"batch %d" % first)
            at += 1
            sound = engine._store.connection
            faulty = Failing(sound, at)
            engine._store.connection = faulty  # type: ignore[assignment]
            try:
                engine.submit([request])
            except StoreError:
                failed += 1
            else:
                assert not faulty.failed
                at = 0
            finally:
                engine._store.connection = sound
            engine.submit([request])
        engine.tick(engine.stream_time)
    assert failed > 10
    assert contents(tmp_path / "store.sqlite") == expected


def test_a_full_disk_is_told_and_survived(tmp_path: Path) -> None:
    """When SQLite can grow no more the batch is refused in plain words; with room again, the same batch goes in."""
    lines = a_day()
    with EmbeddedEngine.open(tmp_path / "store.sqlite", RuleSet()) as engine:
        engine.ingest(lines[:20])
        before = engine.views.decisions(limit=10_000)
        pages = engine._store.connection.execute("PRAGMA page_count").fetchone()[0]
        engine._store.connection.execute(f"PRAGMA max_page_count={pages}")
        with pytest.raises(StoreError, match="the disk is full; nothing of the last write was kept"):
            engine.ingest(lines[20:])
        assert engine.views.decisions(limit=10_000) == before
        engine._store.connection.execute("PRAGMA max_page_count=1000000")
        engine.ingest(lines[20:])
        engine.tick(engine.stream_time)
    whole = undisturbed(tmp_path / "undisturbed.sqlite", lines)
    assert contents(tmp_path / "store.sqlite")["outputs"] == whole["outputs"]


def test_a_store_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    """When states cannot be read back the batch is refused as our error; nothing of it is in the next commit."""
    lines = a_day()[:40]
    with EmbeddedEngine.open(tmp_path / "store.sqlite", RuleSet()) as engine:
        engine.ingest(lines[:20])
    with EmbeddedEngine.open(tmp_path / "store.sqlite") as engine:
        run = engine._store.connection.execute
        run("ALTER TABLE states RENAME COLUMN snapshot TO hidden")
        for _ in range(2):
            with pytest.raises(StoreError, match="no such column: snapshot"):
                engine.ingest(lines[20:])
            with pytest.raises(StoreError, match="no such column: snapshot"):
                engine.next_due()
        run("ALTER TABLE states RENAME COLUMN hidden TO snapshot")
        engine.ingest(lines[20:])
        engine.tick(engine.stream_time)
    whole = undisturbed(tmp_path / "undisturbed.sqlite", lines)
    assert contents(tmp_path / "store.sqlite")["outputs"] == whole["outputs"]
