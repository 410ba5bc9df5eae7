"""Ranks tools for a scenario: similarity, minus past failures, times quality.

See docs/design/semantics.md#tool-quality.

Pure: the caller provides the scenario, the tools, the public quality states and a similarity.
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


class TextSimilarity(Protocol):
    """Similarity of texts in meaning."""

    def scores(self, text: str, others: Sequence[str]) -> Sequence[float]:
        """Return the similarity of a text with each of the others, in their order, 0 to 1."""


class LexicalSimilarity:
    """Similarity by shared words, tolerant of inflection; the default, which needs no model.

    Sørensen-Dice over content words; two words match when their Jaro-Winkler similarity reaches `same_word`.
    """

    def __init__(self, same_word: float = 0.9) -> None:
        """Treat words as equal from this similarity on, 0 to 1."""
        self.same_word = same_word

    def scores(self, text: str, others: Sequence[str]) -> list[float]:
        """Return the similarity of a text with each of the others, 0 to 1; 0 without content words."""
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
        for *_, word, other in sorted(pairs):  # most similar pairs first, in an order that is symmetric
            if word in left and other in right:
                left.remove(word)
                right.remove(other)
                shared += 1
        return 2 * shared / (len(words) + len(others)) if shared else 0.0


class EmbeddingSimilarity:
    """Cosine similarity of sentence embeddings, for programs with a model; negative values count as 0."""

    def __init__(self, encode: Callable[[list[str]], Sequence[Sequence[float]]]) -> None:
        """Use a function that gives each text a vector, such as `SentenceTransformer(...).encode`."""
        self._encode = encode

    def scores(self, text: str, others: Sequence[str]) -> list[float]:
        """Return the similarity of a text with each of the others, 0 to 1."""
        if not others:
            return []
        first, *rest = ([float(value) for value in vector] for vector in self._encode([text, *others]))
        return [_cosine(first, other) for other in rest]


def _cosine(one: Sequence[float], other: Sequence[float]) -> float:
    lengths = sqrt(sum(value * value for value in one)) * sqrt(sum(value * value for value in other))
    cosine = sum(a * b for a, b in zip(one, other, strict=True)) / lengths if lengths else 0.0
    return min(1.0, max(0.0, cosine)) if isfinite(cosine) else 0.0


class RankCandidate(NamedTuple):
    """Tool to rank."""

    name: str
    about: str = ""  # purpose in words; if empty, the words of the name are used
    service: str = ""  # service behind it, whose circuit counts for the tool; if empty, the service in the tool's name


class ToolRank(NamedTuple):
    """Rank of one tool, with its factors."""

    tool: str
    rank: float  # max(0, similarity − demotion) × quality
    similarity: float  # similarity of the scenario and the tool's purpose, 0 to 1
    demotion: float  # reduction by a past failure in a similar scenario, halved with each half-life of its age
    quality: float  # score, 0 to 1
    failed_at: str = ""  # that scenario; empty without one
    tag: str = ""  # tag by which the tool ranks behind those without one; empty without one
    # False: its circuit is open, or its latest calls did not reach it; it ranks behind available ones
    available: bool = True


def rank_tools(
    scenario: str,
    tools: Sequence[RankCandidate],
    states: Iterable[StateUpdated],
    now: datetime,
    rules: QualityRules,
    similarity: TextSimilarity | None = None,
) -> list[ToolRank]:
    """Rank tools for a scenario, best first; equal ones keep their given order.

    Available and untagged tools come first, by rank; then tagged ones; then unavailable ones. Tags and demotions move a
    tool back and never remove it.

    Args:
        scenario: task in words.
        tools: tools to rank.
        states: public states of one workspace: of quality, where a tool without one has its registered score, and of
            circuits.
        now: current time with offset, for the age of failures and tags.
        rules: registered scores, and what failures take off.
        similarity: similarity of texts; by default by words.
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
        quality, tag, failed_at, demotion = rules.registered(tool), "", "", 0.0
        service = of_service or mcp_server(tool)
        available = circuits.isdisjoint((f"tool:{tool}", f"service:{escape(service)}"))
        if state is not None:
            quality = quality if state.score is None else state.score
            tag = _not_for(scenario, state, now)
            available = available and not _lasts(state.unavailable_until, now)
            failed_at, demotion = _demotion(scenario, state, now, rules, similarity)
        rank = max(0.0, closeness - demotion) * quality
        ranked.append(ToolRank(tool, rank, closeness, demotion, quality, failed_at, tag, available))
    return sorted(ranked, key=lambda one: (not one.similarity, not one.available, bool(one.tag), -one.rank))


def _is_open(state: BreakerUpdated, now: datetime) -> bool:
    """Whether a circuit refuses calls at a time."""
    if state.mode not in {None, BreakerMode.ENFORCE}:
        return False
    forced = state.state == BreakerState.FORCED_OPEN
    return (forced and state.open_until is None) or (
        (forced or state.state == BreakerState.OPEN) and _lasts(state.open_until, now)
    )


def _lasts(until: str | None, now: datetime) -> bool:
    return until is not None and datetime.fromisoformat(until) > now


def _not_for(scenario: str, state: QualityUpdated, now: datetime) -> str:
    words = content_words(scenario)
    for tag in state.tags:
        expires = state.tags_expire_at.get(tag)
        if tag.removeprefix(TAG_PREFIX) in words and (expires is None or datetime.fromisoformat(expires) > now):
            return tag
    return ""


def _demotion(
    scenario: str, state: QualityUpdated, now: datetime, rules: QualityRules, similarity: TextSimilarity
) -> tuple[str, float]:
    """Return the past failure with the largest reduction for a scenario, and that reduction."""
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
