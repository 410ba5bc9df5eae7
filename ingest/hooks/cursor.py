"""Cursor, by its documentation and the runtime in its SDK: Claude's events in camel case, results as JSON in a text."""

from __future__ import annotations

from ..results import INTERRUPTED, by_exit_code
from ..values import name_of, structured, text_of
from .dialect import (
    CallEnded,
    ContextShortened,
    Happening,
    HookAnswer,
    HookDialect,
    HookEvent,
    ModelSpoke,
    Payload,
    ReadTail,
    SessionOver,
    TurnOver,
    code_of,
    duration_of,
    failure,
    prompted,
    words_of,
)

_NOT_MADE = ("rejected", "permissionDenied")
"""Markers in the result of an MCP call that nobody approved."""


class CursorDialect(HookDialect):
    """Cursor. Its hook before a tool cannot ask (`ask` lets the call pass), so calls that need approval are refused."""

    agent = "cursor"
    takes_context = frozenset({"preToolUse", "postToolUse", "postToolUseFailure"})
    sessions = ("session_id", "conversation_id")
    ids = ("tool_use_id",)

    def read(self, payload: Payload, event: str, tail: ReadTail) -> HookEvent | None:
        """Parse a payload; a call may run in another folder than that of the workspace."""
        hook = super().read(payload, event, tail)
        roots = payload.get("workspace_roots")
        if hook is None or hook.folder or not (isinstance(roots, list) and roots):
            return hook
        return hook._replace(folder=text_of(roots[0]))

    def happened(self, event: str, payload: Payload, tail: ReadTail) -> tuple[Happening, ...]:
        """Return what an event reports."""
        del tail
        match event:
            case "beforeSubmitPrompt":
                return prompted(text_of(payload.get("prompt")))
            case "preToolUse":
                return (self.call(payload),)
            case "postToolUse" | "postToolUseFailure":
                return (self._ended(event, payload),)
            case "afterAgentResponse":
                return (ModelSpoke(text_of(payload.get("text"))),)
            case "preCompact":
                return (ContextShortened(),)
            case "stop":
                return (TurnOver(),)
            case "sessionEnd":
                return (SessionOver(name_of(payload.get("reason"))),)
        return ()

    def write(self, event: str, answer: HookAnswer) -> Payload:
        """Format an answer for Cursor."""
        del event
        if reason := answer.refusal or answer.question:
            return {"permission": "deny", "user_message": reason, "agent_message": reason}
        return {"additional_context": answer.context} if answer.context else {}

    def _ended(self, event: str, payload: Payload) -> CallEnded:
        call, duration = self.call(payload), duration_of(payload.get("duration"))
        if event == "postToolUseFailure":
            text = text_of(payload.get("error_message"))
            stopped = payload.get("is_interrupt") is True or payload.get("failure_type") == "permission_denied"
            return CallEnded(call, failure(text, interrupted=stopped), None, duration)
        result = structured(payload.get("tool_output"))
        told = result if isinstance(result, dict) else {}
        if any(told.get(name) is True for name in _NOT_MADE):
            return CallEnded(call, INTERRUPTED, None, duration)
        return CallEnded(call, by_exit_code(words_of(result), code_of(told.get("exitCode"))), result, duration)


CURSOR = CursorDialect()
