"""Emitter of a model's behaviour in a session, for the fleet stage (docs/design/semantics.md#models).

One small record for each ended turn, detected streak, issued nudge, judged nudge and false alarm. Nothing is emitted
while the model is unknown, and nothing about calls.
"""

from __future__ import annotations

from typing import Any

from ...schemas.standings import ModelBehaved
from ...schemas.vocabulary import Pattern
from .context import Context


def stuck(pattern: str, ctx: Context, *, new: bool) -> None:
    """Mark the turn as stalled by a pattern, and emit the pattern if its streak is new."""
    ctx.state.turn.stalled = True
    if new:
        _tell(ctx, pattern=Pattern(pattern))


def turn_over(ctx: Context, *, stalled: bool) -> None:
    """Emit an ended turn; it counts as stalled once if a pattern was seen in it or the platform marks it so."""
    turn = ctx.state.turn
    _tell(ctx, turns=1, stalled_turns=int(stalled or turn.stalled))
    turn.stalled = False


def nudged(ctx: Context) -> None:
    """Emit an issued nudge."""
    _tell(ctx, nudges_sent=1)


def judged(ctx: Context, *, effective: bool) -> None:
    """Emit a judged nudge."""
    _tell(ctx, nudges_judged=1, nudges_effective=int(effective))


def called_wrong(pattern: str, ctx: Context) -> None:
    """Emit a false alarm about a pattern or its nudge."""
    _tell(ctx, false_alarm=Pattern(pattern))


def _tell(ctx: Context, **counts: Any) -> None:
    emit, model = ctx.emit, ctx.state.model
    if not model:
        return
    behaved = ModelBehaved(
        id=emit.next_id("model.behaved"),
        time_ms=emit.at,
        session_id=ctx.session_id,
        cause=emit.cause,
        origin_topic=emit.origin_topic,
        origin_partition=emit.origin_partition,
        origin=emit.next_origin(),
        model=model,
        **counts,
    )
    emit.record("standings", behaved.key, behaved, behaved.id)
