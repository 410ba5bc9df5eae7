"""What the fleet is told of a model's behaviour in a session (docs/design/semantics.md#models).

One small record for each thing worth counting: a turn that ended, a streak that was detected, a nudge, its effect, and
a nudge that somebody called wrong. Nothing is told while no model is known, and nothing of a call.
"""

from __future__ import annotations

from typing import Any

from ...schemas.standings import ModelBehaved
from ...schemas.vocabulary import Pattern
from ..emit import Emitter
from .state import SessionState


def stuck(state: SessionState, pattern: str, session_id: str, emit: Emitter, *, new: bool) -> None:
    """A pattern was seen: its turn is a stalled one, and if the streak is new it counts."""
    state.turn_stalled = True
    if new:
        _tell(state, session_id, emit, pattern=Pattern(pattern))


def turn_over(state: SessionState, session_id: str, emit: Emitter, *, stalled: bool) -> None:
    """A turn has ended; it was stalled once, however many patterns were seen in it, or if the platform says so."""
    _tell(state, session_id, emit, turns=1, stalled_turns=int(stalled or state.turn_stalled))
    state.turn_stalled = False


def nudged(state: SessionState, session_id: str, emit: Emitter) -> None:
    """A nudge was issued."""
    _tell(state, session_id, emit, nudges_sent=1)


def judged(state: SessionState, session_id: str, emit: Emitter, *, effective: bool) -> None:
    """A nudge was judged."""
    _tell(state, session_id, emit, nudges_judged=1, nudges_effective=int(effective))


def called_wrong(state: SessionState, pattern: str, session_id: str, emit: Emitter) -> None:
    """Somebody called a nudge or a pattern a false alarm."""
    _tell(state, session_id, emit, false_alarm=Pattern(pattern))


def _tell(state: SessionState, session_id: str, emit: Emitter, **counts: Any) -> None:
    if not state.model:
        return
    behaved = ModelBehaved(
        id=emit.next_id("model.behaved"),
        time_ms=emit.at,
        session_id=session_id,
        cause=emit.cause,
        origin_topic=emit.origin_topic,
        origin_partition=emit.origin_partition,
        origin=emit.next_origin(),
        model=state.model,
        **counts,
    )
    emit.record("standings", behaved.key, behaved, behaved.id)
