"""Redaction of what the folds tell: secrets of publishers that are no guard leave a worker in no record of its own.

On Kafka the topic `events` is the publishers' own, and looking through all of it would cost half the worker's speed
(decision 0035). Little of it gets into what the folds write: names, ids and keys, mostly the same ones again and
again. Texts that were looked at are remembered, so that a record costs a few look-ups. What is remembered changes no
answer: the same record is always redacted in the same way.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from itertools import filterfalse
from operator import attrgetter
from typing import Any, get_args, get_origin

import msgspec
import orjson

from ..schemas.codec import encode
from ..schemas.outcomes import US
from ..security.redaction import redact_id, redact_record, redact_text
from ..security.secret_patterns import STARTS

MAX_KNOWN = 50_000
"""Clean texts remembered; when there are more, all are forgotten and looked at again."""

_known: set[str | tuple[str, ...] | None] = set()

_ID = re.compile(
    r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
    r"|(?:[a-z]{2,12}[_-])?((?![0-9]{13}|[A-Z]{2}[0-9]{2})[A-Za-z0-9]{1,40})"
)
_TOKEN_STARTS = frozenset(start.decode() for start in STARTS)

_OWN = frozenset(("schema_version", "id", "time", "origin_topic"))
"""Fields of our own making; ids derive from that of the cause, which stands beside them."""

_PREFIXES = frozenset(("trust", "breaker", "quality", "model", "user"))
_NAMED = ("tool:", "service:", "tier:")


def holds_secret(record: msgspec.Struct) -> bool:
    """Whether a record that a fold has made holds a secret in any text."""
    texts, nested = _fields_of(type(record))
    for text in filterfalse(_known.__contains__, texts(record)):
        if not _is_clean(text):
            return True
    return any(not _is_nested_clean(getattr(record, name)) for name in nested)


def without_secrets(record: msgspec.Struct) -> tuple[bytes, str]:
    """A record that holds a secret, as JSON without it, and its id."""
    fields = orjson.loads(encode(record))
    texts = {name: _part_by_part(value) if isinstance(value, str) else value for name, value in fields.items()}
    raw = redact_record(orjson.dumps(texts))
    return raw, orjson.loads(raw)["id"]


def key_without_secrets(key: str) -> str:
    """A record key without secrets: ids in it are replaced as in the record."""
    return US.join(map(_part_without_secrets, key.split(US)))


def _part_without_secrets(part: str) -> str:
    if part in _known or _is_clean(part):
        return part
    if part.startswith(_NAMED):
        return redact_text(_part_by_part(part))
    prefix, colon, rest = part.partition(":")
    shown: str = prefix + colon + redact_id(rest) if colon and prefix in _PREFIXES else redact_id(part)
    return shown


def _part_by_part(text: str) -> str:
    """A text without secrets that only stand out when it is read as a key: between `|`, and without escapes."""
    if "|" not in text and "\\" not in text:
        return text
    return "|".join(
        part if (shown := redact_text(plain := part.replace("\\", ""))) == plain else shown for part in text.split("|")
    )


def _is_clean(text: str | tuple[str, ...] | None) -> bool:
    """Whether a text, or each of several, holds no secret; if so, it is remembered."""
    if isinstance(text, str):
        clean = is_plain_id(text) or (redact_text(text) == text and _are_parts_clean(text))
    else:
        clean = all(map(_is_clean, text or ()))
    if clean:
        if len(_known) >= MAX_KNOWN:
            _known.clear()
        _known.add(text)
    return clean


def _are_parts_clean(text: str) -> bool:
    """Whether the parts of a key hold no secret; the last one reads as it does in the whole key."""
    if "\\" in text:
        return _part_by_part(text) == text
    return all(part in _known or _is_clean(part) for part in text.split("|")[:-1])


def _is_nested_clean(value: Any) -> bool:
    """The same for a dict or a record inside of a record."""
    if not value:
        return True
    raw = msgspec.json.encode({"nested": value})
    return redact_record(raw) is raw


def is_plain_id(text: str) -> bool:
    """Whether a text is plainly an id without a secret: found several times as fast as by its redaction."""
    found = _ID.fullmatch(text)
    return found is not None and _TOKEN_STARTS.isdisjoint((text[:3], (found[1] or text)[:3]))


@cache
def _fields_of(kind: type[msgspec.Struct]) -> tuple[Callable[[Any], tuple[Any, ...]], tuple[str, ...]]:
    """A function that reads the texts of a record, and the names of fields with dicts and records."""
    texts, nested = [], []
    for field in msgspec.structs.fields(kind):
        types = _types_in(field.type)
        if field.name in _OWN or field.name.endswith(("_at", "_until")):
            continue
        if dict in types or any(isinstance(one, type) and issubclass(one, msgspec.Struct) for one in types):
            nested.append(field.name)
        elif str in types:
            texts.append(field.name)
    return attrgetter(*texts), tuple(nested)


def _types_in(annotation: Any) -> set[Any]:
    """A type and those that it is made of."""
    return {get_origin(annotation) or annotation}.union(*map(_types_in, get_args(annotation)))
