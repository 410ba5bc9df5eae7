"""The session stage's processor time, in units of reading the same records with orjson: a large loss is seen.

No timed test: both are measured in one process, in turns, and the least of several counts.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import orjson
from recorded import ARRIVED
from trustfold.projections.local_topology import LogRecord
from trustfold.projections.processor import StageProcessor
from trustfold.projections.topology import STAGES
from trustfold.rules.rules import RuleSet

SITUATIONS = Path(__file__).parents[2] / "situations" / "silent.ndjson"
RECORDED = 45
"""Processor time of the fold of these events, by that of `orjson.loads`; renew it with a reason."""


def time_of(measured: Callable[[], object]) -> float:
    """Processor time of a function, in seconds."""
    started = time.process_time()
    measured()
    return time.process_time() - started


def test_the_fold_is_not_twice_as_slow_as_it_was() -> None:
    """Measured with every cache warm."""
    lines = [
        orjson.dumps(event) for line in SITUATIONS.read_text().splitlines()[:30] for event in json.loads(line)["events"]
    ]
    records = [LogRecord(None, line, at, ARRIVED) for at, line in enumerate(lines)]

    def fold() -> None:
        StageProcessor(STAGES[0], 0, RuleSet()).process("events", records)

    def read() -> None:
        for _ in range(5):
            for line in lines:
                orjson.loads(line)

    pairs = [(time_of(fold), time_of(read) / 5) for _ in range(5)]
    ratio = min(folded for folded, _ in pairs) / min(read for _, read in pairs)
    assert ratio < 2 * RECORDED, f"{ratio:.0f} times orjson.loads, recorded {RECORDED}"
