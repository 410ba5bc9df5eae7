"""Batches and polls of the lane, and the gate that controls their flow.

The gate is closed during rebalances. Between closing and opening, the consumer seeks every source partition to its
offset with no poll in flight, so no record is lost.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from faust.types import TP

POLL_S = 0.25  # Seconds of the longest poll; short, because a closing gate waits for the poll in flight
POLLS = 2  # Polls on their way to the agent: one being folded, one waiting, so that the order is chosen late


@dataclass(frozen=True, slots=True)
class PartitionTenure:
    """Uninterrupted period in which the worker owns partitions."""

    number: int  # counts the tenures of this process; a reclaim within one generation begins a new one
    generation: int  # generation of the group


class PartitionBatch:
    """Records of one source partition, in offset order."""

    __slots__ = ("first", "next_offset", "reached", "records", "start", "tp")

    def __init__(self, tp: TP, records: list[Any], start: int, first: int = 0, reached: int = 0) -> None:
        """Wrap consecutive records."""
        self.tp = tp  # topic (real name) and partition
        self.records = records  # aiokafka's records, at least one
        self.start = start  # expected first offset; the first record may come later if the log has gaps
        self.next_offset: int = records[-1].offset + 1  # offset after the last record
        self.first = first  # order time of the first record, milliseconds (see `order`)
        self.reached = reached  # order time of the last record, milliseconds


class FoldUnit:
    """Unit of folding: batches of any partitions, in folding order."""

    __slots__ = ("batches", "count", "first", "tenure")

    def __init__(self, tenure: PartitionTenure, batches: list[PartitionBatch]) -> None:
        """Combine batches."""
        self.tenure = tenure  # tenure in which they were delivered
        self.batches = batches  # batches, at least one
        self.first = min(batch.first for batch in batches)  # smallest order time of their records
        self.count = sum(len(batch.records) for batch in batches)  # number of their records


class LaneGate:
    """Gate of the lane: whether source records may flow, and from which offsets."""

    def __init__(self) -> None:
        """Create a closed gate."""
        self.tenure: PartitionTenure | None = None  # current tenure; None while closed
        self.expected: dict[TP, int] = {}  # next offset of each partition that the lane takes, while open
        self.in_flight: deque[FoldUnit] = deque()  # polls on their way to the agent
        self._room = asyncio.Event()
        self._opened = asyncio.Event()
        self._quiet = asyncio.Event()
        self._quiet.set()

    def open(self, tenure: PartitionTenure, offsets: Mapping[TP, int]) -> None:
        """Let records flow from these offsets; the consumer must have been positioned there."""
        self.expected = dict(offsets)
        self.tenure = tenure
        self.in_flight.clear()
        self._opened.set()

    def close(self) -> None:
        """Stop delivery; undelivered records are polled again after the next opening."""
        self.tenure = None
        self._opened.clear()

    async def wait_open(self) -> None:
        """Wait until it opens, at most `POLL_S` seconds."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._opened.wait(), POLL_S)

    @property
    def full(self) -> bool:
        """Whether the agent has its full number of polls."""
        return len(self.in_flight) >= POLLS

    def delivered(self, poll: FoldUnit) -> None:
        """Record that a poll is on its way to the agent."""
        self.in_flight.append(poll)

    def taken(self, poll: FoldUnit) -> None:
        """Record that the agent has folded a poll."""
        if poll.tenure == self.tenure and self.in_flight:
            self.in_flight.popleft()
            self._room.set()

    async def wait_room(self) -> None:
        """Wait until the agent has folded a poll, at most `POLL_S` seconds."""
        self._room.clear()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._room.wait(), POLL_S)

    async def wait_quiet(self) -> None:
        """Wait until no poll is in flight. A poll that ends after a seek would return records that nobody receives."""
        await self._quiet.wait()

    @contextmanager
    def polling(self) -> Iterator[None]:
        """Mark a poll in flight."""
        self._quiet.clear()
        try:
            yield
        finally:
            self._quiet.set()
