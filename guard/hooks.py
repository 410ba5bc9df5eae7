"""Hooks of a platform around its tool calls (docs/design/guard.md#hooks-and-reports).

Both hooks run once per attempt, and once for a call that the guard refuses or answers from an earlier one. An exception
of a hook is logged and otherwise ignored, so that hooks cannot break calls.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from .log import log_event
from .request import GuardedCall


class HookCall(NamedTuple):
    """Argument of a hook."""

    call: GuardedCall  # the call; `call.envelope()` is its envelope
    attempt: int  # number of the attempt, from 1; 0 for a call that is not made
    outcome: str = ""  # after the attempt: `success`, the error's code, or the refusal's code; empty before it


Hook = Callable[[HookCall], "Awaitable[Any] | Any"]
KeyHook = Callable[[GuardedCall], str | None]


class GuardHooks:
    """Hooks in the order of registration."""

    def __init__(self) -> None:
        """Create an empty list."""
        self._before: list[Hook] = []
        self._after: list[Hook] = []
        self._keys: list[KeyHook] = []

    def before_tool_call(self, hook: Hook) -> Hook:
        """Register a hook that runs before each attempt. Usable as a decorator."""
        self._before.append(hook)
        return hook

    def after_tool_call(self, hook: Hook) -> Hook:
        """Register a hook that runs after each attempt. Usable as a decorator."""
        self._after.append(hook)
        return hook

    def idempotency_key(self, hook: KeyHook) -> KeyHook:
        """Register a hook that returns the key of a call without one. Usable as a decorator."""
        self._keys.append(hook)
        return hook

    def key_of(self, call: GuardedCall) -> str | None:
        """Return the first key that a hook returns; None if no hook returns one."""
        for hook in self._keys:
            try:
                if key := hook(call):
                    return str(key)
            except Exception as error:  # noqa: BLE001 - see the module
                _log_failure(hook, error)
        return None

    async def before(self, call: GuardedCall, attempt: int) -> None:
        """Run the hooks before an attempt."""
        if self._before:
            await _run(self._before, HookCall(call, attempt))

    async def after(self, call: GuardedCall, attempt: int, outcome: str) -> None:
        """Run the hooks after an attempt."""
        if self._after:
            await _run(self._after, HookCall(call, attempt, outcome))

    async def around(self, call: GuardedCall, outcome: str) -> None:
        """Run both kinds of hooks for a call that is answered without an attempt."""
        await self.before(call, 0)
        await self.after(call, 0, outcome)


async def _run(hooks: list[Hook], call: HookCall) -> None:
    for hook in hooks:
        try:
            given = hook(call)
            if inspect.isawaitable(given):
                await given
        except Exception as error:  # noqa: BLE001 - see the module
            _log_failure(hook, error)


def _log_failure(hook: object, error: Exception) -> None:
    name = getattr(hook, "__qualname__", type(hook).__name__)
    log_event(logging.ERROR, "hook_failed", hook=name, errorCode=type(error).__name__)
