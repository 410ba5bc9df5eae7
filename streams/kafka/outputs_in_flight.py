"""Tracks a worker's own outputs until it folds them: queued, sent, or acknowledged and not yet folded.

A stage may not fold records much newer than a record in flight to another stage of the same worker. Records to
partitions of other workers are forgotten once sent.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from faust.types import TP


class _SentBatch(NamedTuple):
    """Records of one producer batch: order time of the oldest, and their number."""

    at: int
    records: int


class _QueuedOutputs(NamedTuple):
    """Outputs of one fold: order time of their cause, the internal topics they go to (real names), their number."""

    at: int
    topics: frozenset[str]
    records: int


class OutputsInFlight:
    """Outputs in flight to this worker's own source partitions, with their order times in milliseconds."""

    def __init__(self, topics: Mapping[str, str]) -> None:
        """Start with no records in flight."""
        self.topics = dict(topics)  # real names of the internal topics by catalogue name
        # False makes `oldest` ignore the records in flight; True again when one of them is folded
        self.waited_for = True
        self._folded: dict[TP, int] = {}
        self._queued: deque[_QueuedOutputs] = deque()
        self._sent: dict[int, tuple[TP, _SentBatch]] = {}
        self._acknowledged: dict[TP, deque[tuple[int, _SentBatch]]] = {}
        self._tickets = 0
        self.count = 0  # number of records in flight

    def reset(self) -> None:
        """Forget everything: the outputs are lost or created again."""
        self._queued.clear()
        self._sent.clear()
        self._acknowledged.clear()
        self.count = 0

    def own(self, folded: Mapping[TP, int]) -> None:
        """Track these partitions, folded up to these offsets; others are not tracked."""
        self.waited_for = True
        self._folded = dict(folded)
        for tp in [tp for tp in self._acknowledged if tp not in folded]:
            self.count -= sum(sent.records for _, sent in self._acknowledged.pop(tp))
        for tp, offset in folded.items():
            self.folded(tp, offset)

    # --- on the way -------------------------------------------------------------------------------------------------

    def queued(self, at: int, names: Iterable[str]) -> None:
        """Register queued records by their topics' catalogue names; `at` is the order time of their cause."""
        internal = [self.topics[name] for name in names if name in self.topics]
        self._queued.append(_QueuedOutputs(at, frozenset(internal), len(internal)))
        self.count += len(internal)

    def taken(self, entries: int) -> None:
        """Remove the first entries of the queue, which were made into batches and registered by `sent`."""
        for _ in range(min(entries, len(self._queued))):
            self.count -= self._queued.popleft().records

    def sent(self, tp: TP, at: int, count: int) -> int:
        """Register a batch given to the producer; return its ticket, 0 for a partition of another worker."""
        if tp not in self._folded:
            return 0
        self._tickets += 1
        self._sent[self._tickets] = tp, _SentBatch(at, count)
        self.count += count
        return self._tickets

    def acknowledged(self, ticket: int, end: int) -> None:
        """Record a batch's acknowledgement: it ends before offset `end`; unknown if negative."""
        if ticket not in self._sent:
            return
        tp, sent = self._sent.pop(ticket)
        if end <= self._folded.get(tp, end):  # negative, no longer owned, or folded before the acknowledgement
            self.count -= sent.records
        else:
            self._acknowledged.setdefault(tp, deque()).append((end, sent))

    def folded(self, tp: TP, offset: int) -> None:
        """Record that a partition is folded up to an offset."""
        self._folded[tp] = offset
        waiting = self._acknowledged.get(tp)
        if waiting is None:
            return
        while waiting and waiting[0][0] <= offset:
            self.count -= waiting.popleft()[1].records
            self.waited_for = True
        if not waiting:
            del self._acknowledged[tp]

    # --- questions --------------------------------------------------------------------------------------------------

    def oldest(self, topics: Collection[str], buffered: Collection[TP] = ()) -> float:
        """Return the order time of the oldest record in flight to topics (real names); infinity without one.

        Args:
            topics: the topics.
            buffered: partitions with records to fold; records sent to them are not waited for, as they are among
                those or will be behind them.
        """
        if not self.waited_for:
            return math.inf
        queued = next((entry.at for entry in self._queued if not entry.topics.isdisjoint(topics)), math.inf)
        return min(queued, self.oldest_of(topics, buffered))

    def oldest_of(self, topics: Collection[str], buffered: Collection[TP] = ()) -> float:
        """Return the order time of the oldest record sent to topics (real names); arguments as for `oldest`."""
        waiting = [*((tp, sent[0][1]) for tp, sent in self._acknowledged.items()), *self._sent.values()]
        return min((sent.at for tp, sent in waiting if tp.topic in topics and tp not in buffered), default=math.inf)
