"""Skew between workers: how far one has come in time before the others.

A worker that reads far ahead of the others tells the later stages of today what others will tell of yesterday. What a
worker must know of the others is on the broker already: a commit of offsets carries, for each partition that is behind
its log end, the order time it has come to (`commit_note`). A worker ahead of the slowest of them by more than the lead
waits. Not for ever, for a worker without headway must not stop the group: once it has waited its time it goes on, until
the skew has been small again.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterable

log = logging.getLogger(__name__)


def commit_note(behind: int | None) -> str:
    """What a commit says of a partition: the order time it has come to, in milliseconds; nothing at the log end."""
    return "" if behind is None else f"behind {behind}"


def noted(note: str) -> int | None:
    """The order time that a commit tells; None where it tells none."""
    word, _, at = note.partition(" ")
    return int(at) if word == "behind" and at.isdigit() else None


class Skew:
    """What is known of the other workers' times.

    Attributes:
        seconds: order time between this worker's next record and the slowest other worker that is behind; 0 without.
    """

    def __init__(self, *, lead: float, wait: float, clock: Callable[[], float] = time.monotonic) -> None:
        """Know of nobody.

        Args:
            lead: seconds of order time that this worker may be ahead.
            wait: longest time, in seconds, that it waits in one go.
            clock: monotonic seconds.
        """
        self.seconds = 0.0
        self._lead_ms = lead * 1000
        self._wait = wait
        self._clock = clock
        self._slowest = math.inf
        self._since: float | None = None

    def learn(self, notes: Iterable[str]) -> None:
        """Take in what the others' commits say."""
        self._slowest = min((at for note in notes if (at := noted(note)) is not None), default=math.inf)
        if self._slowest == math.inf:
            self.seconds, self._since = 0.0, None

    def holds(self, head: float) -> bool:
        """Whether a record of this order time has to wait."""
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
