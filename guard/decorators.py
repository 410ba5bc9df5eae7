"""Decorators: guarded functions of the same kind (coroutine, generator, plain), and names for positional arguments."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable
from sys import is_finalizing
from typing import TYPE_CHECKING, Any

from .tool_threads import Function

if TYPE_CHECKING:
    from .result import ToolResult
    from .settings import GuardSettings

AsyncCall = Callable[[str, Function, dict[str, Any]], Awaitable["ToolResult"]]
SyncCall = Callable[[str, Function, dict[str, Any]], "ToolResult"]


def guarded(  # noqa: C901 - one wrapper for each kind of function
    function: Function, name: str, settings: GuardSettings, call: AsyncCall, call_blocking: SyncCall
) -> Any:
    """Wrap `function` so that each call is guarded under a tool's name.

    Args:
        function: function of any kind; the guarded one is of the same kind.
        name: name of the registered tool.
        settings: settings of the guard; `enabled` is the kill switch. At the interpreter's exit no call is guarded.
        call: guarded call for coroutine functions and asynchronous generators.
        call_blocking: guarded call for plain functions and generators.
    """
    signature = _signature_of(function)

    def bound(positional: tuple[Any, ...], named: dict[str, Any]) -> tuple[str, Function, dict[str, Any]]:
        args, call_with = by_name(signature.bind(*positional, **named))
        return name, function if call_with is None else with_binding(function, call_with), args

    if inspect.isasyncgenfunction(function):

        @functools.wraps(function)
        async def async_generator(*positional: Any, **named: Any) -> Any:
            if settings.enabled and not is_finalizing():
                stream = (await call(*bound(positional, named))).given_back()
            else:
                stream = function(*positional, **named)
            # Delegates as `yield from` would, as in `streams.relay`.
            try:
                item = await stream.__anext__()
                while True:
                    try:
                        sent = yield item
                    except GeneratorExit:
                        await stream.aclose()
                        raise
                    except BaseException as thrown:  # noqa: BLE001 - for the tool's own generator
                        item = await stream.athrow(thrown)
                    else:
                        item = await stream.asend(sent)
            except StopAsyncIteration:
                return

        return async_generator

    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def coroutine(*positional: Any, **named: Any) -> Any:
            if not settings.enabled or is_finalizing():
                return await function(*positional, **named)
            return (await call(*bound(positional, named))).given_back()

        return coroutine

    if inspect.isgeneratorfunction(function):

        @functools.wraps(function)
        def generator(*positional: Any, **named: Any) -> Any:
            if not settings.enabled or is_finalizing():
                return (yield from function(*positional, **named))
            return (yield from call_blocking(*bound(positional, named)).given_back())

        return generator

    @functools.wraps(function)
    def plain(*positional: Any, **named: Any) -> Any:
        if not settings.enabled or is_finalizing():
            return function(*positional, **named)
        return call_blocking(*bound(positional, named)).given_back()

    return plain


def _signature_of(function: Function) -> inspect.Signature:
    """Signature of a function; built-in functions without one accept any arguments."""
    try:
        return inspect.signature(function)
    except ValueError:
        kinds = {"args": inspect.Parameter.VAR_POSITIONAL, "kwargs": inspect.Parameter.VAR_KEYWORD}
        return inspect.Signature([inspect.Parameter(name, kind) for name, kind in kinds.items()])


def by_name(bound: inspect.BoundArguments) -> tuple[dict[str, Any], inspect.BoundArguments | None]:
    """Return arguments by name, and the binding if some of them cannot be passed by name."""
    args: dict[str, Any] = {}
    odd = False
    for name, parameter in bound.signature.parameters.items():
        if name not in bound.arguments or name in {"self", "cls"}:
            odd = odd or name in {"self", "cls"}
            continue
        value = bound.arguments[name]
        if parameter.kind is parameter.VAR_KEYWORD:
            args |= value
        else:
            args[name] = list(value) if parameter.kind is parameter.VAR_POSITIONAL else value
            odd = odd or parameter.kind in {parameter.VAR_POSITIONAL, parameter.POSITIONAL_ONLY}
    return args, bound if odd else None


def with_binding(function: Function, bound: inspect.BoundArguments) -> Function:
    """Return a function that calls `function` with the given binding, ignoring named arguments."""
    if inspect.iscoroutinefunction(function):

        async def asynchronous(**_: Any) -> Any:
            return await function(*bound.args, **bound.kwargs)

        return asynchronous

    def plain(**_: Any) -> Any:
        return function(*bound.args, **bound.kwargs)

    return plain
