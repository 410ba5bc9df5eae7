"""Tools for tests of the guard: in good health, down, or following a script; approvals and codes of their calls."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from trustfold.guard import ToolGuard
from trustfold.guard.idempotency.memory import InMemoryDedupeStore
from trustfold.guard.testing import set_state
from trustfold.schemas.codec import rfc3339


async def works(**_: Any) -> str:
    """A tool in good health."""
    return "ok"


async def fails(**_: Any) -> None:
    """A tool that is down."""
    raise ConnectionResetError


class GraphInterrupt(Exception):
    """As LangGraph's, whose import takes two seconds."""

    __module__ = "langgraph.errors"


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

    async def run(self, **args: Any) -> Any:
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


class SlowStore:
    """A store of other processes, too: every operation takes as long as it is told to, or for ever."""

    in_process = False

    def __init__(self, takes_s: Callable[[str], float]) -> None:
        self.takes_s = takes_s
        self.inner = InMemoryDedupeStore()

    def __getattr__(self, name: str) -> Any:
        async def operation(*arguments: Any) -> Any:
            await asyncio.sleep(self.takes_s(name))
            method: Callable[..., Awaitable[Any]] = getattr(self.inner, name)
            return await method(*arguments)

        return operation

    def after_fork(self) -> None:
        """Nothing is held open."""


class Gated:
    """A tool that waits until it may go on, as a coroutine or in a thread, then returns or raises; counts its runs."""

    def __init__(self, result: Any = "ok", kind: Any = asyncio.Event) -> None:
        self.runs, self.result = 0, result
        self.entered, self.may_go = kind(), kind()

    async def run(self, **_: Any) -> Any:
        """One run of the coroutine function."""
        self._enter()
        await self.may_go.wait()
        return self._end()

    def block(self) -> Any:
        """One run of the plain function."""
        self._enter()
        self.may_go.wait(60)
        return self._end()

    def _enter(self) -> None:
        self.runs += 1
        self.entered.set()

    def _end(self) -> Any:
        if isinstance(self.result, BaseException):
            raise self.result
        return self.result


async def fail_calls(guard: ToolGuard, times: int, tool: str = "send") -> None:
    """A tool that fails so often."""
    for _ in range(times):
        await guard.call(tool, Stub(HttpError(500)).run, {}, session_id="s1", dedupe_mode="disabled")


def approve(guard: ToolGuard, key: str = "a", order: str = "order-1", **more: Any) -> None:
    """A key that must be asked about and that an operator has approved for one call."""
    until = rfc3339(guard.clock.now_ms() + 3_600_000)
    set_state(guard, "trust", key, approval_id=order, approval_expires_at=until, **{"state": "escalated", **more})


def code_of(result: Any) -> str:
    """Code of a result's error; empty if it has none."""
    return "" if result.error is None else str(result.error.code)
