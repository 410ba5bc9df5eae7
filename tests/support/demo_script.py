"""Writes `cli/demo.ndjson`: a scripted day of one agent whose tools fail, a session for each chapter of the demo.

    .venv/bin/python tests/support/demo_script.py           # `make schemas` runs it
    .venv/bin/python tests/support/demo_script.py --check   # `make generated`: ends with 1 if the file is older

How often something happens follows from the shipped rules, so that each of them does what the chapters tell.
Deterministic: the same code and rules write the same bytes.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import cycle, islice
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_URL, uuid5

import orjson
from trustfold.cli.demo import CHAPTERS, EVENTS
from trustfold.rules.rules import SERVICE_RULE, TOOL_POLICY, BehaviourRules, EscalationRule

FILE = Path(__file__).parents[2] / "cli" / EVENTS
WORKSPACE = "acme"
MODEL = "some-model"

TRUST, LADDERS = EscalationRule(), BehaviourRules()
FAILING_PAGES = max(TRUST.count_threshold or 0, TOOL_POLICY.consecutive_failures or 0)
"""Failures that escalate the API's key and open its circuit."""
MINUTES_OF_OUTAGE = (
    math.ceil(max(TRUST.escalation_duration_seconds, TRUST.cooldown_seconds, TOOL_POLICY.open_s) / 60) + 1
)
"""Minutes until the API is tried again: recovery may begin, and the circuit lets a probe through."""
WORKING_PAGES = max(TRUST.success_count_to_recover, TOOL_POLICY.close_after)
"""Successes that restore trust and close the circuit."""
TIMEOUTS = int(SERVICE_RULE.count_threshold or 0)
"""Timeouts that escalate an MCP server."""


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
    apart = timedelta(minutes=max(45, MINUTES_OF_OUTAGE + 5))
    report, tidy, tickets, research, restore = (
        Script(chapter.session, nine + apart * number) for number, chapter in enumerate(CHAPTERS)
    )

    def page(number: int) -> dict[str, str]:
        return {"url": f"https://api.example.com/figures?page={number}"}

    for number in range(1, FAILING_PAGES + 1):
        report.fails("http_request", page(number), http_status=503, message="Service Unavailable")
    report.wait(minutes=MINUTES_OF_OUTAGE)
    for number in range(FAILING_PAGES, FAILING_PAGES + WORKING_PAGES):
        report.call("http_request", page(number), result={"rows": [number, number + 1]})
    yield report

    tidy.fails("bash", {"command": "rm /protected/file"}, message="rm: Permission denied")
    tidy.fails("bash", {"command": "cat /protected/secrets"}, message="cat: Permission denied")
    tidy.fails("bash", {"command": "sudo rm -rf /"}, message="rm: Permission denied")
    tidy.call("bash", {"command": "du -sh build"}, result="12M build")
    yield tidy

    timing_out: tuple[tuple[str, dict[str, Any]], ...] = (
        ("search", {"jql": "project = REPORT"}),
        ("create_issue", {"project": "REPORT"}),
    )
    answered = (("acme/report", ["#12", "#14"]), ("acme/tools", ["#3"]))
    for (tool, args), (repo, issues) in islice(zip(cycle(timing_out), cycle(answered), strict=False), TIMEOUTS):
        tickets.call(f"mcp_atlassian_{tool}", args, status="timeout", duration_ms=30_000)
        tickets.call("mcp_github_list_issues", {"repo": repo}, result=issues)
    yield tickets

    for _ in range(LADDERS.repetitive_calls.highest):
        research.call("search_docs", {"query": "how to restore a backup"}, result={"hits": ["backup.md"]})
    research.event("user.message")
    yield research

    announcements = (
        "I'll restore the file from backup. Proceeding now.",
        "I'm going to restore and apply the fix. Proceeding immediately.",
        "You're right - I need to actually execute. Proceeding with the real steps now.",
        "I'll run the restore right away. Executing it now.",
        "I'm going to copy the file back from the backup now.",
    )
    last = (LADDERS.announce_no_action.severe or 4) - 1
    for turn in range(last + 1):
        # In the last turn the model does not even announce any more: it only looks at the tools again.
        silent = turn == last
        text = "" if silent else announcements[turn % len(announcements)]
        restore.event("turn.started", turn_index=turn)
        if text:
            restore.event("model.text", text=text, turn_index=turn)
        if turn in {0, last}:
            restore.call("list_tools", {"category": "filesystem"}, result=["read_file", "write_file"])
        restore.event("turn.ended", turn_index=turn)
    yield restore


def written() -> bytes:
    """Content of the file, as bytes."""
    return b"".join(line + b"\n" for script in chapters() for line in script.lines)


if __name__ == "__main__":
    if "--check" not in sys.argv:
        FILE.write_bytes(written())
    elif FILE.read_bytes() != written():
        sys.exit(f"{FILE.name} is not what the rules give; run: make schemas")
