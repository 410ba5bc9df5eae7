"""`trustfold demo`: the bundled day is what its script writes, and the story tells all that was decided."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import demo_script
import orjson
import pytest
from command_line import trustfold
from trustfold.cli.demo import CHAPTERS, events
from trustfold.projections.emitter import StageOutput
from trustfold.projections.local_topology import LocalTopology
from trustfold.projections.topology import DECISION_TOPICS
from trustfold.rules.rules import TOOL_POLICY, BehaviourRules, EscalationRule, RuleSet
from trustfold.schemas.codec import decode_event

NUDGES = {1: "gentle", 2: "direct", 3: "interrupt"}
"""Nudge of each step of a ladder."""


def decided() -> list[StageOutput]:
    """What the bundled day leads to."""
    topology = LocalTopology(RuleSet())
    outputs = topology.feed("events", events()) + topology.tick(topology.stream_time)
    return [output for output in outputs if output.topic in DECISION_TOPICS and output.value is not None]


def test_the_bundled_day_is_what_the_script_writes() -> None:
    """`tests/support/demo_script.py` writes the committed file, byte for byte."""
    assert demo_script.FILE.read_bytes() == demo_script.written(), "run: make schemas"
    for line in events():
        decode_event(line)


def test_the_day_may_end_now(tmp_path: Path) -> None:
    """So that pages of the last days show it; as far apart as ever, with its ids."""
    told, moved = (
        [orjson.loads(line) for line in trustfold("demo", "--events", *more, cwd=tmp_path).stdout.splitlines()]
        for more in ((), ("--now",))
    )
    assert [orjson.loads(line)["id"] for line in events()] == [one["id"] for one in moved]
    later = {
        datetime.fromisoformat(new["time"]) - datetime.fromisoformat(old["time"])
        for old, new in zip(told, moved, strict=True)
    }
    assert len(later) == 1
    assert abs(datetime.fromisoformat(moved[-1]["time"]) - datetime.now(UTC)) < timedelta(hours=1)


def test_json_is_what_consumers_read(tmp_path: Path) -> None:
    """With --json the demo prints its decisions in wire format and nothing else."""
    done = trustfold("demo", "--json", cwd=tmp_path)
    assert done.returncode == 0
    assert done.stdout == b"".join((output.value or b"") + b"\n" for output in decided())
    assert done.stderr == b""
    assert list(tmp_path.iterdir()) == []


def test_its_events_can_be_kept_and_replayed(tmp_path: Path) -> None:
    """A stranger has a file for the other commands: folded again, it gives the same decisions."""
    kept = trustfold("demo", "--events", cwd=tmp_path)
    assert (kept.returncode, kept.stdout, kept.stderr) == (0, b"".join(line + b"\n" for line in events()), b"")
    (tmp_path / "run.ndjson").write_bytes(kept.stdout)
    replayed = trustfold("replay", "run.ndjson", "--json", cwd=tmp_path)
    assert replayed.stdout == trustfold("demo", "--json", cwd=tmp_path).stdout


def test_the_day_holds_what_the_seeds_tell() -> None:
    """The API is escalated, its circuit opens, both recover; blocked at once; one server; two ladders."""
    bodies = [orjson.loads(output.value or b"") for output in decided()]
    trust = [one for one in bodies if one["type"] == "trust.changed"]
    assert [(one["key"], one["to"]) for one in trust if not one["silent"]] == [
        ("service:api.example.com", "escalated"),
        ("service:api.example.com", "recovering"),
        ("service:api.example.com", "trusted"),
        ("bash|danger=root", "blocked"),
        ("service:atlassian", "escalated"),
    ]
    key = "http_request|domain=api.example.com|path_prefix=figures"
    assert [(one["key"], one["to"], one["part_of"]) for one in trust if one["silent"]] == [
        (key, to, "service:api.example.com") for to in ("escalated", "recovering", "trusted")
    ]
    circuits = [(one["breaker_key"], one["to"]) for one in bodies if one["type"] == "breaker.changed"]
    assert circuits == [("service:api.example.com", to) for to in ("open", "half_open", "closed")]
    nudges = [(one["session_id"], one["nudge_type"]) for one in bodies if one["type"] == "nudge.issued"]
    rules = BehaviourRules()
    for session, ladder in (("research", rules.repetitive_calls), ("restore", rules.announce_no_action)):
        steps = sorted({ladder.step(count) for count in range(ladder.minor, ladder.severe + 1)})
        taken = [kind for told, kind in nudges if told == session]
        assert taken == [NUDGES[step] for step in steps], f"{session}: edit chapters() of demo_script.py; make schemas"


@pytest.mark.parametrize("columns", ["60", "80", "120", "200"])
def test_the_story_fits_the_terminal(columns: str, tmp_path: Path) -> None:
    """At any width no line is longer than the terminal, and everything is told."""
    shown = trustfold("demo", cwd=tmp_path, env={"COLUMNS": columns}).stdout.decode()
    assert max(map(len, shown.splitlines())) <= min(int(columns), 100)
    flowing = re.sub(r"[▌─\s]+", " ", shown)
    trust = EscalationRule().count_threshold
    for chapter in CHAPTERS:
        assert chapter.title in flowing
        assert chapter.result in flowing
    for word in (
        "ESCALATED",
        "BLOCKED",
        "RECOVERING",
        "TRUSTED AGAIN",
        "CIRCUIT OPEN",
        "GENTLE NUDGE",
        "INTERRUPT NUDGE",
    ):
        assert word in shown
    for said in (
        f"{trust}/{trust} failures in ",
        f"{demo_script.TIMEOUTS}/{demo_script.TIMEOUTS} failures in ",
        f"{TOOL_POLICY.consecutive_failures} failures in a row",
        "a dangerous command was attempted",
        "pauses the session and calls the user",
        "refuses such calls until a person resets it",
        "manual reset required",
        "du -sh build → ok",
        "(part of it, silent)",
        f"… {demo_script.MINUTES_OF_OUTAGE} minutes later",
    ):
        assert said in flowing, said


def test_every_decision_has_words(tmp_path: Path) -> None:
    """Each trust, circuit and nudge decision of the day appears in the story with its reason or message."""
    flowing = re.sub(r"[▌─\s]+", " ", trustfold("demo", cwd=tmp_path).stdout.decode())
    for output in decided():
        body = orjson.loads(output.value or b"")
        if body["type"] == "trust.changed":
            assert body["reason"] in flowing
        if body["type"] == "nudge.issued":
            assert body["message"] in flowing
