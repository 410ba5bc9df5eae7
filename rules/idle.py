"""Rules about how long states are kept that nothing happens to (docs/operating.md, Idle states)."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from .fields import RulesBase

Hours = Annotated[float, Meta(gt=0, le=87_600)]


class IdleRules(RulesBase, kw_only=True, frozen=True):
    """After how many hours without a record a state is over; the key's next record begins a new one.

    Attributes:
        session_idle_hours: of a session, by the arrival of its events. A call in flight keeps it.
        key_idle_hours: of a tool, service or model tier in a workspace, by the times of its calls and orders. Kept for
            ever is whatever is not trusted, not closed, ordered by an operator, or told to the fleet; also lowered
            quality and declined calls. Longer than every window and every outage of a worker.
        fleet_idle_hours: of a user's tool over all workspaces, and of a model's profile. Kept for ever while the tool
            is escalated or some workspace does not trust it.
    """

    session_idle_hours: Hours = 72.0
    key_idle_hours: Hours = 2160.0
    fleet_idle_hours: Hours = 2160.0
