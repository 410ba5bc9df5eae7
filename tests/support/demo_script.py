"""Writes `cli/demo.ndjson`: a scripted day of one agent whose tools fail, a session for each chapter of the demo.

    .venv/bin/python tests/support/demo_script.py

Deterministic: the same code writes the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_URL, uuid5

import orjson
from trustfold.cli.demo import CHAPTERS, EVENTS

FILE = Path(__file__).parents[2] / "cli" / EVENTS
WORKSPACE = "acme"
MODEL = "some-model"


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


if __name__ == "__main__":
    FILE.write_bytes(written())
