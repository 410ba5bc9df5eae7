"""Ranking tools for a scenario by similarity, past failures and quality (docs/design/semantics.md#tool-quality)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from fixed_rules import QualityRules, RegisteredTool
from hypothesis import given
from hypothesis import strategies as st
from story import Story
from trustfold.projections.ranking import EmbeddingSimilarity, LexicalSimilarity, RankCandidate, ToolRank, rank_tools
from trustfold.schemas.codec import rfc3339
from trustfold.schemas.public_state import BreakerUpdated, QualityUpdated, StateUpdated, public_state

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
WISH = "translate english to french"
TOOLS = {
    "nmt_translator": "translate text between english and french",
    "google_translate": "translate english text to french or german",
    "offline_translator": "translate english french offline",
    "calculator": "add and multiply numbers",
}


def state(
    tool: str, score: float = 0.9, *, failed: dict[str, float] | None = None, tags: dict[str, float] | None = None
) -> QualityUpdated:
    """A public quality state; scenarios by days since they failed, tags by days until they expire."""
    return QualityUpdated(
        schema_version="1.0",
        id="1",
        time=rfc3339(0),
        kind="quality",
        key=tool,
        score=score,
        failed_scenarios={text: (NOW - timedelta(days=days)).isoformat() for text, days in (failed or {}).items()},
        tags=tuple(tags or ()),
        tags_expire_at={tag: (NOW + timedelta(days=days)).isoformat() for tag, days in (tags or {}).items()},
    )


def rank(scenario: str, tools: dict[str, str], states: Sequence[StateUpdated], **options: Any) -> list[ToolRank]:
    """Tools, by name and what they are for, in the order in which they serve."""
    services = options.pop("services", {})
    candidates = [RankCandidate(name, about, services.get(name, "")) for name, about in tools.items()]
    rules, now = options.pop("rules", QualityRules()), options.pop("now", NOW)
    return rank_tools(scenario, candidates, states, now, rules, **options)


def order(*states: StateUpdated, scenario: str = WISH, rules: QualityRules | None = None) -> list[str]:
    """Tools with a rank, best first."""
    return [one.tool for one in rank(scenario, TOOLS, states, rules=rules or QualityRules()) if one.rank]


def test_what_a_tool_is_for_decides_first() -> None:
    """A calculator does not translate, whatever its quality."""
    assert set(order(state("calculator", 1.0))) == {"nmt_translator", "google_translate", "offline_translator"}


def test_the_rank_is_similarity_less_demotion_times_quality() -> None:
    """The formula, with every part reported."""
    tools = {"offline_translator": WISH}
    [one] = rank(WISH, tools, [state("offline_translator", 0.8, failed={WISH: 0})])
    assert (one.similarity, one.demotion, one.quality, one.failed_at) == (1.0, 0.3, 0.8, WISH)
    assert one.rank == pytest.approx(0.56)


def test_a_tool_that_failed_here_comes_after_one_that_did_not() -> None:
    """The offline translator is learned to be the best."""
    failed = {WISH: 0.0}
    learned = order(state("nmt_translator", 0.8, failed=failed), state("google_translate", 0.89, failed=failed))
    assert learned[0] == "offline_translator"


@pytest.mark.parametrize(("days", "demotion"), [(0, 0.3), (30, 0.15), (60, 0.075), (-5, 0.3)])
def test_a_failure_weighs_half_as_much_every_thirty_days(days: float, demotion: float) -> None:
    """Old failures fade; one from the future counts as fresh."""
    [one] = rank(WISH, {"t": WISH}, [state("t", failed={WISH: days})])
    assert one.demotion == pytest.approx(demotion)


@pytest.mark.parametrize(
    ("failed", "counts"),
    [
        ("translate english text to french", True),
        ("translating English to French, please", True),
        ("translate english to german", False),
        ("summarize french text", False),
    ],
)
def test_only_similar_failures_count(failed: str, counts: bool) -> None:
    """Similar from 0.75 on; another language is another scenario."""
    [one] = rank(WISH, {"t": WISH}, [state("t", failed={failed: 0})])
    assert (one.demotion > 0) is counts


def test_a_demotion_never_makes_a_rank_negative() -> None:
    """A weak match that failed before is worth nothing, not less."""
    tools = {"t": "french cooking recipes for beginners"}
    [one] = rank(WISH, tools, [state("t", failed={WISH: 0})])
    assert 0 < one.similarity < 0.3
    assert one.rank == 0.0


@pytest.mark.parametrize(
    ("tags", "behind"),
    [({"not-for-french": 5}, True), ({"not-for-french": -1}, False), ({"not-for-german": 5}, False)],
)
def test_a_tagged_tool_ranks_behind_while_the_tag_lasts(tags: dict[str, float], behind: bool) -> None:
    """A tool that a tag speaks against comes after those that none speaks against, and says why."""
    ranked = rank(WISH, TOOLS, [state("offline_translator", 1.0, tags=tags)])
    fitting = [one for one in ranked if one.similarity]
    [one] = [one for one in ranked if one.tool == "offline_translator"]
    assert (fitting[-1] is one) is behind
    assert one.tag == ("not-for-french" if behind else "")


def test_tags_and_demotions_leave_a_candidate() -> None:
    """Where every tool is tagged or has failed, the best of them is still the first."""
    tools = {"a": WISH, "b": "translate words"}
    states = [
        state("a", 0.5, tags={"not-for-french": 5}, failed={WISH: 0}),
        state("b", 0.9, tags={"not-for-french": 5}, failed={WISH: 0}),
    ]
    ranked = rank(WISH, tools, states)
    assert [one.tool for one in ranked if one.similarity] == ["a", "b"]
    assert ranked[0].rank > 0


def circuit(key: str, standing: str = "open", minutes: float = 5, mode: str = "enforce") -> BreakerUpdated:
    """A public state of a circuit, open for so many minutes from now."""
    until = (NOW + timedelta(minutes=minutes)).isoformat()
    fields: dict[str, Any] = {"kind": "breaker", "key": key, "state": standing, "open_until": until, "mode": mode}
    return BreakerUpdated(schema_version="1.0", id="1", time=rfc3339(0), **fields)


@pytest.mark.parametrize(
    ("down", "behind"),
    [
        (circuit("tool:a"), True),
        (circuit("tool:a", "forced_open"), True),
        (circuit("service:crm"), True),
        (circuit("service:other"), False),
        (circuit("tool:a", minutes=-1), False),
        (circuit("tool:a", "half_open"), False),
        (circuit("tool:a", mode="observe"), False),
        (msgspec.structs.replace(state("a"), unavailable_until=(NOW + timedelta(minutes=1)).isoformat()), True),
        (msgspec.structs.replace(state("a"), unavailable_until=(NOW - timedelta(minutes=1)).isoformat()), False),
    ],
)
def test_a_tool_that_is_down_ranks_behind_one_that_works(down: StateUpdated, behind: bool) -> None:
    """Even behind one with a tag or a worse score; and it stays a candidate."""
    tools = {"a": WISH, "b": WISH}
    other = state("b", 0.1, tags={"not-for-french": 5} if behind else None)
    ranked = rank(WISH, tools, [down, other], services={"a": "crm"})
    assert [(one.tool, one.available) for one in ranked] == ([("b", True), ("a", False)] if behind else [
        ("a", True), ("b", True),
    ])  # fmt: skip
    assert all(one.rank > 0 for one in ranked)


def test_a_tool_without_a_state_has_its_registered_score() -> None:
    """0.90 unless the rules say otherwise; zero is a score, not an absence of one."""
    rules = QualityRules(tools={"b": RegisteredTool(score=0.5)})
    tools = dict.fromkeys(("a", "b", "c"), WISH)
    ranked = rank(WISH, tools, [state("c", 0.0)], rules=rules)
    assert [(one.tool, one.quality, one.rank) for one in ranked] == [("a", 0.9, 0.9), ("b", 0.5, 0.5), ("c", 0.0, 0.0)]


def test_a_tool_without_a_description_is_known_by_its_name() -> None:
    """The words of a name say something too."""
    ranked = rank("parse csv", {"csv_parser": "", "http_request": ""}, [])
    assert [one.tool for one in ranked if one.rank] == ["csv_parser"]


def test_what_the_fold_publishes_can_be_rank() -> None:
    """From a story's marks, through the state topic, to an order of tools."""
    story = Story()
    story.quality_command("quality.mark", "nmt_translator", scenario=WISH, error_message="API key missing")
    published = story.state_of("quality", "nmt_translator")
    assert published is not None
    tools = {"nmt_translator": WISH, "offline_translator": WISH}
    learned = rank(WISH, tools, [public_state(published)], now=story.now)
    assert [one.tool for one in learned] == ["offline_translator", "nmt_translator"]
    assert learned[1].rank == pytest.approx((1 - 0.3) * 0.85)


_words = st.lists(
    st.sampled_from(["translate", "translates", "translated", "parse", "parser", "parses", "to", "naïve"]), max_size=6
)
_texts = _words.map(" ".join)


@given(_texts, st.lists(_texts, max_size=4))
def test_lexical_similarity_is_symmetric_and_bounded(text: str, others: list[str]) -> None:
    """Between 0 and 1, the same from both sides, and 1 for a text with itself."""
    lexical = LexicalSimilarity()
    scores = lexical.scores(text, others)
    assert len(scores) == len(others)
    for other, score in zip(others, scores, strict=True):
        assert 0 <= score <= 1
        assert lexical.scores(other, [text]) == [score]
    assert lexical.scores("translate french", ["translate french"]) == [1.0]


@given(_texts, _texts, st.floats(0, 1), st.floats(0, 2000))
def test_a_rank_is_between_nothing_and_the_quality(wish: str, failed: str, score: float, days: float) -> None:
    """Whatever the scenario, the failures and the score."""
    [one] = rank(wish, {"t": "translate csv"}, [state("t", score, failed={failed: days})])
    assert 0 <= one.rank <= score
    assert 0 <= one.demotion <= 0.3


def test_embeddings_compare_by_cosine() -> None:
    """Any function from texts to vectors will do; opposite meanings count as unlike, not as negative."""
    vectors = {"a": [1.0, 0.0], "same": [3.0, 0.0], "half": [1.0, 1.0], "none": [0.0, 2.0], "anti": [-1.0, 0.0]}
    similarity = EmbeddingSimilarity(lambda texts: [vectors.get(text, [0.0, 0.0]) for text in texts])
    scores = similarity.scores("a", ["same", "half", "none", "anti", "unknown"])
    assert scores == pytest.approx([1.0, 0.7071, 0.0, 0.0, 0.0], abs=1e-4)
    assert similarity.scores("a", []) == []


def test_a_similarity_of_ones_own_is_used_throughout() -> None:
    """For the tools and for the failed scenarios alike."""

    class Everything:
        """All texts are the same."""

        def scores(self, text: str, others: Any) -> list[float]:
            """One for each."""
            return [1.0 for _ in others]

    states = [state("calculator", 1.0, failed={"anything": 0})]
    ranked = rank(WISH, TOOLS, states, similarity=Everything())
    assert {one.tool: one.demotion for one in ranked if one.demotion} == {"calculator": 0.3}
