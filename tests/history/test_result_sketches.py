"""What a history keeps of a result: enough to decide again, nothing that could be read or tried out."""

from __future__ import annotations

import stat
from base64 import b64decode
from pathlib import Path
from typing import Any
from zlib import crc32

import orjson
import pytest
from recorded import record, replayed, rows, stored
from story import Story
from trustfold.history.event_rows import EventReader
from trustfold.history.files import LINE_KEY
from trustfold.schemas.result_sketch import MAX_LINES


def kept(story: Story, key: bytes = b"key") -> dict[str, Any]:
    """The last event of a story as a history keeps it."""
    reader = EventReader(key)
    recorded = [reader.row(0, place, -1, None, value) for place, (_, value) in enumerate(story.records)]
    return dict(orjson.loads(recorded[-1]["record"] or ""))


def answered(result: Any, key: bytes = b"key", tool: str = "read_file", **args: Any) -> dict[str, Any]:
    """The sketch of a result."""
    story = Story()
    story.finished(story.started(tool, args), tool, result=result)
    return dict(kept(story, key)["result_sketch"])


def test_no_line_can_be_read_or_tried_out() -> None:
    """Every hash depends on the key: who tries all PINs of four digits finds none of them in the files."""
    sketch = answered("name: Ann\nPIN: 4711")
    assert "4711" not in str(sketch)
    tried = {crc32(b"PIN: %04d" % pin).to_bytes(4, "little") for pin in range(10_000)}
    assert not {raw_lines(sketch)[place : place + 4] for place in (0, 4)} & tried
    assert raw_lines(sketch) != raw_lines(answered("name: Ann\nPIN: 4711", key=b"other"))
    assert sketch["answer"] != answered("name: Ann\nPIN: 4711", key=b"other")["answer"]


def raw_lines(sketch: dict[str, Any]) -> bytes:
    """The hashes of lines in a sketch."""
    return b64decode(sketch["lines"])


def test_a_secret_is_hashed_without_what_is_secret(tmp_path: Path) -> None:
    """The recorder redacts before it hashes, so two results that differ in a credential have one sketch."""
    story = Story()
    for token in ("ghp_" + "a1B2" * 9, "ghp_" + "c3D4" * 9):
        story.finished(story.started("read_file", {"path": "a"}), "read_file", result=f"user: ann\ntoken: {token}")
    record(tmp_path, story.records, decisions=False)
    found = rows(tmp_path, "SELECT DISTINCT record->'$.result_sketch' FROM recorded_events WHERE status = 'success'")
    assert len(found) == 1


def test_a_long_result_has_a_bounded_sketch() -> None:
    """A thousand bytes for a hundred thousand lines."""
    sketch = answered("\n".join(f"line {number} of many" for number in range(30_000)))
    assert len(raw_lines(sketch)) == 4 * MAX_LINES


@pytest.mark.parametrize(
    ("result", "says"),
    [
        ("", "empty"),
        ("hello there", "echo"),
        ("No files found", "nothing"),
        ("done", "word"),
        ("two words", None),
        ("Traceback (most recent call last):\nKeyError: 1", "error"),
        ("<title>502 Bad Gateway</title>", "error"),
    ],
)
def test_what_a_short_result_says(result: str, says: str | None) -> None:
    """By which detectors leave out what is no answer."""
    assert answered(result, tool="bash", command="echo hello there").get("says") == says


def test_the_words_of_a_program_that_was_not_found_are_kept() -> None:
    """Where a pipe hides the exit code they are the failure; longer results keep no word."""
    words = "bash: line 1: gcc: command not found"
    assert answered(words, tool="bash", command="gcc -v | head")["text"] == words.replace("1", "*")
    assert "text" not in answered(f"{words}\n" * 20, tool="bash", command="gcc -v | head")


def test_the_key_stays_with_the_recorder(tmp_path: Path) -> None:
    """One for the directory, for its owner alone, and used again by the next recorder."""
    story = Story()
    story.finished(story.started("read_file", {"path": "a"}), "read_file", result="a\nb")
    record(tmp_path / "history", story.records, decisions=False)
    key = tmp_path / "history" / LINE_KEY
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    before = key.read_text()
    more = Story(session="s2")
    more.finished(more.started("read_file", {"path": "a"}), "read_file", result="a\nb")
    record(tmp_path / "history", [*story.records, *more.records], decisions=False)
    assert key.read_text() == before
    found = "SELECT record->'$.result_sketch.lines' FROM recorded_events WHERE type = 'tool_call.finished'"
    first, second = rows(tmp_path / "history", found)
    assert first == second


def test_a_history_without_sketches_is_still_read() -> None:
    """Earlier ones hold a digest in place of a result, with the failure in it."""
    story = Story()
    for number in range(3):
        stand_in = {"digest": "abcdefghijklmnop", "isError": True, "error": {"message": "internal server error"}}
        story.finished(story.started("deploy", {"to": number}), "deploy", result=stand_in)
    again = stored([value for _, value in story.records])
    decided = [list(replayed(story.records)), list(replayed(("events", value) for value in again))]
    assert decided[0] == decided[1]
    assert any(b'"trust.changed"' in (one.value or b"") for one in decided[0])
