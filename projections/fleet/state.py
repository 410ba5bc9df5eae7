"""State of a user's tool over all workspaces, or of a model over all sessions. Bounded; fields are only appended."""

from __future__ import annotations

import msgspec

from ...schemas.vocabulary import TrustState
from ..stage import KeyState

MAX_PLACES = 64
"""Workspaces remembered per user and tool; beyond that the one not heard of for longest is forgotten."""


class Place(msgspec.Struct, array_like=True):
    """A workspace in which the tool is not trusted.

    Attributes:
        calls: calls in the window, as last told.
        failures: of these, the failed ones.
        told_at: when that was told, milliseconds.
        cause: id of the input event behind it.
    """

    calls: int
    failures: int
    told_at: int
    cause: str


class UserTrust(msgspec.Struct, array_like=True):
    """A user's trust in one tool, wherever it is called.

    Attributes:
        state: trusted or escalated.
        places: by workspace id; those in which the tool is trusted are not kept.
        escalated_at: when the escalation began, milliseconds.
        expires_at: when it ends by itself.
        watermark: what was told up to this time counts for no further promotion: an escalation over it has expired.
    """

    user_id: str
    tool_name: str
    state: TrustState = TrustState.TRUSTED
    places: dict[str, Place] = {}
    escalated_at: int = 0
    expires_at: int = 0
    watermark: int = 0


class ModelProfile(msgspec.Struct, array_like=True):
    """What a model does with its turns.

    Attributes:
        pattern_counts: streaks detected, by pattern.
        false_alarms: nudges that somebody called wrong, by pattern.
        nudges_judged: nudges judged at all; -1: an older snapshot, in which all that were sent count as judged.
        told_turns: turns that the published profile knows.
        told_news: everything else that it knows, added up.
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
    """One key of the fleet stage.

    Attributes:
        origins: per source topic and partition of whoever told, the origin of the last standing folded.
        user: set where the key is a user's tool.
        model: set where the key is a model.
    """

    origins: dict[str, int] = {}
    user: UserTrust | None = None
    model: ModelProfile | None = None
