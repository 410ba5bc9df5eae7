"""Keys in the order in which they were last heard of, so that idle ones are found without looking at all of them."""

from __future__ import annotations

import heapq
from enum import Enum

HOUR_MS = 3_600_000
WEEK_MS = 7 * 24 * HOUR_MS

BUCKET_MS = 60_000
"""Keys last heard of in the same minute are not told apart."""


class Rest(Enum):
    """What is left of a state once its key is idle."""

    STANDS = "stands"
    """Something of it decides what happens to later calls, or falls due: the state stays."""

    TOLD = "told"
    """Nothing of it decides anything, but followers know of it and have to be told that it ends."""

    NOTHING = "nothing"
    """A fresh state does as well."""


class IdleKeys:
    """Keys by the minute in which they were last heard of, or earlier; each key once.

    Nobody moves a key when it is heard of again. Whoever takes it out looks at its state and adds it anew.
    """

    def __init__(self) -> None:
        """Start without keys."""
        self._buckets: dict[int, list[bytes]] = {}
        self._order: list[int] = []

    def add(self, key: bytes, heard_ms: int) -> None:
        """Add a key that was last heard of at a time, or later."""
        minute = heard_ms // BUCKET_MS
        bucket = self._buckets.get(minute)
        if bucket is None:
            bucket = self._buckets[minute] = []
            heapq.heappush(self._order, minute)
        bucket.append(key)

    def take(self, before_ms: int, limit: int) -> list[bytes]:
        """Take out at most `limit` keys of the minutes that were over at a time, earliest first."""
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
