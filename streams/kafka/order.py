"""Order across partitions: of all source partitions of a worker, the oldest head record is folded first.

A record's order time is its Kafka timestamp; for records between trustfold's own stages it is the order time of their
cause, from a header (`ORDER_TIME`), because their timestamp is the present. Within a partition it never decreases. So
windows give the same counts after an outage as live: simultaneous records are counted together, however late they are
folded.

Three rules hold a record back:

- a partition without buffered records, while the broker has some: its next record may be the oldest (for a bounded
  time);
- the worker's own outputs in flight: nothing is folded that is newer by more than the lead (for a bounded time);
- skew: other workers that are far behind, because the later stages would get records of today and yesterday mixed.

Workers exchange their progress through committed offsets: a commit carries, for each partition behind its log end, the
order time it has reached (`commit_note`); over a backlog they commit such notes many times a second. Between two
commits each outcome says how far the worker has come that wrote it. A worker ahead of the slowest by more than its lead
waits. With a backlog of its own it waits as long as the slowest catches up; with records of the present, or if the
slowest comes no further than the lead, for a bounded time, as a slow or stuck worker must not stop the group. Then it
continues until the skew has been small again. The lead grows with the pace of the slowest: waiting for less than it
folds between two exchanges would order nothing (docs/operating.md, Backlogs).
"""

from __future__ import annotations

import heapq
import logging
import math
import time
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import accumulate, islice
from operator import attrgetter
from secrets import token_hex
from typing import Any, NamedTuple

from faust.types import TP

from .backpressure import PartitionBatch
from .kafka_settings import KafkaSettings
from .outputs import ORDER_TIME
from .outputs_in_flight import OutputsInFlight

log = logging.getLogger(__name__)


class WorkerProgress(NamedTuple):
    """Progress of a worker: an order time in milliseconds, and the name of the worker's process."""

    at: int
    worker: str


def commit_note(behind: int | None, worker: str) -> str:
    """Return a partition's commit note: its order time in milliseconds, and its worker; empty at the log end."""
    return "" if behind is None else f"behind {behind} {worker}"


def read_note(note: str) -> WorkerProgress | None:
    """Return what a commit note says; None if it has no order time."""
    word, *rest = note.split(" ")
    return WorkerProgress(int(rest[0]), rest[1]) if word == "behind" and len(rest) == 2 and rest[0].isdigit() else None


EXCHANGES_AHEAD = 1
"""Exchanges in which the slowest worker's progress is how far another one may be ahead of it."""


class WorkerSkew:
    """Skew to the other workers.

    Attributes:
        seconds: order time between this worker's next record and the slowest other worker that is behind; 0 without.
    """

    def __init__(
        self,
        *,
        lead: float,
        wait: float,
        clock: Callable[[], float] = time.monotonic,
        present: Callable[[], float] = time.time,
    ) -> None:
        """Start without other workers.

        Args:
            lead: seconds of order time that this worker may be ahead.
            wait: longest time, in seconds, that it waits for a worker that does not catch up.
            clock: monotonic seconds.
            present: seconds since 1970.
        """
        self.seconds = 0.0
        self._lead_ms = lead * 1000
        self._wait = wait
        self._clock, self._present = clock, present
        self._slowest = math.inf
        self._behind: dict[str, int] = {}
        self._unknown = False
        self._since: float | None = None
        self._then = 0.0  # the slowest's order time at `_since`
        self._steps: deque[float] = deque(maxlen=EXCHANGES_AHEAD + 1)

    @property
    def slowest(self) -> float:
        """Order time of the slowest other worker that is behind, milliseconds; infinity without one."""
        return self._slowest

    @property
    def lead_ms(self) -> float:
        """Milliseconds of order time that this worker may be ahead: the setting, or the slowest's latest progress."""
        return max(self._lead_ms, self._steps[-1] - self._steps[0]) if self._steps else self._lead_ms

    def begin(self, *, alone: bool) -> None:
        """Start a tenure: the progress of other workers, if there are any, is unknown until the first exchange."""
        self._unknown, self._since = not alone, None

    def update(self, notes: Iterable[str], later: Iterable[str] = ()) -> None:
        """Update from the notes of the others' commits, after each exchange.

        Args:
            notes: those of the first stage's partitions.
            later: those of later stages' partitions; they count while none of the first stage is behind.
        """
        heard, self._behind, self._unknown = self._behind, {}, False
        for at, worker in filter(None, map(read_note, notes)):
            self._behind[worker] = min(at, self._behind.get(worker, at))
        for worker, at in self._behind.items():
            self._behind[worker] = max(at, heard.get(worker, at))
        last = min((reached.at for reached in map(read_note, later) if reached), default=math.inf)
        self._slowest = min(self._behind.values(), default=last)
        if self._slowest == math.inf:
            self.seconds, self._since = 0.0, None
            self._steps.clear()
        else:
            self._steps.append(self._slowest)

    def heard(self, reached: WorkerProgress) -> None:
        """Update from an outcome: a worker folds its partitions in order of time, so all have reached the outcome's."""
        at, worker = reached
        if at <= self._behind.get(worker, math.inf):
            return
        self._behind[worker] = at
        self._slowest = min(self._behind.values())
        self._steps.clear()  # progress is known between exchanges, so the lead need not span one

    def holds(self, head: float) -> bool:
        """Whether a record of this order time must wait."""
        if self._unknown:
            now = self._clock()
            self._since = now if self._since is None else self._since
            self._unknown = now - self._since <= self._wait
            return self._unknown
        if self._slowest == math.inf:
            return False
        ahead = head - self._slowest
        self.seconds = max(ahead / 1000, 0.0)
        if ahead <= self.lead_ms:
            self._since = None
            return False
        now = self._clock()
        catches_up = head < self._present() * 1000 - self._lead_ms and self._slowest - self._then >= self._lead_ms
        if self._since is None or (catches_up and self._since > -math.inf):
            self._since, self._then = now, self._slowest
        if now - self._since <= self._wait:
            return True
        if self._since > -math.inf:
            log.warning("this worker is %.0f s ahead of another one and has waited %g s; it no longer waits",
                        self.seconds, self._wait)  # fmt: skip
            self._since = -math.inf
        return False


SLACK_MS = 100
"""Milliseconds within which records of different partitions count as simultaneous, so that batches stay long."""

LEAD_RECORDS = 100
"""Records of the first stage that may be folded beyond the lead: a log with an event a minute would otherwise wait for
the brokers at each. Later stages use the time alone; their inputs are ordered.
"""

MOST_UNDERWAY = 20_000
"""Records in flight above which the first stage waits, whatever their time: they fill buffers."""

BUFFERED_POLLS = 2
"""Polls' worth of records that a partition may buffer before it is left out of polls."""

Place = Callable[[TP], tuple[int, int] | None]
"""Returns fetch position and log end of a partition, as of the last fetch; None before the first."""


class _PartitionBuffer:
    """Buffered records of one partition.

    Attributes:
        stage: position of its stage in the flow.
        internal: whether only trustfold's own stages write it.
        start: first offset of the next batch.
        latest: order time of the last added record.
    """

    __slots__ = ("_cursor", "_records", "_times", "internal", "latest", "stage", "start")

    def __init__(self, stage: int, start: int, *, internal: bool) -> None:
        self.stage, self.start, self.internal = stage, start, internal
        self.latest = 0
        self._records: list[Any] = []
        self._times: list[int] = []
        self._cursor = 0

    def __len__(self) -> int:
        return len(self._records) - self._cursor

    @property
    def head(self) -> int:
        """Return the order time of the next record."""
        return self._times[self._cursor]

    def add(self, records: Sequence[Any], times: Iterable[int]) -> None:
        """Append polled records and their order times."""
        del self._records[: self._cursor], self._times[: self._cursor]
        self._cursor = 0
        self._records += records
        self._times += islice(accumulate(times, max, initial=self.latest), 1, None)
        self.latest = self._times[-1]

    def cut(self, tp: TP, bound: float, most: int) -> PartitionBatch:
        """Take at most `most` records up to a time, at least one."""
        begin, times = self._cursor, self._times
        end = max(bisect_right(times, bound, begin, min(begin + most, len(times))), begin + 1)
        batch = PartitionBatch(tp, self._records[begin:end], self.start, times[begin], times[end - 1])
        self._cursor, self.start = end, batch.next_offset
        return batch


_timestamp = attrgetter("timestamp")


def _cause(record: Any) -> WorkerProgress:
    """Return the order time of a record's cause and the worker that folded it; without a header its timestamp."""
    for name, value in record.headers:
        if name == ORDER_TIME:
            at, _, worker = value.partition(b" ")
            if at.isdigit():
                return WorkerProgress(int(at), worker.decode())
    return WorkerProgress(record.timestamp, "")


class MergeOrder:
    """Buffers of the source partitions of one worker, and their merge order.

    Attributes:
        worker: name of this process, by which the others know its progress.
        outputs_in_flight: the worker's own outputs in flight.
        skew: progress of the other workers.
        held: why records are held back: `fetch`, `stage` or `workers`; empty if they are not.
    """

    def __init__(
        self,
        settings: KafkaSettings,
        stages: Mapping[str, int],
        internal: Mapping[str, str],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Start without partitions.

        Args:
            settings: leads, the longest wait, records of a poll.
            stages: place of the stage that reads a topic (real name) in the flow, from 0.
            internal: topics that only stages write, catalogue names by real name.
            clock: monotonic seconds.
        """
        self.worker = token_hex(4)
        self.outputs_in_flight = OutputsInFlight({name: real for real, name in internal.items()})
        self.skew = WorkerSkew(lead=settings.worker_lead, wait=settings.order_wait, clock=clock)
        self.held = ""
        self._stages = dict(stages)
        self._internal = frozenset(internal)
        self._until = [
            frozenset(real for real in internal if not stage or stages[real] <= stage)
            for stage in range(max(stages.values(), default=0) + 1)
        ]
        self._lead_ms = settings.stage_lead * 1000
        self._wait = settings.order_wait
        self._most = settings.poll_records
        self._clock = clock
        self._buffers: dict[TP, _PartitionBuffer] = {}
        self._missing: dict[TP, float] = {}
        self._stuck: tuple[float, float] | None = None

    def open(self, offsets: Mapping[TP, int]) -> None:
        """Reset to these partitions and offsets."""
        self._buffers = {
            tp: _PartitionBuffer(self._stages[tp.topic], offset, internal=tp.topic in self._internal)
            for tp, offset in offsets.items()
        }
        self._missing.clear()
        self._stuck = None
        self.held = ""
        self.outputs_in_flight.own(offsets)

    def oldest(self, topics: Collection[str]) -> float:
        """Return the order time of the oldest known record of topics (real names) to fold; infinity without one."""
        heads = [buffer.head for tp, buffer in self._buffers.items() if len(buffer) and tp.topic in topics]
        return min([*heads, self.outputs_in_flight.oldest_of(topics)])

    def behind(self, tp: TP, place: Place) -> int | None:
        """Return the order time of a partition with records to fold; None at its log end."""
        buffer = self._buffers.get(tp)
        if buffer is None or not buffer.latest or (not len(buffer) and _ended(place(tp))):
            return None
        return buffer.head if len(buffer) else buffer.latest

    def wanted(self) -> set[TP]:
        """Return the partitions with room for another poll."""
        limit = BUFFERED_POLLS * self._most
        return {tp for tp, buffer in self._buffers.items() if len(buffer) < limit}

    def add(self, tp: TP, records: Sequence[Any]) -> None:
        """Buffer polled records of a partition; they continue the previous ones."""
        self._missing.pop(tp, None)
        buffer = self._buffers[tp]
        if not buffer.internal:
            buffer.add(records, map(_timestamp, records))
            return
        causes = [_cause(record) for record in records]
        buffer.add(records, [at for at, _ in causes])
        if buffer.stage == 1 and self.skew.slowest < math.inf:
            for reached in causes:
                if reached.worker != self.worker:
                    self.skew.heard(reached)

    def take(self, place: Place, in_flight: Sequence[tuple[int, int]] = ()) -> list[PartitionBatch]:
        """Take the next batches to fold, in order; empty if all are held back.

        Args:
            place: returns the broker's positions.
            in_flight: order time of the first record, and number of records, of polls not yet folded.
        """
        self.held = ""
        buffers = self._buffers
        full = {tp for tp, buffer in buffers.items() if len(buffer)}
        if not full:
            return []
        if self._misses([tp for tp in buffers if tp not in full], place):
            self.held = "fetch"
            return []
        heads = [(buffers[tp].head, -buffers[tp].stage, tp) for tp in full]
        heapq.heapify(heads)
        polled = min((first for first, _ in in_flight), default=math.inf)
        bases = [min(self.outputs_in_flight.oldest(topics, full), polled) for topics in self._until]
        ahead = sum(count for _, count in in_flight) + self.outputs_in_flight.count
        taken = self._slices(heads, bases, ahead if self.outputs_in_flight.waited_for else 0, place)
        if not taken and self.held == "stage" and not in_flight:
            self._give_up_waiting(min(bases))
        return taken

    def _slices(
        self, heads: list[tuple[int, int, TP]], bases: list[float], ahead: int, place: Place
    ) -> list[PartitionBatch]:
        """Cut batches off the oldest heads, each up to the head of the next partition, until a poll is full.

        A stage waits for what may still reach it or a stage before it: what is under way, and the outputs of older
        records of the stages before it.

        Args:
            heads: a heap of order time, negative stage (the later stage first) and partition.
            bases: order time of the oldest record under way that each stage waits for.
            ahead: records under way.
            place: as for `take`.
        """
        taken: list[PartitionBatch] = []
        spare, limits = self._most, [base + self._lead_ms for base in bases]
        limits[0] = min(limits[0], heads[0][0] + self._lead_ms)
        while heads and spare > 0:
            head, negative, tp = heads[0]
            buffer, stage = self._buffers[tp], -negative
            most, bound = spare, min(limits[stage], min(heads[1:3])[0] + SLACK_MS if len(heads) > 1 else math.inf)
            held = self._holds(buffer, head, ahead)
            if head > limits[stage]:
                most, bound = min(spare, LEAD_RECORDS - ahead), head
                if stage or most <= 0:
                    held = "stage"
            limits[stage + 1 :] = [min(limit, head + self._lead_ms) for limit in limits[stage + 1 :]]
            if held:
                self.held = held
                heapq.heappop(heads)
                continue
            batch = buffer.cut(tp, min(bound, head + self._lead_ms), most)
            taken.append(batch)
            spare -= len(batch.records)
            ahead += len(batch.records)
            if len(buffer):
                heapq.heapreplace(heads, (buffer.head, negative, tp))
            elif _ended(place(tp)):
                heapq.heappop(heads)
            else:
                break  # the next record of this partition may be older than the other heads
        if taken:
            self._stuck = None
        return taken

    def _holds(self, buffer: _PartitionBuffer, head: float, ahead: int) -> str:
        """Return why a partition is held back although its record is old enough; empty if it is not."""
        if not buffer.stage and ahead > MOST_UNDERWAY:
            return "stage"
        return "workers" if not buffer.internal and self.skew.holds(head) else ""

    def _misses(self, empty: Iterable[TP], place: Place) -> bool:
        """Whether to wait for a partition with records at the broker and none in its buffer."""
        now, waiting = self._clock(), False
        for tp in empty:
            if _ended(place(tp)):
                self._missing.pop(tp, None)
            elif now - (since := self._missing.setdefault(tp, now)) <= self._wait:
                waiting = True
            elif since > -math.inf:
                log.warning(
                    "%s/%d returned no record for %g s; the other partitions no longer wait for it", *tp, self._wait
                )
                self._missing[tp] = -math.inf
        return waiting

    def _give_up_waiting(self, base: float) -> None:
        """Stop waiting for records in flight that have not moved for too long."""
        now = self._clock()
        if self._stuck is None or self._stuck[0] != base:
            self._stuck = base, now
        if now - self._stuck[1] <= self._wait:
            return
        log.warning("%d outputs of this worker were not read back within %g s; its stages no longer wait for them",
                    self.outputs_in_flight.count, self._wait)  # fmt: skip
        self.outputs_in_flight.waited_for = False
        self._stuck = None


def _ended(place: tuple[int, int] | None) -> bool:
    """Whether the fetch position has reached the known log end."""
    return place is not None and place[0] >= place[1]
