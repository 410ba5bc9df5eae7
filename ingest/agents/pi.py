"""Session logs of Pi (pi-mono): JSONL files below `~/.pi/agent/sessions/`.

The first line names the session; each further one is an entry with an id, the entry before it and a time. Entries form
a tree: one that follows another than the last goes back to an earlier context. A fork repeats entries of the session it
comes from: an entry counts once. Commands that the user runs with `!` are no calls of the model, nor are those in a
message that broke off, which never run.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from ..base import LogDefaults, SessionWriter
from ..results import GOOD, StatedEnding, by_words, code_in, failed, remark_of
from ..session_log import SessionLog, parts_of, prompted
from ..values import arguments_of, first_name, name_of, text_of, time_of

_ENDINGS = (
    (r"(?:Command|Operation) aborted\s*\Z", "cancelled", "interrupted"),
    (r"\ASkipped due to queued user message", "cancelled", "interrupted"),
    (r"Command timed out after \d+ seconds\s*\Z", "timeout", "timeout"),
    (r"\A(?:Tool \S{1,200} not found|Validation failed for tool )", "rejected", "invalid_arguments"),
    (r"\ATool execution was blocked", "error", "blocked_by_guard"),
)
_EXIT = re.compile(r"^Command exited with code (-?\d{1,10})\s*\Z", re.MULTILINE)


class PiLog(SessionLog):
    """Incremental reader of the session of one file."""

    def __init__(self, defaults: LogDefaults) -> None:
        """Start before the first line."""
        super().__init__(defaults)
        self._leaf = ""

    def line(self, record: dict[str, Any]) -> Iterator[bytes]:
        """Events of a record."""
        kind, mark, at = record.get("type"), first_name(record, "id"), time_of(record.get("timestamp"))
        if kind == "session":
            self._named(mark, record.get("cwd"))
            return
        went_back = bool(self._leaf) and record.get("parentId", self._leaf) != self._leaf
        self._leaf = mark or self._leaf
        if not self._is_new(mark and f"{mark} {at}"):
            return
        session = yield from self._session(mark, at)
        if went_back or kind == "compaction":
            yield from session.compacted(at)
        if kind == "model_change":
            session.model = name_of(record.get("modelId")) or session.model
        elif kind == "custom_message":
            yield from session.received("hook", at)
        elif kind == "message" and isinstance(record.get("message"), dict):
            yield from _message(session, record["message"], mark, at)


def _message(session: SessionWriter, message: dict[str, Any], mark: str, at: int | None) -> Iterator[bytes]:
    role, parts = message.get("role"), parts_of(message.get("content"))
    if role == "user":
        yield from prompted(session, parts, at)
    elif role == "assistant":
        yield from _of_model(session, message, parts, mark, at)
    elif role == "toolResult":
        text = text_of(parts)
        ending = _ending(text) if message.get("isError") is True else GOOD
        tool = name_of(message.get("toolName"))
        yield from session.finished(message.get("toolCallId"), text or parts, at, tool=tool, ending=ending)
    elif role in {"custom", "hookMessage"}:
        yield from session.received("hook", at)
    elif role == "bashExecution" and message.get("excludeFromContext") is not True:
        yield from session.received("client", at)


def _of_model(
    session: SessionWriter, message: dict[str, Any], parts: list[dict[str, Any]], mark: str, at: int | None
) -> Iterator[bytes]:
    session.model = name_of(message.get("model")) or session.model
    reason = message.get("stopReason")
    yield from session.resumed(at)
    for part in parts:
        kind = part.get("type")
        if kind == "text":
            yield from session.said_by_model(text_of(part), at)
        elif kind == "thinking":
            yield from session.said_by_model(text_of(part.get("thinking")), at, thought=True)
        elif kind == "toolCall" and reason not in ("error", "aborted"):
            args = arguments_of(part.get("arguments"))
            yield session.started(part.get("id"), part.get("name"), args, at, message_id=mark or None)
    if reason in ("stop", "length", "aborted", "error"):
        yield from session.turn_over(at)


def _ending(text: str) -> StatedEnding:
    if code := code_in(_EXIT, text):
        return failed(text, f"exit_code_{code}")
    return by_words(text, _ENDINGS) or remark_of(text) or failed(text)
