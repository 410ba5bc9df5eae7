"""Dedupe store with a memory store in its place while it is slow or down.

Theory of operation. Calls of this process are claimed in memory as well as in the shared store, so an outage never
runs a call of this process twice. A store that fails, or answers nobody for `PATIENCE_MS`, opens a circuit of its own:
from then on only memory is asked, and a task in the background asks the store until it answers. What ended in between
is then written to it. The time is counted in turns of the event loop, so that a busy loop is not taken for a slow
store. See docs/guard.md, Idempotency.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import TypeVar

from ..clock import Clock
from ..log import say
from .memory import InMemoryDedupeStore
from .record import Claim, DedupeRecord, DedupeState, DedupeStore

PATIENCE_MS = 40.0
"""Longest time without any answer of the shared store: a Redis nearby takes one, and a call may be held up by 50."""

FIRST_PATIENCE_MS = 1_000.0
"""The same before its first answer: connecting, and loading scripts, takes longer."""

_TURN_MS = 5.0

FIRST_PROBE_S = 0.25
LAST_PROBE_S = 5.0
"""Time between two looks whether the store is back; doubles from the first to the last."""

MAX_PENDING = 10_000
"""Ends of calls that wait to be written to the store; beyond that the oldest leases run out by themselves."""

T = TypeVar("T")


class _Down(Exception):
    """The shared store did not answer in time, or not at all."""


class FallbackDedupeStore:
    """A shared store, and memory in its place while it cannot be reached.

    Attributes:
        down: only memory is asked.
    """

    in_process = False

    def __init__(self, shared: DedupeStore, clock: Clock, patience_ms: float = PATIENCE_MS) -> None:
        """Use `shared` as long as it answers within `patience_ms`."""
        self.down = False
        self._shared = shared
        self._memory = InMemoryDedupeStore(clock=clock)
        self._patience_ms = patience_ms
        self._answers = 0
        self._pending: OrderedDict[str, tuple[DedupeRecord, int]] = OrderedDict()
        self._probing: asyncio.Task[None] | None = None

    async def claim(self, record: DedupeRecord, lease_ms: int) -> Claim:
        """Take a key if it is free here and, while the store answers, everywhere."""
        known = await self._memory.get(record.key)
        if known is not None and known.state is DedupeState.INFLIGHT:
            return await self._memory.claim(record, lease_ms)
        try:
            claim = await self._ask(lambda: self._shared.claim(record, lease_ms))
        except _Down:
            return await self._memory.claim(record, lease_ms)
        if claim.mine:
            self._memory.forget(record.key)
            await self._memory.claim(record, lease_ms)
        return claim

    async def extend(self, record: DedupeRecord, lease_ms: int) -> bool:
        """Push the end of the holder's lease out, here and there."""
        here = await self._memory.extend(record, lease_ms)
        try:
            return await self._ask(lambda: self._shared.extend(record, lease_ms))
        except _Down:
            return here

    async def finish(self, record: DedupeRecord, ttl_ms: int) -> bool:
        """Leave the call's end here and there; there later, if the store is down."""
        here = await self._memory.finish(record, ttl_ms)
        try:
            return await self._ask(lambda: self._shared.finish(record, ttl_ms))
        except _Down:
            self._pending[record.key] = record, ttl_ms
            if len(self._pending) > MAX_PENDING:
                self._pending.popitem(last=False)
            return here

    async def get(self, key: str) -> DedupeRecord | None:
        """The record as it stands now."""
        known = await self._memory.get(key)
        if known is not None and known.state is DedupeState.INFLIGHT:
            return known
        try:
            return await self._ask(lambda: self._shared.get(key))
        except _Down:
            return known

    async def wait(self, key: str, version: int, timeout_ms: float) -> DedupeRecord | None:
        """Wait for a record of this process in memory, for one of another in the store."""
        known = await self._memory.get(key)
        if known is not None:
            return await self._memory.wait(key, known.version, timeout_ms)
        if self.down:
            return None
        waiting = asyncio.ensure_future(self._shared.wait(key, version, timeout_ms))
        try:
            while not waiting.done():
                await asyncio.wait({waiting}, timeout=5 * self._patience_ms / 1000)
                if not waiting.done():  # the store is asked beside it: a wait may be long and says nothing meanwhile
                    await self._ask(lambda: self._shared.get(key))
            return waiting.result()
        except _Down:
            return None
        except Exception as error:  # noqa: BLE001 - whatever a store's client raises
            self._lose(error)
            return None
        finally:
            waiting.cancel()

    async def clear(self, tool: str | None = None) -> int:
        """Forget everything, or everything of one tool."""
        here = await self._memory.clear(tool)
        return here if self.down else await self._shared.clear(tool)

    async def size(self) -> int:
        """Return the number of records."""
        return await (self._memory.size() if self.down else self._shared.size())

    async def close(self) -> None:
        """Let go of both."""
        if self._probing is not None:
            self._probing.cancel()
        with contextlib.suppress(Exception):  # a store that is down cannot be told good-bye
            async with asyncio.timeout(1.0):
                await self._shared.close()

    def after_fork(self) -> None:
        """Begin anew in a child process, or on another event loop: the look at the store belonged to the old one."""
        self._shared.after_fork()
        self._memory.after_fork()
        self._answers, self._probing, self.down = 0, None, False

    async def _ask(self, operation: Callable[[], Awaitable[T]]) -> T:
        """Return the shared store's answer.

        Raises:
            _Down: it did not answer in time, or not at all, now or a moment ago.
        """
        if self.down:
            raise _Down
        asked = asyncio.ensure_future(operation())
        try:
            answers, waited_ms = self._answers, 0.0
            while not asked.done():
                await asyncio.wait({asked}, timeout=_TURN_MS / 1000)
                if self.down:
                    raise _Down
                waited_ms = waited_ms + _TURN_MS if answers == self._answers else 0.0
                answers = self._answers
                if waited_ms >= (self._patience_ms if answers else FIRST_PATIENCE_MS) and not asked.done():
                    self._lose(TimeoutError())
                    raise _Down
            try:
                answer = asked.result()
            except Exception as error:
                self._lose(error)
                raise _Down from error
            self._answers += 1
            return answer
        finally:
            asked.cancel()

    def _lose(self, error: Exception) -> None:
        """Ask the store no more until it answers again; said once."""
        if self.down:
            return
        self.down = True
        say(logging.WARNING, "dedupe_store_lost", errorCode=type(error).__name__, instead="memory of this process")
        self._probing = asyncio.get_running_loop().create_task(self._probe())

    async def _probe(self) -> None:
        pause = FIRST_PROBE_S
        while True:
            await asyncio.sleep(pause)
            pause = min(LAST_PROBE_S, 2 * pause)
            try:
                async with asyncio.timeout(FIRST_PATIENCE_MS / 1000):
                    await self._shared.get("probe")
                while self._pending:
                    record, ttl_ms = next(iter(self._pending.values()))
                    async with asyncio.timeout(FIRST_PATIENCE_MS / 1000):
                        await self._shared.finish(record, ttl_ms)
                    self._pending.pop(record.key, None)
            except Exception:  # noqa: BLE001, S112 - it is still down
                continue
            self.down = False
            say(logging.WARNING, "dedupe_store_back")
            return
