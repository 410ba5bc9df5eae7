"""Qwen Code: Claude's events and Gemini's results. The session's log tells prompts, texts and the message of a call.

Hooks for them would be many: one for each piece of a text starts two processes, and that for prompts comes again after
each batch of calls. A batch is not a message of the model: calls that run one after the other are batches of their own.
"""

from __future__ import annotations

from typing import NamedTuple

from ..agents.gemini import result_of
from ..agents.qwen import ending_in_batch, source_of
from ..reading import parse
from ..session_log import heard_in, parts_of
from ..values import first_name, name_of, text_of
from .claude import BEFORE, ClaudeDialect
from .dialect import CallEnded, Happening, InputReported, ModelSpoke, Payload, PromptSent, ReadTail


class QwenDialect(ClaudeDialect):
    """Qwen Code. What a message answers is told with the first of its calls, or at the end of the turn."""

    agent = "qwen"
    tells_steps = False
    takes_context = frozenset({"PostToolBatch", "SessionStart"})
    takes_pause = frozenset()
    takes_notice = frozenset({"PostToolBatch", "Stop"})
    ids = ("tool_call_id", "tool_use_id")

    def happened(self, event: str, payload: Payload, tail: ReadTail) -> tuple[Happening, ...]:
        """Return what an event reports; the first call of a message comes with its text, and with what it answers."""
        if event == "UserPromptSubmit":  # connections of earlier versions send it
            return ()
        if event not in {BEFORE, "Stop", "StopFailure"} or payload.get("stop_hook_active") is True:
            return super().happened(event, payload, tail)
        if first_name(payload, "agent_id"):
            return super().happened(event, payload, tail)
        call = self.call(payload) if event == BEFORE else None
        message = _message_in(tail(text_of(payload.get("transcript_path"))), call.call_id if call else "")
        heard = _numbered(message, name_of(payload.get("prompt_id")))
        if call is None:
            return (*heard, *super().happened(event, payload, tail))
        first = message.first in {"", call.call_id}
        told = (*heard, *((ModelSpoke(message.text),) if message.text else ())) if first else ()
        return (*told, call._replace(message_id=message.name))

    def answered(self, payload: Payload) -> CallEnded:
        """Return the end of a call, with its status."""
        response = payload["tool_response"]
        told = response if isinstance(response, dict) else {}
        result = result_of(told.get("response_parts"))
        ending = ending_in_batch(payload.get("status"), told.get("execution_status"), result)
        return CallEnded(self.call(payload), ending, result)


class _ModelMessage(NamedTuple):
    """Message of the model; all but `heard` is empty while the log does not hold it.

    Attributes:
        heard: what it answers, apart from results of calls.
        name: its id.
        text: its text.
        first: id of its first call.
    """

    heard: tuple[Happening, ...] = ()
    name: str = ""
    text: str = ""
    first: str = ""


def _message_in(log: bytes, call_id: str) -> _ModelMessage:
    """Return the message that makes a call; without an id, the last one of the log, if it makes none."""
    found: _ModelMessage | None = None
    at_end: list[Happening] | None = None
    heard: list[Happening] = []
    for line in reversed(log.splitlines()):
        try:
            record = parse(line)
            kind, parts = record["type"], parts_of(record["message"]["parts"])
        except (ValueError, KeyError, TypeError):
            continue
        if kind == "assistant":
            calls = [name_of(part["functionCall"].get("id")) for part in parts if _is_call(part)]
            if found is not None:
                break
            if call_id in calls if call_id else not (calls or heard):
                texts = [part for part in parts if "text" in part and part.get("thought") is not True]
                found = _ModelMessage((), first_name(record, "uuid"), text_of(texts), next(iter(calls), ""))
            else:
                at_end = heard if at_end is None else at_end
            if not (call_id or found):
                break
            heard = []
        elif kind == "user":
            source = source_of(record)
            heard[:0] = (InputReported(source),) if source else _said_by(parts)
        elif kind == "tool_result" and found is not None:
            break
    heard = heard if found or at_end is None else at_end
    return (found or _ModelMessage())._replace(heard=tuple(heard))


def _numbered(message: _ModelMessage, prompt_id: str) -> tuple[Happening, ...]:
    """Return what a message answers, the last prompt with its id.

    Qwen Code may write its log late. Until the message is there, an id that is new tells that somebody prompted.
    """
    is_late, heard = not message.name, list(message.heard)
    for place in reversed(range(len(heard))):
        if isinstance(prompted := heard[place], PromptSent):
            heard[place] = prompted._replace(prompt_id=prompt_id, again=is_late)
            return tuple(heard)
    return (*heard, PromptSent(prompt_id=prompt_id, again=True)) if prompt_id and is_late else tuple(heard)


def _said_by(parts: list[Payload]) -> tuple[Happening, ...]:
    """Return what a prompt holds: what the user said, or what the client did in the user's name."""
    words, source = heard_in(parts)
    return (PromptSent(words),) if words is not None else (InputReported(source),) if source else ()


def _is_call(part: Payload) -> bool:
    return isinstance(part.get("functionCall"), dict)


QWEN = QwenDialect()
