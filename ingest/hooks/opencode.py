"""OpenCode: runs trustfold's plugin (`opencode_plugin.js`), which forwards the arguments of its hooks."""

from __future__ import annotations

from typing import Any

from ..agents.opencode import ending_of_part, tool_of
from ..values import arguments_of, first_name, name_of, text_of
from .dialect import (
    CallBegan,
    CallEnded,
    ContextShortened,
    Happening,
    HookAnswer,
    HookDialect,
    HookEvent,
    InputReported,
    ModelSpoke,
    Payload,
    PromptSent,
    ReadTail,
    SessionOver,
    TurnOver,
    prompted,
    service_of,
)


class OpenCodeDialect(HookDialect):
    """OpenCode. Its approval hook is never called, so calls that need approval are refused."""

    agent = "opencode"
    takes_context = frozenset({"tool.execute.after", "event:message.part.updated"})
    takes_pause = frozenset({"event:message.part.updated"})
    takes_notice = frozenset({"tool.execute.after", "event:message.part.updated", "event:session.idle"})

    def read(self, payload: Payload, event: str, tail: ReadTail) -> HookEvent | None:
        """Parse the plugin's payload: the hook's name, its `input`, its `output`, and the session that began it."""
        name = name_of(payload.get("hook_event_name")) or event
        given = _object(payload.get("input"))
        session = first_name(given, "sessionID") or first_name(_object(given.get("info")), "id")
        if not session:
            return None
        folder, model = text_of(payload.get("directory")), first_name(_object(given.get("model")), "modelID", "id")
        happened, carries = self.happened(name, payload, tail), self.carries(name, payload)
        parent = first_name(payload, "parent")
        subagent = session if parent else ""
        return HookEvent(name, parent or session, happened, subagent, folder=folder, model=model, carries=carries)

    def happened(self, event: str, payload: Payload, tail: ReadTail) -> tuple[Happening, ...]:
        """Return what an event reports."""
        del tail
        given, output = _object(payload.get("input")), _object(payload.get("output"))
        inner = bool(first_name(payload, "parent"))
        match event:
            case "chat.message":
                return (InputReported("agent"),) if inner else prompted(text_of(output.get("text"))) or (PromptSent(),)
            case "tool.execute.before":
                return (_call(given, output.get("args")),)
            case "tool.execute.after":
                ending = ending_of_part(given.get("tool"), output)
                return (CallEnded(_call(given, given.get("args")), ending, text_of(output.get("output"))),)
            case "event:message.part.updated":
                return _failed_part(_object(given.get("part")))
            case "text.complete":
                return (ModelSpoke(text_of(output.get("text"))),)
            case "event:session.compacted":
                return (ContextShortened(),)
            case "event:session.idle":
                return (TurnOver(), SessionOver("subagent finished")) if inner else (TurnOver(),)
            case "event:session.deleted":
                return (SessionOver("deleted"),)
        return ()

    def write(self, event: str, answer: HookAnswer) -> Payload:
        """Format an answer for the plugin."""
        del event
        named = answer._asdict() | {"refusal": answer.refusal or answer.question}
        return {name: text for name, text in named.items() if text and name != "question"}


def _failed_part(part: Payload) -> tuple[Happening, ...]:
    """Return the end of a call that failed; a tool that throws is reported only in a part of the message."""
    state = _object(part.get("state"))
    if part.get("type") != "tool" or state.get("status") != "error":
        return ()
    return (CallEnded(_call(part, state.get("input")), ending_of_part(part.get("tool"), state)),)


def _call(given: Payload, args: Any) -> CallBegan:
    known = arguments_of(args)
    tool = tool_of(given.get("tool"), known) or "unknown"
    return CallBegan(tool, known, first_name(given, "callID"), service_of(tool))


def _object(value: Any) -> Payload:
    return value if isinstance(value, dict) else {}


OPENCODE = OpenCodeDialect()
