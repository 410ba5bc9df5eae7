"""Money: a change that was cut off is not made again until somebody knows what became of it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from guard_kit import Gated, GraphInterrupt, HttpError, SlowStore, Stub, code_of
from local_redis import LocalRedis
from trustfold.guard import (
    ChangeSettlement,
    DedupePolicy,
    RedisDedupeStore,
    SqliteDedupeStore,
    SyncToolGuard,
    ToolGuard,
)  # fmt: skip
from trustfold.guard.idempotency.memory import InMemoryDedupeStore
from trustfold.guard.idempotency.record import KEEP_UNKNOWN_MS
from trustfold.guard.testing import MovableClock, guard_for_tests

KEY = {"session_id": "s", "idempotency_key": "k"}
UNKNOWN = "outcome_unknown"


class Hang:
    """What a tool does whose answer does not come."""


class Charging(Stub):
    """A tool that follows a script, and hangs where that says so."""

    async def run(self, **args: Any) -> Any:
        """One charge."""
        step = await super().run(**args)
        return await asyncio.Event().wait() if step is Hang else step


@pytest.mark.parametrize(
    ("end", "second"),
    [
        # The answer was lost, or somebody between the tool and its service gave up.
        (ConnectionResetError(), UNKNOWN), (BrokenPipeError(), UNKNOWN), (TimeoutError(), UNKNOWN), (Hang, UNKNOWN),
        (HttpError(500), UNKNOWN), (HttpError(502), UNKNOWN), (HttpError(504), UNKNOWN),
        ({"error": "upstream timed out", "status_code": 504}, UNKNOWN),
        # Nothing was sent, or the service refused to work.
        (ConnectionRefusedError(), "ok"), (socket.gaierror(), "ok"), (HttpError(503), "ok"), (HttpError(429), "ok"),
        (GraphInterrupt(), "ok"),
        # It said no.
        (ValueError("no such card"), "ValueError"), (HttpError(402), "402"),
    ],
    ids=lambda value: repr(value)[:40],
)  # fmt: skip
async def test_what_leaves_an_outcome_unknown(guard: ToolGuard, end: Any, second: str) -> None:
    """A repetition is refused, made, or answered by the first call's final error."""
    charge = Charging(end, "receipt")
    with contextlib.suppress(GraphInterrupt):
        first = await guard.call("charge", charge.run, {"n": 1}, timeout_ms=40 if end is Hang else None, **KEY)
        assert first.metadata.get("outcome") == ("unknown" if second == UNKNOWN else None)
    again = await guard.call("charge", charge.run, {"n": 1}, **KEY)
    assert (code_of(again) or "ok") == second
    assert charge.count == (2 if second == "ok" else 1)
    if second == UNKNOWN:
        assert again.refused
        assert not again.error.retriable


async def test_a_refusal_and_an_answer_are_no_unknown_outcomes(guard: ToolGuard) -> None:
    """A call whose deadline is spent was not made, so the next one is; a declared answer is final."""
    guard.register("charge", answers=(500,))
    charge = Charging(HttpError(500), "receipt")
    assert code_of(await guard.call("charge", charge.run, deadline_ms=-1, **KEY)) == "deadline_exceeded"
    for _ in range(2):
        assert code_of(await guard.call("charge", charge.run, **KEY)) == "500"
    assert charge.count == 1


@pytest.mark.parametrize("nature", [{"read_only": True}, {"idempotent": True}])
async def test_what_may_be_repeated_is_never_unknown(guard: ToolGuard, nature: dict[str, bool]) -> None:
    """The declaration says that a second run does no harm; a tool that is given the key can tell by itself."""
    charge = Charging(ConnectionResetError(), "receipt")
    guard.register("charge", **nature)
    assert not (await guard.call("charge", charge.run, max_attempts=1, **KEY)).ok
    assert (await guard.call("charge", charge.run, **KEY)).ok

    async def takes_the_key(idempotency_key: str) -> Any:
        return await other.run(key=idempotency_key)

    other = Charging(ConnectionResetError(), "receipt")
    assert not (await guard.call("pay", takes_the_key, max_attempts=1, **KEY)).ok
    assert (await guard.call("pay", takes_the_key, **KEY)).ok


async def test_a_call_that_is_cancelled_in_its_tool_is_unknown(guard: ToolGuard) -> None:
    """Those who wait learn it, and nobody takes over; one that is cancelled before its tool leaves the key free."""
    charge, in_hook = Gated("receipt"), asyncio.Event()

    @guard.hooks.before_tool_call
    async def hangs_once(_: Any) -> None:
        if not in_hook.is_set():
            in_hook.set()
            await asyncio.Event().wait()

    early = asyncio.create_task(guard.call("charge", charge.run, **KEY))
    await in_hook.wait()
    early.cancel()
    await asyncio.wait({early})
    first, waits = (asyncio.create_task(guard.call("charge", charge.run, **KEY)) for _ in range(2))
    await charge.entered.wait()
    await asyncio.sleep(0.01)
    first.cancel()
    await asyncio.wait({first})
    assert code_of(await waits) == UNKNOWN
    assert code_of(await guard.call("charge", charge.run, **KEY)) == UNKNOWN
    assert charge.runs == 1


@pytest.mark.parametrize(
    ("outcome", "output", "ends"),
    [("done", {"id": 7}, [(True, {"id": 7}, 1)]), ("failed", None, [(False, "receipt", 2)])],
)
async def test_a_person_settles_it(guard: ToolGuard, outcome: Any, output: Any, ends: list[Any]) -> None:
    """`done` answers repetitions, `failed` lets the next one run; there is nothing to settle before and after."""
    charge = Charging(ConnectionResetError(), "receipt")
    assert not await guard.settle("charge", outcome, output, **KEY)
    await guard.call("charge", charge.run, **KEY)
    assert not await guard.settle("charge", outcome, output, session_id="another", idempotency_key="k")
    with pytest.raises(ValueError, match="'done' or 'failed'"):
        await guard.settle("charge", "perhaps", **KEY)  # type: ignore[arg-type]
    assert await guard.settle("charge", outcome, output, **KEY)
    again = await guard.call("charge", charge.run, **KEY)
    assert [(again.from_cache, again.output, charge.count)] == ends
    assert not await guard.settle("charge", outcome, output, **KEY)


def test_a_computed_key_is_settled_by_its_arguments() -> None:
    """The same for a guard that blocks."""
    runs = []

    def pay(amount: int) -> None:
        runs.append(amount)
        raise ConnectionResetError

    with SyncToolGuard.in_memory() as guard:
        guard.register("pay", pay, dedupe=True)
        guard.call("pay", args={"amount": 5})
        assert code_of(guard.call("pay", args={"amount": 5})) == UNKNOWN
        assert guard.settle("pay", "done", "paid", args={"amount": 5})
        assert guard.call("pay", args={"amount": 5}).output == "paid"
    assert runs == [5]


ANSWERS: dict[str, tuple[Callable[..., Any], str, int]] = {
    "it was made": (lambda *_: ChangeSettlement("done", "found"), "found", 1),
    "it was not": (lambda *_: ChangeSettlement("failed"), "receipt", 2),
    "not known yet": (lambda *_: None, UNKNOWN, 1),
    "no answer": (Stub(OSError()).run, UNKNOWN, 1),
    "nonsense": (lambda *_: True, UNKNOWN, 1),
}


@pytest.mark.parametrize("kind", [*ANSWERS, "it was made, asynchronously"])
async def test_a_service_is_asked_what_became_of_it(guard: ToolGuard, kind: str) -> None:
    """By key and arguments, when the call is repeated."""
    asked: list[Any] = []
    answers, ends, runs = ANSWERS[kind.partition(",")[0]]

    def reconcile(key: str | None, args: Any) -> Any:
        asked.append((key, dict(args)))
        return answers(key, args)

    async def reconcile_later(key: str | None, args: Any) -> Any:
        await asyncio.sleep(0)
        return reconcile(key, args)

    guard.register("charge", reconcile=reconcile_later if "," in kind else reconcile)
    charge = Charging(ConnectionResetError(), "receipt")
    await guard.call("charge", charge.run, {"n": 1}, **KEY)
    assert asked == []
    again = await guard.call("charge", charge.run, {"n": 1}, **KEY)
    assert (again.output or code_of(again), charge.count) == (ends, runs)
    assert asked == [("k", {"n": 1})]


class WallClock(MovableClock):
    """A clock whose wall is moved by itself, as an operator or a time server moves it."""

    moved_ms = 0

    def now_ms(self) -> int:
        """What the wall shows."""
        return super().now_ms() + self.moved_ms


@pytest.mark.parametrize("days", [30, -30])
async def test_a_clock_that_is_set_forgets_no_key(days: int) -> None:
    """Neither a result nor an unknown outcome."""
    clock = WallClock()
    guard = guard_for_tests(clock=clock)
    charge = Charging("receipt", ConnectionResetError())
    for key in ("a", "b"):
        await guard.call("charge", charge.run, session_id="s", idempotency_key=key)
    clock.moved_ms = days * 86_400_000
    assert (await guard.call("charge", charge.run, session_id="s", idempotency_key="a")).from_cache
    assert code_of(await guard.call("charge", charge.run, session_id="s", idempotency_key="b")) == UNKNOWN
    assert charge.count == 2
    clock.move(ms=KEEP_UNKNOWN_MS)
    assert not (await guard.call("charge", charge.run, session_id="s", idempotency_key="b")).refused


async def test_a_remembered_call_needs_no_session(guard: ToolGuard) -> None:
    """Declared `dedupe`, it is one call outside of a session, too; a read is then a read of its own."""
    guard.register("charge", dedupe=True)
    charge = Charging("receipt")
    for amount in (1, 1, 2):
        assert (await guard.call("charge", charge.run, {"amount": amount})).ok
    assert charge.count == 2


@pytest.mark.parametrize(
    ("one", "other"), [(1, 1.0), (0.0, -0.0), (10**15, 1e15), ({"a": 1, "b": 2}, {"b": 2, "a": 1}), ([1], [1.0])]
)
@pytest.mark.parametrize("exact", [True, False])
async def test_exact_types_tell_equal_arguments_apart(guard: ToolGuard, one: Any, other: Any, exact: bool) -> None:
    """Arguments by name have no order in either case."""
    guard.register("fmt", dedupe=True, exact_types=exact)
    stub = Stub("first", "second")
    for args in ({"x": one, "y": 0}, {"y": 0, "x": one}, {"x": other, "y": 0}):
        await guard.call("fmt", stub.run, args, session_id="s")
    assert stub.count == (2 if exact else 1)


# --- shared stores -------------------------------------------------------------------------------------------------


async def twice(one: ToolGuard, other: ToolGuard, charge: Charging, **options: Any) -> str:
    """The same call in two processes, one after the other: what the second one gets."""
    await one.call("charge", charge.run, **KEY, **options)
    result = await other.call("charge", charge.run, **KEY, **options)
    return code_of(result) or str(result.output)


@pytest.mark.parametrize("kind", ["redis", "sqlite"])
@pytest.mark.parametrize("end", ["receipt", Hang])
async def test_another_process_learns_what_became_of_a_change(
    redis_url: str, tmp_path: Path, kind: str, end: Any
) -> None:
    """Its result, or that it is unknown; settled by either, it is settled for both."""
    prefix = f"trustfold-test:{uuid4()}:"

    def guard() -> ToolGuard:
        shared = RedisDedupeStore.from_url(redis_url, prefix) if kind == "redis" else SqliteDedupeStore(tmp_path / "k")
        return guard_for_tests(store=shared)

    async with guard() as one, guard() as other:
        charge = Charging(end, "second")
        got = await twice(one, other, charge, timeout_ms=40 if end is Hang else None)
        assert got == (UNKNOWN if end is Hang else "receipt")
        if end is Hang:
            assert await other.settle("charge", "done", "found", **KEY)
            assert (await one.call("charge", charge.run, **KEY)).output == "found"
            assert not await one.settle("charge", "failed", **KEY)
        assert charge.count == 1
    async with guard() as restarted:
        assert (await restarted.call("charge", charge.run, **KEY)).from_cache


async def refuse(*_: Any) -> None:
    """What a replica answers that only reads."""
    raise OSError("You can't write against a read only replica.")


@pytest.mark.parametrize(
    ("policy", "delay_s", "ends"),
    [
        ("wait", 0.2, ("receipt", 1)), ("refuse", 0.2, ("receipt", 1)), ("local", 0.2, ("receipt", 2)),
        ("wait", None, ("store_unavailable", 0)), ("refuse", None, ("store_unavailable", 0)),
        ("local", None, ("receipt", 2)),
    ],
)  # fmt: skip
async def test_a_change_waits_for_a_store_that_is_far_or_reads_only(policy: str, delay_s: Any, ends: Any) -> None:
    """Two processes charge once; without a claim neither does, unless that is what was asked for."""
    store = SlowStore(lambda _: delay_s or 0.0)
    if delay_s is None:
        store.claim = refuse  # type: ignore[attr-defined]
    one, other = (
        guard_for_tests(store=store, dedupe=DedupePolicy(on_store_down=policy))
        for _ in range(2)  # type: ignore[arg-type]
    )
    charge = Charging("receipt")
    assert (await twice(one, other, charge, deadline_ms=2_000), charge.count) == ends


async def test_reads_do_not_wait_for_a_store_that_changes_wait_for() -> None:
    """One store, two tools: each by its own promise."""
    store = SlowStore(lambda _: 3.0)
    guard = guard_for_tests(store=store)  # type: ignore[arg-type]
    guard.register("read", read_only=True)
    guard.register("charge", on_store_down="refuse")
    assert (await guard.call("read", Stub().run, {}, session_id="s")).ok
    assert code_of(await guard.call("charge", Stub().run, **KEY)) == "store_unavailable"


@pytest.mark.parametrize("kind", ["redis", "sqlite"])
async def test_a_store_that_was_emptied_lets_no_change_run_again(redis: LocalRedis, tmp_path: Path, kind: str) -> None:
    """Whoever knew it notices; an operator who knows better says so."""
    file = tmp_path / "keys.sqlite"
    stores = [RedisDedupeStore.from_url(redis.url) if kind == "redis" else SqliteDedupeStore(file) for _ in range(2)]
    one, other = (guard_for_tests(store=store) for store in stores)
    charge = Charging("receipt")
    await one.call("charge", charge.run, **KEY)
    await other.call("charge", charge.run, session_id="s", idempotency_key="another")
    if kind == "redis":
        await stores[0]._client.flushall()  # type: ignore[union-attr]
    else:
        file.rename(tmp_path / "moved away")
    assert (await one.call("charge", charge.run, **KEY)).output == "receipt"
    refused = await other.call("charge", charge.run, **KEY)
    assert (code_of(refused), charge.count) == ("store_unavailable", 2)
    stores[1].accept_loss()
    assert (await other.call("charge", charge.run, session_id="s", idempotency_key="new")).ok
    for guard in (one, other):
        await guard.close()


async def test_an_error_of_the_store_removes_no_record(redis: LocalRedis) -> None:
    """A Redis without memory refuses a claim; what it knows of the key stays."""
    store = RedisDedupeStore.from_url(redis.url)
    one, other = guard_for_tests(store=store), guard_for_tests(store=RedisDedupeStore.from_url(redis.url))
    charge = Charging("receipt")
    await one.call("charge", charge.run, **KEY)
    await store._client.config_set("maxmemory", "1")
    refused = await other.call("charge", charge.run, deadline_ms=300, **KEY)
    await store._client.config_set("maxmemory", "0")
    assert code_of(refused) == "store_unavailable"
    assert (await other.call("charge", charge.run, **KEY)).output == "receipt"
    assert charge.count == 1
    for guard in (one, other):
        await guard.close()


def test_a_forked_child_does_not_repeat_what_its_parent_runs() -> None:
    """In memory it cannot see the end: the outcome is unknown to it."""
    store = InMemoryDedupeStore()
    guard = guard_for_tests(store=store)
    entered, may_go = threading.Event(), threading.Event()

    def charge() -> str:
        entered.set()
        may_go.wait(60)
        return "receipt"

    thread = threading.Thread(target=lambda: asyncio.run(guard.call("charge", charge, **KEY)))
    thread.start()
    entered.wait(60)
    guard.after_fork()
    child: Callable[[], Awaitable[Any]] = lambda: guard.call("charge", lambda: os.getpid(), **KEY)  # noqa: E731, PLW0108
    assert code_of(asyncio.run(child())) == UNKNOWN  # type: ignore[arg-type]
    may_go.set()
    thread.join()
