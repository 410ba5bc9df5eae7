"""Codex: a subset of Claude's format. The session's log, the rollout, knows what the hooks leave out.

A hook after a call does not say whether a command failed, and there is none after `apply_patch`, nor after a call that
a person or the client refused. The rollout's last lines, those of the turn, tell how those calls ended, and which calls
are of one message of the model.
"""

from __future__ import annotations

from typing import Any

from ...projections.calls.classify import TOOL_ERROR
from ..agents.codex import CALLS, NO_END, OUTPUTS, CommandEnd, end_shown, ending_of_text, output_ended
from ..reading import parse
from ..results import GOOD, StatedEnding, failed
from ..values import first_name, text_of
from .claude import BEFORE, ClaudeDialect
from .dialect import CallBegan, CallEnded, Happening, HookAnswer, Payload, ReadTail, words_of

MAX_LINES = 400
"""Number of last lines of a rollout that are read."""

_TOLD = (b'"function_call', b'"custom_tool_call', b'_call_output"', b'"local_shell_call', b'"item_completed"')
"""Marks of the lines about calls."""


class CodexDialect(ClaudeDialect):
    """Codex CLI. It cannot ask: a question would be an error that lets the call pass."""

    agent = "codex"
    can_ask = False
    tells_steps = False
    takes_context = frozenset({BEFORE, "PostToolUse", "SessionStart", "UserPromptSubmit"})
    takes_pause = frozenset()
    takes_notice = frozenset({BEFORE, "PostToolUse", "UserPromptSubmit", "Stop"})

    def happened(self, event: str, payload: Payload, tail: ReadTail) -> tuple[Happening, ...]:
        """Return what an event reports, after the ends of earlier calls that only the rollout tells."""
        if event not in {BEFORE, "PostToolUse", "UserPromptSubmit", "Stop", "SubagentStop"}:
            return super().happened(event, payload, tail)
        turn = _turn_in(tail(text_of(payload.get("transcript_path"))))
        call = self.call(payload)
        if event == BEFORE:
            told: tuple[Happening, ...] = (call._replace(message_id=turn.message_of(call.call_id)),)
        elif event == "PostToolUse":
            response, end = payload.get("tool_response"), turn.shown.get(call.call_id, NO_END)
            told = (CallEnded(call, _ending(response, end), response, end.duration_ms),)
        else:
            told = super().happened(event, payload, tail)
        return (*turn.ends(), *told)

    def write(self, event: str, answer: HookAnswer) -> Payload:
        """Format an answer for Codex, which accepts a refusal only by itself."""
        if answer.refusal:
            answer = HookAnswer(refusal=answer.refusal.rstrip("."))  # Codex appends the command: `. Command: …`
        return super().write(event, answer)


class _RolloutTurn:
    """What the rollout tells of the calls of the turn, oldest first.

    Attributes:
        items: calls and their outputs.
        shown: ends of commands by the id of the call.
    """

    def __init__(self) -> None:
        self.items: list[Payload] = []
        self.shown: dict[str, CommandEnd] = {}

    def message_of(self, call_id: str) -> str:
        """Return an id of the message that makes a call: the first of its calls; empty if unknown."""
        first = ""
        for item in self.items:
            name = first_name(item, "call_id", "id")
            first = "" if item["type"] in OUTPUTS else first or name
            if name == call_id:
                return first
        return ""

    def ends(self) -> list[CallEnded]:
        """Return the ends of calls by what the model was told of them."""
        found = []
        for item in self.items:
            if item["type"] in OUTPUTS:
                call_id = first_name(item, "call_id", "id")
                end = self.shown.get(call_id, NO_END)
                result, ending, duration = output_ended(item.get("output", item.get("tools")), end)
                found.append(CallEnded(CallBegan("unknown", {}, call_id), ending, result, duration, looked_up=True))
        return found


def _turn_in(log: bytes) -> _RolloutTurn:
    """Return what the last lines of a rollout tell of the turn."""
    turn = _RolloutTurn()
    for line in reversed(log.splitlines()[-MAX_LINES:]):
        if b'"task_started"' in line:
            break
        if not any(mark in line for mark in _TOLD):
            continue
        try:
            payload = parse(line)["payload"]
            kind, item = str(payload["type"]), payload.get("item")
        except (ValueError, KeyError, TypeError, AttributeError):
            continue
        if kind in CALLS or kind in OUTPUTS:
            turn.items.insert(0, payload)
        elif isinstance(item, dict) and item.get("type") == "CommandExecution":
            turn.shown.setdefault(first_name(item, "id"), end_shown(item))
    return turn


def _ending(response: Any, end: CommandEnd) -> StatedEnding:
    if isinstance(response, dict):
        return failed(words_of(response), TOOL_ERROR) if response.get("isError") is True else GOOD
    return ending_of_text(words_of(response), end)


CODEX = CodexDialect()
