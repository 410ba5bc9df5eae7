"""Confidence: signals, their combination, synthesis, and the flag for review (docs/design/semantics.md#confidence)."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import pytest
from fixed_rules import ConfidenceRules, Rules
from hypothesis import given
from hypothesis import strategies as st
from story import Story
from trustfold.projections import confidence as of
from trustfold.projections.confidence import SubcallResult, combine
from trustfold.schemas.vocabulary import SynthesisStrategy

WEIGHTED, CONSENSUS, DIVERSE = SynthesisStrategy.WEIGHTED, SynthesisStrategy.CONSENSUS, SynthesisStrategy.DIVERSE
synthesize = partial(of.synthesize, rules=ConfidenceRules())
BAD_SHARES = [math.nan, math.inf, -math.inf, -0.01, 1.01, 1.7, True, "0.5", None]

# --- signals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("samples", "expected"),
    [
        ([], 0.0),
        (["a"], 0.5),
        (["a", "a"], 1.0),
        (["a", "A ", "b"], 2 / 3),
        (["a", "b", "c", "d"], 0.25),
    ],
)
def test_self_consistency(samples: list[str], expected: float) -> None:
    """The share that agrees, whatever case and spacing; one sample proves nothing either way."""
    assert of.self_consistency(samples) == pytest.approx(expected)


def test_a_connected_trace_is_coherent_and_a_wavering_one_is_not() -> None:
    """First, then, finally: three quarters, as words prove no more. Maybe and actually no: nothing."""
    connected = ["First, I analyzed the input", "Then, I identified the pattern", "Finally, I applied the change"]
    assert of.trace_coherence(connected) == pytest.approx(0.768, abs=0.02)
    assert of.trace_coherence(["Maybe this", "Actually no"]) == 0.0
    assert of.trace_coherence([]) == 0.0
    assert of.trace_coherence(["one step"]) == 0.5
    assert of.trace_coherence(["read the invoice", "the invoice names a sum"]) == 0.75


def test_connectives_are_words() -> None:
    """`then` inside of `strengthen` connects nothing, nor does `so` in `sort`."""
    assert of.trace_coherence(["alpha", "strengthen beta", "sort gamma"]) == 0.5


@pytest.mark.parametrize(("successes", "calls", "expected"), [(0, 0, 0.5), (3, 4, 0.75), (0, 9, 0.0)])
def test_tool_success(successes: int, calls: int, expected: float) -> None:
    """The share of calls that worked; even odds without any."""
    assert of.tool_success(successes, calls) == expected


def test_impossible_counts_are_refused() -> None:
    """More successes than calls are a caller's mistake."""
    with pytest.raises(ValueError, match="5 successes of 4 calls"):
        of.tool_success(5, 4)


@pytest.mark.parametrize(
    ("sources", "expected"),
    [(["official_docs", "blog"], 0.65), ([], 0.5), (["never heard of"], 0.5), ([0.9, 0.3], 0.6)],
)
def test_source_reliability(sources: list[Any], expected: float) -> None:
    """The mean of known kinds, or of scores such as the quality states give."""
    assert of.source_reliability(sources) == pytest.approx(expected)


# --- combination ----------------------------------------------------------------------------------------------------


def test_all_signals_weigh_as_designed() -> None:
    """0.4, 0.2, 0.25 and 0.15, each reported."""
    made = combine({"self_consistency": 1.0, "trace_coherence": 0.5, "tool_success": 0.8, "source_reliability": 0.2})
    assert made.value == pytest.approx(0.4 + 0.1 + 0.2 + 0.03)
    assert list(made.signals) == ["self_consistency", "trace_coherence", "tool_success", "source_reliability"]
    assert sum(of.WEIGHTS.values()) == pytest.approx(1.0)


def test_absent_signals_neither_help_nor_hurt() -> None:
    """The weights of those present are scaled up; without any the confidence is nothing."""
    assert combine({"self_consistency": 0.8, "tool_success": None}).value == pytest.approx(0.8)
    assert combine({"tool_success": 1.0, "source_reliability": 0.0}).value == pytest.approx(0.625)
    assert combine({}) == (0.0, {})


@pytest.mark.parametrize("bad", [one for one in BAD_SHARES if one is not None])
@pytest.mark.parametrize("name", list(of.WEIGHTS))
def test_a_signal_that_is_no_share_is_refused_by_name(name: str, bad: Any) -> None:
    """NaN, infinities, percentages, truth values and texts: whose fault, and what would be right."""
    with pytest.raises(ValueError, match=f"{name} must be a number from 0 to 1"):
        combine({name: bad})


def test_an_unknown_signal_is_refused() -> None:
    """A misspelt signal is not silently left out."""
    with pytest.raises(ValueError, match="'coherence' is no signal"):
        combine({"coherence": 0.5})


_shares = st.floats(0, 1)


@given(st.dictionaries(st.sampled_from(list(of.WEIGHTS)), _shares, min_size=1))
def test_a_combination_lies_between_its_signals(signals: dict[str, float]) -> None:
    """Neither more confident than the best signal nor less than the worst."""
    made = combine(signals)
    assert min(signals.values()) - 1e-9 <= made.value <= max(signals.values()) + 1e-9
    assert made.signals == signals


# --- synthesis ------------------------------------------------------------------------------------------------------


def test_weighted_is_the_default() -> None:
    """Most confident answer, confidence weighted by itself; one doubtful result flags the whole."""
    made = synthesize([SubcallResult("A", 0.9, 0.01), SubcallResult("A", 0.85, 0.01), SubcallResult("U", 0.2, 0.01)])
    assert (made.content, made.strategy, made.low_confidence) == ("A", WEIGHTED, True)
    assert made.confidence == pytest.approx(0.8064, abs=1e-4)
    assert made.cost_usd == pytest.approx(0.03)


def test_equal_answers_outvote_a_more_confident_one() -> None:
    """Weighted sums the confidence of equal answers, however they are written, in the best one's words."""
    made = synthesize(
        [SubcallResult("No.", 0.9), *[SubcallResult(text, 0.8) for text in ("yes", "Yes!", " YES ", '"yes"', "yes.")]]
    )
    assert made.content == "yes"
    assert synthesize([SubcallResult("No", 0.9), SubcallResult("yes", 0.4), SubcallResult("Yes", 0.5)]).content == "No"
    assert (
        synthesize([SubcallResult("No", 0.9), SubcallResult("yes", 0.45), SubcallResult("Yes.", 0.5)]).content == "Yes."
    )


@pytest.mark.parametrize(
    ("one", "other", "equal"),
    [
        ("The answer is 42.", "the answer  is: 42", True),
        ("U.S.A.", "usa", True),
        ("don't", "don’t", True),
        ("1,000", "1000", True),
        ("twenty-one", "Twenty one", True),
        ("**Paris**", "(paris)", True),
        ("Straße", "STRASSE", True),
        ("-3", "3", False),
        ("3.5", "35", False),
        ("3.5", "3,5", False),
        ("50%", "50", False),
        ("C++", "C", False),
        ("10:30", "1030", False),
        ("!", "?", False),
        ("", "...", False),
    ],
)
def test_answers_are_equal_but_for_case_space_and_punctuation(one: str, other: str, equal: bool) -> None:
    """What changes a number or a name is not mere punctuation."""
    assert (of.same_answer(one) == of.same_answer(other)) is equal
    assert of.self_consistency([one, other]) == (1.0 if equal else 0.5)


def test_differently_written_answers_agree() -> None:
    """For a consensus, and where the other answers are listed."""
    results = [
        SubcallResult("Paris.", 0.8),
        SubcallResult("paris", 0.7),
        SubcallResult("Rome", 0.75),
        SubcallResult("rome!", 0.6),
    ]
    made = synthesize([*results, SubcallResult("PARIS", 0.5)], CONSENSUS)
    assert (made.content, made.consensus, made.confidence) == ("Paris.", True, pytest.approx(2 / 3))
    assert synthesize(results, DIVERSE).alternatives == ("Rome",)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -0.01])
def test_a_cost_that_is_no_amount_of_money_is_refused(bad: float) -> None:
    """A sum with NaN in it would hide what all others have cost."""
    with pytest.raises(ValueError, match="cost_usd must be a number from 0"):
        synthesize([SubcallResult("A", 0.5, bad)])


def test_consensus_is_what_most_confident_results_say() -> None:
    """Results below one half have no vote; 0.3 itself is not low."""
    made = synthesize([SubcallResult("A", 0.8), SubcallResult("A", 0.75), SubcallResult("D", 0.3)], CONSENSUS)
    assert (made.content, made.consensus, made.low_confidence) == ("A", True, False)
    assert made.confidence == pytest.approx(0.775)


@pytest.mark.parametrize(
    "results",
    [
        [SubcallResult("A", 0.4), SubcallResult("B", 0.2)],
        [SubcallResult("A", 0.9), SubcallResult("B", 0.8)],
        [SubcallResult("A", 0.9), SubcallResult("A", 0.4), SubcallResult("B", 0.8)],
    ],
)
def test_no_consensus_is_reported_as_none(results: list[SubcallResult]) -> None:
    """The most confident answer, and that nobody agreed on it."""
    made = synthesize(results, CONSENSUS)
    assert (made.content, made.consensus) == ("A", False)


def test_diverse_presents_the_disagreement() -> None:
    """Every other answer once, most confident first."""
    results = [
        SubcallResult("A", 0.9),
        SubcallResult("C", 0.4),
        SubcallResult("B", 0.6),
        SubcallResult("A", 0.5),
        SubcallResult("B", 0.55),
    ]
    made = synthesize(results, DIVERSE)
    assert (made.content, made.confidence, made.alternatives) == ("A", 0.9, ("B", "C"))


@pytest.mark.parametrize("strategy", list(SynthesisStrategy))
def test_nothing_gives_nothing(strategy: SynthesisStrategy) -> None:
    """No results: an empty answer in which nobody has confidence."""
    made = synthesize([], strategy)
    assert (made.content, made.confidence, made.low_confidence) == ("", 0.0, True)


@pytest.mark.parametrize("strategy", list(SynthesisStrategy))
@pytest.mark.parametrize("bad", BAD_SHARES)
def test_a_result_that_is_no_share_is_refused(strategy: SynthesisStrategy, bad: Any) -> None:
    """A confidence of 1.7 or NaN does not get into an answer."""
    with pytest.raises(ValueError, match="confidence must be a number from 0 to 1"):
        synthesize([SubcallResult("A", 0.5), SubcallResult("B", bad)], strategy)


@given(st.lists(st.tuples(st.sampled_from("ABC"), _shares), min_size=1, max_size=8), st.sampled_from(SynthesisStrategy))
def test_a_synthesis_is_no_better_than_its_best_result(
    results: list[tuple[str, float]], strategy: SynthesisStrategy
) -> None:
    """Its answer was given by somebody, and its confidence lies between theirs."""
    made = synthesize([SubcallResult(*result) for result in results], strategy)
    shares = [share for _, share in results]
    assert made.content in {content for content, _ in results}
    assert 0 <= made.confidence <= max(shares) + 1e-9
    assert made.low_confidence == any(share < 0.3 for share in shares)
    assert made.content not in made.alternatives


# --- the flag -------------------------------------------------------------------------------------------------------


def synthesized(
    confidence: float, *, results: list[dict[str, Any]] | None = None, rules: Rules | None = None, **fields: Any
) -> list[dict[str, Any]]:
    """What is flagged after a synthesis."""
    story = Story(rules=rules)
    story.event("synthesis.completed", strategy="weighted", confidence=confidence, results=results, **fields)
    return story.all("confidence.low")


@pytest.mark.parametrize(("confidence", "flagged"), [(0.0, True), (0.2999, True), (0.3, False), (0.31, False)])
def test_below_three_tenths_is_flagged(confidence: float, flagged: bool) -> None:
    """Strictly below: the threshold itself is good enough."""
    assert bool(synthesized(confidence)) is flagged


def test_a_doubtful_result_that_was_used_is_flagged() -> None:
    """A good average must not hide it; one that was left out does no harm."""
    results = [{"confidence": 0.9, "included": True}, {"confidence": 0.2}, {"confidence": 0.1, "included": False}]
    [flag] = synthesized(0.8, results=results)
    assert (flag["confidence"], flag["threshold"], flag["strategy"]) == (0.2, 0.3, "weighted")
    assert flag["message"] == "1 of 2 results that went into it should be reviewed: confidence 20%, below 30%"
    assert synthesized(0.8, results=results[2:]) == []


def test_the_flag_reports_the_signals() -> None:
    """What the publisher gave, and how the session's own calls went."""
    story = Story().works("read_file", times=3).fails("read_file", {"n": 2}).fails("bash", status="cancelled")
    story.event("synthesis.completed", strategy="consensus", confidence=0.1, signals={"self_consistency": 0.2})
    flag = story.decided("confidence.low")
    assert flag["signals"] == {"self_consistency": 0.2, "tool_success": 0.75}
    assert [(one.topic, one.key) for one in story.outputs if one.type == "confidence.low"] == [("suggestions", "s1")]


def test_the_publishers_own_tool_success_wins() -> None:
    """It knows its recursive calls better than the session's count does."""
    story = Story().works("read_file", times=3)
    story.event("synthesis.completed", strategy="weighted", confidence=0.1, signals={"tool_success": 0.5})
    assert story.decided("confidence.low")["signals"] == {"tool_success": 0.5}


def test_the_threshold_is_a_rule() -> None:
    """An operator may want to see more."""
    assert len(synthesized(0.5, rules=Rules(confidence=ConfidenceRules(low=0.6)))) == 1
    assert synthesized(0.1, rules=Rules(confidence=ConfidenceRules(low=0.0))) == []


@pytest.mark.parametrize("bad", [1.7, -0.1])
def test_a_confidence_out_of_range_is_a_dead_letter(bad: float) -> None:
    """Refused on arrival, with the path of the fault."""
    with pytest.raises(AssertionError, match=r"\$.confidence"):
        synthesized(bad)


def test_of_several_doubtful_results_the_least_sure_is_told() -> None:
    """The flag names the confidence that needs a look first."""
    [flag] = synthesized(0.8, results=[{"confidence": 0.25}, {"confidence": 0.1}, {"confidence": 0.9}])
    assert flag["confidence"] == 0.1
    assert flag["message"].startswith("2 of 3 results")


def test_first_hand_sources_are_the_most_reliable() -> None:
    """Documentation, code and standards come before what is written about them, and all are between 0 and 1."""
    reliable = {kind: of.source_reliability([kind]) for kind in of.SOURCES}
    assert all(0 < value < 1 for value in reliable.values())
    best = [kind for kind, value in reliable.items() if value == max(reliable.values())]
    assert best == ["official_docs", "source_code", "standard"]
