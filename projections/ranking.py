"""Ranking tools for a scenario: similarity, less what was failed before, times quality.

See docs/design/semantics.md#tool-quality.

Pure: whoever ranks brings the scenario, the tools, the public quality states and a similarity.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from math import isfinite, sqrt
from typing import NamedTuple, Protocol

from rapidfuzz.distance import JaroWinkler

from ..rules.rules import QualityRules
from ..schemas.public_state import BreakerUpdated, QualityUpdated, StateUpdated
from ..schemas.vocabulary import BreakerMode, BreakerState
from .calls.keys import escape, mcp_server
from .scenario import TAG_PREFIX, content_words, name_words

DAY_S = 86_400.0


class Similarity(Protocol):
    """How alike texts are in meaning."""

    def scores(self, text: str, others: Sequence[str]) -> Sequence[float]:
        """Similarity of a text with each of the others, in their order, 0 to 1."""


class LexicalSimilarity:
    """Shared words, forgiving inflection: the default, which needs no model.

    Sørensen-Dice over content words; two words match when their Jaro-Winkler similarity reaches `same_word`.
    """

    def __init__(self, same_word: float = 0.9) -> None:
        """Take words for the same from this similarity on, 0 to 1."""
        self.same_word = same_word

    def scores(self, text: str, others: Sequence[str]) -> list[float]:
        """Similarity of a text with each of the others, 0 to 1; a text without content words is like none."""
        words = content_words(text)
        return [self._alike(words, content_words(other)) for other in others]

    def _alike(self, words: Sequence[str], others: Sequence[str]) -> float:
        pairs = (
            (-closeness, *sorted((word, other)), word, other)
            for word in words
            for other in others
            if (closeness := JaroWinkler.similarity(word, other)) >= self.same_word
        )
        left, right = set(words), set(others)
        shared = 0
        for *_, word, other in sorted(pairs):  # the closest first, in an order that is the same from both sides
            if word in left and other in right:
                left.remove(word)
                right.remove(other)
                shared += 1
        return 2 * shared / (len(words) + len(others)) if shared else 0.0


class EmbeddingSimilarity:
    """Cosine of sentence embeddings, for whoever has a model; negative ones count as 0."""

    def __init__(self, encode: Callable[[list[str]], Sequence[Sequence[float]]]) -> None:
        """Use a function that gives each text a vector, such as `SentenceTransformer(...).encode`."""
        self._encode = encode

    def scores(self, text: str, others: Sequence[str]) -> list[float]:
        """Similarity of a text with each of the others, 0 to 1."""
        if not others:
            return []
        first, *rest = ([float(value) for value in vector] for vector in self._encode([text, *others]))
        return [_cosine(first, other) for other in rest]


def _cosine(one: Sequence[float], other: Sequence[float]) -> float:
    lengths = sqrt(sum(value * value for value in one)) * sqrt(sum(value * value for value in other))
    cosine = sum(a * b for a, b in zip(one, other, strict=True)) / lengths if lengths else 0.0
    return min(1.0, max(0.0, cosine)) if isfinite(cosine) else 0.0


class Candidate(NamedTuple):
    """A tool that may serve.

    Attributes:
        name: its name.
        about: what it is for, in words; empty stands for the words of the name.
        service: the service behind it, whose circuit counts for the tool; empty: that of the tool's name.
    """

    name: str
    about: str = ""
    service: str = ""


class Ranked(NamedTuple):
    """One tool's place, and what led to it.

    Attributes:
        tool: its name.
        rank: max(0, similarity − demotion) × quality.
        similarity: of the scenario and what the tool is for, 0 to 1.
        demotion: what a past failure of a similar scenario takes off, halved with each half-life of its age.
        quality: score, 0 to 1.
        failed_at: that scenario; empty if there is none.
        tag: tag by which the tool ranks behind those without one; empty if there is none.
        available: False: its circuit is open, or its latest calls did not reach it; it ranks behind those that work.
    """

    tool: str
    rank: float
    similarity: float
    demotion: float
    quality: float
    failed_at: str = ""
    tag: str = ""
    available: bool = True


def rank_tools(
    scenario: str,
    tools: Sequence[Candidate],
    states: Iterable[StateUpdated],
    now: datetime,
    rules: QualityRules,
    similarity: Similarity | None = None,
) -> list[Ranked]:
    """Tools for a scenario, best first; tools that are alike come in the order they were given.

    First the tools that work and that no tag speaks against, by rank; then the tagged ones; last those that are down. A
    tag or a demotion puts a tool behind others and never takes it off the list.

    Args:
        scenario: what is to be done, in words.
        tools: what there is to choose from.
        states: public states of one workspace: of quality, where a tool without one stands at its registered score, and
            of circuits.
        now: for the age of failures and tags; with its offset.
        rules: registered scores, and what failures take off.
        similarity: how alike texts are; by default their words.
    """
    states = list(states)
    circuits = {state.key for state in states if isinstance(state, BreakerUpdated) and _is_open(state, now)}
    if similarity is None:
        similarity = LexicalSimilarity()
    known = {state.key: state for state in states if isinstance(state, QualityUpdated)}
    texts = [tool.about or " ".join(name_words(tool.name)) for tool in tools]
    alike = similarity.scores(scenario, texts)
    ranked = []
    for (tool, _, of_service), closeness in zip(tools, alike, strict=True):
        state = known.get(tool)
        quality, tag, failed_at, demotion = _registered(tool, rules), "", "", 0.0
        service = of_service or mcp_server(tool)
        available = circuits.isdisjoint((f"tool:{tool}", f"service:{escape(service)}"))
        if state is not None:
            quality = quality if state.score is None else state.score
            tag = _not_for(scenario, state, now)
            available = available and not _lasts(state.unavailable_until, now)
            failed_at, demotion = _demotion(scenario, state, now, rules, similarity)
        rank = max(0.0, closeness - demotion) * quality
        ranked.append(Ranked(tool, rank, closeness, demotion, quality, failed_at, tag, available))
    return sorted(ranked, key=lambda one: (not one.similarity, not one.available, bool(one.tag), -one.rank))


def _is_open(state: BreakerUpdated, now: datetime) -> bool:
    """Whether a circuit refuses calls now."""
    if state.mode not in {None, BreakerMode.ENFORCE}:
        return False
    forced = state.state == BreakerState.FORCED_OPEN
    return (forced and state.open_until is None) or (
        (forced or state.state == BreakerState.OPEN) and _lasts(state.open_until, now)
    )


def _lasts(until: str | None, now: datetime) -> bool:
    return until is not None and datetime.fromisoformat(until) > now


def _registered(tool: str, rules: QualityRules) -> float:
    registered = rules.tools.get(tool)
    return registered.score if registered is not None else rules.registered_score


def _not_for(scenario: str, state: QualityUpdated, now: datetime) -> str:
    words = content_words(scenario)
    for tag in state.tags:
        expires = state.tags_expire_at.get(tag)
        if tag.removeprefix(TAG_PREFIX) in words and (expires is None or datetime.fromisoformat(expires) > now):
            return tag
    return ""


def _demotion(
    scenario: str, state: QualityUpdated, now: datetime, rules: QualityRules, similarity: Similarity
) -> tuple[str, float]:
    """The past failure that weighs most against a scenario, and how much."""
    failed = list(state.failed_scenarios)
    worst, most = "", 0.0
    for text, closeness in zip(failed, similarity.scores(scenario, failed), strict=True):
        if closeness < rules.similar:
            continue
        age_s = max(0.0, (now - datetime.fromisoformat(state.failed_scenarios[text])).total_seconds())
        weight = rules.demotion * 0.5 ** (age_s / (rules.half_life_days * DAY_S))
        if weight > most:
            worst, most = text, weight
    return worst, most
