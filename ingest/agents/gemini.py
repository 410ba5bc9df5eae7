"""Session logs of Gemini CLI: `session-*.jsonl` below `~/.gemini/tmp/PROJECT/chats/`, older ones `.json`.

The first line names the session; after it stand messages, each with an id and a time, and changes: `$set`, `$rewindTo`.
A message of the model is written again, whole, when its calls have ended: what an id has said already counts once.
What `$set` brings as messages is the history as the model is shown it, told before or by the client; a snapshot in it
stands for what was compressed, and `$rewindTo` takes a part of it away. The older form is one document with the same
messages. `logs.json` beside the chats holds prompts alone, which the chats hold too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from ..base import LogDefaults, SessionWriter
from ..results import (
    EXIT_CODE,
    INTERRUPTED,
    PROCESS,
    StatedEnding,
    by_exit_code,
    code_in,
    failed,
    rejection_of,
    remark_of,
    without_hook_context,
)
from ..speakers import WAKING, heard
from ..values import arguments_of, first_name, name_of, text_of, time_of
from ..workspaces import workspace_of

_WRAPPER = re.compile(r"</?untrusted_context>\n?")
_FOLDER = re.compile(r"\*\*Workspace Directories:\*\*[^\S\n]*\n\s*- (\S[^\n]*)")
_OVER = frozenset({"success", "error", "cancelled"})
_SNAPSHOT = "<state_snapshot>"
_STOPPED = "Request cancelled"  # First words of the notice that the user has interrupted the model


class GeminiLog:
    """Incremental reader of the session of one file."""

    def __init__(self, defaults: LogDefaults) -> None:
        """Start before the first line."""
        self._session: SessionWriter | None = None
        self._defaults = defaults
        self._run = defaults.run

    def line(self, record: dict[str, Any]) -> Iterator[bytes]:
        """Events of a record."""
        if "sessionId" in record and "projectHash" in record:
            yield from self._begun(record)
            messages = record.get("messages")
            for message in messages if isinstance(messages, list) else ():
                if isinstance(message, dict):
                    yield from self.line(message)
            return
        changed, session = record.get("$set"), self._session
        if isinstance(changed, dict):
            self._look_for_folder(changed)
            if session is not None and _is_compressed(changed):
                session.at(f"compressed line {self._run.line}")
                yield from session.compacted()
        elif "$rewindTo" in record:
            if session is not None:
                session.at(f"rewound line {self._run.line}")
                yield from session.compacted()
        elif record.get("type") == "info" and session is not None and (mark := first_name(record, "id")):
            if text_of(record.get("content")).startswith(_STOPPED) and self._is_first(session, mark):
                session.at(mark)
                yield from session.turn_over(time_of(record.get("timestamp")))
        elif record.get("type") in {"user", "gemini"} and (mark := first_name(record, "id")):
            if self._session is None:
                yield from self._begun({})
            assert self._session is not None  # noqa: S101 - begun above
            read = self._of_user if record["type"] == "user" else self._of_model
            yield from read(self._session, record, mark, time_of(record.get("timestamp")))

    def ended(self) -> Iterator[bytes]:
        """Events that close the calls and the turn left open at the end of the log."""
        if self._session is not None:
            yield from self._session.closed()

    def _begun(self, about: dict[str, Any]) -> Iterator[bytes]:
        if self._session is None:
            name = self._defaults.session or first_name(about, "sessionId") or self._defaults.source
            folders = about.get("directories")
            folder = workspace_of(text_of(folders[0])) if isinstance(folders, list) and folders else ""
            self._session = SessionWriter(name, self._defaults, folder, ends_turns=True)
            yield from self._session.begun(time_of(about.get("startTime")))

    def _look_for_folder(self, changed: dict[str, Any]) -> None:
        session = self._session
        messages = changed.get("messages")
        if session is None or session.workspace or not isinstance(messages, list) or not messages:
            return
        found = _FOLDER.search(text_of(messages[0].get("content")) if isinstance(messages[0], dict) else "")
        session.workspace = workspace_of(found[1].strip()) if found else ""

    def _of_user(self, session: SessionWriter, record: dict[str, Any], mark: str, at: int | None) -> Iterator[bytes]:
        content = record.get("content")
        parts = content if isinstance(content, list) else [content]
        if any(isinstance(part, dict) and "functionResponse" in part for part in parts):
            return
        files = any(isinstance(part, dict) and part.keys() & {"inlineData", "fileData"} for part in parts)
        told = [heard(text_of(part)) for part in parts]
        if not self._is_first(session, mark):
            return
        session.at(mark)
        if files or any(one.spoken for one in told):
            yield from session.said_by_user(at, words=sum(one.words for one in told))
        elif source := next((one.source for one in told if one.source), ""):
            yield from session.received(source, at, wakes=source in WAKING)

    def _of_model(self, session: SessionWriter, record: dict[str, Any], mark: str, at: int | None) -> Iterator[bytes]:
        session.model = name_of(record.get("model")) or session.model
        if self._is_first(session, mark):
            session.at(mark)
            for thought in _thoughts(record):
                yield from session.said_by_model(thought, at, thought=True)
            yield from session.said_by_model(text_of(record.get("content")), at)
        given = record.get("toolCalls")
        calls = [
            (first_name(call, "id") or f"{mark}#{number}", call)
            for number, call in enumerate(given if isinstance(given, list) else ())
            if isinstance(call, dict)
        ]
        for call_id, call in calls:
            if self._is_first(session, f"call {call_id}"):
                session.at(f"{mark} begins {call_id}")
                args = arguments_of(call.get("args"))
                yield session.started(
                    call_id, call.get("name"), args, at, message_id=mark, **service_in(name_of(call.get("name")))
                )
        for call_id, call in sorted(calls, key=lambda one: time_of(one[1].get("timestamp")) or 0):
            if call.get("status") in _OVER and session.is_open(call_id):
                session.at(f"{mark} ends {call_id}")
                result = result_of(call.get("result"))
                ending = ending_of_call(call.get("status"), result)
                yield from session.finished(call_id, result, time_of(call.get("timestamp")), ending=ending)

    def _is_first(self, session: SessionWriter, mark: str) -> bool:
        return self._run.first(f"gemini\x1f{session.id}\x1f{mark}")


def _thoughts(record: dict[str, Any]) -> Iterator[str]:
    given = record.get("thoughts")
    for thought in given if isinstance(given, list) else ():
        if isinstance(thought, dict):
            yield "\n".join(text for key in ("subject", "description") if (text := text_of(thought.get(key))))


def _is_compressed(changed: dict[str, Any]) -> bool:
    """True if the history begins with a snapshot of what was there before."""
    messages = changed.get("messages")
    first = messages[:2] if isinstance(messages, list) else ()
    return any(_SNAPSHOT in text_of(one.get("content"))[:2000] for one in first if isinstance(one, dict))


def service_in(tool: str) -> dict[str, str]:
    """MCP server of a call, from the tool's name: ambiguous in `mcp_SERVER_TOOL`, clear with `__`."""
    parts = tool.split("__")
    return {"service": parts[-2].removeprefix("mcp_")} if len(parts) > 1 and parts[-2] else {}


def result_of(given: Any) -> Any:
    """Result of a call as the model gets it, without its wrapping, from the parts of a message."""
    if isinstance(given, str):
        return given
    for part in given if isinstance(given, list) else [given]:
        told = part.get("functionResponse") if isinstance(part, dict) else None
        response = told.get("response") if isinstance(told, dict) else None
        if isinstance(response, dict):
            text = text_of(response.get("output")) or text_of(response.get("error"))
            return PROCESS.sub("", _WRAPPER.sub("", without_hook_context(text))).rstrip("\n") if text else response
    return None


def ending_of_call(status: Any, result: Any) -> StatedEnding:
    """Ending of a call by its status and its result."""
    text = result if isinstance(result, str) else text_of(result)
    if status == "cancelled":
        return INTERRUPTED
    if (code := code_in(EXIT_CODE, text)) or status == "success":
        return by_exit_code(text, code)
    return rejection_of(text) or remark_of(text) or failed(text)
