"""The acceptance matrix of docs/seeds.md, one test a row: what it expects, and its check that nothing else broke."""

import asyncio
import json
import logging
from typing import Any

import pytest
from guard_kit import Gated, HttpError, Stub, code_of, fail_calls
from trustfold.guard import DedupePolicy, ToolGuard
from trustfold.guard.metrics import CALLS, HITS, MAX_TOOLS, OTHER, RETRIES, TRANSITIONS
from trustfold.guard.testing import MovableClock, decided, guard_for_tests, published
from trustfold.schemas.tool_envelopes import ResultStatus

pytestmark = pytest.mark.usefixtures("lookup_and_send")


def envelope(**changes: Any) -> dict[str, Any]:
    """A valid request."""
    return {
        "contractVersion": "1.1",
        "requestId": "r-1",
        "toolName": "send",
        "toolNamespace": "mail",
        "target": {"sessionKey": "s1", "actorId": "u1", "workspaceId": "w1"},
        "payload": {"version": "1.0", "params": {"to": "bob"}},
        **changes,
    }


async def test_TR_01_a_malformed_envelope_is_refused(guard: ToolGuard) -> None:
    """Contract: a terminal error at once, no attempt, no dedupe record, no event; a valid call still executes."""
    stub = Stub()
    without_name = {name: value for name, value in envelope().items() if name != "toolName"}
    for bad in (without_name, envelope(contractVersion="1.0"), envelope(payload={"params": [1]}), b"{", {}):
        result = await guard.execute(bad, stub.run)
        assert result.status is ResultStatus.ERROR
        assert (result.error.code, result.error.terminal, result.error.retriable) == ("validation_error", True, False)
        assert result.attempts == 0
    assert stub.count == 0
    assert await guard.store.size() == 0
    assert published(guard) == []

    assert (await guard.execute(envelope(), stub.run)).ok
    assert stub.calls == [{"to": "bob"}]


async def test_TR_02_a_duplicate_waits_for_the_call_in_flight(guard: ToolGuard) -> None:
    """Idempotency: mode enforced waits and shares the result; disabled runs both, neither blocking the other."""
    slow = Gated("sent")

    async def call(**options: Any) -> Any:
        return await guard.call("send", slow.run, {}, session_id="s1", idempotency_key="k", **options)

    first = asyncio.create_task(call())
    await slow.entered.wait()
    second = asyncio.create_task(call(dedupe_mode="enforced"))
    fast = await call(dedupe_mode="bestEffort")
    assert code_of(fast) == "in_flight"
    assert not second.done()
    slow.may_go.set()
    one, two = await asyncio.gather(first, second)
    assert (one.output, one.from_cache) == ("sent", False)
    assert (two.output, two.from_cache) == ("sent", True)
    assert two.cache.matched_on == "inflight"
    assert slow.runs == 1

    both = await asyncio.gather(call(dedupe_mode="disabled"), call(dedupe_mode="disabled"))
    assert [one.from_cache for one in both] == [False, False]
    assert slow.runs == 3


async def test_TR_03_a_duplicate_after_completion_gets_the_cached_result(guard: ToolGuard, clock: MovableClock) -> None:
    """Idempotency: the same key in the same session is answered from the first call; the result is unchanged."""
    stub = Stub({"id": 7, "items": [1, 2]})
    call = {"session_id": "s1", "idempotency_key": "k"}
    first = await guard.call("send", stub.run, {"to": "bob"}, **call)
    before = json.dumps(first.output, sort_keys=True)
    clock.move(60)
    second = await guard.call("send", stub.run, {"to": "bob"}, **call)
    assert (second.from_cache, second.attempts) == (True, 0)
    assert (second.cache.matched_on, second.cache.age_ms) == ("completed", 60_000)
    assert json.dumps(second.output, sort_keys=True) == before
    second.output["items"].clear()
    third = await guard.call("send", stub.run, {"to": "bob"}, **call)
    assert json.dumps(third.output, sort_keys=True) == before
    assert stub.count == 1

    await guard.call("send", stub.run, {"to": "bob"}, session_id="other", idempotency_key="k")
    assert stub.count == 2  # another session's key is another key


@pytest.mark.parametrize("policy", ["reject", "independent"])
async def test_TR_04_the_same_key_with_other_params_is_a_conflict(policy: str) -> None:
    """Idempotency: never answered from the other call; rejected or run by itself, as the policy says, and counted."""
    guard = guard_for_tests(dedupe=DedupePolicy(conflict=policy))
    stub = Stub("one", "two")
    first = await guard.call("send", stub.run, {"to": "bob"}, session_id="s1", idempotency_key="k")
    other = await guard.call("send", stub.run, {"to": "eve"}, session_id="s1", idempotency_key="k")
    assert not other.from_cache
    assert guard.metrics.value(HITS, "send", "conflict") == 1
    if policy == "reject":
        assert (other.error.code, other.error.terminal, stub.count) == ("key_conflict", True, 1)
    else:
        assert (other.output, stub.count) == ("two", 2)

    again = await guard.call("send", stub.run, {"to": "bob"}, session_id="s1", idempotency_key="k")
    assert (again.output, again.from_cache) == (first.output, True)


async def test_TR_05_a_transport_error_is_tried_again(guard: ToolGuard, clock: MovableClock) -> None:
    """Retry: one timeout, then success: two attempts of a budget of four, full jitter; a stable tool needs one."""
    stub = Stub(TimeoutError("no answer"), "ok")
    result = await guard.call("lookup", stub.run, {}, session_id="s1")
    assert (result.status, result.attempts, stub.count) == (ResultStatus.SUCCESS, 2, 2)
    assert [(one.attempt, one.delay_ms, one.reason_code) for one in result.retried_by] == [(1, 200.0, "timeout")]
    assert clock.waits == [200.0]
    assert guard.settings.retry.max_attempts == 4

    failing = Stub(TimeoutError("no answer"))
    await guard.call("lookup", failing.run, {"page": 2}, session_id="s1")
    assert clock.waits[1:] == [200.0, 400.0, 800.0]  # the bounds: this guard draws the whole of each
    jittery = guard_for_tests(jitter=0.25)
    jittery.register("lookup", read_only=True)
    jittered = await jittery.call("lookup", Stub(TimeoutError()).run, {}, session_id="s1")
    assert [one.delay_ms for one in jittered.retried_by] == [50.0, 100.0, 200.0]

    stable = await guard.call("lookup", Stub("ok").run, {"page": 3}, session_id="s1")
    assert (stable.attempts, stable.retried_by) == (1, ())


async def test_TR_06_a_terminal_error_is_not_tried_again(guard: ToolGuard, clock: MovableClock) -> None:
    """Retry: a 400 has one attempt and is terminal; every other answered 4xx goes the same way."""
    for status in (400, 401, 403, 404, 409, 413, 422):
        stub = Stub(HttpError(status))
        result = await guard.call("lookup", stub.run, {"status": status}, session_id="s1")
        assert (result.status, result.attempts, stub.count) == (ResultStatus.ERROR, 1, 1)
        assert (result.error.code, result.error.terminal, result.error.retriable) == (str(status), True, False)
        with pytest.raises(HttpError):
            result.unwrap()
    assert clock.waits == []


async def test_TR_07_an_exhausted_budget_ends_the_call(guard: ToolGuard, clock: MovableClock) -> None:
    """Retry: endless 503s end in retry_exhausted after the budget; the circuit counts the call; waits are bounded."""
    stub = Stub(HttpError(503))
    result = await guard.call("lookup", stub.run, {}, session_id="s1")
    assert (result.status, result.attempts, stub.count) == (ResultStatus.RETRY_EXHAUSTED, 4, 4)
    (outcome,) = decided(guard, "call.outcome")
    assert (outcome["verdict"], outcome["severity"]) == ("failure", "server_error")
    (finish,) = published(guard, "tool_call.finished")
    assert (finish["status"], finish["attempts"]) == ("retry_exhausted", 4)

    slow = await guard.call(
        "lookup", Stub(HttpError(503)).run, {"page": 2}, session_id="s1", max_attempts=100, max_elapsed_ms=5000
    )
    assert slow.status is ResultStatus.RETRY_EXHAUSTED
    assert slow.duration_ms <= 5000
    assert max(clock.waits) <= 4000


async def test_TR_12_hooks_run_once_per_attempt(guard: ToolGuard) -> None:
    """Hooks: the pair once per attempt and once for a call that is refused or cached; a broken hook breaks nothing."""
    seen: list[tuple[str, str, int]] = []
    guard.hooks.before_tool_call(lambda moment: seen.append(("before", moment.call.name, moment.attempt)))

    @guard.hooks.after_tool_call
    async def after(moment: Any) -> None:
        seen.append(("after", moment.outcome, moment.attempt))

    @guard.hooks.before_tool_call
    def broken(_: Any) -> None:
        raise RuntimeError("hook")

    await guard.call("lookup", Stub(TimeoutError(), "ok").run, {}, session_id="s1")
    assert seen == [("before", "lookup", 1), ("after", "timeout", 1), ("before", "lookup", 2), ("after", "success", 2)]

    seen.clear()
    await fail_calls(guard, 3)
    seen.clear()
    await guard.call("send", Stub().run, {}, session_id="s1")
    assert seen == [("before", "send", 0), ("after", "circuit_open", 0)]

    seen.clear()
    for _ in range(2):
        await guard.call("note", Stub().run, {}, session_id="s1", idempotency_key="k")
    assert seen == [("before", "note", 1), ("after", "success", 1), ("before", "note", 0), ("after", "cached", 0)]

    guard.hooks.idempotency_key(lambda call: "from-the-hook" if call.name == "pay" else None)
    paid = [await guard.call("pay", Stub().run, {}, session_id="s1") for _ in range(2)]
    assert [one.from_cache for one in paid] == [False, True]


async def test_TR_13_everything_is_counted_and_logged(
    guard: ToolGuard, clock: MovableClock, caplog: pytest.LogCaptureFixture
) -> None:
    """Observability: success, retry, failure and open move their counters and are logged; labels stay bounded."""
    caplog.set_level(logging.DEBUG, "trustfold.guard")
    await guard.call("lookup", Stub(TimeoutError(), "ok").run, {}, session_id="s1")
    await fail_calls(guard, 3)
    await guard.call("send", Stub().run, {}, session_id="s1")
    clock.move(31)
    await guard.call("send", Stub().run, {}, session_id="s1")
    value = guard.metrics.value
    assert value(CALLS, "lookup", "success", "called") == 1
    assert value(RETRIES, "lookup", "timeout") == 1
    assert value(CALLS, "send", "retriable_error", "called") == 3
    assert value(CALLS, "send", "circuit_open", "refused") == 1
    assert value(TRANSITIONS, "tool:send", "closed", "open") == 1
    assert value(TRANSITIONS, "tool:send", "open", "half_open") == 1
    logged = [json.loads(record.getMessage()) for record in caplog.records]
    assert {one["event"] for one in logged} >= {
        "tool_call_start", "tool_call_end", "tool_call_blocked", "tool_call_retry", "tool_call_circuit_state",
    }  # fmt: skip
    moves = [(one["fromState"], one["breakerState"]) for one in logged if one["event"] == "tool_call_circuit_state"]
    assert moves == [("closed", "open"), ("open", "half_open")]
    end = next(one for one in logged if one["event"] == "tool_call_end")
    assert {"requestId", "toolName", "sessionKey", "elapsedMs", "fromCache", "state", "attempt"} <= end.keys()

    for number in range(MAX_TOOLS + 50):
        await guard.call(f"invented_{number}", Stub().run, {}, session_id="s1")
    tools = {labels["tool"] for family, _, labels, _ in guard.metrics.samples() if family is CALLS}
    assert len(tools) <= MAX_TOOLS + 1
    assert OTHER in tools
    assert "# TYPE trustfold_tool_calls_total counter" in guard.metrics.text()


async def test_TR_14_the_kill_switch_goes_straight_to_the_tool(monkeypatch: pytest.MonkeyPatch) -> None:
    """Admin control: TRUSTFOLD_ENABLED=false calls the function as it is, once; nothing is checked or published."""
    monkeypatch.setenv("TRUSTFOLD_ENABLED", "false")
    guard = guard_for_tests(enabled=True)
    error = HttpError(503)
    stub = Stub(error, {"token": "as it came"})
    args = {"to": object()}
    hooked: list[Any] = []
    guard.hooks.before_tool_call(hooked.append)
    failed = await guard.call("send", stub.run, args, session_id="s1", idempotency_key="k")
    assert failed.exception is error
    worked = await guard.call("send", stub.run, args, session_id="s1", idempotency_key="k")
    assert worked.output is stub.script[1]
    assert stub.calls == [args, args]
    assert stub.calls[0]["to"] is args["to"]
    async with guard.session("s1") as session:
        session.model_text("I will do it")
        session.report_failure("send", "broken")

    @guard.tool(read_only=True)
    async def plain(one: int, *, two: int = 2) -> int:
        if one < 0:
            raise error
        return one + two

    assert await plain(1) == 3
    with pytest.raises(HttpError) as raised:
        await plain(-1)
    assert raised.value is error
    assert (published(guard), hooked, await guard.store.size(), guard.metrics.text().strip()) == ([], [], 0, "")

    monkeypatch.delenv("TRUSTFOLD_ENABLED")
    back = guard_for_tests()
    assert (await back.call("send", Stub().run, {}, session_id="s1")).ok
    assert published(back)


async def test_TR_15_secrets_stay_in_the_process(guard: ToolGuard, caplog: pytest.LogCaptureFixture) -> None:
    """Security: token-like parameters are in no log, event or decision; the tool itself still gets them."""
    caplog.set_level(logging.DEBUG, "trustfold.guard")
    token, password = "ghp_" + "a1B2" * 9, "correct horse battery"
    stub = Stub(HttpError(500, f"login with {password} failed"), {"token": token})
    args = {"password": password, "headers": {"Authorization": f"Bearer {token}"}, "url": f"https://x.test/?t={token}"}
    for name in ("http_request", "http_request", "lookup"):
        await guard.call(name, stub.run, args, session_id="s1")
    assert stub.calls[0] == args
    everything = caplog.text + repr(guard.memory.published) + repr(guard.memory.outputs) + guard.metrics.text()
    assert token not in everything
    assert password not in everything


def test_prometheus_can_collect_the_counters(guard: ToolGuard) -> None:
    """The eight families of metrics, under our prefix, in the shape of prometheus-client."""
    from prometheus_client import CollectorRegistry, generate_latest

    asyncio.run(guard.call("lookup", Stub(TimeoutError(), "ok").run, {}, session_id="s1"))
    registry = CollectorRegistry()
    registry.register(guard.metrics)
    text = generate_latest(registry).decode()
    assert 'trustfold_tool_calls_total{scope="called",status="success",tool="lookup"} 1.0' in text
    assert 'trustfold_tool_call_duration_ms_bucket{le="+Inf",status="success",tool="lookup"} 1.0' in text
    assert 'trustfold_tool_retry_attempts_total{reason="timeout",tool="lookup"} 1.0' in text


async def test_stale_calls_in_flight_are_counted(guard: ToolGuard, clock: MovableClock) -> None:
    """A call that holds its key is fresh, and stale once it runs for longer than a lease; an ended one is neither."""
    begun, end = asyncio.Event(), asyncio.Event()

    async def build() -> str:
        begun.set()
        await end.wait()
        return "built"

    call = asyncio.create_task(guard.call("build", build, {}, session_id="s1", idempotency_key="k1"))
    await begun.wait()
    assert inflight_line(guard) == 'trustfold_tool_inflight_records{tool="build",age="fresh"} 1'
    clock.move(121)
    assert inflight_line(guard) == 'trustfold_tool_inflight_records{tool="build",age="stale"} 1'
    end.set()
    await call
    assert inflight_line(guard) == ""


def inflight_line(guard: ToolGuard) -> str:
    """The one sample of calls in flight; empty without any."""
    lines = [line for line in guard.metrics.text().splitlines() if line.startswith("trustfold_tool_inflight_records{")]
    assert len(lines) <= 1
    return "".join(lines)


async def test_metrics_tell_reads_from_writes(guard: ToolGuard) -> None:
    """Of registered tools that were called, what they are declared to do; nothing of what nobody declared."""
    guard.register("lookup", lambda: 1, read_only=True)
    guard.register("pay", lambda: 1, read_only=False)
    guard.register("other", lambda: 1)
    guard.register("never_called", lambda: 1, read_only=True)
    for name in ("lookup", "pay", "other"):
        await guard.call(name, session_id="s1")
    told = [line for line in guard.metrics.text().splitlines() if line.startswith("trustfold_tool_info{")]
    assert told == [
        'trustfold_tool_info{tool="lookup",effect="read"} 1',
        'trustfold_tool_info{tool="pay",effect="write"} 1',
    ]
