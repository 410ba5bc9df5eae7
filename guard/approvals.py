"""Approval of a guarded call: its trust, the platform's permission plugin, open circuits, and operators' approvals.

The second step of a call (docs/design/guard.md#permission); a circuit that would refuse the call does so before anybody
is asked.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import msgspec

from ..schemas.events import PermissionRequested, PermissionResolved
from ..schemas.tool_envelopes import ResultError
from ..security.redaction import redact_text
from .idempotency.coalescer import CallCoalescer
from .interface import GuardServices
from .log import log_call
from .permission import PermissionAnswer, PermissionWrapper, is_refused, must_ask, refusal_message, way_out
from .policy import held_by_danger
from .refusals import RefusalWriter
from .request import GuardedCall
from .result import refusal
from .state_cache import DANGER_SCOPE, SESSION_SCOPE, TrustEntry


class ApprovalStep:
    """Step that refuses a call that nobody may approve, or that somebody must approve and does not.

    Attributes:
        permission: the platform's permission plugin, wrapped; None: there is none.
    """

    def __init__(
        self,
        services: GuardServices,
        refusals: RefusalWriter,
        coalescer: CallCoalescer,
        trust: Callable[[GuardedCall], TrustEntry | None],
    ) -> None:
        """Use `trust` for the strictest trust of a call's keys, and the store of `coalescer` to consume approvals."""
        self.permission: PermissionWrapper | None = None
        self._trust = trust
        self._backend = services.backend
        self._settings = services.settings
        self._clock = services.clock
        self._publisher = services.publisher
        self._gate = services.gate
        self._refusals = refusals
        self._coalescer = coalescer

    async def check(self, call: GuardedCall) -> ResultError | None:
        """Refusal of a call that is not approved; None if it may be made."""
        trust = self._trust(call)
        if trust is None and self.permission is None and call.approved is not False:
            return None
        if trust is not None and is_refused(trust):
            code = str(trust.state)
            if self._refusals.shadowed(call, code):
                return None
            return msgspec.structs.replace(refusal(code, refusal_message(call.name, trust)), terminal=True)
        if call.approved is not None and not call.shadow and (must_ask(trust) or not call.approved):
            if must_ask(trust):
                self._publish_permission(PermissionRequested, call)
            return self._answered(call, trust, PermissionAnswer(call.approved, {"method": "user"}))
        if (refused := self._refused_by_circuit(call, trust)) is not None:
            return refused
        if trust is not None and await self._approved(call, trust):
            return None
        if self.permission is None or not self.permission.decides(trust):
            return self._unattended(call, trust)
        return await self._decided(call, trust, self.permission)

    async def _decided(
        self, call: GuardedCall, trust: TrustEntry | None, permission: PermissionWrapper
    ) -> ResultError | None:
        """Refusal of the permission plugin; None if it allows the call."""
        if call.shadow:
            # The platform's own plugin decides as it would without trustfold.
            if must_ask(trust):
                self._refusals.shadowed(call, "approval_required")
            trust = None
        if must_ask(trust):
            self._publish_permission(PermissionRequested, call)
        try:
            answer = await permission.decide(call.name, call.args, trust, call_id=call.call_id)
        except Exception as error:  # noqa: BLE001 - a plugin that cannot answer has not said yes
            log_call(logging.ERROR, "permission_failed", call, errorCode=type(error).__name__)
            why = redact_text(f"{type(error).__name__}: {error}"[:200])
            return refusal("denied", f"'{call.name}' was not permitted: the permission plugin failed: {why}")
        return self._answered(call, trust, answer)

    def _refused_by_circuit(self, call: GuardedCall, trust: TrustEntry | None) -> ResultError | None:
        """Return the refusal of an open circuit, where somebody would be asked about the call first."""
        asks = must_ask(trust) or (self.permission is not None and self.permission.decides(trust))
        if not asks or call.shadow or not self._settings.enforce_breakers:
            return None
        refusing = self._gate.refusing_circuit(call)
        if refusing is None:
            return None
        return msgspec.structs.replace(refusal("circuit_open", refusing.message), breaker_state=refusing.state)

    def _answered(self, call: GuardedCall, trust: TrustEntry | None, answer: PermissionAnswer) -> ResultError | None:
        """Publish a person's or plugin's answer to a permission request; return a refusal if it denies the call."""
        if must_ask(trust):
            call.notes.approval = {"needed": True, "granted": answer.allowed}
        if not answer.allowed:
            self._publisher.started(call, None)  # its start event gives the denial its key
        method = str(answer.info.get("method") or "plugin")[:256]
        self._publish_permission(PermissionResolved, call, granted=answer.allowed, method=method)
        if answer.allowed:
            return None
        why = str(answer.info.get("reason") or "the user or a policy said no")
        return msgspec.structs.replace(refusal("denied", f"'{call.name}' was not permitted: {why}"), terminal=True)

    async def _approved(self, call: GuardedCall, trust: TrustEntry) -> bool:
        """Whether an operator approved this call (`trust.approve`); consumes that approval.

        A call that is not made consumes none. Guards with a shared store consume each approval once among them; if that
        store cannot answer, the call is not approved.
        """
        if call.shadow or not must_ask(trust) or trust.record.scope == SESSION_SCOPE:
            return False
        now = self._clock.now_ms()
        view = self._backend.view
        held = held_by_danger(call, view, now)
        given = view.approvals(call.workspace_id, call.trust_keys, call.user_id, now, call.session_id, held)
        if not given or self._gate.refusing_circuit(call) is not None:
            return False
        claimed = call.notes.claimed = []
        for approval in (one for one in given if one.once):
            record = await self._coalescer.claim_once(f"approval:{approval.id}", call, approval.until_ms - now)
            if record is None:
                await self._refusals.release_approvals(call)
                return False
            claimed.append(record)
        call.notes.approval = {"needed": True, "granted": True, "by": "operator"}
        call.notes.approvals = tuple(approval.id for approval in given if approval.once)
        return True

    def _unattended(self, call: GuardedCall, trust: TrustEntry | None) -> ResultError | None:
        """Decide about a call that needs approval where nobody can be asked."""
        if trust is None or not must_ask(trust):
            return None
        call.notes.approval = {"needed": True, "key": trust.record.key, "reason": trust.record.reason}
        waived = self._settings.unattended == "allow" and trust.record.scope != DANGER_SCOPE
        if waived or self._refusals.shadowed(call, "approval_required"):
            return None
        message = f"{refusal_message(call.name, trust)}; nobody is here to approve it{way_out(trust)}"
        return refusal("approval_required", message)

    def _publish_permission(
        self, kind: type[PermissionRequested | PermissionResolved], call: GuardedCall, **fields: Any
    ) -> None:
        """Publish a permission request, or the answer to one."""
        who = {"workspace_id": call.workspace_id, "user_id": call.user_id}
        self._publisher.event(kind, call.session_id, **who, call_id=call.call_id, tool_name=call.name, **fields)
