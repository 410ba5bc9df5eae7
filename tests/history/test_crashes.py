"""A recorder killed at any point, and analysts who read while it writes."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from busy_agents import busy_agents
from recorded import rows
from trustfold.history.catalogue import connect
from trustfold.history.files import TEMPORARY, data_files
from trustfold.history.recorder import PartitionRecorder
from trustfold.rules.rules import RuleSet
from trustfold.streams.embedded.engine import EmbeddedEngine
from trustfold.streams.embedded.store_views import StoreViews
from warm_process import WarmProcess

KILLS = 10

RECORD = """
import sys
from pathlib import Path
from trustfold.history import compaction
from trustfold.history.recorder import PartitionRecorder

root, source = Path(sys.argv[1]), sys.argv[2]
per_file, grace, rounds = int(sys.argv[3]), float(sys.argv[4]), int(sys.argv[5])
compaction.GRACE_S = compaction.tidy.__kwdefaults__["grace_s"] = grace
compaction.ENOUGH = 3
lines = open(source, "rb").read().splitlines() * rounds
recorder = PartitionRecorder(root, max_rows=per_file)
recorder.own("events", 0)
print("ready", flush=True)
flushes = 0
for offset, line in enumerate(lines):
    recorder.add("events", 0, offset, 1767607200000 + offset * 40_000, None, line)
    if recorder.full:
        recorder.flush()
        flushes += 1
        if flushes % 4 == 0:
            recorder.tidy()
        print("written", offset, flush=True)
recorder.flush()
print("done", flush=True)
"""
"""Reads its source from the beginning at every start, as one that remembers nothing; days pass as it goes."""


DEADLY = """
import os, signal, sys
from pathlib import Path

left = [int(sys.argv.pop())]

def deadly(call):
    def killed(*arguments, **options):
        for done in (False, True):
            left[0] -= 1
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            if not done:
                found = call(*arguments, **options)
        return found
    return killed

os.fsync = deadly(os.fsync)
for name in ("rename", "unlink", "mkdir", "rmdir"):
    setattr(Path, name, deadly(getattr(Path, name)))
"""
"""Kills its own process just before or just after one of the calls that change the directory: the last argument says
which."""


def recording(
    root: Path, source: Path, *, per_file: int = 20, grace_s: float = 0, rounds: int = 1
) -> subprocess.Popen[str]:
    """A process that records."""
    arguments = [str(root), str(source), str(per_file), str(grace_s), str(rounds)]
    return WarmProcess([sys.executable, "-c", RECORD, *arguments], stdout=subprocess.PIPE, text=True)


def spin(seconds: float) -> None:
    """Let a random moment pass, without giving up the processor for longer than it."""
    moment = time.perf_counter() + seconds
    while time.perf_counter() < moment:
        pass


def source_of(path: Path, sessions: int, calls: int) -> list[bytes]:
    """Events in a file, one a line."""
    lines = [value for _, value in busy_agents(sessions, calls)]
    path.write_bytes(b"\n".join(lines))
    return lines


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_a_killed_recorder_loses_and_doubles_nothing(seed: int, tmp_path: Path) -> None:
    """Killed at ten random points, while it writes, merges and deletes: the files hold every id once, in order."""
    lines = source_of(tmp_path / "events.ndjson", 30, 40)
    root = tmp_path / "history"
    chance = random.Random(seed)
    for _ in range(KILLS):
        with recording(root, tmp_path / "events.ndjson") as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            for _ in range(chance.randrange(6)):
                process.stdout.readline()
            spin(chance.random() * 0.03)
            process.send_signal(signal.SIGKILL)
    with recording(root, tmp_path / "events.ndjson") as process:
        assert process.stdout is not None
        assert process.stdout.read().endswith("done\n")
    recorded = rows(root, "SELECT \"offset\", record->>'$.id' FROM recorded_events ORDER BY 1")
    assert [offset for offset, _ in recorded] == list(range(len(lines)))
    assert all(f'"id":"{made}"'.encode() in line for (_, made), line in zip(recorded, lines, strict=True))
    PartitionRecorder(root).close()
    assert list((root / TEMPORARY).iterdir()) == [], "what the killed ones left is gone"


@pytest.mark.slow
def test_killed_at_any_change_of_the_directory_it_loses_and_doubles_nothing(tmp_path: Path) -> None:
    """Between a rename and what makes it last, within a merge, between two deletions: nothing depends on luck."""
    lines = source_of(tmp_path / "events.ndjson", 8, 20)
    root = tmp_path / "history"
    chance = random.Random(3)
    deaths = 0
    for calls in [*(chance.randrange(1, 40) for _ in range(10)), 1 << 30]:
        arguments = [str(root), str(tmp_path / "events.ndjson"), "20", "0", "1", str(calls)]
        command = [sys.executable, "-c", DEADLY + RECORD, *arguments]
        with WarmProcess(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            _, said = process.communicate()
        assert process.returncode in {0, -signal.SIGKILL}, said
        deaths += process.returncode != 0
        if list(data_files(root)):
            offsets = [row[0] for row in rows(root, 'SELECT "offset" FROM recorded_events ORDER BY 1')]
            assert offsets == list(range(len(offsets)))
    assert deaths > 5
    assert len(offsets) == len(lines)


@pytest.mark.slow
def test_a_killed_copy_of_a_store_ends_as_the_store(tmp_path: Path) -> None:
    """`trustfold record` killed ten times: row counts and ids of every topic are those of the log and the outputs."""
    store, root = tmp_path / "store.sqlite", tmp_path / "history"
    with EmbeddedEngine.open(store, RuleSet()) as engine:
        values = [value for _, value in busy_agents(20, 60)]
        for first in range(0, len(values), 100):
            engine.ingest(values[first : first + 100], arrived_ms=1_767_607_200_000 + first)
            engine.tick(engine.stream_time - 60_000, arrived_ms=1_767_607_200_000 + first)
    chance = random.Random(7)
    command = [sys.executable, "-m", "trustfold", "record", "--store", store, "--history", root, "--flush", "0.001"]
    for _ in range(KILLS):
        with WarmProcess([*map(str, command)], stderr=subprocess.PIPE, text=True) as process:
            assert process.stderr is not None
            assert "recording" in process.stderr.readline()
            spin(chance.random() * 0.15)
            process.send_signal(signal.SIGKILL)
    subprocess.run([*map(str, command), "--once"], check=True, capture_output=True)
    tail = StoreViews.open(store)
    log, outputs = tail.log(0, 1_000_000), tail.outputs(0, 1_000_000)
    tail.close()
    expected = sorted((one.topic, one.offset) for one in log)
    expected += [(one.topic, one.offset) for one in outputs if one.topic != "events"]
    query = " UNION ALL ".join(
        f"SELECT '{topic}', \"offset\" FROM recorded_{topic}"
        for topic in (
            "events",
            "commands",
            "rules",
            "outcomes",
            "escalations",
            "breakers",
            "nudges",
            "suggestions",
            "state",
        )
    )
    found = rows(root, f"FROM ({query}) UNION ALL SELECT 'dead-letters', \"offset\" FROM recorded_dead_letters")
    appended = {one.offset for one in outputs if one.topic == "events"}
    assert appended, "calls that never finish are part of it"
    recorded = [(topic, offset) for topic, offset in found]
    for offset in appended:
        recorded.remove(("events", offset))  # once from the outputs; offsets of the log are others' business
    assert sorted(recorded) == sorted(expected)
    ids = [row[0] for row in rows(root, "SELECT id FROM events")]
    assert len(ids) == len(set(ids))


@pytest.mark.slow
def test_analysts_read_while_the_recorder_writes(tmp_path: Path) -> None:
    """Every look in between sees whole files: no row missing below the highest, none twice, never fewer than before."""
    source_of(tmp_path / "events.ndjson", 20, 40)
    root = tmp_path / "history"
    seen: list[int] = []
    with recording(root, tmp_path / "events.ndjson", per_file=150, grace_s=3600, rounds=12) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.stdout.readline()
        with connect(root, threads=1, query="recorded_events") as connection:
            while process.poll() is None:
                count, distinct, beyond = connection.execute(
                    'SELECT count(*), count(DISTINCT "offset"), max("offset") + 1 FROM recorded_events'
                ).fetchall()[0]
                assert count == distinct == beyond
                assert count >= (seen[-1] if seen else 1)
                seen.append(count)
        assert process.stdout.read().endswith("done\n")
    assert len(set(seen)) > 3, "the recorder wrote while we looked"
    assert len(list(data_files(root))) > 5
