"""Wakes coroutines when something has moved, from whatever thread it moves in."""

from __future__ import annotations

import asyncio
from threading import Lock


class Moved:
    """A bell that anyone may ring and any coroutine may wait for."""

    def __init__(self) -> None:
        """Start silent."""
        self._waiting: set[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = set()
        self._lock = Lock()

    def ring(self) -> None:
        """Wake everyone who waits now."""
        if not self._waiting:
            return
        with self._lock:
            waiting, self._waiting = self._waiting, set()
        for loop, event in waiting:
            if not loop.is_closed():
                loop.call_soon_threadsafe(event.set)

    async def wait(self, timeout_ms: float) -> bool:
        """Wait for the next ring, or so long; whether it rang."""
        place = (asyncio.get_running_loop(), asyncio.Event())
        with self._lock:
            self._waiting.add(place)
        try:
            await asyncio.wait_for(place[1].wait(), max(0.0, timeout_ms) / 1000)
        except TimeoutError:
            return False
        finally:
            with self._lock:
                self._waiting.discard(place)
        return True
