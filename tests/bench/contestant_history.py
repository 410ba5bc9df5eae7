"""One contestant: records generated events, multiplies the files, and asks every question of the report.

Run by bench_history in a process of its own. Recording and the raw write of the same rows are
timed in processor seconds, all threads together; the questions on the clock with two threads, as the target says.
"""

from __future__ import annotations

import shutil
import sys
import time
from pathlib import Path

import duckdb
from bench_process import begin, finish
from generated_history import base_events, decisions, multiply, record
from trustfold.history.catalogue import connect
from trustfold.history.columns import columns_of
from trustfold.history.event_rows import EventRow
from trustfold.history.files import data_files
from trustfold.history.queries import ask
from trustfold.history.reports import QUESTIONS


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


def main() -> None:
    """Measure and answer."""
    given = begin()
    folder = Path(given.folder)
    root = folder / "history"
    base = base_events(given.most)
    outputs = decisions(base)
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
