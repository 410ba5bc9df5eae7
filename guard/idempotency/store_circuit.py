"""Circuit of a shared store: whether it answers, and requests that do not wait for one that does not.

It opens if the store fails, or answers no request for `PATIENCE_MS`; a background task then probes the store until it
answers. Time is counted in turns of the event loop, so that a busy loop is not mistaken for a slow store.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from ..log import log_event
from .record import DedupeStore

PATIENCE_MS = 40.0
"""Milliseconds without any answer after which the shared store counts as down."""

FIRST_PATIENCE_MS = 1_000.0
"""Same before the store's first answer, as connecting takes longer; waited once, see `connect`."""

_TURN_MS = 5.0

FIRST_PROBE_S = 0.25
LAST_PROBE_S = 5.0
"""Seconds between two probes of a store that is down; doubles from the first to this value."""

T = TypeVar("T")


class StoreDown(Exception):
    """The shared store did not answer in time, or failed."""


class StoreCircuit:
    """Circuit of one shared store on one event loop.

    Attributes:
        down: the store is not asked.
        went_down: set while it is down.
    """

    def __init__(self, shared: DedupeStore, when_back: Callable[[], Awaitable[None]]) -> None:
        """Await `when_back` when the store answers again; it stays down if that raises."""
        self._shared = shared
        self._when_back = when_back
        self.reset()

    def reset(self) -> None:
        """Start anew in a child process or on another event loop: pending requests belong to the old one."""
        self.down = False
        self.went_down = asyncio.Event()
        self._answers = 0
        self._tasks: set[asyncio.Task[Any]] = set()
        self._probing: asyncio.Task[None] | None = None
        self._connecting: asyncio.Task[Any] | None = None

    async def connect(self) -> None:
        """Wait for the store's first answer, at most `FIRST_PATIENCE_MS`; otherwise the first call waits for it.

        Without this, a key could be taken for free while the process is still connecting.
        """
        if self._answers or self.down:
            return
        if self._connecting is None:
            self._connecting = self.in_background(self.answer(lambda: self._shared.get("probe")))
        await asyncio.wait({self._connecting})
        if not self._connecting.cancelled():
            self._connecting.exception()

    async def ask(self, operation: Callable[[], Awaitable[T]], within_ms: float) -> T:
        """Return the shared store's answer; a late answer is awaited in the background.

        Raises:
            StoreDown: it failed or did not answer in time, now or a moment ago.
        """
        if self.down:
            raise StoreDown
        request = self.in_background(self.answer(operation))
        await self.wait_for(request, within_ms)
        if not request.done():
            raise StoreDown
        return request.result()

    async def wait_for(self, request: asyncio.Task[Any], most_ms: float) -> float:
        """Wait up to `most_ms` milliseconds until the store answers or is down; return the time waited."""
        waited_ms = 0.0
        while waited_ms < most_ms and not request.done():
            await asyncio.wait({request}, timeout=_TURN_MS / 1000)
            waited_ms += _TURN_MS
        return waited_ms

    async def answer(self, operation: Callable[[], Awaitable[T]]) -> T:
        """Wait for an answer until the store counts as down.

        Raises:
            StoreDown: the store is down.
        """
        if self.down:
            raise StoreDown
        request = asyncio.ensure_future(operation())
        try:
            answers, waited_ms = self._answers, 0.0
            while not request.done():
                await asyncio.wait({request}, timeout=_TURN_MS / 1000)
                if self.down:
                    raise StoreDown
                waited_ms = waited_ms + _TURN_MS if answers == self._answers else 0.0
                answers = self._answers
                if waited_ms >= (PATIENCE_MS if answers else FIRST_PATIENCE_MS) and not request.done():
                    self.mark_down(TimeoutError())
                    raise StoreDown
            try:
                answer = request.result()
            except Exception as error:
                self.mark_down(error)
                raise StoreDown from error
            self._answers += 1
            return answer
        finally:
            request.cancel()

    def in_background(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run work that nobody need wait for."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._finished)
        return task

    def _finished(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # a late failure has been reported already

    def mark_down(self, error: Exception) -> None:
        """Mark the store as down until it answers again; logged once."""
        if self.down:
            return
        self.down = True
        self.went_down.set()
        log_event(
            logging.WARNING, "dedupe_store_lost", errorCode=type(error).__name__, instead="memory of this process"
        )
        self._probing = asyncio.get_running_loop().create_task(self._probe())

    async def _probe(self) -> None:
        pause = FIRST_PROBE_S
        while True:
            await asyncio.sleep(pause)
            pause = min(LAST_PROBE_S, 2 * pause)
            try:
                async with asyncio.timeout(FIRST_PATIENCE_MS / 1000):
                    await self._shared.get("probe")
                await self._when_back()
            except Exception:  # noqa: BLE001, S112 - it is still down
                continue
            self.down = False
            self.went_down.clear()
            log_event(logging.WARNING, "dedupe_store_back")
            return

    async def close(self) -> None:
        """End the probe, and wait a moment for pending requests."""
        if self._probing is not None:
            self._probing.cancel()
        if self._tasks and not self.down:
            await asyncio.wait(self._tasks, timeout=1.0)
        for task in self._tasks:
            task.cancel()
