"""Writes `bad_day.ndjson`: a scripted day of one agent whose tools fail, in five chapters.

    python -m trustfold.cli.scenarios.bad_day

Deterministic: the same code writes the same bytes. A test compares the file with the output of this module.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple
from uuid import NAMESPACE_URL, uuid5

import orjson

FILE = "bad_day.ndjson"
WORKSPACE = "acme"
MODEL = "some-model"


class Chapter(NamedTuple):
    """Part of the day, with a session of its own.

    Attributes:
        session: its session id.
        title: heading.
        intro: text before its events.
        result: text after its events: what trustfold did, and why.
    """

    session: str
    title: str
    intro: str
    result: str


CHAPTERS = (
    Chapter(
        "morning-report",
        "An API starts to fail",
        "The agent collects figures page by page, and the server answers 503.",
        "One outage gives one notification, which names the service. Trust asks the user; the circuit stops the calls.",
    ),
    Chapter(
        "tidy-up",
        "A dangerous command",
        "Two commands are refused. The third one is dangerous.",
        "A dangerous command blocks its key at once, until a person resets it. Other commands still run.",
    ),
    Chapter(
        "tickets",
        "One server fails, another one works",
        "Two tools of one MCP server time out. Another server answers.",
        "Calls of all its tools count for the service, so an outage is detected after two of them.",
    ),
    Chapter(
        "research",
        "The same call again and again",
        "Every call succeeds, but the agent makes no progress: same arguments, same result.",
        "The same call with the same result is a loop. Its nudges become stronger until the session is paused.",
    ),
    Chapter(
        "restore",
        "Announcements without actions",
        "In four turns the model announces work, lists its tools once, and announces again.",
        "Turns without an action are counted across the session: a hint, guidance, then a pause.",
    ),
)


class Script:
    """Writes the events of one session; two seconds pass with each."""

    def __init__(self, session: str, begin: datetime) -> None:
        """Start a session's clock."""
        self.lines: list[bytes] = []
        self._session = session
        self._now = begin
        self._calls = 0

    def wait(self, *, seconds: float = 0, minutes: float = 0) -> None:
        """Advance the clock."""
        self._now += timedelta(seconds=seconds, minutes=minutes)

    def event(self, kind: str, **fields: Any) -> None:
        """Append an event of any type."""
        self._now += timedelta(seconds=2)
        body = {
            "schema_version": "1.0",
            "id": str(uuid5(NAMESPACE_URL, f"bad-day/{self._session}/{len(self.lines)}")),
            "type": kind,
            "time": self._now.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "session_id": self._session,
            "workspace_id": WORKSPACE,
            "model": MODEL,
        }
        self.lines.append(orjson.dumps(body | fields))

    def call(self, tool: str, args: dict[str, Any], **finish: Any) -> None:
        """Append a tool call and its result."""
        self._calls += 1
        call = {"call_id": f"call-{self._calls}", "tool_name": tool}
        self.event("tool_call.started", **call, args=args)
        self.event("tool_call.finished", **call, **({"status": "success", "duration_ms": 180} | finish))

    def fails(self, tool: str, args: dict[str, Any], **error: Any) -> None:
        """Append a tool call that fails with an error."""
        self.call(tool, args, status="error", error=error)


def chapters() -> Iterator[Script]:
    """Chapters of the day, in order."""
    nine = datetime(2026, 3, 2, 9, 0, 0, tzinfo=UTC)
    report, tidy, tickets, research, restore = (
        Script(chapter.session, nine + timedelta(minutes=45 * number)) for number, chapter in enumerate(CHAPTERS)
    )

    def page(number: int) -> dict[str, str]:
        return {"url": f"https://api.example.com/figures?page={number}"}

    for number in range(1, 6):
        report.fails("http_request", page(number), http_status=503, message="Service Unavailable")
    report.wait(minutes=31)
    for number in range(5, 8):
        report.call("http_request", page(number), result={"rows": [number, number + 1]})
    yield report

    tidy.fails("bash", {"command": "rm /protected/file"}, message="rm: Permission denied")
    tidy.fails("bash", {"command": "cat /protected/secrets"}, message="cat: Permission denied")
    tidy.fails("bash", {"command": "sudo rm -rf /"}, message="rm: Permission denied")
    tidy.call("bash", {"command": "du -sh build"}, result="12M build")
    yield tidy

    tickets.call("mcp_atlassian_search", {"jql": "project = REPORT"}, status="timeout", duration_ms=30_000)
    tickets.call("mcp_github_list_issues", {"repo": "acme/report"}, result=["#12", "#14"])
    tickets.call("mcp_atlassian_create_issue", {"project": "REPORT"}, status="timeout", duration_ms=30_000)
    tickets.call("mcp_github_list_issues", {"repo": "acme/tools"}, result=["#3"])
    yield tickets

    for _ in range(6):
        research.call("search_docs", {"query": "how to restore a backup"}, result={"hits": ["backup.md"]})
    research.event("user.message")
    yield research

    announcements = (
        "I'll restore the file from backup. Proceeding now.",
        "I'm going to restore and apply the fix. Proceeding immediately.",
        "You're right - I need to actually execute. Proceeding with the real steps now.",
        "",
    )
    for turn, text in enumerate(announcements):
        restore.event("turn.started", turn_index=turn)
        if text:
            restore.event("model.text", text=text, turn_index=turn)
        if turn == 0:
            restore.call("list_tools", {"category": "filesystem"}, result=["read_file", "write_file"])
        restore.event("turn.ended", turn_index=turn)
    yield restore


def written() -> bytes:
    """Content of the file, as bytes."""
    return b"".join(line + b"\n" for script in chapters() for line in script.lines)


def events() -> list[bytes]:
    """The events of the bundled file, in order."""
    return files(__package__).joinpath(FILE).read_bytes().splitlines()


if __name__ == "__main__":
    Path(__file__).with_name(FILE).write_bytes(written())
