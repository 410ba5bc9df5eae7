"""`make bench` works and says what it should; what it measures is nobody's test."""

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_folds_are_measured_without_traces_and_reported_as_json(tmp_path: Path) -> None:
    """A short run on generated events exits with 0, prints a table and writes every row with its runs."""
    file = tmp_path / "report.json"
    options = ["--only", "fold", "--quick", "--runs", "2", "--fold-events", "200", "--json", str(file)]
    done = subprocess.run(
        [sys.executable, str(ROOT / "tests" / "bench"), *options],
        env=os.environ | {"TRUSTFOLD_TRACES": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(file.read_text())
    assert report["format"] == 1
    assert report["skipped"] == {}
    assert report["options"]["quick"] is True
    rows = {row["name"]: row for row in report["rows"]}
    assert set(rows) == {"fold/session:generated", "fold/tool:generated"}
    for row in rows.values():
        figure = row["figure"]
        assert figure["unit"] == "us"
        assert len(figure["runs"]) == 2
        assert 0 < figure["min"] <= figure["median"] <= figure["max"]
        assert row["target"] == "≤ 25"
        assert row["met"] is None, "a run this short judges nothing"
        assert row["behind"]["orjson"]["median"] > 0
    assert rows["fold/session:generated"]["behind"]["decode"]["median"] > 0
    assert "session stage, an event: generated" in done.stdout
    assert "generated events" in done.stdout


def test_an_unknown_group_is_refused() -> None:
    """A misspelt group names the known ones."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "tests" / "bench"), "--only", "kafk"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert "--only knows kafka, fold, keys, failover, guard" in done.stderr


def test_the_guard_is_measured_against_the_libraries(tmp_path: Path) -> None:
    """A short run gives the checks, their share of the libraries' time, and a whole call."""
    file = tmp_path / "report.json"
    done = subprocess.run(
        [sys.executable, str(ROOT / "tests" / "bench"), "--only", "guard", "--quick", "--json", str(file)],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    rows = {row["name"]: row for row in json.loads(file.read_text())["rows"]}
    kinds = {f"guard/call:{kind}" for kind in ("read-only", "idempotent", "joined", "remembered")}
    assert set(rows) == {"guard/checks", "guard/checks:libraries", "guard/call"} | kinds
    assert rows["guard/checks"]["target"] == "≤ 4"
    assert rows["guard/checks:libraries"]["figure"]["unit"] == "ratio"
    assert all(row["figure"]["median"] > 0 for row in rows.values())
