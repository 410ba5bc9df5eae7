"""How the arguments of a guarded function get their names, and how it is called as its caller wrote it."""

from __future__ import annotations

import inspect
from typing import Any

from .attempts import Function


def by_name(bound: inspect.BoundArguments) -> tuple[dict[str, Any], inspect.BoundArguments | None]:
    """Arguments by name; and the binding itself where some of them cannot be given by name."""
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


def as_bound(function: Function, bound: inspect.BoundArguments) -> Function:
    """A function that is called as it was bound, whatever the names say."""
    if inspect.iscoroutinefunction(function):

        async def asynchronous(**_: Any) -> Any:
            return await function(*bound.args, **bound.kwargs)

        return asynchronous

    def plain(**_: Any) -> Any:
        return function(*bound.args, **bound.kwargs)

    return plain
