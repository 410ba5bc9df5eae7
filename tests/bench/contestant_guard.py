"""Contestant: what a guard adds to a call that is allowed, beside the usual three libraries (one process, one loop)."""

from __future__ import annotations

import asyncio
import gc
import itertools
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pybreaker
import tenacity
from bench_process import begin, finish
from trustfold.guard import ToolGuard
from trustfold.guard.testing import set_state

ARGS = {"path": "/srv/data/report.txt"}


class Null:
    """Takes events and forgets them; what delivering them costs is the Kafka rows' business."""

    connected = True

    def __init__(self, guard: ToolGuard) -> None:
        self.view, self.decisions = guard.view, guard.backend.decisions

    def publish(self, record: object) -> None:
        """Forget."""

    async def changed(self, timeout_ms: float) -> None:
        """Nothing changes."""


async def tool(**args: Any) -> str:
    """The cheapest tool there is."""
    return args["path"]


def per_call_us(count: int, run: Callable[[int], None]) -> float:
    """Microseconds of one call, of `count`."""
    gc.collect()
    began = time.perf_counter_ns()
    run(count)
    return (time.perf_counter_ns() - began) / 1000 / count


def awaited(call: Callable[[], Awaitable[Any]]) -> Callable[[int], None]:
    """Make so many calls one after the other on one loop."""

    async def many(count: int) -> None:
        for _ in range(count):
            await call()

    return lambda count: asyncio.run(many(count))


def make_guard(workspace: str) -> ToolGuard:
    """A guard whose view holds something against others, as a fleet's does: no short cut past the look-up."""
    inner = ToolGuard.in_memory(workspace_id=workspace)
    for n in range(1000):
        set_state(inner, "trust", f"tool-{n}", state="escalated")
        set_state(inner, "breaker", f"tool:tool-{n}", state="open", open_until="2099-01-01T00:00:00.000Z")
    return inner


def checks_of_the_guard() -> Callable[[int], None]:
    """Trust and circuits of one call, from the view."""
    guard = make_guard("w1")

    def run(count: int) -> None:
        for _ in range(count):
            if not guard.check("read_file", ARGS).allowed:
                raise RuntimeError

    return run


def checks_of_the_libraries() -> Callable[[int], None]:
    """A dict for permission, a pybreaker circuit and a tenacity retry around nothing at all."""
    allowed = {("w1", "read_file"): True}
    breaker = pybreaker.CircuitBreaker(fail_max=5, reset_timeout=30)
    retrying = tenacity.Retrying(
        stop=tenacity.stop_after_attempt(4), wait=tenacity.wait_random_exponential(multiplier=0.2, max=4)
    )

    def nothing() -> None:
        pass

    def run(count: int) -> None:
        for _ in range(count):
            if not allowed["w1", "read_file"]:
                raise RuntimeError
            retrying(breaker.call, nothing)

    return run


def call_of_the_guard() -> Callable[[int], None]:
    """Everything a guarded call does but deliver its events."""
    inner = make_guard("w1")
    guard = ToolGuard(Null(inner), inner.settings)  # type: ignore[arg-type]
    return awaited(lambda: guard.call("read_file", tool, ARGS, session_id="s1"))


KINDS: dict[str, dict[str, bool]] = {
    "read-only": {"read_only": True},
    "idempotent": {"idempotent": True},
    "remembered": {"dedupe": True},
}


def declared_call_of_the_guard(nature: dict[str, bool]) -> Callable[[int], None]:
    """The same for a tool whose nature is declared; no call is answered from another one."""
    inner = make_guard("w1")
    guard = ToolGuard(Null(inner), inner.settings)  # type: ignore[arg-type]
    guard.register("read_file", tool, **nature)
    numbers = itertools.count()
    return awaited(lambda: guard.call("read_file", None, {"path": f"/srv/data/{next(numbers)}.txt"}, session_id="s1"))


def joined_calls_of_the_guard() -> Callable[[int], None]:
    """Two calls at the same time that are one: the time of the two, by two."""
    inner = make_guard("w1")
    guard = ToolGuard(Null(inner), inner.settings)  # type: ignore[arg-type]
    guard.register("read_file", later, read_only=True)

    def call() -> Awaitable[Any]:
        return guard.call("read_file", None, ARGS, session_id="s1")

    async def many(count: int) -> None:
        for _ in range(count // 2):
            await asyncio.gather(call(), call())

    return lambda count: asyncio.run(many(count))


async def later(**args: Any) -> str:
    """A tool whose twins have the time to come."""
    await asyncio.sleep(0)
    return args["path"]


def call_of_the_libraries() -> Callable[[int], None]:
    """The same tool behind a dict, pybreaker and tenacity; no keys, no events, no limits."""
    allowed = {("w1", "read_file"): True}
    breaker = pybreaker.CircuitBreaker(fail_max=5, reset_timeout=30)

    @tenacity.retry(stop=tenacity.stop_after_attempt(4), wait=tenacity.wait_random_exponential(multiplier=0.2, max=4))
    async def guarded() -> str:
        if not allowed["w1", "read_file"]:
            raise RuntimeError
        with breaker.calling():
            return await tool(**ARGS)

    return awaited(guarded)


def main() -> None:
    """Time each in turn, as often as asked; a first round that does not count warms up."""
    task = begin()
    contestants = {
        "guard checks": checks_of_the_guard(),
        "library checks": checks_of_the_libraries(),
        "guard call": call_of_the_guard(),
        "library call": call_of_the_libraries(),
        **{f"guard {kind} call": declared_call_of_the_guard(nature) for kind, nature in KINDS.items()},
        "guard joined call": joined_calls_of_the_guard(),
    }
    runs: dict[str, list[float]] = {name: [] for name in contestants}
    for turn in range(task.runs + 1):
        order = list(contestants.items())
        for name, run in order if turn % 2 else reversed(order):
            took = per_call_us(task.most, run)
            if turn:
                runs[name].append(took)
    finish({"runs": runs})


if __name__ == "__main__":
    main()
