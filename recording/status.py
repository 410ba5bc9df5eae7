"""Status of a recording: what probes and Prometheus are answered, read from counters that others keep."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import orjson

from ..history.recorder import Recorder

if TYPE_CHECKING:
    from ..streams.kafka.broker_watch import BrokerWatch

LOOP_STUCK_S = 15.0
"""Seconds without a turn of the event loop after which a recording of Kafka is not alive."""

STORE_STUCK_S = 120.0
"""The same for a recording of a store, whose loop writes and merges files itself."""

UNWRITTEN_S = 30.0
"""Seconds beyond the time between two flushes that a row may wait before the recording is not ready."""

SILENT_S = 30.0
"""Seconds without an answer of a broker after which the recording is not ready."""


class RecordingStatus:
    """What a recording says of itself; written by the recording, read by any thread.

    Attributes:
        recorder: its counters are the rest of the status.
        stuck_s: seconds without a turn after which the recording is not alive.
        turned_at: monotonic time of the last turn of its loop.
        assigned: partitions that are recorded now.
        wanted: partitions that another process still records.
        rebalances: assignments taken.
        lag: records between the last one in a file and the log's end, by topic and partition.
        watch: watch over the brokers; None for a store.
        stopping: whether it was asked to stop.
        failure: why it has ended; empty while it has not.
    """

    def __init__(self, recorder: Recorder, *, stuck_s: float = STORE_STUCK_S) -> None:
        """Describe a recording that starts."""
        self.recorder, self.stuck_s = recorder, stuck_s
        self.turned_at = time.monotonic()
        self.assigned = self.wanted = self.rebalances = 0
        self.lag: dict[tuple[str, int], int] = {}
        self.watch: BrokerWatch | None = None
        self.stopping = False
        self.failure = ""

    @property
    def state(self) -> str:
        """One of STATES."""
        if self.failure:
            return "failed"
        if self.stopping:
            return "stopping"
        if self.recorder.counts.disk_full:
            return "full"
        if self.assigned:
            return "recording"
        return "waiting" if self.rebalances else "starting"

    def turn(self) -> None:
        """The loop works."""
        self.turned_at = time.monotonic()

    def alive(self) -> str:
        """Why the recording should be started again; empty while it should not."""
        if self.failure:
            return f"failed: {self.failure}"
        if time.monotonic() - self.turned_at > self.stuck_s:
            return "the loop is stuck"
        return ""

    def ready(self) -> str:
        """Why nothing is being recorded; empty while something is."""
        return self.alive() or self._unreachable() or self._unwritten()

    def _unreachable(self) -> str:
        if self.stopping:
            return "stopping"
        watch = self.watch
        if watch is None:
            return ""
        if watch.lost_since is not None or (watch.answered_at and time.monotonic() - watch.answered_at > SILENT_S):
            return "no broker answers"
        if watch.leaderless:
            return f"no leader for partitions of {', '.join(sorted(watch.leaderless))}"
        return ""

    def _unwritten(self) -> str:
        if self.recorder.counts.disk_full:
            return "the disk is full"
        if not self.assigned:
            if self.wanted:
                return "another process still records these partitions"
            return "no partitions: other recorders have them all" if self.rebalances else "starting"
        if self.recorder.waiting_s > self.recorder.flush_s + UNWRITTEN_S:
            return "files are not written"
        return ""

    def body(self, reason: str) -> bytes:
        """Body of the health endpoints, as JSON."""
        answered_at = self.watch.answered_at if self.watch else 0.0
        return orjson.dumps(
            {
                "status": reason or "ok",
                "state": self.state,
                "partitions": self.assigned,
                "lag": sum(self.lag.values()),
                "waiting_records": self.recorder.rows,
                "seconds_since_flush": round(self.recorder.waiting_s, 1),
                "seconds_since_broker_answer": round(time.monotonic() - answered_at, 1) if answered_at else None,
            }
        )


STATES = ("starting", "waiting", "recording", "full", "stopping", "failed")
