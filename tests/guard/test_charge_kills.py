"""Kills between charge and remembering, a few for each store; `make charges` makes a thousand."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "support" / "charge_kills.py"


@pytest.mark.slow
def test_no_key_is_charged_twice(redis_url: str) -> None:
    """Over memory, a file, and a Redis that is near, far, read-only or breaks half-way."""
    del redis_url
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--runs", "18"], capture_output=True, text=True, timeout=600, check=False
    )
    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(told) == 6, done.stderr[-3000:]
    assert [one["charged twice"] for one in told] == [[]] * 6
    assert sum(one["charges of a key"].get("1", 0) for one in told) > 6
    assert done.returncode == 0
