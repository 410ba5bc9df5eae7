"""Histories of any size: generated events and decisions, really recorded, and copies of their files.

    python tests/bench/generated_history.py FOLDER EVENTS

Copies have other sessions, ids, offsets and days, so that every question has as much to read as in a history that was
recorded for weeks. The generated sessions get three models, loops, requests for permission and retries on top.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import bench_generated
import duckdb
import orjson
from trustfold.history.files import data_files
from trustfold.history.parquet import RECORDED_TOPICS, ParquetWriter
from trustfold.history.recorder import PartitionRecorder
from trustfold.projections.emitter import StageOutput, is_record_of_call
from trustfold.projections.local_topology import LocalTopology
from trustfold.rules.rules import RuleSet

ARRIVED = 1_767_607_200_000
BASE = 400_000
"""Events that are really recorded; the rest are copies."""

EVENTS_OF_A_SESSION = 170
MODELS = ("model-a", "model-b", "model-c")
DAYS = 28

_SKIPPED = frozenset({"outcomes", "standings", "events"})


def base_events(most: int) -> list[bytes]:
    """Events to record, about as many as wanted."""
    sessions = max(min(most, BASE) // EVENTS_OF_A_SESSION, 1)
    return [*_varied(bench_generated.generate(sessions))]


def decisions(lines: list[bytes]) -> list[StageOutput]:
    """What is decided over events and recorded beside them."""
    topology = LocalTopology(RuleSet())
    return [
        output for output in topology.feed("events", lines) if output.topic not in _SKIPPED or is_record_of_call(output)
    ]


def record(root: Path, lines: list[bytes], outputs: list[StageOutput]) -> float:
    """Record events, the records of their calls and decisions; processor seconds without the decisions."""
    recorder = PartitionRecorder(root)
    for topic in RECORDED_TOPICS:
        recorder.own(topic, 0)
    calls = [output for output in outputs if is_record_of_call(output)]
    began = time.process_time()
    for offset, line in enumerate(lines):
        recorder.add("events", 0, offset, ARRIVED, None, line)
        if recorder.full:
            recorder.flush()
    for offset, call in enumerate(calls):
        recorder.add("outcomes", 0, offset, ARRIVED, call.key.encode(), call.value)
        if recorder.full:
            recorder.flush()
    recorder.flush()
    took = time.process_time() - began
    for offset, output in enumerate(one for one in outputs if not is_record_of_call(one)):
        recorder.add(output.topic, 0, offset, ARRIVED, output.key.encode(), output.value)
        if recorder.full:
            recorder.flush()
    recorder.flush()
    recorder.close()
    return took


def multiply(root: Path, copies: int) -> None:
    """Copy every file under other sessions, days and offsets."""
    originals = list(data_files(root))
    spans = {topic: max(f.last for f in originals if f.topic == topic) + 1 for topic in {f.topic for f in originals}}
    writer = ParquetWriter(root)
    with duckdb.connect() as connection:
        for copy in range(1, copies):
            for file in originals:
                shift, days = copy * spans[file.topic], copy % DAYS
                folder = root / file.topic / f"date=2026-02-{days + 1:02d}"
                folder.mkdir(exist_ok=True)
                target = folder / f"0-{file.first + shift}-{file.last + shift}.parquet"
                cause = f"cause || '-{copy}' AS cause, " if file.topic == "outcomes" else ""
                connection.execute(
                    f'COPY (SELECT * REPLACE ("offset" + {shift} AS "offset", id || \'-{copy}\' AS id, {cause}'
                    f"session_id || '-{copy}' AS session_id, time + INTERVAL {days} DAY AS time) "
                    f"FROM '{file.path}') TO '{target}' (FORMAT parquet, COMPRESSION zstd)"
                )
    writer.close()


def _varied(lines: Iterator[bytes]) -> Iterator[bytes]:
    """The generated events with models, and in some sessions loops, requests for permission and retries."""
    for line in lines:
        event: dict[str, Any] = orjson.loads(line)
        number = int(event["session_id"].rpartition("-")[2])
        event["model"] = MODELS[number % len(MODELS)]
        calls = event["type"].startswith("tool_call.")
        if calls and number % 5 == 0 and event["type"] == "tool_call.started" and event["tool_name"] == "Bash":
            for kind, fields in (("requested", {}), ("resolved", {"granted": number % 3 > 0, "method": "user"})):
                asked = {name: event[name] for name in event if name != "args"}
                yield orjson.dumps(asked | {"id": f"{event['id']}-{kind}", "type": f"permission.{kind}"} | fields)
        if calls and number % 7 == 0 and event["tool_name"] == "Grep":
            event |= {"args": {"pattern": "x"}} if event["type"] == "tool_call.started" else {"result": "nothing"}
        if event["type"] == "tool_call.finished" and number % 11 == 0:
            event["attempts"] = 2
        yield orjson.dumps(event)


def main(arguments: list[str]) -> None:
    """Make a history."""
    if len(arguments) != 2:
        sys.exit(__doc__)
    root, wanted = Path(arguments[0]), int(arguments[1])
    lines = base_events(wanted)
    record(root, lines, decisions(lines))
    multiply(root, max(round(wanted / len(lines)), 1))


if __name__ == "__main__":
    main(sys.argv[1:])
