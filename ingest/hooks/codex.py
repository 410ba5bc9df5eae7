"""Codex: a subset of Claude's format. Exit codes are only in the session's log, the rollout."""

from __future__ import annotations

from typing import Any, NamedTuple

import orjson

from ...projections.calls.classify import TOOL_ERROR
from ..results import GOOD, Ending, by_exit_code, exit_code_of, failed
from ..values import text_of
from .claude import BEFORE, ClaudeDialect
from .dialect import (
    Answer,
    CallEnded,
    Happening,
    Payload,
    ReadTail,
    code_of,
    duration_of,
    failure,
    words_of,
)

MAX_LINES = 400
"""Number of last lines of a rollout that are read."""


class _End(NamedTuple):
    code: int | None = None
    failed: bool = False
    duration_ms: float | None = None


class CodexDialect(ClaudeDialect):
    """Codex CLI. It cannot ask: a question would be an error that lets the call pass."""

    agent = "codex"
    can_ask = False
    takes_context = frozenset({BEFORE, "PostToolUse", "SessionStart", "UserPromptSubmit"})
    takes_pause = frozenset()
    takes_notice = frozenset({BEFORE, "PostToolUse", "UserPromptSubmit", "Stop"})

    def happened(self, event: str, payload: Payload, tail: ReadTail) -> tuple[Happening, ...]:
        """Return what an event reports, with the end of the call from the rollout."""
        if event != "PostToolUse":
            return super().happened(event, payload, tail)
        call = self.call(payload)
        response = payload.get("tool_response")
        end = _end_in(tail(text_of(payload.get("transcript_path"))), call.call_id)
        return (CallEnded(call, _ending(response, end), response, end.duration_ms),)

    def write(self, event: str, answer: Answer) -> Payload:
        """Format an answer for Codex, which accepts a refusal only by itself."""
        if answer.refusal:
            answer = Answer(refusal=answer.refusal.rstrip("."))  # Codex appends the command: `. Command: …`
        return super().write(event, answer)


def _ending(response: Any, end: _End) -> Ending:
    if isinstance(response, dict):
        if response.get("isError") is True:
            return failed(words_of(response), TOOL_ERROR)
        return failure(words_of(response)) if end.failed else GOOD
    text = words_of(response)
    code = end.code if end.code is not None else exit_code_of(text)
    return failure(text) if end.failed and not code else by_exit_code(text, code)


def _end_in(log: bytes, call_id: str) -> _End:
    """Return the end of a call by the last lines of a rollout."""
    mark = call_id.encode()
    if not mark:
        return _End()
    for line in reversed(log.splitlines()[-MAX_LINES:]):
        if mark not in line:
            continue
        try:
            payload = orjson.loads(line)["payload"]
            item = payload["item"] if payload.get("type") == "item_completed" else None
        except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError):
            continue
        if isinstance(item, dict) and item.get("id") == call_id:
            duration = _milliseconds(item.get("duration"))
            return _End(code_of(item.get("exit_code")), item.get("status") == "failed", duration)
    return _End()


def _milliseconds(value: Any) -> float | None:
    if isinstance(value, dict):
        seconds, nanos = value.get("secs"), value.get("nanos")
        whole, part = duration_of(seconds), duration_of(nanos)
        return duration_of(whole * 1000 + (part or 0) / 1e6) if whole is not None else None
    return None


CODEX = CodexDialect()
