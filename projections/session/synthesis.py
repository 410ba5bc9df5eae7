"""Flagging of recursive results that should be reviewed (docs/design/semantics.md#confidence)."""

from __future__ import annotations

from ...schemas.decisions import ConfidenceLow
from ...schemas.events import SynthesisCompleted
from ..confidence import WEIGHTS, tool_success
from .records import Context, SessionRecord


def synthesis_completed(event: SynthesisCompleted, ctx: Context) -> None:
    """Flag a synthesis whose confidence, or that of a result in it, lies below the threshold."""
    state = ctx.state
    low = ctx.rules.confidence.low
    used = [result.confidence for result in event.results if result.included is not False]
    below = [confidence for confidence in used if confidence < low]
    if event.confidence >= low and not below:
        return
    if event.confidence < low:
        confidence, what = event.confidence, "The result"
    else:
        confidence, what = min(below), f"{len(below)} of {len(used)} results that went into it"
    ctx.emit.decision(
        "suggestions",
        event.session_id,
        ConfidenceLow,
        session_id=event.session_id,
        workspace_id=state.workspace_id or None,
        user_id=state.user_id or None,
        caused_by=(event.id,),
        confidence=confidence,
        threshold=low,
        strategy=event.strategy,
        signals=_signals(state, event),
        message=f"{what} should be reviewed: confidence {confidence:.0%}, below {low:.0%}",
    )


def _signals(state: SessionRecord, event: SynthesisCompleted) -> dict[str, float]:
    """Signals given by the publisher; `tool_success` is computed from the session's calls if it is missing."""
    given = event.signals
    signals = {name: value for name in WEIGHTS if given is not None and (value := getattr(given, name)) is not None}
    judged = state.calls - state.neutral_calls
    if judged and "tool_success" not in signals:
        signals["tool_success"] = round(tool_success(judged - state.failed_calls, judged), 4)
    return signals
