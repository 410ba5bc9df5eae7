"""Guarded calls from threads that block.

Waiting happens on an event loop: the guard's own loop if another thread runs it, else a loop in a new thread. The tool
runs in the calling thread, with its connections, locks and context variables. A call with a time limit runs in another
thread, as the caller's own thread cannot be interrupted.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import inspect
import queue
import sys
import threading
from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, TypeVar, Unpack
from weakref import WeakSet

from .attempts import call_unguarded
from .clock import resolve
from .errors import GuardError
from .nesting import carry_depth, room_for_nested
from .tool_threads import BLOCKED, HELD, Function, FunctionOutcome, Runner, outcome_of

if TYPE_CHECKING:
    from .interface import GuardInterface
    from .options import CallOptions
    from .result import ToolResult

T = TypeVar("T")


_LOOK_S = 1.0  # Seconds between two checks whether the loop that serves a blocked thread was closed

_CLOSED = "this guard was closed while a call was running; close it when all calls have ended"

_ending: WeakSet[asyncio.AbstractEventLoop] = WeakSet()

_Work = tuple["Function", dict[str, Any], asyncio.AbstractEventLoop, "asyncio.Future[FunctionOutcome]", frozenset[str]]


class LoopThread:
    """Event loop in a daemon thread."""

    def __init__(self) -> None:
        """Start the thread and its loop."""
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="trustfold-guard", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()
        if tasks := asyncio.all_tasks(self.loop):
            for task in tasks:
                task.cancel()
            self.loop.run_until_complete(asyncio.wait(tasks, timeout=_LOOK_S))
        self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        self.loop.close()

    def wait_for(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the loop and block until it ends."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result()

    def stop(self) -> None:
        """Stop the loop and its thread; repeated calls do nothing."""
        if not self.loop.is_closed():
            _ending.add(self.loop)
            self.loop.call_soon_threadsafe(self.loop.stop)
            self._thread.join(5)


def at_exit(tool_name: str, function: Function, args: Mapping[str, Any] | None) -> ToolResult:
    """Call a plain function unguarded: at the interpreter's exit no loop runs any more, so nobody could wait for it."""

    async def here(function: Function, args: dict[str, Any]) -> FunctionOutcome:
        return outcome_of(function, args)

    work = call_unguarded(tool_name, function, args or {}, here, ())
    try:
        work.send(None)
    except StopIteration as ended:
        made: ToolResult = ended.value
        return made
    raise GuardError("the interpreter ends; nothing can be awaited any more")


class BlockingCalls:
    """Makes blocking calls of one guard."""

    def __init__(self, guard: GuardInterface) -> None:
        """Find or start a loop at the first call."""
        self._guard = guard
        self._own: LoopThread | None = None
        self._blocked = 0
        self._lock = threading.Lock()

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
        guard, home = self._guard, self._guard.home
        if sys.is_finalizing() and function is not None:
            return at_exit(tool_name, function, args)

        def make(runner: Runner) -> Coroutine[Any, Any, ToolResult]:
            return guard.call(tool_name, function, args, session_id=session_id, runner=runner, **options)

        if home is None or not home.is_running():
            return serve(self._own_loop(), make)
        if _running_loop() is home:
            # The caller's loop is blocked during this call; other threads that the tool waits for must not wait for
            # it.
            self._blocked += 1
            try:
                return serve(self._own_loop(), make)
            finally:
                self._blocked -= 1
        return serve(self._own_loop() if self._blocked else home, make)

    def close(self, release: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Stop the loop if it was started here; `release` releases its connections first."""
        own, self._own = self._own, None
        if own is not None:
            own.wait_for(release())
            own.stop()

    def _own_loop(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._own is None:
                self._own = LoopThread()
            return self._own.loop


def _running_loop() -> asyncio.AbstractEventLoop | None:
    """Event loop that runs in this thread; None if there is none."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def serve(loop: asyncio.AbstractEventLoop, make: Callable[[Runner], Coroutine[Any, Any, T]]) -> T:
    """Run a call on another thread's loop with this thread's context variables, and its tool in this thread."""
    work: queue.SimpleQueue[_Work | None] = queue.SimpleQueue()
    ended: list[FunctionOutcome] = []
    tasks: list[asyncio.Task[None]] = []

    async def here(function: Function, args: dict[str, Any]) -> FunctionOutcome:
        done: asyncio.Future[FunctionOutcome] = loop.create_future()
        work.put((function, args, loop, done, HELD.get()))
        return await done

    async def on_the_loop() -> None:
        try:
            ended.append(FunctionOutcome(await make(here)))
        except BaseException as error:  # noqa: BLE001 - raised again in the thread that waits; it must not end the loop
            ended.append(FunctionOutcome(None, error))
        finally:
            work.put(None)

    context = contextvars.copy_context()
    if (blocked := _running_loop()) is not None:
        context.run(BLOCKED.set, blocked)
    try:
        loop.call_soon_threadsafe(lambda: tasks.append(loop.create_task(on_the_loop(), context=context)))
    except RecursionError:
        raise
    except RuntimeError as closed:
        raise GuardError(_CLOSED) from closed
    try:
        while (item := _next_of(work, loop)) is not None:
            _run_here(*item)
    except BaseException:
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(lambda: [task.cancel() for task in tasks])
        raise
    output, error = ended[0]
    if isinstance(error, asyncio.CancelledError) and loop in _ending:
        raise GuardError(_CLOSED) from error
    if error is not None:
        raise error
    made: T = output
    return made


async def call_on(
    home: asyncio.AbstractEventLoop,
    guard: GuardInterface,
    tool_name: str,
    function: Function,
    args: Mapping[str, Any],
    **options: Any,
) -> ToolResult:
    """Make a call on the guard's loop; a coroutine function runs on the loop that awaits it."""
    here = asyncio.get_running_loop()
    target = function
    if inspect.iscoroutinefunction(function):
        inside = contextvars.copy_context()

        async def target(**given: Any) -> Any:
            carry_depth(inside)

            async def run() -> Any:
                return await here.create_task(function(**given), context=inside)

            return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(run(), here))

    context = contextvars.copy_context()

    async def call() -> ToolResult:
        return await home.create_task(guard.call(tool_name, target, args, **options), context=context)

    return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(call(), home))


def _next_of(work: queue.SimpleQueue[_Work | None], loop: asyncio.AbstractEventLoop) -> _Work | None:
    """Return the next function to run in this thread; None at the end of the call."""
    while True:
        try:
            return work.get(timeout=_LOOK_S)
        except queue.Empty:
            if loop.is_closed() and work.empty():
                raise GuardError(_CLOSED) from None


def _run_here(
    function: Function,
    args: dict[str, Any],
    loop: asyncio.AbstractEventLoop,
    done: asyncio.Future[FunctionOutcome],
    held: frozenset[str],
) -> None:
    """Run a tool in this thread and send its outcome to the loop; control-flow exceptions end the wait at once."""
    before = HELD.set(held)
    try:
        with room_for_nested():
            outcome = FunctionOutcome(function(**args))
    except Exception as error:  # noqa: BLE001 - it is raised where it is waited for
        outcome = FunctionOutcome(None, error)
    finally:
        HELD.reset(before)
    try:
        loop.call_soon_threadsafe(resolve, done, outcome)
    except RecursionError:  # no room on the stack; the call ends one level above
        raise
    except RuntimeError:  # the loop is closed: its waiter fails with an error
        pass
