"""Resilient calls and the synthesis of results (docs/design/guard.md#limits-and-recursive-calls)."""

from __future__ import annotations

from typing import Any

import pytest
from fixed_rules import Rules
from trustfold.errors import ConfigError
from trustfold.guard import CallNotPermitted, RecursiveResult, ToolGuard, estimate_confidence, synthesize
from trustfold.guard.synthesis import BudgetMetrics
from trustfold.guard.testing import decided, guard_for_tests, published, set_state
from trustfold.rules.rules import ConfidenceRules
from trustfold.schemas.codec import rfc3339


class KeyMissing(Exception):
    """A tool without its key."""

    status_code = 401


@pytest.fixture
def guard() -> ToolGuard:
    """Three translators, the best of which is broken, and something else."""
    made = guard_for_tests(rules=Rules())

    async def nmt(text: str) -> str:
        raise KeyMissing(text)

    async def cloud(text: str) -> str:
        raise ConnectionResetError(text)

    async def offline(text: str) -> str:
        return f"{text} (fr)"

    async def weather(**_: Any) -> str:
        return "sunny"

    made.register("nmt_translator", nmt, description="translate english text to french", tags={"translation"})
    made.register("cloud_translate", cloud, description="translate text to french", tags={"translation"})
    made.register("offline_translator", offline, description="translate words", tags={"translation", "offline"})
    made.register("weather", weather, description="weather forecast for a city")
    return made


async def test_the_next_best_tool_is_tried(guard: ToolGuard) -> None:
    """Two fail, the third does it; every attempt is told."""
    result = await guard.call_resilient("translate english text to french", {"text": "Hello"}, session_id="s1")
    assert (result.success, result.tool_id, result.result) == (True, "offline_translator", "Hello (fr)")
    assert [(one.attempt, one.tool_id, one.success) for one in result.attempts] == [
        (1, "nmt_translator", False), (2, "cloud_translate", False), (3, "offline_translator", True),
    ]  # fmt: skip
    assert result.attempts[0].error.startswith("401")
    assert result.attempts[0].score > result.attempts[2].score
    assert result.unwrap() == "Hello (fr)"
    assert {event["scenario"] for event in published(guard, "tool_call.started")} == {
        "translate english text to french"
    }


async def test_attempts_and_tags_bound_the_choice(guard: ToolGuard) -> None:
    """No more tools than asked for, and only those that carry every tag."""
    few = await guard.call_resilient("translate english text to french", {"text": "x"}, session_id="s1", max_attempts=2)
    assert (few.success, len(few.attempts)) == (False, 2)
    with pytest.raises(CallNotPermitted, match="nmt_translator: 401"):
        few.unwrap()
    tagged = await guard.call_resilient("translate", {"text": "x"}, session_id="s1", tags=["translation", "offline"])
    assert [one.tool_id for one in tagged.attempts] == ["offline_translator"]
    nothing = await guard.call_resilient("book a flight", {}, session_id="s1")
    assert (nothing.success, nothing.attempts) == (False, [])
    with pytest.raises(ConfigError):
        await guard.call_resilient("x", {}, max_attempts=0)


async def test_what_may_not_be_called_is_passed_over(guard: ToolGuard) -> None:
    """An open circuit or withdrawn trust is no attempt."""
    set_state(guard, "breaker", "tool:nmt_translator", state="forced_open")
    set_state(guard, "trust", "cloud_translate", state="blocked")
    result = await guard.call_resilient(
        "translate english text to french", {"text": "x"}, session_id="s1", max_attempts=1
    )
    assert result.tool_id == "offline_translator"
    assert set(result.refused) == {"cloud_translate"}, "the tool with an open circuit ranks behind and is not asked"


async def test_a_tool_that_is_down_is_tried_last(guard: ToolGuard) -> None:
    """One whose latest calls timed out comes after those that work, and is still a candidate."""
    soon = rfc3339(guard.clock.now_ms() + 60_000)
    set_state(guard, "quality", "offline_translator", score=0.9, unavailable_until=soon)
    result = await guard.call_resilient("translate words to french", {"text": "x"}, session_id="s1")
    assert [one.tool_id for one in result.attempts][-1] == "offline_translator"
    assert result.success


async def test_no_tag_leaves_a_scenario_without_a_candidate(guard: ToolGuard) -> None:
    """The only tool that fits is tried, although it is said not to serve for this."""
    set_state(guard, "quality", "weather", score=0.5, tags=["not-for-weather"])
    result = await guard.call_resilient("weather forecast", {}, session_id="s1")
    assert (result.tool_id, result.result) == ("weather", "sunny")


async def test_quality_decides_between_equals(guard: ToolGuard) -> None:
    """A published quality lowers a tool's rank; an explicit mark does so for the scenario."""
    set_state(guard, "quality", "nmt_translator", score=0.2)
    result = await guard.call_resilient("translate english text to french", {"text": "x"}, session_id="s1")
    assert result.attempts[0].tool_id == "cloud_translate"


async def test_marking_a_failure_demotes_a_tool(guard: ToolGuard) -> None:
    """A mark: high costs 0.10 of the score."""
    guard.mark_tool_failure("csv_parser", "parse JSON data", "only CSV", "high")
    (state,) = [one for one in decided(guard, "state.updated") if one["kind"] == "quality"]
    assert (state["key"], state["score"]) == ("csv_parser", 0.8)
    with pytest.raises(ValueError, match="extreme"):
        guard.mark_tool_failure("csv_parser", "x", severity="extreme")


# --- synthesis --------------------------------------------------------------------------------------------------------


def results(*answers: tuple[str, float]) -> list[RecursiveResult]:
    """Answers with their confidence."""
    return [RecursiveResult(content, confidence, cost=BudgetMetrics(cost_usd=0.1)) for content, confidence in answers]


def test_strategies() -> None:
    """Weighted by default; consensus says so when there is none; diverse keeps the others for the user."""
    answers = results(("yes", 0.9), ("no", 0.6), ("yes", 0.7))
    weighted = synthesize(answers)
    assert (weighted.content, weighted.strategy) == ("yes", "weighted")
    assert weighted.cost_usd == pytest.approx(0.3)
    agreed = synthesize(answers, "consensus")
    assert (agreed.content, agreed.consensus) == ("yes", True)
    assert synthesize(results(("a", 0.9), ("b", 0.8)), "consensus").consensus is False
    assert synthesize(answers, "diverse").alternatives == ("no",)
    with pytest.raises(ValueError, match="random"):
        synthesize(answers, "random")


def test_confidence_rests_on_the_signals_present() -> None:
    """Each is told; none gives none; what is no share is refused."""
    estimate = estimate_confidence(
        samples=["42", "42", "41"], reasoning_trace=["first look", "so the look says 42"], tool_calls=(3, 4),
        sources=["official_docs", 0.5],
    )  # fmt: skip
    assert set(estimate.signals) == {"self_consistency", "trace_coherence", "tool_success", "source_reliability"}
    assert estimate_confidence(tool_calls=(3, 4)).value == 0.75
    assert estimate_confidence().value == 0
    for wrong in (float("nan"), 1.5, -0.1):
        with pytest.raises(ValueError, match="number from 0 to 1"):
            RecursiveResult("x", wrong)
    low = ConfidenceRules().low
    assert RecursiveResult("x", low - 0.01).low_confidence
    assert not RecursiveResult("x", low).low_confidence


async def test_a_synthesis_is_published_and_flagged(guard: ToolGuard) -> None:
    """Only numbers leave the process; what is too unsure is flagged for review."""
    async with guard.session("s1"):
        synthesize(results(("the secret answer", 0.2), ("another", 0.1)), guard=guard, session_id="s1")
    (event,) = published(guard, "synthesis.completed")
    assert "secret" not in repr(event)
    assert [one["confidence"] for one in event["results"]] == [0.2, 0.1]
    assert len(decided(guard, "confidence.low")) == 1


async def test_what_was_away_is_tried_last_the_next_time() -> None:
    """A missing key and a time-out cost no quality; what worked in such a scenario comes first, days later."""
    guard = guard_for_tests()

    async def no_key(text: str) -> str:
        raise PermissionError("API key missing")

    async def slow(text: str) -> str:
        raise TimeoutError

    async def offline(text: str) -> str:
        return f"{text} (fr)"

    words = "translate text from english to french"
    for name, function, more in (("nmt", no_key, ""), ("google", slow, ""), ("offline", offline, " with a dictionary")):
        guard.register(name, function, description=words + more)
    first = await guard.call_resilient(words, {"text": "Hello"}, session_id="s1")
    assert [one.tool_id for one in first.attempts] == ["nmt", "google", "offline"]
    guard.clock.move(ms=86_400_000)  # type: ignore[attr-defined]
    again = await guard.call_resilient(words, {"text": "Hello"}, session_id="s1")
    assert [one.tool_id for one in again.attempts] == ["offline"]
    assert {one["score"] for one in decided(guard, "state.updated") if one["kind"] == "quality"} == {0.9}


async def test_tags_never_choose_what_has_no_similarity(guard: ToolGuard) -> None:
    """They narrow the search; a translator forecasts no weather."""
    found = await guard.call_resilient("weather forecast", {"text": "x"}, session_id="s1", tags=["translation"])
    assert (found.success, found.attempts) == (False, [])
