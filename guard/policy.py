"""Decides about a call before it is made, from the local view alone.

See docs/design/guard.md#breaker-and-trust.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from ..projections.calls.attempt import level_of, words_for
from ..schemas.codec import rfc3339
from ..schemas.public_state import TrustUpdated
from ..schemas.vocabulary import TrustState
from .breaker import CircuitRefusal, refusing_circuit_in
from .clock import GuardClock
from .errors import EnvelopeRejected
from .permission import is_refused, must_ask, refusal_message
from .request import NO_SESSION, GuardedCall, check_call, is_name, named, scopes_of
from .session import CURRENT
from .settings import GuardSettings
from .state_cache import DANGER_SCOPE, SESSION_SCOPE, StateView, TrustEntry
from .tools import ToolRegistry

if TYPE_CHECKING:
    from weakref import WeakValueDictionary

    from .backends.base import GuardBackend
    from .breaker import BreakerGate
    from .session import GuardSession


class CheckDecision(NamedTuple):
    """Result of a check of a call before it is made.

    Attributes:
        allowed: nothing refuses it; it may still need approval.
        ask: a person must approve it.
        code: `allowed`, `approved` (an operator approved one call), `approval_required`, `blocked`, `removed`,
            `circuit_open`; `unknown_tool` or `invalid_input` if the call is invalid.
        message: reason in words; empty if it is allowed.
    """

    allowed: bool
    ask: bool = False
    code: str = "allowed"
    message: str = ""


ALLOWED = CheckDecision(allowed=True)
APPROVED = CheckDecision(allowed=True, code="approved")


def decide(
    tool_name: str, trust: TrustEntry | None, refusing: CircuitRefusal | None, *, shadow: bool = False
) -> CheckDecision:
    """Decide about a call by its trust and its circuits: refused, fast-failed, needs approval, or allowed."""
    if trust is not None and is_refused(trust):
        return CheckDecision(shadow, code=str(trust.state), message=refusal_message(tool_name, trust))
    if refusing is not None:
        return CheckDecision(shadow, code="circuit_open", message=refusing.message)
    if trust is not None and must_ask(trust):
        return CheckDecision(
            allowed=True, ask=True, code="approval_required", message=refusal_message(tool_name, trust)
        )
    return ALLOWED


def check_recorded(view: StateView, call: GuardedCall, now_ms: int) -> tuple[CheckDecision, str]:
    """Decide about a recorded call as a guard with this view would have done at that time.

    The view does not show whether an operator's approval was consumed before the call was folded.

    Returns:
        The decision, and the trust key or circuit that caused it; for an allowed call its own key.
    """
    held = held_by_danger(call, view, now_ms)
    if view.only_defaults and held is None:
        return ALLOWED, call.key.fine
    trust = view.trust(call.workspace_id, call.trust_keys, call.user_id, held, now_ms)
    refusing = refusing_circuit_in(call.scopes, lambda scope: view.circuit(call.workspace_id, scope, now_ms))
    decision = decide(call.name, trust, refusing)
    if refusing is not None and decision.code == "circuit_open":
        return decision, refusing.scope
    if trust is None or decision is ALLOWED:
        return decision, call.key.fine
    if decision.ask and view.approvals(call.workspace_id, call.trust_keys, call.user_id, now_ms, call.session_id, held):
        return APPROVED, call.key.fine
    return decision, trust.record.key


class CheckMixin:
    """Mixin of `ToolGuard` with the checks before a call; nothing here publishes or waits."""

    settings: GuardSettings
    backend: GuardBackend
    clock: GuardClock
    tools: ToolRegistry
    sessions: WeakValueDictionary[str, GuardSession]
    _gate: BreakerGate

    def check(
        self,
        tool_name: str,
        args: Mapping[str, Any] | None = None,
        *,
        session_id: str | None = None,
        workspace_id: str | None = None,
    ) -> CheckDecision:
        """Check from the local view alone whether a call would be made; publishes nothing, costs microseconds.

        The session defaults to the surrounding one, as for the call itself.
        """
        if not self.settings.enabled:
            return ALLOWED
        if args is None:
            args = {}
        view, settings = self.backend.view, self.settings
        try:
            check_call(tool_name, args, NO_SESSION if session_id is None else session_id)
        except EnvelopeRejected as rejected:
            return CheckDecision(allowed=False, code=rejected.code, message=str(rejected))
        session = self.sessions.get(session_id) if session_id is not None else CURRENT.get()
        call = GuardedCall(self.tools.get(tool_name), named(args), session_id or NO_SESSION, workspace_id or "")
        call.families, call.rules = settings.families, settings.calls
        if view.only_defaults and session is None and call.danger.kind is None:
            return ALLOWED
        call.workspace_id = workspace_id or (session or settings).workspace_id
        call.user_id = (session or settings).user_id
        now_ms = self.clock.now_ms()
        if session is not None:
            call.session_id = session.session_id
        trust = self._trust(call)
        scopes = scopes_of(tool_name, call.key) if settings.enforce_breakers else ()
        shadow = settings.observes(call.session_id, shadow=call.tool.shadow, read_only=call.tool.read_only)
        found = decide(tool_name, trust, self._gate.refusing_circuit_at(call.workspace_id, scopes), shadow=shadow)
        if not found.ask or trust is None or trust.record.scope == SESSION_SCOPE:
            return found
        held = held_by_danger(call, view, now_ms)
        name = session.session_id if session else ""
        given = view.approvals(call.workspace_id, call.trust_keys, call.user_id, now_ms, name, held)
        return APPROVED if given else found

    def trust_of(
        self,
        tool_name: str,
        args: Mapping[str, Any] | None = None,
        *,
        session_id: str = "",
        workspace_id: str | None = None,
    ) -> TrustEntry | None:
        """Return the strictest trust of a call's keys; None if it is trusted or the name is invalid.

        Workspace and user default to those of the session, else to the guard's.
        """
        if not is_name(tool_name):
            return None
        who = self.sessions.get(session_id) or self.settings
        call = GuardedCall(
            self.tools.get(tool_name), named(args or {}), session_id or NO_SESSION, workspace_id or who.workspace_id
        )
        call.user_id = who.user_id
        call.families, call.rules = self.settings.families, self.settings.calls
        return self._trust(call)

    def _trust(self, call: GuardedCall) -> TrustEntry | None:
        now_ms, view = self.clock.now_ms(), self.backend.view
        held = held_by_danger(call, view, now_ms)
        session = self.sessions.get(call.session_id)
        if session is not None and (own := session.trust_override(call.trust_keys)) is not None:
            return held if own is TrustState.TRUSTED else session_trust(call, own, now_ms)
        if view.only_defaults:
            return held
        return view.trust(call.workspace_id, call.trust_keys, call.user_id, held, now_ms)


def held_by_danger(call: GuardedCall, view: StateView, now_ms: int) -> TrustEntry | None:
    """Return the state that a dangerous call has before it runs, by the rules alone; None if it may run."""
    danger = call.danger
    level = "observe" if danger.kind is None else level_of(danger.kind, call.rules)
    if level == "observe":
        return None
    state = TrustState.BLOCKED if level == "deny" else TrustState.ESCALATED
    known = view.record(call.workspace_id, call.key.fine)
    return TrustEntry(
        state,
        TrustUpdated(
            schema_version="1.0",
            id=f"danger-{call.call_id}",
            time=rfc3339(now_ms),
            workspace_id=call.workspace_id,
            kind="trust",
            key=call.key.fine,
            scope=DANGER_SCOPE,
            state=state,
            reason=words_for(danger, call.name, call.sent_args),
            approval_id=known.approval_id if known is not None else None,
            approval_expires_at=known.approval_expires_at if known is not None else None,
            approval_session_id=known.approval_session_id if known is not None else None,
        ),
    )


def session_trust(call: GuardedCall, state: TrustState, now_ms: int) -> TrustEntry:
    """Return the trust that a session's override gives a call."""
    record = TrustUpdated(
        schema_version="1.0",
        id=f"session-{call.session_id}",
        time=rfc3339(now_ms),
        workspace_id=call.workspace_id,
        kind="trust",
        key=call.name,
        scope=SESSION_SCOPE,
        state=state,
        reason="set for this session",
    )
    return TrustEntry(state, record)
