"""OpenAI Agents: hooks of a run, and guarded tools (docs/frameworks.md).

    trustfold = TrustfoldRunHooks(guard)
    agent = Agent(name="…", tools=trustfold.guarded([look, order]))
    result = await Runner.run(agent, "…", hooks=trustfold)

A call that needs approval interrupts the run, as one of a tool with `needs_approval`.
"""

from __future__ import annotations

import copy
import functools
import inspect
import json
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from threading import Lock
from typing import TYPE_CHECKING, Any

from agents import Agent, FunctionTool, ModelResponse, RunContextWrapper, RunHooks, Tool

from .conversation import MAX_CONVERSATIONS, ConversationIndex, GuardConversation, inside, is_no_call

if TYPE_CHECKING:
    from agents.tool_context import ToolContext

    from ..guard import SyncToolGuard, ToolGuard

_OWN = "trustfold_needs_approval"  # Attribute of a guarded tool that keeps its original `needs_approval`

NOT_ASKED = "trustfold: {}. Nobody has been asked yet; call it again, and the user will be."

Invoke = Callable[["ToolContext[Any]", str], Awaitable[Any]]


class TrustfoldRunHooks(RunHooks[Any]):
    """Run hooks that report the model's texts and add nudges to its next request.

    A run and those that go on with its history are a session, unless a `guard.session` surrounds them. Hooks of your
    own: derive from this class.
    """

    def __init__(self, guard: ToolGuard | SyncToolGuard) -> None:
        """Use a guard, blocking or asynchronous; runs may share the hooks."""
        self._conversations = ConversationIndex(guard)
        self._runs: OrderedDict[tuple[int, str], tuple[object, str]] = OrderedDict()
        self._calls: OrderedDict[str, str] = OrderedDict()
        self._asked: dict[str, list[dict[str, Any]]] = {}
        self._lock = Lock()

    def guarded(self, tools: Iterable[Tool]) -> list[Tool]:
        """Guarded copies of function tools and agents as tools; tools that run elsewhere stay as they are."""
        return [self._guarded(tool) if isinstance(tool, FunctionTool) else tool for tool in tools]

    async def on_llm_start(
        self, context: RunContextWrapper[Any], agent: Agent[Any], system_prompt: str | None, input_items: list[Any]
    ) -> None:
        """Report user messages, and add pending nudges to the request."""
        del agent, system_prompt
        calls = (str(item.get("call_id")) for item in reversed(input_items) if isinstance(item, Mapping))
        conversation, new = self._conversation(context, next((one for one in calls if one in self._calls), ""))
        if new:
            for text in _said_by_user(input_items):
                conversation.prompted(text)
        _note_compactions(conversation, input_items)
        if nudges := conversation.nudges():
            input_items.append({"role": "user", "content": nudges})

    async def on_llm_end(self, context: RunContextWrapper[Any], agent: Agent[Any], response: ModelResponse) -> None:
        """Report a message of the model, and request approval for the calls that need it."""
        conversation, _ = self._conversation(context)
        model = agent.model if isinstance(agent.model, str) else getattr(agent.model, "model", None)
        texts = [
            getattr(part, "text", "")
            for item in response.output
            if getattr(item, "type", "") == "message"
            for part in getattr(item, "content", ())
        ]
        calls = [item for item in response.output if getattr(item, "type", "") == "function_call"]
        conversation.said("".join(texts), model=str(model or ""), calls=[item.call_id for item in calls])
        _note_compactions(conversation, response.output)
        for item in calls:
            self._note(conversation, item)
        for tool in agent.tools:
            if isinstance(tool, FunctionTool) and _OWN in vars(tool):
                self._ask_as_needed(conversation, tool)

    async def on_agent_end(self, context: Any, agent: Any, output: Any) -> None:
        """End the turn."""
        del agent, output
        self._conversation(context)[0].turn_over()

    def _conversation(self, context: RunContextWrapper[Any], call_id: str = "") -> tuple[GuardConversation, bool]:
        """Return the conversation of a run, and whether it is new.

        All contexts of a run share its usage; a run that continues after an interruption is recognised by its calls.
        """
        usage = context.usage
        place = (id(usage), inside())
        with self._lock:
            known = self._runs.get(place)
            name = known[1] if known else self._calls.get(call_id) or self._conversations.name_for()
            if known is None:
                self._runs[place] = (usage, name)
                _forget(self._runs)
        return self._conversations.of(name), known is None

    def _note(self, conversation: GuardConversation, item: Any) -> None:
        """Store a call that the model requests."""
        args = _read(item.arguments)
        with self._lock:
            self._calls[item.call_id] = conversation.session.session_id
            _forget(self._calls)
            if conversation.question(item.name, args):
                self._asked.setdefault(item.name, []).append(args)

    def _ask_as_needed(self, conversation: GuardConversation, tool: FunctionTool) -> None:
        """Make a tool require approval while one of its calls needs it.

        It does not always require it: if a function decides about approval, the framework asks about all arguments that
        it would convert.
        """
        with self._lock:
            waiting = [args for args in self._asked.pop(tool.name, ()) if conversation.question(tool.name, args)][-100:]
            if waiting:
                self._asked[tool.name] = waiting
        own = vars(tool)[_OWN]
        tool.needs_approval = self._asking(tool.name, own) if waiting else own

    def _guarded(self, tool: FunctionTool) -> FunctionTool:
        made = copy.copy(tool)
        # Inside of the framework's own handling of failures, which turns exceptions into texts.
        inner = getattr(made.on_invoke_tool, "_invoke_tool_impl", None)
        if inner is None or made.on_invoke_tool is tool.on_invoke_tool:
            made.on_invoke_tool = self._invoking(tool.name, tool.on_invoke_tool)
        else:
            made.on_invoke_tool._invoke_tool_impl = self._invoking(tool.name, inner)  # noqa: SLF001
        vars(made)[_OWN] = tool.needs_approval
        return made

    def _invoking(self, name: str, invoke: Invoke) -> Invoke:
        @functools.wraps(invoke)
        async def invoke_guarded(context: ToolContext[Any], arguments: str) -> Any:
            conversation, _ = self._conversation(context, context.tool_call_id)
            args = _read(arguments)
            approved = context.is_tool_approved(context.tool_name, context.tool_call_id) or None
            if pause := conversation.pause():
                return pause
            if not approved and (question := conversation.question(name, args)):
                return NOT_ASKED.format(question)  # it must be approved only since the framework looked

            async def run(**_: Any) -> Any:
                return await invoke(context, arguments)

            result = await conversation.call(name, run, args, call_id=context.tool_call_id, approved=approved)
            if is_no_call(result):
                return await invoke(context, arguments)
            if refusal := conversation.refusal(result):
                return refusal
            if result.exception is not None:
                raise result.exception
            return result.output

        return invoke_guarded

    def _asking(self, name: str, own: Any) -> Callable[..., Awaitable[bool]]:
        async def needs_approval(context: RunContextWrapper[Any], args: dict[str, Any], call_id: str) -> bool:
            asked = own(context, args, call_id) if callable(own) else own
            if await asked if inspect.isawaitable(asked) else asked:
                return True
            return bool(self._conversation(context, call_id)[0].question(name, args))

        return needs_approval


def _forget(things: OrderedDict[Any, Any]) -> None:
    while len(things) > MAX_CONVERSATIONS:
        things.popitem(last=False)


def _read(arguments: str) -> dict[str, Any]:
    """Return the arguments as an object; the framework reports invalid ones itself."""
    try:
        read = json.loads(arguments or "{}")
    except ValueError:
        return {"arguments": arguments}
    return read if isinstance(read, dict) else {"arguments": read}


def _note_compactions(conversation: GuardConversation, items: Iterable[Any]) -> None:
    """Report the items that stand for a shortened history, each once."""
    for item in items:
        read = item.get if isinstance(item, Mapping) else functools.partial(getattr, item)
        if read("type", "") == "compaction":
            conversation.compacted(str(read("id", None) or read("encrypted_content", "")))


def _said_by_user(items: Iterable[Any]) -> list[str]:
    """Return the user's texts since the last message of the model."""
    said: list[str] = []
    for item in reversed(list(items)):
        if not isinstance(item, Mapping) or item.get("role") != "user":
            break
        content = item.get("content")
        parts = (
            [content]
            if isinstance(content, str)
            else [one.get("text", "") for one in content or () if isinstance(one, Mapping)]
        )
        said.insert(0, "".join(str(one) for one in parts))
    return said
