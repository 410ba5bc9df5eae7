"""Transcripts in the format of OpenAI: chat messages with tool calls, and items of the Responses API.

A file holds one transcript or many: an object with `messages` (or `input`/`output` items), a list of messages, or one
of these a line. Transcripts have no times; unless they do (`created`, `created_at`, `timestamp`), events are a second
apart.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .base import (
    SYNTHETIC_START_MS,
    Defaults,
    Lines,
    Session,
    arguments_of,
    each,
    name_of,
    objects_of,
    text_of,
    time_of,
)

_SESSION = ("session_id", "conversation_id", "thread_id", "id", "custom_id")
_TIME = ("timestamp", "created_at", "created")


def read_openai(lines: Lines, defaults: Defaults) -> Iterator[bytes]:
    """Events of every transcript of a file, one session each."""
    loose: list[dict[str, Any]] = []
    number = 0
    for record in objects_of(lines, defaults.source):
        items = _items(record)
        if items is None:
            loose.append(record)
            continue
        number += 1
        name = next((str(record[key]) for key in _SESSION if record.get(key)), f"{defaults.source}#{number}")
        yield from _transcript(items, record, defaults.session or name, defaults)
    if loose:
        yield from _transcript(loose, {}, defaults.session or defaults.source, defaults)


def _items(record: dict[str, Any]) -> list[dict[str, Any]] | None:
    """Messages or items of a transcript; None for one that is itself a message."""
    found: list[Any] = []
    if isinstance(record.get("body"), dict):
        return _items(record["body"])
    for name in ("messages", "traj", "input", "output", "choices"):
        if isinstance(record.get(name), list):
            found += [one["message"] if name == "choices" and "message" in one else one for one in record[name]]
    return [one for one in found if isinstance(one, dict)] or None


def _transcript(items: list[dict[str, Any]], about: dict[str, Any], name: str, defaults: Defaults) -> Iterator[bytes]:
    began = next((time for key in _TIME if (time := time_of(about.get(key))) is not None), SYNTHETIC_START_MS)
    session = Session(name, defaults.workspace, at_ms=began)
    session.model = name_of(about.get("model"))
    yield session.event("session.started", began)
    yield from each(items, lambda item: _item(session, item))
    yield session.event("session.ended")


def _item(session: Session, item: dict[str, Any]) -> Iterator[bytes]:
    at = next((time for key in _TIME if (time := time_of(item.get(key))) is not None), None)
    session.model = name_of(item.get("model")) or session.model
    role, kind = item.get("role"), item.get("type")
    if kind in {"function_call", "custom_tool_call", "mcp_call"}:
        call_id = item.get("call_id") or item.get("id") or ""
        server = {"service": name_of(item["server_label"])} if item.get("server_label") else {}
        yield session.started(call_id, item.get("name", ""), item.get("arguments", item.get("input")), at, **server)
        if kind == "mcp_call":
            yield session.finished(call_id, item.get("output"), at, failed=bool(item.get("error")) or None)
    elif kind in {"function_call_output", "custom_tool_call_output"}:
        yield session.finished(item.get("call_id", ""), _content(item.get("output")), at)
    elif role == "user":
        yield from session.said_by_user(at)
    elif role in {"tool", "function"}:
        call_id = item.get("tool_call_id") or item.get("name") or ""
        yield session.finished(call_id, _content(item.get("content")), at, tool=item.get("name", ""))
    elif role == "assistant":
        yield from session.said_by_model(text_of(item.get("content")), at)
        for call in item.get("tool_calls") or ():
            function = call.get("function") or call.get("custom") or {}
            arguments = function.get("arguments", function.get("input"))
            yield session.started(call.get("id") or function.get("name", ""), function.get("name", ""), arguments, at)
        if isinstance(item.get("function_call"), dict):
            function = item["function_call"]
            yield session.started(function.get("name", ""), function.get("name", ""), function.get("arguments"), at)


def _content(content: Any) -> Any:
    """A tool's answer: text that is an object counts as that object, so that what it reports is seen."""
    text = text_of(content) if not isinstance(content, dict) else content
    if isinstance(text, str) and text.lstrip()[:1] == "{":
        parsed = arguments_of(text)
        return parsed if parsed.keys() != {"input"} else text
    return text
