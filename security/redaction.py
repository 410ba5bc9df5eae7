"""Redaction: removes secrets from texts, JSON values and records before they leave a process or are stored.

Theory of operation. Most texts hold no secret, so the code is optimised to find that out. Byte tables split a text into
runs of token characters; only long runs with a digit or a capital letter are compared with the vendors' prefixes.
Digits are checked only in long groups, labels only where what precedes a separator ends like one. The rest is searched
with the patterns of `secret_patterns` whose words or characters occur. Texts in base64 and with percent signs are
decoded and searched, too. See docs/guard.md, Privacy.
"""

from __future__ import annotations

import os
import re
from base64 import b64decode
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from hashlib import sha256
from typing import Any
from urllib.parse import unquote_to_bytes

import msgspec
import orjson

from .secret_patterns import (
    BASE64,
    BETWEEN,
    CARD,
    DIGITS,
    EMAIL,
    ENCODED,
    GATES,
    IBAN,
    INNER,
    LABEL_ENDS,
    LABEL_GROUPS,
    LONGEST_BARE,
    OTHERS,
    QUOTES,
    REST,
    RUN,
    SEPARATED,
    STARTS,
    STRUCTURES,
    WIDE,
    WORD_SET,
    WORDS,
    Label,
    Shape,
    iban_length,
    is_card,
    is_secret_name,
    is_session_name,
    labelled_secret,
    looks_random,
)

HIDDEN = "[redacted]"
"""Text that replaces a secret."""

MAX_BYTES = 1 << 20
"""Length above which a text is hidden as a whole, unread."""

MAX_DEPTH = 32
"""Nesting depth below which values are replaced as a whole."""

HIDE_EMAILS = os.environ.get("TRUSTFOLD_REDACT_EMAILS", "").lower() in {"1", "true", "yes", "on"}
"""Whether e-mail addresses count as secrets (`TRUSTFOLD_REDACT_EMAILS`)."""

_HIDDEN = HIDDEN.encode()
_TOKEN_BYTES = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-.~+/"
_RUNS = bytes(97 if byte in _TOKEN_BYTES else 32 for byte in range(256))
_FORMS = bytes(48 if 48 <= byte <= 57 else 65 if 65 <= byte <= 90 else byte for byte in range(256))
_MIXED = re.compile(rb"[0-9A-Z]")
_START = re.compile(rb"(?<![A-Za-z0-9])(?=([A-Za-z0-9][\w.~+/-]{2}))")
_STANDARD = bytes.maketrans(b"-_", b"+/")
_LONG_RUN = b"a" * RUN
_INNER = tuple((shape.needles[0], shape) for shape in INNER)
_CARD_DIGITS = b"0" * 13
_MAX_RECORD_DEPTH = 64
_LONGEST_LABEL = 60
_MAX_ENCODINGS = 2
_ESCAPE = re.compile(rb"%[2-7][0-9A-Fa-f]")
_PERCENT = re.compile(
    rb"(?<![^\s\"'<>`\\])[^\s\"'<>`\\%]*(?:%(?![2-7][0-9A-Fa-f])[^\s\"'<>`\\%]*)*%[2-7][0-9A-Fa-f][^\s\"'<>`\\]*"
)
"""A run with a character that is written as its code."""
_SHORTEST, _SHORT = 6, 64


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


def redact_bytes(raw: bytes, depth: int = 0) -> bytes:
    """Redact UTF-8 text; returns the same object if it holds no secret. Longer than `MAX_BYTES`, it is hidden."""
    if len(raw) > MAX_BYTES:
        return _HIDDEN
    text, lower, forms = _views(raw)
    for shape in shapes_for(text, lower, forms):
        if places := _places(shape, text, lower):
            raw = _without(raw, places)
            text, lower, forms = _views(raw)
    for label in _labels(lower):
        if places := _labelled(label, text, lower):
            raw = _without(raw, places)
            text, lower, forms = _views(raw)
    if b"000" in forms and _CARD_DIGITS in forms.translate(None, b" -"):
        raw = CARD.sub(lambda found: _HIDDEN if is_card(found.group().decode()) else found.group(), raw)
    if b"AA00" in forms:
        raw = IBAN.sub(_hide_iban, raw)
    if HIDE_EMAILS and b"@" in raw:
        raw = EMAIL.sub(_HIDDEN, raw)
    if depth < _MAX_ENCODINGS:
        if b"%" in raw and _ESCAPE.search(raw):
            raw = _PERCENT.sub(lambda run: _decoded(run.group(), unquote_to_bytes(run.group()), depth), raw)
        if b"&quot;" in raw or b"\\u0022" in raw:
            raw = _decoded(raw, raw.replace(b"&quot;", b'"').replace(b"\\u0022", b'"'), depth)
    return raw


def _views(raw: bytes) -> tuple[bytes, bytes, bytes]:
    r"""Return a text as it is searched, each byte at its place: with line ends for `\n`, in lower case, as forms."""
    if b"\\n" in raw:
        raw = raw.replace(b"\\\\n", b"\0\0\0").replace(b"\\n", b"\n ").replace(b"\0\0\0", b"\\\\n")
    return raw, raw.lower(), raw.translate(_FORMS)


def _is_encoded_secret(match: re.Match[bytes], _: bytes) -> bool:
    """Whether a run in base64 holds a secret."""
    run = match.group().rstrip(b"=").translate(_STANDARD)
    if run[:4] not in ENCODED and run[:3] != b"eyJ":
        return False
    plain = b64decode(run[: len(run) - (len(run) % 4 == 1)] + b"==")
    return redact_bytes(plain, _MAX_ENCODINGS) is not plain


def _decoded(raw: bytes, plain: bytes, depth: int) -> bytes:
    """Return an encoded text as it is, or decoded and redacted if it holds a secret."""
    shown = redact_bytes(plain, depth + 1)
    return raw if shown is plain else shown.decode("utf-8", "replace").encode()


def secret_spans(text: str) -> list[str]:
    """The secrets in a text."""
    raw = text.encode("utf-8", "surrogatepass")
    seen, lower, forms = _views(raw)
    places = [place for shape in shapes_for(seen, lower, forms) for place in _places(shape, seen, lower)]
    for label in _labels(lower):
        places += _labelled(label, seen, lower)
    return [raw[start:end].decode("utf-8", "replace") for start, end in places]


_ENCODED = Shape("base64", BASE64, tuple(ENCODED), check=_is_encoded_secret)

TOKEN_STARTS = {start: (*found,) for start, found in STARTS.items()}
"""Shapes of tokens with their needle, by the first three bytes."""

for _needle in ENCODED:
    TOKEN_STARTS[_needle[:3]] = (*TOKEN_STARTS.get(_needle[:3], ()), (_needle, _ENCODED))
_STARTS = frozenset(TOKEN_STARTS)


def shapes_for(raw: bytes, lower: bytes, forms: bytes) -> list[Shape]:
    """Return the shapes whose needles occur in a text, given also in lower case and with its digits as `0`."""
    maybe = {
        place
        for character, gates in GATES.items()
        if character in lower
        for gate, places in gates.items()
        if gate in lower
        for place in places
    }
    words = WORD_SET.intersection(lower.translate(BETWEEN).split())
    for word in words:
        maybe.update(WORDS.get(word, ()))
    if b"0000" in forms:
        maybe.update(place for needle, place in DIGITS if needle in forms)
    texts = {"raw": raw, "folded": lower, "forms": forms}
    found = [
        shape
        for shape in [STRUCTURES[place] for place in sorted(maybe)]
        if not (shape.beside and shape.beside.isdisjoint(words))
        and (shape.anchored or any(map(texts[shape.read].__contains__, shape.needles)))
    ]
    if candidates := _candidates(raw):
        found += _tokens_in(candidates)
    return found


def _tokens_in(candidates: bytes) -> list[Shape]:
    """Return the shapes of tokens that long runs of token characters may have."""
    found: list[Shape] = []
    for start in _STARTS.intersection(_START.findall(candidates)):
        for needle, shape in TOKEN_STARTS[start]:
            if needle in candidates and shape not in found:
                found.append(shape)
    for needle, shape in _INNER:
        if needle in candidates:
            found.append(shape)
    return found


def _labels(lower: bytes) -> list[Label]:
    """Return the labels that a text, in lower case, may have before its separators."""
    if not lower.isascii() and lower.translate(None, OTHERS):
        for separator in WIDE:
            lower = lower.replace(separator, b":")
    if b" is " in lower or b" was " in lower:
        lower = lower.replace(b" is ", b":").replace(b" was ", b":")
    elif b":" not in lower and b"=" not in lower:
        return []
    ends = [
        piece
        for piece in lower.translate(SEPARATED, QUOTES).split(b":")
        if piece.rstrip(b"0123456789")[-3:] in LABEL_ENDS
    ]
    if not ends:
        return []
    groups = {group for end in ends for group in LABEL_ENDS[end.rstrip(b"0123456789")[-3:]]}
    tails = b"\n".join([end[-_LONGEST_LABEL:] for end in ends])
    found: list[Label] = []
    for group in sorted(groups):
        for word, label in LABEL_GROUPS[group]:
            if word in tails and label not in found:
                found.append(label)
    return found


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
    text = lower if shape.read == "folded" else raw
    for match in (
        _beginning_with(shape, text) if shape.anchored and shape.read != "forms" else shape.pattern.finditer(text)
    ):
        start, end = match.span(match.lastindex or 0)
        if done <= start < end and (shape.check is None or shape.check(match, raw)):
            found.append((start, end))
            done = end
    return found


def _beginning_with(shape: Shape, text: bytes) -> Iterator[re.Match[bytes]]:
    """Yield the matches of an anchored shape, in order of place."""
    places = []
    for needle in shape.needles:
        at = text.find(needle)
        while at >= 0:
            places.append(at)
            at = text.find(needle, at + 1)
    done = 0
    for at in sorted(places):
        if at >= done and (match := shape.pattern.match(text, at)):
            done = match.end()
            yield match


def _labelled(label: Label, raw: bytes, lower: bytes) -> list[tuple[int, int]]:
    """Return the positions of the values after labels such as `password:`."""
    found, at = [], 0
    while (match := label.pattern.search(lower, at)) is not None:
        place = labelled_secret(match, raw, label.foreign)
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
        named = any(isinstance(value.get(name), str) and is_secret_name(value[name]) for name in _NAMING)
        return {
            redact_text(str(name), known): HIDDEN
            if _is_hidden(str(name), inner) or (named and name in _NAMED and isinstance(inner, str) and inner)
            else redact(inner, known, depth + 1)
            for name, inner in value.items()
        }
    if isinstance(value, list | tuple | set | frozenset):
        if len(value) == 2 and isinstance(value, list | tuple) and _is_pair(*value):
            return [redact(value[0], known, depth + 1), HIDDEN]
        return [redact(inner, known, depth + 1) for inner in value]
    return redact_text(str(value), known)


_NAMING = ("name", "key", "field", "header", "variable", "property", "param", "setting")
_NAMED = frozenset(("value", "values", "val", "content"))
"""Fields of an object that names a value, as in lists of headers and variables."""


def _is_pair(name: Any, value: Any) -> bool:
    """Whether two texts are the name and the value of a secret."""
    return (
        isinstance(name, str)
        and isinstance(value, str)
        and is_secret_name(name)
        and looks_random(value.encode("utf-8", "replace"))
    )


def _is_hidden(name: str, value: Any) -> bool:
    if value is None or isinstance(value, bool) or value == "":
        return False
    if is_session_name(name):
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
