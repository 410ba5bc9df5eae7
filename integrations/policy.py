"""Decisions about calls of other programs, made from an engine's public states in the way the guard makes them.

An operator's approval lets one call pass. The states show it until that call has been folded; approvals already used
are remembered here, so that another request in between does not get the same one.
"""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from ..guard.permission import refusal_message
from ..guard.policy import ALLOWED, Decision, check_recorded
from ..guard.request import Call
from ..guard.state_cache import Approval, StateView, Trust
from ..projections.calls.keys import in_quotes
from ..schemas.event_base import epoch_ms
from ..schemas.vocabulary import TrustState


class Judgement(NamedTuple):
    """Decision about one call.

    Attributes:
        decision: as a guard would decide.
        approvals: ids of the approvals that were used for it, for its events.
        way_out: of a call that must be asked about: the order that lets it pass, to be put behind the message where
            nobody can be asked; empty where there is none.
        may_try: of such a call: one that succeeds now leads back to trust, no order is waited for.
    """

    decision: Decision
    approvals: tuple[str, ...] = ()
    way_out: str = ""
    may_try: bool = False


FREE = Judgement(ALLOWED)


class Policy:
    """Decides about calls by the states of one engine.

    Attributes:
        view: the states; kept up to date by whoever owns this.
    """

    def __init__(self) -> None:
        """Begin with everything at its default."""
        self.view = StateView()
        self._used: dict[str, int] = {}

    def judge(self, call: Call, now_ms: int, *, use: bool = False) -> Judgement:
        """Decide about a call; with `use`, approvals by which it passes are taken, and nobody else gets them."""
        if self.view.untroubled:
            return FREE
        decision, _ = check_recorded(self.view, call, now_ms)
        trust = self.view.trust(call.workspace_id, call.trust_keys, call.user_id)
        if decision.code == "approved" and trust is not None:
            given = self.view.approvals(call.workspace_id, call.trust_keys, call.user_id, now_ms)
            if all(approval.id not in self._used for approval in given):
                return Judgement(decision, self._take(given, now_ms) if use else ())
            message = refusal_message(call.name, trust)
            decision = Decision(allowed=True, ask=True, code="approval_required", message=message)
        if trust is None or not decision.ask:
            return Judgement(decision)
        orders = " and ".join(f"`trustfold approve {in_quotes(key)} --once`" for key in trust.asking)
        way_out = f"; one call passes by {orders}" if orders else ""
        return Judgement(decision, way_out=way_out, may_try=_may_recover(trust, now_ms))

    def _take(self, given: tuple[Approval, ...], now_ms: int) -> tuple[str, ...]:
        self._used = {name: until for name, until in self._used.items() if until > now_ms}
        self._used.update(given)
        return tuple(approval.id for approval in given)


def _may_recover(trust: Trust, now_ms: int) -> bool:
    """Whether a call that succeeds now leads back to trust."""
    if trust.state is TrustState.RECOVERING:
        return not trust.record.recovery_pending
    at = trust.record.recovery_at
    return trust.state is TrustState.ESCALATED and at is not None and epoch_ms(datetime.fromisoformat(at)) <= now_ms
