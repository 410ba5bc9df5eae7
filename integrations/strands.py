"""Strands: hooks of an agent (docs/frameworks.md).

    agent = Agent(model=model, tools=[look], hooks=[TrustfoldHookProvider(guard)])

A call that needs approval interrupts the agent; the answer `approve` allows it, any other answer declines it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import orjson
from strands.hooks import (
    AfterInvocationEvent,
    AfterToolCallEvent,
    BeforeModelCallEvent,
    BeforeToolCallEvent,
    HookProvider,
    HookRegistry,
    MessageAddedEvent,
)

from .conversation import ConversationIndex, FrameworkCall, GuardConversation

if TYPE_CHECKING:
    from ..guard import SyncToolGuard, ToolGuard

INTERRUPT = "trustfold"  # Name of the interrupts


class TrustfoldHookProvider(HookProvider):
    """Guards the tool calls of an agent, reports texts and turns, and adds nudges to the next request.

    `agent.session_id` is the session id; for an agent with an id of its own that id is appended.
    """

    def __init__(self, guard: ToolGuard | SyncToolGuard) -> None:
        """Use a guard, blocking or asynchronous; agents may share the hooks."""
        self._conversations = ConversationIndex(guard)

    def register_hooks(self, registry: HookRegistry, **_: Any) -> None:
        """Register the hooks with the agent."""
        registry.add_callback(MessageAddedEvent, self._on_message)
        registry.add_callback(BeforeModelCallEvent, self._before_model)
        registry.add_callback(BeforeToolCallEvent, self._before_tool)
        registry.add_callback(AfterToolCallEvent, self._after_tool)
        registry.add_callback(AfterInvocationEvent, self._after_invocation)

    def _on_message(self, event: MessageAddedEvent) -> None:
        """Report a message of the user or the model."""
        content = event.message["content"]
        text = "".join(block["text"] for block in content if "text" in block)
        if event.message["role"] == "assistant":
            model = getattr(event.agent.model, "config", None)
            name = model.get("model_id") if isinstance(model, Mapping) else None
            calls = [block["toolUse"]["toolUseId"] for block in content if "toolUse" in block]
            self._conversation(event.agent).said(text, model=str(name or ""), calls=calls)
        elif text and not any("toolResult" in block for block in content):
            self._conversation(event.agent).prompted(text)

    def _before_model(self, event: BeforeModelCallEvent) -> None:
        """Report a shortened history, and add pending nudges to the end of the request's last message."""
        conversation = self._conversation(event.agent)
        conversation.requested(len(event.agent.messages))
        last = event.agent.messages[-1] if event.agent.messages else None
        if last is not None and last["role"] == "user" and (nudges := conversation.nudges()):
            last["content"].append({"text": nudges})

    async def _before_tool(self, event: BeforeToolCallEvent) -> None:
        """Allow a call, ask the user for approval, or answer it with the refusal."""
        conversation = self._conversation(event.agent)
        name, args, call_id = event.tool_use["name"], event.tool_use["input"], event.tool_use["toolUseId"]
        if event.cancel_tool:
            return
        if pause := conversation.pause():
            event.cancel_tool = pause
            return
        approved = None
        if question := conversation.question(name, args):
            about = {"type": "tool_approval", "name": name, "args": args, "description": f"trustfold: {question}"}
            answer = event.interrupt(INTERRUPT, reason=about)
            approved = answer == "approve" or (isinstance(answer, Mapping) and answer.get("type") == "approve")
        call = FrameworkCall(conversation, name, args, call_id=call_id, approved=approved)
        if refusal := await call.begin():
            event.cancel_tool = refusal
        else:
            conversation.open_calls[call_id] = call

    async def _after_tool(self, event: AfterToolCallEvent) -> None:
        """End a call."""
        call = self._conversation(event.agent).open_calls.pop(event.tool_use["toolUseId"], None)
        if call is None:
            return
        if event.cancel_message is not None:
            await call.cancel()
        else:
            await call.end(event.exception or _seen(event.result))

    async def _after_invocation(self, event: AfterInvocationEvent) -> None:
        """End the turn and its open calls."""
        conversation = self._conversation(event.agent)
        while conversation.open_calls:
            _, call = conversation.open_calls.popitem()
            await call.cancel()
        conversation.turn_over()

    def _conversation(self, agent: Any) -> GuardConversation:
        own = f"/{agent.agent_id}" if agent.agent_id != "default" else ""
        return self._conversations.of(self._conversations.name_for(f"{agent.session_id}{own}"))


def _seen(result: Any) -> Any:
    """Return the part of a result that the model reads, without the id of the call."""
    content = result["content"]
    if result.get("status") == "error":
        return {"isError": True, "content": content}
    if len(content) != 1:
        return content
    text = content[0].get("text", content[0].get("json", content[0]))
    if isinstance(text, str) and text.startswith("{"):
        try:
            return orjson.loads(text)
        except orjson.JSONDecodeError:
            pass
    return text
