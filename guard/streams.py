"""Generators as results: returned to the caller at once; the call ends when the generator ends.

A relay wraps the tool's generator and forwards items in both directions. It reports the end once: exhausted, failed, or
abandoned by its reader.
"""

from __future__ import annotations

import inspect
import weakref
from collections.abc import AsyncGenerator, Callable, Generator
from types import AsyncGeneratorType, GeneratorType
from typing import Any

# Callback with the error that a stream ended with, if any, and whether its reader abandoned it
Ended = Callable[[BaseException | None, bool], None]


def is_stream(output: object) -> bool:
    """Whether a result is a generator, plain or asynchronous."""
    kind = type(output)
    if kind is AsyncGeneratorType:
        return True
    return kind is GeneratorType and not output.gi_code.co_flags & inspect.CO_ITERABLE_COROUTINE  # type: ignore[attr-defined]


def relay(stream: Any, ended: Ended) -> Any:
    """Wrap `stream` in a generator of the same kind that reports its end once."""
    reported = False

    def report_once(error: BaseException | None, left: bool) -> None:  # noqa: FBT001 - see `Ended`
        nonlocal reported
        if not reported:
            reported = True
            ended(error, left)

    make: Callable[..., Any] = _relay_async if type(stream) is AsyncGeneratorType else _relay
    made = make(stream, report_once)
    made.__name__, made.__qualname__ = stream.__name__, stream.__qualname__
    # A generator that was never started runs no code when it is closed.
    weakref.finalize(made, report_once, None, True).atexit = False  # noqa: FBT003
    return made


def _relay(stream: Generator[Any, Any, Any], ended: Ended) -> Generator[Any, Any, Any]:
    try:
        value = yield from stream
    except GeneratorExit:
        ended(None, True)  # noqa: FBT003
        raise
    except BaseException as error:
        ended(error, False)  # noqa: FBT003
        raise
    ended(None, False)  # noqa: FBT003
    return value


async def _relay_async(stream: AsyncGenerator[Any, Any], ended: Ended) -> AsyncGenerator[Any, Any]:
    """Delegate to an asynchronous generator, as `yield from` does to a plain one."""
    try:
        item = await stream.__anext__()
        while True:
            try:
                sent = yield item
            except GeneratorExit:
                await stream.aclose()
                raise
            except BaseException as thrown:  # noqa: BLE001 - thrown in by the reader, for the tool's own generator
                item = await stream.athrow(thrown)
            else:
                item = await stream.asend(sent)
    except StopAsyncIteration:
        ended(None, False)  # noqa: FBT003
    except GeneratorExit:
        ended(None, True)  # noqa: FBT003
        raise
    except BaseException as error:
        ended(error, False)  # noqa: FBT003
        raise
