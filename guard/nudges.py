"""Delivery of nudges into a model's conversation (docs/design/semantics.md#nudges).

A gentle nudge becomes a hint in the context, a direct one system guidance, an interrupt a request to pause. Each id is
delivered once: to the callbacks at once, and to the reader of the iterator or of `messages`.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import Any

from ..schemas.decisions import NudgeIssued
from ..schemas.vocabulary import Lane
from .log import log_event

MAX_WAITING = 100
"""Number of nudges kept for a slow reader; the oldest are dropped first, as they are out of date."""

GUIDANCE = "[RELIABILITY GUIDANCE]: "

Inject = Callable[[str], Any]


class NudgeInbox:
    """Inbox of the nudges of one session.

    Attributes:
        paused: a nudge requested a pause that has not been ended.
        pause_reason: message of that nudge.
        history: delivered nudges, oldest first; bounded.
    """

    def __init__(
        self,
        *,
        inject_context_hint: Inject | None = None,
        inject_system_guidance: Inject | None = None,
        request_pause: Inject | None = None,
    ) -> None:
        """Call the callback of a nudge's lane with its message; a callback must not block."""
        self.paused = False
        self.pause_reason = ""
        self.history: deque[NudgeIssued] = deque(maxlen=MAX_WAITING)
        self._callbacks: dict[Lane, Inject | None] = {
            Lane.CONTEXT_HINT: inject_context_hint,
            Lane.SYSTEM_GUIDANCE: inject_system_guidance,
            Lane.PAUSE: request_pause,
        }
        self._for_messages: deque[NudgeIssued] = deque(maxlen=MAX_WAITING)
        self._for_readers: deque[NudgeIssued] = deque(maxlen=MAX_WAITING)
        self._ids: deque[str] = deque(maxlen=10 * MAX_WAITING)
        self._readers: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []
        self._closed = False

    def deliver(self, nudge: NudgeIssued) -> None:
        """Deliver a nudge once; thread-safe."""
        if nudge.id in self._ids:
            return
        self._ids.append(nudge.id)
        self.history.append(nudge)
        self._for_messages.append(nudge)
        self._for_readers.append(nudge)
        if nudge.lane is Lane.PAUSE:
            self.paused, self.pause_reason = True, nudge.message
        callback = self._callbacks.get(nudge.lane)
        if callback is not None:
            try:
                callback(nudge.message)
            except Exception as error:  # noqa: BLE001 - a callback's fault must not stop the follower
                log_event(logging.ERROR, "nudge_callback_failed", lane=str(nudge.lane), errorCode=type(error).__name__)
        self._wake_readers()

    def resume(self) -> None:
        """End the pause, after the user took over or said to continue."""
        self.paused, self.pause_reason = False, ""

    def messages(self) -> list[dict[str, str]]:
        """Return chat messages for the next request to the model; each nudge is returned once.

        A hint has the role `user`, guidance the role `system`; a pause is guidance, too, for platforms that cannot
        pause.
        """
        made = []
        while self._for_messages:
            nudge = self._for_messages.popleft()
            if nudge.lane is Lane.CONTEXT_HINT:
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
                    yield self._for_readers.popleft()
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

    def _wake_readers(self) -> None:
        for loop, arrived in list(self._readers):
            if not loop.is_closed():
                loop.call_soon_threadsafe(arrived.set)
