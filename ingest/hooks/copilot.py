"""GitHub Copilot CLI: no call ids, no event name in the payload, and exit codes after the output."""

from __future__ import annotations

import re

from ..agents.copilot import LAST_LINE, REPORTS, ending_by_kind
from ..results import INTERRUPTED, StatedEnding, by_exit_code, code_in
from ..values import first_name, name_of, text_of
from .dialect import (
    CallEnded,
    ContextShortened,
    Happening,
    HookAnswer,
    HookDialect,
    HookEvent,
    InputReported,
    Payload,
    ReadTail,
    SessionOver,
    TurnOver,
    failure,
    prompted,
    words_of,
)

_TRAILER = re.compile(r"\n?<(?:shellId: \d+ |exited )[^<>\n]*>\s*\Z")
"""Counter of commands; masked, as it would make every result different."""

_NOT_MADE = frozenset({"rejected", "denied"})


class CopilotDialect(HookDialect):
    """Copilot CLI, with its own event names (`preToolUse`); with Claude Code's it drops the context after a call."""

    agent = "copilot"
    can_ask = True
    takes_context = frozenset({"preToolUse", "postToolUse", "sessionStart", "userPromptSubmitted"})
    sessions = ("sessionId",)
    tool, args = "toolName", "toolArgs"

    def read(self, payload: Payload, event: str, tail: ReadTail) -> HookEvent | None:
        """Parse a payload; an agent that another one has started names that one, and has a session id of its own."""
        hook = super().read(payload, event, tail)
        parent, agent = first_name(payload, "parentAgentId"), first_name(payload, "agentId")
        return hook._replace(session=parent, subagent=agent) if hook and parent and agent else hook

    def happened(self, event: str, payload: Payload, tail: ReadTail) -> tuple[Happening, ...]:
        """Return what an event reports; its name comes with the request."""
        del tail
        inner = bool(first_name(payload, "parentAgentId"))
        match event:
            case "userPromptSubmitted":
                return prompted(text_of(payload.get("prompt")), "agent" if inner else "")
            case "notification" | "Notification" if name_of(payload.get("notification_type")) in REPORTS:
                return (InputReported("report"),)
            case "preToolUse":
                return (self.call(payload),)
            case "postToolUse" | "postToolUseFailure":
                result = payload.get("toolResult")
                text = words_of(result) or words_of({"error": payload.get("error")})
                plain = _TRAILER.sub("", text)
                ending = _ending(event, result, plain, code_in(LAST_LINE, text))
                return (CallEnded(self.call(payload), ending, plain or result),)
            case "preCompact":
                return (ContextShortened(),)
            case "agentStop":
                return (TurnOver(), SessionOver("subagent finished")) if inner else (TurnOver(),)
            case "sessionEnd":
                return (SessionOver(name_of(payload.get("reason"))),)
        return ()

    def write(self, event: str, answer: HookAnswer) -> Payload:
        """Format an answer for Copilot."""
        del event
        written: Payload = {}
        if answer.refusal or answer.question:
            written["permissionDecision"] = "deny" if answer.refusal else "ask"
            written["permissionDecisionReason"] = answer.refusal or answer.question
        if answer.context:
            written["additionalContext"] = answer.context
        return written


def _ending(event: str, result: object, text: str, code: int | None) -> StatedEnding:
    kind = name_of(result.get("resultType")) if isinstance(result, dict) else ""
    if kind in _NOT_MADE:
        return INTERRUPTED
    if not code and (event == "postToolUseFailure" or kind in {"failure", "timeout"}):
        return ending_by_kind(text, kind) or failure(text)
    return by_exit_code(text, code)


COPILOT = CopilotDialect()
