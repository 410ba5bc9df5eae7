"""What a coding agent's call is told by the states that are public now: the guard's own decision, in words."""

from __future__ import annotations

from collections.abc import Container
from datetime import datetime

from ...guard.checking import check_recorded
from ...guard.request import Call
from ...guard.tools import Tool
from ...guard.view import StateView, Trust
from ...projections.calls.keys import in_quotes
from ...schemas.event_base import epoch_ms
from ...schemas.vocabulary import TrustState
from .dialect import CallBegan
from .session import Verdict

FREE = Verdict()


def judge(
    view: StateView,
    begun: CallBegan,
    *,
    session: str,
    workspace: str,
    user: str,
    now_ms: int,
    used: Container[str] = (),
) -> Verdict:
    """Whether a call may be made at a time, must be allowed by a person, or may not be made.

    `used` are approvals by which a call has passed already, though its end is not known yet.
    """
    if view.untroubled:
        return FREE
    call = Call(Tool(name=begun.tool, service=begun.service or None), begun.args, session, workspace)
    call.user_id = user or None
    decision, _ = check_recorded(view, call, now_ms)
    if not decision.allowed:
        return Verdict(refusal=decision.message)
    if not decision.ask:
        return FREE
    given = tuple(one.id for one in view.approvals(workspace, call.trust_keys, call.user_id, now_ms))
    if given and not any(one in used for one in given):
        return Verdict(approvals=given)
    trust = view.trust(workspace, call.trust_keys, call.user_id)
    if trust is None:
        return FREE
    orders = " and ".join(f"`trustfold approve {in_quotes(key)} --once`" for key in trust.asking)
    way = f"; one call passes by {orders}" if orders else ""
    return Verdict(question=decision.message, way_out=way, may_try=_may_recover(trust, now_ms))


def _may_recover(trust: Trust, now_ms: int) -> bool:
    """Whether a call that succeeds now leads back to trust; no order is waited for."""
    if trust.state is TrustState.RECOVERING:
        return not trust.record.recovery_pending
    at = trust.record.recovery_at
    return trust.state is TrustState.ESCALATED and at is not None and epoch_ms(datetime.fromisoformat(at)) <= now_ms
