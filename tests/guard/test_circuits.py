"""Circuits as the guard keeps them: probes, tiers, services, and life without a broker."""

from __future__ import annotations

import asyncio
from itertools import cycle
from typing import Any

from fixed_rules import TO_OPEN
from guard_kit import fails, works
from trustfold.guard import ToolGuard
from trustfold.guard.testing import MovableClock, guard_for_tests, set_state
from trustfold.schemas.commands import TrustReset
from trustfold.schemas.tool_envelopes import ResultStatus


async def open_circuit(guard: ToolGuard, tool: str = "a") -> None:
    """Five failures in a row."""
    for n in range(TO_OPEN):
        await guard.call(tool, fails, {}, session_id=f"f{n}")
    assert guard.check(tool).code == "circuit_open"


async def test_one_probe_while_others_fail_fast(guard: ToolGuard, clock: MovableClock) -> None:
    """Of fifty callers of a half-open circuit one gets through."""
    await open_circuit(guard)
    clock.move(31)
    may_go = asyncio.Event()

    async def slow(**_: Any) -> str:
        await may_go.wait()
        return "ok"

    tasks = [asyncio.create_task(guard.call("a", slow, {"n": n}, session_id=f"s{n}")) for n in range(50)]
    async with asyncio.timeout(60):
        while sum(task.done() for task in tasks) < 49:  # noqa: ASYNC110 - calls have no event for it
            await asyncio.sleep(0.01)
    may_go.set()
    results = await asyncio.gather(*tasks)
    assert [result.status for result in results].count(ResultStatus.CIRCUIT_OPEN) == 49
    assert sum(result.ok for result in results) == 1


async def test_a_probe_that_is_cancelled_frees_its_slot(guard: ToolGuard, clock: MovableClock) -> None:
    """It is neither good nor bad, and the next call may probe."""
    await open_circuit(guard)
    clock.move(31)
    entered = asyncio.Event()

    async def hangs(**_: Any) -> None:
        entered.set()
        await asyncio.sleep(600)

    task = asyncio.create_task(guard.call("a", hangs, session_id="s1"))
    await entered.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert (await guard.call("a", works, session_id="s2")).ok


async def test_a_recursive_call_has_a_circuit_per_model_tier(guard: ToolGuard) -> None:
    """Three failures of calls by a small model stop recursive calls of that tier, and no others."""
    for n in range(3):
        await guard.call(f"ask{n}", fails, {}, session_id="s1", recursion_depth=1, model_tier="small")
    stopped = await guard.call("other", works, {}, session_id="s1", recursion_depth=1, model_tier="small")
    assert stopped.status is ResultStatus.CIRCUIT_OPEN
    assert (await guard.call("other", works, {}, session_id="s1", recursion_depth=1, model_tier="large")).ok
    assert (await guard.call("other", works, {}, session_id="s1")).ok


async def test_a_service_has_a_circuit_of_its_own(guard: ToolGuard) -> None:
    """Five failures over tools of one MCP server stop all of its tools."""
    for n in range(TO_OPEN):
        await guard.call(f"mcp__files__tool{n}", fails, {}, session_id=f"s{n}")
    assert guard.check("mcp__files__another").code == "circuit_open"
    assert guard.check("mcp__mail__send").code == "allowed"


async def test_private_arguments_still_name_the_domain(guard: ToolGuard) -> None:
    """Only the derived key leaves the process, and the domain's circuit opens by it."""
    args = {"url": "https://api.example.com/v1/users?id=7"}
    tools = ("http_request", "fetch", "curl", "webfetch", "http_get")
    for number, tool in zip(range(TO_OPEN), cycle(tools), strict=False):
        await guard.call(tool, fails, args, session_id=f"s-{number}")
    assert guard.check("request", args).code == "circuit_open"
    assert guard.check("request", {"url": "https://other.example.com/v1"}).code == "allowed"


class Deaf:
    """A backend whose broker is gone."""

    connected = False

    def __init__(self, guard: ToolGuard) -> None:
        self.view, self.decisions, self.events = guard.view, guard.backend.decisions, 0

    def publish(self, record: object) -> None:
        """Nobody hears it."""
        del record
        self.events += 1

    async def changed(self, timeout_ms: float) -> None:
        """Nothing changes."""
        del timeout_ms


async def test_without_a_broker_the_guard_probes_by_itself(clock: MovableClock) -> None:
    """One call at a time, with a pause after each failure: no outage of ours keeps a recovered tool closed."""
    inner = guard_for_tests(clock=clock)
    set_state(inner, "breaker", "tool:a", state="open", open_until=clock.after(30))
    guard = ToolGuard(Deaf(inner), inner.settings, clock=clock)  # type: ignore[arg-type]
    assert (await guard.call("a", works, session_id="s1")).status is ResultStatus.CIRCUIT_OPEN
    clock.move(31)
    both = await asyncio.gather(*(guard.call("a", _slow, {"n": n}, session_id="s1") for n in range(2)))
    assert sorted(one.ok for one in both) == [False, True]
    assert (await guard.call("a", fails, session_id="s1")).attempts == 1
    assert (await guard.call("a", works, session_id="s1")).status is ResultStatus.CIRCUIT_OPEN
    clock.move(31)
    assert (await guard.call("a", works, session_id="s1")).ok
    assert (await guard.call("a", works, {"n": 1}, session_id="s1")).ok


async def _slow(**_: Any) -> str:
    await asyncio.sleep(0.01)
    return "ok"


async def test_an_unanswered_request_ends_in_time(clock: MovableClock) -> None:
    """With a backend that is there and a worker that is not, the asking call is refused when its patience ends."""
    inner = guard_for_tests(clock=clock, probe_wait_ms=50)
    set_state(inner, "breaker", "tool:a", state="half_open")
    silent = Deaf(inner)
    silent.connected = True  # type: ignore[misc]

    async def wait(timeout_ms: float) -> None:
        clock.move(ms=timeout_ms)

    silent.changed = wait  # type: ignore[method-assign]
    guard = ToolGuard(silent, inner.settings, clock=clock)  # type: ignore[arg-type]
    result = await guard.call("a", works, session_id="s1")
    assert result.status is ResultStatus.CIRCUIT_OPEN
    assert "nobody answered" in result.error.message
    assert silent.events == 2  # the request, and that the call was not made, which frees a lease granted too late


async def test_an_operators_word_reaches_the_folds(guard: ToolGuard) -> None:
    """A guard with an operator's rights may give orders."""
    await open_circuit(guard)
    assert guard.check("a").code == "circuit_open"
    guard.order(TrustReset, key="a")
    assert guard.trust_of("a") is None


async def test_a_refused_call_has_a_fallback(guard: ToolGuard) -> None:
    """Why it was not made and what to do in its place; a call that was made has none."""
    assert (await guard.call("a", works, session_id="s1")).fallback() is None
    await open_circuit(guard)
    fallback = (await guard.call("a", works, session_id="s1")).fallback("my query")
    assert "circuit" in fallback.reason
    assert (fallback.suggestion, fallback.original_query, fallback.is_fallback) == (
        "use another tool or try again later", "my query", True,
    )  # fmt: skip
