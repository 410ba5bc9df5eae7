"""Claude Agent SDK: hooks of a client (docs/frameworks.md).

    options = ClaudeAgentOptions(hooks=trustfold_hooks(guard))

A call that needs approval is handled as any other: by `can_use_tool`, or by the rules of the options.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from claude_agent_sdk import HookMatcher

from ..ingest.speakers import heard
from .conversation import ConversationIndex, FrameworkCall, GuardConversation

if TYPE_CHECKING:
    from ..guard import SyncToolGuard, ToolGuard

EVENTS = (
    "UserPromptSubmit",
    "PreToolUse",
    "PostToolUse",
    "PostToolUseFailure",
    "PreCompact",
    "Stop",
    "SubagentStop",
)

TIMEOUT_S = 10.0  # Seconds after which the agent continues without an answer of the hook


def trustfold_hooks(
    guard: ToolGuard | SyncToolGuard, hooks: dict[Any, list[Any]] | None = None, *, model: str = ""
) -> dict[Any, list[Any]]:
    """Return hooks that guard the calls of an agent, report its turns, and deliver nudges to its model.

    The agent's `session_id` is the session id; each subagent has a session of its own.

    Args:
        guard: guard, blocking or asynchronous, on asyncio.
        hooks: further hooks, which are kept.
        model: name of the model, which hooks do not receive.
    """
    own = _SdkHooks(guard, model)
    made = dict(hooks or {})
    for event in EVENTS:
        made[event] = [*made.get(event, ()), HookMatcher(hooks=[own.take], timeout=TIMEOUT_S)]
    return made


class _SdkHooks:
    """Handles the agent's hook calls."""

    def __init__(self, guard: ToolGuard | SyncToolGuard, model: str) -> None:
        self._conversations = ConversationIndex(guard)
        self._model = model
        self._asked: set[str] = set()

    async def take(self, told: Any, tool_use_id: str | None, context: Any) -> dict[str, Any]:
        """Answer one hook call."""
        del context
        event = told["hook_event_name"]
        inner = f"/{told['agent_id']}" if told.get("agent_id") else ""
        conversation = self._conversations.of(self._conversations.name_for(f"{told['session_id']}{inner}"))
        conversation.session.model = self._model or conversation.session.model
        call_id = str(told.get("tool_use_id") or tool_use_id or "")
        match event:
            case "UserPromptSubmit":
                await _give_up(conversation)
                _prompted(conversation, str(told.get("prompt") or ""))
            case "PreCompact":
                conversation.compacted()
            case "PreToolUse":
                return await self._before(conversation, told, call_id)
            case "PostToolUse":
                await self._after(conversation, told, call_id, told.get("tool_response"))
            case "PostToolUseFailure":
                error = {"isError": True, "content": [{"type": "text", "text": str(told.get("error") or "")}]}
                await self._after(conversation, told, call_id, None if told.get("is_interrupt") else error)
            case _:
                await _give_up(conversation)
                conversation.said(str(told.get("last_assistant_message") or ""))
                conversation.turn_over()
                return {}
        nudges = conversation.nudges()
        return _answer(event, additionalContext=nudges) if nudges else {}

    async def _before(self, conversation: GuardConversation, told: Any, call_id: str) -> dict[str, Any]:
        name, args = told["tool_name"], told["tool_input"]
        if pause := conversation.pause():
            return _answer("PreToolUse", permissionDecision="deny", permissionDecisionReason=pause)
        if question := conversation.question(name, args):
            self._asked.add(call_id)  # begun when it has ended: a person may think about it, and may say no
            reason = f"trustfold: {question}"
            return _answer("PreToolUse", permissionDecision="ask", permissionDecisionReason=reason)
        call = FrameworkCall(conversation, name, args, call_id=call_id)
        if refusal := await call.begin():
            return _answer("PreToolUse", permissionDecision="deny", permissionDecisionReason=refusal)
        conversation.open_calls[call_id] = call
        return {}

    async def _after(self, conversation: GuardConversation, told: Any, call_id: str, output: Any) -> None:
        call = conversation.open_calls.pop(call_id, None)
        if call is None and call_id in self._asked:
            self._asked.discard(call_id)
            call = FrameworkCall(conversation, told["tool_name"], told["tool_input"], call_id=call_id, approved=True)
            await call.begin()
        if call is None:
            return
        if output is None and told["hook_event_name"] == "PostToolUseFailure":
            await call.cancel()
        else:
            await call.end(output)


def _prompted(conversation: GuardConversation, text: str) -> None:
    """Report what a prompt holds: what the user wrote, what the client passes on in the user's name, or both."""
    spoken, source = heard(text)
    if spoken or not source:
        conversation.prompted(spoken)
    if source:
        conversation.received(source, text)


async def _give_up(conversation: GuardConversation) -> None:
    """Close the calls that other hooks or people have denied."""
    while conversation.open_calls:
        _, call = conversation.open_calls.popitem()
        await call.cancel()


def _answer(event: str, **fields: str) -> dict[str, Any]:
    return {"hookSpecificOutput": {"hookEventName": event, **fields}}
