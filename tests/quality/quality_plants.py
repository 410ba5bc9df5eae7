"""Outages to plant in recorded sessions: what fails, how, and from which call to which."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from enum import StrEnum
from typing import Any, NamedTuple

import orjson
from quality_sessions import Source
from trustfold.guard.request import recorded_call
from trustfold.projections.session.calls import args_of
from trustfold.schemas.codec import decode_event
from trustfold.schemas.events import ToolCallFinished, ToolCallStarted, epoch_ms
from trustfold.schemas.outcomes import DEFAULT_WORKSPACE
from trustfold.schemas.vocabulary import CallStatus

KINDS: dict[str, dict[str, Any]] = {
    "reset": {"error": {"type": "ConnectionResetError", "message": "Connection reset by peer"}},
    "503": {"error": {"type": "HTTPError", "http_status": 503, "message": "Service Unavailable"}},
    "timeout": {"status": "timeout"},
    "403": {"error": {"type": "HTTPError", "http_status": 403, "message": "Forbidden"}},
    "crash": {"error": {"type": "exit_code_139", "message": "Segmentation fault"}},
    "out of memory": {"error": {"type": "exit_code_137", "message": "Killed"}},
    "corruption": {"error": {"type": "ChecksumError", "message": "checksum mismatch"}},
    "exception": {"error": {"type": "RuntimeError", "message": "worker is gone"}},
}
"""Fields of the finish of a call that meets an outage, by kind; the status is `error` unless it says otherwise."""

SERVICE = "planted-service"
MIN_CALLS, MAX_CALLS = 6, 12
"""Fewest and most calls of the failing scope in one outage: ten failures after an escalation would block for good."""

EARLY_MS, LONGEST_MS = 3_600_000, 7_200_000
"""The first `MIN_CALLS` calls lie within the first of these, all within the second."""

MIN_KEYS = 3
"""Keys of a tool among the first calls, where it fails as a whole."""


class Scope(StrEnum):
    """What an outage takes down."""

    KEY = "key"
    TOOL = "tool"
    SERVICE = "service"


class Start(NamedTuple):
    """A call as it was recorded; `finish` is the number of the line that ends it, None where there is none."""

    line: int
    at: int
    tool: str
    key: str
    finish: int | None


class Trace(NamedTuple):
    """A source ready for planting: lines, their times, its calls by the line of their start, and back."""

    name: str
    lines: list[bytes]
    times: list[int]
    starts: dict[int, Start]
    start_of: dict[int, int]


class Plant(NamedTuple):
    """One outage.

    Attributes:
        target: the key or tool that fails; for a service, what its failing tools are told apart by.
        tools: for a service: the tools that are given one.
        calls: lines of the starts of the calls that fail, in order.
    """

    source: str
    kind: str
    scope: Scope
    target: str
    tools: frozenset[str]
    calls: tuple[int, ...]

    def covers(self, start: Start) -> bool:
        """Whether a call belongs to what the outage takes down."""
        if self.scope is Scope.SERVICE:
            return start.tool in self.tools
        return (start.key if self.scope is Scope.KEY else start.tool) == self.target


def load(source: Source) -> Trace:
    """Read a source: calls paired as the folds pair them, a finish with the latest open start of its id."""
    lines, times = [], []
    found: dict[int, Start] = {}
    start_of: dict[int, int] = {}
    still_open: dict[tuple[str, str], list[int]] = {}
    for number, line in enumerate(source.lines()):
        event = decode_event(line)
        lines.append(line)
        times.append(epoch_ms(event.time))
        if isinstance(event, ToolCallStarted):
            call = recorded_call(event, args_of(event), event.workspace_id or DEFAULT_WORKSPACE, None)
            found[number] = Start(number, times[-1], event.tool_name, call.key.fine, None)
            still_open.setdefault((event.session_id, event.call_id), []).append(number)
        elif isinstance(event, ToolCallFinished) and (waiting := still_open.get((event.session_id, event.call_id))):
            begun = waiting.pop()
            start_of[number] = begun
            if event.status is not CallStatus.CANCELLED:
                found[begun] = found[begun]._replace(finish=number)
    return Trace(source.name, lines, times, found, start_of)


def plant(trace: Trace, kind: str, scope: Scope, seed: str) -> Plant | None:
    """Choose an outage of a kind and scope, the same for the same seed; None where the source has no room for one.

    Every scope has the same chance, however often it is used.
    """
    chance = random.Random(f"{trace.name} {kind} {scope} {seed}")
    targets = list(_targets(trace, scope))
    chance.shuffle(targets)
    for target, tools, starts in targets:
        fits = _FITS[scope]
        begins = [first for first in range(len(starts)) if _has_room(starts, first) and fits(starts[first:])]
        if begins:
            first = chance.choice(begins)
            until = starts[first].at + LONGEST_MS
            calls = tuple(start.line for start in starts[first : first + MAX_CALLS] if start.at <= until)
            return Plant(trace.name, kind, scope, target, tools, calls)
    return None


def _targets(trace: Trace, scope: Scope) -> Iterator[tuple[str, frozenset[str], list[Start]]]:
    """What may fail, with all of its calls that came to an end."""
    groups: dict[str, list[Start]] = {}
    finished = [start for start in trace.starts.values() if start.finish is not None]
    for start in finished:
        groups.setdefault(start.key if scope is Scope.KEY else start.tool, []).append(start)
    if scope is not Scope.SERVICE:
        for target, starts in sorted(groups.items()):
            yield target, frozenset(), starts
        return
    names = sorted(groups, key=lambda name: (-len(groups[name]), name))
    for position, name in enumerate(names):  # each with the two next most used
        tools = frozenset(names[position : position + 3])
        if len(tools) > 1:
            yield name, tools, [start for start in finished if start.tool in tools]


def _has_room(starts: list[Start], first: int) -> bool:
    last = first + MIN_CALLS - 1
    return last < len(starts) and starts[last].at - starts[first].at <= EARLY_MS


def _keys(starts: list[Start]) -> set[str]:
    return {start.key for start in starts[:MIN_CALLS]}


_FITS: dict[Scope, Callable[[list[Start]], bool]] = {
    Scope.KEY: lambda _starts: True,
    Scope.TOOL: lambda starts: len(_keys(starts)) >= MIN_KEYS,
    Scope.SERVICE: lambda starts: len({start.tool for start in starts[:MIN_CALLS]}) > 1,
}


def failed(finish: bytes, kind: str) -> bytes:
    """A finish as it is in an outage."""
    event = orjson.loads(finish)
    for name in ("result", "result_digest", "result_size", "error", "expected_failure"):
        event.pop(name, None)
    return orjson.dumps(event | {"status": "error"} | KINDS[kind])


def not_made(finish: bytes, *, circuit: bool) -> bytes:
    """A finish as a guard reports it of a call that it did not make."""
    event = orjson.loads(finish)
    for name in ("result", "result_digest", "result_size", "error", "duration_ms"):
        event.pop(name, None)
    if circuit:
        return orjson.dumps(event | {"status": "circuit_open"})
    return orjson.dumps(event | {"status": "cancelled", "error": {"type": "BlockedByGuard", "code": "blocked"}})


def served(line: bytes) -> bytes:
    """A start or finish of a tool that is under the planted service."""
    return orjson.dumps(orjson.loads(line) | {"service": SERVICE})
