"""Loops planted in recorded coding sessions: whether the model is told, at which call, and whether the run is stopped.

At random places of recorded sessions the agent gets stuck in one of seven ways, or goes on in one of three healthy ways
that look alike. The session is folded up to the place, with what it has seen and done, and then the planted calls.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import lru_cache
from statistics import median
from typing import Any, NamedTuple

import orjson
import quality_plants as plants
from quality_measure import UNCOUNTED
from quality_plants import Trace
from quality_sessions import Source
from trustfold.projections.local_topology import LocalTopology
from trustfold.projections.topology import STAGES
from trustfold.rules.rules import RuleSet
from trustfold.schemas.vocabulary import NudgeType

MIN_CALLS = 10
"""Calls that a session has made before the place."""

CALL_MS = 5_000
"""Time from call to call."""

LONGEST = 20
"""Planted calls, at most."""


class Planted(NamedTuple):
    """A planted call."""

    tool: str
    args: dict[str, Any]
    result: str
    failed: bool = False


Kind = Callable[[int], Iterator[Planted]]
"""Calls by turns: a generator that is given the number of the turn, from 0."""


def _same_success(_turn: int) -> Iterator[Planted]:
    yield Planted("Bash", {"command": "gh pr checks 4711"}, "lint  pass\nunit  pending\nbuild pending")


def _same_failure(turn: int) -> Iterator[Planted]:
    yield _bash("cd fastxml && make", f"/bin/bash: line {41 + 3 * turn}: cd: fastxml: No such file or directory", 1)


def _edits_that_miss(turn: int) -> Iterator[Planted]:
    old = f"def parse_{_WORDS[turn % 12]}(self, text):"
    args = {"file_path": "/repo/planted/parser.py", "old_string": old, "new_string": "pass"}
    yield Planted("Edit", args, f"String to replace not found in file.\nString: {old}", failed=True)


def _overlapping_windows(turn: int) -> Iterator[Planted]:
    first, limit = (1 + 20 * (turn % 8), 60) if turn else (1, 220)
    text = "\n".join(f"{line}\tplanted statement number {line} of the module" for line in range(first, first + limit))
    yield Planted("Read", {"file_path": "/repo/planted/module.py", "offset": first, "limit": limit}, text)


def _missing_program(turn: int) -> Iterator[Planted]:
    command = ("zigcc build", "zigcc test ./...", "make -C zig && zigcc run")[turn % 3]
    yield _bash(command, f"/bin/bash: line {turn + 1}: zigcc: command not found", 127)
    yield _edit(turn)


def _other_words(turn: int) -> Iterator[Planted]:
    query = f"{_WORDS[turn % 12]} {_WORDS[(turn * 5 + 3) % 12]} of the billing module"
    yield Planted("mcp__wiki__search", {"query": query}, "1. Release notes 2024\n2. How to write a page\n3. Team list")


def _ever_new_failures(turn: int) -> Iterator[Planted]:
    word, other = _WORDS[turn % 12], _WORDS[(turn + 5) % 12]
    yield _bash(f"deploy --{word} planted", f"error: {other} is not allowed together with --{word} ({turn * 7})", 2)


def _red_tests(turn: int) -> Iterator[Planted]:
    yield _bash("pytest -q tests/test_planted.py", "FAILED tests/test_planted.py::test_it - assert 3 == 4\n1 failed", 1)
    script = f"python - <<'EOF'\nfrom pathlib import Path\nPath('planted.py').write_text('x = {turn}')\nEOF"
    yield Planted("Bash", {"command": script}, "")


def _paging(turn: int) -> Iterator[Planted]:
    first = 1 + 80 * turn
    text = "\n".join(f"{line}: entry {line * 7919 % 100_003} of the log" for line in range(first, first + 80))
    yield Planted("Bash", {"command": f"sed -n '{first},{first + 79}p' planted.log"}, text)


def _searches(turn: int) -> Iterator[Planted]:
    yield Planted("Grep", {"pattern": f"{_WORDS[turn % 12]}_planted", "path": "/repo"}, "No matches found")


STUCK: dict[str, tuple[Kind, int]] = {
    "the same success": (_same_success, LONGEST),
    "the same failure, moving numbers": (_same_failure, LONGEST),
    "edits that miss": (_edits_that_miss, LONGEST),
    "overlapping windows": (_overlapping_windows, LONGEST),
    "a missing program, edits between": (_missing_program, LONGEST),
    "other words, the same answer": (_other_words, LONGEST),
    "failing in ever new ways": (_ever_new_failures, LONGEST),
}
HEALTHY: dict[str, tuple[Kind, int]] = {
    "red tests, changes by heredoc between": (_red_tests, LONGEST),
    "paging forward": (_paging, LONGEST),
    "ten searches without a match": (_searches, 10),
}
_WORDS = "alpha bridge copper delta ember forest glacier harbor island jasper kernel lantern".split()


class Loop(NamedTuple):
    """What was measured of one planted loop.

    Attributes:
        told: planted calls that had finished when a pattern was reported; None: never.
        pattern: that pattern; empty without one.
        paused: a nudge interrupted the run.
    """

    source: str
    kind: str
    told: int | None
    pattern: str
    paused: bool


def measure(source: Source, count: int, rules: RuleSet) -> list[Loop]:
    """Plant each kind at so many places of a source, the same ones at each run."""
    trace = trace_of(source)
    loops: list[Loop] = []
    for place in _places(trace, count):
        session = orjson.loads(trace.lines[place])["session_id"]
        name = b'"session_id":"' + session.encode() + b'"'
        before = [line for line in trace.lines[: place + 1] if name in line]
        for kind, (turns, calls) in (STUCK | HEALTHY).items():
            loops.append(_plant(source.name, kind, before, list(_events(before[-1], turns, calls)), rules))
    return loops


@lru_cache(maxsize=1)
def trace_of(source: Source) -> Trace:
    """A source ready for planting; the latest one is kept."""
    return plants.load(source)


def _places(trace: Trace, count: int) -> list[int]:
    """Lines of finishes after which no call of the session is open and the turn goes on."""
    made: dict[str, int] = {}
    in_flight: dict[str, int] = {}
    found = []
    for number, line in enumerate(trace.lines):
        start = trace.starts.get(number)
        if start is None and number not in trace.start_of:
            continue
        event = orjson.loads(line)
        session = event["session_id"]
        if start is not None:
            in_flight[session] = in_flight.get(session, 0) + (start.finish is not None)
            continue
        made[session] = made.get(session, 0) + 1
        in_flight[session] = in_flight.get(session, 0) - 1
        if made[session] >= MIN_CALLS and not in_flight[session] and not event.get("agent_id"):
            found.append(number)
    return random.Random(f"{trace.name} loops").sample(found, min(count, len(found)))


def _plant(source: str, kind: str, before: list[bytes], calls: list[bytes], rules: RuleSet) -> Loop:
    topology = LocalTopology(rules, stages=STAGES[:1])
    topology.feed("events", before)
    told, pattern, paused = None, "", False
    for finished, line in enumerate(calls):
        for output in topology.feed("events", (line,)):
            if output.topic != "nudges":
                continue
            said = orjson.loads(output.value or b"{}")
            if output.type == "pattern.detected" and said["pattern"] not in UNCOUNTED and told is None:
                told, pattern = finished // 2 + 1, said["pattern"]
            elif output.type == "nudge.issued":
                paused |= said["nudge_type"] == NudgeType.INTERRUPT
    return Loop(source, kind, told, pattern, paused)


def _events(last: bytes, turns: Kind, calls: int) -> Iterator[bytes]:
    """Events of the planted calls, after an event of the session."""
    event = orjson.loads(last)
    at = int(datetime.fromisoformat(event["time"]).timestamp() * 1000)
    common = {key: event[key] for key in ("schema_version", "session_id", "workspace_id", "turn_index") if key in event}
    planted = (call for turn in range(calls) for call in turns(turn))
    for number, call in zip(range(calls), planted, strict=False):
        at += CALL_MS
        named = common | {"call_id": f"planted-{number}", "tool_name": call.tool}
        yield _event(named, "started", at, args=call.args)
        if call.failed:
            code = call.result.partition("\n")[0].removeprefix("Exit code ")
            error = {"type": f"exit_code_{code}" if code.isdecimal() else "tool_error", "message": call.result}
            yield _event(named, "finished", at + CALL_MS // 2, status="error", error=error)
        else:
            yield _event(named, "finished", at + CALL_MS // 2, status="success", result=call.result)


def _event(named: dict[str, Any], kind: str, at: int, **fields: Any) -> bytes:
    time = datetime.fromtimestamp(at / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    own = {"id": f"{named['session_id']}-{named['call_id']}-{kind}", "type": f"tool_call.{kind}", "time": time}
    return orjson.dumps(own | named | fields)


def _bash(command: str, output: str, code: int) -> Planted:
    return Planted("Bash", {"command": command}, f"Exit code {code}\n{output}", failed=True)


def _edit(turn: int) -> Planted:
    args = {
        "file_path": "/repo/planted/build.zig",
        "old_string": f"level = {turn}",
        "new_string": f"level = {turn + 1}",
    }
    return Planted("Edit", args, "The file /repo/planted/build.zig has been updated successfully.")


def as_json(loops: list[Loop]) -> dict[str, Any]:
    """Figures by kind."""
    return {kind: _figures(loops, kind) for kind in (*STUCK, *HEALTHY)} if loops else {}


def _figures(loops: list[Loop], kind: str) -> dict[str, Any]:
    mine = [loop for loop in loops if loop.kind == kind]
    calls = [loop.told for loop in mine if loop.told is not None]
    patterns = sorted({loop.pattern for loop in mine if loop.pattern})
    return {
        "stuck": kind in STUCK,
        "planted": len(mine),
        "told": len(calls),
        "median_call": median(calls) if calls else None,
        "latest_call": max(calls, default=None),
        "paused": sum(loop.paused for loop in mine),
        "patterns": patterns,
    }
