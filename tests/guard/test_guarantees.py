"""Limits of an execution in the guard: checked before anything is spent, every one recorded, overridden once."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from guard_kit import code_of, works
from trustfold.errors import ConfigError
from trustfold.guard import EnvelopeRejected, ExecutionGuarantees, ToolGuard
from trustfold.guard.testing import MovableClock, decided, guard_for_tests, published


@pytest.fixture
def guard(clock: MovableClock) -> ToolGuard:
    """A guard of one test, with a tool of known price."""
    made = guard_for_tests(clock=clock)
    made.register("pricey", works, cost_usd=0.4)
    return made


def log(session: Any) -> list[tuple[str, bool]]:
    """Violations recorded: kind, and whether overridden."""
    return [(str(one.kind), one.overridden) for one in session.spending.violations]


async def test_a_call_that_would_exceed_is_refused_before_its_money_is_spent(guard: ToolGuard) -> None:
    """By the registered cost, and by the cost that the caller expects."""
    async with guard.session("s1", guarantees=ExecutionGuarantees(max_cost_usd=1.0)) as session:
        results = [await session.call("pricey", args={"n": n}) for n in range(3)]
        assert [one.ok for one in results] == [True, True, False]
        refused = results[-1]
        assert refused.error.message.startswith(
            "the limit of money would be exceeded (0.8 spent and 0.4 expected, of 1); "
        )
        assert "would be exceeded" in refused.metadata["plan"].partial_result
        assert (await session.call("pricey", args={"n": 3}, cost_usd=0.2)).ok
        assert session.spending.cost_usd == pytest.approx(1.0)
        assert not (await session.call("other", works, cost_usd=0.01)).ok
        assert (await session.call("other", works)).ok
        assert log(session) == [("cost_would_exceed", False), ("cost_would_exceed", False)]
    assert decided(guard, "guarantee.violated") == []


async def test_calls_at_the_same_time_share_the_money(guard: ToolGuard) -> None:
    """What a running call is expected to cost is reserved, and given back if it cost less."""
    async with guard.session("s1", guarantees=ExecutionGuarantees(max_cost_usd=1.0)) as session:

        async def slow(**_: Any) -> dict[str, float]:
            await asyncio.sleep(0)
            return {"cost_usd": 0.1}

        results = await asyncio.gather(*(session.call("ask", slow, {"n": n}, cost_usd=0.4) for n in range(4)))
        assert sorted(one.ok for one in results) == [False, False, True, True]
        assert (session.spending.cost_usd, session.spending.reserved_usd) == (pytest.approx(0.2), pytest.approx(0.0))
        assert (await session.call("ask", slow, {"n": 5}, cost_usd=0.4)).ok


async def test_every_limit_that_is_exceeded_is_recorded(guard: ToolGuard, clock: MovableClock) -> None:
    """Not only the first; the plan and the message name them all."""
    limits = ExecutionGuarantees(max_cost_usd=0.1, max_duration_seconds=10, max_recursive_calls=1)
    async with guard.session("s1", guarantees=limits) as session:
        assert (await session.call("ask", lambda: {"cost_usd": 0.5}, recursion_depth=1)).ok
        clock.move(11)
        refused = await session.call("ask", works, {"n": 1}, recursion_depth=1)
        assert log(session) == [("cost_exceeded", False), ("duration_exceeded", False), ("calls_exceeded", False)]
        plan = refused.metadata["plan"]
        assert len(plan.recommendations) == 5
        assert refused.error is not None
        for word in ("money", "time", "recursive calls"):
            assert f"limit of {word} is spent" in plan.partial_result
            assert f"limit of {word} is spent" in refused.error.message


async def test_an_override_names_its_limits_is_used_once_and_recorded(guard: ToolGuard) -> None:
    """Somebody confirms that the next operation goes beyond; the one after that does not."""
    async with guard.session("s1", guarantees=ExecutionGuarantees(max_cost_usd=0.5)) as session:
        session.allow_once("max_cost_usd", confirmed_by="ann")
        assert (await session.call("pricey")).ok, "within the limit: the override is not needed yet"
        assert published(guard, "guarantee.overridden")[1:] == []
        assert (await session.call("pricey", args={"n": 1})).ok
        assert not (await session.call("pricey", args={"n": 2})).ok
        assert log(session) == [("cost_would_exceed", True), ("cost_exceeded", False)]
        assert session.spending.overrides == [("ann", {"max_cost_usd": pytest.approx(0.8)})]
    (told,) = published(guard, "guarantee.overridden")[1:]
    assert (told["confirmed_by"], told["limits"]) == ("ann", {"max_cost_usd": 0.8})


async def test_an_override_of_other_limits_does_not_help(guard: ToolGuard, clock: MovableClock) -> None:
    """It is kept for an operation that goes beyond nothing else; time allowed once is no deadline."""
    limits = ExecutionGuarantees(max_duration_seconds=10, max_recursive_calls=0)
    async with guard.session("s1", guarantees=limits) as session:
        session.allow_once("max_duration_seconds", confirmed_by="ann")
        clock.move(11)
        assert not (await session.call("ask", works, recursion_depth=1)).ok
        assert (await session.call("fetch", works)).ok
        assert not (await session.call("fetch", works, {"n": 1})).ok


async def test_an_operation_that_is_no_call_is_checked_too(guard: ToolGuard) -> None:
    """A platform asks before a request of its own, and counts what it cost."""
    async with guard.session("s1", guarantees=ExecutionGuarantees(max_cost_usd=0.1)) as session:
        assert session.check_limits(cost_usd=0.05).allowed
        session.spend(cost_usd=0.05, recursive=True)
        asked = session.check_limits(cost_usd=0.08, recursive=True)
        assert (asked.allowed, asked.overridden, [str(one.kind) for one in asked.violations]) == (
            False,
            False,
            ["cost_would_exceed"],
        )
        session.allow_once("max_cost_usd", confirmed_by="ann")
        asked = session.check_limits(cost_usd=0.08)
        assert (asked.allowed, asked.overridden) == (True, True)
        assert not session.check_limits(cost_usd=0.08).allowed
        assert log(session) == [("cost_would_exceed", False), ("cost_would_exceed", True), ("cost_would_exceed", False)]
    async with guard.session("s2") as session:
        assert session.check_limits(cost_usd=1e6).allowed, "a session without limits has none"


async def test_an_override_needs_a_confirmation_and_limits(guard: ToolGuard) -> None:
    """An empty name confirms nothing."""
    async with guard.session("s1") as session:
        for wrong in ({"confirmed_by": " "}, {"confirmed_by": ""}):
            with pytest.raises(ConfigError, match="confirmed"):
                session.allow_once("max_cost_usd", **wrong)
        for named in ((), ("max_everything",)):
            with pytest.raises(ConfigError, match="name the limits"):
                session.allow_once(*named, confirmed_by="ann")


@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), -0.1, "1", True])
async def test_a_cost_that_is_no_amount_of_money_is_refused(guard: ToolGuard, wrong: Any) -> None:
    """A comparison with NaN would let everything pass."""
    async with guard.session("s1", guarantees=ExecutionGuarantees()) as session:
        refused = await session.call("pricey", cost_usd=wrong)
        assert code_of(refused) == "invalid_input"
        with pytest.raises(EnvelopeRejected, match="cost_usd"):
            refused.unwrap()
        with pytest.raises(ConfigError, match="cost_usd"):
            session.check_limits(cost_usd=wrong)
    with pytest.raises(ConfigError, match="cost_usd"):
        guard.register("odd", works, cost_usd=wrong)


async def test_shadow_mode_records_and_refuses_nothing(clock: MovableClock) -> None:
    """The call is made as it came: without the deadline that the limit of time would give it."""
    guard = guard_for_tests(clock=clock, shadow=True)
    async with guard.session("s1", guarantees=ExecutionGuarantees(max_cost_usd=0.1)) as session:
        made = await session.call("ask", works, cost_usd=1.0)
        assert made.ok
        assert made.metadata["shadow"] == ["guarantee_exceeded"]
        assert log(session) == [("cost_would_exceed", False)]


async def test_limits_without_bound_are_published_as_the_largest(guard: ToolGuard) -> None:
    """JSON has no infinity."""
    limits = ExecutionGuarantees(max_cost_usd=float("inf"), max_duration_seconds=float("inf"))
    async with guard.session("s1", guarantees=limits) as session:
        assert (await session.call("pricey", cost_usd=5e6)).ok
    assert published(guard, "guarantee.overridden")[0]["limits"]["max_cost_usd"] == 1e12
    assert decided(guard, "guarantee.violated") == []


async def test_the_usual_limits_hold_from_the_first_recursive_call_on(guard: ToolGuard) -> None:
    """In every session, whoever opened it: the twentieth is made, the next is not, nor one that would cost too much."""
    async with guard.session("s1") as session:
        assert all([(await session.call("pricey", args={"n": n})).ok for n in range(5)])
        made = [await session.call("ask", works, {"n": n}, recursion_depth=1, cost_usd=0.01) for n in range(25)]
        assert [one.ok for one in made] == [True] * 20 + [False] * 5
        assert code_of(made[-1]) == "guarantee_exceeded"
    async with guard.session("s2") as session:
        made = [await session.call("pricey", args={"n": n}, recursion_depth=1) for n in range(4)]
        assert [one.ok for one in made] == [True, True, False, False]
