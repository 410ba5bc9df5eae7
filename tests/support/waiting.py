"""Waiting for a condition with a deadline, instead of sleeping and hoping."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


PATIENCE_S = 60.0
"""Longest time for what takes a moment on a quiet machine: a busy one may need ten times that."""


def wait_until(
    condition: Callable[[], T], *, what: str | Callable[[], str], timeout: float = PATIENCE_S, every: float = 0.02
) -> T:
    """Ask until the condition is true and give back what it gave; fail with `what` when time is up.

    `what` says what was waited for; a callable is asked at the end, so that it can say how far things got.
    """
    deadline = time.monotonic() + timeout
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() >= deadline:
            raise AssertionError(f"not within {timeout:g} s: {what() if callable(what) else what}")
        time.sleep(every)
