"""What the backends with a network do with what they read."""

from __future__ import annotations

from ...schemas.codec import decode_decision
from ...schemas.errors import EventRejected
from ..state_cache import StateView
from .base import Decisions

FOLLOWED = ("state", "nudges", "suggestions")
"""Topics a guard reads; a platform needs no more rights than these and Write on `events` (design 2, Topics)."""


def take(topic: str, key: str, value: bytes | None, view: StateView, decisions: Decisions) -> None:
    """Take up one record of a followed topic; what this version cannot read is left to newer ones."""
    if topic == "state":
        view.apply(key, value)
        return
    if value is None:
        return
    try:
        decision = decode_decision(value)
    except EventRejected:
        return
    decisions.tell(decision)
