"""Redaction of the folds' outputs: no worker writes secrets of unguarded publishers into its own records.

On Kafka the topic `events` belongs to the publishers, and redacting all of it would halve the worker's speed (decision
0035). Few of its texts get into outputs: names, ids and keys, mostly recurring ones. Clean texts are cached, so that a
record costs a few look-ups. The cache does not affect results.
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
from ..security.redaction import TOKEN_STARTS, redact_id, redact_record, redact_text

MAX_KNOWN = 50_000  # Number of clean texts cached; the cache is cleared when it is full

_known: set[str | tuple[str, ...] | None] = set()

# Text between texts that are searched together: nothing is read across it, and any secret may begin after it
_BETWEEN = '\n.\n"'

_ID = re.compile(
    r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
    r"|(?:[a-z]{2,12}[_-])?((?![0-9]{13}|[A-Z]{2}[0-9]{2})[A-Za-z0-9]{1,39})"
)
_TOKEN_STARTS = frozenset(start.decode() for start in TOKEN_STARTS)

# Fields created by the folds; ids derive from that of the cause, which is in the same record, and summaries and
# messages are made without secrets
_OWN = frozenset(
    (
        "schema_version",
        "id",
        "time",
        "origin_topic",
        "summary",
        "error_message",
        "last_error",
        "signature",
        "call_digest",
        "result_digest",
    )
)

_PREFIXES = frozenset(("trust", "breaker", "quality", "model", "user"))
_NAMED = ("tool:", "service:", "tier:")


def holds_secret(record: msgspec.Struct) -> bool:
    """Whether an output record holds a secret in any text."""
    texts, nested = _fields_of(type(record))
    new = list(filterfalse(_known.__contains__, texts(record)))
    if new and not _are_clean_together(new) and not all(map(_is_clean, new)):
        return True
    return bool(nested) and any(not _is_nested_clean(getattr(record, name)) for name in nested)


def without_secrets(record: msgspec.Struct) -> tuple[bytes, str]:
    """Return a record with a secret as redacted JSON, and its id."""
    fields = orjson.loads(encode(record))
    texts = {name: _part_by_part(value) if isinstance(value, str) else value for name, value in fields.items()}
    raw = redact_record(orjson.dumps(texts))
    return raw, orjson.loads(raw)["id"]


def key_without_secrets(key: str) -> str:
    """Return a record key without secrets: ids in it are replaced as in the record."""
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
    """Redact secrets that are recognised only in a key's parts: between `|`, and without escapes."""
    if "|" not in text and "\\" not in text:
        return text
    return "|".join(
        part
        if (shown := redact_text(plain := _without_escapes(part))) == plain
        else shown.replace("\n", "\\J").replace("\t", "\\I")
        for part in text.split("|")
    )


def _without_escapes(part: str) -> str:
    r"""Return a part of a key as it reads: with its line ends (`\J`) and tabs (`\I`), and without backslashes."""
    return part.replace("\\J", "\n").replace("\\I", "\t").replace("\\", "")


def _are_clean_together(texts: list[str | tuple[str, ...] | None]) -> bool:
    """Whether one search finds no secret in several texts, nor in their parts; False says nothing."""
    parts: list[str] = []
    for text in texts:
        for whole in (text,) if isinstance(text, str) else text or ():
            if not is_plain_id(whole):
                parts += (part for part in (whole, *whole.split("|")[:-1]) if part not in _known)
    if parts:  # mostly only ids are new
        together = _BETWEEN.join(parts)
        if "\\" in together or redact_text(together) != together:
            return False
    if len(_known) >= MAX_KNOWN:
        _known.clear()
    _known.update(texts, parts)
    return True


def _is_clean(text: str | tuple[str, ...] | None) -> bool:
    """Whether a text, or each of several, holds no secret; clean ones are cached."""
    if isinstance(text, str):
        clean = is_plain_id(text) or (redact_text(text) == text and _are_parts_clean(text))
    else:
        clean = all(part in _known or _is_clean(part) for part in text or ())
    if clean:
        if len(_known) >= MAX_KNOWN:
            _known.clear()
        _known.add(text)
    return clean


def _are_parts_clean(text: str) -> bool:
    """Whether the parts of a key hold no secret; the last one is the same in the whole key."""
    if "\\" in text:
        return _part_by_part(text) == text
    return all(part in _known or _is_clean(part) for part in text.split("|")[:-1])


def _is_nested_clean(value: Any) -> bool:
    """Same as `_is_clean` for a dict or a struct inside a record."""
    if not value:
        return True
    raw = msgspec.json.encode({"nested": value})
    return redact_record(raw) is raw


def is_plain_id(text: str) -> bool:
    """Whether a text is obviously an id without a secret: several times as fast as its redaction."""
    found = _ID.fullmatch(text)
    return found is not None and _TOKEN_STARTS.isdisjoint((text[:3], (found[1] or text)[:3]))


@cache
def _fields_of(kind: type[msgspec.Struct]) -> tuple[Callable[[Any], tuple[Any, ...]], tuple[str, ...]]:
    """Return a function that reads the texts of a record, and the names of fields with dicts and structs."""
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
    """Return a type and its type arguments, recursively."""
    return {get_origin(annotation) or annotation}.union(*map(_types_in, get_args(annotation)))
