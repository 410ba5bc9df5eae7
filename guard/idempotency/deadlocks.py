"""Calls that wait for each other within one process: which of them can never end."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator

from ..tool_threads import BLOCKED, HELD


class WaitGraph:
    """Running calls of one guard, by the holders of their keys, and those that they wait for."""

    def __init__(self) -> None:
        """Create an empty graph."""
        self._loops: dict[str, asyncio.AbstractEventLoop] = {}
        self._waits: dict[object, tuple[frozenset[str], str]] = {}

    @contextlib.contextmanager
    def running(self, holder: str) -> Iterator[None]:
        """Mark a holder as running on this loop; calls made within are nested in it."""
        self._loops[holder] = asyncio.get_running_loop()
        within = HELD.set(HELD.get() | {holder})
        try:
            yield
        finally:
            self._loops.pop(holder, None)
            with contextlib.suppress(ValueError):  # closed from a foreign context
                HELD.reset(within)

    @contextlib.contextmanager
    def waiting_for(self, holder: str) -> Iterator[None]:
        """Mark the current call as waiting for a holder."""
        this = object()
        if held := HELD.get():
            self._waits[this] = held, holder
        try:
            yield
        finally:
            self._waits.pop(this, None)

    def would_deadlock(self, holder: str) -> bool:
        """Whether the holder cannot end before the current call does.

        True if this call is made within the holder, or within a call that waits for it, or blocks the holder's event
        loop.
        """
        held, blocked = HELD.get(), BLOCKED.get()
        if blocked is not None and self._loops.get(holder) is blocked:
            return True
        seen: set[str] = set()
        reached = {holder}
        while reached:
            if not held.isdisjoint(reached):
                return True
            seen |= reached
            waits = list(self._waits.values())
            reached = {target for waiting, target in waits if not waiting.isdisjoint(reached)} - seen
        return False
