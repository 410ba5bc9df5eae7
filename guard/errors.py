"""Exceptions: the guard's own, and those that are control flow instead of failures.

The guard raises its own only where a caller asks for a plain value instead of a result, and re-raises control flow
unchanged. Exceptions of frameworks are recognised by class name and top-level package, so the frameworks need not be
installed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from ..errors import TrustfoldError


class GuardError(TrustfoldError):
    """Base class of the guard's exceptions."""


UNKNOWN_TOOL = "unknown_tool"
INVALID_INPUT = "invalid_input"


class EnvelopeRejected(GuardError):
    """A request does not describe a valid call; nothing was called. The message names the field and the fault.

    Attributes:
        code: `unknown_tool` if the tool is unknown and has no function, else `invalid_input`.
    """

    def __init__(self, message: str, code: str = INVALID_INPUT) -> None:
        super().__init__(message)
        self.code = code


class CallNotPermitted(GuardError):
    """The tool was not called: open circuit, withdrawn trust, spent limit, or denied permission.

    Attributes:
        code: stable reason, e.g. `circuit_open`, `blocked`, `denied`, `guarantee_exceeded`, `key_conflict`.
        tool_name: name of the tool.
    """

    def __init__(self, code: str, tool_name: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.tool_name = tool_name


class ToolFailed(GuardError):
    """The tool returned a failure instead of raising one.

    Attributes:
        code: HTTP status, error type or exit code.
        output: return value of the tool.
    """

    def __init__(self, code: str, message: str, output: object = None) -> None:
        super().__init__(message)
        self.code = code
        self.output = output


# --- control flow -----------------------------------------------------------------------------------------------------

Passthrough = tuple[type[BaseException] | str, ...]
"""Further control-flow exceptions: classes, or `package.Class` as text."""

CONTROL_FLOW: dict[str, frozenset[str]] = {
    "langgraph": frozenset({"GraphBubbleUp", "GraphInterrupt", "NodeInterrupt", "ParentCommand"}),
    "pydantic_ai": frozenset(
        {
            "ApprovalRequired",
            "CallDeferred",
            "ModelRetry",
            "SkipModelRequest",
            "SkipToolExecution",
            "SkipToolValidation",
            "ToolRetryError",
        }
    ),
    "llama_index": frozenset({"WaitingForEvent"}),
    "workflows": frozenset({"WaitingForEvent"}),
    "prefect": frozenset({"PrefectSignal", "Pause"}),
    "trio": frozenset({"Cancelled"}),
}
"""Class names by top-level package."""


def is_control_flow(error: BaseException, passthrough: Iterable[type[BaseException] | str] = ()) -> bool:
    """Whether an exception is control flow: a cancellation, an exit, a graph interrupt, or one listed in `passthrough`.

    An exception group is control flow if any of its exceptions is.
    """
    if not isinstance(error, Exception):
        return True
    if isinstance(error, BaseExceptionGroup):
        return any(is_control_flow(inner, passthrough) for inner in error.exceptions)
    named = []
    for one in passthrough:
        if isinstance(one, str):
            named.append(one)
        elif isinstance(error, one):
            return True
    for kind in type(error).__mro__:
        root = kind.__module__.partition(".")[0]
        if kind.__name__ in CONTROL_FLOW.get(root, ()):
            return True
        if named and any(_is_named(kind, name) for name in named):
            return True
    return False


def is_cut_off(error: BaseException) -> bool:
    """Whether an exception interrupts a tool from outside, wherever it is, in place of being raised by it."""
    if isinstance(error, BaseExceptionGroup):
        return any(is_cut_off(inner) for inner in error.exceptions)
    kind = type(error)
    trio = kind.__name__ == "Cancelled" and kind.__module__.startswith("trio.")
    return trio or isinstance(error, asyncio.CancelledError | KeyboardInterrupt | SystemExit | GeneratorExit)


def _is_named(kind: type, name: str) -> bool:
    package, _, word = name.rpartition(".")
    return kind.__name__ == word and (kind.__module__ == package or kind.__module__.startswith(f"{package}."))
