"""OpenTelemetry spans of agents, as written by a collector's file exporter or an SDK's console exporter.

Tool spans become calls; model spans give the model and, where their content was captured, its messages;
arguments and results are taken where a publisher has opted in to them. Names are those of OpenTelemetry's conventions
for generative AI, new and old, and those of OpenInference, OpenLLMetry and frameworks with names of their own. One call
may be seen by several instrumentations, as spans within one another: it counts once. Where no span stands for calls of
tools, the calls that models asked for count. A session is a conversation, else a trace. Spans come in the order in
which they ended; events are put into the order of time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from ..schemas.otlp_spans import OtlpSpan, spans_of
from ..schemas.words import words_in
from .base import LogDefaults, SessionWriter, attempted, each
from .otel_messages import ModelExchange, talk_of
from .reading import Lines, objects_of
from .results import GOOD, StatedEnding, ending_of, failed
from .values import arguments_of, name_of, structured

MAX_REMEMBERED = 10_000  # Number of sessions and traces kept between exports

_TOOL = "execute_tool"
_MODEL_OPERATIONS = frozenset({"chat", "generate_content", "text_completion", "invoke_agent"})
_KINDS = ("openinference.span.kind", "traceloop.span.kind", "langfuse.observation.type", "mlflow.spanType")
_NAME = ("gen_ai.tool.name", "tool.name", "ai.toolCall.name", "traceloop.entity.name")
_CALL_ID = ("gen_ai.tool.call.id", "tool_call.id", "ai.toolCall.id", "tool.id")
_ARGUMENTS = (
    "gen_ai.tool.call.arguments", "input.value", "ai.toolCall.args", "ai.toolCall.input", "traceloop.entity.input",
    "tool_arguments", "gcp.vertex.agent.tool_call_args", "langfuse.observation.input", "mlflow.spanInputs",
)  # fmt: skip
_RESULT = (
    "gen_ai.tool.call.result", "output.value", "ai.toolCall.result", "ai.toolCall.output", "traceloop.entity.output",
    "tool_response", "gcp.vertex.agent.tool_response", "langfuse.observation.output", "mlflow.spanOutputs",
    "gen_ai.tool.message",
)  # fmt: skip
# Attribute of a call that waits for a person or runs elsewhere: it was not made, and is none yet
_DEFERRED = "pydantic_ai.tool.deferral.name"

_MODEL = ("gen_ai.response.model", "gen_ai.request.model", "llm.model_name", "llm.response.model", "ai.model.id")
_SESSION = (
    "gen_ai.conversation.id", "session.id", "langfuse.session.id", "gcp.vertex.agent.session_id",
    "traceloop.association.properties.session_id", "traceloop.association.properties.conversation_id",
    "traceloop.association.properties.thread_id", "traceloop.association.properties.chat_id",
    "ai.telemetry.metadata.sessionId", "mlflow.trace.session", "thread_id",
)  # fmt: skip
_AGENT = ("gen_ai.agent.id", "gen_ai.agent.name", "agent.name")


def read_otel(lines: Lines, defaults: LogDefaults) -> Iterator[bytes]:
    """Read the events of all spans, session by session.

    Raises:
        ConfigError: nothing in it is JSON.
    """
    records = objects_of(lines, defaults.file or defaults.source, defaults.run.skipped)
    log = SpanLog(defaults)
    for span in each(records, spans_of, defaults):
        log.add(span)
    defaults.run.line = 0
    yield from log.events()


@dataclass
class SpanState:
    """State of a session after the spans read so far."""

    trace: str | None = None  # latest trace; None before the first
    users: int = 0  # messages of the user
    turn: int = -1  # turn of the session, -1 before the first
    model: str = ""  # model of the last message


class ExportState:
    """State kept between several exports."""

    def __init__(self) -> None:
        """Start empty."""
        self.named: dict[str, str] = {}  # session by trace, if one of its spans names it
        self._sessions: dict[str, SpanState] = {}
        self._as_kept: dict[str, SpanState] = {}

    def of(self, session: str) -> SpanState:
        """Mutable state of a session."""
        told = self._sessions.setdefault(session, SpanState())
        self._as_kept.setdefault(session, replace(told))
        return told

    def keep(self) -> None:
        """Commit all changes; evict the oldest entries above the limit."""
        self._as_kept.clear()
        for known in (self._sessions, self.named):
            for name in list(known)[: max(0, len(known) - MAX_REMEMBERED)]:
                del known[name]

    def undo(self) -> None:
        """Restore the sessions as of the last `keep`."""
        self._sessions.update(self._as_kept)
        self._as_kept.clear()


def is_tool(span: OtlpSpan) -> bool:
    """True if a span is a tool call; the guard's own spans are not, since it publishes its calls itself."""
    if span.get("trustfold.guard"):
        return False
    operation = span.get("gen_ai.operation.name")
    if operation is not None:
        if operation == _TOOL:
            return True
    elif span.name.partition(" ")[0] == _TOOL:
        return True
    kinds = {str(span.attributes.get(name)).lower() for name in _KINDS}
    return "tool" in kinds or span.get("ai.toolCall.name") is not None or span.get("mcp.method.name") == "tools/call"


def is_model(span: OtlpSpan) -> bool:
    """True if a span is a model call."""
    operation = span.get("gen_ai.operation.name")
    if operation is not None:
        return str(operation) in _MODEL_OPERATIONS
    kinds = {str(span.attributes.get(name)).lower() for name in _KINDS}
    named = span.name.partition(" ")[0] in _MODEL_OPERATIONS or span.get(*_MODEL) is not None
    return bool(kinds & {"llm", "generation", "chat_model"}) or (named and not is_tool(span))


class SpanLog:
    """Spans of a file or of one export."""

    def __init__(self, defaults: LogDefaults, before: ExportState | None = None) -> None:
        """Start without spans; `before` is the state of earlier exports, and more may follow.

        Calls requested by models are then left out, since the spans of those tools may be in another export.
        """
        self._defaults = defaults
        self._spans: dict[tuple[str, str], OtlpSpan] = {}
        self._before = before or ExportState()
        self._one_of_many = before is not None

    def add(self, span: OtlpSpan) -> None:
        """Add a span; repeated ones, from exporters' retries, count once."""
        key = (span.trace, span.id or f"no id {len(self._spans)}")
        if key in self._spans:
            self._defaults.run.skipped.repeated += 1
            return
        self._spans[key] = span
        name = name_of(span.get(*_SESSION))
        if name:
            self._before.named.setdefault(span.trace, name)

    def events(self) -> Iterator[bytes]:
        """Yield the events of the spans, session by session."""
        sessions: dict[str, list[OtlpSpan]] = {}
        for span in self._spans.values():
            tool = is_tool(span)
            if (tool and not self._is_seen_twice(span)) or (is_model(span) and not tool):
                sessions.setdefault(self._session_of(span), []).append(span)
        for name, spans in sessions.items():
            yield from attempted((name, spans), self._session, self._defaults)

    def _session_of(self, span: OtlpSpan) -> str:
        own = self._defaults.session or name_of(span.get(*_SESSION))
        for outer in self._around(span):
            own = own or name_of(outer.get(*_SESSION))
        return own or self._before.named.get(span.trace, "") or span.trace or self._defaults.source

    def _around(self, span: OtlpSpan) -> Iterator[OtlpSpan]:
        """Ancestors of a span, innermost first."""
        seen = {span.id}
        while (outer := self._spans.get((span.trace, span.parent))) is not None and outer.id not in seen:
            seen.add(outer.id)
            yield outer
            span = outer

    def _is_seen_twice(self, span: OtlpSpan) -> bool:
        """True if an ancestor span is the same call."""
        for outer in self._around(span):
            if is_tool(outer):
                ids = {_stated_id(span), _stated_id(outer)} - {""}
                return _tool_name(outer) == _tool_name(span) and len(ids) < 2
        return False

    def _session(self, named: tuple[str, list[OtlpSpan]]) -> Iterator[bytes]:
        name, spans = named
        resource = spans[0].resource
        session = SessionWriter(name, self._defaults, name_of(resource.get("service.name")))
        tools = self._one_of_many or any(is_tool(span) for span in spans)
        if not tools and not any(any(talk_of(span)) for span in spans):
            return
        moments: list[tuple[int, int, OtlpSpan]] = []
        for span in spans:
            if span.get(_DEFERRED):
                continue
            start, end = span.start if span.start is not None else span.end, span.end
            if start is None:
                self._defaults.skip(f"span {span.id or span.name!r} has no time")
                continue
            moments.append((start, 1, span))
            if end is not None:
                moments.append((max(start, end), 0 if end > start else 2, span))
        told = self._before.of(name)
        session.turn, session.model = told.turn, told.model
        reader = _SpanReader(session, self._models(spans), told, tools=tools)
        for at, kind, span in sorted(moments, key=lambda moment: moment[:2]):
            session.at(f"{span.trace} {span.id or span.name} {kind == 1}")
            session.agent = name_of(self._found(span, *_AGENT))
            yield from attempted((span, at, kind == 1), reader.moment, self._defaults)
        yield from session.interrupted()
        told.turn, told.model = session.turn, session.model

    def _found(self, span: OtlpSpan, *names: str) -> Any:
        """Attribute of a span, else of its nearest ancestor that has it."""
        found = span.get(*names)
        for outer in self._around(span):
            found = found if found is not None else outer.get(*names)
        return found

    def _models(self, spans: list[OtlpSpan]) -> dict[tuple[str, str], str]:
        """Model that requested each tool span.

        It is the model of the span itself, else the last to answer under the same parent, else under an ancestor,
        else in the same trace.
        """
        by_parent: dict[tuple[str, str], str] = {}
        by_trace: dict[str, str] = {}
        found: dict[tuple[str, str], str] = {}
        late: list[OtlpSpan] = []
        for span in sorted(spans, key=lambda span: span.start or span.end or 0):
            model = name_of(span.get(*_MODEL))
            if not is_tool(span):
                if model:
                    by_parent[span.trace, span.parent] = by_parent[span.trace, span.id] = by_trace[span.trace] = model
                found[span.trace, span.id] = model
                continue
            around = (name_of(outer.get(*_MODEL)) for outer in self._around(span))
            under = by_parent.get((span.trace, span.parent)) if span.parent else None
            model = model or under or next(filter(None, around), "") or by_trace.get(span.trace, "")
            found[span.trace, span.id] = model
            if not model:
                late.append(span)
        return found | {(span.trace, span.id): by_trace.get(span.trace, "") for span in late}


class _SpanReader:
    """Converts the spans of one session, in the order of their starts and ends, into events."""

    def __init__(
        self, session: SessionWriter, models: dict[tuple[str, str], str], told: SpanState, *, tools: bool
    ) -> None:
        self._session = session
        self._models = models
        self._told = told
        self._tools = tools
        self._asked: set[str] = set()
        self._messages: dict[str, str] = {}

    def moment(self, moment: tuple[OtlpSpan, int, bool]) -> Iterator[bytes]:
        span, at, begins = moment
        session = self._session
        tool = is_tool(span)
        if begins:
            session.model = self._models.get((span.trace, span.id), "") or ("" if tool else session.model)
            talk = ModelExchange([], []) if tool else talk_of(span)
            yield from self._turn(span, talk, at)
            if tool:
                call_id = _call_id(span)
                message_id = self._messages.get(call_id)
                yield session.started(
                    call_id, _tool_name(span), _arguments(span), at, **_service(span), message_id=message_id
                )
            elif not self._tools:
                yield from self._results(talk, at)
        elif tool:
            session.model = self._models.get((span.trace, span.id), "")
            result = _result(span)
            yield from session.finished(_call_id(span), result, at, ending=_ending(span, result))
        else:
            session.model = self._models.get((span.trace, span.id), "") or session.model
            yield from self._answer(span.id, talk_of(span), at)

    def _turn(self, span: OtlpSpan, talk: ModelExchange, at: int) -> Iterator[bytes]:
        """Start a turn at a new user message, else at a new trace."""
        users = [said.text for said in talk.told if said.role == "user" and (said.text or not said.results)]
        before = self._told
        if len(users) > before.users:
            before.users, before.trace = len(users), span.trace
            yield from self._session.said_by_user(at, words=words_in(users[-1]) or None)
        elif span.trace != before.trace:
            before.trace = span.trace
            self._session.turn += 1
            yield self._session.event("turn.started", at)

    def _results(self, talk: ModelExchange, at: int) -> Iterator[bytes]:
        for said in talk.told:
            for call_id, result in said.results:
                if self._session.is_open(call_id):
                    yield from self._session.finished(call_id, result, at, ending=ending_of(result))

    def _answer(self, message_id: str, talk: ModelExchange, at: int) -> Iterator[bytes]:
        """Report a message of the model, named by its span, and the calls that it makes if they have no spans."""
        for said in talk.answered:
            yield from self._session.said_by_model(said.text, at)
            self._messages.update((call.id, message_id) for call in said.calls if call.id)
            for call in said.calls if not self._tools else ():
                if not call.id or call.id not in self._asked:
                    self._asked.add(call.id)
                    yield self._session.started(call.id, call.name, call.arguments, at, message_id=message_id or None)


def _tool_name(span: OtlpSpan) -> str:
    given = name_of(span.get(*_NAME))
    return given or span.name.removeprefix(f"{_TOOL} ").removeprefix("tools/call ").removesuffix(".tool")


def _arguments(span: OtlpSpan) -> dict[str, Any]:
    given = arguments_of(span.get(*_ARGUMENTS))
    if given.keys() <= {"args", "kwargs", "inputs", "tags", "metadata", "input_str"}:  # OpenLLMetry: arguments
        inner = given.get("kwargs") or given.get("inputs")
        if isinstance(inner, dict) and inner and not given.get("args"):
            return inner
    return given


def _call_id(span: OtlpSpan) -> str:
    return _stated_id(span) or span.id


def _stated_id(span: OtlpSpan) -> str:
    return name_of(span.get(*_CALL_ID)) or name_of(_message(span).get("tool_call_id"))


def _message(span: OtlpSpan) -> dict[str, Any]:
    """LangChain's message about a call's result, which holds the call's id; empty if the result is none."""
    found = structured(span.get(*_RESULT))
    for one in (found, *(found.get(name) for name in ("data", "kwargs"))) if isinstance(found, dict) else ():
        if isinstance(one, dict) and {"tool_call_id", "content"} <= one.keys():
            return one
    return {}


def _result(span: OtlpSpan) -> Any:
    found = _message(span).get("content", span.get(*_RESULT))
    if found is None:
        events = (event.attributes for event in span.events if event.name in {"gen_ai.choice", "gen_ai.tool.message"})
        found = next((one.get("message", one.get("content")) for one in events if one), None)
    return structured(found)


def _service(span: OtlpSpan) -> dict[str, str]:
    service = name_of(span.get("mcp.server.name", "server.address")) if span.get("mcp.method.name") else ""
    return {"service": service} if service else {}


def _ending(span: OtlpSpan, result: Any) -> StatedEnding:
    """Ending of a call by its status, its recorded exception, else its result."""
    told = name_of(span.get("error.type", "exception.type"))
    status = str(span.get("gen_ai.tool.status", "tool.status") or _message(span).get("status")).lower()
    if span.failed is False and not told:
        return GOOD
    raised: dict[str, Any] = next((event.attributes for event in span.events if event.name == "exception"), {})
    if not (span.failed or told or span.get("error") is True or status in {"error", "failed"}):
        return ending_of(result) if not raised or span.failed is False else _of_exception(span, raised, told)
    return _of_exception(span, raised, told)


def _of_exception(span: OtlpSpan, raised: dict[str, Any], told: str) -> StatedEnding:
    kind = told if told not in {"", "_OTHER"} else name_of(raised.get("exception.type"))
    text = span.message or str(raised.get("exception.message") or span.get("tool.error", "exception.message") or "")
    http = span.get("http.response.status_code", "http.status_code")
    if http is None and told.isdecimal() and len(told) == 3:
        http = told
    try:
        more = {"http_status": int(http)} if http is not None and 0 <= int(http) <= 999 else {}
    except (TypeError, ValueError):
        more = {}
    return failed(text, kind, **more)
