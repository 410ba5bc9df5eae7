"""How long a shared store that is slow or silent holds a call up: counted on a loop whose time is made up."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from guard_kit import SlowStore, works
from trustfold.guard import DedupePolicy
from trustfold.guard.clock import SystemClock
from trustfold.guard.idempotency.fallback import BUDGET_MS, CLAIM_MS, PULSE_MS, FallbackDedupeStore
from trustfold.guard.idempotency.redis import RedisDedupeStore
from trustfold.guard.idempotency.store_circuit import PATIENCE_MS
from trustfold.guard.testing import guard_for_tests

HELD_UP_S = 0.050
"""Longest that a call may be held up."""


class _NoWait(selectors.DefaultSelector):  # type: ignore[valid-type, misc]
    """A selector that lets made-up time pass instead of waiting."""

    passed = 0.0

    def select(self, timeout: float | None = None) -> Any:
        """What is ready now."""
        self.passed += max(0.0, timeout or 0.0)
        return super().select(0)


class MadeUpTime(asyncio.SelectorEventLoop):
    """A loop that waits for nothing: its time goes on by what it is asked to wait."""

    def __init__(self) -> None:
        self.shown = _NoWait()
        super().__init__(self.shown)

    def time(self) -> float:
        """Seconds since the beginning."""
        return self.shown.passed


def run(work: Coroutine[Any, Any, None]) -> None:
    """Run a test on such a loop."""
    with asyncio.Runner(loop_factory=MadeUpTime) as runner:
        runner.run(work)


LOCAL = DedupePolicy(on_store_down="local")
FOR_EVER = 1e6
KINDS: dict[str, Callable[[str], float]] = {
    "silent": lambda _: FOR_EVER,
    "slow": lambda _: 0.030,
    "very slow": lambda _: 0.300,
    "just in time": lambda _: 0.012,
    "claims nothing": lambda name: FOR_EVER if name == "claim" else 0.001,
    "ends nothing": lambda name: FOR_EVER if name == "finish" else 0.001,
}


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_no_call_is_held_up_by_a_slow_store(kind: str, *, known: bool) -> None:
    """The first calls, those during a look whether it is back, many at once; also where it never answered before."""

    async def work() -> None:
        store = SlowStore(KINDS[kind] if not known else lambda _: 0.0)
        guard = guard_for_tests(store=store, dedupe=LOCAL)  # type: ignore[arg-type]
        loop = asyncio.get_running_loop()

        async def held_up_s(number: int) -> float:
            began = loop.time()
            assert (await guard.call("send", works, {}, session_id="s", idempotency_key=f"k{number}")).ok
            return loop.time() - began

        await guard.__aenter__()  # waits for the store's first answer, for a second at most
        if known:
            await held_up_s(-1)
            store.takes_s = KINDS[kind]
        for number in range(40):
            assert await held_up_s(number) <= HELD_UP_S
            await asyncio.sleep(0.02 * (number % 4))
        assert max(await asyncio.gather(*map(held_up_s, range(100, 150)))) <= HELD_UP_S

    run(work())


def test_the_parts_of_the_bound_add_up() -> None:
    """A claim and an end; or a wait for another process that becomes hopeless."""
    assert CLAIM_MS <= BUDGET_MS < HELD_UP_S * 1000
    assert PULSE_MS + PATIENCE_MS < HELD_UP_S * 1000


def test_a_call_that_waits_for_another_process_finds_out_in_time_that_the_store_is_silent() -> None:
    """It runs by itself then, as every call does."""

    async def work() -> None:
        store = SlowStore(lambda _: 0.0)
        loop = asyncio.get_running_loop()
        there, here = (guard_for_tests(store=store, dedupe=LOCAL) for _ in range(2))  # type: ignore[arg-type]

        async def hangs(**_: Any) -> None:
            await asyncio.sleep(FOR_EVER)

        other = asyncio.create_task(there.call("send", hangs, {}, session_id="s", idempotency_key="k"))
        await asyncio.sleep(0.01)
        mine = asyncio.create_task(here.call("send", works, {}, session_id="s", idempotency_key="k"))
        await asyncio.sleep(3)
        assert not mine.done()
        store.takes_s, stopped = (lambda _: FOR_EVER), loop.time()
        assert (await mine).ok
        assert loop.time() - stopped <= HELD_UP_S
        other.cancel()

    run(work())


def test_a_call_of_an_outage_is_known_when_the_store_is_back() -> None:
    """What ran on memory alone is written then: it runs again neither here nor in another process."""

    async def work() -> None:
        store = SlowStore(lambda _: FOR_EVER)
        here, there = (guard_for_tests(store=store, dedupe=LOCAL) for _ in range(2))  # type: ignore[arg-type]
        runs = []

        async def charges(**_: Any) -> str:
            runs.append(1)
            await asyncio.sleep(2.0 if len(runs) == 2 else 0)
            return "charged"

        def charge(guard: Any, key: str) -> Any:
            return guard.call("charge", charges, {}, session_id="s", idempotency_key=key)

        await charge(here, "ended meanwhile")
        await asyncio.sleep(2)
        assert here.store.circuit.down  # type: ignore[attr-defined]
        running = asyncio.create_task(charge(here, "ended afterwards"))
        await asyncio.sleep(0.1)
        store.takes_s = lambda _: 0.0
        await running
        await asyncio.sleep(10)
        assert not here.store.circuit.down  # type: ignore[attr-defined]
        for guard in (here, there):
            for key in ("ended meanwhile", "ended afterwards"):
                assert (await charge(guard, key)).output == "charged"
        assert len(runs) == 2

    run(work())


def test_a_call_that_is_cancelled_while_it_claims_leaves_the_key_free() -> None:
    """Also where the store gives it the key afterwards."""

    async def work() -> None:
        store = SlowStore(lambda _: 0.0)
        here, there = (guard_for_tests(store=store) for _ in range(2))  # type: ignore[arg-type]
        await here.call("send", works, {}, session_id="s", idempotency_key="first")
        store.takes_s = lambda _: 0.012
        gone = asyncio.create_task(here.call("send", works, {}, session_id="s", idempotency_key="k"))
        await asyncio.sleep(0.005)
        gone.cancel()
        await asyncio.sleep(0.1)
        store.takes_s = lambda _: 0.0
        loop = asyncio.get_running_loop()
        began = loop.time()
        assert (await there.call("send", works, {}, session_id="s", idempotency_key="k")).ok
        assert loop.time() - began < 1

    run(work())


def test_who_waits_for_a_running_call_in_redis_waits_as_long_as_told() -> None:
    """And then learns that it still runs."""

    class AlwaysRunning:
        def register_script(self, _: str) -> Any:
            async def run(**_: Any) -> list[Any]:
                return [
                    b'{"key":"k","tool":"t","state":"inflight","holder":"h","params_digest":""}',
                    b"inflight",
                    1,
                    b"h",
                ]

            return run

        async def aclose(self) -> None:
            pass

    async def work() -> None:
        store = RedisDedupeStore(AlwaysRunning())  # type: ignore[arg-type]
        began = asyncio.get_running_loop().time()
        await store.wait("k", 1, 3000)
        assert asyncio.get_running_loop().time() - began == pytest.approx(3)
        await store.close()

    run(work())


def test_a_silent_store_holds_the_end_of_a_guard_up_for_a_second() -> None:
    """Its connections are given up then."""

    async def work() -> None:
        store = FallbackDedupeStore(SlowStore(lambda _: FOR_EVER), SystemClock())  # type: ignore[arg-type]
        began = asyncio.get_running_loop().time()
        await store.close()
        assert asyncio.get_running_loop().time() - began == pytest.approx(1)

    run(work())
