"""Claude Code: a format of hooks that other agents have adopted in parts."""

from __future__ import annotations

from typing import Any, ClassVar

from ..results import GOOD, INTERRUPTED, ending_of, failed, rejection_of, remark_of
from ..values import first_name, name_of, text_of
from .dialect import (
    CallEnded,
    CallsClosed,
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
    duration_of,
    failure,
    prompted,
    words_of,
)

BEFORE = "PreToolUse"

_SENDERS = {"": "", "user": "", "sdk": "", "schedule_wakeup": "timer", "loop_wakeup": "timer"}
"""Source of a prompt by the client's name of its sender; empty for the user, and any other is the client itself."""

_ENDS_OF_CALLS = frozenset({"PostToolUse", "PostToolUseFailure"})


class ClaudeDialect(HookDialect):
    """Claude Code. The end of a call that fails is told by itself, that of another one with those of its message."""

    agent = "claude"
    can_ask = True
    tells_steps = True
    takes_context = frozenset(
        {BEFORE, "PostToolUse", "PostToolUseFailure", "PostToolBatch", "SessionStart", "UserPromptSubmit"}
    )
    takes_pause = frozenset({"PostToolBatch"})
    takes_notice = frozenset({BEFORE, *_ENDS_OF_CALLS, "PostToolBatch", "UserPromptSubmit", "Stop"})
    ids: ClassVar[tuple[str, ...]] = ("tool_use_id",)

    def read(self, payload: Payload, event: str, tail: ReadTail) -> HookEvent | None:
        """Parse a payload; skips those of Cursor, which may run these hooks, too, and reports by its own.

        Also those of an agent without a kind: the client's own, that shortens the context.
        """
        skipped = "cursor_version" in payload or ("agent_id" in payload and payload.get("agent_type") == "")
        return None if skipped else super().read(payload, event, tail)

    def happened(self, event: str, payload: Payload, tail: ReadTail) -> tuple[Happening, ...]:
        """Return what an event reports."""
        del tail
        match event:
            case "UserPromptSubmit":
                return self.prompted(payload)
            case "PreToolUse":
                return (self.call(payload),)
            case "PostToolUse" | "PostToolUseFailure":
                return (self.ended(event, payload),)
            case "PostToolBatch":
                return self.batch(_objects(payload.get("tool_calls")))
            case "PermissionDenied":
                return (CallEnded(self.call(payload), failed(text_of(payload.get("reason")), "user_rejected")),)
            case "MessageDisplay":
                return self.said(payload)
            case "PostCompact":
                return (ContextShortened(),)
            case "SessionStart" if name_of(payload.get("source")) == "compact":
                return (ContextShortened(),)
            case "Stop" | "SubagentStop":
                over = TurnOver(text_of(payload.get("last_assistant_message")))
                return (over, SessionOver("subagent finished")) if event == "SubagentStop" else (over,)
            case "StopFailure":
                return (TurnOver(),)
            case "SessionEnd":
                return (SessionOver(name_of(payload.get("reason"))),)
        return ()

    def prompted(self, payload: Payload) -> tuple[Happening, ...]:
        """Return a prompt of the user, or of something else."""
        return prompted(text_of(payload.get("prompt")), _SENDERS.get(name_of(payload.get("source")), "client"))

    def said(self, payload: Payload) -> tuple[Happening, ...]:
        """Return a piece of a displayed message."""
        text, message = text_of(payload.get("delta")), name_of(payload.get("message_id"))
        return (ModelSpoke(text, message, final=payload.get("final") is True),)

    def batch(self, calls: list[Payload]) -> tuple[Happening, ...]:
        """Return the ends of a message's calls, those that the client itself rejects included."""
        named = [one for one in calls if first_name(one, *self.ids)]
        ends = [self.answered(one)._replace(timed=len(calls) == 1) for one in named if "tool_response" in one]
        return (*ends, CallsClosed(tuple(first_name(one, *self.ids) for one in named)))

    def answered(self, payload: Payload) -> CallEnded:
        """Return the end of a call by what the model is told of it, unless it failed: that was told before."""
        response = payload["tool_response"]
        text = words_of(response)
        rejected = rejection_of(text) or remark_of(text)
        ending = rejected or ending_of(text, failure=text.startswith("<tool_use_error>"))
        return CallEnded(self.call(payload), ending, text or response)

    def ended(self, event: str, payload: Payload) -> CallEnded:
        """Return the end of a call."""
        call = self.call(payload)
        duration = duration_of(payload.get("duration_ms"))
        if event == "PostToolUseFailure":
            text = text_of(payload.get("error"))
            return CallEnded(call, failure(text, interrupted=payload.get("is_interrupt") is True), None, duration)
        response = payload.get("tool_response")
        stopped = isinstance(response, dict) and response.get("interrupted") is True
        return CallEnded(call, INTERRUPTED if stopped else GOOD, response, duration)

    def write(self, event: str, answer: HookAnswer) -> Payload:
        """Format an answer for Claude Code."""
        written: Payload = {}
        if answer.pause:  # the person reads the reason
            written |= {"continue": False, "stopReason": answer.notice or answer.pause}
        elif answer.notice:
            written["systemMessage"] = answer.notice
        own: Payload = {}
        if answer.refusal or answer.question:
            own["permissionDecision"] = "deny" if answer.refusal else "ask"
            own["permissionDecisionReason"] = answer.refusal or answer.question
        if answer.context:
            own["additionalContext"] = answer.context
        return written | {"hookSpecificOutput": {"hookEventName": event} | own} if own else written


def _objects(value: Any) -> list[Payload]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


CLAUDE = ClaudeDialect()
