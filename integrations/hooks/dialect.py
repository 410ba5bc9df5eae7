"""What the hooks of all agents have in common: what can happen, what can be answered, and how a call's end is read."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

from ...history.importers.claude_code import is_spoken
from ...history.importers.results import (
    EXIT_CODE,
    GOOD,
    INTERRUPTED,
    PROCESS,
    Ending,
    by_exit_code,
    code_in,
    ending_of,
    remark_of,
)
from ...history.importers.values import arguments_of, first_name, name_of, text_of
from ...schemas.fields import MAX_SPAN_MS

Payload = dict[str, Any]
"""What a hook was given, parsed."""

ReadTail = Callable[[str], bytes]
"""Gives the last part of a file, empty where it cannot be read."""


class Prompted(NamedTuple):
    """A person sent a prompt."""


class Said(NamedTuple):
    """The model said something, or a piece of it.

    Attributes:
        text: the words, or those that came since the last piece.
        message_id: pieces of one message share it; empty for a whole message.
        final: nothing of this message follows.
    """

    text: str
    message_id: str = ""
    final: bool = True


class CallBegan(NamedTuple):
    """The model wants to call a tool; nobody has allowed it yet.

    Attributes:
        tool: name as the agent has it.
        args: arguments.
        call_id: the agent's id of the call; empty where it has none.
        service: MCP server behind the tool; empty if none is known.
    """

    tool: str
    args: dict[str, Any]
    call_id: str = ""
    service: str = ""


class CallEnded(NamedTuple):
    """A call is over.

    Attributes:
        call: as it began.
        ending: how it ended.
        result: what the tool returned; None where the agent does not tell.
        duration_ms: milliseconds as the agent measured them; None where it did not.
    """

    call: CallBegan
    ending: Ending = GOOD
    result: Any = None
    duration_ms: float | None = None


class CallsClosed(NamedTuple):
    """Calls of these ids are over, whether they were made or denied."""

    call_ids: tuple[str, ...]


class TurnOver(NamedTuple):
    """The model's turn is over; `text`: its last message, where it is told with it."""

    text: str = ""


class SessionOver(NamedTuple):
    """The conversation is over."""

    reason: str = ""


Happening = Prompted | Said | CallBegan | CallEnded | CallsClosed | TurnOver | SessionOver


class Hook(NamedTuple):
    """One hook, understood.

    Attributes:
        event: the agent's own name of the event.
        session: id of the conversation; never empty.
        happened: what it tells, in order; empty where the event means nothing here.
        subagent: id of the agent within the session; empty for the main one.
        folder: working directory; empty where it is not told.
        model: name of the model; empty where it is not told.
    """

    event: str
    session: str
    happened: tuple[Happening, ...] = ()
    subagent: str = ""
    folder: str = ""
    model: str = ""


class Answer(NamedTuple):
    """What there is to say to a hook; all empty: nothing.

    Attributes:
        context: words for the model's next request.
        refusal: the call may not be made, for this reason.
        question: a person must allow the call, for this reason.
        pause: the agent should stop and wait for the user, for this reason.
    """

    context: str = ""
    refusal: str = ""
    question: str = ""
    pause: str = ""


class Dialect(ABC):
    """How one agent speaks: its events, where its payloads hold what, and how it is answered.

    The values here are those of most agents, whose payloads are flat and name their event.

    Attributes:
        agent: its name.
        can_ask: it can ask a person before a call; if not, a question is answered with a refusal.
        takes_context: events whose answers bring words to the model.
        takes_pause: events whose answers end the agent's loop; elsewhere only further calls can be refused.
        sessions: fields that hold the id of the conversation; the first that is given counts.
        tool: field that holds the name of a call's tool.
        args: field that holds a call's arguments.
        ids: fields that hold a call's id, as above; none where the agent has no ids.
    """

    agent: ClassVar[str]
    can_ask: ClassVar[bool] = False
    takes_context: ClassVar[frozenset[str]]
    takes_pause: ClassVar[frozenset[str]] = frozenset()
    sessions: ClassVar[tuple[str, ...]] = ("session_id",)
    tool: ClassVar[str] = "tool_name"
    args: ClassVar[str] = "tool_input"
    ids: ClassVar[tuple[str, ...]] = ()

    def read(self, payload: Payload, event: str, tail: ReadTail) -> Hook | None:
        """Understand a payload; None for what is no hook of this agent.

        Args:
            payload: what the hook was given.
            event: its name where the payload does not hold it.
            tail: reads the end of a log that the agent keeps, where only that tells how a call ended.
        """
        session = first_name(payload, *self.sessions)
        if not session:
            return None
        name = name_of(payload.get("hook_event_name")) or event
        return Hook(
            name,
            session,
            self.happened(name, payload, tail),
            subagent=first_name(payload, "agent_id"),
            folder=text_of(payload.get("cwd")),
            model=name_of(payload.get("model")),
        )

    @abstractmethod
    def happened(self, event: str, payload: Payload, tail: ReadTail) -> tuple[Happening, ...]:
        """What an event tells, in order; nothing where it means nothing here."""

    @abstractmethod
    def write(self, event: str, answer: Answer) -> Payload:
        """Put an answer into the agent's own form; empty where there is nothing to say."""

    def call(self, payload: Payload) -> CallBegan:
        """The call that a payload is about."""
        name = name_of(payload.get(self.tool)) or "unknown"
        return CallBegan(
            name,
            arguments_of(payload.get(self.args)),
            " ".join(first_name(payload, *self.ids).split()) if self.ids else "",
            service_of(name, payload.get("mcp_server") or payload.get("mcp_context")),
        )


def service_of(tool: str, given: Any = None) -> str:
    """MCP server behind a tool: as told, else from a name such as `mcp__SERVER__TOOL`."""
    told = first_name(given, "name", "server_name", "serverName") if isinstance(given, dict) else name_of(given)
    parts = tool.split("__")
    return told or (name_of(parts[1]) if len(parts) > 2 and parts[0] == "mcp" else "")


def prompted(text: str) -> tuple[Happening, ...]:
    """A prompt; nothing where the agent's own client wrote it."""
    return (Prompted(),) if is_spoken(text) else ()


def code_of(value: Any) -> int | None:
    """An exit code; None for what is none."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def duration_of(value: Any) -> float | None:
    """A duration in milliseconds; None for what is none."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if number and 0 <= value <= MAX_SPAN_MS else None


def failure(text: str, *, interrupted: bool = False) -> Ending:
    """The end of a call that the agent says has failed."""
    if interrupted:
        return INTERRUPTED
    code = code_in(EXIT_CODE, text)
    return remark_of(text) or (by_exit_code(text, code) if code else ending_of(text, failure=True))


def words_of(value: Any) -> str:
    """Text of a tool's response, in whatever shape it comes."""
    if isinstance(value, dict):
        for name in ("llmContent", "textResultForLlm", "error", "message", "output", "stdout", "content"):
            if (text := text_of(value.get(name))) or (text := _message(value.get(name))):
                return text
    return text_of(value)


def without_process(response: Any) -> Any:
    """A response without the number of the process, which makes every run of a command look like another result."""
    text = words_of(response)
    return PROCESS.sub("", text) if text else response


def _message(value: Any) -> str:
    return text_of(value.get("message")) if isinstance(value, dict) else ""
