"""Checkpoints: make work durable in an order that is safe against crashes.

1. Snapshot: each partition's touched states and their offsets are taken together.
2. Outputs queued until then are acknowledged by the brokers.
3. States are appended to the changelog, one record per touched key, and acknowledged.
4. The offsets of those appends prove that no other worker owns the partition (see `changelog`).
5. Only then the local store is written and the offsets are marked as done; Faust's commit timer commits them.

A crash between any two steps replays events whose outputs and perhaps states are already written: the position in each
key's state makes folding them again a no-op, and their outputs carry the same ids. Any failure stops the worker without
marking offsets.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Protocol

from faust.types import TP

from .backpressure import PartitionTenure
from .changelog import write_states
from .kafka_settings import KafkaSettings
from .metrics import LaneMetrics
from .task import PartitionTask

log = logging.getLogger(__name__)


class LostGroup(Exception):
    """This worker is no longer a group member of its generation; its partitions are being revoked."""


class CheckpointSuperseded(Exception):
    """The tenure of a checkpoint ended during it; the checkpoint is abandoned."""


class CheckpointOwner(Protocol):
    """Worker whose tasks a checkpoint makes durable; the engine."""

    settings: KafkaSettings
    metrics: LaneMetrics
    tasks: dict[tuple[str, int], PartitionTask]

    def tenure(self) -> PartitionTenure | None:
        """Return the current tenure; None while this worker has no partitions."""

    def is_member(self, generation: int) -> bool:
        """Whether this worker is a member of the group in that generation."""

    def producer(self) -> Any:
        """Return the running aiokafka producer."""

    def mark_done(self, tp: TP, next_offset: int) -> None:
        """Mark a partition's offset as durable in the consumer."""


@dataclass(slots=True)
class _CheckpointPart:
    """One partition's part of a checkpoint."""

    task: PartitionTask
    items: list[tuple[bytes, bytes | None]]
    ends: dict[TP, int]
    when_durable: list[Callable[[], None]]


class CheckpointWriter:
    """Takes checkpoints, one at a time."""

    def __init__(
        self,
        owner: CheckpointOwner,
        drain: Callable[[], Awaitable[None]],
        inspect: Callable[[PartitionTask, int, int | None], Awaitable[int]],
    ) -> None:
        """Connect its dependencies.

        Args:
            owner: the worker.
            drain: waits until all outputs queued so far are acknowledged.
            inspect: reads foreign changelog records between two offsets (None: to the end) of a task and returns the
                offset it read to; raises Fenced.
        """
        self._owner = owner
        self._settings = owner.settings
        self._drain = drain
        self._inspect = inspect
        self.lock = asyncio.Lock()  # held during a checkpoint
        # monotonic time since when a checkpoint waits for the brokers; None while none does
        self.began_at: float | None = None
        self._limit: asyncio.Timeout | None = None

    def extend(self) -> None:
        """Restart the checkpoint timeout, while no broker can acknowledge."""
        if self._limit is not None and not self._limit.expired():
            self._limit.reschedule(asyncio.get_running_loop().time() + self._settings.checkpoint_timeout)

    async def checkpoint(self, prepare: Callable[[], None] = lambda: None) -> None:
        """Make all processed records durable and their offsets committable.

        Args:
            prepare: called before the snapshot, when no other checkpoint is under way.

        Raises:
            LostGroup: the worker lost its membership; nothing was marked, its states must be dropped.
            CheckpointSuperseded: the tenure ended during the checkpoint; nothing was marked.
            PartitionFenced: another worker owns a partition.
            TimeoutError: the brokers did not acknowledge within the checkpoint timeout.
            Exception: an output or a state was rejected.
        """
        async with self.lock:
            tenure = self._owner.tenure()
            if tenure is None:
                return
            self._require(tenure)
            started = time.perf_counter()
            prepare()
            parts = await self._collect()
            if not parts:
                return
            limit = asyncio.timeout(self._settings.checkpoint_timeout)
            try:
                async with limit:
                    self._limit, self.began_at = limit, time.monotonic()
                    await self._drain()
                    self._require(tenure)
                    await asyncio.gather(*[self._write(part) for part in parts])
            except TimeoutError as error:
                if limit.expired():
                    seconds = self._settings.checkpoint_timeout
                    raise TimeoutError(f"the brokers did not acknowledge a checkpoint within {seconds:g} s") from error
                raise
            finally:
                self._limit = self.began_at = None
            self._require(tenure)
            keep = self._settings.live_states // len(self._owner.tasks) + 1
            for part in parts:
                self._conclude(part, keep)
            self._count(parts, time.perf_counter() - started)

    def _require(self, tenure: PartitionTenure) -> None:
        if self._owner.tenure() != tenure:
            raise CheckpointSuperseded(f"tenure {tenure.number} is over")
        if not self._owner.is_member(tenure.generation):
            raise LostGroup(f"no longer a member of generation {tenure.generation}")

    async def _collect(self) -> list[_CheckpointPart]:
        parts = []
        for task in list(self._owner.tasks.values()):
            items = task.take_snapshot()
            if items:
                called, task.when_durable = task.when_durable, []
                parts.append(_CheckpointPart(task, items, dict(task.next), called))
                await asyncio.sleep(0)  # yields between partitions: a partition's offsets and states belong together
        return parts

    async def _write(self, part: _CheckpointPart) -> None:
        task = part.task
        topic = self._settings.changelog(task.stage)
        for base, count in await write_states(self._owner.producer(), topic, task.partition, part.items, task.epoch):
            if base == task.log_next:
                task.log_next += count
            elif base < 0:
                task.log_next = await self._inspect(task, task.log_next, None)
            else:
                await self._inspect(task, task.log_next, base)
                task.log_next = base + count

    def _conclude(self, part: _CheckpointPart, keep: int) -> None:
        task = part.task
        task.store.write(part.items, next_offset=task.log_next, epoch=task.epoch)
        task.processor.forget_clean(keep)
        for tp, offset in part.ends.items():
            self._owner.mark_done(tp, offset)
        for notify in part.when_durable:
            notify()

    def _count(self, parts: list[_CheckpointPart], seconds: float) -> None:
        metrics = self._owner.metrics
        metrics.checkpoints += 1
        metrics.checkpoint_seconds += seconds
        for part in parts:
            metrics.checkpoint_keys += len(part.items)
            metrics.checkpoint_bytes += sum(len(value) for _, value in part.items if value is not None)
