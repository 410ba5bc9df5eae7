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

_TOOLS = ("bash", "read_file", "edit_file", "list_tools", "http_request", "mcp_db_query", "process", "think")
_ARGS: dict[str, list[dict[str, Any]]] = {
    "bash": [{"command": "ls"}, {"command": "pytest -q"}, {"command": "sudo rm -rf /"}],
    "read_file": [{"path": "/a/x"}, {"path": "/b/y"}, {}],
    "edit_file": [{"path": "/a/x", "text": 1}, {"path": "/a/x", "text": 2}],
    "list_tools": [{}],
    "http_request": [{"url": "https://api.example.com/v1"}, {"url": "https://other.example.org/v2"}, {}],
    "mcp_db_query": [{"q": 1}],
    "process": [{"action": "poll"}],
    "think": [{"thought": "a"}, {"thought": "b"}],
}
_ERRORS = [
    {"type": "tool_error", "message": "it broke"},
    {"type": "HTTPError", "message": "x", "http_status": 503},
    {"type": "HTTPError", "message": "x", "http_status": 401},
    {"type": "user_rejected", "message": "no"},
    {"type": "x", "message": "bad", "severity": "invalid_input"},
    {"type": "no_such_tool", "message": "No such tool available"},
]
_TEXTS = ["I'll use read_file now.", "The same sentence as ever, said once more.", "Shall I?"]
_STEPS = """start start start start page finish finish finish finish text text thought user input compacted turn
turn_end probe objection time result limit asked asked granted denied begins ends""".split()
_PLAIN: dict[str, dict[str, Any]] = {
    "user": {"type": "user.message"},
    "turn": {"type": "turn.started"},
    "turn_end": {"type": "turn.ended"},
    "time": {"type": "time.passed"},
    "input": {"type": "input.received", "source": "report"},
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
    st.integers(0, 7),  # tool
    st.integers(0, 2),  # arguments, call, error or text
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
    call_id = f"{tool}-{choice}"
    if tool_number % 3 == 0 and kind != "finish":
        body["agent_id"] = "helper"
    if choice == 1:
        body["correlation_id"] = f"trace-{session}"
    if kind == "start":
        args = _ARGS[tool][choice % len(_ARGS[tool])]
        body |= {"type": "tool_call.started", "call_id": call_id, "tool_name": tool, "args": args}
        if choice == 2:
            body["deadline_ms"] = 30_000
        body |= [{}, {"scenario": f"use {tool} well"}, {"recursion_depth": 1, "model_tier": "small"}][choice]
    elif kind == "page":
        body |= {"type": "tool_call.started", "call_id": f"p{number}", "tool_name": "read_file", "deadline_ms": 90_000}
        body["args"] = {"path": "/big", "offset": number}
    elif kind == "finish":
        body |= {
            "type": "tool_call.finished",
            "call_id": call_id,
            "tool_name": tool,
            "status": status,
            "duration_ms": 10,
            "model": f"m{(choice + session) % 2}",
            "cost_usd": 0.07,
        }
        body |= (
            {"result": f"result {choice}"} if status == "success" else {"error": _ERRORS[(choice + tool_number) % 6]}
        )
    elif kind in {"text", "thought"}:
        body |= {"type": "model.text", "text": _TEXTS[choice], "thought": kind == "thought"}
    elif kind == "objection":
        nudged = str(UUID(int=max(0, number - 1 - choice)))  # one of the events just before, if it brought a nudge
        body |= {"type": "feedback.false_alarm", "output_id": output_id(nudged, "nudge.issued", 0)}
    elif kind == "result":
        body |= {"type": "synthesis.completed", "strategy": "weighted", "confidence": choice / 5}
    elif kind == "limit":
        limits = {"max_recursive_calls": tool_number, "max_cost_usd": 0.2}
        body |= {"type": "guarantee.overridden", "limits": limits, "confirmed_by": "ada"}
    elif kind == "probe":
        body |= {
            "type": "breaker.probe_requested",
            "breaker_key": f"tool:{tool}",
            "guard_id": f"g{choice}",
            "call_id": call_id,
        }
    else:
        body |= {"call_id": call_id, "tool_name": tool, **_PLAIN[kind]}
    return orjson.dumps(body)


_KEYS = (
    "http_request|domain=api.example.com|path_prefix=v1",
    "mcp_db_query|mcp_server=db",
    "bash|command=rm",
    "read_file|path_prefix=/a",
    "service:api.example.com",
    "service:db",
)
"""Keys and services of the calls, beside their tools."""

ORDERS = ("trust.reset", "trust.reset", "trust.recover", "trust.approve", "tool.remove", "tool.restore")
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
    for number, step in enumerate(steps):
        at += timedelta(seconds=step[5])
        lines.append(_line(number, step, at))
    return lines
