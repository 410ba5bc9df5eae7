"""Guarded functions that call guarded functions: room on the stack, for recursion as deep as without the guard."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextvars import Context, ContextVar, copy_context
from typing import Any

_FRAMES = 8  # Frames of the guard between a plain function and one that it calls
MOST_NESTED = 1000  # Nested plain functions that are given room; beyond it recursion ends by the interpreter's limit
_TASK_EVERY = 8  # Nested coroutines that share a stack

_DEPTH: ContextVar[int] = ContextVar("trustfold_nested_calls", default=0)

_limit = threading.Lock()


async def await_nested(function: Callable[..., Any], args: Mapping[str, Any]) -> Any:
    """Await a coroutine function; every few levels in a task of its own, whose stack is empty."""
    depth = _DEPTH.get()
    token = _DEPTH.set(depth + 1)
    try:
        if depth % _TASK_EVERY != _TASK_EVERY - 1:
            return await function(**args)
        if depth >= sys.getrecursionlimit():
            raise RecursionError("maximum recursion depth exceeded")
        context = copy_context()
        try:
            return await asyncio.get_running_loop().create_task(function(**args), context=context)
        finally:
            for (
                variable,
                value,
            ) in context.items():  # what the function has set is seen by its caller, as without a task
                if variable is not _DEPTH and variable.get(None) is not value:
                    variable.set(value)
    finally:
        _DEPTH.reset(token)


def carry_depth(context: Context) -> None:
    """Let a function that runs elsewhere, in a context of its own, know how deep it is nested."""
    context.run(_DEPTH.set, _DEPTH.get())


@contextlib.contextmanager
def room_for_nested() -> Iterator[None]:
    """Raise the interpreter's recursion limit by the guard's own frames, while a plain function runs in another one."""
    depth = _DEPTH.get()
    token = _DEPTH.set(depth + 1)
    grows = 0 < depth < MOST_NESTED
    if grows:
        _grow(_FRAMES)
    try:
        yield
    finally:
        if grows:
            _grow(-_FRAMES)
        _DEPTH.reset(token)


def _grow(frames: int) -> None:
    with _limit, contextlib.suppress(RecursionError):
        sys.setrecursionlimit(sys.getrecursionlimit() + frames)
