"""In-memory backend for tests and single processes: runs the folds when an event is published."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from threading import RLock

import msgspec

from ...projections.emitter import StageOutput
from ...projections.local_topology import LocalTopology
from ...rules.rules import RuleSet
from ...schemas.codec import decode_decision
from ..clock import GuardClock
from ..metrics import EVENTS, UNTRACKED, GuardMetrics
from ..publisher import is_event
from ..state_cache import StateView
from .base import DecisionDispatcher, encoded

KEPT_STATES = 5_000  # Number of sessions and tools kept; the least recently used are forgotten with their state
EVICT_EVERY = 2_000  # Number of events between two evictions of unused states


class MemoryBackend:
    """Folds published events in this process; nothing is sent or stored."""

    connected = True

    def __init__(self, clock: GuardClock, metrics: GuardMetrics, rules: RuleSet | None = None) -> None:
        """Create a backend with default states."""
        self.view = StateView()
        self.decisions = DecisionDispatcher()
        self.outputs: list[StageOutput] = []  # outputs of the folds, newest last, for tests; bounded
        self.published: list[bytes] = []  # events of the guard as they would be encoded; bounded
        self._clock = clock
        self._metrics = metrics
        self._stored: dict[str, OrderedDict[bytes, bytes]] = {}
        self._topology = LocalTopology(rules or RuleSet(), load=self._load)
        self._events = 0
        self._lock = RLock()

    def publish(self, record: msgspec.Struct) -> None:
        """Fold an event or a command and everything it causes."""
        if (value := encoded(record, self._metrics)) is None:
            return
        with self._lock:
            self.published.append(value)
            del self.published[:-EVICT_EVERY]
            self._metrics.add(EVENTS, "published")
            self.tick()
            self._apply(self._topology.feed("events" if is_event(record) else "commands", (value,)))
            if untracked := self._topology.counted()["untracked"]:
                self._metrics.add(UNTRACKED, amount=untracked)
            self._events += 1
            if self._events % EVICT_EVERY == 0:
                self._evict()

    def tick(self) -> None:
        """Fold timers that are due."""
        due = self._topology.next_due()
        if due is not None and due <= (now := self._clock.now_ms()):
            self._apply(self._topology.tick(now))

    async def start(self, wait_s: float) -> None:
        """Do nothing: there is no connection."""

    async def changed(self, timeout_ms: float) -> None:
        """Return at once: the view has changed when `publish` returns."""
        del timeout_ms
        await asyncio.sleep(0)

    async def flush(self, timeout_s: float) -> bool:
        """Return True: all events have been folded."""
        del timeout_s
        return True

    async def close(self) -> None:
        """Do nothing: there is no connection."""

    def after_fork(self) -> None:
        """Continue with a copy of the parent's states."""
        self._lock = RLock()
        self.decisions.after_fork()

    def _apply(self, outputs: list[StageOutput]) -> None:
        for output in outputs:
            if output.topic == "state":
                self.view.apply(output.key, output.value)
            elif output.topic in {"nudges", "suggestions"} and output.value is not None:
                self.decisions.dispatch(decode_decision(output.value))
        self.outputs += outputs
        del self.outputs[:-EVICT_EVERY]

    def _load(self, stage: str, key: bytes) -> bytes | None:
        stored = self._stored.get(stage)
        return None if stored is None else stored.get(key)

    def _evict(self) -> None:
        """Evict all but the most recently used states."""
        for name, processor in self._topology.processors.items():
            stored = self._stored.setdefault(name, OrderedDict())
            for key, snapshot in processor.snapshot():
                stored.pop(key, None)
                if snapshot is not None:
                    stored[key] = snapshot
            processor.forget_clean(KEPT_STATES // 5)
            while len(stored) > KEPT_STATES:
                stored.popitem(last=False)
