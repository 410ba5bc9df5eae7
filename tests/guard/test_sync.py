"""The face without an event loop."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from trustfold.guard import CallNotPermitted, GuardError, SyncToolGuard
from trustfold.guard.testing import published, set_state


@pytest.fixture
def guard() -> Iterator[SyncToolGuard]:
    """A guard of one test."""
    with SyncToolGuard.in_memory(workspace_id="w1") as made:
        yield made


def test_a_tool_runs_in_the_thread_that_calls(guard: SyncToolGuard) -> None:
    """With whatever that thread holds; unless its time is limited, for nobody can cut off the caller's own."""
    here = threading.get_ident()
    assert guard.call("x", threading.get_ident, session_id="s1").output == here
    assert guard.call("x", threading.get_ident, session_id="s1", timeout_ms=5000).output != here


def test_it_does_what_the_other_does(guard: SyncToolGuard) -> None:
    """Retries, keys, circuits, envelopes, sessions and reports."""
    guard.register("get", read_only=True)
    answers: Iterator[Any] = iter([ConnectionResetError(), "ok"])

    def get() -> Any:
        if isinstance(answer := next(answers), Exception):
            raise answer
        return answer

    result = guard.call("get", get, session_id="s1")
    assert (result.output, result.attempts) == ("ok", 2)
    first, second = (guard.call("w", lambda: [1], session_id="s1", idempotency_key="k") for _ in range(2))
    assert (first.from_cache, second.from_cache, second.output) == (False, True, [1])
    with guard.session("s2") as session:
        session.user_message("hello")
        assert session.call("get", lambda: 1).output == 1
        guard.call("get", lambda: 1)
        guard.report_failure("get", "broken")
    assert [event["type"] for event in published(guard.guard) if event["session_id"] == "s2"] == [
        "session.started", "user.message", "tool_call.started", "tool_call.finished", "tool_call.started",
        "tool_call.finished", "failure.reported", "session.ended",
    ]  # fmt: skip
    set_state(guard.guard, "breaker", "tool:get", state="forced_open")
    assert guard.check("get").code == "circuit_open"
    assert guard.call("get", get, session_id="s1").attempts == 0
    assert guard.flush()


def test_a_decorated_function_stays_one(guard: SyncToolGuard) -> None:
    """It returns and raises its own, in the caller's thread."""

    @guard.tool(read_only=False)
    def divide(one: int, other: int = 1) -> float:
        """Divides."""
        return one / other

    assert divide(6, other=3) == 2
    with pytest.raises(ZeroDivisionError):
        divide(1, 0)
    set_state(guard.guard, "trust", "divide", state="blocked")
    with pytest.raises(CallNotPermitted, match="manual reset"):
        divide(1)
    assert divide.__doc__ == "Divides."


def test_a_time_limit_holds(guard: SyncToolGuard) -> None:
    """The caller has its answer in time, though the tool goes on in its thread."""
    done = threading.Event()
    began = time.monotonic()
    result = guard.call("slow", lambda: done.wait(60), session_id="s1", timeout_ms=50)
    assert time.monotonic() - began < 30
    assert str(result.status) == "timeout"
    done.set()


def test_many_threads_share_a_guard(guard: SyncToolGuard) -> None:
    """Twenty threads, one key: one run."""
    runs, results = [], []

    def slow() -> str:
        runs.append(threading.get_ident())
        time.sleep(0.05)
        return "ok"

    def call() -> None:
        results.append(guard.call("x", slow, session_id="s1", idempotency_key="k"))

    threads = [threading.Thread(target=call) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(runs) == 1
    assert [one.output for one in results] == ["ok"] * 20


def test_an_interrupt_ends_the_call(guard: SyncToolGuard) -> None:
    """What is no failure of the tool goes through the guard, and the call is told as cancelled."""

    def interrupted() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        guard.call("x", interrupted, session_id="s1")
    assert guard.call("x", lambda: "fine", session_id="s1").ok


def test_a_tool_that_makes_its_own_call_again_is_told_that_it_runs(guard: SyncToolGuard) -> None:
    """In the thread that calls, as in a coroutine: it would wait for itself."""

    def again() -> str:
        inner = guard.call("again", again, session_id="s", idempotency_key="k")
        return inner.error.code if inner.error is not None else "ran"

    assert guard.call("again", again, session_id="s", idempotency_key="k").output == "in_flight"


def test_threads_that_call_while_the_guard_is_closed_get_an_end() -> None:
    """A result, or an error that says why there is none; nobody waits forever."""
    guard = SyncToolGuard.in_memory()
    begin, ends = threading.Barrier(9), []

    def attack() -> None:
        begin.wait()
        for _ in range(20):
            try:
                ends.append(guard.call("t", lambda: "ok", session_id="s").output)
            except GuardError as error:
                ends.append("closed" if "closed" in str(error) else str(error))

    threads = [threading.Thread(target=attack, daemon=True) for _ in range(8)]
    for thread in threads:
        thread.start()
    begin.wait()
    guard.close()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    assert len(ends) == 160
    assert set(ends) <= {"ok", "closed"}
