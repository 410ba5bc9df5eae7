"""The log every contestant reads, and how many records reading it to the end makes.

Calls that never end in the recordings are ended here, as the engine would end them on its first tick after the log:
the finishes are part of the log that is published. So nothing falls due by itself in a run, and both counts are the
same however fast a contestant is.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, NamedTuple

from aiokafka.partitioner import murmur2
from bench_events import Told
from trustfold.projections.processor import StageProcessor
from trustfold.projections.topology import STAGES
from trustfold.rules.rules import RuleSet

SESSION = STAGES[0]

Pairs = list[tuple[bytes, bytes]]
"""Keys and values."""


class LogRecord(NamedTuple):
    """A record as the processors read it."""

    key: bytes | None
    value: bytes | None
    offset: int
    timestamp: int = -1
    headers: tuple[tuple[str, bytes], ...] = ()


@dataclass(frozen=True)
class Log:
    """What is published, and what comes of it.

    Attributes:
        partitions: keys and values of each partition, in order.
        timestamps: of these records, milliseconds; the folds believe no event that is far beyond it.
        appended: finishes the session stage writes to the events topic while it folds them; all are repeats.
        outcomes: records it writes to the outcomes topic.
    """

    partitions: list[Pairs]
    timestamps: list[list[int]]
    appended: int
    outcomes: int

    @property
    def preloaded(self) -> int:
        """Records to publish."""
        return sum(map(len, self.partitions))


def partition_of(key: bytes, partitions: int) -> int:
    """Partition of a key as Kafka's clients choose it."""
    number: int = (murmur2(key) & 0x7FFFFFFF) % partitions
    return number


def make_log(events: list[Told], partitions: int, rate: float = 0.0) -> Log:
    """Spread events over partitions by their session, end what is open, and count what folding them gives.

    Args:
        events: in the order in which they arrive.
        partitions: of the topic.
        rate: events a second that arrived until now, by their records' timestamps; 0: all arrive now.
    """
    spread: list[Pairs] = [[] for _ in range(partitions)]
    times: list[list[int]] = [[] for _ in range(partitions)]
    places: dict[str, int] = {}
    now = int(time.time() * 1000)
    for number, event in enumerate(events):
        key = event.session.encode()
        place = places.get(event.session)
        if place is None:
            place = places[event.session] = partition_of(key, partitions)
        spread[place].append((key, event.value))
        times[place].append(now - int((len(events) - number) / rate * 1000) if rate else now)
    appended = outcomes = 0
    for number, records in enumerate(spread):
        more, caused, repeats = _fold(records, number, now)
        records.extend(more)
        times[number].extend([now] * len(more))
        appended += repeats
        outcomes += caused
    return Log(spread, times, appended, outcomes)


def _fold(records: Pairs, partition: int, now: int) -> tuple[Pairs, int, int]:
    """Finishes that the records lack; outcomes and appended events that folding all of it gives."""
    processor = StageProcessor(SESSION, partition, RuleSet())
    outputs = processor.process("events", _records(records, 0, now))
    added: Pairs = []
    while (due := processor.next_due()) is not None:
        ends = [(made.key.encode(), made.value) for made in processor.due(due) if made.value is not None]
        if not ends:
            raise RuntimeError("something is due, but nothing ends it")
        outputs += processor.process("events", _records(ends, len(records) + len(added), now))
        added += ends
    topics = [output.topic for output in outputs]
    return added, topics.count("outcomes"), topics.count("events")


def _records(pairs: Pairs, start: int, now: int) -> Any:
    return [LogRecord(key, value, start + at, now) for at, (key, value) in enumerate(pairs)]
