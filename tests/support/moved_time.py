"""Time that a test moves: a machine's clocks, for whatever takes them as functions."""

from __future__ import annotations

from datetime import datetime

from trustfold.streams.stream_clock import StreamClock


class Machine:
    """A machine with a wall clock and a monotonic one, both in seconds.

    Attributes:
        wall: the wall clock.
        monotonic: the monotonic clock, which began somewhere.
    """

    def __init__(self, now: datetime) -> None:
        self.wall = now.timestamp()
        self.monotonic = 5_000.0

    def passes(self, seconds: float) -> None:
        """Let time pass on both clocks."""
        self.wall += seconds
        self.monotonic += seconds

    def sleeps(self, seconds: float) -> None:
        """Suspend the machine: the monotonic clock stands."""
        self.wall += seconds

    @property
    def wall_ms(self) -> int:
        """The wall clock in milliseconds."""
        return int(self.wall * 1000)

    def stream_clock(self) -> StreamClock:
        """A new clock of an engine on this machine."""
        return StreamClock(monotonic=lambda: self.monotonic, wall=lambda: self.wall)
