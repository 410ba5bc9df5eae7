"""State of a user's tool over all workspaces, or of a model over all sessions, and the counts of its profile.

Bounded; fields are only appended.
"""

from __future__ import annotations

import msgspec

from ...schemas.standings import ModelBehaved
from ...schemas.vocabulary import TrustState
from ..stage import KeyState

MAX_PLACES = 64  # Workspaces kept per user and tool; beyond that the least recently updated one is dropped


class DistrustedWorkspace(msgspec.Struct, array_like=True):
    """Workspace in which the tool is not trusted."""

    calls: int  # calls in the window, as last reported
    failures: int  # of these, the failed ones
    reported_at: int  # time of that report, milliseconds
    cause: str  # id of the causing input event


class UserTrust(msgspec.Struct, array_like=True):
    """A user's trust in one tool, service or command over all workspaces."""

    user_id: str
    tool_name: str
    state: TrustState = TrustState.TRUSTED  # trusted or escalated
    places: dict[str, DistrustedWorkspace] = {}  # untrusted workspaces, by id
    escalated_at: int = 0  # start of the escalation, milliseconds
    expires_at: int = 0  # expiry of the escalation, milliseconds
    watermark: int = 0  # reports up to this time count for no further promotion, as an escalation by them has expired
    subject: str = ""  # trust key of what is not a tool as a whole; empty for a tool


class BehaviourCounts(msgspec.Struct, array_like=True):
    """Counts of a model's behaviour: sums, which do not depend on the order of sessions."""

    model: str
    turns: int = 0
    stalled_turns: int = 0
    pattern_counts: dict[str, int] = {}  # streaks detected, by pattern
    nudges_sent: int = 0
    nudges_effective: int = 0
    false_alarms: dict[str, int] = {}  # nudges reported as false alarms, by pattern
    published_turns: int = 0  # turns in the published profile
    published_counts: int = 0  # sum of all other counts in the published profile
    nudges_judged: int = 0  # nudges with a verdict


class FleetState(KeyState):
    """State of one key of the fleet stage."""

    # origin of the last folded standing, per source topic and partition of the writing stage
    origins: dict[str, int] = {}
    user: UserTrust | None = None  # set where the key is a user's tool
    model: BehaviourCounts | None = None  # set where the key is a model


PART = 20
"""A profile is published again when a count has grown by one part in this many.

So it is published for each of the first forty changes, then whenever turns or the sum of the other counts have grown by
a twentieth: a follower is never more than five per cent behind, and a million turns give some 250 records.
"""


def count_behaviour(profile: BehaviourCounts, behaved: ModelBehaved) -> None:
    """Add the counts of a session's record."""
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


def is_publication_due(profile: BehaviourCounts) -> bool:
    """Whether the profile has grown enough since it was published."""
    return _grown(profile.turns, profile.published_turns) or _grown(_other_counts(profile), profile.published_counts)


def note_published(profile: BehaviourCounts) -> None:
    """Store the published counts."""
    profile.published_turns, profile.published_counts = profile.turns, _other_counts(profile)


def _other_counts(profile: BehaviourCounts) -> int:
    return (
        profile.stalled_turns
        + sum(profile.pattern_counts.values())
        + profile.nudges_sent
        + profile.nudges_judged
        + sum(profile.false_alarms.values())
    )


def _grown(count_now: int, published: int) -> bool:
    return count_now - published >= max(1, published // PART)


def stall_rate(profile: BehaviourCounts) -> float | None:
    """Return stalled turns by turns; None before the first turn."""
    return profile.stalled_turns / profile.turns if profile.turns else None


def nudge_effectiveness(profile: BehaviourCounts) -> float | None:
    """Return nudges that helped by nudges judged; None before the first."""
    return profile.nudges_effective / profile.nudges_judged if profile.nudges_judged else None


def most_common_pattern(profile: BehaviourCounts) -> str | None:
    """Return the most frequent pattern, of equal ones the first by name; None without any."""
    counts = profile.pattern_counts
    return min(counts, key=lambda name: (-counts[name], name), default=None)
