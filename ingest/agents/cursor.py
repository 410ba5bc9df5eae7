"""Transcripts of Cursor's agents: JSONL files in `~/.cursor/projects/*/agent-transcripts/`.

Each line is a message, or says that a turn has ended. The format has no times, ids, models and results of calls, and
some versions leave out the calls: a call is closed as neutral when the model goes on, and where the model goes on
without a call, the client has told it something that is not in the log. The user's words stand in `<user_query>`
between contexts of the client. Headings in bold that end a text are thoughts. Transcripts of sub-agents lie in a
folder `subagents`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePath
from typing import Any

from ...schemas.words import words_in
from ..base import LogDefaults, SessionWriter
from ..session_log import SessionLog, parts_of, prompted
from ..values import arguments_of, text_of

_HEADING = re.compile(r"\*\*[A-Z][a-z]{1,30}ing [^*\n]{1,200}\*\*")


class CursorLog(SessionLog):
    """Incremental reader of the session of one file."""

    def __init__(self, defaults: LogDefaults) -> None:
        """Start before the first line."""
        super().__init__(defaults)
        path = PurePath(defaults.file or defaults.source)
        self._agent = path.name.partition(".")[0] if path.parent.name == "subagents" else ""
        self._talked = False

    def line(self, record: dict[str, Any]) -> Iterator[bytes]:
        """Events of a record."""
        message, role = record.get("message"), record.get("role")
        if record.get("type") == "turn_ended":
            session = yield from self._session("", None)
            yield from session.unrecorded()
            yield from session.turn_over()
            self._talked = False
        elif isinstance(message, dict) and role in ("user", "assistant"):
            session = yield from self._session("", None)
            yield from session.unrecorded()
            parts = parts_of(message.get("content"))
            if role == "user":
                yield from self._of_user(session, parts)
            else:
                yield from self._of_model(session, parts)

    def ended(self) -> Iterator[bytes]:
        """Events of the end of the log, which close what is open."""
        for session in self._sessions.values():
            yield from session.unrecorded()
        yield from super().ended()

    def _of_user(self, session: SessionWriter, parts: list[dict[str, Any]]) -> Iterator[bytes]:
        self._talked = False
        said = "\n".join(query for part in parts for query in _queries(text_of(part)))
        if self._agent:
            yield from session.received("agent", wakes=True)
        elif said:
            yield from session.said_by_user(words=words_in(said))
        else:
            yield from prompted(session, parts, None)

    def _of_model(self, session: SessionWriter, parts: list[dict[str, Any]]) -> Iterator[bytes]:
        yield from session.resumed()
        if self._talked:
            yield from session.received("client")
        self._talked = True
        for part in parts:
            if part.get("type") == "text":
                message, thought = _without_heading(text_of(part))
                yield from session.said_by_model(message)
                yield from session.said_by_model(thought, thought=True)
            elif part.get("type") == "tool_use":
                self._talked = False
                args = arguments_of(part.get("input"))
                yield session.started(part.get("id"), part.get("name"), args, message_id=f"line {self._run.line}")


def _queries(text: str) -> Iterator[str]:
    """User's text: the content of `<user_query>`."""
    for rest in text.split("<user_query>")[1:]:
        yield rest.partition("</user_query>")[0]


def _without_heading(text: str) -> tuple[str, str]:
    """A text without a heading that ends it, and the heading; empty if there is none."""
    before, _, last = text.rstrip().rpartition("\n")
    return (before.rstrip(), last.strip()) if _HEADING.fullmatch(last.strip()) else (text, "")
