"""The same guard for programs without an event loop.

A loop in a thread of its own does the waiting; the tool itself runs in the thread that calls, with whatever that thread
holds (a connection, a lock, a context). Only a call with a time limit runs in another thread, since nobody can cut off
the caller's own.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import queue
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Self, TypeVar

from .binding import as_bound, by_name
from .guard import ToolGuard
from .session import CURRENT

if TYPE_CHECKING:
    from .attempts import Function
    from .checking import Decision
    from .result import ToolResult
    from .session import GuardSession

T = TypeVar("T")
_Work = tuple["Function", dict[str, Any], asyncio.AbstractEventLoop, "asyncio.Future[Any]"]


class _LoopThread:
    """An event loop that runs beside the program."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="trustfold-guard", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()
        self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        self.loop.close()

    def wait_for(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result()

    def stop(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(5)


class SyncToolGuard:
    """A guard that blocks; everything that does not wait is the asynchronous guard's own.

    Attributes:
        guard: the asynchronous guard.
    """

    def __init__(self, make: Callable[[], Coroutine[Any, Any, ToolGuard]]) -> None:
        """Make the asynchronous guard on the loop that will serve it."""
        self._thread = _LoopThread()
        try:
            self.guard = self._thread.wait_for(make())
        except BaseException:
            self._thread.stop()
            raise

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
        """What does not wait: settings, tools, hooks, metrics, register, report_failure and the rest."""
        return getattr(self.guard, name)

    def check(self, tool_name: str, args: Mapping[str, Any] | None = None, **options: Any) -> Decision:
        """As `ToolGuard.check`."""
        return self.guard.check(tool_name, args, **options)

    def call(
        self, tool_name: str, function: Function | None = None, args: Mapping[str, Any] | None = None, **options: Any
    ) -> ToolResult:
        """As `ToolGuard.call`."""
        return self._serve(lambda runner: self.guard.call(tool_name, function, args, runner=runner, **options), options)

    def execute(self, envelope: Any, function: Function | None = None) -> ToolResult:
        """As `ToolGuard.execute`; the tool runs in a thread of the guard."""
        return self._thread.wait_for(self.guard.execute(envelope, function))

    def call_resilient(self, scenario: str, args: Mapping[str, Any] | None = None, **options: Any) -> Any:
        """As `ToolGuard.call_resilient`; the tools run in threads of the guard."""
        return self._thread.wait_for(self.guard.call_resilient(scenario, args, **options))

    def tool(self, function: Function | None = None, *, name: str | None = None, **nature: Any) -> Any:
        """As `ToolGuard.tool`, for plain functions."""
        if function is None:
            return functools.partial(self.tool, name=name, **nature)
        made = self.guard.register(str(name or getattr(function, "__name__", "tool")), function, **nature)
        signature = inspect.signature(function)

        @functools.wraps(function)
        def guarded(*positional: Any, **named: Any) -> Any:
            if not self.guard.settings.enabled:
                return function(*positional, **named)
            args, call_with = by_name(signature.bind(*positional, **named))
            target = function if call_with is None else as_bound(function, call_with)
            return self.call(made.name, target, args).unwrap()

        return guarded

    @contextmanager
    def session(self, session_id: str | None = None, **options: Any) -> Iterator[GuardSession]:
        """A session of the thread that enters it: `with guard.session(…) as session:`.

        Calls are made with `guard.call`, which finds the session by itself.
        """
        session = self.guard.session(session_id, **options).begin()
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
        return self._thread.wait_for(self.guard.flush(timeout_s))

    def close(self) -> None:
        """As `ToolGuard.close`; ends the thread, too."""
        try:
            self._thread.wait_for(self.guard.close())
        finally:
            self._thread.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _serve(self, make: Callable[[Any], Coroutine[Any, Any, ToolResult]], options: Mapping[str, Any]) -> ToolResult:
        """Run a call on the loop, and its tool here."""
        work: queue.SimpleQueue[_Work | None] = queue.SimpleQueue()
        limited = options.get("timeout_ms") is not None or options.get("deadline_ms") is not None

        async def here(function: Function, args: dict[str, Any]) -> Any:
            loop = asyncio.get_running_loop()
            done: asyncio.Future[Any] = loop.create_future()
            work.put((function, args, loop, done))
            return await done

        ran = CURRENT.get()
        inherits = ran is not None and options.get("session_id") is None

        async def on_the_loop() -> ToolResult:
            if inherits:
                CURRENT.set(ran)
            return await make(None if limited else here)

        running = asyncio.run_coroutine_threadsafe(on_the_loop(), self._thread.loop)
        running.add_done_callback(lambda _: work.put(None))
        try:
            while (item := work.get()) is not None:
                _run_here(*item)
        except BaseException:
            running.cancel()
            raise
        return running.result()


def _run_here(
    function: Function, args: dict[str, Any], loop: asyncio.AbstractEventLoop, done: asyncio.Future[Any]
) -> None:
    """Run a tool in this thread and tell the loop what came of it."""

    def tell(output: Any, error: BaseException | None) -> None:
        if done.done():
            return
        if error is None:
            done.set_result(output)
        else:
            done.set_exception(error)

    try:
        output = function(**args)
    except Exception as error:  # noqa: BLE001 - it is told where it is waited for
        loop.call_soon_threadsafe(tell, None, error)
    else:
        loop.call_soon_threadsafe(tell, output, None)
