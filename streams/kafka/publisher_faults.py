"""Recognises how publishers mis-key events, in samples of their records (docs/events.md#mistakes-of-publishers).

A session is folded in the one partition that holds its events. A publisher that spreads them breaks every decision
about the session, and no single record shows it: nothing is rejected. So the worker looks at one record of a batch, and
`trustfold doctor` at the latest records of each partition.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import orjson

from ...errors import DOCS
from .outputs import partition_of

log = logging.getLogger(__name__)

SAMPLE_S = 0.01  # Least time in seconds between two samples
REPEAT_S = 600.0  # Seconds after which a mistake that goes on is logged again

NO_KEY, OTHER_KEY, OTHER_PARTITIONER = "no_key", "other_key", "other_partitioner"

_REMEDY = "decisions about it are wrong: key each event by its session_id"

# By kind: what is said of a record, and what to do
MISTAKES = {
    NO_KEY: f"has no key, so that the events of its session are spread over the partitions, and {_REMEDY}",
    OTHER_KEY: "has another key than its session_id, so that its session's events may lie in several partitions, and "
    + _REMEDY,
    OTHER_PARTITIONER: "lies in another partition than murmur2, Kafka's default, gives its key, and others do not, so "
    "that publishers spread a session over partitions: set partitioner=murmur2_random in librdkafka's clients",
}


def mistake_of(key: bytes | None, value: bytes | None, partition: int, partitions: int) -> str | None:
    """Return how a record of `events` is keyed wrongly: a kind of MISTAKES; None if it is not, or is no event.

    OTHER_PARTITIONER is harmless while all publishers use the same one.
    """
    try:
        session = orjson.loads(value or b"").get("session_id")
        named = session.encode()
    except (ValueError, AttributeError):
        return None
    if not key:
        return NO_KEY
    if key != named:
        return OTHER_KEY
    return OTHER_PARTITIONER if partition_of(key, partitions) != partition else None


class KeySamples:
    """Samples of the records of `events` that a worker folds."""

    def __init__(self, partitions: int, clock: Callable[[], float] = time.monotonic) -> None:
        """Start without samples; `clock` returns monotonic seconds."""
        self._partitions = partitions
        self._clock = clock
        self._next = 0.0
        self._at_home = False
        self._elsewhere = 0
        self._logged: dict[str, float] = {}
        # samples by kind of mistake; of another partitioner only if some publishers use it and others do not
        self.mistakes: Counter[str] = Counter()

    def look(self, topic: str, partition: int, record: Any) -> None:
        """Look at a record, unless the last sample is too recent; log a mistake once, and again while it lasts."""
        now = self._clock()
        if now < self._next:
            return
        self._next = now + SAMPLE_S
        kind = mistake_of(record.key, record.value, partition, self._partitions)
        if kind is None:
            self._at_home = True
            return
        if kind == OTHER_PARTITIONER:
            self._elsewhere += 1
            if not self._at_home:
                return
        self.mistakes[kind] = self._elsewhere if kind == OTHER_PARTITIONER else self.mistakes[kind] + 1
        if now - self._logged.get(kind, -REPEAT_S) >= REPEAT_S:
            self._logged[kind] = now
            log.warning("%s/%d at offset %d %s (%s/events.md#mistakes-of-publishers)",
                        topic, partition, record.offset, MISTAKES[kind], DOCS)  # fmt: skip
