"""An operator's approval lets exactly one call pass: under races, cancellation, refusals and with a lost store."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Iterator
from typing import Any

from guard_kit import approve, code_of, works
from local_redis import LocalRedis
from trustfold.guard import RedisDedupeStore, SyncToolGuard, ToolGuard
from trustfold.guard.testing import MovableClock, guard_for_tests, published, set_state
from trustfold.schemas.codec import rfc3339


def guard_with_approval(**settings: Any) -> ToolGuard:
    """A guard that nobody attends to, with the tool `a` approved for one call."""
    guard = guard_for_tests(unattended="deny", **settings)
    approve(guard, "a", "order-1")
    return guard


async def test_an_approval_is_left_to_others_where_a_call_needs_two_and_finds_one() -> None:
    """The command's approval is not used up by a call that the shell's approval does not let pass."""
    guard = guard_with_approval()
    approve(guard, "bash", "order-3", scope="tool")
    assert (await guard.call("bash", works, {"command": "ls"}, session_id="s")).ok
    approve(guard, "bash|command=git", "order-2", scope="key")
    assert not (await guard.call("bash", works, {"command": "git pull"}, session_id="s")).ok
    approve(guard, "bash", "order-4", scope="tool")
    assert (await guard.call("bash", works, {"command": "git pull"}, session_id="s")).ok


async def test_a_refused_probe_uses_no_approval() -> None:
    """Another call is the probe of the half-open circuit; the approval is there when it has closed."""
    guard = guard_with_approval()
    set_state(
        guard, "breaker", "tool:a", state="half_open",
        lease={"holder": "other", "call_id": "c", "lease_until": rfc3339(guard.clock.now_ms() + 60_000)},
    )  # fmt: skip
    refused = await guard.call("a", works, session_id="s")
    assert code_of(refused) == "circuit_open"
    assert "approvals" not in published(guard, "tool_call.finished")[0]
    set_state(guard, "breaker", "tool:a", state="closed")
    assert (await guard.call("a", works, session_id="s")).ok
    assert not (await guard.call("a", works, session_id="s")).ok


async def test_an_answer_of_a_twin_uses_no_approval() -> None:
    """What is answered from memory is not made."""
    guard = guard_with_approval()
    assert (await guard.call("a", works, session_id="s", idempotency_key="k")).ok
    approve(guard, "a", "order-2")
    assert (await guard.call("a", works, session_id="s", idempotency_key="k")).from_cache
    assert (await guard.call("a", works, session_id="s")).ok


class Pause:
    """An awaitable that suspends its coroutine once."""

    def __await__(self) -> Iterator[None]:
        """Suspend."""
        yield


def test_a_call_that_is_cancelled_anywhere_runs_once_or_leaves_its_approval() -> None:
    """At every point where it waits: the tool runs at most once for one approval, and a call not made uses none."""
    points = 0
    while True:
        guard = guard_with_approval()
        runs: list[int] = []

        async def runs_once(**_: Any) -> str:
            runs.append(1)  # noqa: B023 - called within this turn of the loop
            await Pause()
            return "ok"

        async def attack(guard: ToolGuard, tool: Any, steps: int) -> bool:
            call = asyncio.ensure_future(guard.call("a", tool, session_id="s"))
            for _ in range(steps):
                await asyncio.sleep(0)
            ended = call.done()
            call.cancel()
            await asyncio.gather(call, return_exceptions=True)
            await guard.call("a", tool, session_id="s")
            await guard.call("a", tool, session_id="s")
            return ended

        ended = asyncio.run(attack(guard, runs_once, points))
        assert len(runs) == 1, points
        if ended:
            break
        points += 1
    assert points > 1


def test_of_many_threads_one_passes() -> None:
    """Each with a loop of its own."""

    async def make() -> ToolGuard:
        return guard_with_approval()

    plain = SyncToolGuard(make)
    passed, begin = [], threading.Barrier(16)

    def attack(number: int) -> None:
        begin.wait()
        passed.append(plain.call("a", lambda **_: "ok", {"n": number}, session_id="s").ok)

    threads = [threading.Thread(target=attack, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    plain.close()
    assert sorted(passed) == [False] * 15 + [True]


async def test_among_guards_with_one_redis_one_call_passes(redis: LocalRedis) -> None:
    """While Redis is stopped none does, as nobody can know; when it is back, one."""
    clock = MovableClock()
    guards = [guard_with_approval(store=RedisDedupeStore.from_url(redis.url, "t:"), clock=clock) for _ in range(2)]

    async def passed() -> int:
        calls = [guard.call("a", works, session_id="s") for guard in guards for _ in range(10)]
        return sum(result.ok for result in await asyncio.gather(*calls))

    for guard in guards:
        await guard.store.circuit.connect()
    redis.process.send_signal(signal.SIGSTOP)
    assert await passed() == 0
    redis.process.send_signal(signal.SIGCONT)
    async with asyncio.timeout(120):
        while any(guard.store.circuit.down for guard in guards):  # noqa: ASYNC110 - the store is asked in the background
            await asyncio.sleep(0.01)
    seen = 0
    async with asyncio.timeout(120):
        while not seen:  # claims that were answered late are being given back
            seen = await passed()
            await asyncio.sleep(0.05)
    assert seen == 1
    assert await passed() == 0
    for guard in guards:
        await guard.close()
