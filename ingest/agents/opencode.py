"""Sessions of OpenCode: documents of `opencode export`, and lines of `opencode run --format json`.

A document holds the session and its messages with their parts; a call is one part, with the times of its beginning and
its end. The lines hold parts in the order of their ends, without what the user said and without the model. A sub-agent
is a session of its own that names its parent. What the client adds to a message is marked as synthetic.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ...schemas.words import words_in
from ..base import SessionWriter, attempted
from ..results import GOOD, StatedEnding, by_words, failed, remark_of
from ..session_log import SessionLog
from ..values import arguments_of, first_name, name_of, text_of, time_of

_ENDINGS = (
    (r"\A(?:Error: )?(?:The user rejected permission|The user dismissed this question)", "error", "user_rejected"),
    (r"\A(?:Error: )?The user has specified a rule which prevents", "error", "blocked_by_guard"),
    (r"\A(?:Tool execution aborted|Aborted\s*\Z)", "cancelled", "interrupted"),
    (
        r"\A(?:Error: )?(?:You must read (?:the )?file|The \S{1,100} tool was called with invalid)",
        "rejected",
        "refused",
    ),
)
_TIMED_OUT = ((r"terminated command after exceeding timeout", "timeout", "timeout"),)
_ABORTED = ((r"User aborted the command", "cancelled", "interrupted"),)
_GOES_ON = frozenset({"tool-calls", "unknown", ""})  # Reasons of a message's end after which the model is asked again


class OpenCodeLog(SessionLog):
    """Incremental reader of the sessions of one file."""

    def line(self, record: dict[str, Any]) -> Iterator[bytes]:
        """Events of a record."""
        about, messages = record.get("info"), record.get("messages")
        if isinstance(about, dict) and isinstance(messages, list):
            self._named(first_name(about, "id"), about.get("directory"), first_name(about, "parentID"))
            for message in messages:
                if isinstance(message, dict) and isinstance(message.get("info"), dict):
                    yield from attempted(message, self._message, self._defaults)
        elif name := first_name(record, "sessionID"):
            self._named(name)
            yield from self._printed(record)

    def _message(self, message: dict[str, Any]) -> Iterator[bytes]:
        about, parts = message["info"], _parts(message.get("parts"))
        times = about["time"] if isinstance(about.get("time"), dict) else {}
        at, mark = time_of(times.get("created")), first_name(about, "id")
        if not self._is_new(mark):
            return
        session = yield from self._session(mark, at)
        if about.get("role") == "user":
            yield from self._of_user(session, parts, at)
            return
        session.model = first_name(about, "modelID") or session.model
        yield from session.resumed(at)
        if about.get("summary") is not True:
            yield from _of_model(session, parts, mark, at)
        if first_name(about, "finish") not in _GOES_ON or about.get("error"):
            session.at(f"{mark} over")
            yield from session.turn_over(time_of(times.get("completed")))

    def _of_user(self, session: SessionWriter, parts: list[dict[str, Any]], at: int | None) -> Iterator[bytes]:
        if any(part.get("type") == "compaction" for part in parts):
            yield from session.compacted(at)
        texts = [part for part in parts if part.get("type") == "text" and part.get("ignored") is not True]
        said = [text_of(part) for part in texts if part.get("synthetic") is not True]
        if self._agent and parts:
            yield from session.received("agent", at, wakes=True)
        elif said or any(part.get("type") in ("file", "subtask", "agent") for part in parts):
            yield from session.said_by_user(at, words=words_in("\n".join(said)) or None)
        elif texts:
            yield from session.received("client", at)

    def _printed(self, record: dict[str, Any]) -> Iterator[bytes]:
        """Events of a line of `run --format json`: a part that has ended, or an error that ends the turn."""
        at, part = time_of(record.get("timestamp")), record.get("part")
        part = part if isinstance(part, dict) else {}
        mark = first_name(part, "id")
        if not self._is_new(mark):
            return
        session = yield from self._session(mark, _times(part)[0] or at)
        if record.get("type") == "error" or (
            part.get("type") == "step-finish" and first_name(part, "reason") not in _GOES_ON
        ):
            yield from session.turn_over(at)
        else:
            yield from _of_model(session, [part], first_name(part, "messageID"), at)


def _of_model(session: SessionWriter, parts: list[dict[str, Any]], message: str, at: int | None) -> Iterator[bytes]:
    """Add the parts of a message in the order of time: calls may run side by side."""
    steps: list[tuple[int, int, bool]] = []
    last = at or 0
    for number, part in enumerate(parts):
        began, ended = _times(part)
        last = began if began is not None else last
        steps.append((last, number, False))
        if ended is not None and part.get("type") == "tool":
            steps.append((max(ended, last), number, True))
    for when, number, over in sorted(steps):
        part, moment = parts[number], when or None
        session.at(f"{message} {first_name(part, 'id') or number}{' over' if over else ''}")
        if over:
            yield from _finished(session, part, moment)
        elif part.get("type") == "tool":
            yield from _started(session, part, message, moment)
        elif part.get("type") in ("text", "reasoning") and part.get("synthetic") is not True:
            yield from session.said_by_model(text_of(part), moment, thought=part.get("type") == "reasoning")


def _started(session: SessionWriter, part: dict[str, Any], message: str, at: int | None) -> Iterator[bytes]:
    state = _state(part)
    args = arguments_of(state.get("input"))
    if state.get("status") == "pending":
        return
    tool = tool_of(part.get("tool"), args)
    yield session.started(part.get("callID"), tool, args, at, message_id=message or None)
    if state.get("status") in ("completed", "error") and _times(part)[1] is None:
        yield from _finished(session, part, at)


def _finished(session: SessionWriter, part: dict[str, Any], at: int | None) -> Iterator[bytes]:
    state = _state(part)
    result = state.get("output")
    if state.get("status") in ("completed", "error"):
        yield from session.finished(part.get("callID"), result, at, ending=ending_of_part(part.get("tool"), state))


_INVALID = "invalid"  # Tool that answers calls which fit no tool; its arguments name the tool that was asked for


def tool_of(tool: Any, args: dict[str, Any]) -> str:
    """Name of the tool that a call asks for."""
    return (first_name(args, "tool") if tool == _INVALID else "") or name_of(tool)


def ending_of_part(tool: Any, state: dict[str, Any]) -> StatedEnding:
    """Ending of a call by its tool and the state of its part."""
    text = text_of(state.get("output"))
    if tool == _INVALID:
        return StatedEnding("rejected", failed(text, "invalid_arguments").error)
    if state.get("status") == "error":
        error = text_of(state.get("error"))
        return by_words(error, _ENDINGS) or remark_of(error) or failed(error)
    about = state.get("metadata")
    code = about.get("exit") if isinstance(about, dict) else None
    if tool == "bash" and (stopped := by_words(text[-500:], _TIMED_OUT + _ABORTED)):
        return stopped
    return failed(text, f"exit_code_{code}") if isinstance(code, int) and code else GOOD


def _state(part: dict[str, Any]) -> dict[str, Any]:
    state = part.get("state")
    return state if isinstance(state, dict) else {}


def _times(part: dict[str, Any]) -> tuple[int | None, int | None]:
    """Times of a part's beginning and end."""
    times = (_state(part) if part.get("type") == "tool" else part).get("time")
    return (time_of(times.get("start")), time_of(times.get("end"))) if isinstance(times, dict) else (None, None)


def _parts(given: Any) -> list[dict[str, Any]]:
    return [part for part in given if isinstance(part, dict)] if isinstance(given, list) else []
