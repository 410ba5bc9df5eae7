"""Tools that follow a script: what each call gives back or raises, and how often they were called."""

from __future__ import annotations

from typing import Any

from trustfold.guard import ToolGuard


class HttpError(Exception):
    """An answer that is a failure."""

    def __init__(self, status_code: int, message: str = "refused") -> None:
        super().__init__(message)
        self.status_code = status_code


class Stub:
    """A tool that does what its script says, the last line for ever, and counts its calls."""

    def __init__(self, *script: Any) -> None:
        self.script = list(script) or ["ok"]
        self.calls: list[dict[str, Any]] = []

    async def __call__(self, **args: Any) -> Any:
        """One call."""
        self.calls.append(args)
        step = self.script[min(len(self.calls), len(self.script)) - 1]
        if isinstance(step, BaseException):
            raise step
        return step

    @property
    def count(self) -> int:
        """How often it was called."""
        return len(self.calls)


def as_function(stub: Stub) -> Any:
    """A coroutine function over a stub."""

    async def call(**args: Any) -> Any:
        return await stub(**args)

    return call


async def fails(guard: ToolGuard, times: int, tool: str = "send") -> None:
    """A tool that fails so often."""
    for _ in range(times):
        await guard.call(tool, as_function(Stub(HttpError(500))), {}, session_id="s1", dedupe_mode="disabled")
