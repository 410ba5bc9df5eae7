"""Wrong answers that a guard once gave, and calls that it made too often: each must never happen again."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from guard_kit import Gated, GraphInterrupt
from pydantic import SecretStr
from trustfold.guard import SyncToolGuard, ToolGuard
from trustfold.guard.testing import published
from trustfold.schemas.tool_envelopes import ResultStatus


@pytest.mark.parametrize("nature", [{"read_only": True}, {"dedupe": True}, {}])
async def test_parameters_named_like_volatile_fields_count(guard: ToolGuard, nature: dict[str, Any]) -> None:
    """Three requests for three ids are three requests, whatever their parameter is called."""
    guard.register("get_request", **nature)

    async def get_request(**args: Any) -> Any:
        await asyncio.sleep(0.01)
        return args

    for name in ("requestId", "retryCount", "clientTs", "traceparent"):
        results = await asyncio.gather(
            *(guard.call("get_request", get_request, {name: n}, session_id="s1") for n in (1, 2, 3))
        )
        assert [one.output for one in results] == [{name: 1}, {name: 2}, {name: 3}]


@pytest.mark.parametrize("nature", [{"read_only": True}, {"dedupe": True}, {}])
async def test_one_secret_does_not_open_for_another(guard: ToolGuard, nature: dict[str, Any]) -> None:
    """Objects that print alike are not alike: a login with a wrong password is not answered by the right one's."""
    guard.register("login", **nature)

    async def login(password: SecretStr) -> str:
        await asyncio.sleep(0.01)
        return "welcome" if password.get_secret_value() == "right" else "denied"

    right, wrong = await asyncio.gather(
        *(guard.call("login", login, {"password": SecretStr(word)}, session_id="s1") for word in ("right", "wrong"))
    )
    later = await guard.call("login", login, {"password": SecretStr("wrong")}, session_id="s1")
    assert [right.output, wrong.output, later.output] == ["welcome", "denied", "denied"]


async def test_a_result_that_is_no_json_is_charged_once(guard: ToolGuard) -> None:
    """Three calls under one key: one charge, one receipt, whatever the receipt is made of."""
    charged = 0

    async def charge(**_: Any) -> Any:
        nonlocal charged
        charged += 1
        return {"receipt": 2**70, ("a", 1): {1, 2}}

    results = [await guard.call("pay", charge, {"n": 1}, session_id="s1", idempotency_key="k") for _ in range(3)]
    assert charged == 1
    assert [one.output for one in results] == [{"receipt": 2**70, ("a", 1): {1, 2}}] * 3


async def test_a_keyed_call_that_failed_after_charging_is_made_once(guard: ToolGuard) -> None:
    """A key alone is no promise that the tool may be called again: the tool never sees it."""
    charged = 0

    async def charge(**_: Any) -> None:
        nonlocal charged
        charged += 1
        raise ConnectionResetError("the answer got lost")

    result = await guard.call("pay", charge, {"n": 1}, session_id="s1", idempotency_key="k")
    assert (charged, result.status) == (1, ResultStatus.RETRIABLE_ERROR)


@pytest.mark.parametrize("where", ["parameter", "argument", "header"])
async def test_a_tool_that_receives_the_key_may_be_called_again(guard: ToolGuard, where: str) -> None:
    """With the key in its hands the tool can tell a repetition from a second order."""
    seen: list[Any] = []

    async def pay(amount: int, idempotency_key: str = "", headers: dict[str, str] | None = None) -> str:
        seen.append(idempotency_key or (headers or {}).get("Idempotency-Key"))
        if len(seen) < 3:
            raise ConnectionResetError
        return f"paid {amount}"

    async def by_arguments(**args: Any) -> str:
        return await pay(**args)

    args: dict[str, Any] = {"amount": 7}
    if where == "argument":
        args["idempotency_key"] = "k"
    elif where == "header":
        args["headers"] = {"Idempotency-Key": "k"}
    function = pay if where == "parameter" else by_arguments
    result = await guard.call("pay", function, args, session_id="s1", idempotency_key="k")
    assert (result.output, seen) == ("paid 7", ["k"] * 3)


async def test_a_stop_iteration_is_an_ordinary_failure(guard: ToolGuard) -> None:
    """No loop can carry it in a future; the caller gets it all the same, and does not wait for ever."""

    def exhausted() -> None:
        next(iter(()))

    result = await asyncio.wait_for(guard.call("x", exhausted, session_id="s1"), 60)
    assert isinstance(result.exception, StopIteration)
    (finish,) = published(guard, "tool_call.finished")
    assert (finish["status"], finish["error"]["type"]) == ("error", "StopIteration")
    with SyncToolGuard.in_memory() as other:
        assert isinstance(other.call("x", exhausted).exception, StopIteration)
        assert isinstance(other.call("x", exhausted, timeout_ms=5000).exception, StopIteration)


async def test_a_function_that_cannot_be_stopped_is_not_started_beside_itself(guard: ToolGuard) -> None:
    """A thread goes on after its time is up; no retry and no twin runs the same call next to it."""
    guard.register("slow", read_only=True, idempotent=True, timeout_ms=20)
    running = most = runs = 0
    may_go = threading.Event()

    def slow() -> str:
        nonlocal running, most, runs
        runs, running = runs + 1, running + 1
        most = max(most, running)
        may_go.wait(60)
        running -= 1
        return "late"

    first = await guard.call("slow", slow, session_id="s1")
    twin = await guard.call("slow", slow, session_id="s1")
    assert [first.status, twin.status] == [ResultStatus.TIMEOUT] * 2
    assert (runs, most) == (1, 1)
    may_go.set()


async def test_the_late_end_of_a_keyed_call_is_its_end(guard: ToolGuard) -> None:
    """What a timed-out thread achieves after all answers the next call with its key."""
    pay = Gated("receipt", threading.Event)
    first = await guard.call("pay", pay.block, session_id="s1", idempotency_key="k", timeout_ms=20)
    assert first.status is ResultStatus.TIMEOUT
    again = asyncio.create_task(guard.call("pay", pay.block, session_id="s1", idempotency_key="k"))
    await asyncio.sleep(0.01)
    pay.may_go.set()
    assert ((await again).output, pay.runs) == ("receipt", 1)


async def test_a_late_interrupt_leaves_the_key_free(guard: ToolGuard) -> None:
    """Control flow is no end of the call, nor is it in a thread that was given up: the next call may be made."""
    asks = Gated(GraphInterrupt(), threading.Event)
    first = await guard.call("ask", asks.block, session_id="s1", idempotency_key="k", timeout_ms=20)
    assert first.status is ResultStatus.TIMEOUT
    again = asyncio.create_task(guard.call("ask", lambda: "approved", session_id="s1", idempotency_key="k"))
    asks.may_go.set()
    assert (await again).output == "approved"


async def test_a_cancelled_wait_does_not_run_a_thread_twice(guard: ToolGuard) -> None:
    """The caller gives up, its function goes on in its thread: those who wait get that one's end."""
    pay = Gated("receipt", threading.Event)
    first = asyncio.create_task(guard.call("pay", pay.block, session_id="s1", idempotency_key="k"))
    await asyncio.to_thread(pay.entered.wait, 60)
    other = asyncio.create_task(guard.call("pay", pay.block, session_id="s1", idempotency_key="k"))
    await asyncio.sleep(0.01)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    pay.may_go.set()
    assert ((await other).output, pay.runs) == ("receipt", 1)


async def test_a_cancellation_after_the_tool_has_run_does_not_free_its_key(guard: ToolGuard) -> None:
    """The charge is made; whoever is cancelled while the guard still tidies up has not undone it."""
    charged, tidying = 0, asyncio.Event()

    async def charge() -> str:
        nonlocal charged
        charged += 1
        return "receipt"

    @guard.hooks.after_tool_call
    async def slow_hook(_: Any) -> None:
        if not tidying.is_set():
            tidying.set()
            await asyncio.sleep(600)

    task = asyncio.create_task(guard.call("pay", charge, session_id="s1", idempotency_key="k"))
    await tidying.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    again = await guard.call("pay", charge, session_id="s1", idempotency_key="k")
    assert (again.output, charged) == ("receipt", 1)
    assert published(guard, "tool_call.finished")[0]["status"] == "success"


async def test_undeclared_tools_are_never_joined(guard: ToolGuard) -> None:
    """Nothing is known about them: each call is a call of its own, at the same time as well."""
    runs = 0

    async def draw(**_: Any) -> int:
        nonlocal runs
        runs += 1
        await asyncio.sleep(0.01)
        return runs

    guard.register("write", read_only=False)
    for name in ("draw", "write"):
        runs = 0
        await asyncio.gather(*(guard.call(name, draw, {}, session_id="s1") for _ in range(5)))
        assert runs == 5
