"""Tool quality: cost, earning back, tags, failed scenarios, orders (docs/design/semantics.md#tool-quality)."""

from __future__ import annotations

from typing import Any

import pytest
from fixed_rules import QualityRules, RegisteredTool, Rules
from hypothesis import given
from hypothesis import strategies as st
from story import Story
from trustfold.projections.scenario import content_words, name_words
from trustfold.projections.tool import quality_score
from trustfold.projections.tool.tool_state import MAX_SCENARIOS, MAX_WORDS, ToolState
from trustfold.schemas.codec import rfc3339
from trustfold.schemas.vocabulary import FailureSeverity, QualitySeverity

TOOL = "python_code_analyzer"
SCENARIO = "analyze javascript code"
FREE = {
    FailureSeverity.TRANSIENT,
    FailureSeverity.TIMEOUT,
    FailureSeverity.PERMISSION,
    FailureSeverity.REPEATED_AUTH,
    FailureSeverity.SECURITY,
}


def story_of(score: float = 0.9, **rules: Any) -> Story:
    """A story in which the tool is registered with a score."""
    return Story(rules=Rules(quality=QualityRules(tools={TOOL: RegisteredTool(score=score)}, **rules)))


def marked(story: Story, times: int = 1, **fields: Any) -> Story:
    """The tool is marked as failed at the scenario, with the usual words unless others are given."""
    fields = {"scenario": SCENARIO, "error_message": "UnsupportedLanguageError", "severity": "high", **fields}
    for _ in range(times):
        story.quality_command("quality.mark", TOOL, **fields)
    return story


def score_of(story: Story) -> float | None:
    """The published score; None at the default."""
    state = story.state_of("quality", TOOL)
    return None if state is None else state["score"]


def inside(story: Story) -> ToolState:
    """The tool's whole state."""
    _ = story.outputs
    assert story._topology is not None
    state = story._topology.processors["tool"].state(f"w1\x1ftool:{TOOL}")
    assert isinstance(state, ToolState)
    return state


# --- marks ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("severity", "left"), [("low", 0.89), ("medium", 0.85), ("high", 0.80)])
def test_a_mark_costs_what_its_word_says(severity: str, left: float) -> None:
    """One hundredth, five, or ten; told at once, with the score it was registered with."""
    story = marked(story_of(), severity=severity)
    state = story.state_of("quality", TOOL)
    assert state is not None
    assert (state["score"], state["registered_score"], state["failures"]) == (left, 0.9, 1)


@pytest.mark.parametrize(
    ("marks", "left"), [(1, 0.99), (4, 0.96), (5, 0.90), (9, 0.66), (10, 0.55), (11, 0.44), (15, 0.0), (30, 0.0)]
)
def test_a_run_of_failures_costs_more_from_the_fifth_and_the_tenth(marks: int, left: float) -> None:
    """Fifth to ninth 0.05 more each, from the tenth 0.10 more instead; never below zero."""
    assert score_of(marked(story_of(1.0), marks, severity="low")) == pytest.approx(left)


def test_the_seeds_example() -> None:
    """Three medium failures at JavaScript: 0.90 to 0.75, and a tag for what it cannot do, not for its own trade."""
    state = marked(story_of(), 3, severity="medium").state_of("quality", TOOL)
    assert state is not None
    assert state["score"] == 0.75
    assert state["tags"] == ["not-for-analyze", "not-for-javascript"]
    assert list(state["failed_scenarios"]) == [SCENARIO]


def test_a_score_of_zero_is_a_score() -> None:
    """A tool that stands at zero stays there when marked, and earns from there."""
    story = marked(story_of(), 20)
    assert score_of(story) == 0.0
    story.works(TOOL, times=5)
    assert score_of(story) == 0.05


# --- calls ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("severity", list(FailureSeverity))
def test_a_call_costs_by_its_cause(severity: FailureSeverity) -> None:
    """Every severity: what it costs; what was out of reach or forbidden costs nothing, and is remembered."""
    story = story_of().fails(TOOL, {"n": 1}, with_=str(severity), scenario=SCENARIO)
    cost = {
        FailureSeverity.SERVER_ERROR: 0.01,
        FailureSeverity.NOT_FOUND: 0.01,
        FailureSeverity.INVALID_INPUT: 0.01,
        FailureSeverity.VALIDATION: 0.05,
        FailureSeverity.CRASH: 0.10,
        FailureSeverity.CORRUPTION: 0.10,
    }.get(severity)
    assert (severity in FREE) is (cost is None)
    remembered = cost is not None or severity is not FailureSeverity.SECURITY
    assert score_of(story) == (pytest.approx(0.9 - (cost or 0)) if remembered else None)
    state = story.state_of("quality", TOOL)
    assert list(state["failed_scenarios"] if state else []) == ([SCENARIO] if remembered else [])


@pytest.mark.parametrize("status", [408, 429, 502, 503, 504, 401, 403])
def test_an_outage_never_demotes(status: int) -> None:
    """A service that says it is not there, or not for you, loses no quality, however often.

    Of an outage that goes on followers hear about twice in five minutes: each failing call takes four seconds here.
    Its scenario, in which other tools are tried first until it works there, they hear of once.
    """
    story = story_of().fails(TOOL, times=300, http_status=status, scenario=SCENARIO)
    told = story.all("state.updated", kind="quality")
    assert {(one["score"], one["failures"]) for one in told} <= {(0.9, 0)}
    assert len(told) == (1 if status in {401, 403} else 9)
    assert {tuple(one["failed_scenarios"]) for one in told} == {(SCENARIO,)}


def test_causes_can_be_set() -> None:
    """An operator may say what a cause costs."""
    story = story_of(by_cause={FailureSeverity.TIMEOUT: QualitySeverity.HIGH})
    story.fails(TOOL, with_="crash", scenario=SCENARIO).fails(TOOL, with_="timeout", scenario=SCENARIO)
    assert score_of(story) == 0.8


def test_a_success_earns_back_a_hundredth_and_no_more_than_was_lost() -> None:
    """Ten successes after a high mark: whole again, and nothing is left on the state topic."""
    story = marked(story_of(), scenario=None)
    story.works(TOOL, times=9)
    assert inside(story).quality.score == 0.89  # type: ignore[union-attr]
    story.works(TOOL, times=5)
    assert inside(story).quality is None
    assert story.state_of("quality", TOOL) is None


def test_a_whole_score_ends_the_run_of_failures() -> None:
    """Four failures, earned back, and four more: the fifth in all carries no surcharge."""
    story = marked(story_of(), 4, severity="low", scenario=None).works(TOOL, times=4)
    assert score_of(marked(story, 4, severity="low", scenario=None)) == 0.86


def test_followers_are_told_of_steps_not_of_each_call() -> None:
    """Small losses without a scenario are told by twentieths; a tool that fails now and then is not told of at all."""
    story = story_of()
    for _ in range(20):
        story.fails(TOOL, with_="server_error").works(TOOL, times=4)
    assert story.all("state.updated", kind="quality") == []
    story.fails(TOOL, with_="crash").works(TOOL, times=20)
    scores = [one["score"] for one in story.all("state.updated", kind="quality")]
    assert scores == [0.8, 0.85]
    assert story.state_of("quality", TOOL) is None


def test_neutral_and_informational_outcomes_change_nothing() -> None:
    """A cached answer earns nothing; a refusal, a fast-fail and a search without a match cost nothing."""
    story = marked(story_of(), scenario=None).works(TOOL, from_cache=True, times=5)
    for status in ("cancelled", "circuit_open", "rejected"):
        story.fails(TOOL, with_="crash", status=status)
    story.fails(TOOL, with_="crash", expected_failure=True)
    assert inside(story).quality.score == 0.8  # type: ignore[union-attr]


def test_workspaces_have_scores_of_their_own() -> None:
    """What fails in one workspace is not held against the tool in another."""
    story = marked(story_of())
    story.workspace = "w2"
    marked(story, severity="low")
    assert story.state_of("quality", TOOL, workspace_id="w1")["score"] == 0.8  # type: ignore[index]
    assert story.state_of("quality", TOOL, workspace_id="w2")["score"] == 0.89  # type: ignore[index]


# --- tags and failed scenarios --------------------------------------------------------------------------------------


def tags_of(story: Story) -> list[str]:
    """Published tags."""
    state = story.state_of("quality", TOOL)
    return [] if state is None else state.get("tags", [])


@pytest.mark.parametrize(
    ("error", "tagged"),
    [
        ({"with_": "invalid_input"}, True),
        ({"with_": "validation"}, True),
        ({"with_": "server_error"}, False),
        ({"http_status": 500}, False),
        ({"with_": "crash"}, False),
        ({"with_": "timeout"}, False),
        ({"with_": "permission"}, False),
        ({"with_": "not_found"}, False),
    ],
)
def test_two_failures_of_capability_tag(error: dict[str, Any], tagged: bool) -> None:
    """What the tool cannot do tags it at the second time; breaking down or being out of reach never does."""
    story = story_of().fails(TOOL, scenario=SCENARIO, **error)
    assert tags_of(story) == []
    story.fails(TOOL, scenario=f"check {SCENARIO}", **error)
    assert tags_of(story) == (["not-for-analyze", "not-for-javascript"] if tagged else [])


@pytest.mark.parametrize(
    "message",
    [
        "API key missing",
        "invalid credentials",
        "Network timeout",
        "permission denied",
        "rate limited",
        "segmentation fault",
    ],
)
def test_a_missing_key_does_not_ban_a_tool_from_its_trade(message: str) -> None:
    """A mark costs what it says, but its message shows that the tool was only not at hand."""
    story = marked(story_of(), 3, error_message=message, severity="medium")
    assert score_of(story) == 0.75
    assert tags_of(story) == []


def down_until(story: Story) -> str | None:
    """Until when the published state takes the tool for unavailable."""
    state = story.state_of("quality", TOOL)
    return None if state is None else state.get("unavailable_until")


@pytest.mark.parametrize("error", [{"with_": "timeout"}, {"with_": "transient"}, {"http_status": 503}])
def test_a_tool_whose_latest_calls_did_not_reach_it_is_down(error: dict[str, Any]) -> None:
    """Two in a row; told until five minutes later, without any cost; a success ends it and leaves nothing."""
    story = story_of().fails(TOOL, **error)
    assert story.state_of("quality", TOOL) is None
    story.fails(TOOL, **error)
    state = story.state_of("quality", TOOL)
    assert state is not None
    assert (state["score"], state["failures"]) == (0.9, 0)
    assert down_until(story) == rfc3339(int((story.now.timestamp() + 300) * 1000))
    story.works(TOOL)
    assert story.state_of("quality", TOOL) is None
    assert inside(story).quality is None


def test_calls_that_did_not_reach_a_tool_count_together_only_within_five_minutes() -> None:
    """One lost call now and one yesterday do not make a tool unavailable."""
    story = story_of().fails(TOOL, with_="timeout").after(minutes=6).fails(TOOL, with_="timeout")
    assert down_until(story) is None
    story.works(TOOL).fails(TOOL, with_="timeout")
    assert down_until(story) is None


def test_tags_expire() -> None:
    """The public state says when; the next event after that finds the tag gone, and counting starts afresh."""
    story = marked(story_of(), 2)
    expires = story.state_of("quality", TOOL)["tags_expire_at"]  # type: ignore[index]
    assert expires["not-for-javascript"].startswith("2026-02-04T10:00")
    story.after(minutes=31 * 24 * 60)
    marked(story)
    assert tags_of(story) == []


def test_a_success_disproves_a_tag() -> None:
    """What worked is taken back word by word: the language stays tagged, the verb does not."""
    story = marked(story_of(), 2).works(TOOL, scenario="analyze python code")
    assert tags_of(story) == ["not-for-javascript"]
    story.works(TOOL, scenario=SCENARIO)
    state = story.state_of("quality", TOOL)
    assert state is not None
    assert state.get("tags", []) == []
    assert state.get("failed_scenarios", {}) == {}


def test_a_failed_scenario_is_remembered_once_with_its_latest_time() -> None:
    """The same scenario again moves its time, and is not listed twice."""
    story = marked(story_of())
    first = story.state_of("quality", TOOL)["failed_scenarios"][SCENARIO]  # type: ignore[index]
    marked(story.after(minutes=5))
    [(scenario, again)] = story.state_of("quality", TOOL)["failed_scenarios"].items()  # type: ignore[index]
    assert scenario == SCENARIO
    assert again > first


def test_memory_is_bounded() -> None:
    """A thousand different scenarios later no more are kept than allowed, and they are the latest."""
    story = story_of()
    for number in range(1000):
        marked(story, scenario=f"thing{number} {'x' * 300}")
    record = inside(story).quality
    assert record is not None
    assert len(record.scenarios) == MAX_SCENARIOS
    assert len(record.words) <= MAX_WORDS
    assert record.scenarios[-1].text.startswith("thing999 ")
    assert max(len(one.text) for one in record.scenarios) == 200


# --- restore --------------------------------------------------------------------------------------------------------


def test_restore_gives_the_registered_score_and_a_clean_record() -> None:
    """Score, tags, failed scenarios and the run of failures are gone; the state topic holds nothing more."""
    story = marked(story_of(), 6)
    story.quality_command("quality.restore", TOOL)
    assert story.state_of("quality", TOOL) is None
    assert inside(story).quality is None
    assert score_of(marked(story, severity="low", scenario=None)) == 0.89


def test_restore_to_a_lower_score_earns_on_from_there() -> None:
    """Half a rehabilitation: clean, and earning up to the registered score, not beyond."""
    story = marked(story_of(), 6)
    story.quality_command("quality.restore", TOOL, score=0.5)
    assert score_of(story) == 0.5
    assert tags_of(story) == []
    story.works(TOOL, times=60)
    assert story.state_of("quality", TOOL) is None


def test_restore_above_the_registered_score_registers_anew() -> None:
    """The operator's score is what the tool earns its way back to from now on."""
    story = story_of()
    story.quality_command("quality.restore", TOOL, score=0.95)
    state = marked(story, severity="low", scenario=None).state_of("quality", TOOL)
    assert state is not None
    assert (state["score"], state["registered_score"]) == (0.94, 0.95)
    story.works(TOOL, times=20)
    assert score_of(story) == 0.95


def test_an_order_repeated_counts_once() -> None:
    """The same command published again, by its id, changes nothing."""
    story = marked(story_of())
    story.records.append(story.records[-1])
    assert score_of(story) == 0.8


# --- invariants -----------------------------------------------------------------------------------------------------

_deeds = st.lists(
    st.tuples(
        st.sampled_from(["works", "works", "works", "low", "medium", "high", "crash", "validation", "timeout"]),
        st.sampled_from([None, "analyze javascript", "parse csv tables"]),
        st.integers(1, 5),
    ),
    max_size=30,
)


@given(_deeds, st.sampled_from([0.0, 0.3, 0.9, 1.0]))
def test_a_score_stays_between_nothing_and_what_was_registered(
    deeds: list[tuple[str, str | None, int]], registered: float
) -> None:
    """Whatever happens, a score is 0 to 1 and never beyond the registered one; tags belong to failed words."""
    story = story_of(registered)
    for deed, scenario, times in deeds:
        if deed == "works":
            story.works(TOOL, scenario=scenario, times=times)
        elif deed in {"crash", "validation", "timeout"}:
            story.fails(TOOL, with_=deed, scenario=scenario, times=times)
        else:
            marked(story, times, severity=deed, scenario=scenario)
    for state in story.all("state.updated", kind="quality"):
        assert 0 <= state["score"] <= state["registered_score"] == registered
        assert set(state.get("tags", [])) == set(state.get("tags_expire_at", {}))
    record = inside(story).quality if story.records else None
    assert record is None or 0 <= record.score <= registered


@given(st.sampled_from(list(QualitySeverity)), st.integers(1, 30))
def test_later_failures_never_cost_less(severity: QualitySeverity, failures: int) -> None:
    """The surcharge only grows."""
    rules = QualityRules()
    assert quality_score.cost(severity, failures + 1, rules) >= quality_score.cost(severity, failures, rules)


# --- words ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("translate english text to french", ("translate", "english", "text", "french")),
        ("Parse the CSV, please; parse it now!", ("parse", "csv")),
        ("", ()),
        ("to of the", ()),
        ("überweise 100 Euro", ("überweise", "100", "euro")),
    ],
)
def test_content_words(text: str, words: tuple[str, ...]) -> None:
    """What a scenario is about: no function words, each word once, whatever the language's letters."""
    assert content_words(text) == words


@pytest.mark.parametrize("name", ["python_code_analyzer", "pythonCodeAnalyzer", "python-code-analyzer"])
def test_words_of_a_name(name: str) -> None:
    """However a name is joined, its words are found."""
    assert name_words(name) == ("python", "code", "analyzer")
