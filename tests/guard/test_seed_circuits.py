"""The rows of the acceptance matrix (docs/seeds.md) that are about circuits: TR-8 to TR-11."""

import asyncio
import time
from typing import Any

import pytest
from fixed_rules import TO_OPEN, Rules
from guard_kit import Gated, HttpError, Stub, fail_calls
from trustfold.guard import CallNotPermitted, ToolGuard
from trustfold.guard.testing import MovableClock, decided, guard_for_tests
from trustfold.schemas.tool_envelopes import ResultStatus
from trustfold.schemas.vocabulary import BreakerState

pytestmark = pytest.mark.usefixtures("lookup_and_send")


async def test_TR_08_failures_in_a_row_open_the_circuit(guard: ToolGuard, clock: MovableClock) -> None:
    """Breaker: five failing mutations open it (three where it is declared); then refused within 10 ms, good or not."""
    await fail_calls(guard, 4, tool="mutate")
    assert guard.check("mutate").code != "circuit_open"
    await fail_calls(guard, 1, tool="mutate")
    assert guard.check("mutate").code == "circuit_open"
    stub = Stub("would work")
    began = time.thread_time()  # of the processor, for the machine may be busy
    result = await guard.call("mutate", stub.run, {}, session_id="s1")
    assert (time.thread_time() - began) * 1000 <= 10
    assert clock.waits == []
    assert (result.status, result.attempts, stub.count) == (ResultStatus.CIRCUIT_OPEN, 0, 0)
    assert result.error.breaker_state is BreakerState.OPEN
    with pytest.raises(CallNotPermitted, match="is open until"):
        result.unwrap()

    await fail_calls(guard, 3, tool="send")
    assert guard.check("send").code == "circuit_open"


async def test_TR_09_two_probes_close_the_circuit(guard: ToolGuard, clock: MovableClock) -> None:
    """Breaker: after the cooldown two successful probes, one after the other, close it; calls then run as before."""
    await fail_calls(guard, 3)
    clock.move(31)
    probe = Gated()
    running = asyncio.create_task(guard.call("send", probe.run, {"n": 1}, session_id="s1"))
    await probe.entered.wait()
    beside = await guard.call("send", Stub().run, {"n": 2}, session_id="s2")
    assert beside.status is ResultStatus.CIRCUIT_OPEN  # one probe at a time
    assert beside.error.breaker_state is BreakerState.HALF_OPEN
    probe.may_go.set()
    assert (await running).ok
    assert [one["to"] for one in decided(guard, "breaker.changed")] == ["open", "half_open"]

    assert (await guard.call("send", Stub().run, {"n": 3}, session_id="s2")).ok
    assert [one["to"] for one in decided(guard, "breaker.changed")] == ["open", "half_open", "closed"]
    together = await asyncio.gather(*(guard.call("send", Stub().run, {"n": 10 + n}, session_id="s1") for n in range(5)))
    assert all(one.ok for one in together)


async def test_TR_10_a_failed_probe_opens_it_again(guard: ToolGuard, clock: MovableClock) -> None:
    """Breaker: one failing probe opens it anew, from now, for longer; tools beside it are not touched."""
    await fail_calls(guard, 3)
    clock.move(31)
    probe = await guard.call("send", Stub(HttpError(500)).run, {}, session_id="s1")
    assert probe.attempts == 1
    assert guard.check("send").code == "circuit_open"
    clock.move(31)
    assert guard.check("send").code == "circuit_open"  # the period has doubled
    clock.move(30)
    assert guard.check("send").code != "circuit_open"  # half-open: it may be probed
    other = await guard.call("lookup", Stub("fine").run, {}, session_id="s1")
    assert other.output == "fine"


async def test_TR_11_an_open_circuit_stops_retries(guard: ToolGuard, clock: MovableClock) -> None:
    """Circuit and retries: retries while it is closed, none once it is open, one attempt in a probe: no storm."""
    guard.register("get", read_only=False, idempotent=True)
    stub = Stub(HttpError(503))
    results = [await guard.call("get", stub.run, {"n": n}, session_id="s1") for n in range(50)]
    assert [one.attempts for one in results] == [4, 4, 4] + [0] * 47
    assert stub.count == 12
    clock.move(31)
    probe = await guard.call("get", stub.run, {"n": 99}, session_id="s1")
    assert (probe.attempts, stub.count) == (1, 13)

    # A circuit that opens while a call waits for its retry ends that call.
    opening = guard_for_tests(clock=clock, rules=Rules())
    opening.register("get", idempotent=True)

    async def opens(**_: Any) -> None:
        await fail_calls(opening, TO_OPEN, tool="get")
        raise HttpError(503)

    ended = await opening.call("get", opens, {"last": True}, session_id="s2")
    assert (ended.status, ended.attempts) == (ResultStatus.RETRIABLE_ERROR, 1)
