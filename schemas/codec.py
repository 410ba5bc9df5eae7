"""Decodes and encodes records; all input passes through it (docs/design/contracts.md#bad-input).

Theory of operation. A valid event costs one pass of a typed msgspec decoder and a few cheap checks for absence: with no
more than 64 brackets nesting needs no scan; without an escape that begins with u00 no name holds U+0000 or U+001F.
Invalid records are passed to `diagnosis`, which may be slow.

Accepted besides plain events: CloudEvents in structured mode (`specversion` and `data`), which are unwrapped, and an
`error` that is a plain string, which becomes the error's message. If a key is repeated the last value counts, except
`type`, which may occur only once. Text may hold any character; ids and names any but U+0000 and U+001F (models invent
tool names with quotes and line breaks, which should be seen). Lone surrogates are rejected everywhere, as UTF-8 cannot
encode them.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Generic, TypeVar, get_args

import msgspec

from ..errors import EventRejected, RejectReason
from . import diagnosis
from .commands import Command
from .decisions import Decision
from .event_base import EARLIEST, LATEST
from .events import ErrorInfo, Event, FailureReported, ToolCallFinished, epoch_ms
from .fields import names_of
from .public_state import STATE_KINDS, StateUpdated
from .settings import SettingsChanged

MAX_BYTES = 1_048_576
"""Largest record value, in bytes; the default of a Kafka broker's `message.max.bytes`."""

MAX_DEPTH = 64
"""Deepest nesting of objects and arrays."""

UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""Exceptions of decoders for bytes that are no record of their type, or are nested beyond the stack."""

_T = TypeVar("_T", bound=msgspec.Struct)


class _LooseFinished(ToolCallFinished, kw_only=True, frozen=True, tag="tool_call.finished"):
    error: ErrorInfo | str | None = None  # type: ignore[assignment]


class _LooseReport(FailureReported, kw_only=True, frozen=True, tag="failure.reported"):
    error: ErrorInfo | str | None = None  # type: ignore[assignment]


class _CloudEvent(msgspec.Struct):
    specversion: str
    data: msgspec.Raw


_decode_event: Callable[[bytes], Event] = msgspec.json.Decoder(Event).decode
_decode_loose: Callable[[bytes], _LooseFinished | _LooseReport] = msgspec.json.Decoder(
    _LooseFinished | _LooseReport
).decode
_decode_cloud: Callable[[bytes], _CloudEvent] = msgspec.json.Decoder(_CloudEvent).decode
_encode = msgspec.json.Encoder().encode


_NAMES = {
    kind: names_of(kind)
    for kind in (*get_args(Event), *get_args(Command), *get_args(Decision), *STATE_KINDS.values(), SettingsChanged)
}


def _check_names(record: msgspec.Struct) -> None:
    """Reject ids and names with U+001F, the separator of keys, or U+0000, which ends text in some stores."""
    for name in _NAMES[type(record)]:
        text = getattr(record, name)
        if text and ("\x1f" in text or "\x00" in text):
            raise EventRejected(
                RejectReason.BAD_VALUE,
                f"$.{name}",
                f"{text[:40]!r} holds U+0000 or U+001F, which no id or name may; send it without",
            )


def decode_event(value: bytes | None, *, max_bytes: int = MAX_BYTES) -> Event:
    """Decode one record of the `events` topic.

    Args:
        value: the record's value, UTF-8 JSON; None is a record without a value.
        max_bytes: size limit in bytes.

    Raises:
        EventRejected: with reason code, JSON path, and advice; no other exception is raised.
    """
    if value is None or len(value) > max_bytes:
        raise diagnosis.of_size(value, max_bytes)
    if len(value) - len(value.replace(b"{", b"").replace(b"[", b"")) > MAX_DEPTH:
        diagnosis.check_depth(value, MAX_DEPTH)
    try:
        event = _decode_event(value)
    except UNREADABLE as fault:
        return _decode_leniently(value, fault, max_bytes)
    if event.schema_version != "1.0":
        diagnosis.check_version(event.schema_version)
    if not EARLIEST <= event.time < LATEST:
        raise diagnosis.of_time(event.time)
    # JSON can write U+0000 and U+001F only as escapes; searching one byte is much faster than searching four.
    if (escape := value.find(b"\\")) >= 0 and value.find(b"\\u00", escape) >= 0:
        _check_names(event)
    if not value.isascii():
        diagnosis.check_utf8(value)
    return event


def _check_event(event: Event, value: bytes) -> None:
    diagnosis.check_version(event.schema_version)
    if not EARLIEST <= event.time < LATEST:
        raise diagnosis.of_time(event.time)
    _check_names(event)
    diagnosis.check_utf8(value)


def _decode_leniently(value: bytes, fault: Exception, max_bytes: int) -> Event:
    """Decode forms that the strict decoder rejects but the contract accepts; raise the diagnosis of all others."""
    document = diagnosis.document_of(value, fault)
    if "specversion" in document and "schema_version" not in document:
        return _unwrap(value, document, max_bytes)
    if isinstance(document.get("error"), str):
        try:
            loose = _decode_loose(value)
        except UNREADABLE as other:
            kind = document.get("type")
            fault = other if isinstance(kind, str) and kind in _LOOSE_TYPES else fault
        else:
            event = _strict(loose)
            _check_event(event, value)
            return event
    raise diagnosis.of_fault(document, fault, _EVENT_TYPES) from None


def _unwrap(value: bytes, document: dict[str, Any], max_bytes: int) -> Event:
    try:
        return decode_event(bytes(_decode_cloud(value).data), max_bytes=max_bytes)
    except EventRejected as inner:
        raise EventRejected(inner.reason, f"$.data{inner.path[1:]}", inner.message) from None
    except UNREADABLE as fault:
        raise diagnosis.of_fault(document, fault, {}) from None


def _strict(loose: _LooseFinished | _LooseReport) -> Event:
    kind = ToolCallFinished if isinstance(loose, _LooseFinished) else FailureReported
    fields = {name: getattr(loose, name) for name in kind.__struct_fields__}
    fields["error"] = ErrorInfo(message=fields["error"])
    return kind(**fields)


def _types_of(union: Any) -> dict[str, type[msgspec.Struct]]:
    return {kind.__struct_config__.tag: kind for kind in get_args(union) or (union,)}


_EVENT_TYPES = _types_of(Event)
_LOOSE_TYPES = _types_of(_LooseFinished | _LooseReport)


def is_valid(value: bytes | None) -> bool:
    """Whether a record is an event or a command that the folds accept."""
    for decode in (decode_event, decode_command):
        try:
            decode(value)
        except EventRejected:
            continue
        return True
    return False


class _TopicDecoder(Generic[_T]):
    """Decoder of the records of another topic."""

    def __init__(self, union: Any) -> None:
        self._types = _types_of(union)
        self._decode = msgspec.json.Decoder(union).decode

    def __call__(self, value: bytes | None) -> _T:
        if value is None or len(value) > MAX_BYTES:
            raise diagnosis.of_size(value, MAX_BYTES)
        diagnosis.check_depth(value, MAX_DEPTH)
        try:
            record: _T = self._decode(value)
        except UNREADABLE as fault:
            raise diagnosis.of_fault(diagnosis.document_of(value, fault), fault, self._types) from None
        diagnosis.check_version(record.schema_version)  # type: ignore[attr-defined]
        time = record.time  # type: ignore[attr-defined]
        if isinstance(time, datetime) and not EARLIEST <= time < LATEST:
            raise diagnosis.of_time(time)
        _check_names(record)
        diagnosis.check_utf8(value)
        return record


_read_command: _TopicDecoder[Any] = _TopicDecoder(Command)
_read_settings: _TopicDecoder[SettingsChanged] = _TopicDecoder(SettingsChanged)
_read_decision: _TopicDecoder[Any] = _TopicDecoder(Decision)
_read_state: dict[str, _TopicDecoder[Any]] = {kind: _TopicDecoder(struct) for kind, struct in STATE_KINDS.items()}


def decode_command(value: bytes | None) -> Command:
    """Decode one record of the `commands` topic.

    Raises:
        EventRejected: as `decode_event`.
    """
    command: Command = _read_command(value)
    return command


def decode_settings(value: bytes | None) -> SettingsChanged:
    """Decode one record of the `settings` topic; a tombstone, which clears a scope, has no value to decode.

    The contents of `overrides.rules` and `overrides.policies` are validated where they are merged.

    Raises:
        EventRejected: as `decode_event`.
    """
    return _read_settings(value)


def decode_decision(value: bytes | None) -> Decision:
    """Decode one record of an output topic, for consumers of decisions.

    Raises:
        EventRejected: as `decode_event`; `unknown_type` if the worker is newer than this reader.
    """
    decision: Decision = _read_decision(value)
    if isinstance(decision, StateUpdated):
        decision = _read_state[decision.kind](value)
    return decision


def encode(record: msgspec.Struct) -> bytes:
    """Encode one record as JSON: `type` first, then declaration order, compact, without defaults, UTF-8.

    The same record always gives the same bytes. Times have milliseconds and `Z`.
    """
    made = _encode(record)
    time = getattr(record, "time", None)
    if isinstance(time, datetime):
        # msgspec writes no fraction or six digits; the first `"time":` is the envelope's, as quotes in text are
        # escaped.
        return made.replace(b'"time":' + _encode(time), b'"time":"%b"' % rfc3339(epoch_ms(time)).encode(), 1)
    return made


def rfc3339(ms: int) -> str:
    """Format milliseconds since the epoch as RFC 3339, UTC, with milliseconds: `2026-01-31T12:00:00.250Z`.

    Raises:
        ValueError: the time is outside the years 1 to 9999.
    """
    seconds, rest = divmod(ms, 1000)
    return f"{_second(seconds)}.{rest:03d}Z"


def span(seconds: float) -> str:
    """Duration as text: `90s`, `5m`, `1h`, `2h 30m`, `3d`."""
    whole = round(seconds)
    if whole < 120 and whole % 60:
        return f"{whole}s"
    hours, minutes = divmod(whole // 60, 60)
    if hours >= 48:
        return f"{hours // 24}d"
    if not hours:
        return f"{minutes}m"
    return f"{hours}h {minutes}m" if minutes else f"{hours}h"


def dated(ms: int, now_ms: int = 0) -> str:
    """A time as people are told it, with its distance from now if that is known: `2026-01-31 12:00:00 UTC (in 5m)`."""
    text = f"{rfc3339(ms)[:19].replace('T', ' ')} UTC"
    if not now_ms:
        return text
    return f"{text} (in {span((ms - now_ms) / 1000)})" if ms > now_ms else f"{text} ({span((now_ms - ms) / 1000)} ago)"


@lru_cache(maxsize=4096)
def _second(seconds: int) -> str:
    try:
        return datetime.fromtimestamp(seconds, UTC).isoformat()[:19]
    except (OverflowError, OSError) as error:
        raise ValueError(f"{seconds} s since 1970 is outside the years 1 to 9999") from error
