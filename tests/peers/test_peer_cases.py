"""The peer suite: the shared cases where they are present, cases of our own, and wrong ones, which must not pass."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
SHARED = Path(os.environ.get("TRUSTFOLD_PEER_CASES", ROOT.parent / "shared" / "cases" / "peer-cases.json"))
OWN, WRONG = HERE / "own_cases.json", HERE / "wrong_cases.json"


def run(file: Path, option: str) -> subprocess.CompletedProcess[str]:
    """Run a file through the command line, from the root of the checkout."""
    command = [sys.executable, "-m", "tests.peers", str(file), option]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=110, check=False)


@cache
def results(file: Path) -> dict[str, dict[str, Any]]:
    """What came of each case of a file, by id."""
    return {one["id"]: one for one in map(json.loads, run(file, "--json").stdout.splitlines())}


def cases(file: Path) -> list[dict[str, Any]]:
    """Cases of a file."""
    return json.loads(file.read_text())["cases"]


@pytest.mark.parametrize("name", [case["id"] for case in cases(OWN)])
def test_our_own_cases_pass(name: str) -> None:
    """Each area understands its words."""
    assert results(OWN)[name]["passed"], results(OWN)[name]["why"]


@pytest.mark.parametrize("case", cases(WRONG), ids=lambda case: case["id"])
def test_a_wrong_case_fails_and_says_why(case: dict[str, Any]) -> None:
    """What is not so, and what the adapter does not know, never passes silently."""
    found = results(WRONG)[case["id"]]
    assert not found["passed"]
    assert case["why"] in found["why"]


def test_the_shared_cases_pass_or_are_meant_otherwise() -> None:
    """Every behaviour that the peers teach is there, or is decided against with a reason."""
    if not SHARED.exists():
        pytest.skip(f"{SHARED} is not here; set TRUSTFOLD_PEER_CASES to the file of peer cases")
    done = run(SHARED, "--failed")
    assert [line for line in done.stdout.splitlines() if line.startswith("FAIL")] == []
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(done.stdout.splitlines()) > 1, done.stderr
