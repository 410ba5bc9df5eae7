"""Watchdog: ends the worker's process in time, even if its event loop is stuck.

An orderly stop runs on the event loop and passes through Faust, mode and aiokafka, any of which may wait for a broker
that is unavailable. The watchdog is an OS thread that needs none of them. It receives the signals, gives an orderly
stop its time, and ends the process after that time, at a second signal, or if the event loop is stuck.
"""

from __future__ import annotations

import contextlib
import faulthandler
import logging
import os
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable

log = logging.getLogger(__name__)

STUCK_S = 90.0
"""Seconds after which an idle event loop counts as stuck.

A fold takes milliseconds, restoring a million stored states some seconds.
"""

TICK_S = 1.0

LAST_LINE_S = 1.0  # Seconds for writing the last log line: its reader may have stopped

SIGNALS = (signal.SIGTERM, signal.SIGINT)


class ProcessWatchdog:
    """Thread that ends the process."""

    def __init__(self, limit: float, failed: int) -> None:
        """Create a watchdog.

        Args:
            limit: seconds between the first signal or failure and the end of the process.
            failed: exit code of an end that was not orderly.
        """
        self.reason = ""  # why the worker failed; the last line of the log
        self._limit = limit
        self._code = self._failed = failed
        self._deadline: float | None = None
        self._beats = 0
        self._request_stop: Callable[[], object] = lambda: None
        self._asked = False
        self._over = threading.Event()
        self._reader, self._writer = socket.socketpair()
        self._handlers: dict[signal.Signals, object] = {}

    def start(self, request_stop: Callable[[], object]) -> None:
        """Handle the signals; the thread calls `request_stop` at the first one. Call it in the main thread."""
        self._request_stop = request_stop
        self._writer.setblocking(False)  # noqa: FBT003 - as signal.set_wakeup_fd wants it
        for number in SIGNALS:
            self._handlers[number] = signal.signal(number, _ignore_signal)
        signal.set_wakeup_fd(self._writer.fileno(), warn_on_full_buffer=False)
        threading.Thread(target=self._watch, name="watchdog", daemon=True).start()

    def heartbeat(self) -> None:
        """Record that the event loop is running."""
        self._beats += 1

    def arm(self) -> None:
        """Start the timeout of an orderly stop; further calls do nothing."""
        if self._deadline is None:
            self._deadline = time.monotonic() + self._limit

    @property
    def left(self) -> float:
        """Return the seconds until the process ends; the whole limit before `arm`."""
        return self._limit if self._deadline is None else max(self._deadline - time.monotonic(), 0.0)

    def settle(self, code: int) -> None:
        """Set the exit code; the remaining clean-up may be cut off."""
        self._code = code

    def leave(self, code: int) -> None:
        """End the process now, without clean-up."""
        if code == self._failed:
            words = threading.Thread(target=self.log_failure, daemon=True)
            words.start()
            words.join(LAST_LINE_S)
        os._exit(code)

    def log_failure(self) -> None:
        """Write the last log line of a failed worker."""
        log.critical("worker failed: %s", self.reason or "it could not be stopped in order")
        with contextlib.suppress(Exception):
            for handler in logging.getLogger().handlers:
                handler.flush()
            sys.stderr.flush()

    def close(self) -> None:
        """Restore the signal handlers; the process is no longer ended."""
        self._over.set()
        signal.set_wakeup_fd(-1)
        for number, handler in self._handlers.items():
            signal.signal(number, handler)  # type: ignore[arg-type]
        self._writer.close()

    def _watch(self) -> None:
        with self._reader:
            self._run()

    def _run(self) -> None:
        beats, still, before = -1, 0.0, time.monotonic()
        while not self._over.is_set():
            ready, _, _ = select.select([self._reader], [], [], min(TICK_S, self.left))
            if ready:
                for number in self._reader.recv(64):
                    self._signalled(number)
            now = time.monotonic()
            if self._deadline is not None and now >= self._deadline and not self._over.is_set():
                if self._code == self._failed:
                    self.reason = self.reason or f"it was asked to stop and had not ended after {self._limit:g} s"
                self.leave(self._code)
            # A paused process wakes up late: only time in which this thread ran counts.
            still = 0.0 if beats != self._beats else still + min(now - before, 2 * TICK_S)
            beats, before = self._beats, now
            if still > STUCK_S:
                with contextlib.suppress(Exception):
                    faulthandler.dump_traceback(all_threads=True)
                self.reason = f"its event loop was stuck for {STUCK_S:g} s; the stacks above say where"
                self.leave(self._failed)

    def _signalled(self, number: int) -> None:
        if number not in SIGNALS:
            return
        if self._asked:
            self.reason = f"a second {signal.Signals(number).name} ended it at once"
            self.leave(self._failed)
        self._asked = True
        self.arm()
        try:
            self._request_stop()
        except RuntimeError:  # the event loop is closed
            self.leave(self._code)


def _ignore_signal(*_: object) -> None:
    """Do nothing: the byte that Python writes to the watchdog's socket is the notification."""
