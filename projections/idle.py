"""Index of keys by the time of their last record, to find idle ones without scanning all."""

from __future__ import annotations

import heapq
from enum import Enum

HOUR_MS = 3_600_000
WEEK_MS = 7 * 24 * HOUR_MS

BUCKET_MS = 60_000
"""Width of a bucket in milliseconds: keys within the same minute are not distinguished."""


class Rest(Enum):
    """Whether the state of an idle key can be dropped."""

    STANDS = "stands"
    """It affects later calls, or has a deadline: the state is kept."""

    TOLD = "told"
    """It affects nothing, but followers know it and must be notified of its end."""

    NOTHING = "nothing"
    """It equals a new state."""


class IdleKeys:
    """Keys by the minute of their last record, or an earlier one; each key once.

    Keys are not moved by later records; the caller of `take` checks the state and adds the key again.
    """

    def __init__(self) -> None:
        """Create an empty index."""
        self._buckets: dict[int, list[bytes]] = {}
        self._order: list[int] = []

    def add(self, key: bytes, heard_ms: int) -> None:
        """Add a key whose last record was at `heard_ms` or later."""
        minute = heard_ms // BUCKET_MS
        bucket = self._buckets.get(minute)
        if bucket is None:
            bucket = self._buckets[minute] = []
            heapq.heappush(self._order, minute)
        bucket.append(key)

    def take(self, before_ms: int, limit: int) -> list[bytes]:
        """Remove and return up to `limit` keys of the minutes before a time, earliest first."""
        taken: list[bytes] = []
        order = self._order
        while order and (order[0] + 1) * BUCKET_MS <= before_ms and len(taken) < limit:
            bucket = self._buckets[order[0]]
            room = limit - len(taken)
            taken += bucket[-room:]
            del bucket[-room:]
            if not bucket:
                del self._buckets[heapq.heappop(order)]
        return taken
