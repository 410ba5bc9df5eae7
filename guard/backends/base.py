"""What every backend does, and the buffer that those with a network share."""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable
from threading import Lock
from typing import Any, Protocol

import msgspec

from ...errors import EventRejected
from ...schemas.codec import decode_decision
from ..metrics import EVENTS, Metrics
from ..state_cache import StateView

Listener = Callable[[Any], None]
"""Gets one decision about a session: a nudge, or something about its limits or its model."""

MAX_SEEN = 10_000
"""Ids of decisions remembered, so that each is told once."""


class Backend(Protocol):
    """The way out for events and in for decisions."""

    @property
    def view(self) -> StateView:
        """Latest public state of everything away from its default."""

    @property
    def connected(self) -> bool:
        """Whether events are delivered and the view follows; False: the last view holds, events are buffered."""

    @property
    def decisions(self) -> Decisions:
        """Where sessions listen."""

    def publish(self, record: msgspec.Struct) -> None:
        """Take an event (or an operator's command) for delivery; never waits, never raises."""

    async def start(self, wait_s: float) -> None:
        """Connect, and wait at most so long until the view is up to date."""

    async def changed(self, timeout_ms: float) -> None:
        """Wait until the view has moved, or so long."""

    async def flush(self, timeout_s: float) -> bool:
        """Wait until everything published so far is delivered; False when that takes longer."""

    async def close(self) -> None:
        """Deliver what can be delivered soon, and disconnect."""

    def after_fork(self) -> None:
        """Begin anew in a child process, at the latest with the next event; what waits is the parent's to deliver."""


class Decisions:
    """Routes decisions to the sessions that listen; each id once, however often it is read."""

    def __init__(self) -> None:
        """Start with nobody listening."""
        self._listeners: dict[str, list[Listener]] = {}
        self._seen: OrderedDict[str, None] = OrderedDict()
        self._lock = Lock()

    def after_fork(self) -> None:
        """Take another lock; a thread of the parent process may hold the old one."""
        self._lock = Lock()

    def listen(self, session_id: str, listener: Listener) -> Callable[[], None]:
        """Have a session's decisions told; gives back what ends that."""
        with self._lock:
            self._listeners.setdefault(session_id, []).append(listener)

        def stop() -> None:
            with self._lock:
                listeners = self._listeners.get(session_id, [])
                if listener in listeners:
                    listeners.remove(listener)
                if not listeners:
                    self._listeners.pop(session_id, None)

        return stop

    def tell(self, decision: Any) -> None:
        """Pass a decision on to whoever listens to its session."""
        session = getattr(decision, "session_id", None)
        with self._lock:
            listeners = list(self._listeners.get(session or "", ()))
            if not listeners or decision.id in self._seen:
                return
            self._seen[decision.id] = None
            if len(self._seen) > MAX_SEEN:
                self._seen.popitem(last=False)
        for listener in listeners:
            listener(decision)


class EventBuffer:
    """What waits for delivery, oldest first; bounded, the oldest is dropped and counted when it is full.

    Attributes:
        dropped: records lost for want of room.
    """

    def __init__(self, limit: int, metrics: Metrics) -> None:
        """Keep at most `limit` records."""
        self.dropped = 0
        self._limit = limit
        self._metrics = metrics
        self._records: deque[msgspec.Struct] = deque()
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._records)

    def after_fork(self) -> None:
        """Leave what waits to the parent process."""
        self._lock = Lock()
        self._records = deque()

    def add(self, record: msgspec.Struct) -> None:
        """Take one more."""
        with self._lock:
            if len(self._records) >= self._limit:
                self._records.popleft()
                self.dropped += 1
                self._metrics.add(EVENTS, "dropped")
            self._records.append(record)

    def take(self, most: int) -> list[msgspec.Struct]:
        """The oldest ones, to be delivered now."""
        with self._lock:
            return [self._records.popleft() for _ in range(min(most, len(self._records)))]

    def put_back(self, records: list[msgspec.Struct]) -> None:
        """What could not be delivered, to its old place; what no longer fits is dropped, oldest first."""
        with self._lock:
            room = self._limit - len(self._records)
            lost = max(0, len(records) - room)
            self.dropped += lost
            if lost:
                self._metrics.add(EVENTS, "dropped", amount=lost)
            self._records.extendleft(reversed(records[lost:]))


FOLLOWED = ("state", "nudges", "suggestions")
"""Topics a guard reads; a platform needs no more rights than these and Write on `events`.

See docs/design/contracts.md#topics.
"""


def take(topic: str, key: str, value: bytes | None, view: StateView, decisions: Decisions) -> None:
    """Take up one record of a followed topic; what this version cannot read is left to newer ones."""
    if topic == "state":
        view.apply(key, value)
        return
    if value is None:
        return
    try:
        decision = decode_decision(value)
    except EventRejected:
        return
    decisions.tell(decision)


class Moved:
    """A bell that anyone may ring and any coroutine may wait for."""

    def __init__(self) -> None:
        """Start silent."""
        self._waiting: set[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = set()
        self._lock = Lock()

    def ring(self) -> None:
        """Wake everyone who waits now."""
        if not self._waiting:
            return
        with self._lock:
            waiting, self._waiting = self._waiting, set()
        for loop, event in waiting:
            if not loop.is_closed():
                loop.call_soon_threadsafe(event.set)

    async def wait(self, timeout_ms: float) -> bool:
        """Wait for the next ring, or so long; whether it rang."""
        place = (asyncio.get_running_loop(), asyncio.Event())
        with self._lock:
            self._waiting.add(place)
        try:
            await asyncio.wait_for(place[1].wait(), max(0.0, timeout_ms) / 1000)
        except TimeoutError:
            return False
        finally:
            with self._lock:
                self._waiting.discard(place)
        return True
