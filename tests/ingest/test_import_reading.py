"""Logs as they lie on disks: cut short, recoded, with garbage between; what cannot be read costs only itself."""

from __future__ import annotations

import gzip
from pathlib import Path
from time import monotonic
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from import_kit import read
from trustfold.errors import ConfigError
from trustfold.ingest import IMPORTERS, SkippedLines, objects_of, workspaces
from trustfold.ingest.reading import recognised
from trustfold.ingest.results import ending_of, exit_code_of, remark_of, wall_time_of
from trustfold.ingest.values import MAX_TEXT, arguments_of, bounded, name_of, shortened, time_of
from trustfold.ingest.workspaces import workspace_of
from trustfold.schemas.codec import decode_event

A, B = b'{"n": 1}', b'{"n": 2}'


@pytest.mark.parametrize(
    ("data", "found", "left_out"),
    [
        (A + b"\n" + B + b"\n", [(1, 1), (2, 2)], []),
        (A + b"\r\n\r\n" + B + b"\r\n", [(1, 1), (3, 2)], []),
        (b"\xef\xbb\xbf" + A + b"\n" + B, [(1, 1), (2, 2)], []),
        ((A + b"\n" + B + b"\n").decode().encode("utf-16"), [(1, 1), (2, 2)], []),
        (A + b"\n" + b'{"n": 2', [(1, 1)], ["f:2: not JSON"]),
        (A + b"\nhello\n" + B + b"\n", [(1, 1), (3, 2)], ["f:2: not JSON"]),
        (A + b"\n" + b"\x00" * 40 + b"\n" + B, [(1, 1), (3, 2)], []),
        (A + b"\n" + B + b"\n" + b"\x00" * 40, [(1, 1), (2, 2)], []),
        (b"Welcome!\n" + A + b"\n" + B + b"\n", [(2, 1), (3, 2)], ["f:1: not JSON"]),
        (b'[\n  {"n": 1},\n  {"n": 2}\n]\n', [(1, 1), (1, 2)], []),
        (b'{\n  "n": 1\n}\n{\n  "n": 2\n}\n', [(1, 1), (4, 2)], []),
        (b'{\n  "n": 1\n}\n{\n  "n":\n', [(1, 1)], ["f:4: not JSON"]),
        (b'[\n{"n": 1},\n{"n": 2},\n{"n": ', [(2, 1), (3, 2)], ["f:4: not JSON"]),
        (A + b"\n3\n[4]\n" + B, [(1, 1), (4, 2)], ["f:2: 3 where", "f:3: 4 where"]),
        (b'{"n": 1, "x": NaN, "y": Infinity}\n' + B, [(1, 1), (2, 2)], []),
        (b'{"n": 1, "x": "\\ud83d"}\n' + B, [(1, 1), (2, 2)], []),
        (b'{"n": 1, "x": "\xff\xfe"}\n' + B, [(1, 1), (2, 2)], []),
        (b'{"n": 1, "x": ' + b"9" * 400 + b"}\n" + B, [(1, 1), (2, 2)], []),
        (b"", [], []),
    ],
)
def test_every_object_that_can_be_read_is_read(data: bytes, found: list[tuple[int, int]], left_out: list[str]) -> None:
    """With its line; the rest is told with line and reason, and every value can be written again."""
    skipped = SkippedLines()
    records = list(objects_of(data.splitlines(keepends=True), "f", skipped))
    assert [(line, value["n"]) for line, value in records] == found
    assert skipped.count == len(left_out)
    assert all(text.startswith(start) for text, start in zip(skipped.first, left_out, strict=True))
    orjson.dumps([value for _, value in records])


def test_what_is_left_out_is_counted_beyond_what_is_shown() -> None:
    """A log of garbage does not fill the screen."""
    skipped = SkippedLines()
    assert list(objects_of([A + b"\n", *[b"garbage\n"] * 100], "f", skipped))
    assert (skipped.count, len(skipped.first)) == (100, SkippedLines.SHOWN)


def test_a_file_of_no_json_at_all_is_an_error() -> None:
    """It is no log."""
    with pytest.raises(ConfigError, match="JSON"):
        list(objects_of([b"a\n", b"b\n"], "f", SkippedLines()))


@pytest.mark.parametrize(
    ("given_time", "expected"),
    [
        ("2026-01-05T10:00:00Z", 1_767_607_200_000),
        ("2026-01-05T12:00:00+02:00", 1_767_607_200_000),
        ("2026-01-05T10:00:00.123456789Z", 1_767_607_200_123),
        ("2026-01-05 10:00:00", 1_767_607_200_000),
        (1_767_607_200, 1_767_607_200_000),
        (1_767_607_200.25, 1_767_607_200_250),
        ("1767607200", 1_767_607_200_000),
        (1_767_607_200_000, 1_767_607_200_000),
        (1_767_607_200_000_000, 1_767_607_200_000),
        ("1767607200060000000", 1_767_607_200_060),
        (0, None),
        (-1, None),
        (7e18, None),
        ("1999-12-31T23:59:59Z", None),
        ("2100-01-01T00:00:00Z", None),
        ("yesterday", None),
        ("nan", None),
        (float("inf"), None),
        (True, None),
        (None, None),
        ([1], None),
    ],
)
def test_times(given_time: Any, expected: int | None) -> None:
    """Of every unit; a time that no event may have is none."""
    assert time_of(given_time) == expected


def test_a_workspace_is_the_root_of_the_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Below a git project, also one begun just now, it is its root, elsewhere the folder; a long path stays its own."""
    inside = tmp_path / "shop" / "src" / "deep"
    inside.mkdir(parents=True)
    assert workspace_of(str(inside)) == str(inside)
    (tmp_path / "shop" / ".git").mkdir()
    later = monotonic() + workspaces.KEPT_S
    monkeypatch.setattr(workspaces, "monotonic", lambda: later)
    assert workspace_of(str(inside)) == str(tmp_path / "shop")
    long = ["/" + "/".join(["folder"] * 60 + [name]) for name in ("a", "b")]
    assert len({workspace_of(path) for path in long}) == 2
    assert all(len(workspace_of(path)) <= 256 for path in long)
    assert workspace_of("") == ""
    assert workspace_of("/" + "x" * 300).startswith("x" * 200), "no file system holds that name"


def test_names_are_texts() -> None:
    """Objects name nothing; joining characters are taken out."""
    assert [name_of(x) for x in ("a\x1fb\x00", 7, {"a": 1}, None, True)] == ["a b", "7", "", "", ""]
    assert arguments_of("[1]") == {"input": [1]}
    assert arguments_of("") == {}


def test_long_texts_stay_as_different_as_they_were() -> None:
    """Results keep beginning, end and length; arguments also differ by what is left out."""
    long = "a" * 30_000
    assert len(shortened(long)) < MAX_TEXT + 100
    assert shortened(long) == shortened("a" * 16_000 + "b" + "a" * 13_999) != shortened(long + "a")
    assert shortened(long, distinct=True) != shortened("a" * 16_000 + "b" + "a" * 13_999, distinct=True)


@pytest.mark.parametrize(
    "value",
    [
        {"content": "x" * 5_000_000},
        {"edits": [{"text": "y" * 9000}] * 400},
        {str(number): "z" for number in range(100_000)},
        orjson.loads(b"[" * 500 + b"]" * 500),
        orjson.loads(b'{"a":' * 200 + b"1" + b"}" * 200),
    ],
)
def test_any_value_fits_into_an_event(value: Any) -> None:
    """Large ones with their texts cut, deep ones as text."""
    made = orjson.dumps(
        {
            "schema_version": "1.0", "id": "1", "type": "tool_call.started", "time": "2026-01-05T10:00:00Z",
            "session_id": "s", "call_id": "c", "tool_name": "t", "args": bounded(value),
        }
    )  # fmt: skip
    decode_event(made)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("Exit code 2\nno rule", 2),
        ("Error: Exit code 127\nfoo: not found", 127),
        ("Exit code: 1\nWall time: 0.3 seconds\nOutput:\nboom", 1),
        ("Chunk ID: 1\nWall time: 1.0 seconds\nProcess exited with code 0\nOutput:\nExit code: 1", 0),
        ("Process exited with code -9\nOutput:\n", -9),
        ("ok\n[The command completed with exit code 3.]\n[Current working directory: /w]", 3),
        ("a\nb\nc\nd\ne\nf\ng\nExit code: 1\n", None),
        ("the docs say: Exit code: 1 means failure", None),
        ("[The command has no new output after 10 seconds]", None),
    ],
)
def test_exit_codes(text: str, code: int | None) -> None:
    """As the client states them, not as a file speaks of them."""
    assert exit_code_of(text) == code


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("The user doesn't want to proceed with this tool use. The tool use was rejected", "user_rejected"),
        ("Permission to use Bash has been denied. IMPORTANT: You *may*", "user_rejected"),
        ("Claude requested permissions to use Write, but you haven't granted it yet.", "user_rejected"),
        ("exec command rejected by user", "user_rejected"),
        ("patch rejected by user", "user_rejected"),
        ("[Request interrupted by user for tool use]", "interrupted"),
        ("aborted by user after 5.0s", "interrupted"),
        ("Wall time: 3.2 seconds\naborted by user", "interrupted"),
        ("aborted", "interrupted"),
        ("<tool_use_error>Sibling tool call errored</tool_use_error>", "sibling_error"),
        ("<tool_use_error>Cancelled: parallel tool call Bash(ls) errored</tool_use_error>", "sibling_error"),
        ("PreToolUse:Read hook error: blocked", "blocked_by_guard"),
        ("transaction aborted: deadlock", None),
        ("x" * 3000 + " rejected by user", None),
    ],
)
def test_remarks_of_clients(text: str, kind: str | None) -> None:
    """Refused and interrupted calls failed in no tool."""
    found = remark_of(text)
    assert (found.error or {}).get("type") if found else found is kind
    assert (found and (found.error or {})["type"]) == kind


@pytest.mark.parametrize(
    ("result", "kind"),
    [
        ("all good", None),
        ("Error handling is described in chapter 3", None),
        ("Error: user not found", "tool_error"),
        ("Error executing tool search: boom", "tool_error"),
        ("Traceback (most recent call last):\n  boom", "tool_error"),
        ("ValueError: bad", "ValueError"),
        ({"success": False, "message": "no seat left"}, "tool_error"),
        ({"success": True}, None),
        ({"status": "failed", "job": 3}, None),
        ({"error": "read by the folds"}, None),
    ],
)
def test_endings_told_by_results(result: Any, kind: str | None) -> None:
    """Where a log has no field for it."""
    error = ending_of(result).error
    assert (error["type"] if error else None) == kind


def test_wall_times() -> None:
    """Codex says how long a command ran; waiting for an approval is not in it."""
    assert wall_time_of("Chunk ID: 1\nWall time: 1.5000 seconds\nOutput:\n") == 1500
    assert wall_time_of("Output:\nWall time: 9 seconds\n") is None


@pytest.mark.parametrize(
    ("record", "origin"),
    [
        ({"resourceSpans": []}, "otel"),
        ({"name": "x", "context": {"trace_id": "0x1", "span_id": "0x2"}}, "otel"),
        ({"type": "session_meta", "payload": {"id": "x"}}, "codex"),
        ({"id": "x", "timestamp": "t", "instructions": None}, "codex"),
        ({"type": "user", "sessionId": "s", "message": {"role": "user"}}, "claude-code"),
        ({"type": "summary", "summary": "x", "leafUuid": "y"}, "claude-code"),
        ({"type": "system", "subtype": "init", "session_id": "s"}, "claude-code"),
        ({"type": "session.start", "data": {"sessionId": "x"}}, "copilot"),
        ({"role": "user", "message": {"content": []}}, "cursor"),
        ({"type": "session_start", "id": "x", "cwd": "/x"}, "droid"),
        ({"conversation_id": "x", "history": []}, "kiro"),
        ({"version": "v1", "kind": "Prompt", "data": {"content": []}}, "kiro"),
        ({"info": {"id": "x", "directory": "/x"}, "messages": []}, "opencode"),
        ({"type": "text", "timestamp": 1, "sessionID": "x", "part": {"type": "text"}}, "opencode"),
        ({"type": "session", "version": 3, "id": "x", "timestamp": "t", "cwd": "/x"}, "pi"),
        ({"info": {"reward": 1}, "messages": []}, "openai"),
        ({"history": []}, "openai"),
        ({"messages": []}, "openai"),
        ({"role": "user", "content": "x"}, "openai"),
        ({"task_id": 1, "traj": []}, "openai"),
        ({"type": "function_call", "name": "x"}, "openai"),
        ({"a": 1}, ""),
    ],
)
def test_formats_are_recognised(record: dict[str, Any], origin: str) -> None:
    """By what only they have."""
    assert recognised(objects_of([b'{"type":"?"}\n', orjson.dumps(record)], "f", SkippedLines())) == origin


FIELDS = """type payload role content tool_calls id function name arguments text messages tool_call_id message sessionId
    timestamp uuid input output call_id attributes key value stringValue resourceSpans scopeSpans spans spanId traceId
    parentSpanId startTimeUnixNano endTimeUnixNano status code events gen_ai.operation.name trajectory observation
    choices request response isSidechain toolUseResult is_error data kind info parts part state sessionID history user
    assistant tool_uses metadata time toolRequests toolCallId message_id parentId""".split()
WORDS = """user assistant tool function_call function_call_output response_item event_msg session_meta message text
    tool_use tool_result execute_tool chat mcp_call exec_command_end toolCall toolResult toolUse Prompt
    AssistantMessage ToolResults completed error assistant.message user.message tool.execution_start
    tool.execution_complete 1767607200000000000 2026-01-05T10:00:00Z""".split()
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-5, 2**62)
    | st.floats(allow_nan=False)
    | st.sampled_from(WORDS)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(FIELDS), inner, max_size=6),
    max_leaves=16,
)


@given(st.lists(JSON.map(lambda value: orjson.dumps(value, default=str)) | st.binary(max_size=30), max_size=6))
def test_no_log_crashes_an_import(log: list[bytes]) -> None:
    """Whatever stands in it: valid events, or a clear error."""
    lines = [b'{"role":"user","content":"x"}\n', *(line.replace(b"\n", b" ") + b"\n" for line in log)]
    for origin in sorted(IMPORTERS):
        for value in read(origin, lines):
            decode_event(value)


def test_compressed_logs_are_read_by_the_command(tmp_path: Any) -> None:
    """The command opens them; here only that a cut archive is told."""
    from trustfold.cli.import_logs import lines_of

    packed = gzip.compress(b"".join(b'{"n": %d}\n' % number for number in range(20_000)))
    (tmp_path / "cut.gz").write_bytes(packed[: len(packed) // 2])
    damages: list[str] = []
    with gzip.open(tmp_path / "cut.gz") as opened:
        kept = list(lines_of(opened, damages, "cut.gz"))  # type: ignore[arg-type]
    assert kept
    assert "cut.gz: ends early or is damaged" in damages[0]
