"""Gemini CLI: no call ids, and exit codes in the text for the model."""

from __future__ import annotations

from ..results import EXIT_CODE, StatedEnding, by_exit_code, code_in, without_hook_context
from ..values import name_of, text_of
from .dialect import (
    CallEnded,
    ContextShortened,
    Happening,
    HookAnswer,
    HookDialect,
    Payload,
    ReadTail,
    SessionOver,
    TurnOver,
    failure,
    prompted,
    without_process,
    words_of,
)


class GeminiDialect(HookDialect):
    """Gemini CLI. A question without a terminal restarts the whole run, so none is asked."""

    agent = "gemini"
    takes_context = frozenset({"AfterTool", "BeforeAgent", "SessionStart"})
    takes_notice = frozenset({"AfterTool", "AfterAgent"})

    def happened(self, event: str, payload: Payload, tail: ReadTail) -> tuple[Happening, ...]:
        """Return what an event reports."""
        del tail
        match event:
            case "BeforeAgent":
                return prompted(without_hook_context(text_of(payload.get("prompt"))))
            case "BeforeTool":
                return (self.call(payload),)
            case "AfterTool":
                response = payload.get("tool_response")
                return (CallEnded(self.call(payload), _ending(response), without_process(response)),)
            case "PreCompress" if name_of(payload.get("trigger")) == "manual":  # `auto` comes before every request
                return (ContextShortened(),)
            case "AfterAgent":
                return (TurnOver(text_of(payload.get("prompt_response"))),)
            case "SessionEnd":
                return (SessionOver(name_of(payload.get("reason"))),)
        return ()

    def carries(self, event: str, payload: Payload) -> bool:
        """Whether the answer brings a text; Gemini CLI drops it if the tool itself failed."""
        response = payload.get("tool_response")
        return super().carries(event, payload) and not (isinstance(response, dict) and response.get("error"))

    def write(self, event: str, answer: HookAnswer) -> Payload:
        """Format an answer for Gemini CLI."""
        if reason := answer.refusal or answer.question:
            return {"decision": "deny", "reason": reason}
        written: Payload = {}
        if answer.notice:
            written["systemMessage"] = answer.notice
        if answer.context:
            written["hookSpecificOutput"] = {"hookEventName": event, "additionalContext": answer.context}
        return written


def _ending(response: object) -> StatedEnding:
    text = words_of(response)
    code = code_in(EXIT_CODE, text)
    if isinstance(response, dict) and response.get("error") and not code:
        return failure(words_of({"error": response["error"]}) or text)
    return by_exit_code(text, code)


GEMINI = GeminiDialect()
