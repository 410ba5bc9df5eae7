"""Emitter of patterns that a model showed with a tool, for the tool stage's model profiles."""

from __future__ import annotations

from collections.abc import Iterable

from ...schemas.events import ToolCallFinished
from ...schemas.outcomes import DEFAULT_WORKSPACE, OWN_MAKING, PatternSeen
from .context import Context, Sighting
from .patterns import find
from .records import OpenCall, SessionRecord
from .verdicts import Verdict


def newly_seen(state: SessionRecord, sightings: Iterable[Sighting]) -> list[Sighting]:
    """Sightings that open a streak or raise its severity; must be called before they are recorded."""
    return [
        sighting
        for sighting in sightings
        if (active := find(state, sighting.pattern, sighting.fingerprint)) is None
        or sighting.severity > active.severity
    ]


def tell_tool(
    event: ToolCallFinished, call: OpenCall, verdict: Verdict, sightings: Iterable[Sighting], ctx: Context
) -> None:
    """Emit each sighting as a `PatternSeen` for the tool and key of the call that completed it.

    Nothing is emitted if the model is unknown, or if the call failed for a cause outside the model, such as an outage:
    another model would have failed too.
    """
    state, emit = ctx.state, ctx.emit
    model = event.model or state.model
    if not model or (verdict.failed and verdict.severity not in OWN_MAKING):
        return
    for number, sighting in enumerate(sightings):
        seen = PatternSeen(
            id=f"{event.id}/pattern/{number}",
            time_ms=emit.at,
            workspace_id=event.workspace_id or state.workspace_id or DEFAULT_WORKSPACE,
            scope=f"tool:{call.tool_name}",
            session_id=event.session_id,
            cause=event.id,
            origin_partition=emit.origin_partition,
            origin=emit.next_origin(),
            tool_name=call.tool_name,
            fine_key=call.fine_key,
            model=model,
            pattern=sighting.pattern,
            model_switch=ctx.rules.models.strategy if state.overrides else None,
            user_id=event.user_id or state.user_id,
            models=state.models,
        )
        emit.record("outcomes", seen.key, seen, seen.id)
