"""Session logs of Qwen Code: `*.jsonl` below `~/.qwen/projects/PROJECT/chats/`.

A line is a record with an id, a time and a message in Gemini's parts. Each call has a record of its own for its result;
what the client tells the model in the user's name is marked as such.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..base import SessionWriter
from ..results import StatedEnding, rejection_of
from ..session_log import SessionLog, parts_of, prompted
from ..speakers import WAKING
from ..values import arguments_of, first_name, name_of, text_of, time_of
from .gemini import ending_of_call, result_of, service_in

# Sources of a record of the user's role by what it is marked as
_SOURCES = {"notification": "report", "cron": "timer", "goal_runtime": "client"}

_CONTEXT_CHANGES = frozenset({"chat_compression", "rewind"})


class QwenLog(SessionLog):
    """Incremental reader of the session of one file."""

    def line(self, record: dict[str, Any]) -> Iterator[bytes]:
        """Events of a record."""
        kind, mark, at = record.get("type"), first_name(record, "uuid"), time_of(record.get("timestamp"))
        if not self._is_new(mark):
            return
        self._named(first_name(record, "sessionId"), record.get("cwd"))
        session = yield from self._session(mark, at)
        message = record.get("message")
        parts = parts_of(message.get("parts")) if isinstance(message, dict) else []
        if kind == "user" and (source := source_of(record)):
            yield from session.received(source, at, wakes=source in WAKING)
        elif kind == "user" and record.get("subtype") == "mid_turn_user_message":
            yield from session.said_within_turn(at)
        elif kind == "user":
            yield from prompted(session, parts, at)
        elif kind == "assistant":
            session.model = name_of(record.get("model")) or session.model
            yield from _of_model(session, parts, mark, at)
        elif kind == "tool_result":
            yield from _result(session, record.get("toolCallResult"), parts, at)
        elif kind == "system" and record.get("subtype") in _CONTEXT_CHANGES:
            yield from session.compacted(at)


def source_of(record: dict[str, Any]) -> str:
    """Source of a record of the user's role; empty if it is the user."""
    return _SOURCES.get(name_of(record.get("subtype")), "")


def _of_model(session: SessionWriter, parts: list[dict[str, Any]], mark: str, at: int | None) -> Iterator[bytes]:
    yield from session.resumed(at)
    for part in parts:
        call = part.get("functionCall")
        if isinstance(call, dict):
            args, tool = arguments_of(call.get("args")), name_of(call.get("name"))
            yield session.started(call.get("id"), tool, args, at, message_id=mark or None, **service_in(tool))
        else:
            yield from session.said_by_model(text_of(part.get("text")), at, thought=part.get("thought") is True)


def _result(session: SessionWriter, about: Any, parts: list[dict[str, Any]], at: int | None) -> Iterator[bytes]:
    told = about if isinstance(about, dict) else {}
    result = result_of(parts)
    ending = ending_in_batch(told.get("status"), told.get("executionStatus"), result)
    yield from session.finished(told.get("callId"), result, at, ending=ending)


def ending_in_batch(status: Any, execution: Any, result: Any) -> StatedEnding:
    """Ending of a call by its status, whether it began, and its result."""
    ending = ending_of_call(status, result)
    if execution == "not_started" and ending.status == "error":
        return rejection_of(text_of(result)) or ending._replace(status="rejected")
    return ending
