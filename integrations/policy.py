"""Decisions about calls of other programs, made from an engine's public states in the way the guard makes them.

An operator's approval lets one call pass. The states show it until that call has been folded; approvals already used
are remembered here, so that another request in between does not get the same one.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import NamedTuple

from ..guard.permission import refusal_message, way_out
from ..guard.policy import ALLOWED, CheckDecision, check_recorded, held_by_danger
from ..guard.request import GuardedCall
from ..guard.state_cache import OnceApproval, StateView, TrustEntry
from ..rules.rules import RuleSet
from ..schemas.event_base import epoch_ms
from ..schemas.vocabulary import TrustState


class CallJudgement(NamedTuple):
    """Decision about one call.

    Attributes:
        decision: as a guard would decide.
        approvals: ids of the operator's approvals that the call uses, for its events.
        way_out: command that lets the call pass if it needs approval, appended to the message if nobody can be asked;
            empty without one.
        may_try: the call needs approval, and its success would restore trust without a command.
    """

    decision: CheckDecision
    approvals: tuple[str, ...] = ()
    way_out: str = ""
    may_try: bool = False


FREE = CallJudgement(ALLOWED)


class HookPolicy:
    """Decides about calls by the states of one engine.

    Attributes:
        view: public states; updated by the owner of the policy.
    """

    def __init__(self, rules: Callable[[], RuleSet] = RuleSet) -> None:
        """Start with all states at their defaults; `rules` returns the rules in force."""
        self.view = StateView()
        self._rules = rules
        self._used: dict[str, int] = {}

    def judge(self, call: GuardedCall, now_ms: int, *, use: bool = False) -> CallJudgement:
        """Decide about a call; with `use`, approvals that let it pass are consumed."""
        rules = self._rules()
        if not rules.enabled:
            return FREE
        call.families, call.rules = rules.tools.families, rules.calls
        held = held_by_danger(call, self.view, now_ms)
        if self.view.only_defaults and held is None:
            return FREE
        decision, _ = check_recorded(self.view, call, now_ms)
        trust = self.view.trust(call.workspace_id, call.trust_keys, call.user_id, held, now_ms)
        if decision.code == "approved" and trust is not None:
            given = self.view.approvals(call.workspace_id, call.trust_keys, call.user_id, now_ms, call.session_id, held)
            if all(approval.id not in self._used for approval in given):
                return CallJudgement(decision, self._take(given, now_ms) if use else ())
            message = refusal_message(call.name, trust)
            decision = CheckDecision(allowed=True, ask=True, code="approval_required", message=message)
        if trust is None or not decision.ask:
            return CallJudgement(decision)
        way = way_out(trust)
        way += ", all of this session with --for-session in place of --once" if way else ""
        return CallJudgement(decision, way_out=way, may_try=held is None and _may_recover(trust, now_ms))

    def _take(self, given: tuple[OnceApproval, ...], now_ms: int) -> tuple[str, ...]:
        self._used = {name: until for name, until in self._used.items() if until > now_ms}
        once = [approval for approval in given if approval.once]
        self._used.update((approval.id, approval.until_ms) for approval in once)
        return tuple(approval.id for approval in once)


def _may_recover(trust: TrustEntry, now_ms: int) -> bool:
    """Whether a successful call now counts towards restored trust."""
    if trust.state is TrustState.RECOVERING:
        return not trust.record.recovery_pending
    at = trust.record.recovery_at
    return trust.state is TrustState.ESCALATED and at is not None and epoch_ms(datetime.fromisoformat(at)) <= now_ms
