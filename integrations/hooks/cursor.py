"""Cursor, by its documentation: Claude's events in camel case, results as JSON in a text."""

from __future__ import annotations

from ...history.importers.claude_code import is_spoken
from ...history.importers.exit_codes import by_exit_code
from ...history.importers.values import first_name, name_of, structured, text_of
from .dialect import (
    Answer,
    CallEnded,
    Happening,
    Hook,
    Payload,
    Prompted,
    ReadTail,
    Said,
    SessionOver,
    TurnOver,
    call_of,
    duration_of,
    failure,
    session_of,
    words_of,
)

_IDS = ("tool_use_id",)


class CursorDialect:
    """Cursor. Whether its hook before a tool can ask is not documented, so what must be asked is refused."""

    agent = "cursor"
    can_ask = False
    takes_context = frozenset({"postToolUse"})
    takes_pause: frozenset[str] = frozenset()

    def read(self, payload: Payload, event: str, tail: ReadTail) -> Hook | None:
        """Understand a payload."""
        del tail
        session = session_of(payload, "session_id", "conversation_id")
        name = name_of(payload.get("hook_event_name")) or event
        roots = payload.get("workspace_roots")
        folder = text_of(payload.get("cwd")) or (text_of(roots[0]) if isinstance(roots, list) and roots else "")
        if not session:
            return None
        return Hook(name, session, _happened(name, payload), folder=folder, model=first_name(payload, "model"))

    def write(self, event: str, answer: Answer) -> Payload:
        """Put an answer into words of Cursor."""
        del event
        if reason := answer.refusal or answer.question:
            return {"permission": "deny", "user_message": reason, "agent_message": reason}
        return {"additional_context": answer.context} if answer.context else {}


def _happened(event: str, payload: Payload) -> tuple[Happening, ...]:
    match event:
        case "beforeSubmitPrompt":
            return (Prompted(),) if is_spoken(text_of(payload.get("prompt"))) else ()
        case "preToolUse":
            return (call_of(payload, ids=_IDS),)
        case "postToolUse" | "postToolUseFailure":
            return (_ended(event, payload),)
        case "afterAgentResponse":
            return (Said(text_of(payload.get("text"))),)
        case "stop":
            return (TurnOver(),)
        case "sessionEnd":
            return (SessionOver(name_of(payload.get("reason"))),)
    return ()


def _ended(event: str, payload: Payload) -> CallEnded:
    call, duration = call_of(payload, ids=_IDS), duration_of(payload.get("duration"))
    if event == "postToolUseFailure":
        text = text_of(payload.get("error_message"))
        stopped = payload.get("is_interrupt") is True or payload.get("failure_type") == "permission_denied"
        return CallEnded(call, failure(text, interrupted=stopped), None, duration)
    result = structured(payload.get("tool_output"))
    code = result.get("exitCode") if isinstance(result, dict) else None
    whole = code if isinstance(code, int) and not isinstance(code, bool) else None
    return CallEnded(call, by_exit_code(words_of(result), whole), result, duration)


CURSOR = CursorDialect()
