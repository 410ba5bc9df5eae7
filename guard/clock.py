"""Clock of the guard; tests replace it."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

T = TypeVar("T")


class GuardClock(Protocol):
    """Clock interface of the guard."""

    def now_ms(self) -> int:
        """Milliseconds since the epoch; used in events."""

    def monotonic_ms(self) -> float:
        """Monotonic milliseconds; used for durations."""

    async def sleep(self, ms: float) -> None:
        """Sleep for `ms` milliseconds."""

    async def wait(self, future: asyncio.Future[Any], ms: float) -> None:
        """Wait for a future without cancelling it, at most `ms` milliseconds."""

    def later(self, ms: float, callback: Callable[[], object]) -> None:
        """Call a function on this event loop after `ms` milliseconds, if the loop still runs then."""


class SystemClock:
    """System clock."""

    def now_ms(self) -> int:
        """Milliseconds since the epoch."""
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> float:
        """Monotonic milliseconds."""
        return time.perf_counter_ns() / 1e6

    async def sleep(self, ms: float) -> None:
        """Sleep for `ms` milliseconds."""
        await asyncio.sleep(ms / 1000)

    async def wait(self, future: asyncio.Future[Any], ms: float) -> None:
        """Wait for a future, at most `ms` milliseconds."""
        await asyncio.wait({future}, timeout=ms / 1000)

    def later(self, ms: float, callback: Callable[[], object]) -> None:
        """Set a timer of the loop, which nothing waits for at its end."""
        asyncio.get_running_loop().call_later(ms / 1000, callback)


def resolve(future: asyncio.Future[T], result: T) -> None:
    """Set the result of a future unless it is done, for example cancelled."""
    if not future.done():
        future.set_result(result)


_RANDOM_BATCH = 256

# Random numbers of 80 bits, drawn in batches: the system call is the dearest part of making an id
_drawn: list[int] = []


def _draw() -> int:
    """Draw a new batch; returns one of its numbers."""
    raw = os.urandom(10 * _RANDOM_BATCH)
    fresh = [int.from_bytes(raw[at : at + 10], "big") for at in range(0, len(raw), 10)]
    last = fresh.pop()
    _drawn.extend(fresh)
    return last


os.register_at_fork(after_in_child=_drawn.clear)


def new_id(now_ms: int) -> str:
    """Return a UUIDv7: ordered by time, with 74 random bits."""
    try:
        chance = _drawn.pop()
    except IndexError:
        chance = _draw()
    text = f"{now_ms & 0xFFFF_FFFF_FFFF:012x}7{chance >> 68:03x}{0x8 | chance >> 64 & 0x3:x}{chance >> 4 & 0xFFF:03x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{chance >> 16 & 0xFFFF_FFFF_FFFF:012x}"
