"""Pydantic AI: a capability of an agent (docs/frameworks.md).

    agent = Agent(model, output_type=[str, DeferredToolRequests], capabilities=[TrustfoldCapability(guard)])

A call that needs approval is deferred, as one whose tool raises `ApprovalRequired`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, get_args

from pydantic_ai import ApprovalRequired, DeferredToolRequests, ModelRetry, RunContext
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.exceptions import ToolFailed
from pydantic_ai.messages import (
    CompactionPart,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)

from .conversation import ConversationIndex, GuardConversation, is_no_call

if TYPE_CHECKING:
    from pydantic_ai.models import ModelRequestContext

    from ..guard import SyncToolGuard, ToolGuard


class TrustfoldCapability(AbstractCapability[Any]):
    """Guards the tool calls of an agent, reports texts and turns, and adds nudges to the next request.

    A conversation of the framework (`conversation_id`) is a session.
    """

    def __init__(self, guard: ToolGuard | SyncToolGuard, *, ask: bool | None = None) -> None:
        """Create a capability, which agents may share.

        Args:
            guard: guard, blocking or asynchronous.
            ask: whether to defer calls that need approval; by default if the agent's `output_type` contains
                `DeferredToolRequests`. Otherwise the guard's setting `unattended` decides.
        """
        self._conversations = ConversationIndex(guard)
        self._ask = ask

    async def wrap_run(self, ctx: RunContext[Any], *, handler: Callable[[], Any]) -> Any:
        """Report the user message and the end of the turn."""
        conversation = self._conversation(ctx)
        if ctx.prompt is not None:
            parts = [ctx.prompt] if isinstance(ctx.prompt, str) else ctx.prompt
            conversation.prompted("".join(part for part in parts if isinstance(part, str)))
        try:
            return await handler()
        finally:
            conversation.turn_over()

    async def before_model_request(
        self, ctx: RunContext[Any], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        """Report calls that a person denied, and add pending nudges to this request only."""
        *before, last = request_context.messages
        if not isinstance(last, ModelRequest):
            return request_context
        conversation = self._conversation(ctx)
        for part in last.parts:
            if isinstance(part, ToolReturnPart) and part.outcome == "denied":
                conversation.denied(part.tool_call_id, part.tool_name)
        if nudges := conversation.nudges():
            last = replace(last, parts=[*last.parts, UserPromptPart(nudges)])
        return replace(request_context, messages=[*before, last])

    async def after_model_request(
        self, ctx: RunContext[Any], *, request_context: ModelRequestContext, response: ModelResponse
    ) -> ModelResponse:
        """Report a message of the model, and a history that was shortened before it."""
        conversation = self._conversation(ctx)
        for message in (*request_context.messages, response):
            for part in message.parts:
                if isinstance(part, CompactionPart):
                    conversation.compacted(part.id or part.content or str(part.provider_details))
        conversation.said(
            "".join(part.content for part in response.parts if isinstance(part, TextPart)),
            model=response.model_name or "",
            calls=[part.tool_call_id for part in response.parts if isinstance(part, ToolCallPart)],
        )
        return response

    async def wrap_tool_execute(
        self, ctx: RunContext[Any], *, call: ToolCallPart, tool_def: Any, args: Any, handler: Callable[[Any], Any]
    ) -> Any:
        """Make a guarded tool call."""
        del tool_def
        conversation = self._conversation(ctx)
        if pause := conversation.pause():
            raise ToolFailed(pause)
        approved = ctx.tool_call_approved or None
        if not approved and self._can_ask(ctx) and conversation.question(call.tool_name, call.args_as_dict()):
            raise ApprovalRequired
        return await _guarded(conversation, call, lambda: handler(args), approved=approved)

    async def on_tool_validate_error(
        self, ctx: RunContext[Any], *, call: ToolCallPart, tool_def: Any, args: Any, error: Exception
    ) -> Any:
        """Report a call with invalid arguments; the framework answers it."""
        del tool_def, args
        if isinstance(error, ModelRetry):
            raise error
        self._conversation(ctx).rejected(call.tool_name, _args(call), error, call.tool_call_id)
        raise error

    def _conversation(self, ctx: RunContext[Any]) -> GuardConversation:
        return self._conversations.of(self._conversations.name_for(ctx.conversation_id or ctx.run_id or ""))

    def _can_ask(self, ctx: RunContext[Any]) -> bool:
        if self._ask is not None:
            return self._ask
        given = getattr(ctx.agent, "output_type", None)
        kinds = given if isinstance(given, list | tuple) else [given]
        return any(kind is DeferredToolRequests or DeferredToolRequests in get_args(kind) for kind in kinds)


async def _guarded(
    conversation: GuardConversation, call: ToolCallPart, make: Callable[[], Any], *, approved: bool | None
) -> Any:
    async def run(**_: Any) -> Any:
        return await make()

    result = await conversation.call(call.tool_name, run, _args(call), call_id=call.tool_call_id, approved=approved)
    if is_no_call(result):
        return await make()
    if refusal := conversation.refusal(result):
        raise ToolFailed(refusal)
    if result.exception is not None:
        raise result.exception
    return result.output


def _args(call: ToolCallPart) -> dict[str, Any]:
    """Return the arguments as the model gave them."""
    try:
        return dict(call.args_as_dict())
    except Exception:  # noqa: BLE001 - it gave none that can be read
        return {"arguments": str(call.args)}
