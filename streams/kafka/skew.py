"""Skew between workers: how far one is ahead of the others in order time.

A worker far ahead of the others would mix records of today and yesterday in the later stages. Workers exchange their
progress through committed offsets: a commit carries, for each partition behind its log end, the order time it has
reached (`commit_note`). A worker ahead of the slowest by more than the lead waits, but only for a bounded time, as a
stuck worker must not stop the group; then it continues until the skew has been small again.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterable

log = logging.getLogger(__name__)


def commit_note(behind: int | None) -> str:
    """Return a partition's commit note: its order time in milliseconds; empty at the log end."""
    return "" if behind is None else f"behind {behind}"


def noted(note: str) -> int | None:
    """Return the order time of a commit note; None if it has none."""
    word, _, at = note.partition(" ")
    return int(at) if word == "behind" and at.isdigit() else None


class Skew:
    """Skew to the other workers.

    Attributes:
        seconds: order time between this worker's next record and the slowest other worker that is behind; 0 without.
    """

    def __init__(self, *, lead: float, wait: float, clock: Callable[[], float] = time.monotonic) -> None:
        """Start without other workers.

        Args:
            lead: seconds of order time that this worker may be ahead.
            wait: longest time, in seconds, of one wait.
            clock: monotonic seconds.
        """
        self.seconds = 0.0
        self._lead_ms = lead * 1000
        self._wait = wait
        self._clock = clock
        self._slowest = math.inf
        self._since: float | None = None

    def learn(self, notes: Iterable[str]) -> None:
        """Update from the notes of the others' commits."""
        self._slowest = min((at for note in notes if (at := noted(note)) is not None), default=math.inf)
        if self._slowest == math.inf:
            self.seconds, self._since = 0.0, None

    def holds(self, head: float) -> bool:
        """Whether a record of this order time must wait."""
        if self._slowest == math.inf:
            return False
        ahead = head - self._slowest
        self.seconds = max(ahead / 1000, 0.0)
        if ahead <= self._lead_ms:
            self._since = None
            return False
        now = self._clock()
        if self._since is None:
            self._since = now
        if now - self._since <= self._wait:
            return True
        if self._since > -math.inf:
            log.warning("this worker is %.0f s ahead of another one and has waited %g s; it goes on",
                        self.seconds, self._wait)  # fmt: skip
            self._since = -math.inf
        return False
