"""Records of the session stage for the other stages: outcomes for the tool stage, model behaviour for the fleet stage.

Fields common to all records are passed by position, the others by name. A call with more than 15 names is slow in
CPython, so the fields that few outcomes have are set afterwards.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

from msgspec import structs

from ...schemas.events import (
    BreakerProbeRequested,
    ErrorInfo,
    Event,
    FailureReported,
    SuccessReported,
    ToolCallFinished,
)
from ...schemas.outcomes import DEFAULT_WORKSPACE, OWN_MAKING, CallOutcome, PatternSeen, ProbeRequest
from ...schemas.standings import ModelBehaved
from ...schemas.vocabulary import Pattern, Severity
from ..calls.classify import classify
from ..calls.errors import MAX_TYPE_CHARS
from ..calls.keys import escape, has_scope, make_key, mcp_server, split_url
from .records import Context, OpenCall, Sighting
from .verdicts import Verdict, failure_of


def emit_finished_call(event: ToolCallFinished, call: OpenCall, verdict: Verdict, ctx: Context) -> None:
    """Emit the outcomes of a finished call."""
    state, rules = ctx.state, ctx.rules
    duration = event.duration_ms
    if duration is not None and call.waited_ms:  # the publisher may have measured the wait for a person, too
        duration = min(duration, max(0, ctx.emit.at - call.started_ms - call.waited_ms))
    rare: dict[str, Any] = {}
    if verdict.word != "success" or state.overrides:
        rare = {
            "severity": verdict.severity,
            "http_status": verdict.http_status,
            "expected": verdict.expected,
            "denied": verdict.denied,
            "model_switch": rules.models.strategy if state.overrides else None,
            "recovery_mode": rules.trust.recovery_mode if state.overrides else None,
            "risky": verdict.risky,
            "answered": verdict.answered,
            "reached": verdict.reached,
            "models": state.models if verdict.failed else None,
        }
    if verdict.failed:
        rare["error_type"] = verdict.told.type[:MAX_TYPE_CHARS] if verdict.told is not None else ""
        rare["own_class"] = call.fingerprint if verdict.own_class else 0
        if verdict.reclassified is not None:
            ctx.emit.count("reclassified")
    if call.service:
        rare["kind"] = call.kind
        rare["service" if call.kind == "mcp" else "domain"] = call.service
    if approvals := call.approvals or event.approvals:
        rare["approvals"] = approvals
    # Attempting a dangerous command is judged a failure only where the operator asked for that.
    word = "failure" if verdict.severity is Severity.SECURITY else "neutral" if verdict.rejected else verdict.word
    _emit_call(event, call, word, duration, rare, ctx)
    if verdict.behind and verdict.severity is not Severity.SECURITY:
        _emit_behind(event, call, verdict, ctx)


def _emit_behind(event: ToolCallFinished, call: OpenCall, verdict: Verdict, ctx: Context) -> None:
    """Emit the outcome of the service behind a shell call, which is observed: nothing is asked or refused by it.

    Its record is the program's own (`service:curl@localhost:8080`), apart from that of other tools.
    """
    name = escape(verdict.behind)
    rare: dict[str, Any] = {"kind": "program", "service": name}
    failed = verdict.failed and not verdict.answer
    if failed:
        rare["severity"] = Severity.PERMISSION if verdict.refused else Severity.SERVER_ERROR
        rare["http_status"] = 401 if verdict.refused else None
    _emit_scopes(event, call, "failure" if failed else "success", None, rare, ctx, (("service", name),))


def emit_reported_call(event: FailureReported | SuccessReported, ctx: Context) -> None:
    """Emit the outcomes of a report: a plugin reports that a tool failed or succeeded, without a call.

    See docs/design/guard.md#hooks-and-reports.
    """
    service = event.service or mcp_server(event.tool_name)
    domain = split_url(event.domain)[0] if event.domain else ""
    fine_key = make_key(event.tool_name, {"mcp_server": service} if service else {"domain": domain})
    rare: dict[str, Any] = {
        "expected": event.tool_name in ctx.rules.tools.expected_failures,
        "domain": domain,
        "service": service,
        "kind": "mcp" if service else "domain" if domain else "",
    }
    severity = None
    if isinstance(event, FailureReported):
        error = event.error or ErrorInfo()
        failure = failure_of(error)
        override = event.severity or error.severity or None
        severity = classify(failure, status="error", dangerous=False, override=override)
        rare["severity"], rare["http_status"], rare["models"] = severity, failure.http_status, ctx.state.models
        rare["unrecoverable"] = event.recoverable is False
    at = ctx.emit.at
    call = OpenCall("", event.id, event.tool_name, at, at, step=0, fingerprint=0, fine_key=fine_key)
    call.service, call.plugin_name = escape(service or domain), event.plugin_name or ""
    _emit_call(event, call, "failure" if severity else "success", None, rare, ctx)


def _emit_call(
    event: Event,
    call: OpenCall,
    verdict: Literal["success", "failure", "neutral"],
    duration_ms: float | None,
    rare: dict[str, Any],
    ctx: Context,
) -> None:
    """Emit an outcome per scope: the tool, its service if it has one, its model tier if the call was recursive."""
    if call.plugin_name:
        rare["plugin_name"] = call.plugin_name
    scopes = (("tool", call.tool_name), ("service", call.service), ("tier", call.tier))
    _emit_scopes(event, call, verdict, duration_ms, rare, ctx, scopes)


def _emit_scopes(
    event: Event,
    call: OpenCall,
    verdict: Literal["success", "failure", "neutral"],
    duration_ms: float | None,
    rare: dict[str, Any],
    ctx: Context,
    scopes: tuple[tuple[str, str], ...],
) -> None:
    state, emit = ctx.state, ctx.emit
    workspace = event.workspace_id or state.workspace_id or DEFAULT_WORKSPACE
    for kind, name in scopes:
        if not name and kind != "tool":
            continue
        outcome = CallOutcome(
            f"{event.id}/{kind}", emit.at, workspace, f"{kind}:{name}",
            event.session_id, event.id, emit.origin_partition, emit.next_origin(),
            call_id=call.call_id,
            tool_name=call.tool_name,
            fine_key=call.fine_key,
            verdict=verdict,
            started_ms=call.started_ms,
            duration_ms=duration_ms,
            tool_class=call.tool_class,
            class_declared=call.class_declared,
            user_id=event.user_id or state.user_id,
            model=event.model or state.model,
            scenario=call.scenario if kind == "tool" else "",
        )  # fmt: skip
        if rare:
            outcome = structs.replace(outcome, **rare)
        emit.record("outcomes", outcome.key, outcome, outcome.id)


def emit_patterns(
    event: ToolCallFinished, call: OpenCall, verdict: Verdict, raised: Iterable[Sighting], ctx: Context
) -> None:
    """Emit each new or more severe pattern for the tool and key of the call that completed it.

    Nothing is emitted if the model is unknown, or if the cause lies outside the model, such as an outage or a program
    that is missing: another model would have failed too.
    """
    state, emit = ctx.state, ctx.emit
    model = event.model or state.model
    if not model or (verdict.failed and verdict.severity not in OWN_MAKING):
        return
    workspace = event.workspace_id or state.workspace_id or DEFAULT_WORKSPACE
    for number, sighting in enumerate(raised):
        if sighting.pattern in _NOT_OF_MODEL:
            continue
        seen = PatternSeen(
            f"{event.id}/pattern/{number}", emit.at, workspace, f"tool:{call.tool_name}",
            event.session_id, event.id, emit.origin_partition, emit.next_origin(),
            tool_name=call.tool_name,
            fine_key=call.fine_key,
            model=model,
            pattern=sighting.pattern,
            model_switch=ctx.rules.models.strategy if state.overrides else None,
            user_id=event.user_id or state.user_id,
            models=state.models,
        )  # fmt: skip
        emit.record("outcomes", seen.key, seen, seen.id)


_NOT_OF_MODEL = frozenset({Pattern.MISSING_ENVIRONMENT, Pattern.CALL_BUDGET})


def emit_probe_request(event: BreakerProbeRequested, ctx: Context) -> None:
    """Emit a guard's request for the one probe of a half-open breaker."""
    emit = ctx.emit
    workspace = event.workspace_id or ctx.state.workspace_id or DEFAULT_WORKSPACE
    scope = event.breaker_key if has_scope(event.breaker_key) else f"tool:{event.breaker_key}"
    request = ProbeRequest(
        f"{event.id}/probe", emit.at, workspace, scope,
        event.session_id, event.id, emit.origin_partition, emit.next_origin(),
        guard_id=event.guard_id,
        call_id=event.call_id,
    )  # fmt: skip
    emit.record("outcomes", request.key, request, request.id)


def emit_behaviour(ctx: Context, **counts: Any) -> None:
    """Emit counts of a model's behaviour, fields of `ModelBehaved`; nothing while the model is unknown.

    One small record for each ended turn, detected streak, issued nudge, judged nudge and false alarm; none for calls
    (docs/design/semantics.md#models).
    """
    emit, model = ctx.emit, ctx.state.model
    if model:
        behaved = ModelBehaved(
            emit.next_id("model.behaved"), emit.at, ctx.session_id, emit.cause,
            emit.origin_topic, emit.origin_partition, emit.next_origin(),
            model=model,
            **counts,
        )  # fmt: skip
        emit.record("standings", behaved.key, behaved, behaved.id)
