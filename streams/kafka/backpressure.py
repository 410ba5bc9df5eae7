"""What flows through the lane, and the gate that lets it flow.

The gate is closed while partitions change hands. Between closing and opening it every source partition is put to its
offset, with no poll in flight, so nothing can be lost on the way.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from faust.types import TP

POLL_S = 0.25
"""Longest wait for records. A closing gate must wait for the poll in flight, so it is short."""

POLLS = 2
"""Polls on their way to the agent: one it folds, one that waits. The order is chosen as late as possible."""


@dataclass(frozen=True, slots=True)
class Tenure:
    """One uninterrupted time of owning partitions.

    Attributes:
        number: counts the tenures of this process; also a reclaim within one generation begins a new one.
        generation: group generation it falls into.
    """

    number: int
    generation: int


class Batch:
    """Records of one source partition, in offset order.

    Attributes:
        tp: topic (real name) and partition.
        records: aiokafka's records, at least one.
        start: offset expected first; the first record may come later where the log has holes.
        next_offset: offset after the last record.
        first: order time of the first record, milliseconds (see `order`).
        reached: order time of the last one.
    """

    __slots__ = ("first", "next_offset", "reached", "records", "start", "tp")

    def __init__(self, tp: TP, records: list[Any], start: int, first: int = 0, reached: int = 0) -> None:
        """Wrap records that follow each other."""
        self.tp = tp
        self.records = records
        self.start = start
        self.next_offset: int = records[-1].offset + 1
        self.first = first
        self.reached = reached


class Poll:
    """What is folded in one go: batches of any partitions, in the order in which they are folded.

    Attributes:
        batches: at least one.
        tenure: in which they were delivered.
        first: smallest order time of their records.
        count: number of their records.
    """

    __slots__ = ("batches", "count", "first", "tenure")

    def __init__(self, tenure: Tenure, batches: list[Batch]) -> None:
        """Put batches together."""
        self.tenure = tenure
        self.batches = batches
        self.first = min(batch.first for batch in batches)
        self.count = sum(len(batch.records) for batch in batches)


class Gate:
    """Whether source records may flow, and from where.

    Attributes:
        tenure: the tenure it is open for; None while closed.
        expected: next offset of each partition that the lane takes, while open.
        in_flight: polls on their way to the agent.
    """

    def __init__(self) -> None:
        """Start closed."""
        self.tenure: Tenure | None = None
        self.expected: dict[TP, int] = {}
        self.in_flight: deque[Poll] = deque()
        self._room = asyncio.Event()
        self._opened = asyncio.Event()
        self._quiet = asyncio.Event()
        self._quiet.set()

    def open(self, tenure: Tenure, offsets: Mapping[TP, int]) -> None:
        """Let records flow from these offsets; the consumer must have been put there."""
        self.expected = dict(offsets)
        self.tenure = tenure
        self.in_flight.clear()
        self._opened.set()

    def close(self) -> None:
        """Deliver nothing more; what was polled and not delivered is polled again after the next opening."""
        self.tenure = None
        self._opened.clear()

    async def wait_open(self) -> None:
        """Wait until it opens, at most POLL_S seconds."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._opened.wait(), POLL_S)

    @property
    def full(self) -> bool:
        """Whether the agent has enough to do."""
        return len(self.in_flight) >= POLLS

    def delivered(self, poll: Poll) -> None:
        """A poll is on its way to the agent."""
        self.in_flight.append(poll)

    def taken(self, poll: Poll) -> None:
        """The agent is done with a poll."""
        if poll.tenure == self.tenure and self.in_flight:
            self.in_flight.popleft()
            self._room.set()

    async def wait_room(self) -> None:
        """Wait until the agent is done with a poll, at most POLL_S seconds."""
        self._room.clear()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._room.wait(), POLL_S)

    async def wait_quiet(self) -> None:
        """Wait until no poll is in flight. A poll that ends after a seek would take records nobody gets."""
        await self._quiet.wait()

    @contextmanager
    def polling(self) -> Iterator[None]:
        """Marks a poll in flight."""
        self._quiet.clear()
        try:
            yield
        finally:
            self._quiet.set()
