"""One session, seen by the hooks of a real agent and read from that agent's own log: the decisions are the same."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from recorded import replayed
from trustfold.ingest import IMPORTERS, LogDefaults
from trustfold.ingest.following import LOGS, growing
from trustfold.ingest.hooks import DIALECTS
from trustfold.ingest.workspaces import workspace_of
from trustfold.integrations.hook_session import HookSession, HookVerdict

SESSIONS = sorted((Path(__file__).parent / "recorded").glob("*.jsonl"))
FORMATS = {"claude": "claude-code"}
DECISIONS = ("pattern.detected", "nudge.issued", "trust.changed", "breaker.changed")


def live(agent: str, lines: list[dict[str, Any]]) -> Iterator[bytes]:
    """Events of the hooks; the end of the log is what stood in it when the hook came."""
    dialect, log = DIALECTS[agent], bytearray()
    sessions: dict[tuple[str, str], HookSession] = {}

    def tail(_path: str) -> bytes:
        return bytes(log)

    for line in lines:
        if "log" in line:
            log += orjson.dumps(line["log"]) + b"\n"
            continue
        hook = dialect.read(line["payload"], line["event"], tail)
        if hook is None:
            continue
        place = hook.session, hook.subagent
        if place not in sessions:
            sessions[place] = HookSession(dialect, hook)
        session = sessions[place]
        session.workspace = session.workspace or workspace_of(hook.folder)
        yield from session.handle(hook, line["at_ms"])
        session.answer(hook, lambda _call: HookVerdict(), shadow=True)
        yield from session.taken()


def logged(agent: str, lines: list[dict[str, Any]]) -> list[bytes]:
    """Events of the log."""
    log = [orjson.dumps(line["log"]) + b"\n" for line in lines if "log" in line]
    return list(IMPORTERS[FORMATS.get(agent, agent)](log, LogDefaults(source="log")))


def followed(lines: list[dict[str, Any]]) -> list[bytes]:
    """Events of the log as `trustfold tail` reads it while it grows."""
    reader, _ = growing(LogDefaults(source="log"), set())
    log = [orjson.dumps(line["log"]) + b"\n" for line in lines if "log" in line]
    return [event for line in log for half in (line[:40], line[40:]) for event in reader.take(half)]


def decided(events: list[bytes]) -> Counter[tuple[str, ...]]:
    """Decisions on events: what was found, about which key, and how grave it is."""
    found = [orjson.loads(one.value) for one in replayed(("events", event) for event in events) if one.value]
    return Counter(
        tuple(
            str(one.get(name))
            for name in ("type", "pattern", "severity", "repetitions", "tool_sequence", "key", "to", "workspace_id")
        )
        for one in found
        if one.get("type") in DECISIONS
    )


def calls(events: list[bytes]) -> list[tuple[Any, ...]]:
    """Calls by their ends: tool, arguments, status and kind of error; without those of which nobody knows the end."""
    args: dict[str, Any] = {}
    made = []
    for event in map(orjson.loads, events):
        if event["type"] == "tool_call.started":
            args[event["call_id"]] = event["args"]
        elif event["type"] == "tool_call.finished":
            made.append(
                (
                    event["tool_name"],
                    args.get(event["call_id"]),
                    event["status"],
                    (event.get("error") or {}).get("type"),
                )
            )
    return [call for call in made if call[2] != "cancelled"]


@pytest.mark.parametrize("file", SESSIONS, ids=lambda file: file.stem)
def test_the_decisions_are_the_same(file: Path) -> None:
    """Calls, their ends, and what the folds make of them, workspace included; of a log as a whole and as it grows."""
    agent = file.stem.partition("-")[0]
    lines = [orjson.loads(line) for line in file.read_bytes().splitlines()]
    heard, read = list(live(agent, lines)), [logged(agent, lines)]
    if FORMATS.get(agent, agent) in LOGS:
        read.append(followed(lines))
    for events in read:
        assert calls(heard) == calls(events)
        assert decided(heard) == decided(events)
