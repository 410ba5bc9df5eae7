"""Confidence of recursive results, and their synthesis (docs/design/semantics.md#confidence).

Pure functions over numbers and texts. Values outside 0 to 1 are rejected, including NaN.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from ..rules.rules import ConfidenceRules
from ..schemas.vocabulary import SynthesisStrategy
from .scenario import content_words

# Weight of each signal if all are present
WEIGHTS: Mapping[str, float] = {
    "self_consistency": 0.4,
    "trace_coherence": 0.2,
    "tool_success": 0.25,
    "source_reliability": 0.15,
}

# Reliability of kinds of sources, 0 to 1; an unknown kind has 0.5
SOURCES: Mapping[str, float] = {
    "official_docs": 0.9,
    "source_code": 0.9,
    "standard": 0.9,
    "paper": 0.8,
    "news": 0.6,
    "wiki": 0.6,
    "blog": 0.4,
    "forum": 0.4,
    "social_media": 0.2,
}

NO_EVIDENCE = 0.5  # Confidence without evidence

# Punctuation without which the words beside it are one: apostrophes, the commas of `1,000`, full stops
_JOINED = re.compile(r"['\u2018\u2019`\u00b4]|(?<=\d),(?=\d{3}(?!\d))|\.(?!\d)")

# Punctuation that stands for a space; a dash may be the sign of a number, comma and colon part of one
_SEPARATORS = re.compile(r"[;!?¡¿…\"“”„«»()\[\]{}*_]|[,:](?!\d)|(?<=\w)[-\u2010-\u2015]|[-\u2010-\u2015](?!\d)")

_CONNECTED = 0.25
_CONNECTIVES = re.compile(
    r"(?:then|next|after|afterwards|finally|lastly|second(?:ly)?|third(?:ly)?|so|thus|hence|therefore|consequently|"
    r"because|since|given|based on|as a result|this (?:means|shows|gives)|which means)\b",
    re.IGNORECASE,
)
_HESITATION = re.compile(
    r"\b(?:maybe|perhaps|not sure|unsure|i guess|no idea|actually,? no|wait|hmm+|contradict(?:s|ion)?|"
    r"on second thought)\b",
    re.IGNORECASE,
)


def share(value: Any, name: str = "confidence") -> float:
    """Return the value if it is from 0 to 1."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 1:
        raise ValueError(f"{name} must be a number from 0 to 1, not {value!r}")
    return float(value)


def same_answer(content: str) -> str:
    """Normalise an answer for comparison: ignores case, spacing and punctuation.

    Characters that change a number are kept (`-3`, `3.5`, `50%`), and those that are part of a name (`C++`, `C#`).
    """
    text = unicodedata.normalize("NFKC", content).casefold()
    words = _SEPARATORS.sub(" ", _JOINED.sub("", text)).split()
    return " ".join(words) or " ".join(text.split())


# --- signals --------------------------------------------------------------------------------------------------------


def self_consistency(samples: Sequence[str]) -> float:
    """Return the share of the samples that agree with the most frequent answer; 0.5 for a single sample."""
    if len(samples) < 2:
        return NO_EVIDENCE if samples else 0.0
    answers = Counter(map(same_answer, samples))
    return answers.most_common(1)[0][1] / len(samples)


def trace_coherence(trace: Sequence[str]) -> float:
    """Score the coherence of reasoning steps by their words; at most 0.75, as words are weak evidence.

    A step is connected if it begins with a connective or repeats a word of the previous step; hesitant steps lower the
    score.
    """
    if not trace:
        return 0.0
    wavering = sum(_HESITATION.search(step) is not None for step in trace) / len(trace)
    connected = sum(_is_connected(step, before) for before, step in pairwise(trace))
    return (NO_EVIDENCE + _CONNECTED * connected / max(1, len(trace) - 1)) * (1 - wavering)


def _is_connected(step: str, before: str) -> bool:
    """Whether a step begins with a connective or repeats a word of the step before it."""
    return _CONNECTIVES.match(step.lstrip()) is not None or not set(content_words(step)).isdisjoint(
        content_words(before)
    )


def tool_success(successes: int, calls: int) -> float:
    """Return the share of successful calls; 0.5 without calls."""
    if not 0 <= successes <= calls:
        raise ValueError(f"{successes} successes of {calls} calls cannot be")
    return successes / calls if calls else NO_EVIDENCE


def source_reliability(sources: Iterable[str | float], known: Mapping[str, float] = SOURCES) -> float:
    """Mean reliability of sources: kinds of source by name, or scores such as those of the quality states.

    Raises:
        ValueError: a score is not from 0 to 1.
    """
    values = [
        known.get(source, NO_EVIDENCE) if isinstance(source, str) else share(source, "reliability of a source")
        for source in sources
    ]
    return sum(values) / len(values) if values else NO_EVIDENCE


class CombinedConfidence(NamedTuple):
    """Combined confidence and its signals."""

    value: float
    signals: dict[str, float]


def combine(signals: Mapping[str, float | None]) -> CombinedConfidence:
    """Weighted mean of the signals present; 0 without any."""
    unknown = sorted(signals.keys() - WEIGHTS.keys())
    if unknown:
        raise ValueError(f"{unknown[0]!r} is no signal of confidence; there are {', '.join(WEIGHTS)}")
    present = {name: share(value, name) for name in WEIGHTS if (value := signals.get(name)) is not None}
    weight = sum(WEIGHTS[name] for name in present)
    value = sum(WEIGHTS[name] * signal for name, signal in present.items()) / weight if present else 0.0
    return CombinedConfidence(min(1.0, value), present)


# --- synthesis ------------------------------------------------------------------------------------------------------


class SubcallResult(NamedTuple):
    """One recursive result."""

    content: str
    confidence: float  # 0 to 1
    cost_usd: float = 0.0  # US dollars it cost


class SynthesizedResult(NamedTuple):
    """Several results as one."""

    content: str
    confidence: float  # 0 to 1
    strategy: SynthesisStrategy
    low_confidence: bool  # the synthesis, or one of the results, should be reviewed
    consensus: bool | None = None  # whether most of the confident results agree; None for other strategies
    alternatives: tuple[str, ...] = ()  # other answers, most confident first, for the user to decide
    cost_usd: float = 0.0  # of all results


def synthesize(
    results: Sequence[SubcallResult],
    strategy: SynthesisStrategy = SynthesisStrategy.WEIGHTED,
    rules: ConfidenceRules | None = None,
) -> SynthesizedResult:
    """Combine results; without any the answer is empty and its confidence 0.

    Equal answers count as one, in the words of the most confident of them.

    `weighted`: the answer whose results have the largest sum of confidence, so that five of 0.8 outvote one of 0.9; its
    confidence is the mean of all, weighted by itself.
    `consensus`: what most of the results agree on that reach the floor; where there is no such agreement, the most
    confident answer, and that there is none.
    `diverse`: the most confident answer and every other one.

    Raises:
        ValueError: a confidence is not from 0 to 1, or a cost is no amount of money.
    """
    rules = rules or ConfidenceRules()
    for result in results:
        share(result.confidence)
        if not 0 <= result.cost_usd < math.inf:
            raise ValueError(f"cost_usd must be a number from 0, not {result.cost_usd!r}")
    best = max(results, key=lambda result: result.confidence, default=SubcallResult("", 0.0))
    made = SynthesizedResult(
        content=best.content,
        confidence=best.confidence,
        strategy=strategy,
        low_confidence=any(result.confidence < rules.low for result in results or [best]),
        cost_usd=sum(result.cost_usd for result in results),
    )
    match strategy:
        case SynthesisStrategy.WEIGHTED:
            total = sum(result.confidence for result in results)
            squares = sum(result.confidence**2 for result in results)
            content = _heaviest(results) if total else best.content
            return made._replace(content=content, confidence=min(1.0, squares / total) if total else 0.0)
        case SynthesisStrategy.CONSENSUS:
            return _consensus(made, [result for result in results if result.confidence >= rules.consensus])
        case SynthesisStrategy.DIVERSE:
            ordered = sorted(results, key=lambda result: -result.confidence)
            others = {same_answer(result.content): result.content for result in reversed(ordered)}
            others.pop(same_answer(best.content), None)
            return made._replace(alternatives=tuple(reversed(others.values())))


def _heaviest(results: Sequence[SubcallResult]) -> str:
    """Return the answer with the largest sum of confidence; of equal sums the first one."""
    weights: dict[str, float] = {}
    for result in results:
        answer = same_answer(result.content)
        weights[answer] = weights.get(answer, 0.0) + result.confidence
    return _wording(max(weights, key=lambda answer: round(weights[answer], 9)), results)


def _wording(answer: str, results: Sequence[SubcallResult]) -> str:
    """Return an answer in the wording of its most confident result."""
    given = (result for result in results if same_answer(result.content) == answer)
    return max(given, key=lambda result: result.confidence).content


def _consensus(made: SynthesizedResult, confident: Sequence[SubcallResult]) -> SynthesizedResult:
    """Return the majority answer of the confident results, at their mean confidence.

    Else the best, without consensus.
    """
    answers = Counter(same_answer(result.content) for result in confident)
    answer, count = answers.most_common(1)[0] if answers else ("", 0)
    if 2 * count <= len(confident):
        return made._replace(consensus=False)
    agreed = [result.confidence for result in confident if same_answer(result.content) == answer]
    return made._replace(content=_wording(answer, confident), confidence=sum(agreed) / count, consensus=True)
