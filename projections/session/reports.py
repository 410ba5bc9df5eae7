"""Outcomes from reporter events: a plugin reports that a tool failed or succeeded, without a call.

See docs/design/guard.md#hooks-and-reports.
"""

from __future__ import annotations

from ...schemas.events import FailureReported, SuccessReported
from ...schemas.outcomes import DEFAULT_WORKSPACE, CallOutcome
from ..calls.classify import Failure, classify
from ..calls.keys import escape, make_key, mcp_server, split_url
from .context import Context


def reported_outcomes(event: FailureReported | SuccessReported, ctx: Context) -> list[CallOutcome]:
    """Outcomes of a report: for the tool, and for its domain or service if it names one."""
    state, emit = ctx.state, ctx.emit
    workspace = event.workspace_id or state.workspace_id or DEFAULT_WORKSPACE
    service = event.service or mcp_server(event.tool_name)
    domain = split_url(event.domain)[0] if event.domain else ""
    fine_key = make_key(event.tool_name, {"mcp_server": service} if service else {"domain": domain})
    severity = http_status = None
    if isinstance(event, FailureReported):
        error = event.error or None
        failure = Failure(
            type=(error.type or "") if error else "",
            message=(error.message or "") if error else "",
            http_status=error.http_status if error else None,
            code=str(error.code or "") if error else "",
        )
        http_status = failure.http_status
        override = event.severity or (error.severity if error else None) or None
        severity = classify(failure, status="error", dangerous=False, override=override)
    scopes = [f"tool:{event.tool_name}"]
    if service or domain:
        scopes.append(f"service:{escape(service or domain)}")
    return [
        CallOutcome(
            id=f"{event.id}/{scope.partition(':')[0]}",
            time_ms=emit.at,
            workspace_id=workspace,
            scope=scope,
            session_id=event.session_id,
            cause=event.id,
            origin_partition=emit.origin_partition,
            origin=emit.next_origin(),
            call_id="",
            tool_name=event.tool_name,
            fine_key=fine_key,
            verdict="failure" if severity else "success",
            severity=severity,
            http_status=http_status,
            expected=event.tool_name in ctx.rules.tools.expected_failures,
            started_ms=emit.at,
            plugin_name=event.plugin_name or "",
            domain=domain,
            service=service,
            kind="mcp" if service else "domain" if domain else "",
            user_id=event.user_id or state.user_id,
            model=event.model or state.model,
            models=state.models if severity else None,
            unrecoverable=isinstance(event, FailureReported) and event.recoverable is False,
        )
        for scope in scopes
    ]
