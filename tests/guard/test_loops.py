"""Plain functions on the guard's own loop, and calls within calls: they are joined, and nothing waits for itself."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import uuid4

import pytest
from trustfold.guard import RedisDedupeStore, ToolGuard
from trustfold.guard.testing import guard_for_tests

STORES = ["memory", "redis"]


def guard_over(kind: str, request: pytest.FixtureRequest) -> ToolGuard:
    """A guard that lives on the running loop, over a store of one kind."""
    if kind == "memory":
        guard = guard_for_tests()
    else:
        url = request.getfixturevalue("patient_redis_url")
        guard = guard_for_tests(store=RedisDedupeStore.from_url(url, f"trustfold-test:{uuid4()}:"))
    guard.home = asyncio.get_running_loop()
    return guard


@pytest.mark.parametrize("kind", STORES)
async def test_a_plain_function_is_joined_on_the_guards_own_loop(kind: str, request: pytest.FixtureRequest) -> None:
    """With what coroutines and threads have called before, and they with it."""
    guard = guard_over(kind, request)
    runs: list[int] = []

    @guard.tool(name="charge", dedupe=True)
    def charge(n: int) -> int:
        runs.append(n)
        return 10 * n

    async with guard.session("s"):
        assert charge(1) == 10
        assert charge(1) == 10
        assert (await guard.call("charge", None, {"n": 1})).unwrap() == 10
        assert (await guard.call("charge", None, {"n": 2})).unwrap() == 20
        assert charge(2) == 20
        assert await asyncio.gather(*(asyncio.to_thread(charge, 3) for _ in range(4))) == [30] * 4
    assert runs == [1, 2, 3]
    await guard.close()


@pytest.mark.parametrize("kind", STORES)
async def test_a_call_that_blocks_its_twins_loop_is_told_at_once(kind: str, request: pytest.FixtureRequest) -> None:
    """The twin goes on when the loop does; neither waits for the other, and nothing runs twice."""
    guard = guard_over(kind, request)
    runs: list[str] = []
    began = asyncio.Event()

    async def slow(**_: Any) -> str:
        runs.append("slow")
        began.set()
        await asyncio.sleep(0.1)
        return "slow"

    def plain() -> str:
        runs.append("plain")
        return "plain"

    guarded = guard.tool(plain, name="send", read_only=True)
    async with guard.session("s"):
        twin = asyncio.create_task(guard.call("send", slow, {}))
        await began.wait()
        with pytest.raises(Exception, match="cannot end before this one"):
            guarded()
        assert (await twin).output == "slow"
    assert runs == ["slow"]
    await guard.close()


@pytest.mark.parametrize("kind", STORES)
async def test_a_tool_that_makes_its_own_call_again_does_not_wait_for_itself(
    kind: str, request: pytest.FixtureRequest
) -> None:
    """The inner call is refused in words; other calls within a call are made."""
    guard = guard_over(kind, request)
    codes: list[str] = []

    async def again(n: int) -> str:
        for inner in (n, n + 1):
            result = await asyncio.wait_for(guard.call("again", answers, {"n": inner}, session_id="s"), 60)
            codes.append("" if result.error is None else result.error.code)
        return "outer"

    async def answers(n: int) -> int:
        return n

    guard.register("again", again, read_only=True)
    result = await guard.call("again", None, {"n": 1}, session_id="s")
    assert result.output == "outer"
    assert codes == ["in_flight", ""]
    await guard.close()
