"""Common parts of input events: envelope, error, raw JSON, and times and names, also those of foreign formats.

See docs/design/contracts.md#envelope.
"""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime
from typing import Any

import msgspec
import orjson
from msgspec import UNSET, Raw, UnsetType

from .fields import MAX_NAME, Count, HttpStatus, Name, Time, Version
from .vocabulary import FailureSeverity

EARLIEST = datetime(2000, 1, 1, tzinfo=UTC)
LATEST = datetime(2100, 1, 1, tzinfo=UTC)
"""Bounds of an event's time: [EARLIEST, LATEST)."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LONGEST_INT = 300


def epoch_ms(time: datetime) -> int:
    """Return an aware time as milliseconds since the epoch, rounded down."""
    since = time - _EPOCH
    return since.days * 86_400_000 + since.seconds * 1000 + since.microseconds // 1000


_EARLIEST_MS = epoch_ms(EARLIEST)
_LATEST_MS = epoch_ms(LATEST)
_UNITS = ((10**17, 10**6), (10**14, 10**3), (10**11, 1))
"""Lower bounds of numbers read as nanoseconds, microseconds and milliseconds, and how many of each make one ms."""


def name_of(text: Any) -> str:
    """Convert to a valid id or name: no control characters that join keys, at most 256 characters.

    Only texts and whole numbers are converted; all else gives an empty name.
    """
    if isinstance(text, bool) or not isinstance(text, (str, int)):
        return ""
    return str(text).replace("\x00", "").replace("\x1f", " ")[:MAX_NAME]


def time_of(given: Any) -> int | None:
    """Convert to milliseconds since the epoch; None if it is not a time, or outside the range of events.

    Accepts RFC 3339 (without an offset: UTC) and numbers, also as text, of seconds, milli-, micro- or nanoseconds; the
    magnitude tells the unit.
    """
    if isinstance(given, str):
        try:
            number: float | None = int(given) if given.isdecimal() else float(given)
        except ValueError:
            number = None
    else:
        number = None if isinstance(given, bool) or not isinstance(given, (int, float)) else given
    if number is not None:
        try:
            unit = next((unit for least, unit in _UNITS if number >= least), None)
            ms = int(number * 1000) if unit is None else int(number) // unit
        except (OverflowError, ValueError):
            return None
    else:
        try:
            time = datetime.fromisoformat(given)
        except (TypeError, ValueError):
            return None
        ms = epoch_ms(time if time.tzinfo else time.replace(tzinfo=UTC))
    return ms if _EARLIEST_MS <= ms < _LATEST_MS else None


def json_of(raw: Raw | UnsetType) -> Any:
    """Decode a raw field; None if the field is absent.

    Never fails on a field of a decoded event: numbers beyond double precision, which JSON allows, become infinite.
    """
    if raw is UNSET:
        return None
    view = memoryview(raw)
    try:
        return orjson.loads(view)
    except orjson.JSONDecodeError:
        return json.loads(bytes(view), parse_int=_whole)


def _whole(text: str) -> int | float:
    """Parse a whole number as orjson does: beyond 64 bits as a double, as larger ones cannot be encoded again."""
    if len(text) > _LONGEST_INT:
        return math.copysign(math.inf, float(text[:2] + "0"))
    number = int(text)
    return number if -(1 << 63) <= number < 1 << 64 else float(number)


class EventBase(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True, tag_field="type"):
    """Envelope of every input event (docs/design/contracts.md#envelope).

    Attributes:
        schema_version: version of the contract, "1.x"; another major version is rejected.
        id: unique id of the event, by convention a UUIDv7 or ULID; a repeated id has no effect.
        time: time of the event, RFC 3339 with an offset, by convention UTC.
        session_id: id of the conversation; also the record key.
        turn_index: index of the turn in the session, from 0.
        workspace_id: workspace of the tools; trust and breakers are kept per workspace. Absent: `default`.
        user_id: user of the agent; joins workspaces for promotion.
        tenant_id: tenant, for the publisher's own accounting; not read.
        agent_id: agent of the session; each has its own streaks. Absent: the main agent.
        model: name of the current model.
        model_tier: class of the model, e.g. `small`; recursive calls have a breaker per tier.
        correlation_id: id for the publisher's own tracing; outputs about behaviour repeat it.
        traceparent: W3C trace context, continued by outputs; a Kafka header of that name takes precedence.
    """

    schema_version: Version
    id: Name
    time: Time
    session_id: Name
    turn_index: Count | None = None
    workspace_id: Name | None = None
    user_id: Name | None = None
    tenant_id: Name | None = None
    agent_id: Name | None = None
    model: Name | None = None
    model_tier: Name | None = None
    correlation_id: Name | None = None
    traceparent: str | None = None


class ErrorInfo(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """Error of a tool call. A plain string is read as the message.

    Attributes:
        type: exception class or category, e.g. `TimeoutError`, `http_error`.
        message: free text.
        http_status: status code of the answer, 0 to 999; 0 when there was none.
        code: error code of the runtime: `ECONNRESET`, an exit code, a JSON-RPC code.
        retriable: whether the publisher considers a retry useful.
        severity: overrides the classification.
    """

    type: str | None = None
    message: str | None = None
    http_status: HttpStatus | None = None
    code: str | int | None = None
    retriable: bool | None = None
    severity: FailureSeverity | None = None
