"""Session logs of Factory's Droid: JSONL files below `~/.factory/sessions/`.

The first line names the session; messages follow, each with an id and a time, with parts as Anthropic's API has them.
Reminders of the client stand in the user's messages. A sub-agent has a file of its own, whose first line names the
session that called it. The model is named in the settings beside the log alone, so most events have none.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from ..base import SessionWriter
from ..results import GOOD, StatedEnding, code_in, ending_of, failed, rejection_of, remark_of
from ..session_log import SessionLog, parts_of, prompted
from ..values import arguments_of, first_name, text_of, time_of

_EXIT = re.compile(r"^\[Process exited with code (-?\d{1,10})\]\s*$", re.MULTILINE)


class DroidLog(SessionLog):
    """Incremental reader of the session of one file."""

    def line(self, record: dict[str, Any]) -> Iterator[bytes]:
        """Events of a record."""
        kind, mark, at = record.get("type"), first_name(record, "id"), time_of(record.get("timestamp"))
        if kind == "session_start":
            self._named(mark, record.get("cwd"), first_name(record, "callingSessionId"))
        elif kind in ("compaction_state", "agent_turn_outcome"):
            session = yield from self._session(mark, at)
            yield from session.compacted(at) if kind == "compaction_state" else session.turn_over(at)
        elif kind == "message" and isinstance(record.get("message"), dict) and self._is_new(mark):
            message = record["message"]
            if "user_only" in (message.get("visibility"), record.get("visibility")):
                return
            session = yield from self._session(mark, at)
            read = self._of_model if message.get("role") == "assistant" else self._of_user
            yield from read(session, message, parts_of(message.get("content")), mark, at)

    def _of_user(
        self, session: SessionWriter, _message: dict[str, Any], parts: list[dict[str, Any]], _mark: str, at: int | None
    ) -> Iterator[bytes]:
        results = [part for part in parts if part.get("type") == "tool_result"]
        for part in results:
            text = text_of(part.get("content"))
            ending = _ending(text, failure=part.get("is_error", part.get("isError")) is True)
            yield from session.finished(part.get("tool_use_id"), text or part.get("content"), at, ending=ending)
        said = [part for part in parts if part not in results]
        if self._agent and said:
            yield from session.received("agent", at, wakes=True)
        else:
            yield from prompted(session, said, at)

    def _of_model(
        self, session: SessionWriter, message: dict[str, Any], parts: list[dict[str, Any]], mark: str, at: int | None
    ) -> Iterator[bytes]:
        session.model = first_name(message, "model", "modelId") or session.model
        yield from session.resumed(at)
        for part in parts:
            kind = part.get("type")
            if kind == "text":
                yield from session.said_by_model(text_of(part), at)
            elif kind == "thinking":
                yield from session.said_by_model(text_of(part.get("thinking")), at, thought=True)
            elif kind == "tool_use":
                args = arguments_of(part.get("input"))
                yield session.started(part.get("id"), part.get("name"), args, at, message_id=mark or None)


def _ending(text: str, *, failure: bool) -> StatedEnding:
    if code := code_in(_EXIT, text):
        return failed(text, f"exit_code_{code}")
    if not failure:
        return GOOD
    return rejection_of(text) or remark_of(text) or ending_of(text, failure=True)
