"""Keyword options that public calls share: they are those that the code takes, and others are refused by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any

import pytest
from guard_kit import works
from trustfold.errors import ConfigError
from trustfold.guard import DedupePolicy, GuardSettings, SyncToolGuard, ToolGuard
from trustfold.guard.options import CallOptions
from trustfold.guard.settings import SettingsOptions
from trustfold.guard.testing import MovableClock, published
from trustfold.schemas.tool_envelopes import CallHints, CallTrace


@pytest.mark.parametrize(
    "call",
    [
        lambda guard, **options: ToolGuard(guard.backend, guard.settings, **options),
        lambda guard, **options: guard.session("s1", **options),
        lambda guard, **options: guard.report_failure("db", "gone", **options),
        lambda guard, **options: guard.session("s1").report_failure("db", "gone", **options),
        lambda guard, **options: guard.report_rejected("db", {}, "gone", **options),
    ],
    ids=["guard", "session", "report", "report in a session", "call that never ran"],
)
def test_an_unknown_keyword_is_refused_by_its_name(guard: ToolGuard, call: Callable[..., Any]) -> None:
    """As Python refuses one that no parameter takes; nothing is published."""
    with pytest.raises(TypeError, match="unexpected keyword argument 'sevrity'"):
        call(guard, sevrity="server_error")
    assert guard.memory.published == []


def test_a_blocking_session_refuses_unknown_keywords_too() -> None:
    """Its options are forwarded."""
    with (
        SyncToolGuard.in_memory() as guard,
        pytest.raises(TypeError, match="unexpected keyword argument 'modle'"),
        guard.session("s1", modle="m1"),
    ):
        pass


def test_the_settings_as_keywords_are_those_of_the_class() -> None:
    """Of the same types; None, which keeps the default, is allowed for each."""
    as_keywords = {name: kind.__forward_arg__ for name, kind in SettingsOptions.__annotations__.items()}
    assert as_keywords == {one.name: f"{str(one.type).removesuffix(' | None')} | None" for one in fields(GuardSettings)}


async def test_a_call_takes_each_of_its_options(guard: ToolGuard) -> None:
    """Every option of the type is known where calls are built."""
    given = CallOptions(
        call_id="c1", request_id="r1", idempotency_key="k1", dedupe_mode="enforced", scope="global", workspace_id="w2",
        namespace="n", actor_id="a", user_id="u", tenant_id="t", agent_id="g", correlation_id="o", model="m",
        model_tier="small", recursion_depth=1, scenario="look", timeout_ms=1000, deadline_ms=1000, max_attempts=2,
        max_elapsed_ms=1000, cost_usd=0.1, hints=CallHints(), trace=CallTrace(), approved=True, message_id="m1",
        workspace_digest=lambda: "d1",
    )  # fmt: skip
    assert set(given) == CallOptions.__optional_keys__
    result = await guard.call("look", works, session_id="s1", **given)
    assert (result.status, result.error) == ("success", None)


def test_a_report_without_details_is_recoverable(guard: ToolGuard) -> None:
    """Service and severity are found elsewhere, the domain is unknown."""
    guard.register("db", service="store")
    assert guard.report_failure("db", "gone", session_id="s1")
    (event,) = published(guard, "failure.reported")
    assert (event["recoverable"], event["service"], event.get("severity"), event.get("domain")) == (
        True, "store", None, None,
    )  # fmt: skip


@pytest.mark.parametrize(("given", "published_as"), [(None, True), (0, False), (1, True)])
def test_a_report_is_recoverable_unless_said_otherwise(guard: ToolGuard, given: Any, published_as: bool) -> None:
    """None is the default, as for the other details; an event with another value would be no event."""
    assert guard.report_failure("db", "gone", session_id="s1", recoverable=given)
    (event,) = published(guard, "failure.reported")
    assert event["recoverable"] is published_as


async def test_no_draw_is_the_default_one() -> None:
    """As no clock and no store are; a failure of the tool stays the tool's own."""
    guard = ToolGuard.in_memory(draw=None, clock=MovableClock())
    guard.register("fetch", times_out, read_only=True)
    result = await guard.call("fetch")
    assert (result.attempts, result.error.code if result.error else None) == (4, "timeout")


async def times_out() -> None:
    """A tool whose failure is retried."""
    raise TimeoutError


@pytest.mark.parametrize(
    "make",
    [
        lambda wrong: ToolGuard.in_memory(enabled=wrong),
        lambda wrong: GuardSettings(shadow=wrong),
        lambda wrong: DedupePolicy(derive_keys=wrong),
        lambda wrong: ToolGuard.in_memory().register("pay", read_only=wrong),
    ],
    ids=["guard", "settings", "policy", "tool"],
)
@pytest.mark.parametrize("wrong", ["false", "off", 0, []])
def test_a_switch_takes_only_true_or_false(make: Callable[[Any], Any], wrong: Any) -> None:
    """The text "false" would count as true, and leave a guard on or a payment repeated."""
    with pytest.raises(ConfigError, match=r"(enabled|shadow|derive_keys|read_only) is .*; use True or False"):
        make(wrong)
