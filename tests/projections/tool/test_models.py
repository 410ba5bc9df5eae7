"""Models on failure keys: profiles, blame, suggestions (docs/design/semantics.md#models)."""

from __future__ import annotations

from typing import Any

import pytest
from fixed_rules import ModelRules, Rules
from hypothesis import given
from hypothesis import strategies as st
from story import Story
from trustfold.projections.tool.models import better_model, standing
from trustfold.projections.tool.tool_state import MAX_MODEL_KEYS, MAX_MODELS, KeyProfile, ToolState
from trustfold.schemas.vocabulary import FailureSeverity, ModelSwitchStrategy

TOOL = "http_request"
ARGS = {"url": "https://api.problem.com/endpoint"}
KEY = "http_request|domain=api.problem.com|path_prefix=endpoint"
GOOD, BAD = "claude-3", "gpt-4"
SLIP = {"with_": "", "message": "invalid parameter: id is required"}


def copes(story: Story, times: int) -> Story:
    """The good model succeeds, with news each time."""
    for number in range(times):
        story.works(TOOL, ARGS, result=f"page {number}", model=GOOD)
    return story


def compared(
    failures: int, *, good: int = 5, rules: ModelRules | None = None, error: dict[str, Any] | None = None
) -> Story:
    """One model succeeds `good` times on the key, then the other fails `failures` times."""
    story = Story(rules=Rules(models=rules or ModelRules()))
    copes(story, good)
    return story.fails(TOOL, ARGS, model=BAD, times=failures, **(error or SLIP))


def test_a_better_model_is_suggested_for_slips_of_its_own() -> None:
    """Five of five against none of three: the user is told, with both rates."""
    told = compared(3).decided("model_switch.suggested")
    assert (told["current_model"], told["suggested_model"], told["failure_key"]) == (BAD, GOOD, KEY)
    assert (told["current_success_rate"], told["suggested_success_rate"]) == (0.0, 1.0)
    assert (told["current_attempts"], told["suggested_attempts"]) == (3, 5)
    assert told["strategy"] == "suggest"
    assert told["message"].endswith("vs current 0%. Consider: model claude-3")
    assert len(told["caused_by"]) == 3


def test_it_comes_on_the_suggestions_topic_under_its_session() -> None:
    """Whoever follows a session finds its suggestions in its partition."""
    [output] = [one for one in compared(3).outputs if one.type == "model_switch.suggested"]
    assert (output.topic, output.key) == ("suggestions", "s1")


def test_two_failures_are_too_few() -> None:
    """The third failure of its own making is the first that counts."""
    assert compared(2).all("model_switch.suggested") == []


def test_one_good_call_proves_nothing() -> None:
    """One of one is no evidence against three failures."""
    assert compared(3, good=1).all("model_switch.suggested") == []


def test_a_model_nobody_has_tried_is_not_suggested() -> None:
    """No data is not a perfect rate, even for a preferred model."""
    story = compared(5, good=0, rules=ModelRules(preferred_models=("new",)))
    assert story.all("model_switch.suggested") == []


def declared(story: Story, *models: str) -> Story:
    """The platform says which models may be suggested."""
    story.event("models.available", models=list(models))
    return story


def suggested(story: Story) -> list[str]:
    """Models suggested."""
    return [one["suggested_model"] for one in story.all("model_switch.suggested")]


@pytest.mark.parametrize(("declaration", "found"), [((GOOD, "other"), [GOOD]), (("other",), []), ((), [])])
def test_of_a_session_that_declares_its_models_only_those_are_suggested(
    declaration: tuple[str, ...], found: list[str]
) -> None:
    """With an event of its own, or as the session starts; a later declaration takes the place of the earlier one."""
    story = declared(declared(copes(Story(), 5), GOOD), *declaration).fails(TOOL, ARGS, model=BAD, times=3, **SLIP)
    assert suggested(story) == found
    story = copes(Story(), 5)
    story.event("session.started", models=list(declaration))
    assert suggested(story.fails(TOOL, ARGS, model=BAD, times=3, **SLIP)) == found


def test_a_model_unseen_for_a_month_is_suggested_only_where_it_is_declared() -> None:
    """It may be gone; a call of another key of the tool shows that it is not."""
    month = 30 * 24 * 60
    assert suggested(copes(Story(), 5).after(minutes=month - 5).fails(TOOL, ARGS, model=BAD, times=3, **SLIP)) == [GOOD]
    assert suggested(copes(Story(), 5).after(minutes=month).fails(TOOL, ARGS, model=BAD, times=3, **SLIP)) == []
    story = copes(Story(), 5).after(minutes=month).works(TOOL, {"url": "https://other.com/x"}, model=GOOD)
    assert suggested(story.fails(TOOL, ARGS, model=BAD, times=3, **SLIP)) == [GOOD]
    story = declared(copes(Story(), 5).after(minutes=month), GOOD).fails(TOOL, ARGS, model=BAD, times=3, **SLIP)
    assert suggested(story) == [GOOD]


@pytest.mark.parametrize(("model", "found"), [(GOOD, [GOOD]), ("other", [])])
def test_a_declaration_holds_for_patterns_too(model: str, found: list[str]) -> None:
    """Going round in circles counts against a model as its failures do."""
    story = declared(copes(Story(), 30), model).works(TOOL, ARGS, result="the same", model=BAD, times=6)
    assert suggested(story) == found


@pytest.mark.parametrize(
    "severity",
    [one for one in FailureSeverity if one not in {FailureSeverity.INVALID_INPUT, FailureSeverity.VALIDATION}],
)
def test_an_outage_blames_no_model(severity: FailureSeverity) -> None:
    """What a model cannot help never suggests another one, however often it happens."""
    assert compared(12, error={"with_": str(severity)}).all("model_switch.suggested") == []


@pytest.mark.parametrize("severity", ["invalid_input", "validation"])
def test_an_outage_before_does_not_dilute_the_slips(severity: str) -> None:
    """Calls lost to an outage are left out of the rates that are compared."""
    story = copes(Story(), 5)
    story.fails(TOOL, {**ARGS, "n": 1}, http_status=503, model=BAD, times=2)
    for number in range(3):
        story.fails(TOOL, {**ARGS, "n": number}, with_=severity, model=BAD)
    told = story.decided("model_switch.suggested")
    assert (told["current_success_rate"], told["current_attempts"]) == (0.0, 3)


@pytest.mark.parametrize(("strategy", "expected"), [("disabled", []), ("suggest", ["suggest"]), ("auto", ["auto"])])
def test_the_strategy_says_what_becomes_of_it(strategy: str, expected: list[str]) -> None:
    """Disabled says nothing, suggest tells the user, auto asks the platform to switch."""
    story = compared(5, rules=ModelRules(strategy=ModelSwitchStrategy(strategy)))
    assert [one["strategy"] for one in story.all("model_switch.suggested")] == expected


@pytest.mark.parametrize(("ruled", "own", "expected"), [("suggest", "disabled", 0), ("disabled", "auto", 1)])
def test_the_sessions_own_strategy_wins(ruled: str, own: str, expected: int) -> None:
    """What a session says about switching goes before the rules."""
    story = Story(rules=Rules(models=ModelRules(strategy=ModelSwitchStrategy(ruled))))
    story.event("session.started", settings={"model_switch_strategy": own})
    copes(story, 5).fails(TOOL, ARGS, model=BAD, times=4, **SLIP)
    assert len(story.all("model_switch.suggested")) == expected


def test_once_per_session_and_key() -> None:
    """The same session hears of a key once; another session hears of it too."""
    story = compared(8)
    assert len(story.all("model_switch.suggested")) == 1
    story.session = "s2"
    story.fails(TOOL, ARGS, model=BAD, times=3, **SLIP)
    assert [one["session_id"] for one in story.all("model_switch.suggested")] == ["s1", "s2"]


def test_keys_are_judged_apart() -> None:
    """Failing at one site says nothing about another."""
    story = Story().works(TOOL, {"url": "https://other.com/x"}, model=GOOD, times=5)
    story.fails(TOOL, ARGS, model=BAD, times=5, **SLIP)
    assert story.all("model_switch.suggested") == []


def test_going_round_in_circles_counts_against_the_model() -> None:
    """Three patterns, each told once per severity, are failures of its own making, though every call succeeded."""
    story = Story()
    for number in range(8):
        story.works("db_query", {"q": number}, result=f"r{number}", model=GOOD)
    story.works("db_query", {"q": 1}, result="same", model=BAD, times=6)
    assert [one[1] for one in story.patterns()] == ["minor", "moderate", "severe"]
    profile = story._topology.processors["tool"].state("w1\x1ftool:db_query").models["db_query"][BAD]  # type: ignore[union-attr]
    assert (profile.attempts, profile.failures, profile.patterns) == (6, 0, 3)
    assert standing(profile).rate == pytest.approx(6 / 9)


def test_a_pattern_can_be_what_suggests_another_model() -> None:
    """Two slips and a loop of calls that each worked make three."""
    story = copes(Story(), 12)
    story.fails(TOOL, {**ARGS, "n": 1}, model=BAD, **SLIP).fails(TOOL, {**ARGS, "n": 2}, model=BAD, **SLIP)
    assert story.all("model_switch.suggested") == []
    story.works(TOOL, {**ARGS, "n": 3}, model=BAD, times=3)
    told = story.decided("model_switch.suggested")
    assert (told["current_attempts"], told["current_success_rate"]) == (6, 0.5)


def test_retrying_in_an_outage_is_nudged_and_blames_no_model() -> None:
    """The loop is reported; the model it is held against would be any model that happened to be there."""
    story = compared(8, error={"with_": "", "http_status": 503})
    assert ("error_retry_loop", "severe", 6) in story.patterns()
    assert story.all("model_switch.suggested") == []


def test_a_profile_counts_calls_as_they_are() -> None:
    """Three of four worked: a failure counts in the published rate, whoever is to blame."""
    story = Story().works("bash", {"command": "ls /tmp"}, model=BAD, times=3)
    story.fails("bash", {"command": "ls /fail"}, with_="", message="No such file", model=BAD)
    told = story.state_of("model", "bash|command=ls")
    assert told is not None
    assert (told["model"], told["attempts"], told["failures"], told["success_rate"]) == (BAD, 4, 1, 0.75)


def test_a_flawless_profile_is_told_as_its_calls_double() -> None:
    """A follower hears of eight, sixteen and thirty-two calls, not of each."""
    story = copes(Story(), 40)
    assert [one["attempts"] for one in story.all("state.updated", kind="model")] == [8, 16, 32]


def test_calls_without_a_model_have_no_profile() -> None:
    """Platforms that name no model get no profiles and no suggestions."""
    story = Story().fails(TOOL, ARGS, times=5, **SLIP)
    assert story.all("state.updated", kind="model") == []


def test_informational_failures_and_refusals_do_not_count() -> None:
    """A search without a match and a user's refusal say nothing about a model."""
    story = copes(Story(), 5)
    for number in range(4):
        story.fails(TOOL, {**ARGS, "n": number}, model=BAD, expected_failure=True, **SLIP)
        call = story.started(TOOL, {**ARGS, "n": number})
        story.finished(call, TOOL, status="error", result=None, error={"type": "user_rejected"}, model=BAD)
    assert story.all("model_switch.suggested") == []
    assert story.state_of("model", KEY, model=BAD) is None


# --- choosing -------------------------------------------------------------------------------------------------------


def slipped(own: int, attempts: int) -> KeyProfile:
    """A profile with so many slips in so many calls."""
    return KeyProfile(attempts=attempts, failures=own, own=own)


def test_the_best_bound_wins_not_the_best_rate() -> None:
    """95 of 100 beat 3 of 3: chance is taken into account."""
    profiles = {BAD: slipped(40, 40), "lucky": slipped(0, 3), "proven": slipped(5, 100)}
    better = better_model(profiles, BAD, ModelRules())
    assert better is not None
    assert better.model == "proven"


@pytest.mark.parametrize(
    ("preferred", "expected"),
    [((), "proven"), (("lucky",), "lucky"), (("absent", "lucky", "proven"), "lucky"), (("worse",), "proven")],
)
def test_preferred_models_break_ties(preferred: tuple[str, ...], expected: str) -> None:
    """Of models that cannot be told apart the first preferred one is suggested; one that is worse never."""
    profiles = {BAD: slipped(40, 40), "lucky": slipped(0, 4), "proven": slipped(2, 100), "worse": slipped(40, 100)}
    better = better_model(profiles, BAD, ModelRules(preferred_models=preferred))
    assert better is not None
    assert better.model == expected


@pytest.mark.parametrize(("slips", "expected"), [(31, True), (20, False)])
def test_the_difference_must_be_worth_a_switch(slips: int, expected: bool) -> None:
    """Better beyond chance, but by less than 0.3: not worth it."""
    profiles = {BAD: slipped(slips, 100), GOOD: slipped(0, 100)}
    assert (better_model(profiles, BAD, ModelRules()) is not None) is expected


_counts = st.integers(0, 60).flatmap(
    lambda attempts: st.integers(0, attempts).flatmap(
        lambda failures: st.tuples(st.just(attempts), st.just(failures), st.integers(0, failures), st.integers(0, 9))
    )
)


@given(_counts, _counts)
def test_a_suggestion_is_never_a_worse_model(mine: tuple[int, ...], other: tuple[int, ...]) -> None:
    """Whatever was counted, what is suggested is better beyond chance and by at least 0.3."""
    profiles = {
        name: KeyProfile(attempts=counts[0], failures=counts[1], own=counts[2], patterns=counts[3])
        for name, counts in ((BAD, mine), (GOOD, other))
    }
    better = better_model(profiles, BAD, ModelRules())
    if better is not None:
        assert better.theirs.lower > better.current.upper
        assert better.theirs.rate - better.current.rate >= 0.3
    for profile in profiles.values():
        there = standing(profile)
        assert 0 <= there.lower <= there.upper <= 1
        assert there.measured >= 0


def test_profiles_are_bounded() -> None:
    """Hundreds of keys and models later a tool remembers no more than it may; the newest model is among them."""
    story = Story()
    for number in range(MAX_MODEL_KEYS * 3):
        story.works("bash", {"command": f"cmd{number} x"}, model=GOOD)
    for number in range(MAX_MODELS * 3):
        story.fails("bash", {"command": "cmd0 x"}, model=f"m{number}", **SLIP)
    _ = story.outputs
    assert story._topology is not None
    state = story._topology.processors["tool"].state("w1\x1ftool:bash")
    assert isinstance(state, ToolState)
    assert len(state.models) == 32 + 1, "the keys with profiles of their own, and the tool"
    assert state.models["bash"][GOOD].attempts == 3 * MAX_MODEL_KEYS - 32
    assert len(state.models["bash|command=cmd0"]) == MAX_MODELS
    assert f"m{MAX_MODELS * 3 - 1}" in state.models["bash|command=cmd0"]
    assert story.state_of("model", "bash|command=cmd0", model="m0") is None, "what is forgotten is withdrawn"


def test_a_model_is_remembered_for_thirty_days_and_no_longer() -> None:
    """Seen exactly so long ago it is still suggested, a moment later not."""
    story = copes(Story(), 5)
    began = story.now
    taken = (story.fails(TOOL, ARGS, model=BAD, times=3, **SLIP).now - began).total_seconds()
    for more, found in ((0, [GOOD]), (0.001, [])):
        story = copes(Story(), 5).after(30 * 86_400 - taken + more)
        assert suggested(story.fails(TOOL, ARGS, model=BAD, times=3, **SLIP)) == found
