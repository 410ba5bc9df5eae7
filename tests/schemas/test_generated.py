"""The generated files: up to date, valid, and true of the records they describe."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator
from trustfold.schemas import generate
from trustfold.schemas.examples import EXAMPLES
from trustfold.schemas.topics import TOPICS
from warm_process import WarmProcess

GOLDEN = Path(__file__).parent / "golden" / "v1"
TYPES = sorted(wire for topic in TOPICS.values() for wire in topic.types)


def schema_of(wire: str) -> dict[str, Any]:
    """The committed schema of a type."""
    loaded: dict[str, Any] = json.loads((generate.HOME / f"{wire}.schema.json").read_text(encoding="utf-8"))
    return loaded


def test_the_committed_files_are_those_of_the_code() -> None:
    """Whoever changes the contract runs the generator."""
    assert generate.differing() == []


def test_the_command_compares_and_writes(tmp_path: Path) -> None:
    """`--check` names missing, changed and left-over files and fails; without it they are put right."""

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "trustfold.schemas.generate", "--home", str(tmp_path), *arguments]
        with WarmProcess(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            out, said = process.communicate(timeout=60)
        return subprocess.CompletedProcess(command, process.returncode, out, said)

    assert run().returncode == 0
    assert run("--check").returncode == 0
    (tmp_path / "nudge.issued.schema.json").write_text("{}")
    (tmp_path / "asyncapi.json").unlink()
    (tmp_path / "gone.schema.json").write_text("{}")
    checked = run("--check")
    assert checked.returncode == 1
    assert "asyncapi.json, gone.schema.json, nudge.issued.schema.json" in checked.stderr
    assert run().returncode == 0
    assert run("--check").returncode == 0
    assert not (tmp_path / "gone.schema.json").exists()


def test_a_schema_is_valid_and_holds_for_its_records() -> None:
    """Each schema is a JSON Schema, and its example and the golden record satisfy it."""
    for wire in TYPES:
        schema = schema_of(wire)
        Draft202012Validator.check_schema(schema)
        validator = Draft202012Validator(schema, format_checker=Draft202012Validator.FORMAT_CHECKER)
        validator.validate(schema["examples"][0])
        validator.validate(json.loads((GOLDEN / f"{wire}.json").read_bytes()))
        assert schema["examples"][0] == EXAMPLES[wire]
        assert schema["$id"] == f"urn:trustfold:schema:1:{wire}"


def test_a_schema_is_open_and_explained() -> None:
    """Nothing forbids fields from the future, and every field says what it is."""
    for wire in TYPES:
        schema = schema_of(wire)
        assert "additionalProperties" not in schema, wire
        parts = [schema, *schema.get("$defs", {}).values()]
        unexplained = [
            (part.get("title"), name)
            for part in parts
            for name, field in part.get("properties", {}).items()
            if name != "type" and not field.get("description")
        ]
        assert unexplained == [], wire
        assert all(part["description"] for part in parts), wire


def test_a_schema_refuses_what_the_codec_refuses() -> None:
    """A publisher who validates against the schema is told the same faults."""
    validator = Draft202012Validator(schema_of("tool_call.finished"))
    good = EXAMPLES["tool_call.finished"]
    for change in (
        {"id": ""},
        {"tool_name": "x" * 257},
        {"workspace_id": "a\x1fb"},
        {"schema_version": "2.0"},
        {"status": "exploded"},
        {"duration_ms": -1},
        {"type": "turn.started"},
        {"session_id": None},
    ):
        assert not validator.is_valid({**good, **change}), change
    assert validator.is_valid({**good, "new": 1, "schema_version": "1.7"})
