"""`make bench` and `make quality` run and report; what they measure is nobody's test."""

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from story import Story

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("program", "options"),
    [
        ("bench", ["--only", "fold", "--quick", "--runs", "2", "--fold-events", "50"]),
        ("quality", ["--only", "behaviour", "--only", "outages", "--plants", "1"]),
    ],
    ids=["bench", "quality"],
)
def test_a_short_run_reports_as_json(program: str, options: list[str], tmp_path: Path) -> None:
    """It exits with 0 and gives every figure that was asked for."""
    day = Story()
    for _ in range(40):
        day.works("search").works("translate").after(seconds=52)
    (tmp_path / "toy.ndjson.gz").write_bytes(gzip.compress(b"".join(value + b"\n" for _, value in day.records)))
    report = [str(tmp_path / "report.json")] if program == "bench" else []
    done = subprocess.run(
        [sys.executable, str(ROOT / "tests" / program), *options, "--json", *report],
        env=os.environ | {"TRUSTFOLD_TRACES": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    if program == "bench":
        found = json.loads((tmp_path / "report.json").read_text())
        assert found["skipped"] == {}
        assert all(row["figure"]["median"] > 0 for row in found["rows"])
        assert {row["name"].partition("/")[0] for row in found["rows"]} == {options[1]}
    else:
        found = json.loads(done.stdout)["shipped"]
        assert found["sources"]["toy"]["calls"] == 80
        assert {outage["scope"] for outage in found["outages"]} == {"key", "service"}, "the tools have one key each"
