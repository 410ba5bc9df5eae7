"""`trustfold import` on files as people have them: directories, archives, pipes, garbage; and what is decided then."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import orjson
import pytest
from command_line import trustfold
from recorded import rows
from trustfold.cli.import_logs import FORMATS

CHAT = {
    "messages": [
        {"role": "user", "content": "go"},
        {"role": "assistant", "tool_calls": [{"id": "1", "function": {"name": "f", "arguments": "{}"}}]},
        {"role": "tool", "tool_call_id": "1", "content": "x"},
    ]
}


def claude(session: str, second: int, kind: str, *parts: Any, **more: Any) -> bytes:
    """A line of a Claude Code log."""
    record = {
        "type": kind,
        "sessionId": session,
        "timestamp": f"2026-01-05T10:00:{second:02d}Z",
        "uuid": f"{session}-{second}",
        "message": {"role": kind, "model": "claude-x", "content": list(parts)},
        **more,
    }
    return orjson.dumps(record) + b"\n"


def looping(session: str) -> bytes:
    """A session that runs the same failing command again and again."""
    log = claude(session, 0, "user", {"type": "text", "text": "go"})
    for number in range(8):
        use = {"type": "tool_use", "id": f"{session}{number}", "name": "Bash", "input": {"command": "make"}}
        answer = {"type": "tool_result", "tool_use_id": use["id"], "content": "Exit code 2\nno rule", "is_error": True}
        log += claude(session, number * 4 + 1, "assistant", use) + claude(session, number * 4 + 2, "user", answer)
    return log


def events_of(output: bytes) -> list[dict[str, Any]]:
    """Events, one a line."""
    return [orjson.loads(line) for line in output.splitlines()]


def test_a_directory_of_logs(tmp_path: Path) -> None:
    """All that are recognised, in the order of time; a file of something else is told."""
    logs = tmp_path / "projects" / "shop"
    logs.mkdir(parents=True)
    (logs / "b.jsonl").write_bytes(looping("s-b"))
    (logs / "a.jsonl.gz").write_bytes(gzip.compress(looping("s-a")))
    (logs / "settings.json").write_bytes(b'{"theme": "dark"}')
    (logs / "notes.txt").write_bytes(b"not a log")
    done = trustfold("import", "projects", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    events = events_of(done.stdout)
    assert [event["time"] for event in events] == sorted(event["time"] for event in events)
    assert {event["session_id"] for event in events} == {"s-a", "s-b"}
    assert f"settings.json: none of the formats {', '.join(FORMATS)} is recognised" in done.stderr.decode()
    assert b"of 2 sessions" in done.stderr


def test_a_resumed_session_in_another_file_counts_once(tmp_path: Path) -> None:
    """The copy is the longer file, whatever its name."""
    first = looping("s-1")
    (tmp_path / "z.jsonl").write_bytes(first)
    copy = first.replace(b'"sessionId":"s-1"', b'"sessionId":"s-2"')
    (tmp_path / "a.jsonl").write_bytes(copy + claude("s-2", 50, "user", {"type": "text", "text": "more"}))
    done = trustfold("import", ".", cwd=tmp_path)
    sessions = [event["session_id"] for event in events_of(done.stdout)]
    assert sessions.count("s-2") == 4
    assert b"17 lines repeated earlier lines and were counted once" in done.stderr


@pytest.mark.parametrize(
    ("data", "arguments", "code", "told"),
    [
        (b'{"a": 1}\n', (), 2, b"name it with --format"),
        (b'{"a": 1}\n', ("--format", "codex"), 0, b"1 event of 1 session"),
        (b"hello\nworld\n", (), 2, b"JSON"),
        (b"", (), 2, b"name it with --format"),
        (orjson.dumps(CHAT), ("--format", "otel"), 2, b"no line looks like otel"),
        (orjson.dumps(CHAT), ("--format", "elvish"), 2, b"'openai', 'otel', 'claude-code', 'codex'"),
        (orjson.dumps(CHAT) + b"\ngarbage\n" + orjson.dumps(CHAT)[:40], (), 0, b"left out: log.json:2: not JSON"),
        (b"\xef\xbb\xbf" + orjson.dumps(CHAT) + b"\r\n", (), 0, b"6 events of 1 session"),
        (gzip.compress(orjson.dumps(CHAT)), (), 0, b"6 events of 1 session"),
        (b"junk\n" * 50 + orjson.dumps(CHAT), ("--from", "openai"), 0, b"6 events of 1 session"),
    ],
)
def test_files_as_they_are(tmp_path: Path, data: bytes, arguments: tuple[str, ...], code: int, told: bytes) -> None:
    """Whatever can be read is read; the rest is told with line and reason, and never as a traceback."""
    (tmp_path / "log.json").write_bytes(data)
    done = trustfold("import", "log.json", *arguments, cwd=tmp_path)
    assert (done.returncode, told in done.stderr) == (code, True), done.stderr
    assert b"Traceback" not in done.stderr


def test_recognising_a_format_costs_no_line(tmp_path: Path) -> None:
    """Whatever is looked at first is read all the same."""
    lines = [orjson.dumps({"role": "user", "content": str(number)}) for number in range(1000)]
    (tmp_path / "log.jsonl").write_bytes(b"\n".join(lines))
    done = trustfold("import", "log.jsonl", cwd=tmp_path)
    assert sum(event["type"] == "user.message" for event in events_of(done.stdout)) == 1000


def test_a_cut_archive_gives_what_stood_before(tmp_path: Path) -> None:
    """And says so."""
    packed = gzip.compress(b"".join(looping(f"s-{number}") for number in range(300)))
    (tmp_path / "log.gz").write_bytes(packed[: len(packed) * 2 // 3])
    done = trustfold("import", "log.gz", cwd=tmp_path)
    assert done.returncode == 1
    assert b"everything before that has been imported" in done.stderr
    assert len(events_of(done.stdout)) > 100


def test_standard_input_and_an_empty_directory(tmp_path: Path) -> None:
    """A pipe is named stdin; a directory without logs is an error that says what is looked for."""
    done = trustfold("import", "-", cwd=tmp_path, stdin=orjson.dumps(CHAT))
    assert {event["session_id"] for event in events_of(done.stdout)} == {"stdin#1"}
    empty = trustfold("import", ".", cwd=tmp_path)
    assert (empty.returncode, b"*.jsonl" in empty.stderr) == (2, True)


def test_secrets_stay_behind_unless_they_are_wanted(tmp_path: Path) -> None:
    """Logs were written for their owner; a history is for others, too."""
    secret = {
        "messages": [
            {
                "role": "assistant",
                "tool_calls": [
                    {"id": "1", "function": {"name": "login", "arguments": '{"password": "hunter22", "user": "ann"}'}}
                ],
            },
            {"role": "tool", "tool_call_id": "1", "content": "Error: hunter22 is wrong"},
        ]
    }
    (tmp_path / "log.json").write_bytes(orjson.dumps(secret))
    plain = trustfold("import", "log.json", cwd=tmp_path).stdout
    assert (b"hunter22" in plain, b"[redacted]" in plain, b"ann" in plain) == (False, True, True)
    assert b"hunter22" in trustfold("import", "log.json", "--keep-secrets", cwd=tmp_path).stdout


def test_files_of_one_name_are_sessions_of_their_own(tmp_path: Path) -> None:
    """Named after their directories where they must be."""
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "run.json").write_bytes(orjson.dumps(CHAT))
    done = trustfold("import", "a/run.json", "b/run.json", cwd=tmp_path)
    assert {event["session_id"] for event in events_of(done.stdout)} == {"a/run#1", "b/run#1"}


def test_importing_twice_adds_nothing_to_a_history(tmp_path: Path) -> None:
    """The same ids: calls and decisions are those of one import."""
    (tmp_path / "log.jsonl").write_bytes(looping("s-1"))
    once = trustfold("import", "log.jsonl", cwd=tmp_path).stdout
    assert trustfold("import", "log.jsonl", cwd=tmp_path).stdout == once
    assert trustfold("record", "-", "--history", "h", cwd=tmp_path, stdin=once + once).returncode == 0
    assert rows(tmp_path / "h", "SELECT count(DISTINCT id) FROM events WHERE type = 'tool_call.finished'") == [(8,)]
    twice = trustfold("replay", "-", "--json", cwd=tmp_path, stdin=once + once)
    alone = trustfold("replay", "-", "--json", cwd=tmp_path, stdin=once)
    assert twice.stdout == alone.stdout
    assert b"error_retry_loop" in alone.stdout
    assert b"dead letter" not in alone.stderr


@pytest.mark.slow
def test_an_imported_history_answers_reports_and_what_ifs(tmp_path: Path) -> None:
    """From a directory of logs to a report, in three commands."""
    (tmp_path / "log.jsonl").write_bytes(looping("s-1"))
    events = trustfold("import", ".", cwd=tmp_path).stdout
    assert trustfold("record", "-", "--history", "h", cwd=tmp_path, stdin=events).returncode == 0
    (tmp_path / "other.toml").write_text("[behaviour.error_retry_loop]\nminor = 50\nmoderate = 60\nsevere = 70\n")
    whatif = trustfold("whatif", "--history", "h", "--rules", "other.toml", cwd=tmp_path)
    assert whatif.returncode == 0, whatif.stderr
    assert b"Would not have been decided" in whatif.stdout
    report = trustfold("report", "--history", "h", cwd=tmp_path)
    assert report.returncode == 0, report.stderr
    assert b"Bash" in report.stdout
