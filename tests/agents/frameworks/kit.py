"""What the checks of all frameworks need: a guard in memory, states as they are said to be, what was published."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from trustfold.guard import ToolGuard
from trustfold.guard.testing import published, set_state

SAME_RESULT = "3 times and gave the same result"
"""Words of the nudge about a loop."""


EARLIER = "earlier-"
"""How the sessions begin of what has happened before."""


def new_guard(**options: Any) -> ToolGuard:
    """A guard whose folds run in this process."""
    return ToolGuard.in_memory(workspace_id="w1", **options)


def block(guard: ToolGuard, tool: str) -> None:
    """Have a tool be blocked."""
    set_state(guard, "trust", tool, state="blocked", reason="it deleted a table", scope="workspace")


def escalate(guard: ToolGuard, tool: str) -> None:
    """Have each call of a tool need a person's approval; it has failed often enough."""
    for number in range(3):
        guard.report_failure(tool, PermissionError("denied"), session_id=f"{EARLIER}{number}")
    assert guard.check(tool).ask


def events(guard: ToolGuard, kind: str = "") -> list[dict[str, Any]]:
    """What was published, oldest first."""
    return [event for event in published(guard, kind) if not event["session_id"].startswith(EARLIER)]


def endings(guard: ToolGuard) -> list[tuple[str, str]]:
    """Tool and status of every call that has ended."""
    return [(event["tool_name"], event["status"]) for event in events(guard, "tool_call.finished")]


def step_sizes(guard: ToolGuard) -> list[int]:
    """Number of calls of each message of the model, in the order of the messages; each call names its message."""
    return list(Counter(event["message_id"] for event in events(guard, "tool_call.started")).values())


def kinds(guard: ToolGuard) -> list[str]:
    """Types of all events, oldest first."""
    return [event["type"] for event in events(guard)]


def paired(guard: ToolGuard) -> bool:
    """Whether every call began once and ended once."""
    began = sorted(event["call_id"] for event in events(guard, "tool_call.started"))
    ended = sorted(event["call_id"] for event in events(guard, "tool_call.finished"))
    return began == ended and len(set(began)) == len(began)


def sessions(guard: ToolGuard) -> Sequence[str]:
    """Ids of the sessions that have begun, in order."""
    return [event["session_id"] for event in events(guard, "session.started")]
