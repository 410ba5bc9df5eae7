"""The coverage of the seeds names files and tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "seeds.md"
ROWS = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("|")]
_PATH = re.compile(r"`((?:[\w.-]+/)+[\w.*-]*|test_\w+\.py|\w+\.py)`")
_TEST = re.compile(r"`(test_\w+)`")
_DEFINED = re.compile(r"^(?:async )?def (test_\w+)", re.MULTILINE)


def paths(row: str) -> list[str]:
    """Paths named in a row of a table."""
    return _PATH.findall(row)


def exists(path: str) -> bool:
    """Whether a path, from the root or among the tests of the folds, is there."""
    return any((base / path).exists() for base in (ROOT, ROOT / "tests" / "projections"))


def test_every_path_is_there() -> None:
    """Who looks for the proof of a requirement finds it."""
    assert [path for row in ROWS for path in paths(row) if not exists(path)] == []


def proofs_of(row: str) -> set[str]:
    """Tests in the files that a row names."""
    files = [base / path for path in paths(row) for base in (ROOT, ROOT / "tests" / "projections")]
    return {
        name
        for file in files
        if file.is_file() and file.name.startswith("test_")
        for name in _DEFINED.findall(file.read_text(encoding="utf-8"))
    }


def test_every_row_names_a_test_that_would_fail() -> None:
    """A requirement that is met, wholly or in part, names tests of the files that it names, and they exist."""
    rows = [row for row in ROWS if ("| ● |" in row or "| ◐ |" in row) and "Open questions" not in row]
    assert [row for row in rows if not _TEST.findall(row)] == []
    assert [(row[:40], name) for row in ROWS for name in _TEST.findall(row) if name not in proofs_of(row)] == []


def test_what_is_said_to_be_there_names_where() -> None:
    """A requirement that counts as covered names a file."""
    covered = [row for row in ROWS if "| ● |" in row]
    assert len(covered) > 50
    wordy = {"Event bus", "Open questions", "Permission: session events (option C)"}
    unproven = [row for row in covered if not paths(row) and not any(name in row for name in wordy)]
    assert unproven == []


def test_every_test_of_the_matrix_and_every_spec_stands_once() -> None:
    """Fifteen tests of seed 3, and the numbered requirements of seed 5."""
    for number in range(1, 16):
        assert sum(row.startswith(f"| TR-{number} |") for row in ROWS) == 1
    specs = [*range(1, 7), *range(10, 16), *range(20, 27)]
    for number in specs:
        assert sum(row.startswith(f"| SPEC-10.{number:02d} |") for row in ROWS) == 1
