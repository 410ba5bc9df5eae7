"""Sessions: what they publish, the nudges they bring back, their limits, and the reporter."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from guard_kit import code_of, works
from trustfold.errors import ConfigError
from trustfold.guard import ExecutionGuarantees, ToolGuard, ToolRegistration
from trustfold.guard.testing import MovableClock, decided, published
from trustfold.schemas.decisions import NudgeIssued
from trustfold.schemas.settings import SettingsOverrides
from trustfold.schemas.vocabulary import NudgeLevel


async def repeat(session: Any, times: int) -> None:
    """The model repeats one call with the same answer."""
    for _ in range(times):
        await session.call("read_file", works, {"path": "a"})


async def test_a_session_says_what_happens_in_it(guard: ToolGuard) -> None:
    """Beginning, messages, turns, calls and end, each with the session's own names."""
    async with guard.session(
        "s1", model="m1", user_id="u1", settings=SettingsOverrides(nudge_level=NudgeLevel.OFF)
    ) as session:
        session.user_message("hello")
        with session.turn() as first:
            session.model_text("Let me look at it")
            await session.call("read_file", works, {"path": "a"})
        with session.turn() as second:
            pass
    assert (first, second) == (0, 1)
    kinds = [event["type"] for event in published(guard)]
    assert kinds == [
        "session.started", "user.message", "turn.started", "model.text", "tool_call.started", "tool_call.finished",
        "turn.ended", "turn.started", "turn.ended", "session.ended",
    ]  # fmt: skip
    assert {(event["session_id"], event["model"], event["user_id"]) for event in published(guard)} == {
        ("s1", "m1", "u1")
    }
    assert [event.get("turn_index") for event in published(guard)] == [None, None, 0, 0, 0, 0, 0, 1, 1, 1]
    assert decided(guard, "dead_letter") == []


async def test_nudges_rise_and_each_is_told_once(guard: ToolGuard) -> None:
    """A hint, guidance, a pause: to the callbacks as they come, and as messages for the next request."""
    heard: list[tuple[str, str]] = []
    told: list[str] = []
    async with guard.session(
        "s1",
        inject_context_hint=lambda text: heard.append(("hint", text)),
        inject_system_guidance=lambda text: heard.append(("guidance", text)),
        request_pause=lambda text: heard.append(("pause", text)),
        notify_user=told.append,
    ) as session:
        await repeat(session, 6)
        assert [lane for lane, _ in heard] == ["hint", "guidance", "pause"]
        assert session.paused
        assert session.inbox.pause_reason == heard[-1][1]
        messages = session.messages()
        assert [message["role"] for message in messages] == ["user", "system", "system"]
        assert messages[1]["content"].startswith("[RELIABILITY GUIDANCE]: read_file")
        [notice] = told
        assert notice.startswith("The agent ")
        assert all(notice not in message["content"] for message in messages)
        assert session.messages() == []
        session.inbox.resume()
        assert not session.paused
        again = session.inbox.history[0]
        guard.backend.decisions.dispatch(again)
        session.inbox.deliver(again)
        assert len(heard) == 3


async def test_a_pause_for_announcements_ends_with_the_call(guard: ToolGuard) -> None:
    """Four turns end with an announcement: the call that was missing ends the pause and withdraws its text."""
    async with guard.session("s1") as session:
        for _ in range(4):
            with session.turn():
                session.model_text("I'll restore the file from the backup now.")
        assert (session.paused, session.inbox.pause_ends_by) == (True, "tool_call.started")
        await session.call("restore", works, {"path": "a"})
        assert (session.paused, session.inbox.pause_ends_by) == (False, "")
        assert not [one for one in session.messages() if "Stopped after" in one["content"]]


async def test_other_pauses_outlive_calls_and_end_with_the_user(guard: ToolGuard) -> None:
    """A call does not end them, nor does a pause for announcements weaken them; the user does, and their text goes."""
    async with guard.session("s1") as session:
        await repeat(session, 6)
        for _ in range(4):
            with session.turn():
                session.model_text("I'll restore the file from the backup now.")
        assert [one.lane for one in session.inbox.history][-1] == "pause"
        assert session.inbox.before_call() == session.inbox.pause_reason != ""
        assert session.inbox.pause_ends_by == "user.message"
        session.inbox.resume()
        stopped = [one["content"] for one in session.messages() if "Stopped after" in one["content"]]
        assert ["announcement" in text for text in stopped] == [True]  # that call is still to be made


async def test_nudges_can_be_awaited(guard: ToolGuard) -> None:
    """An iterator gives them as they come, and ends with the session."""
    found: list[NudgeIssued] = []
    async with guard.session("s1") as session:

        async def read() -> None:
            found.extend([nudge async for nudge in session.nudges()])

        reading = asyncio.create_task(read())
        await repeat(session, 3)
        await asyncio.sleep(0)
        await repeat(session, 3)
    await asyncio.wait_for(reading, 60)
    assert [nudge.nudge_type for nudge in found] == ["gentle", "direct", "interrupt"]


async def test_a_callback_that_fails_harms_nobody(guard: ToolGuard) -> None:
    """The call goes on, and the nudge is still there as a message."""

    def broken(_: str) -> None:
        raise RuntimeError

    async with guard.session("s1", inject_context_hint=broken) as session:
        await repeat(session, 3)
        assert len(session.messages()) == 1


async def test_sessions_hear_only_what_is_theirs(guard: ToolGuard) -> None:
    """Two sessions in one process."""
    async with guard.session("s1") as one, guard.session("s2") as two:
        await repeat(one, 3)
        assert (len(one.messages()), len(two.messages())) == (1, 0)


async def test_a_session_says_who_spoke_and_what_the_model_forgot(guard: ToolGuard) -> None:
    """The user with the number of words, others with their kind; of a text only a digest."""
    async with guard.session("s1") as session:
        session.user_message("Go on, please")
        session.user_message(words=7)
        session.user_message()
        session.input_received("report", "the build has ended")
        session.input_received("timer")
        session.context_compacted()
        with pytest.raises(ValueError, match="postman"):
            session.input_received("postman")
    told = [event for event in published(guard) if event["type"] in {"user.message", "input.received"}]
    assert [event.get("words") for event in told] == [3, 7, None, None, None]
    assert [event.get("source") for event in told] == [None, None, None, "report", "timer"]
    assert ["text_digest" in event for event in told] == [True, False, False, True, False]
    assert len(published(guard, "context.compacted")) == 1
    assert b"build has ended" not in b"".join(guard.memory.published)
    assert decided(guard, "dead_letter") == []


async def test_an_empty_message_of_the_model_is_none(guard: ToolGuard) -> None:
    """A message of calls alone says nothing."""
    async with guard.session("s1") as session:
        session.model_text("")
        session.model_text(" \n")
    assert published(guard, "model.text") == []


async def test_calls_of_one_message_are_one_step(guard: ToolGuard) -> None:
    """By the session's step, which ends, or by the call's own option, which goes first."""
    async with guard.session("s1") as session:
        with session.step("m1"):
            await session.call("read_file", works, {"path": "a"})
            await session.call("read_file", works, {"path": "b"}, message_id="m2")
            with session.step("m3"):
                await guard.call("read_file", works, {"path": "c"})
            await session.call("read_file", works, {"path": "d"})
        await session.call("read_file", works, {"path": "e"})
    started = published(guard, "tool_call.started")
    assert [event.get("message_id") for event in started] == ["m1", "m2", "m3", "m1", None]


async def test_the_workspace_after_a_call_is_told(guard: ToolGuard) -> None:
    """By the tool's function, or the call's; one that fails tells nothing and harms nothing."""

    def broken() -> str:
        raise OSError("no such folder")

    guard.register("run", works, workspace_digest=lambda: "state-1")
    async with guard.session("s1") as session:
        await session.call("run", args={"path": "a"})
        await session.call("run", args={"path": "b"}, workspace_digest=lambda: "state-2")
        assert (await session.call("run", args={"path": "c"}, workspace_digest=broken)).ok
        assert code_of(await session.call("run", args={"path": "d"}, workspace_digest="state-3")) == "invalid_input"
    ended = published(guard, "tool_call.finished")
    assert [event.get("workspace_digest") for event in ended] == ["state-1", "state-2", None, None]


async def test_a_call_that_never_ran_is_reported_and_harms_no_tool(guard: ToolGuard) -> None:
    """Its arguments and the reason are told; trust and circuits stay as they were."""
    async with guard.session("s1") as session:
        for number in range(6):
            assert session.report_rejected(
                "edit_file", {"path": "a"}, "File has not been read yet", call_id=f"c{number}", message_id="m1"
            )
        assert guard.report_rejected("", {}, "no name") is False
        with pytest.raises(TypeError, match="colour"):
            session.report_rejected("edit_file", {}, "x", colour="red")
    started, ended = published(guard, "tool_call.started"), published(guard, "tool_call.finished")
    assert [(event["call_id"], event["message_id"]) for event in started] == [(f"c{n}", "m1") for n in range(6)]
    assert {event["status"] for event in ended} == {"rejected"}
    assert all(event["error"]["message"] for event in ended)
    assert decided(guard, "trust.changed") == []
    assert decided(guard, "breaker.changed") == []


# --- reporter ---------------------------------------------------------------------------------------------------------


async def test_reports_count_like_calls(guard: ToolGuard) -> None:
    """Texts, objects and exceptions; with a domain the service is judged, and its key, but never the tool elsewhere."""
    async with guard.session("s1") as session:
        session.report_failure("fetch", "connection lost", severity="server_error", domain="api.example.com")
        session.report_failure("fetch", {"error": "HTTP 503", "http_status": 503}, domain="api.example.com")
        session.report_failure("fetch", RuntimeError("crashed"), domain="api.example.com")
        session.report_success("fetch", domain="api.example.com")
    assert [(one["key"], one["to"], one["silent"]) for one in decided(guard, "trust.changed")] == [
        ("service:api.example.com", "escalated", False),
        ("fetch|domain=api.example.com", "escalated", True),
    ]
    outcomes = [(one["scope"], one["verdict"]) for one in decided(guard, "call.outcome")]
    assert outcomes.count(("service:api.example.com", "failure")) == 3
    assert outcomes[-1] == ("service:api.example.com", "success")
    assert guard.check("fetch", {"url": "https://api.example.com/v1"}).ask
    assert not guard.check("fetch", {"url": "https://other.example.com/v1"}).ask
    with pytest.raises(ValueError, match="awful"):
        guard.report_failure("fetch", "x", severity="awful")


async def test_an_unrecoverable_report_says_so(guard: ToolGuard) -> None:
    """`recoverable` and the redacted context go along."""
    guard.report_failure("db", "gone", recoverable=False, context={"table": "users", "password": "hunter2"})
    (event,) = published(guard, "failure.reported")
    assert event["recoverable"] is False
    assert event["context"] == {"table": "users", "password": "[redacted]"}


# --- limits -----------------------------------------------------------------------------------------------------------


async def test_the_twentieth_recursive_call_is_the_last(guard: ToolGuard) -> None:
    """Twenty are made, the twenty-first is refused with a plan to end well (docs/design/semantics.md#guarantees)."""
    async with guard.session("s1", guarantees=ExecutionGuarantees()) as session:
        results = [await session.call("ask", works, {"n": n}, recursion_depth=1) for n in range(21)]
    assert [one.ok for one in results] == [True] * 20 + [False]
    refused = results[-1]
    assert code_of(refused) == "guarantee_exceeded"
    plan = refused.metadata["plan"]
    assert plan.recursive_calls == 20
    assert "rests on the 20 calls" in plan.partial_result
    assert plan.recommendations


async def test_a_call_that_is_not_made_spends_nothing(guard: ToolGuard) -> None:
    """A refused or cached recursive call leaves its place to the next."""
    async with guard.session("s1", guarantees=ExecutionGuarantees(max_recursive_calls=2)) as session:
        session.trust("ask", "blocked")
        assert not (await session.call("ask", works, recursion_depth=1)).ok
        session.trust("ask", None)
        for _ in range(3):
            assert (await session.call("ask", works, recursion_depth=1, idempotency_key="k")).ok
        assert session.spending.recursive_calls == 1


async def test_ids_that_are_none_are_replaced(guard: ToolGuard) -> None:
    """What a model gives as an id may be anything; the events carry one that is good."""
    for odd in ("x" * 1000, "", "a\x1fb", 7):
        assert (await guard.call("a", works, {"odd": str(odd)}, session_id="s1", call_id=odd)).ok
    assert decided(guard, "dead_letter") == []
    assert len(published(guard)) == 8


async def test_money_and_time_are_limits_too(guard: ToolGuard, clock: MovableClock) -> None:
    """A call costs what its tool says; time is what the clock says, and calls get no more of it than is left."""
    guard.tools.add(ToolRegistration(name="pricey", cost_usd=0.6))
    async with guard.session("s1", guarantees=ExecutionGuarantees()) as session:
        spent = [await session.call("pricey", works, {"n": n}) for n in range(3)]
        assert [one.ok for one in spent] == [True, False, False]
        assert session.spending.cost_usd == 0.6
    assert published(guard, "tool_call.finished")[0]["cost_usd"] == 0.6
    async with guard.session("s2", guarantees=ExecutionGuarantees(max_duration_seconds=10)) as session:

        async def slow() -> None:
            await asyncio.sleep(60)

        clock.move(9.98)
        cut = await session.call("slow", slow)
        assert str(cut.status) == "timeout"
        clock.move(1)
        late = await session.call("fast", works)
        assert "time" in late.error.message


async def test_a_limit_may_be_spent_to_the_last_cent(guard: ToolGuard) -> None:
    """What reaches a limit is within it, whatever binary fractions make of the sum; what goes beyond ends it."""
    guard.tools.add(ToolRegistration(name="dime", cost_usd=0.1))
    async with guard.session("s1", guarantees=ExecutionGuarantees()) as session:
        spent = [await session.call("dime", works, {"n": n}) for n in range(10)]
        assert all(one.ok for one in spent)
        assert (await session.call("free", works)).ok
        refused = await session.call("dime", works, {"n": 10})
        assert "money" in refused.error.message
        assert session.spending.cost_usd == pytest.approx(1.0)
    assert decided(guard, "guarantee.violated") == []


async def test_a_limit_of_no_money_lets_free_calls_pass(guard: ToolGuard) -> None:
    """Zero means that nothing may be spent, and not that nothing may be done."""
    async with guard.session("s1", guarantees=ExecutionGuarantees(max_cost_usd=0)) as session:
        assert (await session.call("free", works)).ok


async def test_a_confirmed_override_goes_on(guard: ToolGuard) -> None:
    """Somebody confirms it by name, the limits it names change once, and it is recorded (SPEC-10.14)."""
    async with guard.session("s1", guarantees=ExecutionGuarantees(max_recursive_calls=1)) as session:
        assert (await session.call("ask", works, {"n": 1}, recursion_depth=1)).ok
        assert not (await session.call("ask", works, {"n": 2}, recursion_depth=1)).ok
        with pytest.raises(ConfigError, match="confirmed"):
            session.override_guarantees(confirmed_by="", max_recursive_calls=2)
        with pytest.raises(ConfigError, match="name the limits"):
            session.override_guarantees(confirmed_by="ann", max_everything=2)
        session.override_guarantees(confirmed_by="ann", max_recursive_calls=2)
        assert (await session.call("ask", works, {"n": 3}, recursion_depth=1)).ok
        assert not (await session.call("ask", works, {"n": 4}, recursion_depth=1)).ok
    told = published(guard, "guarantee.overridden")[-1]
    assert (told["limits"], told["confirmed_by"]) == ({"max_recursive_calls": 2}, "ann")


async def test_a_session_without_limits_has_none(guard: ToolGuard) -> None:
    """As long as nothing in it calls itself: ordinary calls may be as many and as dear as they are."""
    async with guard.session("s1") as session:
        for n in range(30):
            assert (await session.call("ask", works, {"n": n}, cost_usd=1.0)).ok


def test_limits_that_are_none_are_refused() -> None:
    """NaN and negative numbers."""
    for wrong in (float("nan"), -1.0):
        with pytest.raises(ConfigError, match="max_cost_usd"):
            ExecutionGuarantees(max_cost_usd=wrong)


async def test_what_the_folds_suggest_reaches_the_session(guard: ToolGuard) -> None:
    """Warnings about limits, as the processor sees them."""
    heard: list[Any] = []
    guarantees = ExecutionGuarantees(max_recursive_calls=5)
    async with guard.session("s1", guarantees=guarantees, on_suggestion=heard.append) as session:
        for n in range(5):
            await session.call("ask", works, {"n": n}, recursion_depth=1)
    assert [one.guarantee for one in heard] == ["max_recursive_calls"]
    assert heard == session.suggestions


async def test_a_process_that_takes_over_a_session_gets_its_undelivered_nudges(guard: ToolGuard) -> None:
    """The first process dies with a hint that no answer carried; the next is told what was restored, and carries it."""
    lost = guard.session("s1", settings=SettingsOverrides(nudge_level=NudgeLevel.GENTLE)).begin()
    with lost.turn():
        await repeat(lost, 3)
    assert decided(guard, "nudge.judged") == []
    heard: list[Any] = []
    async with guard.session("s1", on_suggestion=heard.append) as session:
        (hint,) = session.messages()
    assert "read_file" in str(hint)
    (restored,) = heard
    assert (restored.turn_index, restored.active_patterns, restored.pending_nudges) == (0, 1, 1)
    assert restored.settings_restored
    assert [one["nudge_id"] for one in decided(guard, "nudge.withdrawn")] == [decided(guard, "nudge.issued")[0]["id"]]
