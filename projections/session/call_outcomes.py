"""Records of the session stage for the other stages: outcomes for the tool stage, model behaviour for the fleet stage.

Fields that most records have are passed by position: a call with more than 15 names is slow in CPython. Those that few
have are set afterwards.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from msgspec import structs

from ...schemas.events import (
    BreakerProbeRequested,
    ErrorInfo,
    Event,
    FailureReported,
    SuccessReported,
    ToolCallFinished,
    epoch_ms,
)
from ...schemas.outcomes import (
    DEFAULT_WORKSPACE,
    MAX_MESSAGE,
    OWN_MAKING,
    CallOutcome,
    PatternSeen,
    ProbeRequest,
)
from ...schemas.standings import ModelBehaved
from ...schemas.vocabulary import CallEnd, CallStatus, FailureSeverity, PatternType, ToolClass
from ...security.redaction import redact_text
from ..calls.classify import MAX_MESSAGE_CHARS, RawFailure, classify
from ..calls.error_words import MAX_TYPE_CHARS, is_refusal
from ..calls.keys import escape, has_scope, make_key, mcp_server, split_url
from ..calls.signatures import signature
from .appended import is_appended
from .calls import one_line
from .records import CallRecord, EventContext, PatternSighting
from .verdicts import FinishVerdict, failure_of, judge


def emit_finished_call(event: ToolCallFinished, call: CallRecord, verdict: FinishVerdict, ctx: EventContext) -> None:
    """Emit the outcomes of a finished call; that of its tool is the record of the call."""
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
    if approvals := call.approvals or event.approvals:
        rare["approvals"] = approvals
    # Attempting a dangerous command is judged a failure only where the operator asked for that.
    word = (
        "failure" if verdict.severity is FailureSeverity.SECURITY else "neutral" if verdict.rejected else verdict.word
    )
    more: dict[str, Any] = {"appended": True} if is_appended(event) else {}
    if word != "success":
        more |= _error_of(event, verdict)
        if verdict.failed:
            rare["error_message"] = more["error_message"]
        if verdict.rule or (verdict.failed and event.error is not None and event.error.severity):
            more |= _judgement(event, call, verdict, ctx)
    ended, turn = epoch_ms(event.time), event.turn_index
    record = (
        CallEnd.SUCCEEDED if verdict.word == "success" else _end_of(event, verdict),
        "" if event.status is CallStatus.SUCCESS else event.status,
        call.summary,
        f"{call.fingerprint:016x}",
        f"{verdict.result:016x}" if verdict.result else "",
        _times(call, verdict, ctx) if ctx.same else 1 if verdict.result and not verdict.neutral else 0,
        verdict.size or event.result_size,
        call.agent_id,
        turn if turn is not None or not state.turn.known else state.turn.index,
        call.step,
        ended if ended != ctx.emit.at else None,
        call.waited_ms,
        event.attempts,
        event.cost_usd,
        event.model_tier or call.tier,
    )
    place = (call.service, "", "mcp") if call.kind == "mcp" else ("", call.service, call.kind if call.service else "")
    _emit_call(event, call, (word, duration, rare, place), record, more, ctx)
    if verdict.behind and verdict.severity is not FailureSeverity.SECURITY:
        _emit_behind(event, call, verdict, rare.get("error_message", ""), ctx)


_ENDS = {CallStatus.CIRCUIT_OPEN: CallEnd.REFUSED, CallStatus.LOST: CallEnd.LOST}


def _end_of(event: ToolCallFinished, verdict: FinishVerdict) -> CallEnd:
    """Outcome of a call that did not succeed."""
    if verdict.failed:
        if verdict.rejected:
            return CallEnd.REJECTED
        return CallEnd.ANSWERED if verdict.expected or verdict.answered else CallEnd.FAILED
    if verdict.denied:
        return CallEnd.DENIED
    if event.error is not None and is_refusal(event.error.type or ""):
        return CallEnd.REFUSED
    return _ENDS.get(event.status) or (CallEnd.CACHED if event.from_cache else CallEnd.CANCELLED)


def _times(call: CallRecord, verdict: FinishVerdict, ctx: EventContext) -> int:
    """Number of times a call has given its result since the agent's last progress; 0 if the result is unknown."""
    result = verdict.result
    if not result or verdict.neutral:
        return 0
    # An action is progress when it is new; what is repeated of it begins with that one.
    progress = ctx.state.steps.progress - (call.tool_class is ToolClass.ACTION)
    return 1 + sum([one.result == result and one.step > progress for one in ctx.same])


def _error_of(event: ToolCallFinished, verdict: FinishVerdict) -> dict[str, Any]:
    """Fields of a record about the error of what was no success."""
    told = verdict.told or (failure_of(event.error) if event.error is not None else RawFailure())
    message = verdict.message or told.message
    if verdict.failed and is_appended(event):
        message = "no answer by the deadline that was stated"
    return _told(told, message, event.status if verdict.failed else None)


def _judgement(event: ToolCallFinished, call: CallRecord, verdict: FinishVerdict, ctx: EventContext) -> dict[str, Any]:
    """Fields about who judges a failure otherwise than it looks; none if nobody does."""
    by_itself, who = verdict.reclassified, f"rules: {verdict.rule}"
    if not verdict.rule and event.error is not None:
        own = structs.replace(event, error=structs.replace(event.error, severity=None))
        severity, who = judge(own, call, ctx.rules).severity, "publisher"
        by_itself = severity if severity is not verdict.severity else None
    return {} if by_itself is None else {"reclassified": by_itself, "judged_by": who}


def _told(told: RawFailure, message: str, status: str | None) -> dict[str, Any]:
    """Fields about an error; with its signature, if it is that of a failure with this status."""
    line, signed = _read_message(told.type, told.code, message[:MAX_MESSAGE_CHARS], status)
    fields = {
        "error_type": told.type[:MAX_TYPE_CHARS],
        "error_code": told.code[:MAX_TYPE_CHARS],
        "error_message": line,
    }
    return fields if status is None else {**fields, "signature": signed}


@lru_cache(maxsize=512)
def _read_message(kind: str, code: str, message: str, status: str | None) -> tuple[str, str]:
    """Beginning of an error's message without secrets, and its signature; cached, as failures come again."""
    shown = redact_text(message)
    return one_line(shown, MAX_MESSAGE), "" if status is None else signature(kind, code, shown, status)


def _emit_behind(
    event: ToolCallFinished, call: CallRecord, verdict: FinishVerdict, error: str, ctx: EventContext
) -> None:
    """Emit the outcome of the service behind a shell call, which is observed: nothing is asked or refused by it.

    Its record is the program's own (`service:curl@localhost:8080`), apart from that of other tools.
    """
    name = escape(verdict.behind)
    rare: dict[str, Any] = {}
    failed = verdict.failed and not verdict.answer
    if failed:
        rare["severity"] = FailureSeverity.PERMISSION if verdict.refused else FailureSeverity.SERVER_ERROR
        rare["http_status"] = 401 if verdict.refused else None
        rare["error_message"] = error
    judged = "failure" if failed else "success", None, rare, (name, "", "program")
    _emit_scopes(event, call, judged, (), ctx, (("service", name),))


def emit_reported_call(event: FailureReported | SuccessReported, ctx: EventContext) -> None:
    """Emit the outcomes of a report: a plugin reports that a tool failed or succeeded, without a call.

    See docs/design/guard.md#hooks-and-reports.
    """
    service = event.service or mcp_server(event.tool_name)
    domain = split_url(event.domain)[0] if event.domain else ""
    fine_key = make_key(event.tool_name, {"mcp_server": service} if service else {"domain": domain})
    rare: dict[str, Any] = {"expected": event.tool_name in ctx.rules.tools.expected_failures}
    severity = None
    more: dict[str, Any] = {}
    if isinstance(event, FailureReported):
        error = event.error or ErrorInfo()
        failure = failure_of(error)
        override = event.severity or error.severity or None
        severity = classify(failure, status="error", dangerous=False, override=override)
        rare["severity"], rare["http_status"], rare["models"] = severity, failure.http_status, ctx.state.models
        rare["unrecoverable"] = event.recoverable is False
        more = _told(failure, failure.message, "")
        rare["error_message"] = more["error_message"]
    at = ctx.emit.at
    call = CallRecord("", event.id, event.tool_name, at, at, step=0, fingerprint=0, fine_key=fine_key)
    call.service, call.plugin_name = escape(service or domain), event.plugin_name or ""
    end = CallEnd.SUCCEEDED if severity is None else CallEnd.ANSWERED if rare["expected"] else CallEnd.FAILED
    place = service or "", domain, "mcp" if service else "domain" if domain else ""
    judged = "failure" if severity else "success", None, rare, place
    _emit_call(event, call, judged, (end,), more, ctx)


# Fields shared by the records of all scopes of a call: verdict, duration, rare fields, (service, domain, kind)
_Judged = tuple[Any, float | None, dict[str, Any], tuple[str, str, Any]]


def _emit_call(
    event: Event, call: CallRecord, judged: _Judged, record: tuple[Any, ...], more: dict[str, Any], ctx: EventContext
) -> None:
    """Emit an outcome per scope: the tool, its service if it has one, its model tier if the call was recursive.

    `record` and `more` are the fields that the record of the call has alone.
    """
    word, duration, rare, place = judged
    own = (word, duration, {**rare, **more}, place) if more else judged
    _emit_scopes(event, call, own, record, ctx, (("tool", call.tool_name),))
    if call.service or call.tier:
        _emit_scopes(event, call, judged, (), ctx, (("service", call.service), ("tier", call.tier)))


def _emit_scopes(
    event: Event,
    call: CallRecord,
    judged: _Judged,
    record: tuple[Any, ...],
    ctx: EventContext,
    scopes: tuple[tuple[str, str], ...],
) -> None:
    state, emit = ctx.state, ctx.emit
    verdict, duration_ms, rare, place = judged
    workspace = event.workspace_id or state.workspace_id or DEFAULT_WORKSPACE
    for kind, name in scopes:
        if not name and kind != "tool":
            continue
        outcome = CallOutcome(
            f"{event.id}/{kind}", emit.at, workspace, f"{kind}:{name}",
            event.session_id, event.id, emit.origin_partition, emit.next_origin(),
            call.call_id, call.tool_name, call.fine_key, verdict, call.started_ms, duration_ms, call.tool_class,
            call.class_declared, event.user_id or state.user_id, event.model or state.model,
            call.scenario if kind == "tool" else "", call.plugin_name, *place, *record,
        )  # fmt: skip
        if rare:
            outcome = structs.replace(outcome, **rare)
        emit.record("outcomes", outcome.key, outcome, outcome.id)


def emit_patterns(
    event: ToolCallFinished,
    call: CallRecord,
    verdict: FinishVerdict,
    raised: Iterable[PatternSighting],
    ctx: EventContext,
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


_NOT_OF_MODEL = frozenset({PatternType.MISSING_ENVIRONMENT, PatternType.CALL_BUDGET})


def emit_probe_request(event: BreakerProbeRequested, ctx: EventContext) -> None:
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


def emit_behaviour(ctx: EventContext, **counts: Any) -> None:
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
