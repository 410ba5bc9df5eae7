"""Situations of agents at work: healthy ones, about which nothing may be said, and stuck ones, which must be noticed.

A line of `silent.ndjson` and `speaking.ndjson` is one situation: the `events` of a session, `why` in a sentence, what
its `source` is, and what a good observer does:

- `expect`: `silent`, no pattern and no pause at all, or `speak`, at least one pattern;
- `pattern`: which may be the first to be said; of a silent one, those that are tempted to speak. docs/patterns.md lists
  the situations of each;
- `rules`: a document of rules, in place of the shipped ones where it speaks;
- `by_call`, `not_before_call`: the number of the finished call at which the first pattern comes at the latest, at the
  earliest;
- `never_paused`: no nudge interrupts;
- `never_asked`, `allowed`, `held`: every call, or each of these, is allowed; each of these is not. A situation that
  names calls to hold need not show a pattern.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from trustfold.cli.checks import CHECKS, CallChecker, GuardVerdict, check_of
from trustfold.rules.parser import overlaid
from trustfold.rules.rules import RuleSet
from trustfold.schemas.vocabulary import PatternType
from trustfold.streams.embedded.replay import FileReplay

Situation = dict[str, Any]

HERE = Path(__file__).parent
SHARED = Path(os.environ.get("TRUSTFOLD_SITUATIONS", HERE.parents[2] / "shared" / "cases" / "situations.ndjson"))
MARKS = {"by_call", "not_before_call", "never_paused", "never_asked", "allowed", "held", "rules"}


def situations(file: Path) -> list[Situation]:
    """Situations of a file."""
    return [json.loads(line) for line in file.read_text().splitlines()]


SILENT, SPEAKING = situations(HERE / "silent.ndjson"), situations(HERE / "speaking.ndjson")
OWN = SILENT + SPEAKING


@dataclass
class Observed:
    """What a replay said about one situation.

    Attributes:
        patterns: number of calls finished so far, name and severity of each detected pattern.
        paused: a nudge interrupts.
        not_allowed: ids of the calls that a guard would not simply have allowed.
        dead_letters: why events were refused.
    """

    patterns: list[tuple[int, str, str]] = field(default_factory=list)
    paused: bool = False
    not_allowed: set[str] = field(default_factory=set)
    dead_letters: list[str] = field(default_factory=list)


def observed(situation: Situation, folder: Path) -> Observed:
    """Replay a situation with checks, as `trustfold replay --checks` does, under the shipped rules."""
    events = sorted(situation["events"], key=lambda event: event["time"])
    file = folder / "events.ndjson"
    file.write_text("".join(json.dumps(event) + "\n" for event in events))
    ends = [_ms(event) for event in events if event["type"] == "tool_call.finished"]
    replay, seen = FileReplay(overlaid(RuleSet(), situation.get("rules", {}))), Observed()
    for output in replay.run([str(file)], feed=CallChecker(replay.topology).feed):
        if output.topic == CHECKS:
            check = check_of(output)
            if check.decision is not GuardVerdict.ALLOW:
                seen.not_allowed.add(check.call_id)
            continue
        said = json.loads(output.value or b"{}")
        if output.type == "pattern.detected":
            calls = sum(end <= output.time_ms for end in ends)
            seen.patterns.append((calls, said["pattern"], said["severity"]))
        elif output.type == "nudge.issued":
            seen.paused |= said["nudge_type"] == "interrupt"
        elif output.topic == "dead-letters":
            seen.dead_letters.append(f"{said['path']}: {said['message']}")
    return seen


def _ms(event: dict[str, Any]) -> int:
    return round(datetime.fromisoformat(event["time"]).timestamp() * 1000)


def shortcomings(situation: Situation, seen: Observed) -> Iterator[str]:
    """In which points an observer fell short of what the situation demands."""
    silent, first = situation["expect"] == "silent", min((calls for calls, *_ in seen.patterns), default=None)
    if first is None:
        if not silent and not situation.get("held"):
            yield "says nothing"
    elif silent:
        yield "not silent"
    else:
        if (said := seen.patterns[0][1]) not in situation.get("pattern", (said,)):
            yield f"says {said} first"
        if first > situation.get("by_call", first):
            yield f"late: at call {first}, due by {situation['by_call']}"
        if first < situation.get("not_before_call", first):
            yield f"too early: at call {first}, not before {situation['not_before_call']}"
    if seen.paused and (silent or situation.get("never_paused")):
        yield "paused"
    to_allow = seen.not_allowed if situation.get("never_asked") else set(situation.get("allowed", ()))
    if wrongly := sorted(to_allow & seen.not_allowed):
        yield f"not allowed: {', '.join(wrongly)}"
    if missed := sorted(set(situation.get("held", ())) - seen.not_allowed):
        yield f"not held: {', '.join(missed)}"


def told(situation: Situation, seen: Observed) -> str:
    """A failure's explanation: the story, and what was said about it."""
    said = [f"{name} {severity} at call {calls}" for calls, name, severity in seen.patterns]
    return f"{situation['why']} (said: {', '.join(said) or 'nothing'})"


@pytest.mark.parametrize("situation", OWN, ids=lambda situation: situation["id"])
def test_situation_is_judged_as_a_good_observer_would(situation: Situation, tmp_path: Path) -> None:
    """Healthy work is left alone, a stuck agent is noticed in time, and every event can be read."""
    seen = observed(situation, tmp_path)
    assert seen.dead_letters == []
    assert list(shortcomings(situation, seen)) == [], told(situation, seen)


@pytest.mark.parametrize(
    "situation",
    situations(SHARED)
    if SHARED.exists()
    else [
        pytest.param(
            {"id": "absent"},
            marks=pytest.mark.skip(f"{SHARED} is not here; set TRUSTFOLD_SITUATIONS to a file of situations"),
        )
    ],
    ids=lambda situation: situation["id"],
)
def test_shared_situation_is_judged_as_a_good_observer_would(situation: Situation, tmp_path: Path) -> None:
    """The same for situations that others have written down."""
    seen = observed(situation, tmp_path)
    assert list(shortcomings(situation, seen)) == [], told(situation, seen)


def test_as_much_healthy_work_as_stuck_agents_is_described() -> None:
    """Neither silence alone nor an alarm for everything can pass."""
    assert {situation["expect"] for situation in SILENT} == {"silent"}
    assert {situation["expect"] for situation in SPEAKING} == {"speak"}
    assert min(len(SILENT), len(SPEAKING)) > 0.8 * max(len(SILENT), len(SPEAKING))
    assert len({situation["why"] for situation in OWN}) == len(OWN)


@pytest.mark.parametrize("pattern", PatternType)
def test_every_pattern_has_situations_of_both_kinds(pattern: PatternType) -> None:
    """Two that it may be the first to notice, and two that tempt it to speak."""
    for described in (SILENT, SPEAKING):
        assert sum(pattern in situation["pattern"] for situation in described) >= 2


def test_no_event_is_told_twice() -> None:
    """Ids of events and of sessions are unique."""
    ids = [event["id"] for situation in OWN for event in situation["events"]]
    assert len(set(ids)) == len(ids)
    assert len({situation["id"] for situation in OWN}) == len(OWN)


@pytest.mark.parametrize("situation", OWN, ids=lambda situation: situation["id"])
def test_situation_is_a_possible_session(situation: Situation) -> None:
    """One session in one workspace; time passes; each call starts, ends under its name and lasts as long as it says."""
    events = situation["events"]
    assert {event["session_id"] for event in events} == {situation["id"]}
    assert len({event["workspace_id"] for event in events}) == 1
    assert all(before["time"] < after["time"] for before, after in pairwise(events))
    began = {event["call_id"]: event for event in events if event["type"] == "tool_call.started"}
    ended = {event["call_id"]: event for event in events if event["type"] == "tool_call.finished"}
    assert list(began) == list(ended) == [f"{situation['id']}-{number}" for number in range(1, len(began) + 1)]
    for call_id, start in began.items():
        end = ended[call_id]
        assert end["tool_name"] == start["tool_name"]
        assert abs(_ms(end) - _ms(start) - end["duration_ms"]) < 50, call_id
    named = {*situation.get("allowed", ()), *situation.get("held", ())}
    assert named <= set(began)
    assert situation.keys() - {"id", "expect", "pattern", "why", "source", "events"} <= MARKS
    assert situation.get("not_before_call", 0) < situation.get("by_call", len(began) + 1) <= len(began) + 1
    assert situation.get("by_call", 0) <= len(began)


SAID = Observed([(7, "repetitive_calls", "minor"), (9, "repetitive_calls", "severe")], paused=True, not_allowed={"a"})
QUIET = Observed()


@pytest.mark.parametrize(
    ("demand", "seen", "found"),
    [
        ({"expect": "silent"}, SAID, ["not silent", "paused"]),
        ({"expect": "silent"}, QUIET, []),
        ({"expect": "silent", "never_asked": True}, Observed(not_allowed={"a", "b"}), ["not allowed: a, b"]),
        ({"expect": "silent", "allowed": ["a", "c"]}, Observed(not_allowed={"a", "b"}), ["not allowed: a"]),
        ({"expect": "speak"}, QUIET, ["says nothing"]),
        ({"expect": "speak"}, SAID, []),
        ({"expect": "speak", "by_call": 7, "not_before_call": 7}, SAID, []),
        ({"expect": "speak", "by_call": 6}, SAID, ["late: at call 7, due by 6"]),
        ({"expect": "speak", "not_before_call": 8}, SAID, ["too early: at call 7, not before 8"]),
        ({"expect": "speak", "never_paused": True}, SAID, ["paused"]),
        ({"expect": "speak", "pattern": ["poll", "repetitive_calls"]}, SAID, []),
        ({"expect": "speak", "pattern": ["poll"]}, SAID, ["says repetitive_calls first"]),
        ({"expect": "speak", "held": ["a", "b"]}, SAID, ["not held: b"]),
        ({"expect": "speak", "held": ["b"]}, QUIET, ["not held: b"]),
    ],
)
def test_what_falls_short_is_named(demand: Situation, seen: Observed, found: list[str]) -> None:
    """Every demand can fail."""
    assert list(shortcomings(demand, seen)) == found


def test_what_a_replay_says_is_observed(tmp_path: Path) -> None:
    """Patterns, pauses, refused calls and unreadable events of a replay are all seen."""
    stuck = {"id": "s", "events": list(_sixteen_failures_and_a_riddle())}
    seen = observed(stuck, tmp_path)
    assert seen.patterns
    assert 1 < seen.patterns[0][0] < 16
    assert seen.paused
    assert "s-16" in seen.not_allowed
    assert "s-1" not in seen.not_allowed
    assert [letter.partition(":")[0] for letter in seen.dead_letters] == ["$.type"]


def _sixteen_failures_and_a_riddle() -> Iterator[dict[str, Any]]:
    """A fetch that fails alike sixteen times within a minute, and an event of no known type."""
    for number in range(1, 17):
        for second, kind in enumerate(("started", "finished")):
            call: dict[str, Any] = {"call_id": f"s-{number}", "tool_name": "http_request"}
            if kind == "started":
                call["args"] = {"url": "https://api.example/orders"}
            else:
                call |= {"status": "error", "error": {"http_status": 503, "message": "Service Unavailable"}}
            yield _event(f"{number}{kind}", f"tool_call.{kind}", 2 * number + second) | call
    yield _event("riddle", "riddle.posed", 59)


def _event(name: str, kind: str, second: int) -> dict[str, Any]:
    time = f"2026-09-01T09:00:{second:02d}.000Z"
    return {"schema_version": "1.0", "id": name, "type": kind, "time": time, "session_id": "s", "workspace_id": "w"}
