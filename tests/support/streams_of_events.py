"""Hypothesis strategies: streams of events as an agent platform might publish them, clean and otherwise."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import orjson
from fixed_rules import FleetRules, Rules, TrustRules
from hypothesis import strategies as st
from trustfold.rules.rules import EscalationPatch
from trustfold.schemas.envelope import output_id

START = datetime(2026, 1, 5, 10, 0, tzinfo=UTC)

_TOOLS = ("bash", "read_file", "edit_file", "list_tools", "http_request", "mcp_db_query", "process", "think", "shell")
_ARGS: dict[str, list[dict[str, Any]]] = {
    "bash": [{"command": "ls"}, {"command": "pytest -q"}, {"command": "sudo rm -rf /"}],
    "read_file": [{"path": "/a/x"}, {"path": "/b/y"}, {}],
    "edit_file": [{"path": "/a/x", "text": 1}, {"path": "/a/x", "text": 2}],
    "list_tools": [{}],
    "http_request": [{"url": "https://api.example.com/v1"}, {"url": "https://other.example.org/v2"}, {}],
    "mcp_db_query": [{"q": 1}],
    "process": [{"action": "poll"}],
    "think": [{"thought": "a"}, {"thought": "b"}],
    "shell": [{"command": f"pytest -q{more}"} for more in ("", " -x", " -x -v", " -x -v tests")],
}
_ERRORS = [
    {"type": "tool_error", "message": "it broke"},
    {"type": "HTTPError", "message": "x", "http_status": 503},
    {"type": "HTTPError", "message": "x", "http_status": 401},
    {"type": "user_rejected", "message": "no"},
    {"type": "x", "message": "bad", "severity": "invalid_input"},
    {"type": "no_such_tool", "message": "No such tool available"},
    {"type": "tool_error", "message": "jqq: command not found"},
]
_TEXTS = ["I'll use read_file now.", "The same sentence as ever, said once more.", "Shall I?", "All tests pass now."]
_LINES = [f"line {number} of {number * number}" for number in range(60)]
_RESULTS = ["result", "\n".join(_LINES[:12]), "\n".join(_LINES[4:9]), "\n".join(_LINES)]
"""One line, a few, some of these again, and so many that only a sample is kept."""

_SOURCES = ["report", "hook", "timer", "agent"]
_STEPS = """call call call call start start start page finish finish finish text text thought user input compacted turn
turn_end probe objection time result limit asked asked granted denied begins ends""".split()
_PLAIN: dict[str, dict[str, Any]] = {
    "turn": {"type": "turn.started"},
    "turn_end": {"type": "turn.ended"},
    "time": {"type": "time.passed"},
    "compacted": {"type": "context.compacted"},
    "asked": {"type": "permission.requested"},
    "granted": {"type": "permission.resolved", "granted": True},
    "denied": {"type": "permission.resolved", "granted": False},
    "begins": {"type": "session.started", "reports_turn_ends": True, "models": ["model-0", "model-1"]},
    "ends": {"type": "session.ended"},
}
_STATUS = ["success", "success", "success", "error", "error", "timeout", "cancelled", "circuit_open", "rejected"]

NERVOUS = Rules(
    trust=TrustRules(
        default_rule=EscalationPatch(count_threshold=1, escalation_duration_seconds=30, cooldown_seconds=1)
    ),
    fleet=FleetRules(workspaces=2, min_calls=1, failure_rate=0.3, release_rate=0.2, duration_seconds=900),
)
"""Rules under which streams as short as these reach promotion, demotion and expiry."""

_WORKSPACES = ("w1", "w1", "w2")
"""Of each session: tools are shared by sessions, and the user works in more than one place."""

_step = st.tuples(
    st.sampled_from(_STEPS),
    st.sampled_from([0, 0, 0, 1, 2]),  # session
    st.integers(0, len(_TOOLS) - 1),
    st.integers(0, 3),  # arguments, call, result, error or text
    st.sampled_from(_STATUS),
    st.sampled_from([1, 1, 1, 2, 5, 40, 130, 400, 2000, 90_000]),  # seconds that pass
)


def _line(number: int, step: tuple[str, int, int, int, str, int], at: datetime) -> bytes:
    kind, session, tool_number, choice, status, _ = step
    tool = _TOOLS[tool_number]
    body: dict[str, Any] = {
        "schema_version": "1.0",
        "id": str(UUID(int=number)),
        "time": at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "session_id": f"s{session}",
        "workspace_id": _WORKSPACES[session],
        "user_id": "ada",
        "model": f"model-{session % 2}",
    }
    if tool_number % 3 == 0 and kind != "finish":
        body["agent_id"] = "helper"
    if choice == 1:
        body["correlation_id"] = f"trace-{session}"
    if kind == "start":
        body |= _start(number, tool_number, choice)
    elif kind == "page":
        body |= {"type": "tool_call.started", "call_id": f"p{number}", "tool_name": "read_file", "deadline_ms": 90_000}
        body["args"] = {"path": "/big", "offset": number}
    elif kind == "finish":
        body |= _finish(tool_number, choice, status) | {"model": f"m{(choice + session) % 2}"}
    else:
        body |= {"call_id": f"{tool}-{choice}", "tool_name": tool, **_other(kind, number, tool_number, choice)}
    return orjson.dumps(body)


def _start(number: int, tool_number: int, choice: int) -> dict[str, Any]:
    tool = _TOOLS[tool_number]
    body: dict[str, Any] = {
        "type": "tool_call.started",
        "call_id": f"{tool}-{choice}",
        "tool_name": tool,
        "args": _ARGS[tool][choice % len(_ARGS[tool])],
    }
    if choice == 2:
        body["deadline_ms"] = 30_000
    if tool_number % 2:
        body["message_id"] = f"message-{number // 3}"
    return body | [{}, {"scenario": f"use {tool} well"}, {"recursion_depth": 1, "model_tier": "small"}, {}][choice]


def _finish(tool_number: int, choice: int, status: str) -> dict[str, Any]:
    tool = _TOOLS[tool_number]
    body: dict[str, Any] = {
        "type": "tool_call.finished",
        "call_id": f"{tool}-{choice}",
        "tool_name": tool,
        "status": status,
        "duration_ms": 10,
        "cost_usd": 0.07,
    }
    if tool_number % 4 == 0:
        body["workspace_digest"] = f"state-{choice // 2}"
    if status == "success":
        return body | {"result": _RESULTS[choice]}
    return body | {"error": _ERRORS[(choice + tool_number) % len(_ERRORS)]}


def _other(kind: str, number: int, tool_number: int, choice: int) -> dict[str, Any]:
    """Fields of what is neither a start nor a finish of a call."""
    match kind:
        case "text" | "thought":
            return {"type": "model.text", "text": _TEXTS[choice], "thought": kind == "thought"}
        case "user":
            return {"type": "user.message", "words": 2 * choice + 1}
        case "input":
            return {"type": "input.received", "source": _SOURCES[choice]}
        case "objection":
            nudged = str(UUID(int=max(0, number - 1 - choice)))  # one of the events just before, if it brought a nudge
            return {"type": "feedback.false_alarm", "output_id": output_id(nudged, "nudge.issued", 0)}
        case "result":
            return {"type": "synthesis.completed", "strategy": "weighted", "confidence": choice / 5}
        case "limit":
            limits = {"max_recursive_calls": tool_number, "max_cost_usd": 0.2}
            return {"type": "guarantee.overridden", "limits": limits, "confirmed_by": "ada"}
        case "probe":
            key = f"tool:{_TOOLS[tool_number]}"
            return {"type": "breaker.probe_requested", "breaker_key": key, "guard_id": f"g{choice}"}
        case _:
            return _PLAIN[kind]


_KEYS = (
    "http_request|domain=api.example.com|path_prefix=v1",
    "mcp_db_query|mcp_server=db",
    "bash|command=rm",
    "read_file|path_prefix=/a",
    "service:api.example.com",
    "service:db",
)
"""Keys and services of the calls, beside their tools."""

ORDERS = (
    *("trust.reset", "trust.reset", "trust.recover", "trust.approve", "tool.remove", "tool.restore"),
    "incident.acknowledge",
)
"""Orders of an operator about a key."""


def order_line(number: int, order: str, key: str, workspace: str, at: datetime) -> bytes:
    """An operator's order about a key."""
    body = {
        "schema_version": "1.0",
        "id": str(UUID(int=(1 << 64) + number)),
        "type": order,
        "time": at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "workspace_id": workspace,
        "key": key,
    }
    return orjson.dumps(body)


@st.composite
def events_and_orders(
    draw: st.DrawFn, max_size: int = 120, orders: tuple[str, ...] = ("trust.reset",)
) -> list[tuple[str, bytes]]:
    """Events, and between them an operator's orders; each with its topic. Sessions move between workspaces.

    Resets of tools; with other `orders`, these, about tools, services and single targets.
    """
    lines = draw(event_lines(max_size))
    records = [
        ("events", line.replace(b'"w1"', b'"w2"') if number % 3 == 0 else line) for number, line in enumerate(lines)
    ]
    for number in range(draw(st.integers(0, 4))):
        place = draw(st.integers(1, len(records)))
        before = orjson.loads(records[place - 1][1])
        tool = before.get("tool_name") or draw(st.sampled_from(_TOOLS))
        at = datetime.fromisoformat(before["time"])
        order = draw(st.sampled_from(orders))
        key = draw(st.sampled_from((f"tool:{tool}", *(_KEYS if len(orders) > 1 else ()))))
        records.insert(place, ("commands", order_line(number, order, key, before["workspace_id"], at)))
    return records


@st.composite
def event_lines(draw: st.DrawFn, max_size: int = 120) -> list[bytes]:
    """Lines of a few interleaved sessions: calls that overlap, repeat, are reused, fail, never finish.

    Steps are drawn from a small pool, so that loops and rows of failures are the rule and not the exception.
    """
    pool = draw(st.lists(_step, min_size=1, max_size=8))
    steps = draw(st.lists(st.sampled_from(pool), min_size=10, max_size=max_size))
    at = START
    lines = []
    for kind, *step in steps:
        at += timedelta(seconds=step[-1])
        for part in ("start", "finish") if kind == "call" else (kind,):
            lines.append(_line(len(lines), (part, *step), at))
    return lines
