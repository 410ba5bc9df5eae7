"""Qwen Code: Claude's events and Gemini's results. The session's own log tells the texts and the message of a call.

A hook for each piece of a text would start two processes, and a batch of its hooks is not a message of the model: calls
of one message that run one after the other are batches of their own.
"""

from __future__ import annotations

import orjson

from ..agents.gemini import result_of
from ..agents.qwen import ending_in_batch
from ..values import name_of, text_of
from .claude import BEFORE, ClaudeDialect
from .dialect import CallEnded, Happening, Payload, ReadTail, Said, prompted


class QwenDialect(ClaudeDialect):
    """Qwen Code, with its own prompt after each batch of calls."""

    agent = "qwen"
    tells_steps = False
    takes_context = frozenset({"PostToolBatch", "SessionStart", "UserPromptSubmit"})
    takes_pause = frozenset()
    takes_notice = frozenset({"PostToolBatch", "UserPromptSubmit", "Stop"})
    ids = ("tool_call_id", "tool_use_id")

    def happened(self, event: str, payload: Payload, tail: ReadTail) -> tuple[Happening, ...]:
        """Return what an event reports; the first call of a message comes with its text."""
        if event != BEFORE:
            return super().happened(event, payload, tail)
        call = self.call(payload)
        message = _message_of(call.call_id, tail(text_of(payload.get("transcript_path"))))
        texts = (Said(text),) if (text := text_of(message.get("text"))) and message["first"] == call.call_id else ()
        return (*texts, call._replace(message_id=name_of(message.get("id"))))

    def prompted(self, payload: Payload) -> tuple[Happening, ...]:
        """Return a prompt; only a person's has `submitted_prompt`."""
        return prompted(text_of(payload.get("submitted_prompt")))

    def answered(self, payload: Payload) -> CallEnded:
        """Return the end of a call, with its status."""
        response = payload["tool_response"]
        told = response if isinstance(response, dict) else {}
        result = result_of(told.get("response_parts"))
        ending = ending_in_batch(payload.get("status"), told.get("execution_status"), result)
        return CallEnded(self.call(payload), ending, result)


def _message_of(call_id: str, log: bytes) -> Payload:
    """Return id, text and first call of the message that makes a call; empty if the log does not tell."""
    for line in reversed(log.splitlines()):
        if b'"functionCall"' not in line or call_id.encode() not in line:
            continue
        try:
            record = orjson.loads(line)
            parts = record["message"]["parts"]
            calls = [name_of(part["functionCall"].get("id")) for part in parts if "functionCall" in part]
        except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError):
            continue
        if call_id in calls:
            texts = [part for part in parts if "text" in part and part.get("thought") is not True]
            return {"id": record.get("uuid"), "text": text_of(texts), "first": calls[0]}
    return {}


QWEN = QwenDialect()
