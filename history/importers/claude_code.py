"""Session logs of Claude Code: the JSONL files below `~/.claude/projects/`.

A line is a message with a time; content parts are text, calls and their results. Sub-agents stand in the same file as
side chains: they are sessions of their own, for their calls do not interleave with the main one's. Text that the
client itself puts into the model's mouth (model `<synthetic>`) is left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePath
from typing import Any

from .base import Defaults, Lines, Session, each, name_of, records_of, text_of, time_of

SYNTHETIC = "<synthetic>"
_DENIED = ("The user doesn't want to proceed", "The user doesn't want to take this action")
_INTERRUPTED = "[Request interrupted by user"
_SIBLING = "Sibling tool call errored"
_NOT_SPOKEN = re.compile(r"\s*<(?:command-|local-command|system-reminder|bash-|user-memory)")


def read_claude_code(lines: Lines, defaults: Defaults) -> Iterator[bytes]:
    """Events of a session log."""
    sessions: dict[str, Session] = {}
    return each(records_of(lines, defaults.source), lambda record: _line(sessions, record, defaults))


def _line(sessions: dict[str, Session], record: dict[str, Any], defaults: Defaults) -> Iterator[bytes]:
    message = record.get("message")
    if record.get("type") not in {"user", "assistant"} or not isinstance(message, dict):
        return
    at = time_of(record.get("timestamp"))
    name = defaults.session or str(record.get("sessionId") or defaults.source)
    agent = str(record.get("agentId") or "")
    if record.get("isSidechain"):
        name = f"{name}/{agent or 'sidechain'}"
    session = sessions.get(name)
    if session is None:
        workspace = defaults.workspace or PurePath(str(record.get("cwd") or "")).name
        session = sessions[name] = Session(name, workspace)
        session.agent = agent
        yield session.event("session.started", at)
    content = message.get("content")
    parts = content if isinstance(content, list) else [{"type": "text", "text": content}]
    if record["type"] == "assistant":
        yield from _of_model(session, message, parts, at)
    else:
        yield from _of_user(session, record, parts, at)


def _of_model(session: Session, message: dict[str, Any], parts: list[Any], at: int | None) -> Iterator[bytes]:
    model = name_of(message.get("model"))
    if model == SYNTHETIC:
        return
    session.model = model or session.model
    for part in parts:
        if not isinstance(part, dict):
            continue
        if part.get("type") == "text":
            yield from session.said_by_model(str(part.get("text") or ""), at)
        elif part.get("type") in {"tool_use", "server_tool_use", "mcp_tool_use"}:
            yield session.started(str(part.get("id") or ""), str(part.get("name") or ""), part.get("input"), at)


def _of_user(session: Session, record: dict[str, Any], parts: list[Any], at: int | None) -> Iterator[bytes]:
    results = [part for part in parts if isinstance(part, dict) and part.get("type") == "tool_result"]
    for part in results:
        yield _result(session, part, at)
    text = text_of(parts)
    if not results and text.strip() and not record.get("isMeta") and not _NOT_SPOKEN.match(text):
        if text.startswith(_INTERRUPTED):
            return
        yield from session.said_by_user(at)


def _result(session: Session, part: dict[str, Any], at: int | None) -> bytes:
    content = part.get("content")
    text = text_of(content)
    failed = part.get("is_error") is True
    error: dict[str, Any] | None = None
    if failed and text.startswith(_DENIED):
        error = {"type": "user_rejected", "message": text[:500]}
    elif failed and text.startswith(_INTERRUPTED):
        error = {"type": "interrupted", "message": text[:500]}
    elif failed and _SIBLING in text[:200]:
        error = {"type": "sibling_error", "message": text[:500]}
    # A result that does not say that it failed did not: what a file holds may well begin with "Error".
    return session.finished(str(part.get("tool_use_id") or ""), text or content, at, failed=failed, error=error)
