"""What the fleet is told of a model's behaviour in a session (docs/design/semantics.md#models).

One small record for each thing worth counting: a turn that ended, a streak that was detected, a nudge, its effect, and
a nudge that somebody called wrong. Nothing is told while no model is known, and nothing of a call.
"""

from __future__ import annotations

from typing import Any

from ...schemas.standings import ModelBehaved
from ...schemas.vocabulary import Pattern
from .context import Context


def stuck(pattern: str, ctx: Context, *, new: bool) -> None:
    """A pattern was seen: its turn is a stalled one, and if the streak is new it counts."""
    ctx.state.turn.stalled = True
    if new:
        _tell(ctx, pattern=Pattern(pattern))


def turn_over(ctx: Context, *, stalled: bool) -> None:
    """A turn has ended; it was stalled once, however many patterns were seen in it, or if the platform says so."""
    turn = ctx.state.turn
    _tell(ctx, turns=1, stalled_turns=int(stalled or turn.stalled))
    turn.stalled = False


def nudged(ctx: Context) -> None:
    """A nudge was issued."""
    _tell(ctx, nudges_sent=1)


def judged(ctx: Context, *, effective: bool) -> None:
    """A nudge was judged."""
    _tell(ctx, nudges_judged=1, nudges_effective=int(effective))


def called_wrong(pattern: str, ctx: Context) -> None:
    """Somebody called a nudge or a pattern a false alarm."""
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
