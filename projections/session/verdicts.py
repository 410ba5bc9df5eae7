"""Verdict on a finished call (success, failure with a severity, or neutral), and its outcomes for the tool stage."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from msgspec import UNSET, structs

from ...rules.rules import Rules
from ...schemas.events import ErrorInfo, ToolCallFinished, json_of
from ...schemas.outcomes import DEFAULT_WORKSPACE, US, CallOutcome
from ...schemas.vocabulary import Severity, Status
from ..calls import fingerprints
from ..calls.classify import (
    MAX_MESSAGE_CHARS,
    Failure,
    Runs,
    classify,
    exit_code_in,
    failure_in_result,
    is_exception,
    is_of_tool,
    is_plain_answer,
    reported_by_tool,
    speaks_of_security,
    text_of_result,
)
from ..calls.errors import neutral_reason
from .context import Context
from .records import OpenCall, SessionRecord

_NO_ERROR = ErrorInfo()
_FAILED_MARK = 1
"""Mask that makes the result fingerprint of a failed call differ from that of a successful one."""

_NEUTRAL_STATUS = frozenset({Status.CANCELLED, Status.CIRCUIT_OPEN, Status.LOST})


class Verdict(msgspec.Struct, frozen=True, gc=False):
    """Verdict on a finished call.

    Attributes:
        word: success, failure, or neutral: neither, and detectors skip it.
        severity: of a failure.
        result: fingerprint of what it gave, or of how it failed.
        expected: an informational failure that no rule counts.
        denied: a user refused it.
        failed: the word is failure.
        neutral: the word is neutral.
        risky: a security failure of the lesser level.
        answered: a `validation` failure that names no fault: the tool said no.
        reached: the tool of an MCP server reports the failure, so that the server itself has answered.
    """

    word: Literal["success", "failure", "neutral"]
    severity: Severity | None = None
    http_status: int | None = None
    result: int = 0
    expected: bool = False
    denied: bool = False
    failed: bool = False
    neutral: bool = False
    risky: bool = False
    answered: bool = False
    reached: bool = False


def judge(event: ToolCallFinished, call: OpenCall, rules: Rules) -> Verdict:
    """Judge one finish: by its status first, then by its error or raw result."""
    error = event.error if event.error is not None and event.error != _NO_ERROR else None
    raw = b"" if event.result is UNSET else bytes(event.result)
    if raw == b"null":
        raw = b""
    parsed = json_of(event.result) if raw[:1] in {b"{", b"["} else None
    status = event.status
    if error is not None:
        failure: Failure | None = Failure(
            type=error.type or "",
            message=error.message or "",
            http_status=error.http_status,
            code=str(error.code or ""),
        )
    else:
        failure = failure_in_result(parsed)
        if failure is not None and call.kind == "mcp":
            failure = reported_by_tool(failure)
    if status is Status.SUCCESS and failure is None:
        danger, result = _danger_of_success(call, rules), _result(event, raw, parsed)
        if danger is None and not event.from_cache:
            return Verdict("success", None, None, result)
        risky = danger is not None and not call.dangerous
        if event.from_cache:
            return Verdict("neutral", danger, None, result, neutral=True, risky=risky)
        return Verdict("success", danger, None, result, risky=risky)
    mark = 0
    if failure is None:
        failure, mark = Failure(message=text_of(raw, parsed)), _FAILED_MARK
    reason = "cancelled" if status in _NEUTRAL_STATUS else neutral_reason(failure.type, failure.message)
    if reason or event.from_cache:
        return Verdict("neutral", denied=reason == "denied", neutral=True)
    dangerous = call.dangerous or (call.suspect and speaks_of_security(failure.message))
    override = (error.severity or None) if error else None
    runs: Runs = call.runs  # type: ignore[assignment]
    if runs == "code" and call.kind == "mcp" and is_exception(failure.type) and not is_of_tool(failure.type):
        runs = ""  # an exception named by the client: the server failed, not the program that it ran
    severity = classify(
        failure,
        status=str(status),
        dangerous=dangerous or call.risky,
        override=override,
        runs=runs,
        command=call.command,
    )
    if error is None and raw:
        digest = fingerprints.result_fingerprint(raw, parsed) ^ mark
    else:
        digest = fingerprints.error_fingerprint(
            str(status), failure.type, failure.http_status, failure.code, failure.message
        )
    expected = (
        bool(event.expected_failure)
        or call.tool_name in rules.tools.expected_failures
        or (bool(rules.tools.answer_exit_codes) and _is_answer(failure, call, runs, rules.tools.answer_exit_codes))
    )
    risky = override is None and severity is Severity.SECURITY and not dangerous
    answered = severity is Severity.VALIDATION and override is None and is_plain_answer(failure)
    reached = call.kind == "mcp" and is_of_tool(failure.type)
    return Verdict(
        "failure",
        severity,
        failure.http_status,
        digest,
        expected=expected,
        failed=True,
        risky=risky,
        answered=answered,
        reached=reached,
    )


def _danger_of_success(call: OpenCall, rules: Rules) -> Severity | None:
    return Severity.SECURITY if (call.dangerous or call.risky) and rules.calls.security_on_attempt else None


def _is_answer(failure: Failure, call: OpenCall, runs: Runs, declared: dict[str, tuple[int, ...]]) -> bool:
    """Whether the exit code of a failure is declared as a regular answer of its tool or command."""
    codes = declared.get(call.command) or declared.get(call.tool_name)
    code = exit_code_in(failure, runs) if codes else ""
    return bool(code) and int(code) in (codes or ())


def text_of(raw: bytes, parsed: Any) -> str:
    """Text of the result of a failed call that has no error."""
    if raw[:1] == b'"':
        return text_of_result(json_of(msgspec.Raw(raw)))
    return text_of_result(parsed) or raw[:MAX_MESSAGE_CHARS].decode(errors="replace") if parsed else ""


def _result(event: ToolCallFinished, raw: bytes, parsed: Any) -> int:
    if raw:
        return fingerprints.result_fingerprint(raw, parsed)
    if event.result_digest:
        return fingerprints.digest(event.result_digest.encode())
    return 0


def _details(state: SessionRecord, verdict: Verdict, rules: Rules) -> dict[str, Any]:
    """Further fields of the outcome, for calls other than plain successes."""
    return {
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


def tell_tools(event: ToolCallFinished, call: OpenCall, verdict: Verdict, ctx: Context) -> None:
    """Emit the outcome once per scope: the tool, its service if it has one, its model tier if it was recursive."""
    state, emit = ctx.state, ctx.emit
    workspace = event.workspace_id or state.workspace_id or DEFAULT_WORKSPACE
    scopes = [("tool", call.tool_name)]
    if call.service:
        scopes.append(("service", call.service))
    if call.tier:
        scopes.append(("tier", call.tier))
    duration = event.duration_ms
    if duration is not None and call.waited_ms:  # the publisher may have measured the wait for a person, too
        duration = min(duration, max(0, emit.at - call.started_ms - call.waited_ms))
    # Attempting a dangerous command is judged a failure only where the operator asked for that.
    word = "failure" if verdict.severity is Severity.SECURITY else verdict.word
    details = {} if word == "success" and not state.overrides else _details(state, verdict, ctx.rules)
    if approvals := call.approvals or event.approvals:
        details = details | {"approvals": approvals}
    for kind, name in scopes:
        scope = f"{kind}:{name}"
        outcome = CallOutcome(
            id=f"{event.id}/{kind}",
            time_ms=emit.at,
            workspace_id=workspace,
            scope=scope,
            session_id=event.session_id,
            cause=event.id,
            origin_partition=emit.origin_partition,
            origin=emit.next_origin(),
            call_id=event.call_id,
            tool_name=call.tool_name,
            fine_key=call.fine_key,
            verdict=word,
            started_ms=call.started_ms,
            duration_ms=duration,
            plugin_name=call.plugin_name,
            domain=call.service if call.kind == "domain" else "",
            service=call.service if call.kind == "mcp" else "",
            kind=call.kind,  # type: ignore[arg-type]
            tool_class=call.tool_class,
            class_declared=call.class_declared,
            user_id=event.user_id or state.user_id,
            model=event.model or state.model,
            scenario=call.scenario if kind == "tool" else "",
        )
        if details:  # set apart: to unpack them would slow down every call that just worked
            outcome = structs.replace(outcome, **details)
        emit.record("outcomes", f"{workspace}{US}{scope}", outcome, outcome.id)
