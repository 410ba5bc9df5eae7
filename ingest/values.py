"""Conversion of values from foreign logs to valid event fields: names, times, texts, arguments, within limits."""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

import orjson

from ..schemas.event_base import name_of, time_of
from .reading import parse

__all__ = [
    "MAX_NESTING",
    "MAX_PART",
    "MAX_TEXT",
    "MAX_VALUE_BYTES",
    "arguments_of",
    "bounded",
    "bounded_arguments",
    "first_name",
    "name_of",
    "shortened",
    "structured",
    "text_of",
    "time_of",
]

MAX_TEXT = 20_000  # Maximum characters kept of a text or a result; an event may have one megabyte in total
MAX_VALUE_BYTES = 200_000  # Maximum bytes of arguments or of a structured result that are kept unchanged

# Maximum nesting of arguments or results that are kept unchanged; an event may have 64 levels in total
MAX_NESTING = 48

MAX_PART = 2000  # Maximum characters kept of each text in a value that is too large


def first_name(holder: dict[str, Any], *keys: str) -> str:
    """Value of the first field that is a non-empty name; else an empty text."""
    return next((name for key in keys if (name := name_of(holder.get(key)))), "")


def arguments_of(given: Any) -> dict[str, Any]:
    """Arguments as an object; models send them as text, which may be invalid JSON."""
    if isinstance(given, str):
        try:
            parsed = parse(given.encode(errors="replace"))
        except ValueError:
            return {"input": given} if given else {}
        return parsed if isinstance(parsed, dict) else {"input": parsed}
    return given if isinstance(given, dict) else {} if given is None else {"input": given}


def structured(given: Any) -> Any:
    """A result; text that is a JSON object is parsed, so that its error fields are found."""
    if isinstance(given, str) and given.lstrip()[:1] == "{":
        try:
            return parse(given.encode(errors="replace"))
        except ValueError:
            return given
    return given


def text_of(content: Any) -> str:
    """Text of a message's content: a string, or a list of parts."""
    if isinstance(content, str):
        return content
    if isinstance(content, dict):
        content = [content]
    if not isinstance(content, list):
        return ""
    return "\n".join(text for part in content if (text := _text_of_part(part)))


def _text_of_part(part: Any) -> str:
    if isinstance(part, str):
        return part
    if not isinstance(part, dict):
        return ""
    for name in ("text", "refusal", "content"):
        text = part.get(name)
        if isinstance(text, dict):
            text = text.get("value")
        if isinstance(text, str):
            return text
    return ""


def shortened(text: str, limit: int = MAX_TEXT, *, distinct: bool = False) -> str:
    """A text cut to a limit: its start, its end, and how much is missing.

    Folds compare long results by start, end and length, so shortened results are equal only if the
    originals were. `distinct` adds a digest: shortened arguments stay different if the omitted part differs.
    """
    if len(text) <= limit:
        return text
    tail = limit // 4
    mark = f" {blake2b(text.encode(errors='replace'), digest_size=8).hexdigest()}" if distinct else ""
    return f"{text[: limit - tail]} ... {text[-tail:]} [{len(text) - limit} more characters{mark}]"


def bounded(value: Any, *, distinct: bool = False) -> Any:
    """A JSON value that fits into an event: if too large or too deep, with shortened texts, or as text."""
    if isinstance(value, str):
        return shortened(value, distinct=distinct)
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if not _too_deep(value):
        if len(orjson.dumps(value)) <= MAX_VALUE_BYTES:
            return value
        smaller = _with_short_texts(value, distinct=distinct)
        if len(orjson.dumps(smaller)) <= MAX_VALUE_BYTES:
            return smaller
    try:
        text = orjson.dumps(value).decode()
    except orjson.JSONEncodeError:  # deeper than JSON encoders allow
        text = "a value nested too deeply to keep"
    return shortened(text, distinct=distinct)


def bounded_arguments(value: dict[str, Any]) -> dict[str, Any]:
    """Arguments that fit into an event; still an object, and still distinct from other arguments."""
    found = bounded(value, distinct=True)
    return found if isinstance(found, dict) else {"input": found}


def _too_deep(value: Any) -> bool:
    level = [value]
    for _ in range(MAX_NESTING):
        level = [
            inner
            for one in level
            for inner in (one.values() if isinstance(one, dict) else one)
            if isinstance(inner, (dict, list))
        ]
        if not level:
            return False
    return True


def _with_short_texts(value: Any, *, distinct: bool) -> Any:
    if isinstance(value, str):
        return shortened(value, MAX_PART, distinct=distinct)
    if isinstance(value, dict):
        return {name: _with_short_texts(inner, distinct=distinct) for name, inner in value.items()}
    if isinstance(value, list):
        return [_with_short_texts(inner, distinct=distinct) for inner in value]
    return value
