"""Common part of the framework adapters: conversations as sessions of a guard, calls, nudges, refusals.

An adapter identifies the framework's conversation and passes its events on; this module decides, equally for all
frameworks, which texts the model gets and which calls are refused (docs/frameworks.md).
"""

from __future__ import annotations

import asyncio
import inspect
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from threading import Lock
from typing import TYPE_CHECKING, Any

from ..guard.blocking import call_on
from ..guard.clock import new_id
from ..guard.errors import EnvelopeRejected
from ..guard.result import told_to_model
from ..guard.session import CURRENT, GuardSession
from ..guard.sync import SyncToolGuard
from ..schemas.settings import SettingsOverrides

if TYPE_CHECKING:
    from ..guard import ToolGuard, ToolResult

MAX_CONVERSATIONS = 1000  # Number of sessions kept for their next run; beyond it the least recently used one is ended
MAX_TOLD = 1000  # Number of reported messages, and of requested calls, remembered per conversation

# A run that is interrupted, or raises, ends without a word to its middleware; its silence says nothing
SETTINGS = SettingsOverrides(rules={"behaviour": {"stalled_turn": {"enabled": False}}})

DECLINED = "'{}' was not permitted: {}"


# Session id for agents run by the surrounding tool call
_INSIDE: ContextVar[str] = ContextVar("trustfold_inside", default="")


class GuardConversation:
    """One conversation of an agent; thread-safe.

    Attributes:
        session: its session of the guard.
        open_calls: calls between two hooks of a framework, by their ids.
        message_id: id of the model's last message; empty before the first.
    """

    def __init__(self, guard: ToolGuard, session: GuardSession) -> None:
        """Create it with a started session."""
        self.session = session
        self._guard = guard
        self._declined: dict[str, str] = {}
        self._told: OrderedDict[str, None] = OrderedDict()
        self._messages: OrderedDict[str, str] = OrderedDict()
        self._length = 0
        self.message_id = ""
        self._turn_open = False
        self._lock = Lock()
        self.open_calls: dict[str, FrameworkCall] = {}

    # --- what happens -------------------------------------------------------------------------------------------------

    def prompted(self, text: str, message_id: str = "") -> None:
        """Report a prompt, which begins a turn of the model. A message with an id is reported once.

        It is the user's, or that of the agent whose tool call runs this one.
        """
        if self._is_new(message_id):
            self.turn_over()
            self.session.inbox.resume()
            if inside():
                self.session.input_received("agent", text)
            else:
                self.session.user_message(text)
            self._begin_turn()

    def received(self, source: str, text: str) -> None:
        """Report what something other than the user tells the model; all but the client's own wakes a resting one.

        `source`: see `GuardSession.input_received`.
        """
        self.session.input_received(source, text)
        if source != "client":
            self._begin_turn()

    def said(self, text: str, *, model: str = "", message_id: str = "", calls: Iterable[str] = ()) -> None:
        """Report a message of the model, possibly only calls. A message with an id is reported once.

        Args:
            text: its text.
            model: name of the model; empty if unknown.
            message_id: id of the message; by default a new one.
            calls: ids of the calls that it makes.
        """
        self.session.model = model or self.session.model
        if self._is_new(message_id):
            self._declined.clear()  # the calls of another message; models may use an id again
            self._begin_turn()
            self.session.model_text(text)
            self.makes(message_id or new_id(self._guard.clock.now_ms()), calls)

    def makes(self, message_id: str, calls: Iterable[str]) -> None:
        """Remember which calls a message of the model makes: they are one step."""
        self.message_id = message_id
        with self._lock:
            for call_id in calls:
                self._messages[call_id] = message_id
                self._messages.move_to_end(call_id)
            while len(self._messages) > MAX_TOLD:
                self._messages.popitem(last=False)

    def compacted(self, message_id: str = "") -> None:
        """Report that the model's context was shortened; a summary with an id is reported once."""
        if self._is_new(message_id):
            self.session.context_compacted()

    def requested(self, messages: int) -> None:
        """Report the number of messages of a request: fewer than before, the context was shortened."""
        if messages < self._length:
            self.compacted()
        self._length = messages

    def turn_over(self) -> None:
        """Report the end of the turn."""
        if self._turn_open:
            self._turn_open = False
            self.session.end_turn()

    def _begin_turn(self) -> None:
        if not self._turn_open:
            self._turn_open = True
            self.session.begin_turn()

    def _is_new(self, message_id: str) -> bool:
        if not message_id:
            return True
        with self._lock:
            new = message_id not in self._told
            self._told[message_id] = None
            while len(self._told) > MAX_TOLD:
                self._told.popitem(last=False)
        return new

    # --- texts for the model ------------------------------------------------------------------------------------------

    def nudges(self) -> str:
        """Return the text for the next request to the model, each nudge once; empty without nudges.

        A plain text: a system message in the middle of a conversation is refused by several vendors.
        """
        if self._guard.settings.shadow:
            return ""
        return "\n\n".join(message["content"] for message in self.session.messages())

    def pause(self) -> str:
        """Return why a call is not made before the next user message; empty if it is. Asked before each call."""
        if self._guard.settings.shadow:
            return ""
        reason = self.session.inbox.before_call()
        return f"trustfold: {reason}" if reason else ""

    def question(self, tool_name: str, args: Any) -> str:
        """Return why a call needs a person's approval; empty if it does not."""
        if self._guard.settings.shadow or not isinstance(args, Mapping):
            return ""
        found = self._guard.check(tool_name, args, session_id=self.session.session_id)
        return found.message if found.ask else ""

    def decline(self, call_id: str, tool_name: str, reason: str = "") -> None:
        """Record that a person declined a call: it stays declined if the framework repeats it."""
        self._declined[call_id] = told_to_model("denied", DECLINED.format(tool_name, reason or "the user said no"))

    def denied(self, call_id: str, tool_name: str) -> None:
        """Report, once, a call that the framework did not make because a person said no."""
        if self._is_new(f"denied {call_id}"):
            self._guard.on_permission_resolved(
                tool_name, call_id, granted=False, method="user", session_id=self.session.session_id
            )

    def declined(self, call_id: str) -> str:
        """Return the answer to a call that a person declined; empty for other calls."""
        return self._declined.get(call_id, "")

    @staticmethod
    def refusal(result: ToolResult) -> str:
        """Return the answer to a call that the guard refused or stopped waiting for; empty if it was made."""
        if result.error is None or result.exception is not None or not (result.refused or result.output is None):
            return ""
        return told_to_model(result.error.code, result.error.message) if result.refused else result.error.message

    # --- calls --------------------------------------------------------------------------------------------------------

    async def call(self, tool_name: str, function: Callable[..., Any], args: Any, **options: Any) -> ToolResult:
        """Make a guarded call on any loop; `function` runs here.

        Raises:
            BaseException: control flow; see `ToolGuard.call`.
        """
        guard, home = self._guard, self._guard.home
        options = {"message_id": self._message_of(options), "session_id": self.session.session_id, **options}

        async def run(**given: Any) -> Any:
            with self._inside(options.get("call_id")):
                made = function(**given)
                return await made if inspect.isawaitable(made) else made

        if home is None or home is asyncio.get_running_loop() or not home.is_running():
            return await guard.call(tool_name, run, args, **options)
        return await call_on(home, guard, tool_name, run, args, **options)

    def call_blocking(self, tool_name: str, function: Callable[..., Any], args: Any, **options: Any) -> ToolResult:
        """Make a guarded call from a blocking thread; `function` runs in it."""

        def run(**given: Any) -> Any:
            with self._inside(options.get("call_id")):
                return function(**given)

        options = {"message_id": self._message_of(options), "session_id": self.session.session_id, **options}
        return self._guard.blocking.call(tool_name, run, args, **options)

    def rejected(self, tool_name: str, args: Any, error: str | BaseException, call_id: str = "") -> None:
        """Report a call that the framework refused before it ran: an unknown tool, arguments that do not fit."""
        given = args if isinstance(args, Mapping) else {"arguments": args}
        message_id = self._message_of({"call_id": call_id})
        self.session.report_rejected(tool_name, given, error, call_id=call_id or None, message_id=message_id)

    def _message_of(self, options: Mapping[str, Any]) -> str | None:
        """Id of the message that makes a call; None if unknown."""
        return self._messages.get(options.get("call_id") or "")

    @contextmanager
    def _inside(self, call_id: str | None) -> Iterator[None]:
        token = _INSIDE.set(f"{self.session.session_id}/{call_id or new_id(self._guard.clock.now_ms())}"[-256:])
        try:
            yield
        finally:
            _INSIDE.reset(token)


class FrameworkCall:
    """Guarded call that a framework makes itself between two of its hooks; used once."""

    def __init__(self, conversation: GuardConversation, tool_name: str, args: Any, **options: Any) -> None:
        """Prepare a call; `options` are those of `GuardConversation.call`."""
        self._conversation = conversation
        self._tool_name = tool_name
        self._args = args if isinstance(args, Mapping) else {"arguments": args}
        self._options = {**options, "max_attempts": 1, "dedupe_mode": "disabled"}
        self._task: asyncio.Task[ToolResult] | None = None
        self._ended: asyncio.Future[Any] | None = None

    async def begin(self) -> str:
        """Check the call and publish its start; return the refusal for the model, empty if the call may be made."""
        loop = asyncio.get_running_loop()
        begun, ended = loop.create_future(), loop.create_future()

        async def run(**_: Any) -> Any:
            begun.set_result(None)
            return await ended

        self._ended = ended
        self._task = loop.create_task(self._conversation.call(self._tool_name, run, self._args, **self._options))
        await asyncio.wait({begun, self._task}, return_when=asyncio.FIRST_COMPLETED)
        if begun.done():
            return ""
        return self._conversation.refusal(self._task.result())

    async def end(self, output: Any) -> None:
        """Publish the end of the call; `output` is its result or its exception."""
        if self._task is None or self._ended is None or self._ended.done() or self._task.done():
            return
        if isinstance(output, BaseException):
            self._ended.set_exception(output)
        else:
            self._ended.set_result(output)
        await asyncio.wait({self._task})
        if not self._task.cancelled():
            self._task.exception()  # what steers is the framework's to raise

    async def cancel(self) -> None:
        """Record that the framework did not make the call."""
        if self._task is not None and not self._task.done():
            self._task.cancel()
            await asyncio.wait({self._task})


class ConversationIndex:
    """Conversations of one guard by the framework's ids; thread-safe."""

    def __init__(self, guard: ToolGuard | SyncToolGuard) -> None:
        """Use a guard, blocking or asynchronous."""
        self.guard: ToolGuard = guard.guard if isinstance(guard, SyncToolGuard) else guard
        self._known: OrderedDict[str, GuardConversation] = OrderedDict()
        self._lock = Lock()

    def name_for(self, name: str = "") -> str:
        """Return the session id of a run: the surrounding session's, else the framework's id, else a new one.

        An agent that another one calls as a tool has a session of its own, named after that call: what it does is no
        loop of the other one.
        """
        if name_inside := inside():
            return name_inside
        surrounding = CURRENT.get()
        return surrounding.session_id if surrounding is not None else name[-256:] or new_id(self.guard.clock.now_ms())

    def of(self, name: str) -> GuardConversation:
        """Return the conversation with a session id; begins its session if necessary."""
        surrounding = CURRENT.get()
        with self._lock:
            known = self._known.pop(name, None)
            if surrounding is not None and surrounding.session_id == name:
                if known is None or known.session is not surrounding:
                    known = GuardConversation(self.guard, surrounding)
            elif known is None:
                known = GuardConversation(self.guard, GuardSession(self.guard, name, settings=SETTINGS).begin())
            self._known[name] = known
            while len(self._known) > MAX_CONVERSATIONS:
                _, oldest = self._known.popitem(last=False)
                oldest.session.end("unused")
        return known


def inside() -> str:
    """Return the session id for an agent inside a tool call; empty outside of one."""
    return _INSIDE.get()


def is_no_call(result: ToolResult) -> bool:
    """Whether a call cannot be represented in events; the framework then handles it alone."""
    return isinstance(result.exception, EnvelopeRejected)
