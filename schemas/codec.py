"""Bytes to typed events and back, with a clear reason for everything that is refused (design 2, Bad input)."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import orjson

from .commands import Command
from .errors import EventRejected, RejectReason
from .events import Event

MAX_BYTES = 1_048_576
"""Largest record, 1 MiB: what a broker accepts by default."""

MAX_DEPTH = 64
"""Deepest nesting of a record."""

_EARLIEST = datetime(2000, 1, 1, tzinfo=UTC)
_LATEST = datetime(2100, 1, 1, tzinfo=UTC)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_event_decoder: msgspec.json.Decoder[Event] = msgspec.json.Decoder(Event)
_command_decoder: msgspec.json.Decoder[Command] = msgspec.json.Decoder(Command)
_encoder = msgspec.json.Encoder()

_AT = re.compile(r" - at `\$?(.*)`$")
_MISSING = re.compile(r"missing required field `([^`]+)`")


def encode(value: Any) -> bytes:
    """Wire bytes of a struct: compact JSON, fields in the order they are declared, defaults left out."""
    return _encoder.encode(value)


def rfc3339(ms: int) -> str:
    """A time in milliseconds as RFC 3339 in UTC, with milliseconds."""
    time = _EPOCH + timedelta(milliseconds=ms)
    return f"{time:%Y-%m-%dT%H:%M:%S}.{time.microsecond // 1000:03d}Z"


def decode_event(value: bytes) -> Event:
    """Read one input event.

    Raises:
        EventRejected: with a stable reason code, the JSON path of the fault, and what to do.
    """
    event: Event = _decode(_event_decoder, value)
    return event


def decode_command(value: bytes) -> Command:
    """Read one operator's command.

    Raises:
        EventRejected: as for events.
    """
    command: Command = _decode(_command_decoder, value)
    return command


def _decode(decoder: msgspec.json.Decoder[Any], value: bytes) -> Any:
    if len(value) > MAX_BYTES:
        raise _rejected(RejectReason.TOO_LARGE, "$", f"{len(value)} bytes; the limit is {MAX_BYTES}: digest large arguments and results")
    if value.count(b"{") + value.count(b"[") > MAX_DEPTH and _depth(value) > MAX_DEPTH:
        raise _rejected(RejectReason.TOO_DEEP, "$", f"nested deeper than {MAX_DEPTH}: flatten arguments and results")
    try:
        event = decoder.decode(value)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        inner = _unwrapped(value)
        if inner is not None:
            return _decode(decoder, inner)
        raise _diagnosis(value, error) from None
    if not event.schema_version.startswith("1.") and event.schema_version != "1":
        raise _rejected(RejectReason.UNSUPPORTED_VERSION, "$.schema_version", f"{event.schema_version!r}; this trustfold reads 1.x")
    if not _EARLIEST <= event.time < _LATEST:
        raise _rejected(RejectReason.TIME_OUT_OF_RANGE, "$.time", "before 2000 or after 2099: check the publisher's clock and unit")
    return event


def _unwrapped(value: bytes) -> bytes | None:
    """The data of a CloudEvent in structured mode; None if the record is none."""
    if b'"specversion"' not in value:
        return None
    try:
        outer = orjson.loads(value)
    except orjson.JSONDecodeError:
        return None
    if isinstance(outer, dict) and "specversion" in outer and isinstance(outer.get("data"), dict):
        return orjson.dumps(outer["data"])
    return None


def _depth(value: bytes) -> int:
    """Nesting of a JSON text, brackets inside strings left out."""
    deepest = depth = 0
    in_string = escaped = False
    for byte in value:
        if in_string:
            if escaped:
                escaped = False
            elif byte == 0x5C:
                escaped = True
            elif byte == 0x22:
                in_string = False
        elif byte == 0x22:
            in_string = True
        elif byte in b"{[":
            depth += 1
            deepest = max(deepest, depth)
        elif byte in b"}]":
            depth -= 1
    return deepest


def _rejected(reason: RejectReason, path: str, message: str) -> EventRejected:
    return EventRejected(reason, path, message)


def _diagnosis(value: bytes, error: Exception) -> EventRejected:
    """Say exactly what is wrong with a record that did not decode."""
    if value[:1] == b"\x00":
        return _rejected(RejectReason.SCHEMA_REGISTRY_FRAMING, "$", "starts with a schema-registry prefix: publish plain JSON")
    try:
        value.decode()
    except UnicodeDecodeError as fault:
        return _rejected(RejectReason.INVALID_UTF8, "$", f"byte {fault.start} is not UTF-8: publish UTF-8")
    text = str(error)
    if isinstance(error, msgspec.ValidationError):
        return _validation(value, text)
    if re.search(rb"(?<![\w\"])(?:-?Infinity|NaN)(?![\w\"])", value):
        return _rejected(RejectReason.BAD_NUMBER, "$", "NaN and Infinity are no JSON numbers: leave the field out")
    return _rejected(RejectReason.NOT_JSON, "$", f"{text}: publish one JSON object per record")


def _validation(value: bytes, text: str) -> EventRejected:
    found = _AT.search(text)
    path = f"${found.group(1)}" if found else "$"
    what = text[: found.start()] if found else text
    missing = _MISSING.search(what)
    if missing:
        return _rejected(RejectReason.MISSING_FIELD, f"{path}.{missing.group(1)}", f"{what}: publish it with every event")
    if path == "$" and "Expected `object`" in what:
        return _rejected(RejectReason.NOT_AN_OBJECT, "$", f"{what}: publish one JSON object per record")
    if what.startswith("Invalid value") and path == "$.type":
        return _rejected(RejectReason.UNKNOWN_TYPE, "$.type", f"{what}: see the list of event types, or upgrade trustfold")
    if "length" in what:
        return _rejected(RejectReason.BAD_LENGTH, path, f"{what}: ids and names have 1 to 256 characters")
    if re.search(r"[<>]=? ?-?\d", what):
        return _rejected(RejectReason.BAD_NUMBER, path, f"{what}: numbers must lie in their documented range")
    if "out of range" in what.lower() or ("RFC3339" in what and b"time" in value):
        return _rejected(RejectReason.WRONG_TYPE, path, f"{what}: times are RFC 3339 with a zone")
    return _rejected(RejectReason.WRONG_TYPE, path, f"{what}: see the schema of this event type")
