"""Pure core of both engines: takes records, returns outputs and touched states.

A StageProcessor folds one stage over one partition. It uses no clock and no I/O: the engine passes it records, stores
what it returns, and asks for due events. Re-delivered records are recognised by the position in each key's state and
change nothing (docs/architecture.md#order-at-a-checkpoint).

A key that has been idle for long starts with a new state at its next record; that depends on its own records only. Its
stored state is dropped later, once no record can arrive that continues it; when that happens has no visible effect
(docs/subsystems/folds.md).
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any

from ..errors import EventRejected, RejectReason
from ..rules.rules import RuleSet
from ..schemas.envelope import traceparent_of
from ..schemas.event_base import EARLIEST, LATEST
from ..schemas.events import epoch_ms
from ..schemas.outcomes import US
from .dead_letters import dead_letter, described_without_secrets
from .emitter import OutputEmitter, StageOutput
from .rule_source import RuleSource, source_of
from .snapshot import SnapshotCodec, codec_of, header
from .stage import HOUR_MS, KeyState, SourceRecord, StateRetention, TopologyStage

# Milliseconds an event's time may be ahead of its record's timestamp (docs/design/contracts.md#time-and-order)
CLOCK_TOLERANCE_MS = 60_000

LATE_MS = 60_000  # Milliseconds by which an event that comes after a younger one of its key counts as late

# Valid event times; records written at another time could not be read back
FIRST_MS, LAST_MS = epoch_ms(EARLIEST), epoch_ms(LATEST) - 1

# Bits for the ordinals of the records that one input makes a stage emit: 64 for each open call of a session
ORIGIN_BITS = 14


BUCKET_MS = 60_000  # Width of a bucket of idle keys in milliseconds: keys within the same minute are not distinguished
IDLE_AT_ONCE = 500  # Number of idle states checked per snapshot; a backlog is spread over several


class StageProcessor:
    """Folds one stage over one partition.

    Attributes:
        stream_time: largest effective time seen, milliseconds; 0 before the first event.
        folded: events folded since the start.
        duplicates: re-delivered records dropped by position.
        rejected: records that became dead letters.
        source: rules by key.
    """

    def __init__(
        self,
        stage: TopologyStage[Any],
        partition: int,
        rules: RuleSet | RuleSource,
        load: Callable[[bytes], bytes | None] = lambda _key: None,
    ) -> None:
        """Start without decoded states; `load` returns the stored snapshot of a key, or None."""
        self.stage = stage
        self.partition = partition
        self.source = source_of(rules)
        self.stream_time = 0
        self.folded = self.duplicates = self.rejected = 0
        self._load = load
        self._codec: SnapshotCodec[KeyState] = codec_of(stage)
        self._slots = {topic: slot for slot, topic in enumerate(stage.sources)}
        self._live: dict[str, KeyState] = {}
        self._dirty: dict[str, KeyState] = {}
        self._emit = OutputEmitter()
        self._emit.origin_partition = partition
        self._due_heap: list[tuple[int, str]] = []
        self._due_known: dict[str, int] = {}
        self._due_appended: set[str] = set()
        self._idle = IdleKeys()
        self._dropped: set[str] = set()
        self._expiring: dict[str, int] = {}
        self._arrivals = self._idle_until = 0

    def process(self, topic: str, records: Iterable[SourceRecord]) -> list[StageOutput]:  # noqa: C901, PLR0912, PLR0915 - one hot loop
        """Fold records of one source topic, in order, and return their outputs.

        Bad input never raises: it becomes an output on `dead-letters`. Changed rules apply from the next call on. With
        the kill switch on, records are skipped.
        """
        source = self.source
        rules, scoped = source.rules, source.scoped
        if not rules.enabled:
            return []
        slot = self._slots[topic]
        stage, emit = self.stage, self._emit
        decode, envelope, fold = stage.sources[topic], stage.envelope, stage.fold
        due_at, due_known, due_appended = stage.due_at, self._due_known, self._due_appended
        live, dirty = self._live, self._dirty
        outputs = emit.outputs = []
        emit.origin_topic = topic
        clock, folded = self.stream_time, 0
        idle_ms, by_arrival = self._idle_ms(), stage.by_arrival
        is_appended, expire = stage.is_appended, stage.expire
        arrivals = LAST_MS
        for record in records:
            value, offset = record.value, record.offset
            if value is None:
                self.rejected += 1
                outputs.append(dead_letter(record, topic, self.partition, _null(topic)))
                continue
            try:
                event = decode(value)
                key, event_id, at = envelope(event)
            except Exception as fault:  # noqa: BLE001 - no record stops a partition, whatever it does to a decoder
                self.rejected += 1
                shown = described_without_secrets(value, _fault(fault), decode)
                outputs.append(dead_letter(record, topic, self.partition, shown))
                continue
            state = live.get(key) or self._state_of(key)
            if offset <= state.positions[slot]:
                self.duplicates += 1
                continue
            state.positions[slot] = offset
            dirty[key] = state
            timestamp = record.timestamp
            if 0 < timestamp < at - CLOCK_TOLERANCE_MS:
                at = max(timestamp + CLOCK_TOLERANCE_MS, FIRST_MS)
                emit.count("clamped")
            if timestamp < arrivals:  # noqa: PLR1730 - as below
                arrivals = timestamp
            event_time = at
            active_at = timestamp if by_arrival and timestamp > 0 else event_time
            if at < state.clock:
                emit.late = state.clock - at > LATE_MS
                at = state.clock
            emit.origin = offset << ORIGIN_BITS
            stated = getattr(event, "traceparent", None)
            traceparent = traceparent_of(record.headers, stated) if stated or record.headers else None
            emit.begin(event_id, at, traceparent)
            before, alive = len(outputs), not is_appended(event)
            last = state.arrived or state.clock
            try:
                own = scoped or state.overrides
                its_rules = source.of(*stage.scopes(state, event)) if own else rules
                if active_at - last >= idle_ms and last and alive and expire(state, key, at, its_rules, emit):
                    state = live[key] = dirty[key] = stage.state_type(positions=state.positions)
                    if own:
                        its_rules = source.of(*stage.scopes(state, event))
                    at = event_time
                    emit.begin(event_id, at, traceparent)
                fold(state, event, at, its_rules, emit)
            except Exception as fault:  # noqa: BLE001 - a fault of ours must not stop the partition; the event is kept
                del outputs[before:]
                self.rejected += 1
                outputs.append(dead_letter(record, topic, self.partition, _fault(fault)))
            state.clock = at
            if at > clock:  # noqa: PLR1730 - as above
                clock = at
            if by_arrival and alive and active_at > last:
                state.arrived = active_at
            folded += 1
            due = due_at(state)
            if due is None:
                if key in due_appended:
                    due_known.pop(key, None)
                    due_appended.discard(key)
            elif (known := due_known.get(key)) is None or due < known or (due != known and key in due_appended):
                self._schedule(key, due)  # a later deadline is looked up at the earlier one
        self.stream_time = clock
        self.folded += folded
        if self._arrivals < arrivals < LAST_MS:
            self._arrivals = arrivals
        return outputs

    def adopt(self, items: Iterable[tuple[bytes, bytes]]) -> None:
        """Restore stream time, deadlines and keys of stored states after a restart, from their headers alone."""
        for raw_key, snapshot in items:
            _, clock, due = header(snapshot)
            self.stream_time = max(self.stream_time, clock)
            self._idle.add(raw_key, clock)
            if due is not None:
                self._schedule(raw_key.decode(), due)

    def next_due(self) -> int | None:
        """Return the earliest deadline, milliseconds; None without one."""
        due = self._next_of_states()
        expiring = min(self._expiring.values(), default=None)
        return due if expiring is None or (due is not None and due <= expiring) else expiring

    def _next_of_states(self) -> int | None:
        """Return the earliest deadline of a state, milliseconds; None without one."""
        heap, known = self._due_heap, self._due_known
        while heap:
            due, key = heap[0]
            if known.get(key) != due or key in self._due_appended:
                heapq.heappop(heap)  # replaced by an earlier deadline, or already emitted
                continue
            now_due = self.stage.due_at(self._state_of(key))
            if now_due == due:
                return due
            heapq.heappop(heap)  # the state has changed since
            del known[key]
            if now_due is not None:
                self._schedule(key, now_due)
        return None

    def due(self, now: int) -> list[StageOutput]:
        """Return the events to append to the stage's own source topic for all deadlines at or before `now`.

        Each is returned once; it takes effect when it is read back from the log.
        """
        emit = self._emit
        outputs = emit.outputs = []
        if not self.source.rules.enabled:
            return outputs
        while (due := self._next_of_states()) is not None and due <= now:
            _, key = heapq.heappop(self._due_heap)
            self._due_appended.add(key)
            emit.begin(f"{key}@{due}", due)
            self.stage.due(self._state_of(key), key, due, self.source.rules, emit)
        for due, key in sorted((due, key) for key, due in self._expiring.items() if due <= now):
            self._expire(key, due)
        return outputs

    def _expire(self, key: str, due: int) -> None:
        """Append the end of an idle key, unless it has had a record since."""
        del self._expiring[key]
        state = self._state_of(key)
        active_at = state.arrived or state.clock
        if active_at + self._idle_ms() <= due and self.stage.retention(state) is StateRetention.NOTIFY:
            self._emit.begin(f"{key}@{due}", due)
            self.stage.append_timer(state, key, due, self._emit)

    def _schedule(self, key: str, due: int) -> None:
        """Schedule a deadline of a key for `next_due`; ignored if no event may have that time."""
        if due > LAST_MS:
            return
        self._due_known[key] = due
        self._due_appended.discard(key)
        heapq.heappush(self._due_heap, (due, key))

    def republish(self, keys: Iterable[bytes]) -> list[StageOutput]:
        """Return the public states of stored keys that are not at their default; no state changes.

        An output's id derives from its key and the key's stream time, so that a repetition has the same.
        """
        emit, source = self._emit, self.source
        outputs = emit.outputs = []
        for raw_key in keys:
            key = raw_key.decode()
            state = self._stored(key)
            if state is None:
                continue
            emit.begin(f"{key}@{state.clock}/again", state.clock)
            self.stage.republish(state, state.clock, source.of(key.partition(US)[0], ""), emit)
        return outputs

    def counted(self) -> dict[str, int]:
        """Return the counters of the folds since the last call (`OutputEmitter.count`); no state contains them."""
        counts, self._emit.counts = self._emit.counts, {}
        return counts

    def snapshot(self, now: int = 0) -> list[tuple[bytes, bytes | None]]:
        """Return snapshots of the states touched since the last call, now marked as stored; None: dropped.

        Call it after the previous result is stored. `now` is the wall clock, milliseconds: states that are idle by the
        log and by that clock are dropped; with 0 none is.
        """
        self._dropped.clear()
        due_at, encode = self.stage.due_at, self._codec.encode
        taken: list[tuple[bytes, bytes | None]] = [
            (key.encode(), encode(state, due_at(state))) for key, state in self._dirty.items()
        ]
        live = self._live
        for key in self._dirty:
            live[key] = live.pop(key)  # most recently used last, for forget_clean
        taken += self._drop_idle(min(now, self._reached(now)))
        self._dirty.clear()
        return taken

    def _reached(self, now: int) -> int:
        """Return the time that the log has reached, milliseconds: later records are not much older."""
        if not self.stage.by_arrival:
            return self.stream_time
        if self._arrivals > now + CLOCK_TOLERANCE_MS:  # a publisher's clock is ahead
            self._arrivals = self._idle_until
        self._idle_until = self._arrivals
        return self._arrivals

    def _drop_idle(self, now: int) -> list[tuple[bytes, None]]:
        """Drop states that no later record can continue: ended, and for so long that none can be in flight.

        A state touched since the last snapshot is kept: its records may have to be folded again.
        """
        stage = self.stage
        idle_ms = self._idle_ms()
        wait = idle_ms + min(idle_ms, stage.late_ms)
        dropped: list[tuple[bytes, None]] = []
        for raw_key in self._idle.take(now - wait, IDLE_AT_ONCE):
            key = raw_key.decode()
            state = self._live.get(key) or self._stored(key)
            if state is None:
                continue
            active_at = state.arrived or state.clock
            if active_at + wait > now:
                self._idle.add(raw_key, active_at)
                continue
            retention = stage.retention(state)
            if retention is StateRetention.DROP and key not in self._dirty:
                dropped.append((raw_key, None))
                self._emit.count("dropped")
                self._live.pop(key, None)
                self._due_known.pop(key, None)
                self._dropped.add(key)
                continue
            if retention is StateRetention.NOTIFY:
                self._expiring[key] = active_at + idle_ms
            self._idle.add(raw_key, now)
        return dropped

    def forget_clean(self, keep: int) -> None:
        """Drop decoded states without unsaved changes, least recently used first, until `keep` are left."""
        excess = len(self._live) - keep
        if excess > 0:
            for key in list(islice((key for key in self._live if key not in self._dirty), excess)):
                del self._live[key]

    def state(self, key: str) -> KeyState | None:
        """Return the decoded or stored state of a key, for views; None without one."""
        if key in self._live or self._stored(key) is not None:
            return self._state_of(key)
        return None

    def _state_of(self, key: str) -> KeyState:
        state = self._live.get(key)
        if state is None:
            state = self._stored(key)
            if state is None:
                state = self.stage.state_type()
                self._idle.add(key.encode(), self._arrivals if self.stage.by_arrival else self.stream_time)
            state.positions.extend([-1] * (len(self._slots) - len(state.positions)))
            self._live[key] = state
        return state

    def _stored(self, key: str) -> KeyState | None:
        """Return the decoded stored state of a key; None without one, or if it has ended."""
        stored = self._load(key.encode()) if key not in self._dropped else None
        return self._codec.decode(stored) if stored is not None else None

    def _idle_ms(self) -> int:
        """Return the milliseconds without a record after which a state ends."""
        return int(getattr(self.source.rules.idle, self.stage.idle_rule) * HOUR_MS)


def _null(topic: str) -> EventRejected:
    return EventRejected(
        RejectReason.NULL_VALUE, "$", f"a record of {topic} must have a value: publish the event itself"
    )


def _fault(fault: Exception) -> EventRejected:
    if isinstance(fault, EventRejected):  # settings of a session that do not fit: the fold alone knows the rules
        return fault
    message = f"trustfold failed on this event ({type(fault).__name__}: {fault}); please report it, then republish"
    return EventRejected(RejectReason.INTERNAL_ERROR, "$", message)


class IdleKeys:
    """Index of keys by the minute of their last record, or an earlier one, to find idle ones without scanning all.

    Keys are not moved by later records; the caller of `take` checks the state and adds the key again.
    """

    def __init__(self) -> None:
        """Create an empty index."""
        self._buckets: dict[int, list[bytes]] = {}
        self._order: list[int] = []

    def add(self, key: bytes, active_ms: int) -> None:
        """Add a key whose last record was at `active_ms` or later."""
        minute = active_ms // BUCKET_MS
        bucket = self._buckets.get(minute)
        if bucket is None:
            bucket = self._buckets[minute] = []
            heapq.heappush(self._order, minute)
        bucket.append(key)

    def take(self, before_ms: int, limit: int) -> list[bytes]:
        """Remove and return up to `limit` keys of the minutes before a time, earliest first."""
        taken: list[bytes] = []
        order = self._order
        while order and (order[0] + 1) * BUCKET_MS <= before_ms and len(taken) < limit:
            bucket = self._buckets[order[0]]
            room = limit - len(taken)
            taken += bucket[-room:]
            del bucket[-room:]
            if not bucket:
                del self._buckets[heapq.heappop(order)]
        return taken
