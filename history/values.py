"""Values of answers as JSON and CSV have them."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any


def plain(value: Any) -> Any:
    """A value that JSON has."""
    if isinstance(value, datetime):
        aware = value if value.tzinfo else value.replace(tzinfo=UTC)
        return aware.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, (list, tuple)):
        return [plain(one) for one in value]
    if isinstance(value, dict):
        return {str(name): plain(one) for name, one in value.items()}
    if isinstance(value, int) and not -(1 << 63) <= value < 1 << 64:
        return str(value)
    return value if value is None or isinstance(value, (str, int, float, bool)) else str(value)
