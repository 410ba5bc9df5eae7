"""Detectors of failures that a change of arguments does not mend: the same error again, tools that do not exist."""

from __future__ import annotations

from ...rules.rules import BehaviourRules
from ...schemas.events import ToolCallFinished, json_of
from ...schemas.vocabulary import Pattern
from ..calls.classify import failure_in_result
from ..calls.fingerprints import digest
from ..calls.unknown_tools import is_unknown_tool
from ..emit import MAX_CAUSES
from .patterns import Sighting
from .state import MAX_ERROR_STREAKS, MAX_STREAK_CALLS, ErrorStreak, OpenCall, SessionState
from .verdicts import Verdict


def same_error_loop(
    state: SessionState, call: OpenCall, verdict: Verdict, event_id: str, rules: BehaviourRules
) -> Sighting | None:
    """One tool failing the same way with different arguments; a success of that tool, or another error, ends it.

    The same call again is `error_retry_loop`'s and counts once here, and so does a parallel batch. Expected failures
    say nothing.
    """
    streaks = state.error_streaks
    known = next((streak for streak in streaks if streak.tool_name == call.tool_name), None)
    if not verdict.failed:
        if known is not None:
            streaks.remove(known)
        return None
    if verdict.expected:
        return None
    if known is None or known.error != verdict.result:
        if known is not None:
            streaks.remove(known)
        known = ErrorStreak(call.tool_name, verdict.result, [call.fingerprint], [event_id], call.step)
        known.since_ms = call.started_ms
        streaks.append(known)
        del streaks[:-MAX_ERROR_STREAKS]
    elif call.fingerprint in known.calls or call.step == known.step:
        return None
    else:
        known.step = call.step
        known.count += 1
        known.calls = [*known.calls[1 - MAX_STREAK_CALLS :], call.fingerprint]
        known.event_ids = [*known.event_ids[1 - MAX_CAUSES :], event_id]
    severity = rules.same_error_loop.step(known.count)
    if not severity:
        return None
    return Sighting(
        Pattern.SAME_ERROR_LOOP, severity, streak_fingerprint(known), known.count,
        [call.tool_name] * min(known.count, MAX_CAUSES), known.event_ids, "find out why the tool fails",
        since_ms=known.since_ms,
    )  # fmt: skip


def streak_fingerprint(streak: ErrorStreak) -> int:
    """What names a same-error streak: the tool and how it fails."""
    return digest(f"{streak.tool_name}\x00{streak.error}".encode())


def unknown_tool(
    state: SessionState, event: ToolCallFinished, call: OpenCall, rules: BehaviourRules
) -> Sighting | None:
    """Calls to tools that do not exist, whatever their names, none a whole window of steps after the one before.

    Other calls may lie between: a model that makes up every second tool has not understood what it can do.
    """
    if not _is_unknown(event, call.tool_name):
        return None
    state.tools.pop(call.tool_name, None)
    if call.step - state.unknown_step > rules.window_steps:
        forget_unknown(state)
    if not state.unknown_calls:
        state.unknown_since = call.started_ms
    if state.unknown_step != call.step or not state.unknown_calls:
        state.unknown_calls += 1
        state.unknown_step = call.step
    state.unknown_tools = [*state.unknown_tools[1 - MAX_CAUSES :], call.tool_name]
    state.unknown_ids = [*state.unknown_ids[1 - MAX_CAUSES :], event.id]
    severity = rules.unknown_tool.step(state.unknown_calls)
    if not severity:
        return None
    return Sighting(
        Pattern.UNKNOWN_TOOL, severity, 0, state.unknown_calls,
        state.unknown_tools, state.unknown_ids, "use a tool that is on the list", since_ms=state.unknown_since,
    )  # fmt: skip


def forget_unknown(state: SessionState) -> None:
    """Start the count of unknown tools afresh."""
    state.unknown_calls = 0
    state.unknown_tools = []
    state.unknown_ids = []


def _is_unknown(event: ToolCallFinished, tool_name: str) -> bool:
    error = event.error
    if error is not None and (error.type or error.message or error.code):
        return is_unknown_tool(tool_name, error.type or "", str(error.code or ""), error.message or "")
    result = json_of(event.result)
    failure = failure_in_result(result)
    if failure is None:
        return False
    return is_unknown_tool(tool_name, failure.type, failure.code, failure.message or _text_of(result))


def _text_of(result: dict[str, object]) -> str:
    """Text of the first block of an MCP result."""
    content = result.get("content")
    first = content[0] if isinstance(content, list) and content else None
    text = first.get("text") if isinstance(first, dict) else None
    return text if isinstance(text, str) else ""
