"""Monitor of one worker: ends it on permanent faults, and reports lasting conditions once, then every minute.

Runs on the main loop from the start. aiokafka retries silently, stores errors until the next poll, and may lose a
background task unnoticed; a stalled application keeps its membership by heartbeats.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from typing import TYPE_CHECKING, Any

from ...errors import DOCS
from .broker_watch import REPEAT_S
from .faults import WorkerFault, is_passing

if TYPE_CHECKING:
    from .engine import WorkerEngine

log = logging.getLogger(__name__)

TICK_S = 1.0

HELD_OF_S = 20  # Seconds of which at most PATIENCE_S may be spent waiting for other workers before it is reported
PATIENCE_S = 10.0  # Seconds that a rebalance, a recovery or an acknowledgement may take before it is reported
STALLED_S = 120.0  # Seconds without progress, with records to read and brokers that answer, after which the worker ends

# Counters of the folds that are reported to operators
KINDS = {
    "clamped": "event times ran more than a minute ahead of their records and were cut: look at the publishers' clocks",
    "late": "events came over a minute after a younger one of their session and were folded at its time: publishers "
    f"send late or out of order, or a session lies in several partitions ({DOCS}/events.md#mistakes-of-publishers)",
    "untracked": "failures counted in their tool's key alone: the tool has its most fine keys (trust.max_fine_keys)",
}


class EngineMonitor:
    """Checks the engine once a second."""

    def __init__(self, engine: WorkerEngine, app: Any) -> None:
        """Monitor an engine and its Faust app."""
        self._engine = engine
        self._app = app
        self._waits: dict[str, tuple[float, float]] = {}
        self._reported: dict[str, tuple[float, int]] = {}
        self._progress: tuple[dict[Any, int], float] = ({}, time.monotonic())
        self._held: deque[float] = deque(maxlen=HELD_OF_S + 1)

    async def run(self) -> None:
        """Check until cancelled; a fault fails the worker."""
        try:
            while True:
                await asyncio.sleep(TICK_S)
                self._engine.turned_at = time.monotonic()
                if self._engine.failed or self._engine.stopping:
                    return
                await self.look()
        except Exception as error:  # noqa: BLE001 - reported by failing the worker
            await self._engine.fail(error)

    async def look(self) -> None:
        """Run one check."""
        engine = self._engine
        if engine.watch.waiting:
            engine.checkpointer.extend()
        await self._look_at_clients()
        self._look_at_waits()
        self._look_at_counts()
        await self._look_at_progress()

    async def _look_at_clients(self) -> None:
        """End the worker, or restart from the last checkpoint, if a Kafka client has ended by itself."""
        consumer, engine = self._app._consumer, self._engine
        if consumer is None:
            return
        thread = consumer.lane_thread
        error = thread.pushed_error()
        if error is not None:
            if is_passing(error):
                thread.acknowledge_error()
            else:
                await engine.fail(error)
                return
        dead = thread.dead()
        if dead:
            await engine.fail(WorkerFault(f"the Kafka client's {dead} has ended by a fault: start the worker again"))
            return
        producer = self._app._producer
        if producer is not None and producer.dead() and engine.tenure() is not None:
            engine.start_over(RuntimeError("the producer has ended by a fault"))

    def _look_at_waits(self) -> None:
        engine = self._engine
        began = engine.checkpointer.began_at
        quiet = engine.watch.lost_since is not None  # the reason has been reported
        self._wait(
            "group",
            engine.tenure() is None and not engine.recovery_step and not quiet,
            "waiting for the consumer group to hand out partitions: another worker has not given its own up yet, or "
            "the brokers cannot write to __consumer_offsets; look at their disks and at min.insync.replicas",
        )
        self._wait(
            "recovery",
            bool(engine.recovery_step) and not quiet,
            f"recovering: {engine.recovery_step}; {engine.metrics.recovered_records:,} changelog records read so far",
        )
        self._wait(
            "acknowledgement",
            began is not None and time.monotonic() - began > PATIENCE_S and not quiet,
            "the brokers answer but do not acknowledge what is written; look at their disks and at min.insync.replicas",
            began,
        )
        self._held.append(engine.metrics.held_seconds.get("workers", 0.0))
        self._wait(
            "workers",
            self._held[-1] - self._held[0] > PATIENCE_S,
            "waiting for other workers: this one is ahead of the slowest in the log (`trustfold lag`); if the order of "
            f"a backlog does not matter, raise TRUSTFOLD_WORKER_LEAD ({engine.settings.worker_lead:g} s)",
        )

    def _wait(self, kind: str, waiting: bool, text: str, began: float | None = None) -> None:  # noqa: FBT001 - a condition
        """Report a wait that has lasted since `began`, by default since it was first noticed here."""
        now = time.monotonic()
        if not waiting:
            since, reported_at = self._waits.pop(kind, (now, 0.0))
            if reported_at:
                log.info("%s: over after %.0f s", text.partition(":")[0], now - since)
            return
        since, reported_at = self._waits.setdefault(kind, (began or now, 0.0))
        if now - since >= PATIENCE_S and now - reported_at >= REPEAT_S:
            log.warning("%s (for %.0f s now)", text, now - since)
            self._waits[kind] = since, now

    def _look_at_counts(self) -> None:
        metrics = self._engine.metrics
        for reason, count in metrics.dead_letter_reasons.items():
            text = f"records became dead letters ({reason}); `trustfold dead-letters list` shows them"
            self._report_count(f"dead letter {reason}", count, text)
        for kind, text in KINDS.items():
            self._report_count(kind, metrics.folds[kind], text)

    def _report_count(self, kind: str, count: int, text: str) -> None:
        now = time.monotonic()
        reported_at, known = self._reported.get(kind, (0.0, 0))
        if count > known and (not reported_at or now - reported_at >= 10 * REPEAT_S):
            log.warning("%d %s", count - known, text)
            self._reported[kind] = now, count

    async def _look_at_progress(self) -> None:
        engine, now = self._engine, time.monotonic()
        idle = engine.tenure() is None or engine.watch.waiting or engine.checkpointer.began_at is not None
        if not idle and now - engine.durable_at > STALLED_S + engine.settings.checkpoint_interval:
            await engine.fail(WorkerFault(f"no checkpoint was taken for {STALLED_S:g} s: start the worker again"))
            return
        positions = {tp: offset for task in engine.tasks.values() for tp, offset in task.next.items()}
        before, since = self._progress
        idle = not any(engine.metrics.lag.values()) or engine.writer.pending or engine.tenure() is None
        if idle or positions != before or engine.watch.waiting or engine.order.held == "workers":
            self._progress = positions, now
        elif now - since > STALLED_S:
            behind = max(engine.metrics.lag, key=lambda place: engine.metrics.lag[place])
            await engine.fail(
                WorkerFault(
                    f"no record was folded for {STALLED_S:g} s although the brokers answer and {behind[0]}/{behind[1]} "
                    f"has {engine.metrics.lag[behind]:,} to read: start the worker again"
                )
            )
