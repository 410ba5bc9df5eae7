"""`trustfold schemas export`: the contract as files, from the package."""

from __future__ import annotations

import json
from pathlib import Path

from command_line import trustfold

GENERATED = Path(__file__).parents[2] / "schemas" / "generated"


def test_export_writes_the_generated_files(tmp_path: Path) -> None:
    """Every schema and the AsyncAPI document are written, byte for byte, and named on standard output."""
    done = trustfold("schemas", "export", "out/schemas", cwd=tmp_path)
    assert done.returncode == 0
    written = {path.name: path.read_bytes() for path in (tmp_path / "out" / "schemas").iterdir()}
    assert written == {path.name: path.read_bytes() for path in GENERATED.iterdir()}
    assert done.stdout.decode().splitlines() == [f"out/schemas/{name}" for name in sorted(written)]
    assert json.loads(written["asyncapi.json"])["asyncapi"].startswith("3.")


def test_export_into_a_file_is_refused(tmp_path: Path) -> None:
    """A file where the directory should be is told, and left alone."""
    (tmp_path / "file").write_text("mine")
    assert trustfold("schemas", "export", "file", cwd=tmp_path).returncode == 2
    assert trustfold("schemas", "export", "file/below", cwd=tmp_path).returncode == 2
    assert (tmp_path / "file").read_text() == "mine"
