"""Google ADK: a plugin of a runner (docs/frameworks.md).

    runner = InMemoryRunner(agent=agent, plugins=[TrustfoldPlugin(guard)])

A call that needs approval requests a confirmation, as a tool with `require_confirmation` does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from google.adk.plugins.base_plugin import BasePlugin
from google.adk.tools.base_tool import BaseTool
from google.genai import types

from .conversation import ConversationIndex, FrameworkCall, GuardConversation

if TYPE_CHECKING:
    from ..guard import SyncToolGuard, ToolGuard

ASKED = {"error": "This tool call requires confirmation, please approve or reject."}  # Texts of the framework


class TrustfoldPlugin(BasePlugin):
    """Guards the tool calls of a runner, reports texts and turns, and adds nudges to the next request.

    A session of the framework is a session.
    """

    def __init__(self, guard: ToolGuard | SyncToolGuard, name: str = "trustfold") -> None:
        """Use a guard, blocking or asynchronous; runners may share the plugin."""
        super().__init__(name=name)
        self._conversations = ConversationIndex(guard)

    async def on_user_message_callback(self, *, invocation_context: Any, user_message: Any) -> None:
        """Report a user message; answers to approval requests are skipped."""
        if text := _text(user_message):
            self._conversation(invocation_context).prompted(text)

    async def before_model_callback(self, *, callback_context: Any, llm_request: Any) -> None:
        """Report a shortened history, and add pending nudges to this request only."""
        conversation = self._conversation(callback_context)
        summary = next((one for one in reversed(callback_context.session.events) if one.actions.compaction), None)
        if summary is not None:
            conversation.compacted(summary.id)
        if nudges := conversation.nudges():
            llm_request.contents.append(types.Content(role="user", parts=[types.Part(text=nudges)]))

    async def after_model_callback(self, *, callback_context: Any, llm_response: Any) -> None:
        """Report a complete message of the model."""
        if not llm_response.partial:
            model = llm_response.model_version or ""
            self._conversation(callback_context).said(_text(llm_response.content), model=model)

    async def on_event_callback(self, *, invocation_context: Any, event: Any) -> None:
        """Note which calls a message of the model makes; their ids are known only here."""
        if calls := event.get_function_calls():
            self._conversation(invocation_context).makes(event.id, [call.id for call in calls if call.id])

    async def before_tool_callback(
        self, *, tool: Any, tool_args: dict[str, Any], tool_context: Any
    ) -> dict[str, Any] | None:
        """Allow a call, request its confirmation, or answer it with the refusal."""
        if type(tool) is BaseTool:
            return None  # the framework's placeholder of a tool that does not exist
        conversation, call_id = self._conversation(tool_context), tool_context.function_call_id or ""
        if pause := conversation.pause():
            return {"error": pause}
        confirmation = tool_context.tool_confirmation
        question = conversation.question(tool.name, tool_args)
        if question and confirmation is None:
            tool_context.request_confirmation(hint=f"trustfold: {question}")
            tool_context.actions.skip_summarization = True
            return dict(ASKED)
        approved = confirmation.confirmed if question and confirmation is not None else None
        call = FrameworkCall(conversation, tool.name, dict(tool_args), call_id=call_id, approved=approved)
        if refusal := await call.begin():
            return {"error": refusal}
        conversation.open_calls[call_id] = call
        return None

    async def after_tool_callback(
        self, *, tool: Any, tool_args: dict[str, Any], tool_context: Any, result: Any
    ) -> None:
        """End a call; a call that waits for approval or credentials was not made."""
        del tool, tool_args
        call_id = tool_context.function_call_id or ""
        call = self._conversation(tool_context).open_calls.pop(call_id, None)
        if call is None:
            return
        actions = tool_context.actions
        if call_id in actions.requested_tool_confirmations or call_id in actions.requested_auth_configs:
            await call.cancel()
        else:
            await call.end(result)

    async def on_tool_error_callback(
        self, *, tool: Any, tool_args: dict[str, Any], tool_context: Any, error: BaseException
    ) -> None:
        """End a call that raised an exception, which the framework re-raises; a missing tool's call never ran."""
        conversation, call_id = self._conversation(tool_context), tool_context.function_call_id or ""
        call = conversation.open_calls.pop(call_id, None)
        if call is None:
            conversation.rejected(tool.name, tool_args, error, call_id)
        else:
            await call.end(error)

    async def after_run_callback(self, *, invocation_context: Any) -> None:
        """End the turn and its open calls."""
        conversation = self._conversation(invocation_context)
        while conversation.open_calls:
            _, call = conversation.open_calls.popitem()
            await call.cancel()
        conversation.turn_over()

    def _conversation(self, context: Any) -> GuardConversation:
        return self._conversations.of(self._conversations.name_for(str(context.session.id)))


def _text(content: Any) -> str:
    parts = getattr(content, "parts", None) or ()
    return "".join(part.text for part in parts if part.text and not part.thought)
