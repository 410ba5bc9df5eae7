"""State of a user's tool over all workspaces, or of a model over all sessions. Bounded; fields are only appended."""

from __future__ import annotations

import msgspec

from ...schemas.vocabulary import TrustState
from ..stage import KeyState

MAX_PLACES = 64
"""Workspaces kept per user and tool; beyond that the least recently updated one is dropped."""


class Place(msgspec.Struct, array_like=True):
    """Workspace in which the tool is not trusted.

    Attributes:
        calls: calls in the window, as last reported.
        failures: of these, the failed ones.
        told_at: time of that report, milliseconds.
        cause: id of the causing input event.
    """

    calls: int
    failures: int
    told_at: int
    cause: str


class UserTrust(msgspec.Struct, array_like=True):
    """A user's trust in one tool over all workspaces.

    Attributes:
        state: trusted or escalated.
        places: untrusted workspaces, by id.
        escalated_at: start of the escalation, milliseconds.
        expires_at: expiry of the escalation, milliseconds.
        watermark: reports up to this time count for no further promotion, as an escalation by them has expired.
    """

    user_id: str
    tool_name: str
    state: TrustState = TrustState.TRUSTED
    places: dict[str, Place] = {}
    escalated_at: int = 0
    expires_at: int = 0
    watermark: int = 0


class ModelProfile(msgspec.Struct, array_like=True):
    """Counts of a model's behaviour.

    Attributes:
        pattern_counts: streaks detected, by pattern.
        false_alarms: nudges reported as false alarms, by pattern.
        nudges_judged: nudges with a verdict; -1: an older snapshot, in which all sent ones count as judged.
        told_turns: turns in the published profile.
        told_news: sum of all other counts in the published profile.
    """

    model: str
    turns: int = 0
    stalled_turns: int = 0
    pattern_counts: dict[str, int] = {}
    nudges_sent: int = 0
    nudges_effective: int = 0
    false_alarms: dict[str, int] = {}
    told_turns: int = 0
    told_news: int = 0
    nudges_judged: int = -1


class FleetState(KeyState):
    """State of one key of the fleet stage.

    Attributes:
        origins: origin of the last folded standing, per source topic and partition of the writing stage.
        user: set where the key is a user's tool.
        model: set where the key is a model.
    """

    origins: dict[str, int] = {}
    user: UserTrust | None = None
    model: ModelProfile | None = None
