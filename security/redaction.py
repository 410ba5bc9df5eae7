"""Redaction: removes secrets from texts, JSON values and records before they leave a process or are stored.

Theory of operation. Most texts hold no secret, so the code is optimised to find that out. One search finds all strings
(needles) without which no expression of `secret_patterns` matches, and an expression is tried only where its needles
are; tests prove that none misses a match. Tokens of vendors are looked for in long runs of token characters with
a digit or a capital letter only. Texts in base64 and with percent signs are decoded and searched, too.
See docs/guard.md, Privacy.
"""

from __future__ import annotations

import os
import re
from base64 import b64decode
from collections.abc import Iterable, Iterator, Mapping
from functools import cache, lru_cache
from hashlib import sha256
from typing import Any, NamedTuple
from urllib.parse import unquote_to_bytes

import msgspec
import orjson
from ahocorasick_rs import BytesAhoCorasick, Implementation

from .secret_patterns.labels import LABELS, LONGEST_BARE, REST, SecretLabel, labelled_secret
from .secret_patterns.names import is_secret_name, is_session_name
from .secret_patterns.numbers import CARD, EMAIL, IBAN, iban_length, is_card
from .secret_patterns.shapes import SecretShape, plain
from .secret_patterns.structures import STRUCTURES
from .secret_patterns.tokens import BASE64, ENCODED, HEX, HEX_STARTS, RUN, TOKENS
from .secret_patterns.values import MASK, looks_random

HIDDEN = "[redacted]"  # Text that replaces a secret
MAX_BYTES = 1 << 20  # Length above which a text is hidden as a whole, unread
MAX_DEPTH = 32  # Nesting depth below which values are replaced as a whole

# Whether e-mail addresses count as secrets (`TRUSTFOLD_REDACT_EMAILS`)
HIDE_EMAILS = os.environ.get("TRUSTFOLD_REDACT_EMAILS", "").lower() in {"1", "true", "yes", "on"}

_HIDDEN = HIDDEN.encode()
_TOKEN_BYTES = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-.~+/"
_RUNS = bytes(97 if byte in _TOKEN_BYTES else 32 for byte in range(256))
_FORMS = bytes(48 if 48 <= byte <= 57 else 65 if 65 <= byte <= 90 else byte for byte in range(256))
_MIXED = re.compile(rb"[0-9A-Z]")
_STANDARD = bytes.maketrans(b"-_", b"+/")
_LONG_RUN = b"a" * RUN
_CARD_DIGITS = b"0" * 13
_MAX_RECORD_DEPTH = 64
_LONGEST_LABEL = 60
_MAX_ENCODINGS = 2
_ESCAPE = re.compile(rb"%[2-7][0-9A-Fa-f]")
# A run with a character that is written as its code
_PERCENT = re.compile(
    rb"(?<![^\s\"'<>`\\])[^\s\"'<>`\\%]*(?:%(?![2-7][0-9A-Fa-f])[^\s\"'<>`\\%]*)*%[2-7][0-9A-Fa-f][^\s\"'<>`\\]*"
)
_SHORTEST, _SHORT = 6, 64
# Letters that are not seen or as wide as those of Chinese: soft hyphen, zero-width signs, full-width ASCII
_DISGUISED = (b"\xef", b"\xe2\x80\x8b", b"\xe2\x80\x8c", b"\xe2\x80\x8d", b"\xe2\x81\xa0", b"\xc2\xad")
_SEEN_AS = dict.fromkeys(map(ord, "\u00ad\u200b\u200c\u200d\u2060\ufeff")) | {
    wide: wide - 0xFEE0 for wide in range(0xFF01, 0xFF5F)
}


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
    raw = _without_shapes(raw)
    forms = raw.translate(_FORMS)
    if b"000" in forms and _CARD_DIGITS in forms.translate(None, b" -"):
        raw = CARD.sub(lambda found: _HIDDEN if is_card(found.group().decode()) else found.group(), raw)
    if b"AA00" in forms:
        raw = IBAN.sub(_hide_iban, raw)
    if HIDE_EMAILS and b"@" in raw:
        raw = EMAIL.sub(_HIDDEN, raw)
    if depth < _MAX_ENCODINGS:
        if not raw.isascii() and any(sign in raw for sign in _DISGUISED):
            raw = _decoded(raw, raw.decode("utf-8", "replace").translate(_SEEN_AS).encode(), depth)
        if b"%" in raw and _ESCAPE.search(raw):
            raw = _PERCENT.sub(lambda run: _decoded(run.group(), unquote_to_bytes(run.group()), depth), raw)
        if b"&quot;" in raw or b"\\u0022" in raw:
            raw = _decoded(raw, raw.replace(b"&quot;", b'"').replace(b"\\u0022", b'"'), depth)
    return raw


def _without_shapes(raw: bytes) -> bytes:
    """Return a text without what matches a shape or follows a label; the same object if there is none."""
    text = SearchedText(raw)
    hidden: list[tuple[int, int]] = []
    for rule in text.rules:
        if places := text.places(rule):
            text.hide(places)
            hidden += places
    return _hidden(raw, _joined(hidden)) if hidden else raw


def _is_encoded_secret(match: re.Match[bytes], _: bytes) -> bool:
    """Whether a run in base64 holds a secret."""
    run = match.group().rstrip(b"=").translate(_STANDARD)
    if run[:4] not in ENCODED and run[:3] != b"eyJ":
        return False
    decoded = b64decode(run[: len(run) - (len(run) % 4 == 1)] + b"==")
    return redact_bytes(decoded, _MAX_ENCODINGS) is not decoded


def _is_secret_in_hex(match: re.Match[bytes], _: bytes) -> bool:
    """Whether a run of hex digits is the text of a token."""
    digits = match.group().decode()
    if len(digits) % 2:
        return False
    decoded = bytes.fromhex(digits)
    return redact_bytes(decoded, _MAX_ENCODINGS) is not decoded


def _decoded(raw: bytes, decoded: bytes, depth: int) -> bytes:
    """Return an encoded text as it is, or decoded and redacted if it holds a secret."""
    shown = redact_bytes(decoded, depth + 1)
    return raw if shown is decoded else shown.decode("utf-8", "replace").encode()


def secret_spans(text: str) -> list[str]:
    """The secrets in a text."""
    raw = text.encode("utf-8", "surrogatepass")
    seen = SearchedText(raw)
    places = [place for rule in seen.rules for place in seen.places(rule)]
    return [raw[start:end].decode("utf-8", "replace") for start, end in places]


# --- the search ------------------------------------------------------------------------------------------------------

_ENCODED = (
    SecretShape("base64", BASE64, tuple(sorted(ENCODED)), anchored=True, check=_is_encoded_secret),
    SecretShape("hex", HEX, HEX_STARTS, anchored=True, check=_is_secret_in_hex),
)

# Expressions that texts are searched with, in this order: earlier ones may contain later ones
RULES: tuple[SecretShape | SecretLabel, ...] = (*STRUCTURES, *TOKENS, *_ENCODED, *LABELS)

# First three bytes of tokens
TOKEN_STARTS = frozenset(
    (needle + last)[:3]
    for shape in (*TOKENS, *_ENCODED)
    if shape.anchored
    for needle in shape.needles
    for last in ((b"",) if len(needle) > 2 else (bytes((byte,)) for byte in range(45, 127)))
)

_FIRST_TOKEN, _FIRST_LABEL = len(STRUCTURES), len(STRUCTURES) + len(TOKENS) + len(_ENCODED)

# Values after labels that are judged: so many, and one for so many bytes; a text with more is hidden from there on
SOME_VALUES, BYTES_OF_VALUE = 500, 40

_CHUNK = 1 << 16  # Bytes that are searched at once: what is found takes more memory than the text


class NeedleSearch:
    """Search for all needles of some rules at once."""

    def __init__(self, needles: Mapping[int, Iterable[bytes]]) -> None:
        every = sorted({needle for some in needles.values() for needle in some})
        self.needles = every  # the needles, by number
        self.numbers = {needle: number for number, needle in enumerate(every)}  # their numbers
        # the numbers of a rule's needles
        self.of_rule = {rule: [self.numbers[needle] for needle in some] for rule, some in needles.items()}
        self.rules: list[tuple[int, ...]] = [()] * len(every)  # the rules of a needle, by number
        for rule, some in self.of_rule.items():
            for number in some:
                self.rules[number] = (*self.rules[number], rule)
        self._longest = max(map(len, every))
        self._search = BytesAhoCorasick(every, implementation=Implementation.DFA).find_matches_as_indexes

    def find(self, text: bytes) -> dict[int, list[int]]:
        """Return the places of each needle in a text, by the needle's number."""
        found: dict[int, list[int]] = {}
        for number, start, _ in self._search(text, overlapping=True) if len(text) <= _CHUNK else self._in_parts(text):
            if number in found:
                found[number].append(start)
            else:
                found[number] = [start]
        return found

    def _in_parts(self, text: bytes) -> Iterator[tuple[int, int, int]]:
        for begin in range(0, len(text), _CHUNK):
            for number, start, end in self._search(text[begin : begin + _CHUNK + self._longest - 1], overlapping=True):
                if start < _CHUNK:
                    yield number, begin + start, begin + end


class SecretSearch(NamedTuple):
    """Searches for the needles and tokens of all rules."""

    needles: NeedleSearch  # those of structures and labels
    tokens: NeedleSearch  # those of tokens
    # what must be beside the needles of a rule: sets of needles, and strings
    beside: dict[int, tuple[frozenset[int] | tuple[bytes, ...], ...]]


@cache
def _search() -> SecretSearch:
    needles = NeedleSearch(
        {
            rule: one.needles if isinstance(one, SecretShape) else one.words
            for rule, one in enumerate(RULES)
            if not _FIRST_TOKEN <= rule < _FIRST_LABEL
        }
    )
    return SecretSearch(
        needles,
        NeedleSearch({rule: shape.needles for rule, shape in enumerate((*TOKENS, *_ENCODED), _FIRST_TOKEN)}),
        {
            rule: tuple(
                frozenset(map(needles.numbers.__getitem__, group)) if needles.numbers.keys() >= set(group) else group
                for group in shape.beside
            )
            for rule, shape in enumerate(STRUCTURES)
            if shape.beside
        },
    )


class SearchedText:
    r"""Text in which secrets are looked for."""

    def __init__(self, raw: bytes) -> None:
        if b"\\n" in raw:
            raw = raw.replace(b"\\\\n", b"\0\0\0").replace(b"\\n", b"\n ").replace(b"\0\0\0", b"\\\\n")
        self.raw = raw  # the text, with line ends for `\n`, each byte at its place
        self._lower: bytes | None = None
        self._values_left = SOME_VALUES + len(raw) // BYTES_OF_VALUE
        search = _search()
        plain_text = plain(raw)
        self._found = search.needles.find(plain_text)
        rules: set[int] = set()
        for number in self._found:
            rules.update(search.needles.rules[number])
        rules = {
            rule for rule in rules if rule not in search.beside or self._is_beside(plain_text, search.beside[rule])
        }
        self._tokens: dict[int, list[int]] = {}
        if runs := self._runs():
            for number in search.tokens.find(runs):
                for rule in search.tokens.rules[number]:
                    self._tokens.setdefault(rule, []).append(number)
        self.rules = sorted([*rules, *self._tokens])  # the numbers of the rules that may match it, in order

    def hide(self, places: list[tuple[int, int]]) -> None:
        """Hide places from rules that are tried later; all others stay where they are."""
        parts, done = [], 0
        for start, end in places:
            parts += [self.raw[done:start], MASK * (end - start)]
            done = end
        self.raw = b"".join([*parts, self.raw[done:]])
        self._lower = None

    def _is_beside(self, plain_text: bytes, groups: tuple[frozenset[int] | tuple[bytes, ...], ...]) -> bool:
        for group in groups:
            if isinstance(group, frozenset):
                if group.isdisjoint(self._found):
                    return False
            else:
                for one in group:
                    if one in plain_text:
                        break
                else:
                    return False
        return True

    @property
    def lower(self) -> bytes:
        """The text in lower case."""
        if self._lower is None:
            self._lower = self.raw.lower()
        return self._lower

    def _runs(self) -> bytes:
        """Return the long runs of token characters with a digit or a capital letter, joined by spaces."""
        raw, runs = self.raw, self.raw.translate(_RUNS)
        found = []
        start = runs.find(_LONG_RUN)
        while start >= 0:
            end = runs.find(b" ", start + RUN)
            run = raw[start:end] if end >= 0 else raw[start:]
            if _MIXED.search(run):
                found.append(run)
            start = runs.find(_LONG_RUN, end) if end >= 0 else -1
        return b" ".join(found)

    def places(self, rule: int) -> list[tuple[int, int]]:
        """Return the places of the secrets that a rule finds."""
        one = RULES[rule]
        return self._of_label(rule, one) if isinstance(one, SecretLabel) else self._of_shape(rule, one)

    def _starts(self, rule: int) -> list[int]:
        """Return the places where a rule's needles are."""
        if rule not in self._tokens:
            return sorted(place for number in _search().needles.of_rule[rule] for place in self._found.get(number, ()))
        places = []
        for number in self._tokens[rule]:
            needle = _search().tokens.needles[number]
            at = self.raw.find(needle)
            while at >= 0:
                places.append(at)
                at = self.raw.find(needle, at + 1)
        return sorted(places)

    def _of_shape(self, rule: int, shape: SecretShape) -> list[tuple[int, int]]:
        found, done = [], 0
        is_token = rule >= _FIRST_TOKEN
        for match in (
            self._beginning_with(rule, shape)
            if shape.anchored
            else shape.pattern.finditer(self.lower if shape.folded else self.raw)
        ):
            if shape.places is not None:
                if match.start() >= done:
                    places, done = shape.places(match, self.raw)
                    found += places
                continue
            start, end = match.span(match.lastindex or 0)
            if (
                done <= start < end
                and (not is_token or _MIXED.search(match.group()))
                and (shape.check is None or shape.check(match, self.raw))
            ):
                found.append((start, end))
                done = end
        return found

    def _beginning_with(self, rule: int, shape: SecretShape) -> Iterator[re.Match[bytes]]:
        """Yield the matches of an anchored shape, in order of place."""
        text, done = self.lower if shape.folded else self.raw, 0
        for at in self._starts(rule):
            if at >= done and (match := shape.pattern.match(text, at)):
                done = match.end()
                yield match

    def _of_label(self, rule: int, label: SecretLabel) -> list[tuple[int, int]]:
        """Return the places of the values after labels such as `password:`."""
        found: list[tuple[int, int]] = []
        done = 0
        for at in self._starts(rule):
            if at < done or (match := label.pattern.match(self.lower, at)) is None:
                continue
            self._values_left -= 1
            if self._values_left < 0:
                return [*found, (at, len(self.raw))]
            place = labelled_secret(match, self.raw, label.foreign)
            if place is None:
                done = match.end(2)  # the value may contain a label itself
            else:
                start, done = place
                if done - start >= LONGEST_BARE:
                    done = REST.match(self.raw, done).end()  # type: ignore[union-attr] # it matches anything
                found.append((start, done))
        return found


def _joined(places: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return places in order; those that overlap become one."""
    joined: list[tuple[int, int]] = []
    for start, end in sorted(places):
        if joined and start < joined[-1][1]:
            joined[-1] = joined[-1][0], max(end, joined[-1][1])
        else:
            joined.append((start, end))
    return joined


def _hidden(raw: bytes, places: list[tuple[int, int]]) -> bytes:
    """Return a text with `HIDDEN` in each of some places."""
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
        named = any(
            isinstance(inner, str) and str(name).lower() in _NAMING and is_secret_name(inner)
            for name, inner in value.items()
        )
        return {
            redact_text(str(name), known): HIDDEN
            if _is_hidden(str(name), inner)
            or (named and str(name).lower() in _NAMED and isinstance(inner, str) and inner)
            else redact(inner, known, depth + 1)
            for name, inner in value.items()
        }
    if isinstance(value, list | tuple | set | frozenset):
        if len(value) == 2 and isinstance(value, list | tuple) and _is_pair(*value):
            return [redact(value[0], known, depth + 1), HIDDEN]
        known = [*known, *_of_command(value)]
        return [redact(inner, known, depth + 1) for inner in value]
    return redact_text(str(value), known)


_NAMING = frozenset(("name", "key", "k", "field", "header", "variable", "property", "param", "setting"))
# Fields of an object that names a value, as in lists of headers and variables
_NAMED = frozenset(("value", "values", "v", "val", "content"))


def _of_command(words: Iterable[Any]) -> list[str]:
    """Secrets in the words of a command, such as `["mysql", "--password", "..."]`: a word does not tell it alone."""
    texts = [word for word in words if isinstance(word, str)]
    if len(texts) < 2 or not any(word.startswith("-") for word in texts):
        return []
    return secret_spans(" ".join(f'"{word}"' if " " in word else word for word in texts)[:MAX_COMMAND])


MAX_COMMAND = 65_536
"""Characters of a list of words that are read as a command."""


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

# Fields of a record with foreign objects, in which names indicate secrets
_FREE = frozenset({"args", "result", "context", "annotations", "data"})

# Identifying fields: their redacted values must still differ
_IDENTITIES = frozenset(
    "id session_id workspace_id user_id tenant_id agent_id correlation_id traceparent call_id output_id"
    " args_digest result_digest text_digest idempotency_key".split()
)

# Names of fields that need no check
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

MAX_CLEAN = 20_000  # Number of clean values cached; the cache is cleared when it is full

_clean: set[bytes] = set()
# Times, UUIDs and small numbers, as JSON
_PLAIN = re.compile(
    rb'"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:\d\d)"'
    rb'|"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"|-?\d{1,12}(?:\.\d{1,9})?'
)

_read_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_ESCAPED = re.compile(rb"\\u00[2-7]")
_ESCAPES = (b"\\\\", b"\0"), (b"\\n", b"\n"), (b"\\r", b"\n"), (b"\\t", b"\t"), (b'\\"', b'"'), (b"\0", b"\\")
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
    if not may_hold_secrets(b"\n".join(texts)):
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
        for escape, character in _ESCAPES:
            json = json.replace(escape, character)
    if redact_bytes(json) is not json or (b'":' in json and any(map(_is_secret_field, _FIELD.findall(json)))):
        return True
    if b'","-' not in json:
        return False
    command = json.replace(b'","', b" ")
    return redact_bytes(command) is not command


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
