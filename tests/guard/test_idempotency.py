"""Idempotent calls as callers see them: which calls are one, what is kept, who takes over."""

from __future__ import annotations

import asyncio
import gc
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from guard_kit import Gated, HttpError, code_of
from hypothesis import given
from hypothesis import strategies as st
from local_redis import PATIENT
from pydantic import SecretStr
from trustfold.guard import DedupePolicy, InMemoryDedupeStore, RedisDedupeStore, ToolGuard
from trustfold.guard.idempotency.copies import MAX_RESULT_BYTES
from trustfold.guard.idempotency.keys import computed_key, params_digest, receives_key
from trustfold.guard.idempotency.record import DedupeRecord
from trustfold.guard.privacy import PrivacyFilter
from trustfold.guard.request import GuardedCall
from trustfold.guard.testing import MovableClock, guard_for_tests
from trustfold.guard.tools import ToolRegistration
from trustfold.schemas.tool_envelopes import ResultStatus
from waiting import wait_until
from warm_process import WarmProcess


def key_of(
    args: dict[str, Any], tool: str = "send", session: str = "s1", volatile: tuple[str, ...] = (), **who: str
) -> str | None:
    """Computed key of a call."""
    call = GuardedCall(ToolRegistration(name=tool, volatile_params=frozenset(volatile)), args, session, "w1")
    call.namespace, call.actor_id = who.get("namespace", "tools"), who.get("actor", "u1")
    call.tenant_id = who.get("tenant")
    return computed_key(call, PrivacyFilter(), who.get("scope", "session"))


def circular() -> list[Any]:
    """A list that holds itself."""
    made: list[Any] = []
    made.append(made)
    return made


@pytest.mark.parametrize(
    "value",
    [
        object(), SecretStr("x"), b"x", float("nan"), float("inf"), {1: 2}, {1, 2}, circular(), "\ud800", UUID(int=1),
        ResultStatus.ERROR, [[{"deep": object()}]],
    ],
)  # fmt: skip
def test_what_has_no_canonical_form_has_no_key(value: Any) -> None:
    """How an object prints does not say what it is: a call with such a parameter is joined with none."""
    assert key_of({"x": value}) is None


def test_a_global_key_is_the_same_in_every_session() -> None:
    """But not for another actor or tenant."""
    assert key_of({"n": 1}, session="a", scope="global") == key_of({"n": 1}, session="b", scope="global")
    assert key_of({"n": 1}, actor="a", scope="global") != key_of({"n": 1}, actor="b", scope="global")
    assert key_of({"n": 1}, tenant="a", scope="global") != key_of({"n": 1}, tenant="b", scope="global")


def test_what_makes_two_calls_one() -> None:
    """Order of names and equal numbers do not matter; everything else does."""
    base = key_of({"to": "bob", "n": 1})
    assert key_of({"n": 1.0, "to": "bob"}) == base
    assert key_of({"n": 1, "to": "bob", "trace": 3}, volatile=("trace",)) == base
    for name in ("retryCount", "clientTs", "traceparent", "requestId"):  # only the registration says what is volatile
        assert key_of({"n": 1, "to": "bob", name: 1}) != key_of({"n": 1, "to": "bob", name: 2})
    assert key_of({"x": -0.0}) == key_of({"x": 0})
    for other in ({"to": "bob ", "n": 1}, {"to": "Bob", "n": 1}, {"to": "bob", "n": 2}, {"to": "bob", "n": "1"}):
        assert key_of(other) != base
    assert key_of({"to": "bob", "n": 1}, session="s2") != base
    assert key_of({"to": "bob", "n": 1}, actor="u2") != base
    assert key_of({"to": "bob", "n": 1}, tenant="t2") != base
    assert key_of({"x": (1, 2)}) not in {key_of({"x": [1, 2]}), None}
    assert key_of({"x": 2**53}) != key_of({"x": "int:9007199254740992"})
    assert key_of({"x": 2**70}) not in {key_of({"x": 2**70 + 1}), None}
    assert key_of({"nested": {"retryCount": 1}}) != key_of({"nested": {"retryCount": 2}})
    assert key_of({"a": True}) != key_of({"a": 1})
    assert key_of({"a": None}) != key_of({})


def test_no_name_can_pretend_to_be_two() -> None:
    """The parts are hashed as an array: a delimiter inside of one joins nothing."""
    assert key_of({}, tool="a::b", namespace="c") != key_of({}, tool="b", namespace="c::a")
    assert key_of({}, tool="a", session='b","c') != key_of({}, tool='a","b', session="c")


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=12,
)


@given(st.dictionaries(st.text(min_size=1, max_size=6), _JSON, max_size=5), st.randoms())
def test_a_key_does_not_depend_on_the_order_of_names(args: dict[str, Any], random: Any) -> None:
    """Any arguments, their names in any order."""
    shuffled = list(args.items())
    random.shuffle(shuffled)
    assert key_of(args) == key_of(dict(shuffled))
    call, other = (GuardedCall(ToolRegistration(name="t"), given, "s", "w") for given in (args, dict(shuffled)))
    assert params_digest(call, PrivacyFilter()) == params_digest(other, PrivacyFilter())


def test_a_keyed_digest_cannot_be_guessed() -> None:
    """With a secret of the deployment the same arguments have another digest."""
    assert PrivacyFilter(b"secret").args_digest({"pin": 1234}) != PrivacyFilter().args_digest({"pin": 1234})


class Counting:
    """A tool that counts its runs."""

    def __init__(self, *results: Any) -> None:
        self.runs = 0
        self.results = results or ("ok",)

    async def run(self, **_: Any) -> Any:
        """One run."""
        self.runs += 1
        await asyncio.sleep(0.01)
        result = self.results[min(self.runs, len(self.results)) - 1]
        if isinstance(result, Exception):
            raise result
        return result


async def test_reads_are_joined_only_while_they_run() -> None:
    """A read that is done is asked again, for things may have changed; `dedupe` remembers; undeclared does neither."""
    guard = guard_for_tests()
    guard.register("read", read_only=True)
    guard.register("write", read_only=False, dedupe=True)
    read, write, unknown = Counting(), Counting(), Counting()
    for _ in range(2):
        await guard.call("read", read.run, {"path": "a"}, session_id="s1")
        await guard.call("write", write.run, {"path": "a"}, session_id="s1")
        await guard.call("unknown", unknown.run, {"path": "a"}, session_id="s1")
    assert (read.runs, write.runs, unknown.runs) == (2, 1, 2)
    together = await asyncio.gather(*(guard.call("read", read.run, {"path": "b"}, session_id="s1") for _ in range(9)))
    assert read.runs == 3
    assert sum(one.from_cache for one in together) == 8


async def test_calls_outside_of_a_session_are_not_joined(guard: ToolGuard) -> None:
    """Without a session nothing tells one user's call from another's, unless the tool is declared as global."""
    guard.register("read", read_only=True)
    guard.register("rates", read_only=True, scope="global")
    tool, rates = Counting(), Counting()
    await asyncio.gather(*(guard.call("read", tool.run, {}) for _ in range(3)))
    await asyncio.gather(*(guard.call("rates", rates.run, {}, session_id=f"s{n}") for n in range(3)))
    assert (tool.runs, rates.runs) == (3, 1)


async def test_a_given_key_is_not_shared_between_actors_or_tenants(guard: ToolGuard) -> None:
    """One user's answer is never another one's, even where both chose the same key."""
    tool = Counting()
    for who in ({"actor_id": "a"}, {"actor_id": "b"}, {"actor_id": "a", "tenant_id": "t"}):
        await guard.call("send", tool.run, {}, session_id="s1", idempotency_key="k", **who)
    await guard.call("send", tool.run, {}, session_id="s1", idempotency_key="k", actor_id="a")
    assert tool.runs == 3


async def test_a_key_over_parameters_that_cannot_be_compared_refuses_a_second_call(guard: ToolGuard) -> None:
    """Neither a wrong answer nor a second run: the caller learns that nobody can tell whether it is the same call."""
    guard.register("send", volatile_params=("context",))
    tool = Counting()
    options = {"session_id": "s1", "idempotency_key": "k"}
    assert (await guard.call("pay", tool.run, {"card": SecretStr("1")}, **options)).ok
    again = await guard.call("pay", tool.run, {"card": SecretStr("1")}, **options)
    assert (code_of(again), tool.runs) == ("key_conflict", 1)
    assert "volatile_params" in again.error.message
    sent = [await guard.call("send", tool.run, {"n": 1, "context": object()}, **options) for _ in range(2)]
    assert ([one.from_cache for one in sent], tool.runs) == ([False, True], 2)


async def test_kept_results_are_bounded_in_bytes() -> None:
    """The oldest go first; one that is too large is not kept, and its twin is told so rather than made again."""
    store = InMemoryDedupeStore(max_bytes=1_000_000)
    guard = guard_for_tests(store=store)
    runs = 0

    async def page(n: int) -> str:
        nonlocal runs
        runs += 1
        return str(n % 10) * (300_000 if n < 50 else MAX_RESULT_BYTES + 1)

    async def get(n: int) -> Any:
        return await guard.call("page", page, {"n": n}, session_id="s1", idempotency_key=f"k{n}")

    for n in range(10):
        await get(n)
    assert store.kept_bytes <= 1_000_000
    assert store.evicted == 7
    assert ((await get(9)).from_cache, runs) == (True, 10)
    assert len((await get(50)).output) > MAX_RESULT_BYTES
    again = await get(50)
    assert (code_of(again), runs) == ("result_unavailable", 11)


async def test_a_twin_of_a_read_that_cannot_be_copied_reads_itself() -> None:
    """Two readers of one socket would disturb each other; asking again does no harm."""
    guard = guard_for_tests()
    guard.register("open", read_only=True)

    async def opens() -> Any:
        await asyncio.sleep(0.01)
        return threading.Lock()

    one, other = await asyncio.gather(*(guard.call("open", opens, session_id="s1") for _ in range(2)))
    assert one.ok
    assert other.ok
    assert one.output is not other.output


async def test_a_twin_raises_what_its_call_raised(guard: ToolGuard) -> None:
    """The same exception, by type and words, and no traceback that keeps the tool's memory."""
    tool = Counting(ValueError("bad id"))
    for _ in range(2):
        result = await guard.call("get", tool.run, {}, session_id="s1", idempotency_key="k")
        with pytest.raises(ValueError, match="bad id"):
            result.unwrap()
    assert tool.runs == 1


async def test_only_terminal_errors_are_kept(guard: ToolGuard, clock: MovableClock) -> None:
    """An error that may pass is tried again by the next caller; a final one is the answer for five minutes."""
    passing, final = Counting(HttpError(503), "ok"), Counting(ValueError("bad id"), "ok")
    options = {"session_id": "s1", "idempotency_key": "k", "max_attempts": 1}
    assert not (await guard.call("a", passing.run, {}, **options)).ok
    assert (await guard.call("a", passing.run, {}, **options)).ok
    first = await guard.call("b", final.run, {}, **options)
    second = await guard.call("b", final.run, {}, **options)
    assert (second.status, second.from_cache, final.runs) == (ResultStatus.ERROR, True, 1)
    assert second.error == first.error
    clock.move(301)
    assert (await guard.call("b", final.run, {}, **options)).ok


async def test_those_who_wait_share_a_failure(guard: ToolGuard) -> None:
    """A run that fails answers all who waited for it: they do not queue up to fail one after the other."""
    fails = Gated(ConnectionResetError())
    guard.register("x", dedupe=True)
    calls = [asyncio.create_task(guard.call("x", fails.run, {}, session_id="s1")) for _ in range(20)]
    await asyncio.sleep(0.01)
    fails.may_go.set()
    results = await asyncio.gather(*calls)
    assert fails.runs == 1
    assert {one.status for one in results} == {ResultStatus.RETRIABLE_ERROR}


async def test_a_cancelled_call_is_taken_over_by_one_who_waits(guard: ToolGuard) -> None:
    """The caller gives up; one of those who wait runs the call, the others share its end."""
    guard.register("x", idempotent=True)
    slow = Gated()
    first = asyncio.create_task(guard.call("x", slow.run, {}, session_id="s1", idempotency_key="k"))
    await slow.entered.wait()
    others = [
        asyncio.create_task(guard.call("x", slow.run, {}, session_id="s1", idempotency_key="k")) for _ in range(5)
    ]
    await asyncio.sleep(0.01)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    slow.may_go.set()
    results = await asyncio.gather(*others)
    assert slow.runs == 2
    assert {one.output for one in results} == {"ok"}


async def test_a_deadline_ends_the_wait(guard: ToolGuard, clock: MovableClock) -> None:
    """Who waits for a twin waits no longer than its own deadline, by the guard's clock."""
    slow = Gated()
    first = asyncio.create_task(guard.call("x", slow.run, {}, session_id="s1", idempotency_key="k"))
    waiting = asyncio.create_task(
        guard.call("x", slow.run, {}, session_id="s1", idempotency_key="k", deadline_ms=5_000)
    )
    await asyncio.sleep(0.01)
    clock.move(4.9)
    await asyncio.sleep(0.01)
    assert not waiting.done()
    clock.move(0.2)
    late = await asyncio.wait_for(waiting, 60)
    assert late.status is ResultStatus.TIMEOUT
    slow.may_go.set()
    assert (await first).ok


# --- on Redis ------------------------------------------------------------------------------------------------------


def prefix() -> str:
    """Keys of one test."""
    return f"trustfold-test:{uuid4()}:"


async def test_two_hundred_callers_run_a_call_once(patient_redis_url: str) -> None:
    """Four guards, two hundred callers, one key: one execution, and everybody has its result."""
    name, runs = prefix(), 0

    async def work(n: int) -> dict[str, int]:
        nonlocal runs
        runs += 1
        await asyncio.sleep(0.05)
        return {"n": n}

    guards = [guard_for_tests(store=RedisDedupeStore.from_url(patient_redis_url, name)) for _ in range(4)]
    try:
        results = await asyncio.gather(
            *(
                guards[n % 4].call("send", work, {"n": 7}, session_id="s1", idempotency_key="order-7")
                for n in range(200)
            )
        )
    finally:
        for guard in guards:
            await guard.close()
    assert runs == 1
    assert all(one.output == {"n": 7} for one in results)
    assert sum(one.from_cache for one in results) == 199


async def test_a_lost_store_does_not_stop_the_tools(redis_url: str) -> None:
    """Where Redis cannot be reached a call that may be repeated is made without it."""
    del redis_url
    guard = guard_for_tests(store=RedisDedupeStore.from_url("redis://127.0.0.1:1/0"))
    guard.register("send", idempotent=True)
    assert (await guard.call("send", Counting().run, {}, session_id="s1", idempotency_key="k")).ok
    await guard.close()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # connections of loops that are gone
def test_a_store_follows_loops_that_come_and_go(patient_redis_url: str) -> None:
    """Programs that run a loop for each call keep their keys."""
    guard = guard_for_tests(store=RedisDedupeStore.from_url(patient_redis_url, prefix()))
    tool = Counting()
    for _ in range(3):
        assert asyncio.run(guard.call("x", tool.run, {}, session_id="s1", idempotency_key="k")).output == "ok"
    assert tool.runs == 1
    asyncio.run(guard.close())
    del guard
    gc.collect()


async def test_secrets_do_not_reach_the_store(patient_redis_url: str) -> None:
    """A result that holds a secret is not kept: the call is not made twice, but its twin gets no copy."""
    name = prefix()
    store = RedisDedupeStore.from_url(patient_redis_url, name, **PATIENT)
    guard = guard_for_tests(store=store)
    login = Counting({"token": "hunter2hunter2"})
    options = {"session_id": "s1", "idempotency_key": "my-secret-key"}
    first = await guard.call("login", login.run, {"password": "correct horse"}, **options)
    second = await guard.call("login", login.run, {"password": "correct horse"}, **options)
    assert (first.output, login.runs) == ({"token": "hunter2hunter2"}, 1)
    assert code_of(second) == "result_unavailable"
    names = [key async for key in store._client.scan_iter(f"{name}*")]
    stored = "".join([f"{key!r} {await store._client.hgetall(key)!r}" for key in names])
    assert stored
    for secret in ("hunter2", "correct horse", "my-secret-key"):
        assert secret not in stored
    await guard.close()


HOLDER = """
import asyncio, sys
from trustfold.guard import DedupePolicy, RedisDedupeStore
from trustfold.guard.idempotency import fallback, store_circuit
from trustfold.guard.testing import guard_for_tests

fallback.BUDGET_MS = fallback.CLAIM_MS = 60_000.0
for module in (fallback, store_circuit):
    module.PATIENCE_MS = module.FIRST_PATIENCE_MS = 60_000.0

async def work():
    with open(sys.argv[3], "a") as runs:
        runs.write("run\\n")
    if sys.argv[4] == "hang":
        await asyncio.sleep(600)
    return "done"

async def main():
    guard = guard_for_tests(
        store=RedisDedupeStore.from_url(sys.argv[1], sys.argv[2]), dedupe=DedupePolicy(lease_ms=600)
    )
    guard.register("send", idempotent=True)
    result = await guard.call("send", work, {}, session_id="s1", idempotency_key="k")
    print(result.output, result.from_cache, flush=True)
    await guard.close()

asyncio.run(main())
"""


def test_a_killed_holder_is_replaced_once(redis_url: str, tmp_path: Path) -> None:
    """The process that runs a call is killed in the middle; of five that wait, exactly one runs it again."""
    name, runs = prefix(), tmp_path / "runs"

    def start(what: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", HOLDER, redis_url, name, str(runs), what]
        return WarmProcess(command, stdout=subprocess.PIPE, text=True)

    holder = start("hang")
    wait_until(runs.exists, timeout=120, what="the first run begins")
    waiting = [start("work") for _ in range(5)]
    with holder:
        holder.send_signal(signal.SIGKILL)
    said = [process.communicate(timeout=120)[0].strip() for process in waiting]
    assert runs.read_text().count("run") == 2
    assert sorted(said) == ["done False", *["done True"] * 4]


def test_policies_that_are_none_are_refused() -> None:
    """A policy says what is wrong with it."""
    with pytest.raises(Exception, match="conflict is 'maybe'"):
        DedupePolicy(conflict="maybe")


async def test_calls_that_need_each_others_end_do_not_wait_forever() -> None:
    """Each runs within its own key and asks for the other's: one of them is told so."""
    guard = guard_for_tests()
    codes: list[str] = []

    async def asks_for(other: str, tool: Any) -> str:
        await asyncio.sleep(0.01)  # both hold their keys by now
        result = await guard.call(other, tool, session_id="s", idempotency_key=other)
        codes.append(result.error.code if result.error is not None else "ok")
        return "done"

    async def first() -> str:
        return await asks_for("second", second)

    async def second() -> str:
        return await asks_for("first", first)

    async with asyncio.timeout(120):
        results = await asyncio.gather(
            guard.call("first", first, session_id="s", idempotency_key="first"),
            guard.call("second", second, session_id="s", idempotency_key="second"),
        )
    assert [result.output for result in results] == ["done", "done"]
    assert sorted(codes) == ["in_flight", "ok"]


@pytest.mark.parametrize(
    ("headers", "received"),
    [
        ({"Idempotency-Key": "k"}, True),
        ({"Idempotency-Key": "another"}, False),
        ({"Accept": "k"}, False),
        ({1: "k"}, False),
        ({"Idempotency-Key": ["k"]}, False),
        ({}, False),
    ],
)
def test_a_tool_receives_its_key_in_a_header_of_that_name(headers: dict[Any, Any], received: bool) -> None:
    """The very key of the call, under a name that tools read it by."""
    call = GuardedCall(ToolRegistration(name="post"), {"url": "https://example.com", "headers": headers}, "s1", "w1")
    call.given_key = "k"
    assert receives_key(call, lambda url, headers: None) is received


async def test_who_waited_is_answered_as_one_who_waited_whoever_made_the_call() -> None:
    """The call it waited for was cancelled, and a third one has made it meanwhile."""
    waits, goes_on = asyncio.Event(), asyncio.Event()

    class LateStore(InMemoryDedupeStore):
        async def wait(self, key: str, version: int, timeout_ms: float) -> DedupeRecord | None:
            del version, timeout_ms
            waits.set()
            await goes_on.wait()
            return await self.get(key)

    guard = guard_for_tests(store=LateStore())
    guard.register("send", idempotent=True)

    async def hangs() -> None:
        await asyncio.Event().wait()

    async def works() -> str:
        return "done"

    first, second = (
        asyncio.create_task(guard.call("send", tool, {}, session_id="s", idempotency_key="k"))
        for tool in (hangs, works)
    )
    await waits.wait()
    first.cancel()
    await asyncio.wait({first})
    third = await guard.call("send", works, {}, session_id="s", idempotency_key="k")
    goes_on.set()
    result = await second
    assert third.cache is None
    assert result.cache is not None
    assert (result.output, result.cache.matched_on) == ("done", "inflight")
