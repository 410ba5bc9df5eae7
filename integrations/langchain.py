"""LangChain and LangGraph: a middleware for `create_agent`, a tool node for other graphs (docs/frameworks.md).

    create_agent(model, tools, middleware=[TrustfoldMiddleware(guard)])
    graph.add_node("tools", guarded_tool_node(tools, guard))

A call that needs approval interrupts the graph as `HumanInTheLoopMiddleware(interrupt_mode="per_call")` does, and is
answered likewise: `Command(resume={"type": "approve"})`, or `{"type": "reject", "message": …}`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, NotRequired

import orjson
from langchain.agents.middleware import AgentMiddleware
from langchain.agents.middleware.types import AgentState, PrivateStateAttr
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langgraph.config import get_config
from langgraph.prebuilt import ToolNode
from langgraph.types import Command, interrupt

from .conversation import ConversationIndex, GuardConversation, is_no_call

if TYPE_CHECKING:
    from langgraph.prebuilt.tool_node import ToolCallRequest

    from ..guard import SyncToolGuard, ToolGuard, ToolResult

Answer = ToolMessage | Command[Any]

SOURCE = "lc_source"  # Field that names who wrote a message in the user's name; the user's own messages have none
NUDGE = {SOURCE: "trustfold"}  # Marks a nudge in the history, to distinguish it from user messages
SUMMARY = "summarization"  # Source of the framework's summaries of what it has removed from the history


class TrustfoldState(AgentState[Any]):
    """State that the middleware adds to an agent: the id of its session."""

    trustfold_session: NotRequired[Annotated[str, PrivateStateAttr]]  # type: ignore[valid-type]


class TrustfoldMiddleware(AgentMiddleware[TrustfoldState, Any]):
    """Guards the tool calls of an agent, reports texts and turns, and adds nudges to the next request.

    A thread is a session; without a checkpointer each run is one. Put it first in the list: retries of other middleware
    inside of it count as one call.
    """

    state_schema = TrustfoldState

    def __init__(self, guard: ToolGuard | SyncToolGuard) -> None:
        """Use a guard, blocking or asynchronous; agents may share the middleware."""
        super().__init__()
        self._conversations = ConversationIndex(guard)

    def before_agent(self, state: Any, runtime: Any) -> dict[str, Any]:
        """Report the start of a run, with the user messages since the last model message."""
        del runtime
        name = _name(self._conversations)
        conversation = self._conversations.of(name)
        said: list[HumanMessage] = []
        for message in reversed(state["messages"]):
            if not _is_users(message):
                break
            said.insert(0, message)
        for message in said:
            conversation.prompted(message.text, message.id or "")
        return {"trustfold_session": name}

    async def abefore_agent(self, state: Any, runtime: Any) -> dict[str, Any]:
        """As `before_agent`."""
        return self.before_agent(state, runtime)

    def before_model(self, state: Any, runtime: Any) -> dict[str, Any] | None:
        """Add pending nudges to the request."""
        del runtime
        nudges = self._conversation(state).nudges()
        return {"messages": [HumanMessage(nudges, additional_kwargs=NUDGE)]} if nudges else None

    async def abefore_model(self, state: Any, runtime: Any) -> dict[str, Any] | None:
        """As `before_model`."""
        return self.before_model(state, runtime)

    def after_model(self, state: Any, runtime: Any) -> None:
        """Report a message of the model."""
        del runtime
        _report(self._conversation(state), state["messages"])

    async def aafter_model(self, state: Any, runtime: Any) -> None:
        """As `after_model`."""
        self.after_model(state, runtime)

    def after_agent(self, state: Any, runtime: Any) -> None:
        """End the turn."""
        del runtime
        self._conversation(state).turn_over()

    async def aafter_agent(self, state: Any, runtime: Any) -> None:
        """As `after_agent`."""
        self.after_agent(state, runtime)

    def wrap_tool_call(self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Answer]) -> Answer:
        """Make a guarded tool call."""
        return _LangchainCall(self._conversation(request.state), request).make(handler)

    async def awrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Awaitable[Answer]]
    ) -> Answer:
        """As `wrap_tool_call`."""
        return await _LangchainCall(self._conversation(request.state), request).amake(handler)

    def _conversation(self, state: Any) -> GuardConversation:
        name = state.get("trustfold_session") if isinstance(state, Mapping) else None
        return self._conversations.of(name or _name(self._conversations))


def guarded_tool_node(
    tools: Sequence[Any], guard: ToolGuard | SyncToolGuard, *, messages_key: str = "messages", **options: Any
) -> ToolNode:
    """Create a `ToolNode` whose calls are guarded, for custom graphs.

    It reports the model's texts that come with calls, and adds nudges to the results; a thread of a checkpointer, or a
    surrounding `guard.session`, is the session.

    Args:
        tools: as of `ToolNode`.
        guard: guard, blocking or asynchronous.
        messages_key: as of `ToolNode`.
        options: further ones of `ToolNode`, without wrappers of calls.
    """
    conversations = ConversationIndex(guard)

    def call_of(request: ToolCallRequest) -> _LangchainCall:
        state = request.state
        messages = state if isinstance(state, list) else _member(state, messages_key) or []
        conversation = conversations.of(_name(conversations))
        _report(conversation, messages, asked=True)
        alone = not messages or len(getattr(messages[-1], "tool_calls", ())) < 2
        return _LangchainCall(conversation, request, alone=alone)

    def wrap(request: ToolCallRequest, execute: Callable[[ToolCallRequest], Answer]) -> Answer:
        call = call_of(request)
        return call.with_nudges(call.make(execute))

    async def awrap(request: ToolCallRequest, execute: Callable[[ToolCallRequest], Awaitable[Answer]]) -> Answer:
        call = call_of(request)
        return call.with_nudges(await call.amake(execute))

    return ToolNode(tools, messages_key=messages_key, wrap_tool_call=wrap, awrap_tool_call=awrap, **options)


class _LangchainCall:
    """One tool call with its guard."""

    def __init__(self, conversation: GuardConversation, request: ToolCallRequest, *, alone: bool = True) -> None:
        self._conversation = conversation
        self._request = request
        self._alone = alone
        self._name = request.tool_call["name"]
        self._args = request.tool_call["args"]
        self._id = request.tool_call["id"] or ""
        self._made: list[Answer] = []

    def make(self, handler: Callable[[ToolCallRequest], Answer]) -> Answer:
        """Make the call in this thread."""
        if refusal := self._refusal():
            return self._failed(refusal)

        def run(**_: Any) -> Any:
            return self._seen(handler(self._request))

        options = {"call_id": self._id, "approved": self._approved()}
        result = self._conversation.call_blocking(self._name, run, self._args, **options)
        return handler(self._request) if is_no_call(result) else self._answer(result)

    async def amake(self, handler: Callable[[ToolCallRequest], Awaitable[Answer]]) -> Answer:
        """Make the call on this loop."""
        if refusal := self._refusal():
            return self._failed(refusal)

        async def run(**_: Any) -> Any:
            return self._seen(await handler(self._request))

        options = {"call_id": self._id, "approved": self._approved()}
        result = await self._conversation.call(self._name, run, self._args, **options)
        return await handler(self._request) if is_no_call(result) else self._answer(result)

    def with_nudges(self, answer: Answer) -> Answer:
        """Return the answer with pending nudges appended, if it contains text."""
        if not isinstance(answer, ToolMessage) or not isinstance(answer.content, str):
            return answer
        nudges = self._conversation.nudges()
        return answer.model_copy(update={"content": f"{answer.content}\n\n{nudges}"}) if nudges else answer

    def _refusal(self) -> str:
        """Return why the call is refused without asking; empty if it is not."""
        return self._conversation.declined(self._id) or self._conversation.pause()

    def _approved(self) -> bool | None:
        """Return the person's answer about the call; None if no approval is needed or nobody can be asked.

        Raises:
            GraphInterrupt: the graph waits for the answer.
        """
        question = self._conversation.question(self._name, self._args)
        if not question or get_config().get("configurable", {}).get("__pregel_checkpointer") is None:
            return None
        about = {"type": "tool_approval", "tool_call_id": self._id, "name": self._name, "args": self._args}
        answer = interrupt({**about, "description": f"trustfold: {question}"})
        if isinstance(answer, Mapping) and self._id in answer:
            answer = answer[self._id]
        elif not self._alone:
            # Calls of one task get their answers in the order of their questions.
            answer = {"message": f"the answer did not name the call; answer {{{self._id!r}: {{'type': 'approve'}}}}"}
        approved = isinstance(answer, Mapping) and answer.get("type") == "approve"
        if not approved:
            reason = answer.get("message") if isinstance(answer, Mapping) else None
            self._conversation.decline(self._id, self._name, str(reason or ""))
        return approved

    def _seen(self, answer: Answer) -> Any:
        """Keep an answer, and give the guard the text that the model will read."""
        self._made[:] = [answer]
        if not isinstance(answer, ToolMessage):
            return {"command": repr(answer)[:1000]}
        if answer.status == "error":
            return {"isError": True, "content": answer.text}
        if isinstance(answer.content, str) and answer.content.startswith("{"):
            try:
                return orjson.loads(answer.content)
            except orjson.JSONDecodeError:
                pass
        return answer.content

    def _answer(self, result: ToolResult) -> Answer:
        if refusal := self._conversation.declined(self._id) or self._conversation.refusal(result):
            return self._failed(refusal)
        if result.exception is not None:
            raise result.exception
        if self._made:
            return self._made[0]
        # Another call with the same key was made.
        content = result.output if isinstance(result.output, str | list) else orjson.dumps(result.output).decode()
        return ToolMessage(content, tool_call_id=self._id, name=self._name, status="success" if result.ok else "error")

    def _failed(self, text: str) -> ToolMessage:
        return ToolMessage(text, tool_call_id=self._id, name=self._name, status="error")


def _name(conversations: ConversationIndex) -> str:
    """Return the session id of the running graph."""
    try:
        given = get_config().get("configurable", {})
    except RuntimeError:
        given = {}
    return conversations.name_for(str(given.get("thread_id") or ""))


def _report(conversation: GuardConversation, messages: Sequence[Any], *, asked: bool = False) -> None:
    """Report the last message if it is the model's, and with `asked` the user messages before it."""
    if not messages or not isinstance(messages[-1], AIMessage):
        return
    for message in messages:
        if message.additional_kwargs.get(SOURCE) == SUMMARY:
            conversation.compacted(message.id or message.text)
    if asked:
        user = next((one for one in reversed(messages) if _is_users(one)), None)
        if user is not None and user.id:
            conversation.prompted(user.text, user.id)
    last = messages[-1]
    model = last.response_metadata.get("model_name") or last.response_metadata.get("model") or ""
    calls = [call["id"] or "" for call in last.tool_calls]
    conversation.said(last.text, model=str(model), message_id=last.id or "", calls=calls)


def _is_users(message: Any) -> bool:
    return isinstance(message, HumanMessage) and SOURCE not in message.additional_kwargs


def _member(state: Any, name: str) -> Any:
    return state.get(name) if isinstance(state, Mapping) else getattr(state, name, None)
