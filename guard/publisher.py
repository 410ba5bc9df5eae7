"""Creates and publishes the events of a guard: envelope, privacy, delivery to the backend (docs/events.md).

Published records are valid JSON within the bounds of their fields, whatever callers pass: text is valid Unicode, names
are bounded and hold no separators, numbers are finite.
"""

from __future__ import annotations

import logging
import math
from datetime import UTC, datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from ..projections.calls.error_words import neutral_reason
from ..schemas import events as ev
from ..schemas.vocabulary import GUARD_REFUSAL, CallStatus, FailureSeverity, ToolClass
from ..security.redaction import redact_text
from .clock import GuardClock, new_id
from .failure import CallFailure
from .json_view import clean_text, json_form, text_of
from .log import log_event
from .privacy import PrivacyFilter
from .request import GuardedCall
from .settings import GuardSettings

if TYPE_CHECKING:
    from .backends.base import GuardBackend

SCHEMA_VERSION = "1.0"

MAX_TEXT = 65_536  # Longest text of a field other than a name, in characters
MAX_ARGS_BYTES = 262_144  # Larger arguments are published as a digest; a record holds at most 1 MiB

_NEUTRAL_TYPES = {"denied": "DeniedByUser", "cancelled": "CancelledError"}

Digest = tuple[str, int]  # Digest and size in bytes of a result


class CallEnding(NamedTuple):
    """End of a call, for its event `tool.call.finished`."""

    status: CallStatus  # status of the call
    failure: CallFailure | None = None  # its failure; None if it did not fail
    digest: Digest | None = None  # digest and size of its result; None without a result
    attempts: int = 0  # number of times the tool was called; 0 if unknown or never
    duration_ms: float | None = None  # milliseconds from request to end; None if the call was not made
    from_cache: bool = False  # another call's result was returned
    cost_usd: float | None = None  # cost in US dollars; None if unknown
    workspace_digest: str | None = None  # state of the workspace after it; None if unknown


class EventPublisher:
    """Publishes the events of calls and sessions; never blocks, never raises."""

    def __init__(
        self, backend: GuardBackend, settings: GuardSettings, clock: GuardClock, privacy: PrivacyFilter
    ) -> None:
        """Publish through `backend`."""
        self.privacy = privacy  # filter of published data
        self.lost = 0  # number of records that could not be handed to the backend
        self._backend = backend
        self._settings = settings
        self._clock = clock

    def event(self, kind: type[ev.EventBase], session_id: str, **fields: Any) -> None:
        """Publish an event of any kind with a filled envelope."""
        settings = self._settings
        now = self._clock.now_ms()
        values = {
            "session_id": session_id,
            "workspace_id": settings.workspace_id,
            "user_id": settings.user_id,
            "tenant_id": settings.tenant_id,
            "agent_id": settings.agent_id,
            "model": settings.model,
            **fields,
        }
        try:
            for name, value in values.items():
                if type(value) is str and (most := _LONGEST_NAME.get(name)):
                    values[name] = _name(value, most) or _PLACEHOLDERS.get(name)
                elif value is not None:
                    values[name] = _field(name, value)
            event = kind(
                schema_version=SCHEMA_VERSION, id=new_id(now), time=datetime.fromtimestamp(now / 1000, UTC), **values
            )
        except Exception as error:  # noqa: BLE001 - as below
            self._count_lost(error)
        else:
            self.send(event)

    def send(self, record: msgspec.Struct) -> None:
        """Hand a record to the backend; a failure is logged and counted."""
        try:
            self._backend.publish(record)
        except Exception as error:  # noqa: BLE001 - a fault of reporting must not become one of the call
            self._count_lost(error)

    def _count_lost(self, error: Exception) -> None:
        self.lost += 1
        log_event(logging.ERROR, "event_refused", errorCode=type(error).__name__)

    def digest_of(self, output: Any) -> Digest | None:
        """Return digest and size of a result; None if it has none."""
        try:
            plain, raw = json_form(output)
            digest, size = self.privacy.result_digest(plain)
        except Exception as error:  # noqa: BLE001 - a result that cannot be digested is a result all the same
            self._count_lost(error)
            return None
        return digest, max(size, len(raw))

    def started(self, call: GuardedCall, deadline_ms: float | None) -> None:
        """Publish the start of a call."""
        try:
            self._started(call, deadline_ms)
        except Exception as error:  # noqa: BLE001 - as below
            self._count_lost(error)

    def _started(self, call: GuardedCall, deadline_ms: float | None) -> None:
        tool = call.tool
        private: dict[str, Any]
        if self.privacy.send_args and len(call.canonical_args) <= MAX_ARGS_BYTES:
            private = {"args": self.privacy.args(call.sent_args)}
        else:
            guess = call.tool_class
            private = {
                "args_digest": self.privacy.digest(call.canonical_args),
                "failure_key": call.key.fine,
                "tool_class": None if guess is ToolClass.UNKNOWN else guess,
            }
        self.event(
            ev.ToolCallStarted,
            call.session_id,
            **self._attribution(call),
            call_id=call.call_id,
            tool_name=tool.name,
            plugin_name=tool.plugin_name,
            service=tool.service,
            deadline_ms=None if deadline_ms is None else max(1, int(deadline_ms)),
            idempotency_key=call.notes.key_fingerprint,
            scenario=redact_text(call.scenario) if call.scenario else None,
            recursion_depth=call.recursion_depth or None,
            approvals=call.notes.approvals,
            annotations=tool.hints,
            message_id=call.message_id,
            **private,
        )

    def finished(self, call: GuardedCall, ending: CallEnding) -> None:
        """Publish the end of a call."""
        fields: dict[str, Any] = {}
        if ending.failure is not None:
            try:
                fields["error"] = self._error(call, ending.failure)
                fields["expected_failure"] = (ending.failure.answer and ending.failure.told) or None
            except Exception as error:  # noqa: BLE001 - as below
                self._count_lost(error)
        elif ending.digest is not None:
            fields["result_digest"], fields["result_size"] = ending.digest
        self._publish_end(
            call,
            status=ending.status,
            duration_ms=ending.duration_ms,
            attempts=ending.attempts or None,
            from_cache=ending.from_cache or None,
            cost_usd=ending.cost_usd,
            workspace_digest=ending.workspace_digest,
            **fields,
        )

    def refused(self, call: GuardedCall, code: str) -> None:
        """Publish that the guard, or whom it asked, refused a call: neither success nor failure of the tool."""
        if code == "circuit_open":
            self._publish_end(call, status=CallStatus.CIRCUIT_OPEN)
            return
        kind, status = GUARD_REFUSAL, CallStatus.CANCELLED
        if code == "denied":
            kind, status = "DeniedByUser", CallStatus.ERROR
        self._publish_end(call, status=status, error=ev.ErrorInfo(type=kind, code=code))

    def _publish_end(self, call: GuardedCall, **fields: Any) -> None:
        self.event(
            ev.ToolCallFinished,
            call.session_id,
            **self._attribution(call),
            call_id=call.call_id,
            tool_name=call.tool.name,
            plugin_name=call.tool.plugin_name,
            service=call.tool.service,
            approvals=call.notes.approvals,
            **fields,
        )

    def never_ran(self, call: GuardedCall, error: ev.ErrorInfo) -> None:
        """Publish a call that its program refused before it ran."""
        self.started(call, None)
        self._publish_end(call, status=CallStatus.REJECTED, error=error)

    def rejected(self, code: str, tool_name: str, session_id: str, **who: Any) -> None:
        """Publish that an invalid call was requested: unknown tool, or invalid arguments."""
        self.event(
            ev.ToolCallFinished,
            session_id,
            **who,
            call_id=new_id(self._clock.now_ms()),
            tool_name=tool_name,
            status=CallStatus.REJECTED,
            error=ev.ErrorInfo(type=code, code=code, retriable=False, severity=FailureSeverity.INVALID_INPUT),
        )

    def _error(self, call: GuardedCall, failure: CallFailure) -> ev.ErrorInfo:
        private = self.privacy
        # The folds classify by messages; if the message is withheld, the severity is published instead.
        says_severity = not private.send_errors or failure.told or failure.severity is FailureSeverity.SECURITY
        kind = failure.type
        if failure.neutral and not private.send_errors and not neutral_reason(kind):
            kind = _NEUTRAL_TYPES[failure.neutral]  # known only from the message, which is withheld
        severity = failure.severity if says_severity and not failure.neutral else None
        return private.error(failure, call.plain_args, kind, severity)

    def _attribution(self, call: GuardedCall) -> dict[str, Any]:
        return {
            "workspace_id": call.workspace_id,
            "user_id": call.user_id,
            "tenant_id": call.tenant_id,
            "agent_id": call.agent_id,
            "model": call.model,
            "model_tier": call.model_tier,
            "correlation_id": call.correlation_id,
            "traceparent": call.notes.traceparent,
            "turn_index": call.turn_index,
        }


# Largest number of characters of each field that holds a name
_LONGEST_NAME = dict.fromkeys(
    """session_id workspace_id user_id tenant_id agent_id model model_tier correlation_id call_id tool_name plugin_name
    service idempotency_key args_digest failure_key breaker_key guard_id domain method output_id confirmed_by
    text_digest result_digest scope message_id workspace_digest""".split(),
    256,
) | {"failure_key": 1024}

# Values of required fields whose name is empty
_PLACEHOLDERS = dict.fromkeys(("session_id", "call_id", "tool_name"), "unknown")

_TEXTS = frozenset({"scenario", "reason", "text"})


def _field(name: str, value: Any) -> Any:
    """Return a field's value within its bounds."""
    if most := _LONGEST_NAME.get(name):
        return _name(text_of(value), most) or _PLACEHOLDERS.get(name)
    if name in _TEXTS:
        return text_of(value)[:MAX_TEXT]
    if name == "annotations":
        return json_form(value)[0]
    if name == "error" and isinstance(value, ev.ErrorInfo):
        return ev.ErrorInfo(
            type=_name(value.type or "", 256) or None,
            message=clean_text(value.message or "")[:MAX_TEXT] or None,
            http_status=value.http_status,
            code=_name(value.code or "", 256) or None,
            retriable=value.retriable,
            severity=value.severity,
        )
    if type(value) is float and not math.isfinite(value):
        return None
    return value


@lru_cache(maxsize=4096)
def _name(text: str, most: int) -> str:
    """Return a name that is valid for its field: valid Unicode, no U+0000 and no U+001F, bounded."""
    return clean_text(text).replace("\x00", "").replace("\x1f", "")[:most]


def is_event(record: msgspec.Struct) -> bool:
    """Whether a record belongs on `events` rather than on `commands`."""
    return isinstance(record, ev.EventBase)
