"""What the history says of a call is what the folds said, under whatever rules: it judges nothing itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest
from recorded import TRACE_NAMES, lines_of, replayed, rows
from scenarios import ALL
from trustfold.config import RuleFiles
from trustfold.history.catalogue import connect
from trustfold.history.recorder import PartitionRecorder
from trustfold.history.sessions.recorded import recorded_session
from trustfold.history.sessions.timeline_calls import calls_of
from trustfold.projections.emitter import is_record_of_call
from trustfold.recording.files import record_files
from trustfold.rules.rules import RuleSet
from two_days import two_days

RULES = """
[tools]
expected_failures = ["search"]
classes = { edit_file = "read" }
[calls]
overdue_after_ms = 120000
"""
"""Rules under which calls are keyed, classed and judged otherwise than under the shipped ones."""

MOST = 4_000
COLUMNS = "id, call_id, failure_key, tool_class, outcome, verdict, severity, signature, summary, same_result, step"


def rules_of(folder: Path) -> RuleSet:
    """The rules, from a file."""
    file = folder / "rules.toml"
    file.write_text(RULES)
    return RuleFiles(file).load()


def told_by_replay(lines: list[bytes], rules: RuleSet) -> list[tuple[Any, ...]]:
    """Every record of a call that a replay writes, as a row."""
    bodies = [
        orjson.loads(one.value)
        for one in replayed([("events", line) for line in lines], rules)
        if is_record_of_call(one) and one.value is not None
    ]
    names = "cause call_id fine_key tool_class outcome verdict severity signature summary same_result step".split()
    absent = {"tool_class": "unknown"}
    found = [tuple(body.get(name) or absent.get(name) for name in names) for body in bodies if body.get("call_id")]
    return sorted(dict.fromkeys(found), key=str)


def told_by_history(root: Path, lines: list[bytes], rules: RuleSet) -> list[tuple[Any, ...]]:
    """Every call of the history of the same events."""
    file = root / "run.ndjson"
    file.write_bytes(b"\n".join(lines))
    recorder = PartitionRecorder(root / "history")
    record_files(recorder, (str(file),), rules)
    recorder.close()
    found = rows(root / "history", f"SELECT {COLUMNS} FROM tool_calls")
    return sorted([tuple(value or None for value in row) for row in found], key=str)


def runs() -> dict[str, list[bytes]]:
    """Some runs: every scenario, and two days of three models."""
    made = {name: [value for topic, value in scenario().records if topic == "events"] for name, scenario in ALL.items()}
    return made | {"two days": [value for topic, value in two_days() if topic == "events"]}


@pytest.mark.parametrize("name", sorted(runs()))
def test_history_and_replay_agree_on_every_call(name: str, tmp_path: Path) -> None:
    """Under rules of the user's, and otherwise than under the shipped ones."""
    lines, rules = runs()[name], rules_of(tmp_path)
    expected = told_by_replay(lines, rules)
    assert told_by_history(tmp_path, lines, rules) == expected
    if name == "two days":
        assert len(expected) > 900
        assert expected != told_by_replay(lines, RuleSet())


@pytest.mark.slow
@pytest.mark.parametrize("trace", TRACE_NAMES)
def test_history_and_replay_agree_on_every_call_of_a_recorded_run(trace: str, tmp_path: Path) -> None:
    """However odd it is."""
    lines, rules = lines_of(trace)[:MOST], rules_of(tmp_path)
    assert told_by_history(tmp_path, lines, rules) == told_by_replay(lines, rules)


def test_a_session_told_from_history_and_from_its_events_is_the_same(tmp_path: Path) -> None:
    """What became of each call, with or without its record at hand."""
    lines, rules = runs()["two days"], rules_of(tmp_path)
    told_by_history(tmp_path, lines, rules)
    events = [orjson.loads(line) for line in lines]
    session = events[0]["session_id"]
    own = [event for event in events if event["session_id"] == session]
    with connect(tmp_path / "history") as connection:
        found = recorded_session(connection, session, rules).calls
        under_shipped = recorded_session(connection, session).calls
    expected = [
        (call.call_id, call.verdict, call.key, call.error, call.times, call.summary) for call in calls_of(own, rules)
    ]
    assert len(expected) > 15
    for calls in (found, under_shipped):
        assert [(one.call_id, one.verdict, one.key, one.error, one.times, one.summary) for one in calls] == expected
