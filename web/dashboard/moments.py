"""Times on the wire as numbers."""

from __future__ import annotations

from datetime import datetime


def millis(time: str) -> int:
    """Milliseconds since 1970 of RFC 3339 text with an offset."""
    return round(datetime.fromisoformat(time).timestamp() * 1000)
