"""CrewAI: guarded tools, and hooks around the requests to a model (docs/frameworks.md).

    with TrustfoldCrew(guard) as trustfold:
        agent = Agent(role="…", tools=trustfold.guarded([look]), …)
        Crew(agents=[agent], tasks=[…]).kickoff()

A call that needs approval is asked about at the terminal, by `request_human_input`.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Iterable
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Self

from crewai.hooks import (
    LLMCallHookContext,
    ToolCallHookContext,
    register_after_llm_call_hook,
    register_before_llm_call_hook,
    register_before_tool_call_hook,
    unregister_after_llm_call_hook,
    unregister_before_llm_call_hook,
    unregister_before_tool_call_hook,
)
from crewai.tools import BaseTool

from .conversation import ConversationIndex, GuardConversation, is_no_call

if TYPE_CHECKING:
    from ..guard import SyncToolGuard, ToolGuard, ToolResult

_RUN: ContextVar[str] = ContextVar("trustfold_crew", default="")  # Session id of the agent's current task


class RefusedAnswer(str):
    """Answer to a call that was not made; not cached."""

    __slots__ = ()


class TrustfoldCrew:
    """Guards tools; while it is open it reports model messages and adds nudges to requests.

    A task of a crew is a session.
    """

    def __init__(self, guard: ToolGuard | SyncToolGuard) -> None:
        """Use a guard, blocking or asynchronous."""
        self._conversations = ConversationIndex(guard)

    def __enter__(self) -> Self:
        register_before_llm_call_hook(self._before_llm)
        register_after_llm_call_hook(self._after_llm)
        register_before_tool_call_hook(self._before_tool)
        return self

    def __exit__(self, *_: object) -> None:
        unregister_before_llm_call_hook(self._before_llm)
        unregister_after_llm_call_hook(self._after_llm)
        unregister_before_tool_call_hook(self._before_tool)

    def guarded(self, tools: Iterable[BaseTool]) -> list[BaseTool]:
        """Guarded copies of tools."""
        return [self._guarded(tool) for tool in tools]

    def _guarded(self, tool: BaseTool) -> BaseTool:
        made = tool.model_copy()
        run, arun, caches = made._run, made._arun, made.cache_function  # noqa: SLF001 - what tools override
        made.cache_function = lambda args=None, result=None: (
            not isinstance(result, RefusedAnswer) and caches(args, result)
        )

        def run_guarded(*positional: Any, **args: Any) -> Any:
            call = _CrewCall(self._conversation(), made, args)
            return call.make(lambda: run(*positional, **args))

        async def arun_guarded(*positional: Any, **args: Any) -> Any:
            call = _CrewCall(self._conversation(), made, args)
            return await call.amake(lambda: arun(*positional, **args))

        vars(made)["_run"], vars(made)["_arun"] = run_guarded, arun_guarded
        return made

    def _before_llm(self, context: LLMCallHookContext) -> None:
        """Report the start of a task and a shortened history, and add pending nudges to the request."""
        self._enter(context)
        conversation = self._conversation()
        if context.executor is not None:
            conversation.requested(len(context.messages))
        if context.iterations == 0 and context.task is not None:
            conversation.prompted(str(context.task.description))
        if nudges := conversation.nudges():
            context.messages.append({"role": "user", "content": nudges})

    def _after_llm(self, context: LLMCallHookContext) -> None:
        """Report a message of the model."""
        self._enter(context)
        text = context.response if isinstance(context.response, str) else ""
        self._conversation().said(text, model=str(getattr(context.llm, "model", "") or ""))

    def _before_tool(self, context: ToolCallHookContext) -> None:
        """Store the session of the call, which the tool itself does not receive."""
        self._enter(context)

    def _enter(self, context: LLMCallHookContext | ToolCallHookContext) -> None:
        names = [str(one.id) for one in (context.crew, context.task) if one is not None]
        _RUN.set(self._conversations.name_for("/".join(names)) if names else "")

    def _conversation(self) -> GuardConversation:
        name = _RUN.get() or self._conversations.name_for("crewai")
        return self._conversations.of(name)


class _CrewCall:
    """One tool call with its guard."""

    def __init__(self, conversation: GuardConversation, tool: BaseTool, args: dict[str, Any]) -> None:
        self._conversation = conversation
        self._tool = tool
        self._args = args

    def make(self, run: Callable[[], Any]) -> Any:
        """Make the call in this thread."""
        if pause := self._conversation.pause():
            return RefusedAnswer(pause)
        result = self._conversation.call_blocking(self._tool.name, lambda **_: run(), self._args, **self._options())
        return run() if is_no_call(result) else self._answer(result)

    async def amake(self, run: Callable[[], Awaitable[Any]]) -> Any:
        """Make the call on this loop."""
        if pause := self._conversation.pause():
            return RefusedAnswer(pause)
        result = await self._conversation.call(self._tool.name, lambda **_: run(), self._args, **self._options())
        return await run() if is_no_call(result) else self._answer(result)

    def _options(self) -> dict[str, Any]:
        """Options of the call; the framework gives calls no ids, but they follow the message that makes them."""
        return {"approved": self._approved(), "message_id": self._conversation.message_id or None}

    def _approved(self) -> bool | None:
        """Return the answer of the person at the terminal; None if no approval is needed or nobody is there."""
        question = self._conversation.question(self._tool.name, self._args)
        if not question or not sys.stdin.isatty():
            return None
        context = ToolCallHookContext(self._tool.name, self._args, self._tool)  # type: ignore[arg-type, unused-ignore]
        prompt = f"trustfold: {question}. Allow this call of {self._tool.name}?"
        said: str = context.request_human_input(prompt, "Type 'approve' to allow it:")
        return said.strip().lower() == "approve"

    def _answer(self, result: ToolResult) -> Any:
        if refusal := self._conversation.refusal(result):
            return RefusedAnswer(refusal)
        if result.exception is not None:
            raise result.exception
        return result.output
