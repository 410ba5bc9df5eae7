"""Messages of a model call, from spans of publishers that opted in to record them.

One shape for all: a list of messages, each with a role and parts `text`, `tool_call`, `tool_call_response`. Sources:
`gen_ai.input.messages` and `gen_ai.output.messages` (JSON text or structured, on the span or on its event), the events
and flattened attributes of older conventions (`gen_ai.prompt.0.content`), and those of OpenInference
(`llm.input_messages.0.message.content`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, NamedTuple

import orjson

from ..schemas.otlp_spans import OtlpSpan
from .values import arguments_of, first_name, name_of, structured, text_of

DETAILS = "gen_ai.client.inference.operation.details"
_FLAT = re.compile(
    r"(?:gen_ai\.(?P<old>prompt|completion)|llm\.(?P<open>input|output)_messages)\.(?P<number>\d{1,6})\.(?P<rest>.+)"
)
_CALL = re.compile(r"(?:message\.)?tool_calls\.(?P<number>\d{1,4})\.(?:tool_call\.)?(?P<rest>.+)")
_ROLE_EVENTS = {
    "gen_ai.user.message": "user",
    "gen_ai.assistant.message": "assistant",
    "gen_ai.tool.message": "tool",
    "gen_ai.choice": "choice",
}


class SpokenCall(NamedTuple):
    """Tool call requested by the model."""

    id: str
    name: str
    arguments: dict[str, Any]


class SpokenMessage(NamedTuple):
    """Message: role, text, requested calls, and results by call id."""

    role: str
    text: str
    calls: tuple[SpokenCall, ...]
    results: tuple[tuple[str, Any], ...]


class ModelExchange(NamedTuple):
    """Input and output messages of a model call."""

    told: list[SpokenMessage]
    answered: list[SpokenMessage]


def talk_of(span: OtlpSpan) -> ModelExchange:
    """Messages of a model span; empty lists if its content was not captured."""
    holders = [span.attributes, *(event.attributes for event in span.events if event.name == DETAILS)]
    told = _first(holders, "gen_ai.input.messages")
    answered = _first(holders, "gen_ai.output.messages")
    if told is None and answered is None:
        flat = _flattened(span.attributes)
        if not any(flat):
            flat = _of_events(span)
        told, answered = flat
    return ModelExchange(_said(told or ()), _said((answered or [])[:1]))


def _first(holders: Iterable[dict[str, Any]], name: str) -> list[Any] | None:
    for holder in holders:
        given = holder.get(name)
        if isinstance(given, str):
            try:
                given = orjson.loads(given)
            except orjson.JSONDecodeError:
                continue
        if isinstance(given, list):
            return given
    return None


def _said(messages: Iterable[Any]) -> list[SpokenMessage]:
    return [_message(one) for one in messages if isinstance(one, dict)]


def _message(given: dict[str, Any]) -> SpokenMessage:
    role = first_name(given, "role")
    parts = given.get("parts")
    parts = parts if isinstance(parts, list) else given["content"] if isinstance(given.get("content"), list) else []
    parts = [part for part in parts if isinstance(part, dict)]
    texts = [text_of(part) for part in parts if part.get("type") in {"text", "output_text", "input_text"}]
    calls = [part for part in parts if part.get("type") == "tool_call"] + [
        call for call in given.get("tool_calls") or () if isinstance(call, dict)
    ]
    results = [
        (
            first_name(part, "id", "tool_call_id"),
            structured(part.get("response", part.get("result", part.get("content")))),
        )
        for part in parts
        if part.get("type") == "tool_call_response"
    ]
    content = given.get("content")
    if isinstance(content, str):
        texts.append(content)
        if role == "tool":
            results.append((first_name(given, "tool_call_id", "id"), structured(content)))
    return SpokenMessage(
        role, "\n".join(text for text in texts if text), tuple(_call(one) for one in calls), tuple(results)
    )


def _call(given: dict[str, Any]) -> SpokenCall:
    function = given.get("function")
    function = function if isinstance(function, dict) else given
    return SpokenCall(name_of(given.get("id")), first_name(function, "name"), arguments_of(function.get("arguments")))


def _of_events(span: OtlpSpan) -> tuple[list[Any], list[Any]]:
    """Messages from span events (conventions up to 1.36)."""
    told: list[Any] = []
    answered: list[Any] = []
    for event in span.events:
        role = _ROLE_EVENTS.get(event.name)
        if role is None:
            continue
        inner = event.attributes.get("message")
        inner = structured(inner) if isinstance(inner, str) else inner
        about = {**event.attributes, **(inner if isinstance(inner, dict) else {})}
        for name in ("tool_calls", "content"):
            if isinstance(about.get(name), str) and about[name].lstrip()[:1] == "[":
                about[name] = _first([about], name) or about[name]
        message = {**about, "role": "assistant" if role == "choice" else role}
        message.setdefault("tool_call_id", about.get("id"))
        (answered if role == "choice" else told).append(message)
    return told, answered


def _flattened(attributes: dict[str, Any]) -> tuple[list[Any], list[Any]]:
    """Messages from numbered attributes."""
    sides: tuple[dict[int, dict[str, Any]], dict[int, dict[str, Any]]] = ({}, {})
    for name, value in attributes.items():
        found = _FLAT.match(name)
        if found is None:
            continue
        side = sides[0] if "prompt" in (found["old"] or "") or found["open"] == "input" else sides[1]
        message = side.setdefault(int(found["number"]), {"calls": {}})
        call = _CALL.match(found["rest"])
        if call is not None:
            message["calls"].setdefault(int(call["number"]), {})[call["rest"].removeprefix("function.")] = value
        else:
            message[found["rest"].removeprefix("message.")] = value
    return tuple(_in_order(side) for side in sides)  # type: ignore[return-value]


def _in_order(side: dict[int, dict[str, Any]]) -> list[Any]:
    made = []
    for number in sorted(side):
        message = side[number]
        calls = [message["calls"][place] for place in sorted(message["calls"])]
        contents = [message[name] for name in sorted(message) if name.endswith("message_content.text")]
        content = message.get("content") or "\n".join(text for text in contents if isinstance(text, str))
        made.append({**message, "content": content, "tool_calls": calls})
    return made
