"""Makes the events of a guard: envelope, privacy, and off to the backend (design 2, Input events)."""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec

from ..schemas import events as ev
from ..schemas.vocabulary import Severity, Status, ToolClass
from .clock import Clock, new_id
from .failure import CallFailure
from .log import say
from .privacy import Privacy
from .redaction import redact_text
from .request import Call
from .settings import GuardSettings

if TYPE_CHECKING:
    from .backends.base import Backend

SCHEMA_VERSION = "1.0"
MAX_NAME = 256


class Publisher:
    """Turns what happens to calls and sessions into events; nothing here waits, and nothing raises.

    Attributes:
        privacy: what leaves the process.
        lost: records that could not even be handed to the backend.
    """

    def __init__(self, backend: Backend, settings: GuardSettings, clock: Clock, privacy: Privacy) -> None:
        """Publish through `backend`."""
        self.privacy = privacy
        self.lost = 0
        self._backend = backend
        self._settings = settings
        self._clock = clock

    def event(self, kind: type[ev.EventBase], session_id: str, **fields: Any) -> str:
        """Publish an event of any kind; the envelope is filled in. Returns its id."""
        settings = self._settings
        now = self._clock.now_ms()
        event = kind(
            schema_version=SCHEMA_VERSION,
            id=new_id(now),
            time=datetime.fromtimestamp(now / 1000, UTC),
            session_id=session_id,
            **{
                "workspace_id": settings.workspace_id,
                "user_id": settings.user_id,
                "tenant_id": settings.tenant_id,
                "agent_id": settings.agent_id,
                "model": settings.model,
                **fields,
            },
        )
        self.send(event)
        return event.id

    def send(self, record: msgspec.Struct) -> None:
        """Hand a record to the backend; what cannot be handed over is logged and counted, as nothing here raises."""
        try:
            self._backend.publish(record)
        except Exception as error:  # noqa: BLE001 - a fault of reporting must not become one of the call
            self.lost += 1
            say(logging.ERROR, "event_refused", errorCode=type(error).__name__)

    def started(self, call: Call, deadline_ms: float | None) -> None:
        """The tool is about to be called."""
        tool = call.tool
        private: dict[str, Any]
        if self.privacy.send_args:
            private = {"args": self.privacy.args(call.args)}
        else:
            guess = call.tool_class
            private = {
                "args_digest": self.privacy.args_digest(call.args),
                "failure_key": call.key.fine,
                "tool_class": None if guess is ToolClass.UNKNOWN else guess,
            }
        self.event(
            ev.ToolCallStarted,
            call.session_id,
            **self._who(call),
            call_id=call.call_id,
            tool_name=tool.name,
            plugin_name=tool.plugin_name,
            service=tool.service,
            deadline_ms=None if deadline_ms is None else max(1, int(deadline_ms)),
            idempotency_key=call.notes.get("key_fingerprint"),
            scenario=redact_text(call.scenario) if call.scenario else None,
            recursion_depth=call.recursion_depth or None,
            annotations=tool.hints,
            **private,
        )

    def finished(
        self,
        call: Call,
        status: Status,
        *,
        failure: CallFailure | None = None,
        output: Any = None,
        attempts: int = 0,
        duration_ms: float | None = None,
        from_cache: bool = False,
        cost_usd: float | None = None,
    ) -> None:
        """The call is over, one way or another."""
        fields: dict[str, Any] = {}
        if failure is not None:
            fields["error"] = self._error(call, failure)
        elif status is Status.SUCCESS and output is not None:
            fields["result_digest"], fields["result_size"] = self.privacy.result_digest(output)
        self.event(
            ev.ToolCallFinished,
            call.session_id,
            **self._who(call),
            call_id=call.call_id,
            tool_name=call.tool.name,
            plugin_name=call.tool.plugin_name,
            service=call.tool.service,
            status=status,
            duration_ms=duration_ms,
            attempts=attempts or None,
            from_cache=from_cache or None,
            cost_usd=cost_usd,
            **fields,
        )

    def refused(self, call: Call, code: str, *, by_user: bool = False) -> None:
        """The guard did not make the call: neither success nor failure, whatever the tool is like."""
        if code == "circuit_open":
            self.finished(call, Status.CIRCUIT_OPEN)
            return
        kind = "DeniedByUser" if by_user else "BlockedByGuard"
        self.event(
            ev.ToolCallFinished,
            call.session_id,
            **self._who(call),
            call_id=call.call_id,
            tool_name=call.tool.name,
            plugin_name=call.tool.plugin_name,
            service=call.tool.service,
            status=Status.ERROR if by_user else Status.CANCELLED,
            error=ev.ErrorInfo(type=kind, code=code),
        )

    def _error(self, call: Call, failure: CallFailure) -> ev.ErrorInfo:
        private = self.privacy
        # The folds would classify a message that they are not shown; so they are told what it is.
        told = not private.send_errors or failure.severity is Severity.SECURITY
        return ev.ErrorInfo(
            type=private.word(failure.type, call.args) or None,
            message=private.message(failure.message, call.args) or None,
            http_status=failure.http_status,
            code=private.word(failure.code, call.args) or None,
            retriable=failure.retriable,
            severity=failure.severity if told and not failure.neutral else None,
        )

    def _who(self, call: Call) -> dict[str, Any]:
        return {
            "workspace_id": call.workspace_id,
            "user_id": call.user_id,
            "tenant_id": call.tenant_id,
            "agent_id": call.agent_id,
            "model": call.model,
            "model_tier": call.model_tier,
            "correlation_id": call.correlation_id,
            "turn_index": call.turn_index,
        }


def is_event(record: msgspec.Struct) -> bool:
    """Whether a record belongs on `events` rather than on `commands`."""
    return isinstance(record, ev.EventBase)
