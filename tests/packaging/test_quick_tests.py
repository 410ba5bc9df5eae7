"""Which tests a run takes: the quick ones, unless slow ones are asked for."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SUITE = "tests/history/test_refolding.py"
"""Tests of both kinds."""


def collected(*options: str) -> set[str]:
    """Names of the tests that a run with these options takes."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", *options, SUITE]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return {line for line in done.stdout.splitlines() if line.startswith(SUITE)}


@pytest.mark.parametrize("asking", [("--slow",), ("-m", "slow or not slow")], ids=["--slow", "-m"])
def test_slow_tests_run_when_they_are_asked_for(asking: tuple[str, ...]) -> None:
    """By the option, or by their mark; what runs without asking runs then as well."""
    assert set() < collected() < collected(*asking)
