"""Guarded functions of every kind, from loops and from threads: each stays what it was."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import threading
import time
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from trustfold.guard import GuardError, SyncToolGuard, ToolGuard
from trustfold.guard.testing import guard_for_tests, published


def decorate(guard: Any) -> dict[str, Any]:
    """One guarded function of every kind."""

    @guard.tool
    def plain(n: int) -> int:
        """Doubles."""
        return 2 * n

    @guard.tool
    async def coroutine(n: int) -> int:
        await asyncio.sleep(0)
        return 2 * n

    @guard.tool
    def generator(n: int) -> Iterator[int]:
        yield from range(n)
        return n

    @guard.tool
    async def async_generator(n: int) -> AsyncIterator[int]:
        for one in range(n):
            yield one

    return {one.__name__: one for one in (plain, coroutine, generator, async_generator)}


@pytest.mark.parametrize("enabled", [True, False])
@pytest.mark.parametrize("make", [ToolGuard.in_memory, SyncToolGuard.in_memory])
def test_a_guarded_function_stays_of_its_kind(make: Any, *, enabled: bool) -> None:
    """Plain functions stay plain, coroutine functions and generators of both kinds what they are; also switched off."""
    guard = make(workspace_id="w1", enabled=enabled)
    made = decorate(guard)
    assert inspect.iscoroutinefunction(made["coroutine"])
    assert inspect.isgeneratorfunction(made["generator"])
    assert inspect.isasyncgenfunction(made["async_generator"])
    assert not inspect.iscoroutinefunction(made["plain"])
    assert (made["plain"].__doc__, made["plain"].__name__) == ("Doubles.", "plain")

    async def asynchronous() -> None:
        assert made["plain"](2) == 4  # on a loop's own thread as well
        assert await made["coroutine"](2) == 4
        assert list(made["generator"](3)) == [0, 1, 2]
        assert [n async for n in made["async_generator"](3)] == [0, 1, 2]
        with pytest.raises(TypeError):
            made["plain"]("too", "many")

    asyncio.run(asynchronous())
    assert made["plain"](3) == 6
    assert list(made["generator"](2)) == [0, 1]
    finished = published(getattr(guard, "guard", guard), "tool_call.finished")
    assert [one["status"] for one in finished] == ["success"] * (6 if enabled else 0)
    if isinstance(guard, SyncToolGuard):
        guard.close()


async def test_a_guarded_coroutine_runs_on_the_loop_that_awaits_it() -> None:
    """Whatever it holds belongs to that loop; the blocking guard's own loop is another one."""
    with SyncToolGuard.in_memory() as guard:

        @guard.tool
        async def where() -> Any:
            return asyncio.get_running_loop()

        assert await where() is asyncio.get_running_loop()
    other = guard_for_tests()

    @other.tool
    async def here() -> Any:
        return asyncio.get_running_loop()

    assert await here() is asyncio.get_running_loop()


async def test_a_plain_guarded_function_runs_where_it_is_called() -> None:
    """In the thread of its caller, whether that is the loop's or another."""
    guard = guard_for_tests()
    where = guard.tool(threading.get_ident, name="where")
    assert where() == threading.get_ident()
    assert await asyncio.to_thread(lambda: where() == threading.get_ident())
    await guard.close()


async def test_a_blocked_loop_holds_up_nobody_else(guard: ToolGuard) -> None:
    """A plain function on the guard's own loop waits for threads that make guarded calls: they need another loop."""
    guard.home = asyncio.get_running_loop()
    inner = guard.tool(lambda n: n + 1, name="inner")

    @guard.tool
    def outer() -> list[int]:
        with ThreadPoolExecutor(4) as pool:
            return list(pool.map(inner, range(4), timeout=60))

    assert outer() == [1, 2, 3, 4]
    assert await asyncio.to_thread(outer) == [1, 2, 3, 4]
    await guard.close()


async def test_threads_and_loops_share_one_run(guard: ToolGuard) -> None:
    """Two threads that wait and a coroutine, one tool: one run, whoever came first."""
    runs, entered, may_go = 0, threading.Event(), threading.Event()

    def slow() -> str:
        nonlocal runs
        runs += 1
        entered.set()
        may_go.wait(60)
        return "ok"

    guarded = guard.tool(slow, dedupe=True, scope="global", name="slow")
    first = asyncio.create_task(asyncio.to_thread(guarded))
    await asyncio.to_thread(entered.wait, 60)
    second = asyncio.create_task(asyncio.to_thread(guarded))
    third = asyncio.create_task(guard.call("slow", slow, {}))
    await asyncio.sleep(0.02)
    may_go.set()
    assert [await first, await second, (await third).output, runs] == ["ok", "ok", "ok", 1]
    await guard.close()


WHO: contextvars.ContextVar[str] = contextvars.ContextVar("who", default="nobody")


async def test_sessions_reach_threads(guard: ToolGuard) -> None:
    """A tool in a thread finds the session and the context of its caller, and so do the guarded calls it makes."""
    inner = guard.tool(WHO.get, name="inner")

    async with guard.session("s9"):
        WHO.set("ann")
        assert (await guard.call("outer", lambda: (WHO.get(), inner()))).output == ("ann", "ann")
        assert await asyncio.to_thread(inner) == "ann"
    assert {event["session_id"] for event in published(guard, "tool_call.started")} == {"s9"}
    with SyncToolGuard.in_memory() as other, other.session("s8"):
        for options in ({}, {"timeout_ms": 5000}):
            assert other.call("x", WHO.get, **options).output == "ann"
        seen = contextvars.copy_context()
        thread = threading.Thread(target=seen.run, args=(other.call, "y", WHO.get))
        thread.start()
        thread.join(60)
        events = published(other.guard, "tool_call.started")
    assert [event["session_id"] for event in events] == ["s8"] * 3


def test_a_registered_time_limit_holds_without_a_loop() -> None:
    """One run, cut off in time: the function cannot be stopped, so nothing runs beside it."""
    may_go, runs = threading.Event(), []
    with SyncToolGuard.in_memory() as guard:
        guard.register("slow", read_only=True, timeout_ms=50)
        began = time.monotonic()
        result = guard.call("slow", lambda: runs.append(may_go.wait(60)), session_id="s1")
        assert (str(result.status), time.monotonic() - began < 30) == ("timeout", True)
        may_go.set()
    assert len(runs) <= 1


def test_a_guard_can_be_closed_twice() -> None:
    """The second time nothing happens; a call after that is refused in words."""
    guard = SyncToolGuard.in_memory()
    assert guard.call("x", lambda: 1).output == 1
    guard.close()
    guard.close()
    with pytest.raises(GuardError, match="closed"):
        guard.call("x", lambda: 1)

    async def twice() -> None:
        other = ToolGuard.in_memory()
        await other.close()
        await other.close()

    asyncio.run(twice())


def test_calls_without_a_loop_that_make_no_sense_are_results() -> None:
    """As with a loop: a failed result and an event."""
    with SyncToolGuard.in_memory() as guard:
        codes = [
            guard.call(name, function, args).error.code
            for name, function, args in (("", len, {}), ("nobody", None, {}), ("x", len, [1]))
        ]
        assert codes == ["unknown_tool", "unknown_tool", "invalid_input"]
        assert len(published(guard.guard)) == 3


async def test_many_hung_functions_do_not_keep_others_waiting() -> None:
    """Forty functions that take too long hold forty threads; the next call has one of its own."""
    guard = guard_for_tests()
    may_go = threading.Event()
    results = await asyncio.gather(
        *(guard.call("slow", lambda: may_go.wait(60), {}, session_id="s1", timeout_ms=20) for _ in range(40))
    )
    assert {str(one.status) for one in results} == {"timeout"}
    assert (await asyncio.wait_for(guard.call("quick", lambda: "ok", session_id="s1"), 60)).output == "ok"
    may_go.set()
