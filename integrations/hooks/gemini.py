"""Gemini CLI: calls have no id, and how a command ended stands in the text for the model."""

from __future__ import annotations

import re

from ...history.importers.claude_code import is_spoken
from ...history.importers.exit_codes import EXIT_CODE, by_exit_code, code_in
from ...history.importers.results import Ending
from ...history.importers.values import name_of, text_of
from .dialect import (
    Answer,
    CallEnded,
    Happening,
    Hook,
    Payload,
    Prompted,
    ReadTail,
    SessionOver,
    TurnOver,
    call_of,
    failure,
    session_of,
    without_process,
    words_of,
)

_HOOK_CONTEXT = re.compile(r"<hook_context>.*?</hook_context>", re.DOTALL)


class GeminiDialect:
    """Gemini CLI. A question without a person at the terminal makes it begin the whole run anew, so none is asked."""

    agent = "gemini"
    can_ask = False
    takes_context = frozenset({"AfterTool", "BeforeAgent", "SessionStart"})
    takes_pause = frozenset({"AfterTool"})

    def read(self, payload: Payload, event: str, tail: ReadTail) -> Hook | None:
        """Understand a payload."""
        del tail
        session = session_of(payload)
        name = name_of(payload.get("hook_event_name")) or event
        return Hook(name, session, _happened(name, payload), folder=text_of(payload.get("cwd"))) if session else None

    def write(self, event: str, answer: Answer) -> Payload:
        """Put an answer into words of Gemini CLI."""
        if reason := answer.refusal or answer.question:
            return {"decision": "deny", "reason": reason}
        written: Payload = {"continue": False, "stopReason": answer.pause} if answer.pause else {}
        if answer.context:
            written["hookSpecificOutput"] = {"hookEventName": event, "additionalContext": answer.context}
        return written


def _happened(event: str, payload: Payload) -> tuple[Happening, ...]:
    match event:
        case "BeforeAgent":
            return (Prompted(),) if is_spoken(_HOOK_CONTEXT.sub("", text_of(payload.get("prompt")))) else ()
        case "BeforeTool":
            return (call_of(payload),)
        case "AfterTool":
            response = payload.get("tool_response")
            return (CallEnded(call_of(payload), _ending(response), without_process(response)),)
        case "AfterAgent":
            return (TurnOver(text_of(payload.get("prompt_response"))),)
        case "SessionEnd":
            return (SessionOver(name_of(payload.get("reason"))),)
    return ()


def _ending(response: object) -> Ending:
    text = words_of(response)
    code = code_in(EXIT_CODE, text)
    if isinstance(response, dict) and response.get("error") and not code:
        return failure(words_of({"error": response["error"]}) or text)
    return by_exit_code(text, code)


GEMINI = GeminiDialect()
