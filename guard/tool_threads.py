"""Thread pool for plain functions beside an event loop.

A function that exceeds its time limit cannot be stopped: it keeps its thread, and other calls use other threads. The
threads are daemons, so a function that never ends does not block the program's exit.
"""

from __future__ import annotations

import asyncio
import contextvars
import os
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from contextvars import ContextVar
from queue import SimpleQueue
from typing import Any, NamedTuple

MAX_IDLE = 16  # Number of idle threads kept; more are started if all are busy


class FunctionOutcome(NamedTuple):
    """Outcome of a function: its return value, or its exception.

    The exception is stored as a value because neither futures nor coroutines can raise StopIteration.
    """

    output: Any = None
    error: BaseException | None = None


Function = Callable[..., Any]  # Function of a tool, of any kind; called with the arguments by name

# Runs a plain function elsewhere than in a thread of the pool
Runner = Callable[[Function, dict[str, Any]], Awaitable[FunctionOutcome]]


def outcome_of(function: Callable[..., Any], args: dict[str, Any]) -> FunctionOutcome:
    """Call a function and return its outcome; catches all exceptions."""
    try:
        return FunctionOutcome(function(**args))
    except BaseException as error:  # noqa: BLE001 - it is raised again where the function is waited for
        return FunctionOutcome(None, error)


Work = tuple["Future[FunctionOutcome]", contextvars.Context, Callable[..., Any], dict[str, Any]]

_idle: list[SimpleQueue[Work]] = []


def run_in_thread(function: Callable[..., Any], args: dict[str, Any]) -> Future[FunctionOutcome]:
    """Run a function in a pool thread with the caller's context variables."""
    done: Future[FunctionOutcome] = Future()
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
            _idle.append(inbox)  # before the result is set: the next call may follow at once
        done.set_result(outcome)
        del done, context, function, args, outcome  # an idle thread keeps no references to its last call
        if not stays:
            return


os.register_at_fork(after_in_child=_idle.clear)


# Event loop that is blocked by the current call, which was made there without `await`
BLOCKED: ContextVar[asyncio.AbstractEventLoop | None] = ContextVar("trustfold_blocked_loop", default=None)


# Holders of the idempotency keys of the calls that the current call is nested in
HELD: ContextVar[frozenset[str]] = ContextVar("trustfold_held_keys", default=frozenset())
