"""Converter of OpenTelemetry exports to events: spans of frameworks, and log events of coding agents.

Spans are read as `trustfold import --format otel` reads a file of them. Coding agents export log events in place of
spans: `claude_code.tool_result`, `codex.tool_result`, `gemini_cli.tool_call` (and Qwen Code's) are calls, `user_prompt`
is a message of the user or what the agent passes on in the user's name, `compaction` and `chat_compression` shorten the
context, and any of their events says which model speaks.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from typing import Any

import orjson

from ..guard.privacy import secrets_in
from ..ingest import ImportRun, LogDefaults
from ..ingest.base import SessionWriter, attempted
from ..ingest.otel import ExportState, SpanLog, is_model, is_tool
from ..ingest.results import GOOD, StatedEnding, failed
from ..ingest.speakers import WAKING, heard
from ..ingest.values import arguments_of, first_name, name_of, structured, text_of, time_of
from ..schemas.otlp_spans import attributes_of, spans_of
from ..schemas.words import words_in
from ..security.redaction import redact

_CALLS = frozenset(
    {"claude_code.tool_result", "codex.tool_result", "gemini_cli.tool_call", "qwen-code.tool_call", "tool_result"}
)
_PROMPTS = frozenset(
    {"claude_code.user_prompt", "codex.user_prompt", "gemini_cli.user_prompt", "qwen-code.user_prompt", "user_prompt"}
)
_COMPACTIONS = frozenset(
    {"claude_code.compaction", "gemini_cli.chat_compression", "qwen-code.chat_compression", "compaction"}
)
_WITHHELD = frozenset({"<REDACTED>", "[REDACTED]"})  # Placeholders of agents for prompts that they do not export

_ARGUMENTS = ("arguments", "function_args", "tool_input", "tool_parameters")
_REFUSALS = frozenset({"reject", "denied", "abort"})

Document = dict[str, Any]


class UnreadableExport(ValueError):
    """An export that cannot be read; the message says why."""


class ExportConverter:
    """Converter of all exports to one endpoint.

    It remembers the earlier events of sessions between exports. Call `keep` or `undo` after each export.
    """

    def __init__(self, workspace: str = "") -> None:
        """Create a converter; `workspace` is that of all events, by default the `service.name` of their resource."""
        self._workspace = workspace
        self._before = ExportState()

    def traces(self, document: Document) -> list[bytes]:
        """Convert an export of spans, in the form of OTLP's JSON, to events."""
        _check(document, "resourceSpans")
        defaults = self._defaults()
        log = SpanLog(defaults, self._before)
        for span in attempted(document, spans_of, defaults):
            if (is_tool(span) or is_model(span)) and (span.start is None or span.end is None):
                raise UnreadableExport(f"span {span.id[:32]!r} has no time, or one outside of the years 2000 to 2099")
            log.add(span)
        return self._whole(list(log.events()), defaults)

    def logs(self, document: Document) -> list[bytes]:
        """Convert an export of log records, in the form of OTLP's JSON, to events.

        Raises:
            UnreadableExport: it is not an export of log records, or the record of a call cannot be read.
        """
        _check(document, "resourceLogs")
        defaults = self._defaults()
        made = [
            event
            for resource, record in _records(document)
            for event in attempted((resource, record), lambda one: self._record(*one, defaults), defaults)
        ]
        return self._whole(made, defaults)

    def keep(self) -> None:
        """The events of the latest export are durable."""
        self._before.keep()

    def undo(self) -> None:
        """The latest export was not taken; it may come again."""
        self._before.undo()

    def _defaults(self) -> LogDefaults:
        return LogDefaults(
            workspace=self._workspace, source="otel", run=ImportRun(redact=redact, secrets_in=secrets_in)
        )

    def _whole(self, events: list[bytes], defaults: LogDefaults) -> list[bytes]:
        if defaults.run.skipped.count:
            raise UnreadableExport(defaults.run.skipped.first[0].removeprefix("otel: "))
        return events

    def _record(self, resource: Document, record: Document, defaults: LogDefaults) -> Iterator[bytes]:
        given = resource | attributes_of(record)
        kind = first_name(given, "event.name") or name_of(record.get("eventName")) or _body_of(record)
        name = first_name(given, "session.id", "conversation.id", "gen_ai.conversation.id")
        if not name:
            return
        told = self._before.of(name)
        told.model = first_name(given, "model", "gen_ai.request.model") or told.model
        if kind not in _CALLS | _PROMPTS | _COMPACTIONS:
            return
        at = _time_of(record, given)
        session = SessionWriter(name, defaults, first_name(given, "service.name"))
        session.turn, session.model = told.turn, told.model
        session.at(blake2b(orjson.dumps(record, option=orjson.OPT_SORT_KEYS), digest_size=12).hexdigest())
        if kind in _PROMPTS:
            yield from _prompted(session, text_of(given.get("prompt")), at)
            told.turn = session.turn
        elif kind in _COMPACTIONS:
            if str(given.get("success")).lower() != "false":
                yield from session.compacted(at)
        else:
            yield from _call(session, given, at)


def _prompted(session: SessionWriter, text: str, at: int) -> Iterator[bytes]:
    """Write the events of a prompt, by its speakers; a prompt whose text is withheld is the user's."""
    spoken, source = heard("" if text in _WITHHELD else text)
    if spoken or not source:
        yield from session.said_by_user(at, words=words_in(spoken) or None)
    if source:
        yield from session.received(source, at, wakes=source in WAKING)


def _call(session: SessionWriter, given: Document, at: int) -> Iterator[bytes]:
    took = _number(given.get("duration_ms"))
    call_id = first_name(given, "call_id", "tool_use_id", "tool_call_id") or "call"
    tool = first_name(given, "tool_name", "function_name")
    arguments = next((given[name] for name in _ARGUMENTS if given.get(name)), None)
    server = first_name(given, "mcp_server_name", "mcp_server")
    yield session.started(
        call_id, tool, _plain(arguments_of(arguments)), at - int(took or 0), **({"service": server} if server else {})
    )
    yield from session.finished(call_id, structured(given.get("output")), at, ending=_ending(given), duration_ms=took)


def _plain(arguments: Document) -> Document:
    """Arguments under the names that the tool has for them: Claude Code's export calls a shell's `bash_command`."""
    command = arguments.get("full_command") or arguments.get("bash_command")
    return {"command": command} if command else arguments


def _ending(given: Document) -> StatedEnding:
    if str(given.get("success")).lower() != "false":
        return GOOD
    text = next((str(given[name]) for name in ("error", "error_message", "output") if given.get(name)), "")
    if str(given.get("decision", given.get("decision_type"))).lower() in _REFUSALS:
        return failed(text, "user_rejected")
    return failed(text, first_name(given, "error_type", "error.type"))


def _check(document: Document, name: str) -> None:
    if not isinstance(document.get(name, []), list):
        raise UnreadableExport(f'send an object with a list "{name}"')


def _records(document: Document) -> Iterator[tuple[Document, Document]]:
    """Log records with the attributes of their resource."""
    for resource in document.get("resourceLogs", ()):
        if not isinstance(resource, dict):
            raise UnreadableExport("an element of resourceLogs is no object")
        about = attributes_of(resource.get("resource"))
        for scope in resource.get("scopeLogs") or ():
            records = scope.get("logRecords") if isinstance(scope, dict) else None
            for record in records if isinstance(records, list) else ():
                if isinstance(record, dict):
                    yield about, record


def _body_of(record: Document) -> str:
    body = record.get("body")
    return name_of(body.get("stringValue")) if isinstance(body, dict) else name_of(body)


def _time_of(record: Document, given: Document) -> int:
    """When it happened, milliseconds."""
    times = (record.get("timeUnixNano"), given.get("event.timestamp"), record.get("observedTimeUnixNano"))
    told = next((time for time in times if time not in {None, "", "0", 0}), None)
    at = time_of(told)
    if at is None:
        raise UnreadableExport("a record has no time, or one outside of the years 2000 to 2099")
    return at


def _number(value: Any) -> float | None:
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if 0 <= number < 1e12 else None
