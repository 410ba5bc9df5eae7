"""What stands around a detection or an interruption, or in a session that failed in silence: for reading by eye."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import orjson
from quality_measure import Detection, Interruption, Measured
from quality_sessions import Ending, Labels, Source

WIDTH = 150
AROUND = 14
"""Calls shown before a detection, or at the end of a silent session."""


def detections(
    measured: list[Measured], labels: Labels, count: int, *, ending: Ending | None, pattern: str
) -> list[Detection]:
    """A sample of the detections, of sessions that ended so and of one pattern, spread over patterns.

    The same at each run.
    """
    by_pattern: dict[str, list[Detection]] = {}
    for one in (one for source in measured for one in source.detections):
        if (ending is None or labels.ending(one.source, one.session) is ending) and pattern in {"", one.pattern}:
            by_pattern.setdefault(one.pattern, []).append(one)
    chance = random.Random(1)
    pools = [chance.sample(found, len(found)) for _, found in sorted(by_pattern.items())]
    chosen: list[Detection] = []
    while len(chosen) < count and any(pools):
        chosen += [pool.pop() for pool in pools if pool]
    return chosen[:count]


def silent(measured: list[Measured], labels: Labels, count: int) -> list[tuple[str, str, int]]:
    """A sample of the failed sessions with at least five calls and without an alarm, with their number of calls."""
    found = [
        (source.source, name, session.calls)
        for source in measured
        for name, session in source.sessions.items()
        if labels.ending(source.source, name) is Ending.FAILED and not session.alarms and session.calls >= 5
    ]
    return random.Random(2).sample(found, min(count, len(found)))


def interruptions(measured: list[Measured], count: int) -> list[Interruption]:
    """A sample of the interruptions, spread over sources and keys; the same at each run."""
    by_key: dict[tuple[str, str], list[Interruption]] = {}
    for one in (one for source in measured for one in source.interruptions):
        by_key.setdefault((one.source, one.check.key), []).append(one)
    chance = random.Random(3)
    pools = [chance.sample(found, len(found)) for _, found in sorted(by_key.items())]
    chosen: list[Interruption] = []
    while len(chosen) < count and any(pools):
        chosen += [pool.pop() for pool in chance.sample(pools, len(pools)) if pool]
    return chosen[:count]


def context(source: Source, session: str, last_line: int | None = None, around: int = AROUND) -> list[str]:
    """The session's doings up to a line of the source, the latest last."""
    lines = list(_told(source, session, last_line))
    return lines[-around:]


def behind(source: Source, causes: tuple[str, ...], last_line: int) -> list[str]:
    """The calls of any session whose ends are behind a decision, and last the call of a line itself."""
    calls: dict[tuple[str, str], str] = {}
    shown: list[str] = []
    for number, line in enumerate(source.lines()):
        if number > last_line:
            break
        if b'"tool_call.' not in line:
            continue
        event: dict[str, Any] = orjson.loads(line)
        call = event["session_id"], event["call_id"]
        if event["type"] == "tool_call.started":
            args = orjson.dumps(event.get("args") or {}).decode()
            calls[call] = f"{event['tool_name']} {_short(args, WIDTH)}"
            if number == last_line:
                shown.append(f"  held: {calls[call]}")
        elif event["id"] in causes:
            shown.append(f"  {event['time']} {calls.get(call, event['tool_name'])}")
            shown.append(f"      -> {event['status']}: {_short(_result(event), WIDTH)}")
    return shown


def _told(source: Source, session: str, last_line: int | None) -> Iterator[str]:
    calls: dict[str, str] = {}
    name = session.encode()
    for number, line in enumerate(source.lines()):
        if last_line is not None and number > last_line:
            return
        if name not in line:
            continue
        event: dict[str, Any] = orjson.loads(line)
        if event["session_id"] != session:
            continue
        match event["type"]:
            case "tool_call.started":
                args = orjson.dumps(event.get("args") or {}).decode()
                calls[event["call_id"]] = f"{event['tool_name']} {_short(args, WIDTH)}"
            case "tool_call.finished":
                started = calls.pop(event["call_id"], event["tool_name"])
                yield f"  {started}\n      -> {event['status']}: {_short(_result(event), WIDTH)}"
            case "model.text":
                yield f"  says: {_short(event.get('text') or '', WIDTH)}"
            case "user.message" | "input.received" | "context.compacted" | "turn.started" | "turn.ended":
                yield f"  {event['type']}"


def _result(event: dict[str, Any]) -> str:
    error = event.get("error")
    result = event.get("result")
    return str(error.get("message") if isinstance(error, dict) else "" if result is None else result)


def _short(text: str, width: int) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= width else f"{flat[: width // 2]} … {flat[-width // 3 :]}"
