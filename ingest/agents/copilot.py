"""Session logs of Copilot CLI: `events.jsonl` in the folders below `~/.copilot/session-state/`.

Each line is an event: `type`, `data`, an id, a time. The client's turns are rounds of the model; a turn of the session
ends with the round that asks for no tool. A message asks for calls, `tool.execution_start` begins them. A failing
command is a success to the client: its exit code stands in the last line of its output. Events of sub-agents stand
between those of the main agent and carry their id. Calls that the user asks for are not the model's.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from ...schemas.words import words_in
from ..base import LogDefaults, SessionWriter
from ..results import StatedEnding, by_exit_code, by_words, code_in, failed, remark_of
from ..session_log import SessionLog
from ..values import arguments_of, first_name, text_of, time_of

# Last line of a command's output, which Copilot CLI adds
LAST_LINE = re.compile(r"\n?<(?:shellId: \S{1,100} completed|exited) with exit code (-?\d{1,10})>\s*\Z")

_UNKNOWN = ((r"\ATool '[^'\n]{1,200}' does not exist", "rejected", "unknown_tool"),)
# Kinds of notices about work in the background
REPORTS = frozenset(
    {"agent_completed", "agent_idle", "shell_completed", "shell_detached_completed", "factory_completed"}
)

# Sources of messages in the user's role by the first word of `source`; any other is the user
_SOURCES = {"agent": "agent", "schedule": "timer", "skill": "client", "system": "client", "autopilot": "client"}

_BY_USER = frozenset({"rejected", "denied-interactively-by-user"})


class _RequestedCall(NamedTuple):
    """Call that a message asks for."""

    message: str
    tool: Any
    arguments: Any


class CopilotLog(SessionLog):
    """Incremental reader of the sessions of one file."""

    def __init__(self, defaults: LogDefaults) -> None:
        """Start before the first line."""
        super().__init__(defaults)
        self._asked: dict[str, _RequestedCall] = {}
        self._users: set[str] = set()
        self._answers: dict[str, str] = {}
        self._readers: dict[str, Callable[[SessionWriter, dict[str, Any], int | None], Iterator[bytes]]] = {
            "session.start": self._of_session,
            "session.resume": self._of_session,
            "session.model_change": self._of_session,
            "session.compaction_complete": self._shortened,
            "session.truncation": self._shortened,
            "session.context_cleared": self._shortened,
            "session.snapshot_rewind": self._shortened,
            "session.idle": self._over,
            "session.task_complete": self._over,
            "session.shutdown": self._over,
            "abort": self._over,
            "user.message": self._of_user,
            "system.notification": self._notified,
            "assistant.message": self._of_model,
            "assistant.turn_end": self._round_over,
            "subagent.completed": self._over,
            "subagent.failed": self._over,
            "tool.execution_start": self._started,
            "tool.execution_complete": self._finished,
        }

    def line(self, record: dict[str, Any]) -> Iterator[bytes]:
        """Events of a record."""
        kind, data = record.get("type"), record.get("data")
        if not isinstance(kind, str) or not isinstance(data, dict):
            return
        if kind == "session.start":
            context = data.get("context")
            self._named(first_name(data, "sessionId"), context.get("cwd") if isinstance(context, dict) else "")
        elif kind == "tool.user_requested":
            self._users.add(first_name(data, "toolCallId"))
        elif kind == "permission.completed" and isinstance(data.get("result"), dict):
            self._answers[first_name(data, "toolCallId")] = first_name(data["result"], "kind")
        mark, at = first_name(record, "id"), time_of(record.get("timestamp"))
        read = self._readers.get(kind)
        if read is not None and self._is_new(mark):
            session = yield from self._session(mark, at, self._agent_of(kind, record, data))
            yield from read(session, data, at)

    def _agent_of(self, kind: str, record: dict[str, Any], data: dict[str, Any]) -> str:
        """Sub-agent of an event; older versions name the call that began it."""
        agent = first_name(record, "agentId") or first_name(data, "parentToolCallId")
        return agent or (first_name(data, "toolCallId") if kind.startswith("subagent.") else "")

    def _of_session(self, session: SessionWriter, data: dict[str, Any], _at: int | None) -> Iterator[bytes]:
        session.model = first_name(data, "newModel", "selectedModel") or session.model
        yield from ()

    def _over(self, session: SessionWriter, _data: dict[str, Any], at: int | None) -> Iterator[bytes]:
        yield from session.turn_over(at)

    def _shortened(self, session: SessionWriter, data: dict[str, Any], at: int | None) -> Iterator[bytes]:
        if data.get("success") is not False:
            yield from session.compacted(at)

    def _of_user(self, session: SessionWriter, data: dict[str, Any], at: int | None) -> Iterator[bytes]:
        source = _SOURCES.get(re.split(r"[^a-z]", first_name(data, "source"), maxsplit=1)[0], "")
        if session.agent:
            source = "agent"
        elif data.get("isAutopilotContinuation") is True:
            source = "client"
        if source:
            yield from session.received(source, at, wakes=True)
        else:
            yield from session.said_by_user(at, words=words_in(text_of(data.get("content"))))

    def _notified(self, session: SessionWriter, data: dict[str, Any], at: int | None) -> Iterator[bytes]:
        about = data.get("kind")
        kind = first_name(about, "type") if isinstance(about, dict) else ""
        source = "report" if kind in REPORTS else "agent" if kind == "new_inbox_message" else "client"
        yield from session.received(source, at, wakes=source != "client")

    def _of_model(self, session: SessionWriter, data: dict[str, Any], at: int | None) -> Iterator[bytes]:
        session.model = first_name(data, "model") or session.model
        yield from session.resumed(at)
        yield from session.said_by_model(text_of(data.get("reasoningText")), at, thought=True)
        yield from session.said_by_model(text_of(data.get("content")), at)
        for one in data.get("toolRequests") or ():
            call = _RequestedCall(first_name(data, "messageId"), one.get("name"), one.get("arguments"))
            self._asked[first_name(one, "toolCallId")] = call

    def _round_over(self, session: SessionWriter, _data: dict[str, Any], at: int | None) -> Iterator[bytes]:
        if session.rests:
            yield from session.turn_over(at)

    def _started(self, session: SessionWriter, data: dict[str, Any], at: int | None) -> Iterator[bytes]:
        call_id = first_name(data, "toolCallId")
        if call_id in self._users:
            return
        session.model = first_name(data, "model") or session.model
        asked = self._asked.pop(call_id, None)
        yield session.started(
            call_id,
            data.get("toolName"),
            arguments_of(data.get("arguments")),
            at,
            message_id=(asked and asked.message) or None,
            service=first_name(data, "mcpServerName") or None,
        )

    def _finished(self, session: SessionWriter, data: dict[str, Any], at: int | None) -> Iterator[bytes]:
        call_id = first_name(data, "toolCallId")
        if call_id in self._users or data.get("isUserRequested") is True:
            return
        session.model = first_name(data, "model") or session.model
        asked = self._asked.pop(call_id, None)
        if asked is not None and not session.is_open(call_id):
            yield session.started(
                call_id, asked.tool, arguments_of(asked.arguments), at, message_id=asked.message or None
            )
        result = data.get("result")
        text = text_of(result)
        ending = _ending(data, text, self._answers.pop(call_id, ""))
        yield from session.finished(call_id, LAST_LINE.sub("", text) if text else result, at, ending=ending)


def _ending(data: dict[str, Any], text: str, answer: str) -> StatedEnding:
    """Ending of a call, by the client's answer to its question for permission and by the result."""
    if data.get("success") is not False:
        return by_exit_code(LAST_LINE.sub("", text), code_in(LAST_LINE, text))
    error = data["error"] if isinstance(data.get("error"), dict) else {}
    message = text_of(error.get("message")) or text
    code = answer if answer.startswith("denied") else first_name(error, "code")
    if code in _BY_USER:
        return failed(message, "user_rejected")
    if code.startswith("denied"):
        return failed(message, "blocked_by_guard")
    return ending_by_kind(message, code) or remark_of(message) or failed(message, "" if code == "failure" else code)


def ending_by_kind(message: str, kind: str) -> StatedEnding | None:
    """Ending of a call that ran out of time, or for which there is no tool; None if it is neither."""
    if kind == "timeout":
        return StatedEnding("timeout", failed(message, kind).error)
    return by_words(message, _UNKNOWN)
