"""Behavioural profile of a model over all sessions (docs/design/semantics.md#models).

The numbers are sums, so they do not depend on the order of sessions. The profile is published for each of the first
forty changes, and then whenever turns or the sum of the other counts have grown by a twentieth: a follower is never
more than five per cent behind, and a million turns give some 250 records.
"""

from __future__ import annotations

from ...schemas.standings import ModelBehaved
from .state import ModelProfile

PART = 20
"""A profile is published again when a count has grown by one part in this many."""


def count(profile: ModelProfile, behaved: ModelBehaved) -> None:
    """Add the counts of a session's record."""
    if profile.nudges_judged < 0:
        profile.nudges_judged = profile.nudges_sent
    profile.nudges_judged += behaved.nudges_judged
    profile.turns += behaved.turns
    profile.stalled_turns += behaved.stalled_turns
    profile.nudges_sent += behaved.nudges_sent
    profile.nudges_effective += behaved.nudges_effective
    for counts, pattern in (
        (profile.pattern_counts, behaved.pattern),
        (profile.false_alarms, behaved.false_alarm),
    ):
        if pattern is not None:
            counts[str(pattern)] = counts.get(str(pattern), 0) + 1


def is_worth_telling(profile: ModelProfile) -> bool:
    """Whether the profile has grown enough since it was published."""
    return _grown(profile.turns, profile.told_turns) or _grown(_news(profile), profile.told_news)


def note_published(profile: ModelProfile) -> None:
    """Store the published counts."""
    profile.told_turns, profile.told_news = profile.turns, _news(profile)


def _news(profile: ModelProfile) -> int:
    return (
        profile.stalled_turns
        + sum(profile.pattern_counts.values())
        + profile.nudges_sent
        + max(0, profile.nudges_judged)
        + sum(profile.false_alarms.values())
    )


def _grown(count_now: int, told: int) -> bool:
    return count_now - told >= max(1, told // PART)


def stall_rate(profile: ModelProfile) -> float | None:
    """Return stalled turns by turns; None before the first turn."""
    return profile.stalled_turns / profile.turns if profile.turns else None


def nudge_effectiveness(profile: ModelProfile) -> float | None:
    """Return nudges that helped by nudges judged; None before the first."""
    judged = profile.nudges_judged if profile.nudges_judged >= 0 else profile.nudges_sent
    return profile.nudges_effective / judged if judged else None


def most_common_pattern(profile: ModelProfile) -> str | None:
    """Return the most frequent pattern, of equal ones the first by name; None without any."""
    counts = profile.pattern_counts
    return min(counts, key=lambda name: (-counts[name], name), default=None)
