"""Clock of an engine: says which time the stream has reached while nothing comes in."""

from __future__ import annotations

import time
from collections.abc import Callable


class StreamClock:
    """Stream time plus the monotonic time since it was reached; what is due by it falls due.

    It never runs backwards: an event that is late, or that was appended for a time already passed, does not set it. It
    is never ahead of the wall clock, also when that is set back, so the clock of a publisher that runs ahead makes
    nothing fall due early. The wall clock never drives it: old events pass at their own times, and the sleep of a
    machine counts when the next event shows it.
    """

    def __init__(
        self, *, monotonic: Callable[[], float] = time.monotonic, wall: Callable[[], float] = time.time
    ) -> None:
        """Create a clock that shows 0 until a stream time is reached; both sources are in seconds."""
        self._monotonic = monotonic
        self._wall = wall
        self._reached = 0
        self._since = 0.0

    def reach(self, stream_time: int) -> None:
        """Set the clock to a stream time, milliseconds, unless it has passed that time."""
        now = self._monotonic()
        if stream_time > self._passed(now):
            self._reached, self._since = stream_time, now

    def leave_out(self, seconds: float) -> None:
        """Leave out a time that was no silence: records had come and were not folded yet."""
        self._since = min(self._since + seconds, self._monotonic())

    @property
    def ahead_s(self) -> float:
        """Seconds by which the stream is ahead of this machine's clock; 0 if it is not."""
        return max(self._reached - self.wall_ms(), 0) / 1000

    def now(self) -> int:
        """Return the time that the stream has reached, milliseconds; 0 before the first event."""
        return min(self._passed(self._monotonic()), self.wall_ms())

    def wall_ms(self) -> int:
        """Return the wall clock, milliseconds."""
        return int(self._wall() * 1000)

    def _passed(self, monotonic: float) -> int:
        return self._reached + int((monotonic - self._since) * 1000) if self._reached else 0
