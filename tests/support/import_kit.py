"""Importing in tests: records as a log holds them, and what became of them."""

from __future__ import annotations

from typing import Any

import orjson
from recorded import replayed
from trustfold.ingest import IMPORTERS, ImportRun, InOrderOfTime, LogDefaults
from trustfold.schemas.codec import decode_event

Events = list[dict[str, Any]]


def lines_of(*records: Any, whole: bool = False) -> list[bytes]:
    """Records as a log has them: one a line, or the first as one indented document; bytes stand as they are."""
    if whole:
        return orjson.dumps(records[0], option=orjson.OPT_INDENT_2).splitlines(keepends=True)
    return [record if isinstance(record, bytes) else orjson.dumps(record) + b"\n" for record in records]


def read(origin: str, lines: list[bytes], run: ImportRun | None = None, **defaults: str) -> list[bytes]:
    """Events of a log, as they are written."""
    return list(IMPORTERS[origin](lines, LogDefaults(**{"source": "log", **defaults}, run=run or ImportRun())))  # type: ignore[arg-type]


def imported(origin: str, *records: Any, whole: bool = False, run: ImportRun | None = None, **defaults: str) -> Events:
    """Events of records; every one is valid, the same at every import, and folds without a dead letter."""
    lines = lines_of(*records, whole=whole)
    if run is None:
        assert read(origin, lines, **defaults) == read(origin, lines, **defaults)
    values = read(origin, lines, run, **defaults)
    for value in values:
        decode_event(value)
    ids = [orjson.loads(value)["id"] for value in values]
    assert len(ids) == len(set(ids))
    assert not [output for output in replayed(("events", value) for value in values) if output.topic == "dead-letters"]
    return [orjson.loads(value) for value in values]


def told(events: Events, *names: str, ends: bool = False) -> list[tuple[Any, ...]]:
    """Type and fields of events; the frame of a session and of its turns is left out, but for the `ends` of turns."""
    frame = {"session.started", "session.ended", "turn.started"} | (set() if ends else {"turn.ended"})
    return [(e["type"], *(e.get(name) for name in names)) for e in events if e["type"] not in frame]


def calls(events: Events) -> list[tuple[Any, ...]]:
    """Finished calls: tool, how they ended, and the type of their error."""
    return [
        (e["tool_name"], e["status"], (e.get("error") or {}).get("type"))
        for e in events
        if e["type"] == "tool_call.finished"
    ]


def pairs(events: Events) -> list[tuple[Any, Any]]:
    """Arguments and result of every call, in the order of the ends."""
    args: dict[tuple[str, str], Any] = {}
    found = []
    for event in events:
        if event["type"] == "tool_call.started":
            args[event["session_id"], event["call_id"]] = event["args"]
        elif event["type"] == "tool_call.finished":
            found.append((args.pop((event["session_id"], event["call_id"]), None), event.get("result")))
    return found


def decided(events: list[bytes]) -> set[tuple[str, str]]:
    """Kinds of decisions the folds take on events in the order of time: type, and pattern or state."""
    ordered = InOrderOfTime()
    for event in events:
        ordered.add(event)
    outputs = [orjson.loads(o.value) for o in replayed(("events", event) for event in ordered) if o.value]
    ordered.close()
    return {(o.get("type", ""), str(o.get("pattern") or o.get("to") or o.get("to_state") or "")) for o in outputs}
