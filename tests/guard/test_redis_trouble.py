"""Redis slow, stopped or full of rubbish: calls go on, each runs once, and nobody waits."""

from __future__ import annotations

import asyncio
import logging
import signal
import time
from statistics import median
from typing import Any

import orjson
import pytest
from guard_kit import works
from local_redis import LocalRedis
from trustfold.guard import DedupePolicy, RedisDedupeStore, ToolGuard
from trustfold.guard.testing import guard_for_tests

ADDED_S = 0.050
"""Longest that a call may be held up by a store that does not answer."""


def guard_over(redis: LocalRedis, **settings: Any) -> ToolGuard:
    """A guard whose keys are in this Redis."""
    return guard_for_tests(store=RedisDedupeStore.from_url(redis.url, "t:"), **settings)


async def until(condition: Any) -> None:
    """Wait until something holds."""
    async with asyncio.timeout(120):
        while not condition():  # noqa: ASYNC110 - the store is asked in the background
            await asyncio.sleep(0.01)


async def test_a_stopped_redis_holds_no_call_up(redis: LocalRedis, caplog: pytest.LogCaptureFixture) -> None:
    """Fifty milliseconds at most, for one call and for two hundred; one warning, and one when it is back."""
    caplog.set_level(logging.WARNING, "trustfold.guard")
    guard = guard_over(redis, dedupe=DedupePolicy(on_store_down="local"))

    assert (await guard.call("send", works, {"n": 0}, session_id="s", idempotency_key="k0")).ok
    redis.process.send_signal(signal.SIGSTOP)
    took = []
    for number in range(1, 12):
        began = time.perf_counter()
        assert (await guard.call("send", works, {"n": number}, session_id="s", idempotency_key=f"k{number}")).ok
        took.append(time.perf_counter() - began)
        await asyncio.sleep(0.05)
    # `test_slow_stores` bounds each call without a clock; on this one a busy machine may hold up a few by itself.
    assert median(took) < ADDED_S
    events = [orjson.loads(one.message)["event"] for one in caplog.records]
    assert events.count("dedupe_store_lost") == 1
    assert "dedupe_store_failed" not in events
    redis.process.send_signal(signal.SIGCONT)
    await until(lambda: not guard.store.circuit.down)
    events = [orjson.loads(one.message)["event"] for one in caplog.records]
    assert events.count("dedupe_store_back") == 1
    await guard.close()


async def test_a_stopped_redis_makes_no_call_run_twice(redis: LocalRedis) -> None:
    """Two hundred callers with one key while Redis is stopped, and the same key again when it is back: one run."""
    guard = guard_over(redis)
    runs = 0

    async def charges(**_: Any) -> str:
        nonlocal runs
        runs += 1
        await asyncio.sleep(0.3)
        return "charged"

    first = asyncio.create_task(guard.call("charge", charges, {"n": 1}, session_id="s", idempotency_key="k"))
    await until(lambda: runs == 1)
    redis.process.send_signal(signal.SIGSTOP)
    calls = [guard.call("charge", charges, {"n": 1}, session_id="s", idempotency_key="k") for _ in range(200)]
    results = [await first, *await asyncio.gather(*calls)]
    assert {result.output for result in results} == {"charged"}
    assert (await guard.call("charge", charges, {"n": 1}, session_id="s", idempotency_key="k")).output == "charged"
    redis.process.send_signal(signal.SIGCONT)
    await until(lambda: not guard.store.circuit.down)
    other = guard_over(redis)  # another process: the end was written when Redis was back
    assert (await other.call("charge", charges, {"n": 1}, session_id="s", idempotency_key="k")).output == "charged"
    assert runs == 1
    await guard.close()
    await other.close()


@pytest.mark.parametrize(
    "value", [b"rubbish", {"record": b"{}"}, {"record": b"\xff", "version": b"x", "created": b"y"}]
)
async def test_rubbish_in_redis_never_raises(redis: LocalRedis, value: Any) -> None:
    """What is no record of ours counts as none."""
    store = RedisDedupeStore.from_url(redis.url, "t:")
    guard = guard_over(redis)

    assert (await guard.call("send", works, {}, session_id="s", idempotency_key="k")).ok
    names = [name async for name in store._client.scan_iter("t:*")]
    assert names
    for name in names:
        await store._client.delete(name)
        await (store._client.set(name, value) if isinstance(value, bytes) else store._client.hset(name, mapping=value))
        key = name.decode().removeprefix("t:")
        assert await store.get(key) is None
        await store.wait(key, 1, 10)
    assert await store.clear("send") == 0
    assert (await guard.call("send", works, {}, session_id="s", idempotency_key="k")).ok
    assert not guard.store.circuit.down
    await guard.close()
    await store.close()


async def test_redis_holds_no_message_that_an_event_would_not_carry(redis: LocalRedis) -> None:
    """Without `send_errors` an error's words stay here; its code is redacted as an event's."""
    guard = guard_over(redis)

    async def fails(**_: Any) -> dict[str, Any]:
        return {"error": "the grapefruit was rotten", "error_type": "ghp_aB3dE5gH7jK9mN1pQ2rS4tU6vW8xY0zAabcd"}

    await guard.call("send", fails, {"fruit": "tangerine"}, session_id="s", idempotency_key="k")
    store = RedisDedupeStore.from_url(redis.url, "t:")
    everything = repr([await store._client.hgetall(name) async for name in store._client.scan_iter("t:*")])
    assert "failed" in everything
    for word in ("grapefruit", "tangerine", "ghp_"):
        assert word not in everything
    await store.close()
    await guard.close()
