"""Threads in which plain functions run beside an event loop.

A function that takes longer than it may cannot be stopped: it keeps its thread, and nobody else waits for that one.
The threads are daemons, so a function that never ends does not keep the program from ending.
"""

from __future__ import annotations

import asyncio
import contextvars
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextvars import ContextVar
from queue import SimpleQueue
from typing import Any, NamedTuple

MAX_IDLE = 16
"""Threads kept for the next call; more are started whenever all are busy."""


class Outcome(NamedTuple):
    """End of a function: its return value, or what it raised.

    A value and no exception, as neither futures nor coroutines can carry StopIteration.
    """

    output: Any = None
    error: BaseException | None = None


def outcome_of(function: Callable[..., Any], args: dict[str, Any]) -> Outcome:
    """Call a function and take what it raises, whatever that is."""
    try:
        return Outcome(function(**args))
    except BaseException as error:  # noqa: BLE001 - it is raised again where the function is waited for
        return Outcome(None, error)


Work = tuple["Future[Outcome]", contextvars.Context, Callable[..., Any], dict[str, Any]]

_idle: list[SimpleQueue[Work]] = []


def run_in_thread(function: Callable[..., Any], args: dict[str, Any]) -> Future[Outcome]:
    """Start a function in a thread of its own, with the caller's context variables."""
    done: Future[Outcome] = Future()
    done.set_running_or_notify_cancel()
    work = (done, contextvars.copy_context(), function, args)
    try:
        _idle.pop().put(work)
    except IndexError:
        inbox: SimpleQueue[Work] = SimpleQueue()
        inbox.put(work)
        threading.Thread(target=_serve, args=(inbox,), name="trustfold-tool", daemon=True).start()
    return done


def _serve(inbox: SimpleQueue[Work]) -> None:
    while True:
        done, context, function, args = inbox.get()
        outcome = context.run(outcome_of, function, args)
        stays = len(_idle) < MAX_IDLE
        if stays:
            _idle.append(inbox)  # before the answer: the next call may follow at once
        done.set_result(outcome)
        del done, context, function, args, outcome  # nothing of a call lives on while the thread is idle
        if not stays:
            return


os.register_at_fork(after_in_child=_idle.clear)


BLOCKED: ContextVar[asyncio.AbstractEventLoop | None] = ContextVar("trustfold_blocked_loop", default=None)
"""Event loop that stands still until the call is over, as it is made there without `await`."""


HELD: ContextVar[frozenset[str]] = ContextVar("trustfold_held_keys", default=frozenset())
"""Holders of the keys under which the calls run that this one is made within."""
