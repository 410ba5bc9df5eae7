"""What is remembered of a tool's quality. Bounded; fields are only ever appended."""

from __future__ import annotations

import msgspec

MAX_SCENARIOS = 16
"""Scenarios remembered in which a tool has failed; the longest past one goes first."""

MAX_WORDS = 32
"""Words watched or tagged per tool; the one that failed longest ago goes first."""


class FailedScenario(msgspec.Struct, array_like=True):
    """What a tool was used for when it last failed at that, and when (ms)."""

    text: str
    at: int


class WordRecord(msgspec.Struct, array_like=True):
    """How often a tool failed at scenarios with a word.

    Attributes:
        failures: capability failures.
        until: time (ms) up to which they count, and up to which a tag holds.
    """

    failures: int
    until: int


class QualityRecord(msgspec.Struct, array_like=True):
    """How well one tool does what it is for.

    Attributes:
        score: 0 to 1.
        failures: counted failures since it last stood at its registered score; sets the surcharge.
        raised: the score an operator registered it with anew; 0: that of the rules holds.
        words: content words of failed scenarios.
        scenarios: scenarios it has failed in, oldest first.
        last_failed: time (ms) of the last counted failure.
        told: score that followers know.
        published: a state record stands on the `state` topic.
        missed: latest calls in a row that did not reach the tool, as far as they matter.
        missed_at: time (ms) of the last of them.
        down_told: time (ms) until which followers take the tool for unavailable; 0 they do not.
    """

    score: float
    failures: int = 0
    raised: float = 0.0
    words: dict[str, WordRecord] = {}
    scenarios: list[FailedScenario] = []
    last_failed: int = 0
    told: float = 0.0
    published: bool = False
    missed: int = 0
    missed_at: int = 0
    down_told: int = 0
