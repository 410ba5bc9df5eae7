"""Following logs: every event once, whatever happens to the file or to who follows it."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import orjson
import pytest
from command_line import trustfold, up
from hypothesis import given, settings
from hypothesis import strategies as st
from session_logs import LOGS, written
from trustfold.cli import render, tail
from trustfold.errors import TrustfoldError
from trustfold.ingest import ImportRun, following
from trustfold.ingest.growing_files import HEAD_BYTES, FileFollower

WHOLE = {origin: written(records) for origin, records in LOGS.items()}


class Follower:
    """Somebody who follows the logs in a folder.

    Attributes:
        events: what was published so far.
    """

    def __init__(self, folder: Path, *, from_start: bool = True) -> None:
        self.folder = folder / "logs"
        self.folder.mkdir(exist_ok=True)
        self.places = folder / "places.json"
        self.events: list[dict[str, Any]] = []
        self.restart(from_start=from_start)

    def restart(self, *, from_start: bool = True) -> None:
        """Begin anew with what is kept."""
        self.logs = FileFollower([self.folder], self.places, run=ImportRun(), from_start=from_start)

    def look(self, *, crash: bool = False) -> list[str]:
        """Publish what is new; returns its types. A crash comes before that is noted."""
        found: list[dict[str, Any]] = []
        for path, events in self.logs.news():
            found += map(orjson.loads, events)
            if crash:
                break
            self.logs.published(path)
        self.events += found
        return [event["type"] for event in found]

    def ids(self) -> list[str]:
        """Ids of everything published, in order."""
        return [event["id"] for event in self.events]


def at_once(log: bytes) -> list[str]:
    """Ids of the events of a whole log."""
    with TemporaryDirectory() as folder:
        follower = Follower(Path(folder))
        (follower.folder / "log.jsonl").write_bytes(log)
        follower.look()
        return follower.ids()


AT_ONCE = {origin: at_once(log) for origin, log in WHOLE.items()}


@settings(max_examples=40, deadline=None)
@given(
    origin=st.sampled_from(sorted(LOGS)),
    steps=st.lists(st.tuples(st.integers(1, 400), st.sampled_from(["", "restart", "rename", "crash"])), max_size=12),
)
def test_every_event_once_however_it_is_written_and_read(origin: str, steps: list[tuple[int, str]]) -> None:
    """In any pieces, with restarts and new names in between; a crash repeats what has the same ids."""
    data = WHOLE[origin]
    with TemporaryDirectory() as place:
        follower = Follower(Path(place))
        log = follower.folder / "log.jsonl"
        log.touch()
        for number, (size, then) in enumerate([*steps, (len(data), "")]):
            with log.open("ab") as file:
                file.write(data[:size])
            data = data[size:]
            follower.look(crash=then == "crash")
            if then == "rename":
                log = log.rename(log.with_name(f"log-{number}.jsonl"))
            if then:
                follower.restart()
        assert list(dict.fromkeys(follower.ids())) == AT_ONCE[origin]
        if "crash" not in dict(map(reversed, steps)):  # type: ignore[arg-type]
            assert len(follower.ids()) == len(AT_ONCE[origin])


@pytest.mark.parametrize("origin", sorted(LOGS))
def test_a_call_is_told_when_it_has_ended(origin: str, tmp_path: Path) -> None:
    """Start and end together; one without an answer is told as given up when its user speaks again."""
    follower = Follower(tmp_path)
    (follower.folder / "log.jsonl").write_bytes(WHOLE[origin])
    kinds = follower.look()
    assert kinds.count("tool_call.started") == kinds.count("tool_call.finished") == 2
    for place, kind in enumerate(kinds):
        if kind == "tool_call.started":
            assert kinds[place + 1] == "tool_call.finished"


@pytest.mark.parametrize("origin", sorted(LOGS))
def test_the_end_of_a_growing_log_ends_no_turn(origin: str, tmp_path: Path) -> None:
    """Only a record of the client does: the model may go on, and an end told later would come too late."""
    follower = Follower(tmp_path)
    (follower.folder / "log.jsonl").write_bytes(WHOLE[origin])
    kinds = follower.look()
    assert kinds.count("turn.started") == 2
    assert kinds.count("turn.ended") == (0 if origin == "gemini" else 1)


def test_inputs_are_told_at_once(tmp_path: Path) -> None:
    """Also while a call runs, whose start is held back."""
    follower = Follower(tmp_path)
    *before, _, call = LOGS["claude-code"]
    report = "<task-notification>\n<status>completed</status>\n</task-notification>"
    told = call | {"type": "user", "uuid": "u10", "message": {"role": "user", "content": report}}
    (follower.folder / "log.jsonl").write_bytes(written([*before, call, told]))
    assert follower.look()[-1] == "input.received"


def test_what_stood_there_before_is_left_out(tmp_path: Path) -> None:
    """The first time, unless it is asked for; what is understood by it is known all the same."""
    (tmp_path / "logs").mkdir()
    log = tmp_path / "logs" / "log.jsonl"
    lines = WHOLE["codex"].splitlines(keepends=True)
    log.write_bytes(b"".join(lines[:6]))
    follower = Follower(tmp_path, from_start=False)
    assert follower.look() == []
    with log.open("ab") as file:
        file.write(b"".join(lines[6:8]))
    follower.restart(from_start=False)
    assert follower.look() == ["tool_call.started", "tool_call.finished"]
    (follower.folder / "new.jsonl").write_bytes(WHOLE["gemini"])
    assert "user.message" in follower.look()


def test_a_log_that_is_cut_and_written_anew(tmp_path: Path) -> None:
    """What it says again counts once; what it says now is heard."""
    follower = Follower(tmp_path)
    log = follower.folder / "log.jsonl"
    lines = WHOLE["gemini"].splitlines(keepends=True)
    log.write_bytes(b"".join(lines[:8]))
    follower.look()
    log.write_bytes(b"".join(lines[:3]))
    assert follower.look() == []
    log.write_bytes(b"".join(lines))
    follower.look()
    assert follower.ids() == AT_ONCE["gemini"]


def test_another_log_takes_its_name(tmp_path: Path) -> None:
    """Both are followed, under whatever names."""
    follower = Follower(tmp_path)
    log = follower.folder / "log.jsonl"
    log.write_bytes(WHOLE["claude-code"])
    follower.look()
    log.rename(follower.folder / "old.jsonl")
    log.write_bytes(WHOLE["codex"] + WHOLE["codex"][-1:])
    follower.look()
    follower.restart()
    assert follower.look() == []
    assert sorted(follower.ids()) == sorted(AT_ONCE["claude-code"] + AT_ONCE["codex"])


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("named", ["log.jsonl.1", "log-1.jsonl", "log.1.old"])
@pytest.mark.parametrize("origin", sorted(LOGS))
def test_the_end_of_a_rotated_log_is_read(origin: str, named: str, restarts: bool, tmp_path: Path) -> None:
    """Whatever name it gets, also while nobody looks; the new log at its place is read from its beginning."""
    follower = Follower(tmp_path)
    log = follower.folder / "log.jsonl"
    data, other = WHOLE[origin], WHOLE["codex" if origin != "codex" else "gemini"]
    cut = len(data) // 2
    log.write_bytes(data[:cut])
    follower.look()
    with log.open("ab") as file:
        file.write(data[cut:])
    log.rename(log.with_name(named))
    log.write_bytes(other)
    if restarts:
        follower.restart()
    for _ in range(2):
        follower.look()
    assert sorted(follower.ids()) == sorted(AT_ONCE[origin] + AT_ONCE["codex" if origin != "codex" else "gemini"])


@pytest.mark.parametrize("origin", sorted(LOGS))
@pytest.mark.parametrize("way", ["written anew", "replaced", "deleted and made again"])
def test_a_log_that_is_rewritten_in_the_same_words(way: str, origin: str, tmp_path: Path) -> None:
    """A shorter form of the same session that has grown past what was read: all is told, and once."""
    follower = Follower(tmp_path)
    log = follower.folder / "log.jsonl"
    lines = WHOLE[origin].splitlines(keepends=True)
    head, blank = b" " * HEAD_BYTES + b"\n", b" " * len(WHOLE[origin]) + b"\n"
    log.write_bytes(head + blank + b"".join(lines[:-2]) + lines[-2][:10])
    follower.look()
    if way == "deleted and made again":
        log.unlink()
        assert follower.look() == []
    place = log.with_suffix(".new") if way == "replaced" else log
    rewritten = head + b"\n" + WHOLE[origin] + blank
    place.write_bytes(rewritten)
    place.rename(log)
    follower.look()
    assert follower.ids() == at_once(rewritten)


@pytest.mark.parametrize("origin", sorted(LOGS))
def test_a_half_line_that_is_written_again(origin: str, tmp_path: Path) -> None:
    """A client that died within a line: its successor cuts the line and writes others in its place."""
    follower = Follower(tmp_path)
    log = follower.folder / "log.jsonl"
    lines = WHOLE[origin].splitlines(keepends=True)
    log.write_bytes(b"".join(lines[:4]) + lines[4][: len(lines[4]) // 2] + b"broken")
    follower.look()
    log.write_bytes(WHOLE[origin])
    follower.look()
    assert follower.ids() == AT_ONCE[origin]


@pytest.mark.parametrize("origin", sorted(LOGS))
def test_a_copied_log_counts_once(origin: str, tmp_path: Path) -> None:
    """A log is copied and then cut, as `copytruncate` does; what stands in the copy was told before."""
    follower = Follower(tmp_path)
    log = follower.folder / "log.jsonl"
    lines = WHOLE[origin].splitlines(keepends=True)
    log.write_bytes(b"".join(lines[:-2]))
    follower.look()
    (follower.folder / "copy.jsonl").write_bytes(log.read_bytes())
    follower.look()
    log.write_bytes(b"")
    follower.look()
    log.write_bytes(lines[-2] + lines[-1])
    follower.look()
    told = follower.ids()
    assert len(set(told)) == len(told)


def test_a_resumed_session_repeats_nothing(tmp_path: Path) -> None:
    """Lines that another log has said count once, also after a restart."""
    follower = Follower(tmp_path)
    (follower.folder / "a.jsonl").write_bytes(WHOLE["claude-code"])
    follower.look()
    follower.restart()
    (follower.folder / "b.jsonl").write_bytes(WHOLE["claude-code"].replace(b'"claude-1"', b'"claude-2"'))
    assert [kind for kind in follower.look() if kind.startswith("tool_call")] == []


def test_where_it_stands_must_be_kept(tmp_path: Path) -> None:
    """Else the error says what cannot be written; nobody would know what was published."""
    follower = Follower(tmp_path)
    follower.places.unlink()
    follower.places.mkdir()
    (follower.folder / "log.jsonl").write_bytes(WHOLE["codex"])
    with pytest.raises(TrustfoldError, match=r"places\.json: cannot be written"):
        follower.look()


def test_a_line_without_an_end_is_not_kept_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What follows it is read."""
    monkeypatch.setattr(following, "MAX_LINE_BYTES", 1000)
    follower = Follower(tmp_path)
    log = follower.folder / "log.jsonl"
    log.write_bytes(b"x" * 5000)
    assert follower.look() == []
    with log.open("ab") as file:
        file.write(b"\n" + WHOLE["codex"])
    follower.look()
    assert follower.ids() == AT_ONCE["codex"]


def test_other_files_are_passed_over(tmp_path: Path) -> None:
    """Garbage and histories of prompts stop nothing."""
    follower = Follower(tmp_path)
    (follower.folder / "history.jsonl").write_bytes(b'{"session_id": "x", "ts": 1, "text": "hi"}\n' * 900)
    (follower.folder / "garbage.jsonl").write_bytes(bytes(range(256)) * 40 + b"\n[1]\n7\n" + b"[" * 5000 + b"\n")
    (follower.folder / "log.jsonl").write_bytes(b"\x00\xff\n" + WHOLE["codex"])
    follower.look()
    assert follower.ids() == AT_ONCE["codex"]


def test_a_session_that_hooks_report_is_left_out(tmp_path: Path) -> None:
    """An agent that is connected and whose log is followed counts once; other sessions of it are published."""
    lines = WHOLE["codex"]
    session = "codex-1"
    log = tmp_path / "log.jsonl"
    log.write_bytes(lines)
    (tmp_path / "other.jsonl").write_bytes(lines.replace(session.encode(), b"another"))
    with up("--store", "store.sqlite", cwd=tmp_path) as server:
        hook = {"hook_event_name": "UserPromptSubmit", "session_id": session, "prompt": "go", "cwd": "/"}
        assert server.request("POST", "/hooks/codex", orjson.dumps(hook))[0] == 200
        env = {"XDG_STATE_HOME": str(tmp_path / "state")}
        command = ("tail", log, tmp_path / "other.jsonl", "--url", server.url, "--once", "--from-start")
        done = trustfold(*command, cwd=tmp_path, env=env)
    count = len(AT_ONCE["codex"])
    assert f"left out: {count} events of sessions that hooks already report".encode() in done.stderr
    assert f"{count} events published".encode() in done.stderr


def test_published_to_a_running_server_once(tmp_path: Path) -> None:
    """The command, twice over a growing log; nobody else may follow for the same place at the same time."""
    log = tmp_path / "log.jsonl"
    lines = WHOLE["codex"].splitlines(keepends=True)
    log.write_bytes(b"".join(lines[:5]))
    env = {"XDG_STATE_HOME": str(tmp_path / "state")}
    with up("--store", "store.sqlite", cwd=tmp_path) as server:
        command = ("tail", log, "--url", server.url, "--once", "--from-start")
        first = trustfold(*command, cwd=tmp_path, env=env)
        assert first.returncode == 0, first.stderr
        log.write_bytes(b"".join(lines))
        second = trustfold(*command, cwd=tmp_path, env=env)
        third = trustfold(*command, cwd=tmp_path, env=env)
        told = [int(done.stderr.split(b" event")[0].split()[-1]) for done in (first, second, third)]
        assert sum(told) == len(AT_ONCE["codex"])
        assert told[2] == 0
    refused = trustfold(*command, cwd=tmp_path, env=env)
    assert refused.returncode == 0  # there is nothing to be published
    log.write_bytes(WHOLE["gemini"])
    assert trustfold(*command, cwd=tmp_path, env=env).returncode == 3
    kept = (tmp_path / "state" / "trustfold").glob("tail-*.json")
    assert [path.stat().st_mode & 0o777 for path in kept] == [0o600]


def test_it_says_what_it_waits_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once, at its first attempt."""
    said = threading.Event()
    notes: list[str] = []

    def told(text: str) -> None:
        notes.append(text)
        said.set()

    def answers_late(_events: Sequence[bytes]) -> tail.PublishOutcome:
        assert said.wait(60)
        return tail.PublishOutcome()

    monkeypatch.setattr(render, "note", told)
    monkeypatch.setattr(render, "TELL_S", 0.0)
    for origin in ("codex", "gemini"):
        (tmp_path / f"{origin}.jsonl").write_bytes(WHOLE[origin])
    follower = FileFollower([tmp_path], tmp_path / "places.json", run=ImportRun(), from_start=True)
    tail._follow(follower, answers_late, "kafka.example:9092", once=True)
    assert notes == ["still waiting for kafka.example:9092"]
