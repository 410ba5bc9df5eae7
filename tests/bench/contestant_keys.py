"""Contestant: the session stage over very many live sessions, its snapshots in a dict as after each checkpoint.

Two passes over all keys: the first makes them, the second meets each again, long after it has left the live states, as
in a fleet where a session speaks once in a while. Says the cost of an event in the second pass and the memory of a key.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import bench_process
from bench_timed import make_processor
from contestant_fold import BATCH, Record
from trustfold.projections.topology import STAGES
from trustfold.rules.rules import RuleSet
from trustfold.streams.kafka.kafka_settings import KafkaSettings

PAGE = 4096
STARTED = (
    b'{"schema_version":"1.0","id":"%b-a","type":"tool_call.started","time":"2026-01-05T09:0%d:00Z","session_id":"%b",'
    b'"workspace_id":"workspace-1","user_id":"user-1","model":"model-1","call_id":"%b","tool_name":"Bash",'
    b'"args":{"command":"git status --short"}}'
)
FINISHED = (
    b'{"schema_version":"1.0","id":"%b-b","type":"tool_call.finished","time":"2026-01-05T09:0%d:01Z","session_id":"%b",'
    b'"workspace_id":"workspace-1","call_id":"%b","tool_name":"Bash","status":"success","duration_ms":900,'
    b'"result":"M projections/topology.py"}'
)


def _memory() -> int:
    """Bytes this process holds in memory."""
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * PAGE


def _batches(keys: int, round_: int) -> Iterator[list[Record]]:
    for first in range(0, keys, BATCH // 2):
        batch: list[Record] = []
        for number in range(first, min(keys, first + BATCH // 2)):
            session, call = b"session-%08d" % number, b"call-%08d-%d" % (number, round_)
            offset = 2 * (round_ * keys + number)
            batch.append(Record(STARTED % (call, round_, session, call), offset))
            batch.append(Record(FINISHED % (call, round_, session, call), offset + 1))
        yield batch


def _measure(keys: int) -> dict[str, float]:
    """Microseconds of an event in the second pass, and bytes of a key."""
    stored: dict[bytes, bytes] = {}
    processor = make_processor(STAGES[0], 0, RuleSet(), stored.get)
    before, seconds = _memory(), 0.0
    for round_ in range(2):
        seconds = 0.0
        for batch in _batches(keys, round_):
            started = time.process_time()
            processor.process("events", batch)
            seconds += time.process_time() - started
            stored.update((key, snapshot) for key, snapshot in processor.snapshot() if snapshot is not None)
            processor.forget_clean(KafkaSettings().live_states)
    return {"event": seconds / (2 * keys) * 1e6, "key": (_memory() - before) / keys}


def main() -> None:
    """Measure a thousand keys, then as many as asked for."""
    task = bench_process.begin()
    bench_process.tune_collector()
    few = [_measure(1_000) for _ in range(5)]
    bench_process.finish({"few": few, "many": _measure(task.keys)})


if __name__ == "__main__":
    main()
