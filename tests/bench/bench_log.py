"""The log every contestant reads, and how many records reading it to the end makes.

Calls that never end in the recordings are ended here, as the engine would end them on its first tick after the log:
the finishes are part of the log that is published. So nothing falls due by itself in a run, and both counts are the
same however fast a contestant is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from aiokafka.partitioner import murmur2
from bench_events import Told

from trustfold.projections.topology import STAGES, make_processor
from trustfold.schemas.rules import Rules

SESSION = STAGES[0]


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
        appended: finishes the session stage writes to the events topic while it folds them; all are repeats.
        outcomes: records it writes to the outcomes topic.
    """

    partitions: list[list[tuple[bytes, bytes]]]
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


def make_log(events: list[Told], partitions: int) -> Log:
    """Spread events over partitions by their session, end what is open, and count what folding them gives."""
    spread: list[list[tuple[bytes, bytes]]] = [[] for _ in range(partitions)]
    places: dict[str, int] = {}
    for event in events:
        key = event.session.encode()
        place = places.get(event.session)
        if place is None:
            place = places[event.session] = partition_of(key, partitions)
        spread[place].append((key, event.value))
    appended = outcomes = 0
    for number, records in enumerate(spread):
        more, caused, repeats = _fold(records, number)
        records.extend(more)
        appended += repeats
        outcomes += caused
    return Log(spread, appended, outcomes)


def _fold(records: list[tuple[bytes, bytes]], partition: int) -> tuple[list[tuple[bytes, bytes]], int, int]:
    """Finishes that the records lack; outcomes and appended events that folding all of it gives."""
    processor = make_processor(SESSION, partition, Rules())
    outputs = processor.process("events", [LogRecord(key, value, at) for at, (key, value) in enumerate(records)])
    added: list[tuple[bytes, bytes]] = []
    while (due := processor.next_due()) is not None:
        ends = [(made.key.encode(), made.value) for made in processor.due(due) if made.value is not None]
        if not ends:
            raise RuntimeError("something is due, but nothing ends it")
        start = len(records) + len(added)
        outputs += processor.process("events", [LogRecord(k, v, start + at) for at, (k, v) in enumerate(ends)])
        added += ends
    topics = [output.topic for output in outputs]
    return added, topics.count("outcomes"), topics.count("events")
