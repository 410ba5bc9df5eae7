"""Redaction: removes secrets from texts, JSON values and records before they leave a process or are stored.

Theory of operation. Most texts hold no secret, so the code is optimised to find that out. Byte tables split a text into
runs of token characters; only long runs with a digit or a capital letter are compared with the vendors' prefixes.
Digits are checked only in long groups, labels only if one of their words occurs. The rest is searched with the patterns
of `secret_patterns`. See docs/guard.md, Privacy.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from hashlib import sha256
from typing import Any

import msgspec
import orjson

from .secret_patterns import (
    CARD,
    DIGITS,
    EMAIL,
    GATES,
    IBAN,
    INNER,
    LABEL_ENDS,
    LABELLED,
    LONGEST_BARE,
    NAME,
    QUOTES,
    REST,
    RUN,
    SEPARATED,
    SESSION_NAME,
    STARTS,
    STRUCTURES,
    Shape,
    iban_length,
    is_card,
    labelled_secret,
    looks_random,
)

HIDDEN = "[redacted]"
"""Text that replaces a secret."""

MAX_BYTES = 1 << 20
"""Length above which a text is hidden as a whole, unread."""

LONGEST_NAME = 1_024
"""Length above which a name is not read."""

MAX_DEPTH = 32
"""Nesting depth below which values are replaced as a whole."""

HIDE_EMAILS = os.environ.get("TRUSTFOLD_REDACT_EMAILS", "").lower() in {"1", "true", "yes", "on"}
"""Whether e-mail addresses count as secrets (`TRUSTFOLD_REDACT_EMAILS`)."""

_HIDDEN = HIDDEN.encode()
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_TOKEN_BYTES = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-.~+/"
_RUNS = bytes(97 if byte in _TOKEN_BYTES else 32 for byte in range(256))
_FORMS = bytes(48 if 48 <= byte <= 57 else 65 if 65 <= byte <= 90 else byte for byte in range(256))
_MIXED = re.compile(rb"[0-9A-Z]")
_START = re.compile(rb"(?<![A-Za-z0-9])(?=([A-Za-z0-9][\w.~+/-]{2}))")
_STARTS = frozenset(STARTS)
_LONG_RUN = b"a" * RUN
_INNER = tuple((shape.needles[0], shape) for shape in INNER)
_CARD_DIGITS = b"0" * 13
_MAX_RECORD_DEPTH = 64
_SHORTEST, _SHORT = 6, 64


def is_secret_name(name: str) -> bool:
    """Whether a field with this name holds a secret; one with a longer name than any field has counts as if it did."""
    return len(name) > LONGEST_NAME or NAME.search(name if name.isupper() else _CAMEL.sub("_", name)) is not None


def redact_text(text: str, known: Iterable[str] = ()) -> str:
    """Return the text without secrets: known ones, and those that match a pattern."""
    if len(text) < _SHORTEST:
        return HIDDEN if text in known else text
    if len(text) > MAX_BYTES:
        return HIDDEN
    for secret in known:
        if secret in text:
            text = text.replace(secret, HIDDEN)
    if len(text) <= _SHORT:
        return _redact_short(text)
    raw = text.encode("utf-8", "surrogatepass")
    shown = redact_bytes(raw)
    return text if shown is raw else shown.decode("utf-8", "surrogatepass")


@lru_cache(maxsize=8192)
def _redact_short(text: str) -> str:
    """Redact names and other short texts; cached, as they recur."""
    raw = text.encode("utf-8", "surrogatepass")
    shown = redact_bytes(raw)
    return text if shown is raw else shown.decode("utf-8", "surrogatepass")


def redact_bytes(raw: bytes) -> bytes:
    """Redact UTF-8 text; returns the same object if it holds no secret. Longer than `MAX_BYTES`, it is hidden."""
    if len(raw) > MAX_BYTES:
        return _HIDDEN
    lower = raw.lower()
    forms = raw.translate(_FORMS)
    for shape in shapes_for(raw, lower, forms):
        if places := _places(shape, raw, lower):
            raw = _without(raw, places)
            lower = raw.lower()
            forms = raw.translate(_FORMS)
    for label, pattern in LABELLED if _has_label(lower) else ():
        if label in lower and (places := _labelled(pattern, raw, lower)):
            raw = _without(raw, places)
            lower = raw.lower()
            forms = raw.translate(_FORMS)
    if _CARD_DIGITS in forms.translate(None, b" -"):
        raw = CARD.sub(lambda found: _HIDDEN if is_card(found.group().decode()) else found.group(), raw)
    if b"AA00" in forms:
        raw = IBAN.sub(_hide_iban, raw)
    if HIDE_EMAILS and b"@" in raw:
        raw = EMAIL.sub(_HIDDEN, raw)
    return raw


def secret_spans(text: str) -> list[str]:
    """The secrets in a text."""
    raw = text.encode("utf-8", "surrogatepass")
    lower = raw.lower()
    places = [place for shape in shapes_for(raw, lower, raw.translate(_FORMS)) for place in _places(shape, raw, lower)]
    for label, pattern in LABELLED if _has_label(lower) else ():
        places += _labelled(pattern, raw, lower) if label in lower else ()
    return [raw[start:end].decode("utf-8", "replace") for start, end in places]


def shapes_for(raw: bytes, lower: bytes, forms: bytes) -> list[Shape]:
    """Return the shapes whose needles occur in a text, given also in lower case and with its digits as `0`."""
    text = " " + lower.decode("latin-1")  # texts are searched faster than bytes
    maybe = {
        place
        for character, gates in GATES.items()
        if character in text
        for gate, places in gates.items()
        if gate in text
        for place in places
    }
    if b"0000" in forms:
        maybe.update(place for needle, place in DIGITS if needle in forms)
    found = []
    if maybe:
        texts = {"raw": raw, "folded": lower, "forms": forms}
        for place in sorted(maybe):
            shape = STRUCTURES[place]
            if any(map(texts[shape.read].__contains__, shape.needles)):
                found.append(shape)
    if candidates := _candidates(raw):
        for start in _STARTS.intersection(_START.findall(candidates)):
            for needle, shape in STARTS[start]:
                if needle in candidates and shape not in found:
                    found.append(shape)
        for needle, shape in _INNER:
            if needle in candidates:
                found.append(shape)
    return found


def _has_label(lower: bytes) -> bool:
    """Whether a separator follows something that ends like a label."""
    if b" is " in lower or b" was " in lower:
        return True
    if b":" not in lower and b"=" not in lower and b"\t" not in lower:
        return False
    pieces = lower.translate(SEPARATED, QUOTES).split(b":")
    return not LABEL_ENDS.isdisjoint([piece.rstrip(b"0123456789")[-3:] for piece in pieces])


def _candidates(raw: bytes) -> bytes:
    """Return the long runs of token characters with a digit or a capital letter, joined by spaces."""
    runs = raw.translate(_RUNS)
    found = []
    start = runs.find(_LONG_RUN)
    while start >= 0:
        end = runs.find(b" ", start + RUN)
        run = raw[start:end] if end >= 0 else raw[start:]
        if _MIXED.search(run):
            found.append(run)
        start = runs.find(_LONG_RUN, end) if end >= 0 else -1
    return b" ".join(found)


def _places(shape: Shape, raw: bytes, lower: bytes) -> list[tuple[int, int]]:
    """Return the positions of the secrets of one shape."""
    found, done = [], 0
    for match in shape.pattern.finditer(lower if shape.read == "folded" else raw):
        start, end = match.span(match.lastindex or 0)
        if done <= start < end and (shape.check is None or shape.check(match, raw)):
            found.append((start, end))
            done = end
    return found


def _labelled(pattern: re.Pattern[bytes], raw: bytes, lower: bytes) -> list[tuple[int, int]]:
    """Return the positions of the values after labels such as `password:`."""
    found, at = [], 0
    while (match := pattern.search(lower, at)) is not None:
        place = labelled_secret(match, raw)
        if place is None:
            at = match.end(2)  # the value may contain a label itself
        else:
            start, at = place
            if at - start >= LONGEST_BARE:
                at = REST.match(raw, at).end()  # type: ignore[union-attr] # it matches anything
            found.append((start, at))
    return found


def _without(raw: bytes, places: list[tuple[int, int]]) -> bytes:
    parts, done = [], 0
    for start, end in places:
        parts += [raw[done:start], _HIDDEN]
        done = end
    return b"".join([*parts, raw[done:]])


def _hide_iban(found: re.Match[bytes]) -> bytes:
    text = found.group()
    length = iban_length(text.decode())
    return _HIDDEN + text[length:] if length else text


def redact(value: Any, known: Iterable[str] = (), depth: int = 0) -> Any:
    """Return a JSON value without secrets; objects and lists are copied, never changed."""
    if isinstance(value, str):
        return redact_text(value, known)
    if isinstance(value, bool | int | float) or value is None:
        return HIDDEN if _is_card_number(value) else value
    if depth >= MAX_DEPTH:
        return HIDDEN
    if isinstance(value, Mapping):
        return {
            redact_text(str(name), known): HIDDEN if _is_hidden(str(name), inner) else redact(inner, known, depth + 1)
            for name, inner in value.items()
        }
    if isinstance(value, list | tuple | set | frozenset):
        return [redact(inner, known, depth + 1) for inner in value]
    return redact_text(str(value), known)


def _is_hidden(name: str, value: Any) -> bool:
    if value is None or isinstance(value, bool) or value == "":
        return False
    if SESSION_NAME.search(_CAMEL.sub("_", name)) is not None:
        return isinstance(value, str) and len(value) >= 2 * 8 and looks_random(value.encode("utf-8", "replace"))
    return is_secret_name(name)


def _is_card_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 10**12 <= value < 10**19 and is_card(str(value))


# --- records ---------------------------------------------------------------------------------------------------------

_FREE = frozenset({"args", "result", "context", "annotations", "data"})
"""Fields of a record with foreign objects, in which names indicate secrets."""

_IDENTITIES = frozenset(
    "id session_id workspace_id user_id tenant_id agent_id correlation_id call_id output_id"
    " args_digest result_digest text_digest idempotency_key".split()
)
"""Identifying fields: their redacted values must still differ."""

_KNOWN = (
    _FREE
    | _IDENTITIES
    | frozenset(
        "schema_version type time turn_index status duration_ms attempts result_size deadline_ms recursion_depth"
        " from_cache cost_usd expected_failure tool_class model model_tier"
        " tool_name plugin_name service error text reason scenario failure_key mentions announces thought"
        " method granted".split()
    )
)
"""Names of fields that need no check."""

MAX_CLEAN = 20_000
"""Number of clean values cached; the cache is cleared when it is full."""

_clean: set[bytes] = set()
_PLAIN = re.compile(
    rb'"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:\d\d)"'
    rb'|"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"|-?\d{1,12}(?:\.\d{1,9})?'
)
"""Times, UUIDs and small numbers, as JSON."""

_read_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_ESCAPED = re.compile(rb"\\u00[2-7]")
_FIELD = re.compile(rb"\"([\w .:-]{2,80})\"\s*:")


@lru_cache(maxsize=4096)
def _is_secret_field(name: bytes) -> bool:
    return is_secret_name(name.decode(errors="replace"))


def redact_record(value: bytes) -> bytes:
    """Redact a record of any topic, as JSON; returns the same object if it holds no secret.

    Digests, times and counts are skipped. A value that is not JSON, or is nested too deeply, is redacted as text.
    """
    try:
        fields = _read_fields(value)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return redact_bytes(value)
    texts = [text for text in map(bytes, fields.values()) if text not in _clean and _PLAIN.fullmatch(text) is None]
    texts += [name.encode("utf-8", "surrogatepass") for name in fields.keys() - _KNOWN]
    if not texts:
        return value
    if not may_hold_secrets(b" ".join(texts)):
        _remember(texts)
        return value
    try:
        record = orjson.loads(value)
    except orjson.JSONDecodeError:
        return redact_bytes(value)
    shown = _redact_fields(record)
    return value if shown == record else orjson.dumps(shown)


def _remember(texts: list[bytes]) -> None:
    """Cache short values without secrets: most of them recur in the next record."""
    if len(_clean) >= MAX_CLEAN:
        _clean.clear()
    _clean.update([text for text in texts if len(text) <= _SHORT])


def may_hold_secrets(json: bytes) -> bool:
    """Whether a JSON text must be checked value by value: False only if it holds no secret."""
    if b"\\" in json:
        if b"\\/" in json or (b"\\u00" in json and _ESCAPED.search(json)):
            return True
        for escape, character in ((b"\\n", b"\n"), (b"\\r", b"\n"), (b"\\t", b"\t"), (b'\\"', b'"')):
            json = json.replace(escape, character)
    return redact_bytes(json) is not json or (b'":' in json and any(map(_is_secret_field, _FIELD.findall(json))))


def _redact_fields(record: dict[str, Any]) -> dict[str, Any]:
    if "specversion" in record and isinstance(record.get("data"), dict):  # CloudEvents: the record is inside
        return {name: _redact_fields(inner) if name == "data" else _texts(inner) for name, inner in record.items()}
    return {
        name if name in _KNOWN else redact_text(name): redact(inner)
        if name in _FREE
        else redact_id(inner)
        if name in _IDENTITIES
        else _texts(inner)
        for name, inner in record.items()
    }


def redact_id(value: Any) -> Any:
    """Redact an id: one that contains a secret is replaced by its digest."""
    if not isinstance(value, str) or redact_text(value) == value:
        return value if isinstance(value, str) else _texts(value)
    return f"[redacted:{sha256(value.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}]"


def _texts(value: Any, depth: int = 0) -> Any:
    """Redact the texts of a JSON value; its names belong to the contract."""
    if isinstance(value, str):
        return redact_text(value)
    if depth >= _MAX_RECORD_DEPTH:
        return HIDDEN
    if isinstance(value, dict):
        return {redact_text(name): _texts(inner, depth + 1) for name, inner in value.items()}
    return [_texts(inner, depth + 1) for inner in value] if isinstance(value, list) else value
