"""What flows through the lane, and the gate that lets it flow.

The gate is closed while partitions change hands. Between closing and opening it every source partition is put to its
offset, with no poll in flight, so nothing can be lost on the way.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from faust.types import TP

POLL_S = 0.25
"""Longest wait for records. A closing gate must wait for the poll in flight, so it is short."""

BUFFERED_POLLS = 8
"""Polls of a topic that may wait for their agent before the lane stops polling the topic."""


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
    """

    __slots__ = ("next_offset", "records", "start", "tp")

    def __init__(self, tp: TP, records: list[Any], start: int) -> None:
        """Wrap the records of one poll."""
        self.tp = tp
        self.records = records
        self.start = start
        self.next_offset: int = records[-1].offset + 1


class Poll:
    """What one poll gave for one topic.

    Attributes:
        topic: real name.
        batches: one for each partition that had records.
        tenure: in which they were delivered.
    """

    __slots__ = ("batches", "tenure", "topic")

    def __init__(self, topic: str, tenure: Tenure) -> None:
        """Start without batches."""
        self.topic = topic
        self.tenure = tenure
        self.batches: list[Batch] = []


class Gate:
    """Whether source records may flow, and from where.

    Attributes:
        tenure: the tenure it is open for; None while closed.
        expected: next offset of each partition, while open.
    """

    def __init__(self) -> None:
        """Start closed."""
        self.tenure: Tenure | None = None
        self.expected: dict[TP, int] = {}
        self._buffered: Counter[str] = Counter()
        self._room = asyncio.Event()
        self._opened = asyncio.Event()
        self._quiet = asyncio.Event()
        self._quiet.set()

    def open(self, tenure: Tenure, offsets: Mapping[TP, int]) -> None:
        """Let records flow from these offsets; the consumer must have been put there."""
        self.expected = dict(offsets)
        self.tenure = tenure
        self._buffered.clear()
        self._opened.set()

    def close(self) -> None:
        """Deliver nothing more; what was polled and not delivered is polled again after the next opening."""
        self.tenure = None
        self._opened.clear()

    async def wait_open(self) -> None:
        """Wait until it opens, at most POLL_S seconds."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._opened.wait(), POLL_S)

    def pollable(self) -> set[TP]:
        """Partitions of topics whose agents keep up."""
        buffered = self._buffered
        return {tp for tp in self.expected if buffered[tp.topic] < BUFFERED_POLLS}

    def delivered(self, topic: str) -> None:
        """A poll of the topic is on its way to the agent."""
        self._buffered[topic] += 1

    def taken(self, poll: Poll) -> None:
        """The agent is done with a poll."""
        if poll.tenure == self.tenure:
            self._buffered[poll.topic] -= 1
            self._room.set()

    async def wait_room(self) -> None:
        """Wait until some agent is done with a poll, at most POLL_S seconds."""
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
