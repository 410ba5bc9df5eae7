"""Common part of all agents' hooks: types of reports and answers, and parsing of a call's end."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

from ...schemas.fields import MAX_SPAN_MS
from ...schemas.words import words_in
from ..results import (
    EXIT_CODE,
    GOOD,
    INTERRUPTED,
    PROCESS,
    StatedEnding,
    by_exit_code,
    code_in,
    ending_of,
    rejection_of,
    remark_of,
)
from ..speakers import heard
from ..values import arguments_of, first_name, name_of, text_of

Payload = dict[str, Any]
"""Parsed payload of a hook."""

ReadTail = Callable[[str], bytes]
"""Returns the last part of a file, empty if it cannot be read."""


class PromptSent(NamedTuple):
    """A person sent a prompt.

    Attributes:
        words: how many; 0 if unknown.
        prompt_id: id of the prompt; empty if unknown.
        again: it may have been told before, with this id.
    """

    words: int = 0
    prompt_id: str = ""
    again: bool = False


class InputReported(NamedTuple):
    """Something other than the user told the model something; `source`: as of `input.received`."""

    source: str


class ContextShortened(NamedTuple):
    """The model's context was shortened."""


class ModelSpoke(NamedTuple):
    """A message of the model, or a piece of it.

    Attributes:
        text: the text, or the part since the last piece.
        message_id: id shared by the pieces of one message; empty for a whole message.
        final: this is the last piece of the message.
    """

    text: str
    message_id: str = ""
    final: bool = True


class CallBegan(NamedTuple):
    """The model requests a tool call; it has not been approved yet.

    Attributes:
        tool: name of the tool in the agent.
        args: arguments.
        call_id: the agent's id of the call; empty without one.
        service: MCP server of the tool; empty if unknown.
        message_id: id of the model's message that makes the call; empty if unknown.
    """

    tool: str
    args: dict[str, Any]
    call_id: str = ""
    service: str = ""
    message_id: str = ""


class CallEnded(NamedTuple):
    """A call has ended.

    Attributes:
        call: start of the call.
        ending: how it ended.
        result: return value of the tool; None if the agent does not report it.
        duration_ms: milliseconds as measured by the agent; None if unknown.
        looked_up: read from the agent's log, which tells of older calls, too: it counts only for an open call.
        workspace: digest of the workspace after the call; None if unknown.
        timed: it ends with this hook, so that what has passed since its start is its duration, if nobody was asked.
    """

    call: CallBegan
    ending: StatedEnding = GOOD
    result: Any = None
    duration_ms: float | None = None
    looked_up: bool = False
    workspace: str | None = None
    timed: bool = False


class CallsClosed(NamedTuple):
    """All calls of one message of the model have ended, made or denied; `call_ids`: those of which no more is known."""

    call_ids: tuple[str, ...] = ()


class TurnOver(NamedTuple):
    """The model's turn has ended; `text`: its last message, if it is reported with the end."""

    text: str = ""


class SessionOver(NamedTuple):
    """The conversation has ended."""

    reason: str = ""


Happening = (
    PromptSent
    | InputReported
    | ContextShortened
    | ModelSpoke
    | CallBegan
    | CallEnded
    | CallsClosed
    | TurnOver
    | SessionOver
)


class HookEvent(NamedTuple):
    """Parsed hook call.

    Attributes:
        event: the agent's name of the event.
        session: id of the conversation; never empty.
        happened: reported facts in order; empty for irrelevant events.
        subagent: id of the agent within the session; empty for the main one.
        folder: working directory; empty if not reported.
        model: name of the model; empty if not reported.
        carries: an answer to it can bring the model a text.
        asks: the agent asks a person about a call.
        attended: a person sees why a run ends; False: it runs without a terminal, which would print nothing.
    """

    event: str
    session: str
    happened: tuple[Happening, ...] = ()
    subagent: str = ""
    folder: str = ""
    model: str = ""
    carries: bool = False
    asks: bool = False
    attended: bool = True


class HookAnswer(NamedTuple):
    """Answer to a hook; all fields empty: no answer.

    Attributes:
        context: text for the model's next request.
        refusal: the call is refused, for this reason.
        question: a person must approve the call, for this reason.
        pause: the agent should stop and wait for the user, for this reason.
        notice: text for the person, which the model is not to see.
    """

    context: str = ""
    refusal: str = ""
    question: str = ""
    pause: str = ""
    notice: str = ""


class HookDialect(ABC):
    """Format of one agent's hooks: its events, payload fields and answers.

    The defaults are those of most agents, whose payloads are flat and name their event.

    Attributes:
        agent: name of the agent.
        can_ask: it can ask a person before a call; otherwise a question is answered by a refusal.
        tells_steps: it reports when all calls of a message have ended.
        takes_context: events whose answers can carry text for the model.
        takes_pause: events whose answers can end the agent's loop, for a model that goes on calling while paused.
        takes_notice: events whose answers can show the person a text.
        sessions: fields with the id of the conversation; the first present one is used.
        tool: field with the tool's name of a call.
        args: field with a call's arguments.
        ids: fields with a call's id; empty if the agent has none.
    """

    agent: ClassVar[str]
    can_ask: ClassVar[bool] = False
    tells_steps: ClassVar[bool] = False
    takes_context: ClassVar[frozenset[str]]
    takes_pause: ClassVar[frozenset[str]] = frozenset()
    takes_notice: ClassVar[frozenset[str]] = frozenset()
    sessions: ClassVar[tuple[str, ...]] = ("session_id",)
    tool: ClassVar[str] = "tool_name"
    args: ClassVar[str] = "tool_input"
    ids: ClassVar[tuple[str, ...]] = ()

    def read(self, payload: Payload, event: str, tail: ReadTail) -> HookEvent | None:
        """Parse a payload; None if it is not a hook of this agent.

        Args:
            payload: input of the hook.
            event: name of the event if the payload does not hold it.
            tail: reads the end of the agent's log, if only that contains how a call ended.
        """
        session = first_name(payload, *self.sessions)
        if not session:
            return None
        name = name_of(payload.get("hook_event_name")) or event
        return HookEvent(
            name,
            session,
            self.happened(name, payload, tail),
            subagent=first_name(payload, "agent_id"),
            folder=text_of(payload.get("cwd")),
            model=name_of(payload.get("model")),
            carries=self.carries(name, payload),
            asks=name == "PermissionRequest",
        )

    def carries(self, event: str, payload: Payload) -> bool:
        """Whether the answer to a hook can bring the model a text."""
        del payload
        return event in self.takes_context

    @abstractmethod
    def happened(self, event: str, payload: Payload, tail: ReadTail) -> tuple[Happening, ...]:
        """Return what an event reports, in order; empty for irrelevant events."""

    @abstractmethod
    def write(self, event: str, answer: HookAnswer) -> Payload:
        """Format an answer for the agent; empty without one."""

    def call(self, payload: Payload) -> CallBegan:
        """Return the call of a payload."""
        name = name_of(payload.get(self.tool)) or "unknown"
        return CallBegan(
            name,
            arguments_of(payload.get(self.args)),
            " ".join(first_name(payload, *self.ids).split()) if self.ids else "",
            service_of(name, payload.get("mcp_server") or payload.get("mcp_context")),
        )


def service_of(tool: str, given: Any = None) -> str:
    """Return the MCP server of a tool: as reported, else from a name such as `mcp__SERVER__TOOL`."""
    told = first_name(given, "name", "server_name", "serverName") if isinstance(given, dict) else name_of(given)
    parts = tool.split("__")
    return told or (name_of(parts[1]) if len(parts) > 2 and parts[0] == "mcp" else "")


def prompted(text: str, source: str = "") -> tuple[Happening, ...]:
    """Return what a prompt holds: what the user wrote, what something else did, or both.

    `source`: who sent it, if the agent says that it was not the user.
    """
    spoken, told = heard(text)
    by_others = (InputReported(told or source),) if told or (source and spoken) else ()
    return (PromptSent(words_in(spoken)), *by_others) if spoken and not source else by_others


def code_of(value: Any) -> int | None:
    """Return an exit code; None if the value is not one."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def duration_of(value: Any) -> float | None:
    """Return a duration in milliseconds; None if the value is not one."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if number and 0 <= value <= MAX_SPAN_MS else None


def failure(text: str, *, interrupted: bool = False) -> StatedEnding:
    """Return the end of a call that the agent reports as failed."""
    if interrupted:
        return INTERRUPTED
    code = code_in(EXIT_CODE, text)
    return (
        rejection_of(text) or remark_of(text) or (by_exit_code(text, code) if code else ending_of(text, failure=True))
    )


def words_of(value: Any) -> str:
    """Return the text of a tool's response in any format."""
    if isinstance(value, dict):
        for name in ("llmContent", "textResultForLlm", "error", "message", "output", "stdout", "content"):
            if (text := text_of(value.get(name))) or (text := _message(value.get(name))):
                return text
    return text_of(value)


def without_process(response: Any) -> Any:
    """Return a response without process id, which would make every run's result different."""
    text = words_of(response)
    return PROCESS.sub("", text) if text else response


def _message(value: Any) -> str:
    return text_of(value.get("message")) if isinstance(value, dict) else ""
