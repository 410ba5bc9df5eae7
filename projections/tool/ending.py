"""What stands of a tool, service or tier that has not been heard of for long, and the end of what does not.

A state may be forgotten when nothing of it decides anything about a later call: its circuit is closed and enforced, all
its keys are trusted, and what it counted lies far outside every window. Profiles of models go with it: they are about
calls that nobody makes any more. What an operator ordered, what asks or stops calls, what ranks the tool below its
registered quality, and what the fleet holds against it stays, however long ago it was (docs/trust.md, Forgotten keys).
"""

from __future__ import annotations

from ...schemas.outcomes import US
from ...schemas.vocabulary import BreakerState, TrustState
from ..emit import Emitter
from ..idle import Rest
from . import models
from .state import ToolState, TrustRecord


def rest(state: ToolState) -> Rest:
    """What is left of a state, now that its key is idle."""
    circuit = state.breaker
    if circuit.state is not BreakerState.CLOSED or circuit.mode != "enforce" or circuit.lease is not None:
        return Rest.STANDS
    if any(one.state is not TrustState.TRUSTED or one.pending or one.denials for one in _records(state)):
        return Rest.STANDS
    if state.quality is not None or (state.standing is not None and state.standing.told):
        return Rest.STANDS
    if state.services:  # orders about the tool reach its keys there by this list
        return Rest.STANDS
    return Rest.TOLD if _told(state) else Rest.NOTHING


def part_with(state: ToolState, emit: Emitter) -> bool:
    """Tell followers that all a state has published is back to its default; False: something of it stands."""
    if rest(state) is Rest.STANDS:
        return False
    for key in _told(state):
        emit.tombstone("state", key)
    return True


def _records(state: ToolState) -> list[TrustRecord]:
    return [*([state.trust] if state.trust is not None else []), *state.fine.values()]


def _told(state: ToolState) -> list[str]:
    """Keys of what stands on the `state` topic; a tool as a whole and its calls without a fine key share one."""
    trusted = dict.fromkeys(f"trust:{state.workspace_id}{US}{one.key}" for one in _records(state) if one.published)
    return [*trusted, *models.told(state)]
