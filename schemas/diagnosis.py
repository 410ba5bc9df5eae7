"""Diagnosis of invalid records: reason code, JSON path, and what to do about it.

Runs only for invalid records, so it may parse them twice.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from difflib import get_close_matches
from enum import Enum
from functools import lru_cache
from typing import Any, get_args, get_type_hints

import msgspec

from ..errors import EventRejected, RejectReason

_SHOWN = 80
_LONGEST_TEXT = 256
_OBJECTS = b"{["
_BRACKETS = b"{}[]"
_NOT_BRACKETS = bytes(set(range(256)) - set(_BRACKETS))
# The closing quote is optional: a string that never ends is taken whole, once, and not tried again from every quote.
_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)
_VERSION = re.compile(r"1(\.[0-9]+){0,2}")
_MISSING = re.compile(r"Object missing required field `(.+)`")
_LENGTH = re.compile(r"of length ([<>]=) (\d+)")
_NUMBER = re.compile(r"Expected `(int|float)` ([<>]=?) (\S+)")
_LONG_INT = 300
_NOT_A_NUMBER = object()


def of_size(value: bytes | None, max_bytes: int) -> EventRejected:
    """Diagnose a missing or an oversized value."""
    if value is None:
        return EventRejected(
            RejectReason.NULL_VALUE, "$", "the record has no value; tombstones belong on compacted topics only"
        )
    return EventRejected(
        RejectReason.TOO_LARGE,
        "$",
        f"{len(value)} bytes, the limit is {max_bytes}; send digests in place of large args, results and texts",
    )


def check_depth(value: bytes, limit: int) -> None:
    """Reject objects and arrays nested deeper than the limit; brackets inside strings do not count."""
    depth = 0
    for bracket in _STRING.sub(b"", value).translate(None, _NOT_BRACKETS):
        if bracket in _OBJECTS:
            depth += 1
            if depth > limit:
                raise EventRejected(
                    RejectReason.TOO_DEEP, "$", f"nested deeper than {limit}; send deep values as text or as a digest"
                )
        else:
            depth -= 1


def check_utf8(value: bytes) -> None:
    """Reject bytes that are not UTF-8, including those in unknown fields."""
    try:
        value.decode()
    except UnicodeDecodeError as error:
        raise EventRejected(
            RejectReason.INVALID_UTF8,
            "$",
            f"byte {error.start} (0x{value[error.start]:02x}): {error.reason}; encode the record as UTF-8",
        ) from None


def check_version(version: str) -> None:
    """Reject every major version but 1."""
    if not _VERSION.fullmatch(version):
        raise EventRejected(
            RejectReason.UNSUPPORTED_VERSION,
            "$.schema_version",
            f"{_shown(version)} is not a version this worker reads (1.x); publish 1.x or upgrade the worker",
        )


def of_time(time: datetime) -> EventRejected:
    """Diagnose a time outside the range."""
    return EventRejected(
        RejectReason.TIME_OUT_OF_RANGE,
        "$.time",
        f"{time.isoformat()} is not in 2000-01-01 to 2099-12-31; check the publisher's clock and time unit",
    )


def document_of(value: bytes, fault: Exception) -> dict[str, Any]:
    """Parse the record as a plain object, for diagnosis."""
    if value.startswith(b"\x00"):
        raise EventRejected(
            RejectReason.SCHEMA_REGISTRY_FRAMING,
            "$",
            "the value begins with a Schema Registry prefix (magic byte 0); publish plain JSON: use a plain JSON "
            "serializer in place of the registry's",
        )
    check_utf8(value)
    if not value.strip():
        raise EventRejected(RejectReason.NOT_JSON, "$", "the value is empty; send one JSON object")
    if value.startswith(b"\xef\xbb\xbf"):
        raise EventRejected(RejectReason.NOT_JSON, "$", "the value begins with a byte order mark; send it without")
    try:
        document = json.loads(value.decode(), parse_constant=lambda _: _NOT_A_NUMBER, parse_int=_whole)
    except (ValueError, RecursionError) as error:
        raise EventRejected(RejectReason.NOT_JSON, "$", f"not JSON: {error}; send one JSON object") from None
    for path, leaf in _leaves(document):
        if leaf is _NOT_A_NUMBER:
            raise EventRejected(
                RejectReason.BAD_NUMBER, _clean(path), "NaN and Infinity are not JSON; leave the field out or send null"
            )
    if not isinstance(fault, msgspec.ValidationError):
        for path, leaf in _leaves(document):
            if isinstance(leaf, str) and not _is_text(leaf):
                raise EventRejected(
                    RejectReason.INVALID_UTF8,
                    _clean(path),
                    "holds a lone surrogate, half a character; send whole characters",
                )
        raise EventRejected(RejectReason.NOT_JSON, "$", f"not JSON: {fault}; send one JSON object")
    if not isinstance(document, dict):
        raise EventRejected(
            RejectReason.NOT_AN_OBJECT,
            "$",
            f"the value is {_kind(document)}; send one JSON object per record (CloudEvents batches are not read)",
        )
    return document


def of_fault(document: Mapping[str, Any], fault: Exception, types: Mapping[str, type[msgspec.Struct]]) -> EventRejected:
    """Translate the strict decoder's error about a JSON object to a reason code and advice.

    Version and type are checked first: the other fields depend on them.
    """
    version = document.get("schema_version")
    if isinstance(version, str):
        try:
            check_version(version)
        except EventRejected as rejected:
            return rejected
    kind = document.get("type")
    if types and isinstance(kind, str) and kind not in types:
        near = get_close_matches(kind[:_SHOWN], types, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"known here: {', '.join(sorted(types))}"
        return EventRejected(RejectReason.UNKNOWN_TYPE, "$.type", f"no type {_shown(kind)}; {hint}")
    what, found, path = str(fault).rpartition(" - at `")  # may quote the publisher's values
    what, path = (what, path.removeprefix("key in ").rstrip("`")) if found else (path, "$")
    if missing := _MISSING.fullmatch(what):
        name = missing.group(1)
        if name == "data":
            advice = "a CloudEvent must carry the event as JSON in `data`; `data_base64` and batches are not read"
            return EventRejected(RejectReason.MISSING_FIELD, f"{path}.{name}", advice)
        return EventRejected(RejectReason.MISSING_FIELD, f"{path}.{name}", f"the field `{name}` is required; send it")
    reason, advice = _reason(what, path, types.get(kind) if isinstance(kind, str) else None)
    return EventRejected(reason, _clean(path), f"{_clean(what)}{advice}")


def _reason(what: str, path: str, kind: type[msgspec.Struct] | None) -> tuple[RejectReason, str]:
    if what.startswith("Invalid enum value"):
        words = words_at(kind, path) if kind else ()
        return RejectReason.BAD_VALUE, f"; known: {', '.join(words)}" if words else ""
    if length := _LENGTH.search(what):
        advice = "; an id or name must not be empty" if length.group(1) == ">=" else "; send a digest of longer names"
        return RejectReason.BAD_LENGTH, advice
    if _NUMBER.match(what):
        return RejectReason.BAD_NUMBER, "; check sign and unit"
    if "out of range" in what:
        return RejectReason.BAD_NUMBER, "; no such number can be kept exactly"
    if "matching regex" in what:
        return RejectReason.BAD_VALUE, ""
    if "datetime" in what and "got" not in what:
        return RejectReason.BAD_VALUE, "; send RFC 3339 with an offset, e.g. 2026-01-31T12:00:00.000Z"
    if "datetime" in what:
        return RejectReason.WRONG_TYPE, "; send RFC 3339 text, e.g. 2026-01-31T12:00:00.000Z"
    if path == "$.type":
        return (RejectReason.UNKNOWN_TYPE, "; `type` is given twice") if "Invalid" in what else (
            RejectReason.WRONG_TYPE, ""
        )  # fmt: skip
    return RejectReason.WRONG_TYPE, ""


def words_at(kind: type[msgspec.Struct], path: str) -> tuple[str, ...]:
    """Return the values that the enumeration at a JSON path of a record allows; empty if there is none there."""
    here: Any = kind
    for name in path.split(".")[1:]:
        structs = [
            part for part in (here, *get_args(here)) if isinstance(part, type) and issubclass(part, msgspec.Struct)
        ]
        here = _hints(structs[0]).get(name.partition("[")[0]) if structs else None
    for part in (here, *get_args(here)):
        if isinstance(part, type) and issubclass(part, Enum):
            return tuple(member.value for member in part)
    return ()


@lru_cache
def _hints(kind: type[msgspec.Struct]) -> dict[str, Any]:
    return get_type_hints(kind)


def _whole(text: str) -> int:
    return int(text) if len(text) <= _LONG_INT else 0  # only the document's shape matters here


def _leaves(value: Any, path: str = "$") -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for name, inner in value.items():
            yield f"{path}.{name}", name
            yield from _leaves(inner, f"{path}.{name}")
    elif isinstance(value, list):
        for position, inner in enumerate(value):
            yield from _leaves(inner, f"{path}[{position}]")
    else:
        yield path, value


def _is_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _kind(value: Any) -> str:
    names = {list: "an array", str: "a string", bool: "a boolean", type(None): "null"}
    return names.get(type(value), "a number")


def _short(text: str, longest: int) -> str:
    return text if len(text) <= longest else text[:longest] + "…"


def _shown(text: str) -> str:
    return repr(_short(text, _SHOWN))


def _clean(text: str) -> str:
    """Return the publisher's text cut and escaped so that it is safe to store and to show."""
    short = _short(text, _LONGEST_TEXT)
    return short if short.isprintable() else "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in short)
