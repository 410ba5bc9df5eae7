"""The peer suite: the shared cases where they are present, and cases of our own that prove the adapter can fail."""

from __future__ import annotations

import copy
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


def run(file: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Run a file through the command line, from the root of the checkout."""
    command = [sys.executable, "-m", "tests.peers", str(file), *options]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=110, check=False)


@cache
def results(file: Path) -> dict[str, dict[str, Any]]:
    """What came of each case of a file, by id."""
    lines = [json.loads(line) for line in run(file, "--json").stdout.splitlines()]
    return {one["id"]: one for one in lines}


def cases(file: Path) -> list[dict[str, Any]]:
    """Cases of a file; none where it is absent."""
    return json.loads(file.read_text())["cases"] if file.exists() else []


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


def test_the_exit_code_tells() -> None:
    """0 where all is well, 1 where a case fails, 2 where the file cannot be read."""
    assert run(OWN).returncode == 0
    assert run(WRONG).returncode == 1
    assert run(HERE / "nowhere.json").returncode == 2


def test_people_get_a_line_per_case_and_a_total() -> None:
    """Without --json the output is for reading."""
    lines = run(OWN).stdout.splitlines()
    assert len(lines) == len(cases(OWN)) + 1
    assert lines[-1].startswith(f"{len(cases(OWN))} of {len(cases(OWN))} pass")


def _otherwise(value: Any) -> Any:
    """Another value of the same kind."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, (int, float)):
        return value + 1
    if isinstance(value, list):
        return [*value[:-1], _otherwise(value[-1])] if value else [["repetitive_calls", "minor", 3]]
    if isinstance(value, dict):
        name = next(iter(value))
        return {**value, name: _otherwise(value[name])}
    return f"{value}x"


def test_our_own_cases_fail_when_anything_else_is_expected(tmp_path: Path) -> None:
    """Every expectation is looked at: each one changed makes its case fail."""
    changed = []
    for case in cases(OWN):
        words = "ours" if "ours" in case else "expect"
        for name, value in case[words].items():
            other = copy.deepcopy(case)
            other["id"] = f"{case['id']} {name}"
            other[words][name] = _otherwise(value)
            changed.append(other)
    file = tmp_path / "changed.json"
    file.write_text(json.dumps({"cases": changed}))
    assert [name for name, found in results(file).items() if found["passed"]] == []


def test_deviations_have_reasons() -> None:
    """Who reads the list learns why."""
    entries = json.loads((HERE / "deviations.json").read_text())["deviations"]
    assert all(set(entry) in ({"id", "reason"}, {"capability", "reason"}) for entry in entries)
    assert all(len(entry["reason"]) > 40 for entry in entries)


def test_the_shared_cases_pass_or_are_meant_otherwise() -> None:
    """Every behaviour that the peers teach is there, or is decided against with a reason."""
    if not SHARED.exists():
        pytest.skip(f"{SHARED} is not here; set TRUSTFOLD_PEER_CASES to the file of peer cases")
    done = run(SHARED, "--failed")
    failed = [line for line in done.stdout.splitlines() if line.startswith("FAIL")]
    assert failed == [], done.stdout
    assert done.returncode == 0, done.stdout
    assert len(done.stdout.splitlines()) > 1, done.stderr
