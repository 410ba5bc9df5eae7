"""Exceptions that are control flow instead of failures; the guard re-raises them unchanged.

Exceptions of frameworks are recognised by class name and top-level package, so the frameworks need not be installed.
"""

from __future__ import annotations

from collections.abc import Iterable

Passthrough = tuple[type[BaseException] | str, ...]
"""Further control-flow exceptions: classes, or `package.Class` as text."""

STEERING: dict[str, frozenset[str]] = {
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


def steers(error: BaseException, passthrough: Iterable[type[BaseException] | str] = ()) -> bool:
    """Whether an exception is control flow: a cancellation, an exit, a graph interrupt, or one listed in `passthrough`.

    An exception group is control flow if any of its exceptions is.
    """
    if not isinstance(error, Exception):
        return True
    if isinstance(error, BaseExceptionGroup):
        return any(steers(inner, passthrough) for inner in error.exceptions)
    named = []
    for one in passthrough:
        if isinstance(one, str):
            named.append(one)
        elif isinstance(error, one):
            return True
    for kind in type(error).__mro__:
        root = kind.__module__.partition(".")[0]
        if kind.__name__ in STEERING.get(root, ()):
            return True
        if named and any(_is_named(kind, name) for name in named):
            return True
    return False


def _is_named(kind: type, name: str) -> bool:
    package, _, word = name.rpartition(".")
    return kind.__name__ == word and (kind.__module__ == package or kind.__module__.startswith(f"{package}."))
