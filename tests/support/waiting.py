"""Waiting for a condition with a deadline, instead of sleeping and hoping."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def wait_until(condition: Callable[[], T], *, timeout: float, what: str | Callable[[], str], every: float = 0.02) -> T:
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
