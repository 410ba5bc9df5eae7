"""The pure core of both engines: records in, outputs and touched states out.

One StageProcessor folds one stage over one partition. It reads no clock and does no I/O: the engine hands it
records, persists what it returns, and asks it what is due. Re-delivered records are recognised by the position
kept in each key's state and change nothing (design 1, Why it can be fast and exact at once).
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import islice
from typing import Any, Protocol

from ..schemas.codec import EARLIEST, LATEST
from ..schemas.envelope import traceparent_of
from ..schemas.errors import EventRejected, RejectReason
from ..schemas.events import epoch_ms
from ..schemas.rules import Rules
from .dead_letters import dead_letter, described_without_secrets
from .emit import Emitter, Output
from .rule_source import RuleSource, source_of
from .snapshot import SnapshotCodec, header
from .stage import KeyState, Stage

CLOCK_TOLERANCE_MS = 60_000
"""How far an event's own time may run ahead of its record's timestamp (design 2, Time and order)."""

FIRST_MS, LAST_MS = epoch_ms(EARLIEST), epoch_ms(LATEST) - 1
"""Times that an event may have; what is written at another one could not be read back."""

ORIGIN_BITS = 14
"""Room for the ordinals of what one record makes a stage tell: 64 for each call that a session may have open."""


class SourceRecord(Protocol):
    """A record as aiokafka gives it; the embedded engine makes its own of the same shape."""

    @property
    def key(self) -> bytes | None:
        """Record key."""

    @property
    def value(self) -> bytes | None:
        """Record value; None is a tombstone."""

    @property
    def timestamp(self) -> int:
        """Arrival or creation, milliseconds; -1 when unknown."""

    @property
    def offset(self) -> int:
        """Position in its partition."""

    @property
    def headers(self) -> Sequence[tuple[str, bytes]]:
        """Kafka headers."""


class StageProcessor:
    """Folds one stage over one partition.

    Attributes:
        stream_time: largest effective time seen, milliseconds; 0 before the first event.
        folded: events folded since the start.
        duplicates: re-delivered records dropped by position.
        rejected: records that became dead letters.
        source: which rules hold for which key.
    """

    def __init__(
        self,
        stage: Stage[Any],
        *,
        partition: int,
        rules: Rules | RuleSource,
        load: Callable[[bytes], bytes | None] = lambda _key: None,
    ) -> None:
        """Start with no live state; `load` gives the stored snapshot of a key, or None."""
        self.stage = stage
        self.partition = partition
        self.source = source_of(rules)
        self.stream_time = 0
        self.folded = self.duplicates = self.rejected = 0
        self._load = load
        self._codec: SnapshotCodec[KeyState] = SnapshotCodec(stage.state_type, stage.state_version)
        self._slots = {topic: slot for slot, topic in enumerate(stage.sources)}
        self._live: dict[str, KeyState] = {}
        self._dirty: dict[str, KeyState] = {}
        self._emit = Emitter()
        self._emit.origin_partition = partition
        self._due_heap: list[tuple[int, str]] = []
        self._due_known: dict[str, int] = {}
        self._due_told: set[str] = set()

    def process(self, topic: str, records: Iterable[SourceRecord]) -> list[Output]:  # noqa: C901, PLR0915 - one hot loop
        """Fold records of one source topic, in order, and return what they cause.

        Bad input never raises: it comes back as an output on `dead-letters`. Rules that change meanwhile hold from the
        next call on. With the kill switch on, records are passed over.
        """
        source = self.source
        rules, scoped = source.rules, source.scoped
        if not rules.enabled:
            return []
        slot = self._slots[topic]
        stage, emit = self.stage, self._emit
        decode, envelope, fold = stage.decode, stage.envelope, stage.fold
        due_at, due_known, due_told = stage.due_at, self._due_known, self._due_told
        live, dirty = self._live, self._dirty
        outputs = emit.outputs = []
        emit.origin_topic = topic
        clock, folded = self.stream_time, 0
        for record in records:
            value, offset = record.value, record.offset
            if value is None:
                self.rejected += 1
                outputs.append(dead_letter(record, topic, self.partition, _null(topic)))
                continue
            try:
                event = decode(topic, value)
                key, event_id, at = envelope(event)
            except EventRejected as rejected:
                self.rejected += 1
                shown = described_without_secrets(value, rejected, partial(decode, topic))
                outputs.append(dead_letter(record, topic, self.partition, shown))
                continue
            state = live.get(key) or self._state_of(key)
            if offset <= state.positions[slot]:
                self.duplicates += 1
                continue
            state.positions[slot] = offset
            dirty[key] = state
            if 0 < record.timestamp < at - CLOCK_TOLERANCE_MS:
                at = max(record.timestamp + CLOCK_TOLERANCE_MS, FIRST_MS)
                emit.count("clamped")
            if at < state.clock:  # noqa: PLR1730 - runs for every event, and max() costs three times as much
                at = state.clock
            if at > clock:  # noqa: PLR1730 - as above
                clock = at
            emit.origin = offset << ORIGIN_BITS
            emit.begin(event_id, at, traceparent_of(record.headers) if record.headers else None)
            before = len(outputs)
            try:
                own = scoped or state.overrides
                fold(state, event, at, source.of(*stage.scopes(state, event)) if own else rules, emit)
            except Exception as fault:  # noqa: BLE001 - a fault of ours must not stop the partition; the event is kept
                del outputs[before:]
                self.rejected += 1
                outputs.append(dead_letter(record, topic, self.partition, _fault(fault)))
            state.clock = at
            folded += 1
            due = due_at(state)
            if due is None:
                if key in due_told:
                    due_known.pop(key, None)
                    due_told.discard(key)
            elif (known := due_known.get(key)) is None or due < known or (due != known and key in due_told):
                self._schedule(key, due)  # a later one is looked up when the earlier one has come
        self.stream_time = clock
        self.folded += folded
        return outputs

    def adopt(self, items: Iterable[tuple[bytes, bytes]]) -> None:
        """Learn stream time and due times of stored states after a restart, from their headers alone."""
        for raw_key, snapshot in items:
            _, clock, due = header(snapshot)
            self.stream_time = max(self.stream_time, clock)
            if due is not None:
                self._schedule(raw_key.decode(), due)

    def next_due(self) -> int | None:
        """Earliest time at which something falls due, milliseconds; None if nothing is."""
        heap, known = self._due_heap, self._due_known
        while heap:
            due, key = heap[0]
            if known.get(key) != due or key in self._due_told:
                heapq.heappop(heap)  # an earlier one has taken its place, or it has been told
                continue
            now_due = self.stage.due_at(self._state_of(key))
            if now_due == due:
                return due
            heapq.heappop(heap)  # the state has moved on since
            del known[key]
            if now_due is not None:
                self._schedule(key, now_due)
        return None

    def due(self, now: int) -> list[Output]:
        """Events to append to the stage's own source topic for all that is due at or before `now`.

        Each is given once; it takes effect when it is read back from the log.
        """
        emit = self._emit
        outputs = emit.outputs = []
        if not self.source.rules.enabled:
            return outputs
        while (due := self.next_due()) is not None and due <= now:
            _, key = heapq.heappop(self._due_heap)
            self._due_told.add(key)
            emit.begin(f"{key}@{due}", due)
            self.stage.due(self._state_of(key), key, due, self.source.rules, emit)
        return outputs

    def _schedule(self, key: str, due: int) -> None:
        """Have `next_due` look at a key by then; never, where no event may have that time any more."""
        if due > LAST_MS:
            return
        self._due_known[key] = due
        self._due_told.discard(key)
        heapq.heappush(self._due_heap, (due, key))

    def counted(self) -> dict[str, int]:
        """What the folds have counted since the last call, by name (`Emitter.count`); nothing of it is in any state."""
        counts, self._emit.counts = self._emit.counts, {}
        return counts

    def snapshot(self) -> list[tuple[bytes, bytes | None]]:
        """Snapshots of the states touched since the last call; they count as clean from now on."""
        due_at, encode = self.stage.due_at, self._codec.encode
        taken: list[tuple[bytes, bytes | None]] = [
            (key.encode(), encode(state, due_at(state))) for key, state in self._dirty.items()
        ]
        live = self._live
        for key in self._dirty:
            live[key] = live.pop(key)  # most recently used last, for forget_clean
        self._dirty.clear()
        return taken

    def forget_clean(self, keep: int) -> None:
        """Drop decoded states without an unsaved change, longest unused first, until `keep` are left."""
        excess = len(self._live) - keep
        if excess > 0:
            for key in list(islice((key for key in self._live if key not in self._dirty), excess)):
                del self._live[key]

    def state(self, key: str) -> KeyState | None:
        """Live or stored state of a key, for views; None if the key was never seen."""
        if key in self._live or self._load(key.encode()) is not None:
            return self._state_of(key)
        return None

    def _state_of(self, key: str) -> KeyState:
        state = self._live.get(key)
        if state is None:
            stored = self._load(key.encode())
            state = self._codec.decode(stored) if stored is not None else self.stage.state_type()
            state.positions.extend([-1] * (len(self._slots) - len(state.positions)))
            self._live[key] = state
        return state


def _null(topic: str) -> EventRejected:
    return EventRejected(
        RejectReason.NULL_VALUE, "$", f"a record of {topic} must have a value: publish the event itself"
    )


def _fault(fault: Exception) -> EventRejected:
    if isinstance(fault, EventRejected):  # settings of a session that do not fit: the fold alone knows the rules
        return fault
    message = f"trustfold failed on this event ({type(fault).__name__}: {fault}); please report it, then republish"
    return EventRejected(RejectReason.INTERNAL_ERROR, "$", message)
