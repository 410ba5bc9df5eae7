"""Recorded runs of real agents through the command line: no crash, no dead letter, the same bytes every time."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import orjson
import pytest
from recorded import TRACE_NAMES, lines_of
from trustfold.schemas.codec import decode_decision

MOST = {"intercode": 8_000}
"""Events of a run that are replayed, where the rest is much the same; all of others."""


def replay(name: str, folder: Path) -> bytes:
    """Decisions of a trace, as `trustfold replay --json` writes them; no line of it is a dead letter."""
    trace, letters = folder / "run.ndjson", folder / "letters.ndjson"
    trace.write_bytes(b"\n".join(lines_of(name)[: MOST.get(name)]))
    command = [sys.executable, "-m", "trustfold", "replay", str(trace), "--json", "--dead-letters", str(letters)]
    decided = subprocess.run(command, check=True, capture_output=True).stdout
    assert letters.read_bytes() == b""
    return decided


@cache
def decisions_of(name: str) -> bytes:
    """Decisions of a trace, replayed once."""
    with TemporaryDirectory() as folder:
        return replay(name, Path(folder))


@pytest.mark.slow
@pytest.mark.parametrize("name", TRACE_NAMES)
def test_every_line_of_a_recorded_run_is_an_event(name: str) -> None:
    """And every line written about it is a decision of the contract."""
    for line in decisions_of(name).splitlines():
        decode_decision(line)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["agentv_copilot", "pi_sessions"])
def test_a_recorded_run_replays_to_the_same_bytes(name: str, tmp_path: Path) -> None:
    """Two processes, whose hashes differ, agree."""
    assert replay(name, tmp_path) == decisions_of(name)


@pytest.mark.slow
def test_healthy_coding_sessions_are_left_alone() -> None:
    """306 recorded sessions of two coding projects raise next to no alarm about the model's behaviour.

    Silences are counted apart: each lasted for more than two minutes while it was the model's turn.
    """
    alarms: Counter[bool] = Counter()
    for name in ("entire_claude_code", "cipherbox_claude_code"):
        decisions = [orjson.loads(line) for line in decisions_of(name).splitlines()]
        alarms.update(one["pattern"] == "stalled_turn" for one in decisions if one["type"] == "pattern.detected")
    assert alarms[False] <= 12
    assert alarms[True] <= 4
