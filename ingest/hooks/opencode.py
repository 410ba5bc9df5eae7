"""OpenCode: runs trustfold's plugin (`opencode_plugin.js`), which forwards the arguments of its hooks."""

from __future__ import annotations

from typing import Any

from ..results import by_exit_code
from ..values import arguments_of, first_name, name_of, text_of
from .dialect import (
    Answer,
    CallBegan,
    CallEnded,
    Compacted,
    Dialect,
    Happening,
    Hook,
    Payload,
    Prompted,
    ReadTail,
    Said,
    SessionOver,
    TurnOver,
    code_of,
    failure,
    prompted,
    service_of,
)


class OpenCodeDialect(Dialect):
    """OpenCode. Its approval hook is never called, so calls that need approval are refused."""

    agent = "opencode"
    takes_context = frozenset({"tool.execute.after", "event:message.part.updated"})
    takes_pause = frozenset({"event:message.part.updated"})
    takes_notice = frozenset({"tool.execute.after", "event:message.part.updated", "event:session.idle"})

    def read(self, payload: Payload, event: str, tail: ReadTail) -> Hook | None:
        """Parse the plugin's payload: the hook's name, its `input` and its `output`."""
        name = name_of(payload.get("hook_event_name")) or event
        given = _object(payload.get("input"))
        session = first_name(given, "sessionID")
        if not session:
            return None
        folder, model = text_of(payload.get("directory")), first_name(_object(given.get("model")), "modelID", "id")
        happened, carries = self.happened(name, payload, tail), self.carries(name, payload)
        return Hook(name, session, happened, folder=folder, model=model, carries=carries)

    def happened(self, event: str, payload: Payload, tail: ReadTail) -> tuple[Happening, ...]:
        """Return what an event reports."""
        del tail
        given, output = _object(payload.get("input")), _object(payload.get("output"))
        match event:
            case "chat.message":
                return prompted(text_of(output.get("text"))) or (Prompted(),)
            case "tool.execute.before":
                return (_call(given, output.get("args")),)
            case "tool.execute.after":
                text = text_of(output.get("output"))
                ending = by_exit_code(text, code_of(_object(output.get("metadata")).get("exit")))
                return (CallEnded(_call(given, given.get("args")), ending, text),)
            case "event:message.part.updated":
                return _failed_part(_object(given.get("part")))
            case "text.complete":
                return (Said(text_of(output.get("text"))),)
            case "event:session.compacted":
                return (Compacted(),)
            case "event:session.idle":
                return (TurnOver(),)
            case "event:session.deleted":
                return (SessionOver("deleted"),)
        return ()

    def write(self, event: str, answer: Answer) -> Payload:
        """Format an answer for the plugin."""
        del event
        named = answer._asdict() | {"refusal": answer.refusal or answer.question}
        return {name: text for name, text in named.items() if text and name != "question"}


def _failed_part(part: Payload) -> tuple[Happening, ...]:
    """Return the end of a call that failed; a tool that throws is reported only in a part of the message."""
    state = _object(part.get("state"))
    if part.get("type") != "tool" or state.get("status") != "error":
        return ()
    return (CallEnded(_call(part, state.get("input")), failure(text_of(state.get("error")))),)


def _call(given: Payload, args: Any) -> CallBegan:
    tool = name_of(given.get("tool")) or "unknown"
    return CallBegan(tool, arguments_of(args), first_name(given, "callID"), service_of(tool))


def _object(value: Any) -> Payload:
    return value if isinstance(value, dict) else {}


OPENCODE = OpenCodeDialect()
