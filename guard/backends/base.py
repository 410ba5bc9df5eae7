"""Interface of backends, and the event buffer that the backends with a network share."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict, deque
from collections.abc import Callable
from threading import Lock
from typing import Any, Protocol

import msgspec

from ...errors import EventRejected
from ...schemas.codec import decode_decision, encode
from ..log import log_event
from ..metrics import EVENTS, GuardMetrics
from ..state_cache import StateView

# Callback that receives one decision about a session: a nudge, a limit or a model suggestion
Listener = Callable[[Any], None]

MAX_SEEN = 10_000  # Number of decision ids remembered to deliver each decision once


class GuardBackend(Protocol):
    """Transport of a guard: publishes events and receives states and decisions."""

    @property
    def view(self) -> StateView:
        """View of the latest public states that differ from their defaults."""

    @property
    def connected(self) -> bool:
        """Whether events are delivered and the view is current.

        If False, the last view is used and events are buffered.
        """

    @property
    def decisions(self) -> DecisionDispatcher:
        """Dispatcher of decisions to sessions."""

    def publish(self, record: msgspec.Struct) -> None:
        """Queue an event or an operator's command for delivery; never blocks, never raises."""

    async def start(self, wait_s: float) -> None:
        """Connect, and wait up to `wait_s` seconds until the view is up to date."""

    async def changed(self, timeout_ms: float) -> None:
        """Wait until the view changes, at most `timeout_ms` milliseconds."""

    async def flush(self, timeout_s: float) -> bool:
        """Wait until all events published so far are delivered; return False on timeout."""

    async def close(self) -> None:
        """Deliver buffered events for a short time, then disconnect."""

    def after_fork(self) -> None:
        """Reconnect in a child process, at the latest with the next event.

        The parent delivers its own buffered events.
        """


class DecisionDispatcher:
    """Dispatcher of decisions to listening sessions; delivers each id once, however often it is read."""

    def __init__(self) -> None:
        """Create a dispatcher without listeners."""
        self._listeners: dict[str, list[Listener]] = {}
        self._seen: OrderedDict[str, None] = OrderedDict()
        self._lock = Lock()

    def after_fork(self) -> None:
        """Replace the lock; a thread of the parent process may hold the old one."""
        self._lock = Lock()

    def listen(self, session_id: str, listener: Listener) -> Callable[[], None]:
        """Register a session's listener; returns a function that removes it."""
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

    def dispatch(self, decision: Any) -> None:
        """Pass a decision to the listeners of its session."""
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
    """Bounded queue of events to deliver, oldest first; when full it drops and counts the oldest."""

    def __init__(self, limit: int, metrics: GuardMetrics) -> None:
        """Create a buffer of at most `limit` records."""
        self.dropped = 0  # number of records dropped because the buffer was full or closed
        self._limit = limit
        self._metrics = metrics
        self._told_late = False
        self._records: deque[msgspec.Struct] = deque()
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._records)

    def after_fork(self) -> None:
        """Empty the buffer in a child process; the parent delivers these records."""
        self._lock = Lock()
        self._records = deque()

    def add(self, record: msgspec.Struct) -> None:
        """Append one record."""
        with self._lock:
            if len(self._records) < self._limit or self._make_room():
                self._records.append(record)
                return
        if not self._told_late:
            self._told_late = True
            log_event(logging.WARNING, "events_dropped", why="published after the guard was closed")

    def _make_room(self) -> bool:
        """Drop the oldest record, or, if the buffer is closed, the one to add; return whether there is room now."""
        self.dropped += 1
        self._metrics.add(EVENTS, "dropped")
        if self._limit:
            self._records.popleft()
        return self._limit > 0

    def take(self, most: int) -> list[msgspec.Struct]:
        """Remove and return up to `most` of the oldest records."""
        with self._lock:
            return [self._records.popleft() for _ in range(min(most, len(self._records)))]

    def put_back(self, records: list[msgspec.Struct]) -> None:
        """Return undelivered records to the front; drops the oldest ones if the buffer is full."""
        with self._lock:
            room = self._limit - len(self._records)
            lost = max(0, len(records) - room)
            self.dropped += lost
            if lost:
                self._metrics.add(EVENTS, "dropped", amount=lost)
            self._records.extendleft(reversed(records[lost:]))

    def close(self) -> int:
        """Empty the buffer and return how many records it held; records added later are dropped and counted."""
        with self._lock:
            left = len(self._records)
            self._records.clear()
            self._limit = 0
        return left


def encoded(record: msgspec.Struct, metrics: GuardMetrics) -> bytes | None:
    """Encode a record as JSON; returns None, logs and counts if that is impossible, so that it blocks no other."""
    try:
        return encode(record)
    except (TypeError, ValueError, RecursionError) as error:
        log_event(logging.ERROR, "event_refused", errorCode=type(error).__name__)
        metrics.add(EVENTS, "refused")
        return None


FOLLOWED = ("state", "nudges", "suggestions")
"""Topics that a guard reads; besides these a platform needs only Write on `events`.

See docs/design/contracts.md#topics.
"""


def apply_record(topic: str, key: str, value: bytes | None, view: StateView, decisions: DecisionDispatcher) -> None:
    """Apply one record of a followed topic; records that this version cannot decode are skipped."""
    if topic == "state":
        view.apply(key, value)
        return
    if value is None:
        return
    try:
        decision = decode_decision(value)
    except EventRejected:
        return
    decisions.dispatch(decision)


class ChangeSignal:
    """Change signal: any thread may notify, any coroutine may wait."""

    def __init__(self) -> None:
        """Create a signal without waiters."""
        self._waiting: set[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = set()
        self._lock = Lock()

    def notify(self) -> None:
        """Wake all current waiters."""
        if not self._waiting:
            return
        with self._lock:
            waiting, self._waiting = self._waiting, set()
        for loop, event in waiting:
            if not loop.is_closed():
                loop.call_soon_threadsafe(event.set)

    async def wait(self, timeout_ms: float) -> bool:
        """Wait for the next notification, at most `timeout_ms` milliseconds; return whether it came."""
        place = (asyncio.get_running_loop(), asyncio.Event())
        with self._lock:
            self._waiting.add(place)
        try:
            # Not `asyncio.wait_for`: that of Python 3.11 may lose a cancellation.
            async with asyncio.timeout(max(0.0, timeout_ms) / 1000):
                await place[1].wait()
        except TimeoutError:
            return False
        finally:
            with self._lock:
                self._waiting.discard(place)
        return True
