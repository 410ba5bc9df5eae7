"""Converts names and times of foreign formats to valid values of the contract."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from .codec import EARLIEST, LATEST
from .event_base import epoch_ms
from .fields import MAX_NAME

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
