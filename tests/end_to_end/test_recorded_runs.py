"""Recorded runs of real agents through the command line: no crash, no dead letter, the same bytes every time."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import orjson
import pytest
from trustfold.schemas.codec import decode_decision

TRACES = Path(os.environ.get("TRUSTFOLD_TRACES", Path(__file__).parents[2] / ".." / "shared" / "traces"))
NAMES = (
    "agentv_copilot",
    "cipherbox_claude_code",
    "entire_claude_code",
    "intercode",
    "openhands_maverick",
    "pi_sessions",
    "tau_airline_gpt4o",
)


def replay(trace: Path, letters: Path) -> bytes:
    """Decisions of a trace, as `trustfold replay --json` writes them."""
    command = [sys.executable, "-m", "trustfold", "replay", str(trace), "--json", "--dead-letters", str(letters)]
    return subprocess.run(command, check=True, capture_output=True).stdout


def here(name: str) -> Path:
    """A trace; skips the test where there is none."""
    trace = TRACES / f"{name}.ndjson.gz"
    if not trace.exists():
        pytest.skip(f"{trace} is not here; set TRUSTFOLD_TRACES to the folder of recorded runs")
    return trace


@cache
def decisions_of(name: str) -> bytes:
    """Decisions of a trace, replayed once; no line of it is a dead letter."""
    with TemporaryDirectory() as folder:
        letters = Path(folder) / "letters.ndjson"
        decided = replay(here(name), letters)
        assert letters.read_bytes() == b""
    return decided


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_every_line_of_a_recorded_run_is_an_event(name: str) -> None:
    """And every line written about it is a decision of the contract."""
    for line in decisions_of(name).splitlines():
        decode_decision(line)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["agentv_copilot", "pi_sessions"])
def test_a_recorded_run_replays_to_the_same_bytes(name: str, tmp_path: Path) -> None:
    """Two processes, whose hashes differ, agree."""
    assert replay(here(name), tmp_path / "letters.ndjson") == decisions_of(name)


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
