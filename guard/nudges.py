"""Delivery of nudges into a model's conversation (docs/design/semantics.md#nudges).

A gentle nudge becomes a hint in the context, a direct one system guidance, an interrupt a request to pause. Each id is
delivered once: to the callbacks at once, and to the reader of the iterator or of `messages`. The first to take it
carries it to the model; one that the folds withdraw before is dropped. What a person should be told about a pattern
never reaches the model: it goes to the callback `notify_user` and to the reader of `notices`.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import Any, TypeVar

from ..schemas.decisions import NudgeIssued, PatternDetected
from ..schemas.vocabulary import NudgeLane, PatternType
from .log import log_event

MAX_WAITING = 100  # Number of nudges kept for a slow reader; the oldest are dropped first, as they are out of date

GUIDANCE = "[RELIABILITY GUIDANCE]: "

BY_USER = "user.message"
BY_CALL = "tool_call.started"
# Event that ends the pause of a pattern, where it is not the user's message: the call is what was missing
ENDS_BY = {PatternType.ANNOUNCE_NO_ACTION: BY_CALL}

Inject = Callable[[str], Any]
Waiting = TypeVar("Waiting")


class NudgeInbox:
    """Inbox of the nudges of one session."""

    def __init__(
        self,
        *,
        inject_context_hint: Inject | None = None,
        inject_system_guidance: Inject | None = None,
        request_pause: Inject | None = None,
        notify_user: Inject | None = None,
        carried: Inject | None = None,
    ) -> None:
        """Call the callback of a nudge's lane, or that for the person, with the text; a callback must not block.

        `carried` is called with the id of each nudge that has been handed over: to a callback, a reader, or a refusal.
        """
        self.paused = False  # a nudge requested a pause that has not been ended
        self.pause_reason = ""  # message of that nudge
        # type of the event that ends the pause: `user.message` or, where the model is to make a call at last,
        # `tool_call.started`; empty without a pause
        self.pause_ends_by = ""
        self.history: deque[NudgeIssued] = deque(maxlen=MAX_WAITING)  # delivered nudges, oldest first; bounded
        self._callbacks: dict[NudgeLane, Inject | None] = {
            NudgeLane.CONTEXT_HINT: inject_context_hint,
            NudgeLane.SYSTEM_GUIDANCE: inject_system_guidance,
            NudgeLane.PAUSE: request_pause,
        }
        self._notify_user = notify_user
        self._carried = carried
        self._handed: deque[str] = deque(maxlen=MAX_WAITING)
        self._pause_id = ""
        self._for_user: deque[str] = deque(maxlen=MAX_WAITING)
        self._for_messages: deque[NudgeIssued] = deque(maxlen=MAX_WAITING)
        self._for_readers: deque[NudgeIssued] = deque(maxlen=MAX_WAITING)
        self._ids: deque[str] = deque(maxlen=10 * MAX_WAITING)
        self._readers: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []
        self._closed = False

    def deliver(self, nudge: NudgeIssued) -> None:
        """Deliver a nudge once; thread-safe."""
        if not self._is_new(nudge):
            return
        self.history.append(nudge)
        self._for_messages.append(nudge)
        self._for_readers.append(nudge)
        if nudge.lane is NudgeLane.PAUSE and self.pause_ends_by != BY_USER:
            self.paused, self.pause_reason, self._pause_id = True, nudge.message, nudge.id
            self.pause_ends_by = ENDS_BY.get(nudge.pattern, BY_USER)
        callback = self._callbacks.get(nudge.lane)
        _call(callback, nudge.message, str(nudge.lane))
        if callback is not None or self._readers:
            self._carries(nudge.id)
        self._wake_readers()

    def withdraw(self, nudge_id: str) -> None:
        """Drop a nudge that is out of date: its text, and the pause that it asked for. Thread-safe."""
        for waiting in (self._for_messages, self._for_readers):
            for nudge in list(waiting):
                if nudge.id == nudge_id:
                    waiting.remove(nudge)
        if self.paused and nudge_id == self._pause_id:
            self.paused, self.pause_reason, self.pause_ends_by = False, "", ""

    def notify(self, detected: PatternDetected) -> None:
        """Deliver once what a person should be told about a pattern; nothing if nobody should. Thread-safe."""
        if detected.notify_user and detected.message and self._is_new(detected):
            self._for_user.append(detected.message)
            _call(self._notify_user, detected.message, "notify_user")

    def notices(self) -> list[str]:
        """Return the texts for the person; each is returned once."""
        return _taken(self._for_user)

    def resume(self) -> None:
        """End the pause, after the user took over or said to continue; texts that asked for it are withdrawn.

        The text of a pause that a call would have ended is still due, as the call is.
        """
        self._end_pause(BY_USER)

    def before_call(self) -> str:
        """Return why the model must not make a call now; empty if it may. Ends a pause that a call ends."""
        self.call_made()
        if self.paused:
            self._carries(self._pause_id)
        return self.pause_reason if self.paused else ""

    def call_made(self) -> None:
        """End a pause that the model's next call ends."""
        if self.pause_ends_by == BY_CALL:
            self._end_pause(BY_CALL)

    def messages(self) -> list[dict[str, str]]:
        """Return chat messages for the next request to the model; each nudge is returned once.

        A hint has the role `user`, guidance the role `system`; a pause is guidance, too, for platforms that cannot
        pause.
        """
        made = []
        for nudge in _taken(self._for_messages):
            self._carries(nudge.id)
            if nudge.lane is NudgeLane.CONTEXT_HINT:
                made.append({"role": "user", "content": f"(hint) {nudge.message}"})
            else:
                made.append({"role": "system", "content": f"{GUIDANCE}{nudge.message}"})
        return made

    async def __aiter__(self) -> AsyncIterator[NudgeIssued]:
        """Yield nudges as they arrive, until the session ends."""
        arrived = asyncio.Event()
        place = (asyncio.get_running_loop(), arrived)
        self._readers.append(place)
        try:
            while True:
                while self._for_readers:
                    nudge = self._for_readers.popleft()
                    self._carries(nudge.id)
                    yield nudge
                if self._closed:
                    return
                arrived.clear()
                if not self._for_readers and not self._closed:
                    await arrived.wait()
        finally:
            self._readers.remove(place)

    def close(self) -> None:
        """Close the inbox; iterators end."""
        self._closed = True
        self._wake_readers()

    def _carries(self, nudge_id: str) -> None:
        if nudge_id not in self._handed:
            self._handed.append(nudge_id)
            _call(self._carried, nudge_id, "nudge.delivered")

    def _is_new(self, decision: NudgeIssued | PatternDetected) -> bool:
        new = decision.id not in self._ids
        if new:
            self._ids.append(decision.id)
        return new

    def _end_pause(self, event: str) -> None:
        """End the pause, and withdraw the unread texts of pauses that this event ends."""
        self.paused, self.pause_reason, self.pause_ends_by = False, "", ""
        for nudge in _taken(self._for_messages):
            if nudge.lane is not NudgeLane.PAUSE or ENDS_BY.get(nudge.pattern, BY_USER) != event:
                self._for_messages.append(nudge)

    def _wake_readers(self) -> None:
        for loop, arrived in list(self._readers):
            if not loop.is_closed():
                loop.call_soon_threadsafe(arrived.set)


def _taken(waiting: deque[Waiting]) -> list[Waiting]:
    """Remove and return all that waits, oldest first."""
    taken = []
    while waiting:
        taken.append(waiting.popleft())
    return taken


def _call(callback: Inject | None, text: str, lane: str) -> None:
    if callback is not None:
        try:
            callback(text)
        except Exception as error:  # noqa: BLE001 - a callback's fault must not stop the follower
            log_event(logging.ERROR, "nudge_callback_failed", lane=lane, errorCode=type(error).__name__)
