"""A timeline as one JSON document, for programs and for the command line that asks a server."""

from __future__ import annotations

from collections import Counter
from typing import Any

from ...schemas.codec import rfc3339
from .timeline import (
    CallLoop,
    PatternStreak,
    RepeatedCalls,
    TimelineDecision,
    TimelineEntries,
    TimelineEntry,
    TimelineMessage,
    TimelineNote,
)
from .timeline_calls import TimelineCall


def timeline_document(session: TimelineEntries) -> dict[str, Any]:
    """The document: what the session is, its loops and patterns, and its items, oldest first."""
    return {
        "session_id": session.session_id,
        "workspace_id": session.workspace or None,
        "user_id": session.user or None,
        "models": session.models,
        "agents": session.agents,
        "began": _time(session.began_ms),
        "ended": _time(session.ended_ms),
        "over": session.over,
        "calls": len(session.calls),
        "verdicts": dict(Counter(str(call.verdict) for call in session.calls)),
        "cost_usd": session.cost_usd,
        "older_events_left_out": session.left_out,
        "loops": [_loop(one) for one in session.loops],
        "patterns": [_streak(one) for one in session.streaks],
        "items": [_item(one) for one in session.items],
    }


def _item(item: TimelineEntry) -> dict[str, Any]:
    head: dict[str, Any] = {"id": item.id, "kind": str(item.kind), "time": rfc3339(item.at_ms), "failing": item.failing}
    head |= {"agent_id": item.agent} if item.agent else {}
    match item.what:
        case TimelineMessage(who, text, size, thought):
            return head | {"who": who, "text": text, "size": size, "thought": thought}
        case RepeatedCalls(calls):
            return head | _call(calls[0]) | {"repeats": len(calls), "calls": [_call(one) for one in calls]}
        case TimelineCall() as call:
            return head | _call(call)
        case TimelineDecision(record, _, nudge):
            led = {"effect": nudge.effect, "delivered": nudge.delivered} if nudge is not None else {}
            return head | {"decision": record} | led
        case TimelineNote(record):
            return head | {"event": record}


def _call(call: TimelineCall) -> dict[str, Any]:
    return {
        "call_id": call.call_id,
        "events": call.events,
        "tool_name": call.tool,
        "arguments": call.summary,
        "verdict": str(call.verdict),
        "severity": call.severity or None,
        "signature": call.signature or None,
        "started": rfc3339(call.started_ms),
        "duration_ms": call.duration_ms,
        "cost_usd": call.cost_usd,
        "same_result": call.times or None,
    }


def _loop(loop: CallLoop) -> dict[str, Any]:
    first = loop.calls[0]
    return {
        "tool_name": first.tool,
        "arguments": first.summary,
        "verdict": str(first.verdict),
        "times": len(loop.calls),
        "wasted_calls": loop.wasted,
        "share_of_calls": round(loop.share, 4),
        "tool_ms": loop.tool_ms,
        "lasted_ms": loop.lasted_ms,
        "cost_usd": loop.cost_usd,
        "first_event": first.id,
    }


def _streak(streak: PatternStreak) -> dict[str, Any]:
    return {
        "pattern": streak.pattern,
        "agent_id": streak.agent or None,
        "steps": [
            {"severity": step.severity, "repetitions": step.times, "time": rfc3339(step.at_ms), "decision": step.id}
            for step in streak.steps
        ],
        "request": streak.request or None,
        "message": streak.message or None,
        "thresholds": streak.ladder,
        "cleared": _time(streak.cleared_ms),
        "nudges": [one._asdict() for one in streak.nudges],
    }


def _time(ms: int | None) -> str | None:
    return rfc3339(ms) if ms is not None else None
