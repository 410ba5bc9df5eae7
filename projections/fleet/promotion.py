"""Promotion: a tool that fails in several workspaces of one user loses that user's trust everywhere.

Theory of operation (docs/design/semantics.md#promotion). Each workspace in which the tool is not trusted is stored with
its latest reported calls and failures. Enough such workspaces with a high enough mean share of failed calls escalate
the tool for the user. It is demoted when too few workspaces are left or the mean has fallen below a lower bound, and in
any case when it expires; reports from before an expiry promote nothing again.

The transitions are in the table below; nothing else changes the state.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ...rules.rules import FleetRules
from ...schemas.standings import ToolStanding
from ...schemas.vocabulary import TrustState, TrustTrigger
from .fleet_state import MAX_PLACES, DistrustedWorkspace, UserTrust

_TOLERANCE = 1e-9


_T, _E = TrustState.TRUSTED, TrustState.ESCALATED
STATES = (_T, _E)

TRANSITIONS: Mapping[tuple[TrustState, TrustTrigger], TrustState] = {
    (_T, TrustTrigger.PROMOTION): _E,
    (_E, TrustTrigger.DEMOTION): _T,
    (_E, TrustTrigger.EXPIRY): _T,
}


class UserTrustChange(NamedTuple):
    """Transition of a user's trust."""

    before: TrustState
    after: TrustState
    trigger: TrustTrigger
    at: int  # time, milliseconds
    workspaces: int  # number of workspaces that counted
    rate: float  # their mean share of failed calls, 0 to 1
    calls: int  # their calls in the window
    causes: tuple[str, ...]  # ids of the causing input events, oldest first


def add_report(record: UserTrust, standing: ToolStanding, at: int) -> None:
    """Store the tool's trust and counts in one workspace."""
    places = record.places
    places.pop(standing.workspace_id, None)
    if standing.state is _T:
        return
    places[standing.workspace_id] = DistrustedWorkspace(standing.calls, standing.failures, at, standing.cause)
    if len(places) > MAX_PLACES:
        del places[next(iter(places))]  # the first one is the least recently updated


def promote_or_demote(record: UserTrust, rules: FleetRules, at: int) -> UserTrustChange | None:
    """Promote or demote by the stored workspaces."""
    if record.state is _T:
        counting = [
            place
            for place in record.places.values()
            if place.calls >= rules.min_calls and place.reported_at > record.watermark
        ]
        if len(counting) < rules.workspaces or mean_rate(counting) <= rules.failure_rate + _TOLERANCE:
            return None
        return move(record, TrustTrigger.PROMOTION, rules, at, counting)
    counting = list(record.places.values())
    if len(counting) >= rules.workspaces and mean_rate(counting) >= rules.release_rate - _TOLERANCE:
        return None
    return move(record, TrustTrigger.DEMOTION, rules, at, counting)


def expire(record: UserTrust, rules: FleetRules, at: int) -> UserTrustChange | None:
    """End an escalation that has expired by `at`, at its own time."""
    due = due_at(record)
    if due is None or due > at:
        return None
    return move(record, TrustTrigger.EXPIRY, rules, due, list(record.places.values()))


def standing_change(record: UserTrust) -> UserTrustChange:
    """Return the promotion that a record is escalated by, with the counts of today."""
    places = list(record.places.values())
    calls, causes = sum(place.calls for place in places), tuple(place.cause for place in places)
    return UserTrustChange(
        _T, _E, TrustTrigger.PROMOTION, record.escalated_at, len(places), mean_rate(places), calls, causes
    )


def due_at(record: UserTrust) -> int | None:
    """Return when an escalation expires."""
    return record.expires_at if record.state is _E else None


def mean_rate(places: Iterable[DistrustedWorkspace]) -> float:
    """Return the mean share of failed calls over workspaces, equally weighted; 0 without one."""
    rates = [place.failures / place.calls if place.calls else 0.0 for place in places]
    return sum(rates) / len(rates) if rates else 0.0


def move(
    record: UserTrust, trigger: TrustTrigger, rules: FleetRules, at: int, counting: list[DistrustedWorkspace]
) -> UserTrustChange | None:
    """Make one transition of the table; return None if the table has none."""
    before = record.state
    after = TRANSITIONS.get((before, trigger))
    if after is None:
        return None
    record.state = after
    if after is _E:
        record.escalated_at = at
        record.expires_at = at + int(rules.duration_seconds * 1000)
    else:
        record.escalated_at = record.expires_at = 0
        if trigger is TrustTrigger.EXPIRY:
            record.watermark = at
    calls, causes = sum(place.calls for place in counting), tuple(place.cause for place in counting)
    return UserTrustChange(before, after, trigger, at, len(counting), mean_rate(counting), calls, causes)
