"""Mixin for published records other than calls: reports, permission answers, operator commands.

Reports are failures and successes observed by a plugin (docs/design/guard.md#hooks-and-reports).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, MutableMapping
from datetime import UTC, datetime
from typing import Any, Unpack

import msgspec

from ..schemas import commands as cmd
from ..schemas import events as ev
from ..schemas.vocabulary import FailureSeverity, QualitySeverity
from ..security.redaction import redact, redact_text
from .call_builder import CallBuilder
from .clock import GuardClock, new_id
from .errors import EnvelopeRejected
from .failure import of_exception, of_result
from .json_view import json_form, json_view, text_of
from .log import log_event
from .metrics import EVENTS, GuardMetrics
from .options import CallIds, FailureDetails, check_names
from .privacy import PrivacyFilter
from .publisher import EventPublisher
from .request import NO_SESSION, check_call
from .session import CURRENT, GuardSession
from .settings import GuardSettings
from .tools import ToolRegistry


class ReportMixin:
    """Mixin of `ToolGuard` that publishes reports and commands; does nothing while the kill switch is on."""

    settings: GuardSettings
    clock: GuardClock
    metrics: GuardMetrics
    tools: ToolRegistry
    privacy: PrivacyFilter
    publisher: EventPublisher
    guard_id: str
    sessions: MutableMapping[str, GuardSession]
    _builder: CallBuilder

    def report_failure(
        self,
        tool_name: str,
        error: str | dict[str, Any] | BaseException,
        *,
        session_id: str | None = None,
        **details: Unpack[FailureDetails],
    ) -> bool:
        """Report a failure without a call of its own (docs/design/guard.md#hooks-and-reports).

        Args:
            tool_name: the tool that failed.
            error: its message, an object with `error`, or its exception.
            session_id: id of the conversation; by default that of the surrounding session.
            details: see `FailureDetails`.

        Returns:
            False if nothing is published: a name is invalid (logged and counted), or the guard is disabled.

        Raises:
            TypeError: there is no such detail.
            ValueError: the severity is unknown.
        """
        check_names("report_failure", details, FailureDetails.__optional_keys__)
        severity, context = details.get("severity"), details.get("context")
        fields: dict[str, Any] = {
            "error": error_info(error, self.privacy),
            "severity": None if severity is None else FailureSeverity(severity),
            "domain": details.get("domain"),
            "service": details.get("service"),
            "recoverable": True if (recoverable := details.get("recoverable")) is None else bool(recoverable),
        }
        if context:
            fields["context"] = msgspec.Raw(json_form(redact(json_view(context, open_objects=False)))[1])
        return self._report(ev.FailureReported, tool_name, session_id, **fields)

    def report_success(
        self, tool_name: str, *, session_id: str | None = None, domain: str | None = None, service: str | None = None
    ) -> bool:
        """Report a success of a tool, so that it can recover; returns False as `report_failure` does."""
        return self._report(ev.SuccessReported, tool_name, session_id, domain=domain, service=service)

    def report_rejected(
        self,
        tool_name: str,
        args: Mapping[str, Any] | None,
        error: str | dict[str, Any] | BaseException,
        *,
        session_id: str | None = None,
        **ids: Unpack[CallIds],
    ) -> bool:
        """Report a call that the program refused before it ran: an unknown tool, arguments that do not fit.

        It says nothing about the tool's health. The guard publishes its own refusals by itself.

        Args:
            tool_name: the tool as the model named it.
            args: the arguments as the model gave them.
            error: why it was refused, as in `report_failure`.
            session_id: id of the conversation; by default that of the surrounding session.
            ids: see `CallIds`.

        Returns:
            False as `report_failure` does.

        Raises:
            TypeError: there is no such id.
        """
        check_names("report_rejected", ids, CallIds.__optional_keys__)
        if not self.settings.enabled:
            return False
        chosen = _session_or(session_id)
        try:
            check_call(tool_name, args or {}, chosen)
            call = self._builder.build(self.tools.get(tool_name), args or {}, chosen, self.sessions.get(chosen), ids)
        except EnvelopeRejected as rejected:
            self._refuse_report(rejected)
            return False
        self.publisher.never_ran(call, error_info(error, self.privacy))
        return True

    def _refuse_report(self, rejected: EnvelopeRejected) -> None:
        self.metrics.add(EVENTS, "refused")
        log_event(logging.WARNING, "report_refused", errorCode=rejected.code, why=str(rejected))

    def _report(self, kind: type[ev.EventBase], tool_name: str, session_id: str | None, **fields: Any) -> bool:
        if not self.settings.enabled:
            return False
        chosen = _session_or(session_id)
        try:
            check_call(tool_name, {}, chosen)
        except EnvelopeRejected as rejected:
            self._refuse_report(rejected)
            return False
        tool = self.tools.get(tool_name)
        fields["service"] = fields["service"] or tool.service
        self.publisher.event(kind, chosen, tool_name=tool_name, plugin_name=tool.plugin_name, **fields)
        return True

    def mark_tool_failure(
        self, tool_id: str, scenario: str, error_message: str = "", severity: QualitySeverity | str = "medium"
    ) -> None:
        """Mark a tool as having failed at a scenario; it ranks lower for such scenarios afterwards.

        This is an operator's command: on Kafka it needs Write on `commands`. Failures of resilient calls are counted
        automatically and must not be marked again.

        Raises:
            ValueError: the severity is unknown.
        """
        self.order(
            cmd.QualityMark,
            tool=tool_id,
            severity=QualitySeverity(severity),
            scenario=redact_text(scenario)[:500] or None,
            error_message=redact_text(error_message)[:500] or None if self.settings.send_errors else None,
        )

    def order(self, kind: type[cmd.CommandBase], **fields: Any) -> None:
        """Send an operator's command, e.g. `guard.order(TrustReset, key="bash")`; needs an operator's rights."""
        if not self.settings.enabled:
            return
        now = self.clock.now_ms()
        command = kind(
            schema_version="1.0",
            id=new_id(now),
            time=datetime.fromtimestamp(now / 1000, UTC),
            **{"workspace_id": self.settings.workspace_id, "issued_by": self.guard_id, **fields},
        )
        self.publisher.send(command)

    def permission_hooks(self) -> dict[str, Callable[..., None]]:
        """Hooks for a permission plugin that reports its decisions (docs/design/guard.md#permission): `on_resolved`."""
        return {"on_resolved": self.on_permission_resolved}

    def on_permission_resolved(
        self,
        tool_name: str,
        request_id: str,
        granted: bool,  # noqa: FBT001 - the signature that permission plugins call
        method: str,
        session_id: str | None = None,
    ) -> None:
        """Publish the answer to a permission request."""
        if not self.settings.enabled:
            return
        chosen = _session_or(session_id)
        fields = {"call_id": request_id, "tool_name": tool_name, "granted": granted, "method": method or None}
        self.publisher.event(ev.PermissionResolved, chosen, **fields)


def _session_or(session_id: str | None) -> str:
    """Return the given session, else the surrounding one, else `no-session`."""
    if session_id is not None and not (type(session_id) is str and not session_id):
        return session_id
    session = CURRENT.get()
    return session.session_id if session is not None else NO_SESSION


def error_info(error: str | dict[str, Any] | BaseException, privacy: PrivacyFilter) -> ev.ErrorInfo:
    """Convert a reported error for publication: a text, an object with `error`, or an exception.

    The message is classified here, as it may be withheld.
    """
    if isinstance(error, BaseException):
        failure = of_exception(error)
    else:
        shape = error if isinstance(error, dict) else {"error": text_of(error) or "error"}
        found = of_result(shape if "error" in shape else {"error": text_of(shape)})
        failure = found if found is not None else of_exception(RuntimeError(text_of(error)))
    return privacy.error(failure, {}, failure.type, None if privacy.send_errors else failure.severity)
