"""Claude Code and Qwen Code: HTTP hooks of one format, partly adopted by other agents."""

from __future__ import annotations

from typing import Any, ClassVar

from ..results import GOOD, INTERRUPTED, Ending, ending_of, failed, rejection_of, remark_of
from ..values import first_name, name_of, text_of
from .dialect import (
    Answer,
    CallEnded,
    CallsClosed,
    Compacted,
    Dialect,
    Happening,
    Hook,
    Payload,
    ReadTail,
    Said,
    SessionOver,
    TurnOver,
    duration_of,
    failure,
    prompted,
    without_process,
    words_of,
)

BEFORE = "PreToolUse"

_SENDERS = {"": "", "user": "", "sdk": "", "schedule_wakeup": "timer"}
"""Source of a prompt by the client's name of its sender; empty for the user, and any other is the client itself."""

_ENDS_OF_CALLS = frozenset({"PostToolUse", "PostToolUseFailure"})


class ClaudeDialect(Dialect):
    """Claude Code."""

    agent = "claude"
    can_ask = True
    tells_steps = True
    takes_context = frozenset(
        {BEFORE, "PostToolUse", "PostToolUseFailure", "PostToolBatch", "SessionStart", "UserPromptSubmit"}
    )
    takes_pause = frozenset({"PostToolBatch"})
    takes_notice = frozenset({BEFORE, *_ENDS_OF_CALLS, "PostToolBatch", "UserPromptSubmit", "Stop"})
    ids: ClassVar[tuple[str, ...]] = ("tool_use_id",)

    def read(self, payload: Payload, event: str, tail: ReadTail) -> Hook | None:
        """Parse a payload; skips those of Cursor, which may run these hooks, too, and reports by its own."""
        return None if "cursor_version" in payload else super().read(payload, event, tail)

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
                return (Compacted(),)
            case "SessionStart" if name_of(payload.get("source")) == "compact":
                return (Compacted(),)
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
        return (Said(text, message, final=payload.get("final") is True),)

    def batch(self, calls: list[Payload]) -> tuple[Happening, ...]:
        """Return the ends of a message's calls: only this hook tells of calls that the client itself rejects."""
        ends = [
            CallEnded(self.call(one), _ending_by_text(text), text)
            for one in calls
            if first_name(one, *self.ids) and (text := words_of(one.get("tool_response")))
        ]
        ids = (first_name(one, *self.ids) for one in calls)
        return (*ends, CallsClosed(tuple(one for one in ids if one)))

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

    def write(self, event: str, answer: Answer) -> Payload:
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


class QwenDialect(ClaudeDialect):
    """Qwen Code: another id of calls, cumulative texts, and its own prompt after each batch of calls."""

    agent = "qwen"
    takes_context = frozenset({"PostToolUse", "PostToolUseFailure", "SessionStart", "UserPromptSubmit"})
    takes_pause = frozenset()
    takes_notice = frozenset({*_ENDS_OF_CALLS, "UserPromptSubmit", "Stop"})
    ids = ("tool_call_id", "tool_use_id")

    def prompted(self, payload: Payload) -> tuple[Happening, ...]:
        """Return a prompt; only a person's has `submitted_prompt`."""
        return prompted(text_of(payload.get("submitted_prompt")))

    def said(self, payload: Payload) -> tuple[Happening, ...]:
        """Return the whole message so far; only the last one counts."""
        return (Said(text_of(payload.get("displayed_text"))),) if payload.get("is_final") is True else ()

    def ended(self, event: str, payload: Payload) -> CallEnded:
        """Return the end of a call, which may report an error within a success."""
        found = super().ended(event, payload)
        response = payload.get("tool_response")
        if found.ending is GOOD and isinstance(response, dict) and response.get("error"):
            return found._replace(ending=failed(words_of(response)))
        return found._replace(result=without_process(found.result))


def _ending_by_text(text: str) -> Ending:
    return rejection_of(text) or remark_of(text) or ending_of(text)


def _objects(value: Any) -> list[Payload]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


CLAUDE = ClaudeDialect()
QWEN = QwenDialect()
