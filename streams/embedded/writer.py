"""Writer of a served store: combines many requests in one transaction (group commit).

Requests that arrive during a commit are folded and committed together, so a hundred small publishers cost one flush,
not a hundred. Urgent ones, for which an agent waits, come first and are committed without the others. The engine runs
in its own thread; the event loop only waits.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, TypeVar

from ...config import RuleFiles
from ...errors import TrustfoldError
from ...projections.emitter import StageOutput
from ...schemas.topics import TOPICS
from ..reload import LOOK_S, RulesReloader
from .engine import CommitReceipt, EmbeddedEngine, SubmitRequest

log = logging.getLogger(__name__)

TICK_S = 1.0  # Seconds between two ticks (docs/design/contracts.md#time-and-order)
FORGET_S = 3600.0  # Seconds between two runs of retention

# Milliseconds that records of a compacted topic are kept as history; the latest of each key is kept separately
STATE_KEPT_MS = 86_400_000

# Bytes of requests that may wait, twice as many for urgent ones; further ones are rejected as `WriterBusy`
MAX_WAITING_BYTES = 64 * 1024 * 1024

# Values and bytes after which a transaction takes no further request: about a tenth of a second of folding
MAX_BATCH_VALUES, MAX_BATCH_BYTES = 5_000, 256 * 1024

T = TypeVar("T")


class WriterBusy(TrustfoldError):
    """Too many requests are waiting; the publisher should retry in a second."""


class _WaitingRequest(NamedTuple):
    request: SubmitRequest
    size: int
    answer: asyncio.Future[CommitReceipt]


class EngineWriter:
    """Owner of the engine while it is served."""

    def __init__(self, engine: EmbeddedEngine, files: RuleFiles | None = None) -> None:
        """Serve an open engine, whose rules come from `files`; `start` begins."""
        self.engine = engine
        self.reloader = RulesReloader(files, engine.rebase, engine.note_fault)  # reloads changed rules
        self.busy = False  # whether requests are being folded that are not urgent
        self.committed = 0  # number of commits; followers wait for it (`signal`)
        self.fault: str | None = None  # why the last commit failed; None after a success
        # callbacks with the new external requests of each commit, called after the listeners
        self.heard: list[Callable[[Sequence[SubmitRequest]], None]] = []
        # callbacks with the outputs of each commit, in order, called before the sender gets its receipt
        self.listeners: list[Callable[[Sequence[StageOutput]], None]] = []
        self._waiting: asyncio.Queue[None] = asyncio.Queue()  # one entry for each request in the lanes
        self._urgent: deque[_WaitingRequest] = deque()
        self._others: deque[_WaitingRequest] = deque()
        self._bytes = 0
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="trustfold-engine")
        self._tasks: list[asyncio.Task[None]] = []
        self._changed = asyncio.Event()

    @property
    def waiting_bytes(self) -> int:
        """Return the bytes of requests that wait or are being folded."""
        return self._bytes

    def start(self) -> None:
        """Start the write and tick tasks."""
        self._tasks = [asyncio.create_task(work) for work in (self._write(), self._tick(), self._look())]

    async def stop(self) -> None:
        """Finish pending requests, then close the engine."""
        await self._waiting.join()
        for task in self._tasks:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        await self.call(self.engine.close)
        self._thread.shutdown()

    async def submit(self, request: SubmitRequest, *, urgent: bool = False) -> CommitReceipt:
        """Fold and commit a request, an urgent one before those that are not; returns after the commit.

        Raises:
            WriterBusy: too many bytes are waiting.
            StoreError: it was not stored.
        """
        size = sum(map(len, request.values))
        room = 2 * MAX_WAITING_BYTES if urgent else MAX_WAITING_BYTES
        if self._bytes and self._bytes + size > room:
            raise WriterBusy(f"{self._bytes >> 20} MiB wait to be folded; try again in a second")
        self._bytes += size
        answer: asyncio.Future[CommitReceipt] = asyncio.get_running_loop().create_future()
        (self._urgent if urgent else self._others).append(_WaitingRequest(request, size, answer))
        self._waiting.put_nowait(None)
        return await answer

    async def republish(self, offsets: list[int]) -> list[StageOutput]:
        """Fold dead letters again; return the outputs after the commit.

        Raises:
            ConfigError: there is no dead letter at an offset.
            StoreError: nothing was stored.
        """
        arrived_ms = self.engine.clock.wall_ms()
        outputs = await self.call(lambda: self.engine.republish(offsets, arrived_ms=arrived_ms))
        self._succeeded(outputs)
        return outputs

    async def call(self, function: Callable[..., T], *arguments: Any) -> T:
        """Run a function of the engine in its thread, between two batches."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, function, *arguments)

    def signal(self) -> asyncio.Event:
        """Return an event that is set at the next commit. Get it before reading so that no commit is missed."""
        return self._changed

    def wake(self) -> None:
        """Wake everyone who waits for a commit."""
        self._changed.set()
        self._changed = asyncio.Event()

    async def _write(self) -> None:
        while True:
            await self._waiting.get()
            lane = self._urgent or self._others
            self.busy = lane is self._others
            taken = [lane.popleft()]
            values, size = len(taken[0].request.values), taken[0].size
            while lane and values < MAX_BATCH_VALUES and size < MAX_BATCH_BYTES:
                self._waiting.get_nowait()
                taken.append(lane.popleft())
                values, size = values + len(taken[-1].request.values), size + taken[-1].size
            try:
                receipts = await self.call(self._commit, [waiting.request for waiting in taken])
            except Exception as error:  # noqa: BLE001 - every publisher in the batch must hear of it
                self._failed(error)
                for waiting in taken:
                    if not waiting.answer.done():
                        waiting.answer.set_exception(error)
            else:
                new = [one.request for one, receipt in zip(taken, receipts, strict=True) if not receipt.repeated]
                self._succeeded([output for receipt in receipts for output in receipt.outputs])
                for hear in self.heard:
                    hear(new)
                for waiting, receipt in zip(taken, receipts, strict=True):
                    if not waiting.answer.done():
                        waiting.answer.set_result(receipt)
            finally:
                self.busy = False
                for waiting in taken:
                    self._bytes -= waiting.size
                    self._waiting.task_done()

    def _commit(self, requests: list[SubmitRequest]) -> list[CommitReceipt]:
        return self.engine.submit(requests, arrived_ms=self.engine.clock.wall_ms())

    async def _tick(self) -> None:
        """Fold about once a second what has fallen due by the engine's clock, and every hour forget old records."""
        forgotten = float("-inf")
        while True:
            await asyncio.sleep(TICK_S)
            try:
                if outputs := await self.call(self.engine.fall_due):
                    self._succeeded(outputs)
                if time.monotonic() - forgotten > FORGET_S:
                    await self.call(self.engine.forget, _kept_since(self.engine.clock.wall_ms()))
                    forgotten = time.monotonic()
            except Exception as error:  # noqa: BLE001 - the next tick tries again
                self._failed(error)

    async def _look(self) -> None:
        """Reload changed rules between two batches."""
        while True:
            await asyncio.sleep(LOOK_S)
            try:
                await self.call(self.reloader.look)
            except Exception:
                log.exception("the rules could not be replaced; the next poll tries again")

    def _succeeded(self, outputs: Sequence[StageOutput]) -> None:
        for listener in self.listeners:
            listener(outputs)
        self.fault = None
        self.committed += 1
        self.wake()

    def _failed(self, error: Exception) -> None:
        self.fault = str(error)
        log.error("a batch was not stored: %s", error, exc_info=None if isinstance(error, TrustfoldError) else error)


def _kept_since(now_ms: int) -> dict[str, int]:
    """Return the start of each topic's retention, by the catalogue."""
    return {name: now_ms - (topic.retention_ms or STATE_KEPT_MS) for name, topic in TOPICS.items()}
