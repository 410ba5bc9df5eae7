"""Ctrl-C: every command obeys it however it was started, and none loses it while its modules are imported."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


def obey_interrupts() -> None:
    """Obey SIGINT although this process was started to ignore it, as a background job of a shell script is."""
    if _in_main_thread() and signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@contextmanager
def interrupts_postponed() -> Iterator[None]:
    """Raise the KeyboardInterrupt of a SIGINT at the end of the block instead of inside of it.

    Use it around imports: extension modules drop an exception that is raised while they are initialised, or crash.
    """
    if not _in_main_thread():
        yield
        return
    received: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _frame: received.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if received:
        signal.raise_signal(signal.SIGINT)


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()
