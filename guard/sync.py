"""Blocking guard for programs without an event loop; see `blocking` for its threads."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, TypeVar, Unpack, overload

from .blocking import LoopThread, at_exit, call_on, serve
from .clock import new_id
from .decorators import guarded
from .errors import GuardError
from .guard import FORK_AWARE, ToolGuard
from .session import CURRENT, GuardSession

if TYPE_CHECKING:
    from .options import CallOptions, SessionOptions, ToolOptions
    from .policy import CheckDecision
    from .result import ToolResult
    from .tool_threads import Function

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


def _blocking(
    method: Callable[Concatenate[ToolGuard, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[SyncToolGuard, P], R]:
    """Return a method of `ToolGuard` that blocks; the tools that it calls run in threads of the guard."""

    @functools.wraps(method)
    def waiting(self: SyncToolGuard, /, *given: P.args, **named: P.kwargs) -> R:
        return serve(self._loop_thread().loop, lambda _: method(self.guard, *given, **named))

    return waiting


class SyncGuardSession(GuardSession):
    """Session whose calls block."""

    def __init__(self, guard: SyncToolGuard, session_id: str, **options: Unpack[SessionOptions]) -> None:
        """As `GuardSession`."""
        super().__init__(guard.guard, session_id, **options)
        self._waiting = guard

    def call(  # type: ignore[override]
        self,
        tool_name: str,
        function: Function | None = None,
        args: Mapping[str, Any] | None = None,
        **options: Unpack[CallOptions],
    ) -> ToolResult:
        """Make a guarded call in this session; see `SyncToolGuard.call`."""
        return self._waiting.call(tool_name, function, args, session_id=self.session_id, **options)


class SyncToolGuard:
    """Blocking guard; methods that do not wait are the asynchronous guard's own.

    Attributes:
        guard: the asynchronous guard.
    """

    def __init__(self, make: Callable[[], Coroutine[Any, Any, ToolGuard]]) -> None:
        """Create the asynchronous guard on the loop that will serve it."""
        self._thread: LoopThread | None = LoopThread()
        self._closed = False
        try:
            self.guard = self._thread.wait_for(make())
        except BaseException:
            self._thread.stop()
            raise
        self.guard.home = self._thread.loop
        FORK_AWARE.add(self)

    def after_fork(self) -> None:
        """Reset in a child process, which has only the thread that forked."""
        self._thread = None

    def _loop_thread(self) -> LoopThread:
        """Thread of the event loop; a new one in a child process.

        Raises:
            GuardError: the guard is closed.
        """
        if self._closed:
            raise GuardError("this guard is closed; make another one")
        if self._thread is None:
            self._thread = LoopThread()
            self.guard.home = self._thread.loop
        return self._thread

    @classmethod
    def in_memory(cls, **options: Any) -> Self:
        """As `ToolGuard.in_memory`."""

        async def make() -> ToolGuard:
            return ToolGuard.in_memory(**options)

        return cls(make)

    @classmethod
    def embedded(cls, path: str, **options: Any) -> Self:
        """As `ToolGuard.embedded`."""
        return cls(lambda: ToolGuard.embedded(path, **options))

    @classmethod
    def connect(cls, address: str, **options: Any) -> Self:
        """As `ToolGuard.connect`."""
        return cls(lambda: ToolGuard.connect(address, **options))

    def __getattr__(self, name: str) -> Any:
        """Forward attributes that do not wait: settings, tools, hooks, metrics, register, report_failure and others."""
        return getattr(self.guard, name)

    def check(self, tool_name: str, args: Mapping[str, Any] | None = None, **options: Any) -> CheckDecision:
        """As `ToolGuard.check`."""
        return self.guard.check(tool_name, args, **options)

    def call(
        self,
        tool_name: str,
        function: Function | None = None,
        args: Mapping[str, Any] | None = None,
        *,
        session_id: str | None = None,
        **options: Unpack[CallOptions],
    ) -> ToolResult:
        """As `ToolGuard.call`."""
        if sys.is_finalizing() and function is not None:
            return at_exit(tool_name, function, args)
        return serve(
            self._loop_thread().loop,
            lambda runner: self.guard.call(tool_name, function, args, session_id=session_id, runner=runner, **options),
        )

    execute = _blocking(ToolGuard.execute)
    settle = _blocking(ToolGuard.settle)
    call_resilient = _blocking(ToolGuard.call_resilient)  # type: ignore[arg-type]  # its options may be named self

    @overload
    def tool(
        self, function: Callable[P, R], *, name: str | None = None, **nature: Unpack[ToolOptions]
    ) -> Callable[P, R]: ...

    @overload
    def tool(
        self, function: None = None, *, name: str | None = None, **nature: Unpack[ToolOptions]
    ) -> Callable[[Callable[P, R]], Callable[P, R]]: ...

    def tool(self, function: Any = None, *, name: str | None = None, **nature: Unpack[ToolOptions]) -> Any:
        """As `ToolGuard.tool`; a coroutine function runs on the loop that awaits it."""
        if function is None:
            return functools.partial(self.tool, name=name, **nature)
        made = self.guard.register(str(name or getattr(function, "__name__", "tool")), function, **nature)

        async def call(tool_name: str, function: Function, args: dict[str, Any]) -> ToolResult:
            return await call_on(self._loop_thread().loop, self.guard, tool_name, function, args)

        return guarded(function, made.name, self.guard.settings, call, self.call)

    @contextmanager
    def session(self, session_id: str | None = None, **options: Unpack[SessionOptions]) -> Iterator[SyncGuardSession]:
        """Open a session in this thread: `with guard.session(…) as session:`.

        `guard.call` uses the session by itself; `session.call` blocks as it does.
        """
        session = SyncGuardSession(self, session_id or new_id(self.guard.clock.now_ms()), **options).begin()
        token = CURRENT.set(session)
        try:
            yield session
        except BaseException:
            session.end("error")
            raise
        else:
            session.end()
        finally:
            CURRENT.reset(token)

    def flush(self, timeout_s: float = 10.0) -> bool:
        """As `ToolGuard.flush`."""
        return self._loop_thread().wait_for(self.guard.flush(timeout_s))

    def close(self) -> None:
        """As `ToolGuard.close`; also stops the thread. Repeated calls do nothing."""
        if self._closed:
            return
        thread = self._loop_thread()
        self._closed = True
        try:
            thread.wait_for(self.guard.close())
        finally:
            thread.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
