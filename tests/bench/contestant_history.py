"""One contestant: records generated events, multiplies the files, and asks every question of the report.

Run by bench_history in a process of its own. Recording and the raw write of the same rows are
timed in processor seconds, all threads together; the questions on the clock with two threads, as the target says.
"""

from __future__ import annotations

import shutil
import sys
import time
from pathlib import Path
from typing import Any

import bench_generated
import duckdb
from bench_process import begin, finish
from trustfold.history.asking import ask
from trustfold.history.catalogue import connect
from trustfold.history.columns import columns_of
from trustfold.history.decision_rows import ROWS
from trustfold.history.event_rows import EventRow
from trustfold.history.files import data_files
from trustfold.history.parquet import ParquetWriter
from trustfold.history.questions import QUESTIONS
from trustfold.history.recorder import Recorder
from trustfold.schemas.rules import Rules
from trustfold.streams.embedded.topology import LocalTopology

ARRIVED = 1_767_607_200_000
BASE = 400_000
"""Events that are really recorded; the rest are copies of their files under other sessions, days and offsets."""

SKIPPED = frozenset({"outcomes", "standings", "events"})


def record(root: Path, lines: list[bytes], outputs: list[Any]) -> float:
    """Record events and decisions; processor seconds for the events."""
    recorder = Recorder(root)
    for topic in ("events", *ROWS):
        recorder.own(topic, 0)
    began = time.process_time()
    for offset, line in enumerate(lines):
        recorder.add("events", 0, offset, ARRIVED, None, line)
        if recorder.full:
            recorder.flush()
    recorder.flush()
    took = time.process_time() - began
    for offset, output in enumerate(outputs):
        recorder.add(output.topic, 0, offset, ARRIVED, output.key.encode(), output.value)
        if recorder.full:
            recorder.flush()
    recorder.flush()
    recorder.close()
    return took


def raw_write(root: Path, lines: list[bytes], folder: Path) -> float:
    """Processor seconds to write the same rows, at hand as Python values, with DuckDB's appender and COPY."""
    folder.mkdir()
    columns = columns_of(EventRow)
    with connect(root, threads=1) as connection:
        names = ", ".join(f'"{name}"' for name in columns)
        rows = connection.execute(f'SELECT {names} FROM recorded_events ORDER BY "offset"').fetchall()
    with duckdb.connect() as plain:
        plain.execute("SET threads = 1")
        plain.execute("CREATE TABLE raw (" + ", ".join(f'"{name}" {kind}' for name, kind in columns.items()) + ")")
        began = time.process_time()
        for first in range(0, len(rows), 120_000):
            with plain.appender("raw") as appender:
                for row in rows[first : first + 120_000]:
                    appender.append_row(*row)
            plain.execute(f"COPY raw TO '{folder}/{first}.parquet' (FORMAT parquet, COMPRESSION zstd)")
            plain.execute("DELETE FROM raw")
        return time.process_time() - began


def multiply(root: Path, copies: int) -> None:
    """Copy every file under other sessions, days and offsets."""
    originals = list(data_files(root))
    spans = {topic: max(f.last for f in originals if f.topic == topic) + 1 for topic in {f.topic for f in originals}}
    writer = ParquetWriter(root)
    with duckdb.connect() as connection:
        for copy in range(1, copies):
            for file in originals:
                shift, days = copy * spans[file.topic], copy % 28
                folder = root / file.topic / f"date=2026-02-{days + 1:02d}"
                folder.mkdir(exist_ok=True)
                target = folder / f"0-{file.first + shift}-{file.last + shift}.parquet"
                connection.execute(
                    f'COPY (SELECT * REPLACE ("offset" + {shift} AS "offset", id || \'-{copy}\' AS id, '
                    f"session_id || '-{copy}' AS session_id, time + INTERVAL {days} DAY AS time) "
                    f"FROM '{file.path}') TO '{target}' (FORMAT parquet, COMPRESSION zstd)"
                )
    writer.close()


def main() -> None:
    """Measure and answer."""
    given = begin()
    folder = Path(given.folder)
    root = folder / "history"
    sessions = max(given.most // 170, 1)
    base = [*bench_generated.generate(min(sessions, BASE // 170))]
    topology = LocalTopology(Rules())
    outputs = [output for output in topology.feed("events", base) if output.topic not in SKIPPED]
    recording, writing = [], []
    for run in range(given.runs):
        shutil.rmtree(root, ignore_errors=True)
        recording.append(record(root, base, outputs))
        writing.append(raw_write(root, base, folder / f"raw-{run}"))
    copies = max(round(given.most / len(base)), 1)
    multiply(root, copies)
    asked: dict[str, list[float]] = {question.name: [] for question in QUESTIONS}
    for _ in range(given.runs + 1):
        with connect(root, threads=2) as connection:
            for question in QUESTIONS:
                began = time.perf_counter()
                ask(connection, question, 50)
                asked[question.name].append(time.perf_counter() - began)
    finish(
        {
            "events": len(base) * copies,
            "recorded": len(base),
            "recording": recording,
            "writing": writing,
            "asked": {name: times[1:] for name, times in asked.items()},
            "bytes": sum(file.path.stat().st_size for file in data_files(root)),
        }
    )


if __name__ == "__main__":
    sys.exit(main())
