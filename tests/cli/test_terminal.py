"""No name commands a terminal: control characters of tools, models and messages are shown, never sent."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest
from command_line import trustfold
from trustfold.cli.render import write_json
from trustfold.schemas.examples import EXAMPLES
from trustfold.schemas.vocabulary import PatternType, TrustState
from trustfold.streams.embedded.engine import EmbeddedEngine

NASTY = "\x1b[2J\x1b]0;owned\x07\x9b31m\r\x08\u202e"
"""Clears the screen, names the window, turns red, overwrites, and turns the direction of writing."""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a store, and the file of events that it was fed."""
    directory = tmp_path_factory.mktemp("terminal")
    base = {"schema_version": "1.0", "session_id": f"s{NASTY}", "workspace_id": f"w{NASTY}", "model": f"m{NASTY}"}
    lines = []
    for number in range(12):
        time = f"2026-01-31T12:00:{number:02d}.000Z"
        call = {"time": time, "call_id": f"c{number}{NASTY}", "tool_name": f"tool{NASTY}"}
        lines.append(base | call | {"type": "tool_call.started", "id": f"a{number}", "args": {"path": f"/x{NASTY}"}})
        error = {"type": f"E{NASTY}", "message": f"reset {NASTY}", "http_status": 503}
        lines.append(
            base | call | {"type": "tool_call.finished", "id": f"b{number}", "status": "error", "error": error}
        )
    lines.append(EXAMPLES["turn.started"] | {"type": f"bad{NASTY}", "id": "c", "session_id": ""})
    (directory / "raw.ndjson").write_bytes(b"\n".join(map(orjson.dumps, lines)))
    with EmbeddedEngine.open(directory / "store.sqlite") as engine:
        engine.ingest([orjson.dumps(line) for line in lines])
    return directory


@pytest.mark.parametrize(
    "command",
    [
        ("status", "--all", "--workspace", f"w{NASTY}", "--store", "store.sqlite"),
        ("status", "--store", "store.sqlite"),
        ("status", f"no{NASTY}", "--store", "store.sqlite"),
        ("quality", "--store", "store.sqlite"),
        ("behavior", "--store", "store.sqlite"),
        ("dead-letters", "list", "--store", "store.sqlite"),
        ("replay", "raw.ndjson"),
        ("reset", f"tool{NASTY}", "--yes", "--store", "store.sqlite"),
        ("settings", "--workspace", f"w{NASTY}", "--store", "store.sqlite"),
        ("replay", f"no{NASTY}.ndjson"),
        (f"no{NASTY}",),
    ],
    ids=lambda command: " ".join(command).replace(NASTY, "!"),
)
def test_no_name_commands_a_terminal(place: Path, command: tuple[str, ...]) -> None:
    """Neither in a table nor in an error."""
    done = trustfold(*command, cwd=place)
    shown = (done.stdout + done.stderr).decode()
    assert shown
    assert "Traceback" not in shown
    strange = [c for c in shown if (ord(c) < 32 and c != "\n") or 127 <= ord(c) < 160 or 0x202A <= ord(c) <= 0x202E]
    assert strange == [], shown


def test_keys_of_the_vocabulary_are_written_by_their_value(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    """JSON keys are texts; documents count by pattern, lane and the like."""
    write_json({PatternType.MONOLOGUE: {TrustState.BLOCKED: 1}})
    assert orjson.loads(capfdbinary.readouterr().out) == {"monologue": {"blocked": 1}}
