"""Calls in detail: what counts as a failure, what is tried again, how time limits and cancellation end them."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from guard_kit import code_of
from trustfold.errors import ConfigError
from trustfold.guard import EnvelopeRejected, RetryPolicy, ToolFailed, ToolGuard
from trustfold.guard.attempts import delay_ms
from trustfold.guard.errors import is_control_flow
from trustfold.guard.failure import of_exception, of_result
from trustfold.guard.metrics import SHADOW
from trustfold.guard.result import ToolResult
from trustfold.guard.testing import MovableClock, guard_for_tests, published, set_state
from trustfold.guard.tools import ToolRegistration
from trustfold.schemas.tool_envelopes import CallHints, ResultStatus, ToolCallEnvelope, ToolResultEnvelope
from trustfold.schemas.vocabulary import FailureSeverity


class Answer(Exception):
    """An HTTP answer."""

    def __init__(self, status_code: int, headers: dict[str, str] | None = None) -> None:
        super().__init__(f"HTTP {status_code}")
        self.response = SimpleNamespace(status_code=status_code, headers=headers or {})


@pytest.mark.parametrize(
    ("error", "severity", "retriable"),
    [
        (ConnectionResetError("reset"), FailureSeverity.TRANSIENT, True),
        (TimeoutError(), FailureSeverity.TIMEOUT, True),
        (OSError(110, "timed out"), FailureSeverity.TIMEOUT, True),
        (Answer(408), FailureSeverity.TIMEOUT, True),
        (Answer(425), FailureSeverity.TRANSIENT, True),
        (Answer(429), FailureSeverity.TRANSIENT, True),
        (Answer(500), FailureSeverity.SERVER_ERROR, True),
        (Answer(501), FailureSeverity.SERVER_ERROR, False),
        (Answer(503), FailureSeverity.SERVER_ERROR, True),
        (Answer(504), FailureSeverity.TIMEOUT, True),
        (Answer(400), FailureSeverity.INVALID_INPUT, False),
        (Answer(403), FailureSeverity.PERMISSION, False),
        (Answer(409), FailureSeverity.TRANSIENT, False),
        (FileNotFoundError(2, "gone"), FailureSeverity.NOT_FOUND, False),
        (ValueError("no such id"), FailureSeverity.INVALID_INPUT, False),
        (MemoryError(), FailureSeverity.CRASH, False),
        (RuntimeError("it just broke"), FailureSeverity.SERVER_ERROR, False),
    ],
)
def test_what_an_exception_says(error: Exception, severity: FailureSeverity, *, retriable: bool) -> None:
    """Severity as the folds see it, and whether another attempt may end differently (docs/design/guard.md#retries)."""
    failure = of_exception(error)
    assert (failure.severity, failure.retriable) == (severity, retriable)


@pytest.mark.parametrize(
    ("result", "code"),
    [
        ({"error": "no such table"}, "error"),
        ({"error": None, "rows": []}, None),
        ({"status_code": 503}, "503"),
        ({"status_code": 200}, None),
        ({"exit_code": 2, "stderr": "usage"}, "2"),
        ({"isError": True, "content": []}, "error"),
        (SimpleNamespace(is_error=True, content=[SimpleNamespace(text="bad arguments")]), "error"),
        (SimpleNamespace(is_error=False, content=[]), None),
        (SimpleNamespace(status_code=429, headers={}, text=""), "429"),
        ("Error: this is just text", None),
        (None, None),
    ],
)
def test_what_a_result_says(result: Any, code: str | None) -> None:
    """A returned value may report a failure, in the shapes of the folds, of MCP and of HTTP clients."""
    failure = of_result(result)
    assert (failure.code if failure else None) == code


def test_a_failure_may_say_itself_whether_to_try_again() -> None:
    """A hint of the tool wins over what its kind suggests."""
    hinted = ValueError("try later")
    hinted.retriable = True  # type: ignore[attr-defined]
    assert of_exception(hinted).retriable
    found = of_result({"error": {"message": "down", "retriable": False}, "status_code": 503})
    assert not found.retriable


@pytest.mark.parametrize("code", [99, 600, True])
def test_a_number_that_is_no_http_status(code: int) -> None:
    """Errors carry numbers of their own; HTTP has statuses from 100 to 599."""
    assert of_exception(Answer(code)).http_status is None


def test_delays_have_full_jitter_and_a_cap() -> None:
    """From 0 up to 200, 400, 800 … and never more than 4000 milliseconds."""
    bounds: list[tuple[float, float]] = []

    def draw(low: float, high: float) -> float:
        bounds.append((low, high))
        return high

    for retry in range(7):
        delay_ms(RetryPolicy(), retry, draw)
    assert bounds == [(0, 200), (0, 400), (0, 800), (0, 1600), (0, 3200), (0, 4000), (0, 4000)]


async def test_a_start_says_by_when_the_call_is_over() -> None:
    """Its deadline and a second; without one the tool's time limit after the last possible retry; else nothing."""
    guard = guard_for_tests()
    guard.register("slow", timeout_ms=2_000)

    async def done(**_: Any) -> str:
        return "done"

    await guard.call("any", done, session_id="s1", deadline_ms=5_000)
    await guard.call("slow", done, session_id="s1", max_elapsed_ms=10_000)
    await guard.call("slow", done, session_id="s1", max_elapsed_ms=10_000, hints=CallHints(timeout_ms=500))
    for hints in ({"timeout_ms": 500}, {"timeoutMs": 500}):
        await guard.call("slow", done, session_id="s1", max_elapsed_ms=10_000, hints=hints)
    await guard.call("any", done, session_id="s1")
    told = [event.get("deadline_ms") for event in published(guard, "tool_call.started")]
    assert told == [6_000, 13_000, 11_500, 11_500, 11_500, None]


async def test_retry_after_is_honoured(guard: ToolGuard, clock: MovableClock) -> None:
    """The answer's patience counts where it is longer than ours; more than the budget allows ends the call."""
    guard.register("get", read_only=True)
    answers = iter([Answer(429, {"Retry-After": "3"}), Answer(429, {"Retry-After": "0.01"}), None])

    async def get(**_: Any) -> str:
        if (answer := next(answers)) is not None:
            raise answer
        return "ok"

    assert (await guard.call("get", get, {}, session_id="s1")).ok
    assert clock.waits == [3000.0, 400.0]

    async def patient(**_: Any) -> None:
        raise Answer(503, {"Retry-After": "120"})

    result = await guard.call("get", patient, {"n": 2}, session_id="s1")
    assert (result.attempts, len(clock.waits)) == (1, 2)


async def test_what_may_not_be_made_twice_is_not_tried_again(guard: ToolGuard) -> None:
    """What changes things, or of which nothing is declared, has one attempt, unless its caller gives a promise."""
    guard.register("write", read_only=False)
    runs = 0

    async def fails(**_: Any) -> None:
        nonlocal runs
        runs += 1
        raise ConnectionResetError

    async def attempts(tool: str, **options: Any) -> int:
        return (await guard.call(tool, fails, {}, session_id=f"s{runs}", **options)).attempts

    assert await attempts("write") == 1
    assert await attempts("get_user") == 1  # the name is no declaration
    guard = guard_for_tests()
    assert await attempts("write", idempotency_key="k") == 1  # a key that the tool never sees is no promise
    guard.register("set_status", read_only=False, idempotent=True)
    assert await attempts("set_status") == 4
    guard = guard_for_tests()
    assert await attempts("write", hints=SimpleNamespace(
        safety_critical=None, expected_retry_safe=True, timeout_ms=None)) == 4  # fmt: skip
    guard = guard_for_tests()
    assert await attempts("write", idempotency_key="k", hints=SimpleNamespace(
        safety_critical=True, expected_retry_safe=True, timeout_ms=None)) == 1  # fmt: skip


async def test_an_attempt_that_takes_too_long_is_cut_off() -> None:
    """The tool's own limit holds for each attempt, the caller's deadline for all of them."""
    guard = ToolGuard.in_memory(retry=RetryPolicy(base_ms=0))
    guard.register("slow", read_only=True, timeout_ms=20)
    cancelled = 0

    async def slow() -> None:
        nonlocal cancelled
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cancelled += 1
            raise

    result = await guard.call("slow", slow, session_id="s1")
    assert (result.status, result.attempts, cancelled) == (ResultStatus.RETRY_EXHAUSTED, 4, 4)
    assert code_of(result) == "timeout"
    result = await guard.call("slow", slow, session_id="s1", deadline_ms=30, timeout_ms=60_000, max_attempts=100)
    assert (result.status, result.duration_ms < 5000) == (ResultStatus.TIMEOUT, True)
    assert published(guard, "tool_call.finished")[-1]["status"] == "timeout"


async def test_a_long_call_without_a_limit_is_left_alone() -> None:
    """The retry budget bounds when a further attempt may begin, not how long an attempt may take."""
    clock = MovableClock()
    guard = guard_for_tests(clock=clock)

    async def build() -> str:
        clock.move(600)
        return "built"

    assert (await guard.call("build", build, session_id="s1")).output == "built"


async def test_plain_functions_run_beside_the_loop(guard: ToolGuard) -> None:
    """A blocking tool does not hold up the loop."""
    here = threading.get_ident()
    result = await guard.call("work", threading.get_ident, session_id="s1")
    assert result.output != here


async def test_a_cancelled_call_is_told_as_such(guard: ToolGuard) -> None:
    """The caller's cancellation goes through, and the call counts as neither good nor bad."""
    entered = asyncio.Event()

    async def hangs() -> None:
        entered.set()
        await asyncio.sleep(600)

    task = asyncio.create_task(guard.call("x", hangs, session_id="s1"))
    await entered.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert published(guard, "tool_call.finished")[-1]["status"] == "cancelled"


async def test_arguments_reach_the_tool_as_they_came(guard: ToolGuard) -> None:
    """Nothing is copied, parsed or redacted on the way in; the result is the very object."""
    thing, seen = object(), {}

    async def tool(**args: Any) -> Any:
        seen.update(args)
        return thing

    result = await guard.call("x", tool, {"a": thing, "password": "p"}, session_id="s1")
    assert result.output is thing
    assert seen == {"a": thing, "password": "p"}


async def test_a_decorated_function_is_called_as_before(guard: ToolGuard) -> None:
    """Positional, keyword, default, star and positional-only arguments; results and exceptions are its own."""

    @guard.tool(read_only=True)
    async def add(first: int, /, *rest: int, by: int = 1, **more: int) -> int:
        """Adds."""
        if first < 0:
            raise ArithmeticError("negative")
        return (first + sum(rest) + sum(more.values())) * by

    @guard.tool
    async def answers_badly() -> dict[str, str]:
        return {"error": "no"}

    async with guard.session("s1"):
        assert await add(1) == 1
        assert await add(1, 2, 3, by=2, extra=4) == 20
        with pytest.raises(ArithmeticError):
            await add(-1)
        assert await answers_badly() == {"error": "no"}
        with pytest.raises(ToolFailed, match="no"):
            (await guard.call("answers_badly")).unwrap()
    assert add.__doc__ == "Adds."
    assert {event["session_id"] for event in published(guard)} == {"s1"}


@pytest.mark.parametrize(
    "wrong",
    [
        {"tool_name": ""}, {"tool_name": "a\x1fb"}, {"tool_name": "x" * 257}, {"tool_name": None},
        {"tool_name": "nobody", "function": None}, {"function": 7}, {"args": [1]}, {"session_id": ""},
        {"session_id": 7}, {"session_id": "\ud800"}, {"tool_name": "\ud800"},
        {"idempotency_key": ""}, {"idempotency_key": 7}, {"dedupe_mode": "sometimes"}, {"no_such_option": 1},
        {"max_attempts": 0}, {"max_attempts": "many"}, {"timeout_ms": "soon"}, {"timeout_ms": float("nan")},
        {"deadline_ms": []}, {"recursion_depth": -1}, {"scope": "everywhere"}, {"hints": 7},
        {"hints": {"timeout": 500}}, {"hints": {"timeout_ms": "soon"}}, {"hints": {7: 500}},
    ],
)  # fmt: skip
async def test_a_call_that_makes_no_sense_is_a_failed_result(wrong: dict[str, Any], guard: ToolGuard) -> None:
    """Names, arguments and options are checked before anything happens; the failure is published, not raised."""
    result = await guard.call(**{"tool_name": "x", "function": len, "args": {}, "session_id": "s1", **wrong})
    code = "unknown_tool" if "tool_name" in wrong else "invalid_input"
    assert (result.status, result.attempts) == (ResultStatus.ERROR, 0)
    assert (result.error.code, result.error.terminal) == (code, True)
    with pytest.raises(EnvelopeRejected):
        result.unwrap()
    (event,) = published(guard)
    assert (event["type"], event["status"], event["error"]["code"]) == ("tool_call.finished", "rejected", code)
    assert event["tool_name"]


async def test_envelopes_go_in_and_out_as_json(guard: ToolGuard) -> None:
    """A request from elsewhere, as text; its result, in the same form."""

    async def send(to: str) -> dict[str, str]:
        return {"sent": to}

    text = (
        '{"contractVersion":"1.1","requestId":"r1","toolCallId":"c1","toolName":"send","toolNamespace":"mail",'
        '"target":{"sessionKey":"s1","actorId":"u1","workspaceId":"w9"},"payload":{"version":"1.0","params":{"to":"bob"}},'
        '"transport":{"dedupeMode":"enforced","retryBudget":{"maxAttempts":2,"maxElapsedMs":1000}}}'
    )
    result = await guard.execute(text, send)
    out = msgspec.json.decode(msgspec.json.encode(result.envelope()))
    assert out["requestId"] == "r1"
    assert out["output"] == {"content": {"sent": "bob"}}
    assert (out["fromCache"], out["attempts"], out["status"]) == (False, 1, "success")
    msgspec.convert(out, ToolResultEnvelope)
    (start,) = published(guard, "tool_call.started")
    assert (start["call_id"], start["workspace_id"], start["session_id"]) == ("c1", "w9", "s1")
    by_hand = msgspec.structs.replace(msgspec.json.decode(text, type=ToolCallEnvelope), tool_name="")
    assert (await guard.execute(by_hand, send)).error is not None


async def test_shadow_mode_computes_and_enforces_nothing() -> None:
    """What would have been refused is noted, counted and made all the same, once; nothing is joined or tried again."""
    guard = guard_for_tests(shadow=True)
    guard.register("get", read_only=True)
    runs = 0

    async def fails(**_: Any) -> None:
        nonlocal runs
        runs += 1
        raise ConnectionResetError

    set_state(guard, "breaker", "tool:get", state="open", open_until=guard.clock.after(30))  # type: ignore[attr-defined]
    set_state(guard, "trust", "get", state="blocked", reason="security")
    results = await asyncio.gather(
        *(guard.call("get", fails, {}, session_id="s1", idempotency_key="k") for _ in range(3))
    )
    assert runs == 3
    assert {one.attempts for one in results} == {1}
    assert results[0].metadata["shadow"] == ["blocked", "circuit_open"]
    assert guard.metrics.value(SHADOW, "get", "circuit_open") == 3
    assert len(published(guard, "tool_call.finished")) == 3
    assert guard.check("get").allowed


@pytest.mark.parametrize(
    ("status", "output", "shown"),
    [
        (ResultStatus.ERROR, {"failed": "at line 3"}, {"content": {"failed": "at line 3"}}),
        (ResultStatus.ERROR, None, None),
        (ResultStatus.SUCCESS, None, {"content": None}),
    ],
)
def test_an_envelope_shows_what_a_tool_returned(status: ResultStatus, output: Any, shown: Any) -> None:
    """Of a failed call as well, where the tool returned something; a tool that returns nothing returned that."""
    result = ToolResult(request_id="r", tool_name="t", status=status, output=output)
    assert msgspec.to_builtins(result.envelope()).get("output") == shown


@pytest.mark.parametrize(
    ("declared", "hints"),
    [
        ({}, None),
        ({"idempotent": True}, {"idempotentHint": True}),
        ({"idempotent": False, "read_only": False}, {"readOnlyHint": False, "idempotentHint": False}),
    ],
)
def test_events_of_a_tool_carry_what_was_declared_of_it(declared: dict[str, bool], hints: Any) -> None:
    """A declaration of no is one, too."""
    assert ToolRegistration(name="t", **declared).hints == hints


async def test_a_call_that_is_refused_unread_took_no_time() -> None:
    """Nothing of it ran."""
    refused = await guard_for_tests().execute({"payload": 1})
    assert refused.error is not None
    assert (refused.attempts, refused.duration_ms) == (0, 0)


def test_a_date_to_try_again_at_is_a_wait_from_now() -> None:
    """A date that has passed asks for none."""
    now_ms = 1_767_225_600_000
    later, earlier = "Thu, 01 Jan 2026 00:00:10 GMT", "Wed, 31 Dec 2025 23:59:50 GMT"
    assert of_exception(Answer(429, {"Retry-After": later}), now_ms=now_ms).retry_after_ms == 10_000
    assert of_exception(Answer(429, {"Retry-After": earlier}), now_ms=now_ms).retry_after_ms == 0


def test_exceptions_are_passed_through_by_class_or_name() -> None:
    """A subclass is one, too."""
    assert is_control_flow(KeyError("x"), (LookupError,))
    assert is_control_flow(KeyError("x"), ("builtins.LookupError",))
    assert not is_control_flow(ValueError("x"), (LookupError, "builtins.LookupError"))


class InsufficientFundsError(Exception):
    """A tool's own answer."""


class StoreGone(OSError):
    """A tool's own name for something that is away."""


def _no_funds(**_: Any) -> None:
    raise InsufficientFundsError("balance 0")


async def test_declared_answers_count_against_nobody() -> None:
    """By class, status, exit code or a function; the caller gets what the tool raised, and nothing opens or asks."""
    guard = guard_for_tests()
    made = {"exit": {"exit_code": 3}, "http": {"status_code": 402}, "said": {"error": "sold out"}}
    answers: tuple[Any, ...] = (InsufficientFundsError, 3, 402, lambda given: given["error"] == "sold out")
    for name, output in made.items():
        guard.register(name, lambda output=output: output, answers=answers)
    guard.register("charge", _no_funds, answers=answers)
    for number in range(6):
        for name, output in made.items():
            result = await guard.call(name, session_id="s1")
            assert result.output == output
        result = await guard.call("charge", args={"amount": number}, session_id="s1")
        assert isinstance(result.exception, InsufficientFundsError)
        assert result.error is not None
        assert not result.error.retriable
    ended = published(guard, "tool_call.finished")
    assert {(one["expected_failure"], one["error"]["severity"]) for one in ended} == {(True, "validation")}
    assert all(guard.check(name).code == "allowed" for name in (*made, "charge"))


@pytest.mark.parametrize("answers", ["InsufficientFundsError", [ValueError], (True,), (int,), ("404",)])
def test_answers_that_cannot_be_meant_are_refused(answers: Any) -> None:
    """They are classes of exceptions, numbers or functions, in a tuple."""
    with pytest.raises(ConfigError):
        guard_for_tests().register("t", answers=answers)


async def test_rules_that_reclassify_a_failure_are_obeyed_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    """An audit can find which calls were judged otherwise, and from what to what."""
    guard = guard_for_tests(failures={"shop": {"InsufficientFundsError": "answer", "503": "validation"}})
    guard.register("shop", _no_funds, read_only=True)

    async def down() -> Any:
        raise Answer(503)

    with caplog.at_level(logging.INFO, "trustfold.guard"):
        await guard.call("shop", session_id="s1")
        assert (await guard.call("shop", down, session_id="s1")).attempts == 1
    logged = [json.loads(one.message) for one in caplog.records if "reclassified" in one.message]
    assert [(one["fromSeverity"], one["severity"]) for one in logged] == [("server_error", "validation")] * 2


async def test_a_class_of_a_tools_own_is_read_by_its_bases() -> None:
    """Here its bases are known; readers of the event are told what they say."""
    guard = guard_for_tests()

    class Missing(LookupError):
        pass

    for raised, severity in ((Missing(), "invalid_input"), (StoreGone(), "server_error"), (_Slow(), "timeout")):
        assert of_exception(raised).severity == severity

        def fail(error: Exception = raised) -> None:
            raise error

        await guard.call("t", fail, session_id="s1")
        assert published(guard, "tool_call.finished")[-1]["error"]["severity"] == severity


class _Slow(TimeoutError):
    pass


async def test_arguments_that_do_not_fit_blame_no_tool() -> None:
    """Nothing ran: neither trust nor circuits count it. A `TypeError` inside of the tool is its own."""
    guard = guard_for_tests()

    def add(a: int, b: int) -> int:
        return a + b

    for _ in range(9):
        result = await guard.call("add", add, {"a": 1, "c": 2}, session_id="s1")
        assert isinstance(result.exception, TypeError)
    assert {one["status"] for one in published(guard, "tool_call.finished")} == {"rejected"}
    assert guard.check("add").code == "allowed"
    await guard.call("add", add, {"a": 1, "b": "x"}, session_id="s1")
    assert published(guard, "tool_call.finished")[-1]["status"] == "error"


async def test_a_deadline_that_has_passed_is_no_attempt_and_nobodys_failure() -> None:
    """However often: the tool is not called, its circuit stays closed, and nobody is asked about it."""
    guard = guard_for_tests()
    ran: list[int] = []
    guard.register("charge", lambda: ran.append(1), read_only=False)
    for _ in range(9):
        result = await guard.call("charge", session_id="s1", deadline_ms=-1)
        assert (result.attempts, result.refused, str(result.status)) == (0, True, "timeout")
        assert result.error is not None
        assert result.error.code == "deadline_exceeded"
    assert not ran
    assert {one["status"] for one in published(guard, "tool_call.finished")} == {"cancelled"}
    assert guard.check("charge").code == "allowed"


async def test_a_hook_that_takes_until_after_the_deadline_leaves_no_attempt() -> None:
    """The answer is the same as if the deadline had passed before, hooks run once, and the key is free."""
    clock = MovableClock()
    guard = guard_for_tests(clock=clock)
    ran: list[int] = []
    seen: list[tuple[int, str]] = []
    guard.register("charge", lambda: ran.append(1), read_only=False)
    guard.hooks.before_tool_call(lambda moment: clock.move(600) if not seen else None)
    guard.hooks.after_tool_call(lambda moment: seen.append((moment.attempt, moment.outcome)))
    result = await guard.call("charge", session_id="s1", deadline_ms=500, idempotency_key="k")
    assert (ran, seen) == ([], [(1, "deadline_exceeded")])
    assert (result.attempts, result.refused, str(result.status)) == (0, True, "timeout")
    assert [one["status"] for one in published(guard, "tool_call.finished")] == ["cancelled"]
    assert (await guard.call("charge", session_id="s1", deadline_ms=500, idempotency_key="k")).ok
    assert ran == [1]


async def test_shadow_mode_is_left_in_steps() -> None:
    """By tool, by read-only tools first, and by a share of sessions that only grows."""
    guard = guard_for_tests(shadow=True)
    guard.register("ready", lambda: None, shadow=False)
    guard.register("other", lambda: None)
    for name in ("ready", "other"):
        set_state(guard, "trust", name, state="blocked", reason="security")
    for name, enforced in (("ready", True), ("other", False)):
        assert (await guard.call(name, session_id="s1")).refused is enforced
        assert guard.check(name).allowed is not enforced
    guard = guard_for_tests(enforced_tools="read_only")
    natures = {"look": {"read_only": True}, "write": {"read_only": False}, "unknown": {}, "ready": {"shadow": False}}
    for name, nature in natures.items():
        guard.register(name, lambda: None, **nature)
        set_state(guard, "trust", name, state="blocked", reason="security")
        assert (await guard.call(name, session_id="s1")).refused is (name in {"look", "ready"})
        assert guard.check(name).allowed is (name in {"write", "unknown"})
    refused: list[set[str]] = []
    for share in (0.0, 0.3, 0.6, 1.0):
        guard = guard_for_tests(enforced_share=share)
        guard.register("new", lambda: None, shadow=True)
        for name in ("get", "new"):
            set_state(guard, "trust", name, state="blocked", reason="security")
        sessions = [f"s{number}" for number in range(60)]
        assert all(guard.check("new", session_id=one).allowed for one in sessions)
        refused.append({one for one in sessions if not guard.check("get", session_id=one).allowed})
    assert [len(one) for one in refused[::3]] == [0, 60]
    assert 5 < len(refused[1]) < len(refused[2]) < 55
    assert refused[1] < refused[2]
    for wrong in ({"enforced_share": 1.5}, {"enforced_tools": "some"}):
        with pytest.raises(ConfigError):
            guard_for_tests(**wrong)
