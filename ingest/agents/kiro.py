"""Conversations of Kiro's command line: its session logs, and the documents that it saves.

Session logs are JSONL files below `~/.kiro/sessions/cli/`, named for their session; only prompts have times. A
document, as `/chat save` writes it, holds pairs of what the model was told and what it answered; Amazon Q Developer has
the same. A pair may have times and the model. Where a document lacks the results of calls, the calls are closed as
neutral when the model goes on, and where the model goes on without a call, the client has told it something that is
not in the document. When a context was shortened is in neither.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from ...schemas.words import words_in
from ..base import LogDefaults, SessionWriter, attempted
from ..results import GOOD, INTERRUPTED, StatedEnding, by_words, failed, remark_of
from ..session_log import SessionLog
from ..values import arguments_of, first_name, text_of, time_of

_ENDINGS = (
    (r"\A(?:Failed to validate tool parameters|No tool with \")", "rejected", "invalid_arguments"),
    (r"\ATool use with .{1,200} was rejected because the arguments", "error", "blocked_by_guard"),
    (r"\ATool use was cancelled by the user", "error", "user_rejected"),
)
_CODE = re.compile(r"(?:exit status: )?(-?\d{1,10})\Z")
_STOPPED = "The user interrupted the tool execution."


class KiroLog(SessionLog):
    """Incremental reader of the session of one file."""

    def __init__(self, defaults: LogDefaults) -> None:
        """Start before the first line."""
        super().__init__(defaults)
        self._talked = False

    def line(self, record: dict[str, Any]) -> Iterator[bytes]:
        """Events of a record."""
        data = record.get("data")
        if isinstance(record.get("history"), list):
            yield from self._document(record)
        elif isinstance(data, dict):
            kind, mark = record.get("kind"), first_name(data, "message_id")
            meta = data.get("meta")
            at = time_of(meta.get("timestamp")) if isinstance(meta, dict) else None
            blocks = [part for part in data.get("content") or () if isinstance(part, dict)]
            if kind not in ("Prompt", "AssistantMessage", "ToolResults") or not self._is_new(mark and f"{kind} {mark}"):
                return
            session = yield from self._session(f"{kind} {mark}" if mark else "", at)
            if kind == "Prompt":
                yield from session.said_by_user(at, words=words_in(_said(blocks)))
            elif kind == "AssistantMessage":
                yield from self._of_model(session, mark, _said(blocks), _of_kind(blocks, "toolUse"), at)
            else:
                yield from _results(session, _of_kind(blocks, "toolResult"), at)

    def _document(self, record: dict[str, Any]) -> Iterator[bytes]:
        self._named(first_name(record, "conversation_id"))
        for number, pair in enumerate(record["history"]):
            if isinstance(pair, dict) and isinstance(pair.get("user"), dict):
                yield from attempted((number, pair), self._pair, self._defaults)
        for session in self._sessions.values():
            yield from session.unrecorded()

    def _pair(self, numbered: tuple[int, dict[str, Any]]) -> Iterator[bytes]:
        number, pair = numbered
        told, answer, about = pair["user"], _object(pair.get("assistant")), _object(pair.get("request_metadata"))
        self._named("", _object(_object(told.get("env_context")).get("env_state")).get("current_working_directory"))
        begun = time_of(about.get("request_start_timestamp_ms")) or time_of(told.get("timestamp"))
        session = yield from self._session(f"told {number}", begun)
        session.model = first_name(about, "model_id") or session.model
        yield from self._told(session, _object(told.get("content")), begun)
        session.at(f"said {number}")
        for said in answer.values():
            calls = [call for call in said.get("tool_uses") or () if isinstance(call, dict)]
            mark, ended = first_name(said, "message_id"), time_of(about.get("stream_end_timestamp_ms"))
            yield from self._of_model(session, mark or f"{number}", text_of(said.get("content")), calls, ended)

    def _told(self, session: SessionWriter, content: dict[str, Any], at: int | None) -> Iterator[bytes]:
        """Add what the model was told: a prompt, results, or something that the document leaves out."""
        for kind, what in content.items():
            prompt = text_of(what.get("prompt"))
            stopped = INTERRUPTED if prompt == _STOPPED else None
            results = [one for one in what.get("tool_use_results") or () if isinstance(one, dict)]
            yield from _results(session, results, at, stopped if kind == "CancelledToolUses" else None)
            yield from session.unrecorded()
            if prompt and not stopped:
                yield from session.said_by_user(at, words=words_in(prompt))
        yield from session.unrecorded()
        if self._talked and not content:
            yield from session.received("client", at)

    def _of_model(
        self, session: SessionWriter, mark: str, text: str, calls: list[dict[str, Any]], at: int | None
    ) -> Iterator[bytes]:
        self._talked = not calls
        yield from session.resumed(at)
        yield from session.said_by_model(text, at)
        for call in calls:
            call_id = first_name(call, "toolUseId", "id")
            args = arguments_of(call.get("input", call.get("args")))
            yield session.started(call_id, call.get("name"), args, at, message_id=mark or None)


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _of_kind(blocks: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [part["data"] for part in blocks if part.get("kind") == kind and isinstance(part.get("data"), dict)]


def _said(blocks: list[dict[str, Any]]) -> str:
    return "\n".join(text_of(part.get("data")) for part in blocks if part.get("kind") == "text")


def _results(
    session: SessionWriter, results: list[dict[str, Any]], at: int | None, ending: StatedEnding | None = None
) -> Iterator[bytes]:
    for one in results:
        content = [_value(part) for part in one.get("content") or () if isinstance(part, dict)]
        result = content[0] if len(content) == 1 else content
        text = "\n".join(part for part in content if isinstance(part, str))
        how = ending or _ending(one, result, text)
        yield from session.finished(first_name(one, "toolUseId", "tool_use_id"), result, at, ending=how)


def _value(part: dict[str, Any]) -> Any:
    """Value of a part of a result: `{"kind": …, "data": VALUE}`, or `{"Text": VALUE}` in documents."""
    return part["data"] if "data" in part else next(iter(part.values()), None)


def _ending(one: dict[str, Any], result: Any, text: str) -> StatedEnding:
    """Ending by the exit code of a command, else by the status."""
    found = _CODE.match(first_name(result, "exit_status")) if isinstance(result, dict) else None
    if found and int(found[1]):
        return failed(first_name(result, "stderr", "stdout"), f"exit_code_{int(found[1])}")
    if first_name(one, "status").lower() != "error":
        return GOOD
    return by_words(text, _ENDINGS) or remark_of(text) or failed(text)
