"""Refusals: answers of the guard to calls that are not made, and what shadow mode notes in their place."""

from __future__ import annotations

import logging

from ..schemas.tool_envelopes import ResultError, ResultStatus
from .idempotency.settler import KeySettler
from .interface import GuardServices
from .log import log_call
from .metrics import SHADOW
from .request import GuardedCall
from .result import ToolResult

_STATUS_OF_REFUSAL = {"circuit_open": ResultStatus.CIRCUIT_OPEN, "deadline_exceeded": ResultStatus.TIMEOUT}


class RefusalWriter:
    """Writer of the refusals of one guard: results, events, log and metrics."""

    def __init__(self, services: GuardServices, settler: KeySettler) -> None:
        """Use `settler` to release approvals."""
        self._settler = settler
        self._publisher = services.publisher
        self._hooks = services.hooks
        self._metrics = services.metrics

    def shadowed(self, call: GuardedCall, code: str) -> bool:
        """Whether a refusal is only noted (shadow mode)."""
        if not call.shadow:
            return False
        call.notes.shadow.append(code)
        self._metrics.add(SHADOW, self._metrics.tool(call.name), code)
        log_call(logging.INFO, "tool_call_blocked", call, errorCode=code, shadow=True)
        return True

    async def release_approvals(self, call: GuardedCall) -> None:
        """Release the approvals that a call claimed but did not use."""
        if claimed := call.notes.claimed:
            call.notes.claimed, call.notes.approvals, call.notes.approval = [], (), None
            await self._settler.release(call, claimed)

    async def refuse(self, call: GuardedCall, error: ResultError) -> ToolResult:
        """Answer a call without making it."""
        await self.release_approvals(call)
        await self._hooks.around(call, error.code)
        return self.refused(call, error)

    def refused(self, call: GuardedCall, error: ResultError) -> ToolResult:
        """Publish and return the answer to a call that was not made."""
        call.notes.refused = True
        self._publisher.refused(call, error.code)
        status = _STATUS_OF_REFUSAL.get(error.code, ResultStatus.ERROR)
        log_call(logging.WARNING, "tool_call_blocked", call, errorCode=error.code, breakerState=error.breaker_state)
        made = call.result(status, error=error)
        if call.notes.plan is not None:
            made.metadata["plan"] = call.notes.plan
        return made
