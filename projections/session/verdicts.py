"""Verdict on a finished call: success, failure with a severity, or neutral."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from msgspec import UNSET

from ...rules.rules import Rules
from ...schemas.events import ErrorInfo, ToolCallFinished, json_of
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
from ..calls.programs import NOTHING, Reading, read, service_asked
from .records import OpenCall

_NO_ERROR = ErrorInfo()
_FAILED_MARK = 1
"""Mask that makes the result fingerprint of a failed call differ from that of a successful one."""

_NEUTRAL_STATUS = frozenset({Status.CANCELLED, Status.CIRCUIT_OPEN, Status.LOST, Status.REJECTED})


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
        answer: a failure that is an answer of its program (nothing found, not equal, not yet); expected, too.
        behind: service behind a program that is away or refuses: `curl@localhost:8080`, `gh@github.com`; of a success
            or an answer, the service that has answered.
        refused: the service behind refuses the caller.
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
    answer: bool = False
    behind: str = ""
    refused: bool = False


def failure_of(error: ErrorInfo) -> Failure:
    """Failure that an event's error describes."""
    return Failure(error.type or "", error.message or "", error.http_status, str(error.code or ""))


def judge(event: ToolCallFinished, call: OpenCall, rules: Rules) -> Verdict:
    """Judge one finish: by its status first, then by its error or raw result."""
    error = event.error if event.error is not None and event.error != _NO_ERROR else None
    raw = b"" if event.result is UNSET else bytes(event.result)
    if raw == b"null":
        raw = b""
    parsed = json_of(event.result) if raw[:1] in {b"{", b"["} else None
    if error is not None:
        failure: Failure | None = failure_of(error)
    else:
        failure = failure_in_result(parsed)
        if failure is not None and call.kind == "mcp":
            failure = reported_by_tool(failure)
    if event.status is Status.SUCCESS and failure is None:
        if raw:
            result = fingerprints.result_fingerprint(raw, parsed)
        else:
            result = fingerprints.digest(event.result_digest.encode()) if event.result_digest else 0
        dangerous = (call.dangerous or call.risky) and rules.calls.security_on_attempt
        if not dangerous and not event.from_cache:
            return Verdict("success", result=result, behind=_behind(call, service_asked(call.asked)))
        severity, risky = (Severity.SECURITY, not call.dangerous) if dangerous else (None, False)
        if event.from_cache:
            return Verdict("neutral", severity, None, result, neutral=True, risky=risky)
        return Verdict("success", severity, None, result, risky=risky)
    result = 0
    if error is None and raw:
        result = fingerprints.result_fingerprint(raw, parsed) ^ (_FAILED_MARK if failure is None else 0)
    return _judge_failure(event, call, failure or Failure(message=text_of(raw, parsed)), result, rules)


def _judge_failure(event: ToolCallFinished, call: OpenCall, failure: Failure, result: int, rules: Rules) -> Verdict:
    """Judge a finish that is no success; `result` is the fingerprint of its result, 0 where an error stands instead."""
    status = event.status
    reason = "cancelled" if status in _NEUTRAL_STATUS else neutral_reason(failure.type, failure.message)
    if reason or event.from_cache:
        return Verdict("neutral", denied=reason == "denied", neutral=True)
    dangerous = call.dangerous or (call.suspect and speaks_of_security(failure.message))
    override = (event.error.severity or None) if event.error else None
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
    result = result or fingerprints.error_fingerprint(
        str(status), failure.type, failure.http_status, failure.code, failure.message
    )
    reading = _read(failure, call, runs, rules.tools.answer_exit_codes)
    expected = reading.answer or bool(event.expected_failure) or call.tool_name in rules.tools.expected_failures
    risky = override is None and severity is Severity.SECURITY and not dangerous
    answered = severity is Severity.VALIDATION and override is None and is_plain_answer(failure)
    reached = call.kind == "mcp" and is_of_tool(failure.type)
    return Verdict(
        "failure",
        severity,
        failure.http_status,
        result,
        expected=expected,
        failed=True,
        risky=risky,
        answered=answered,
        reached=reached,
        answer=reading.answer,
        behind=_behind(call, service_asked(call.asked) if reading.answer else reading.service),
        refused=reading.kind == "refused",
    )


def _read(failure: Failure, call: OpenCall, runs: Runs, declared: dict[str, tuple[int, ...]]) -> Reading:
    """Read a failure by its program; exit codes declared for its command or tool replace those of the table."""
    codes = declared.get(call.command, declared.get(call.tool_name)) if declared else None
    if codes is None and not call.asked.answers and not call.asked.program:
        return NOTHING
    code = exit_code_in(failure, runs)
    reading = read(call.asked, int(code) if code else None, failure.message)
    return reading if codes is None else reading._replace(answer=bool(code) and int(code) in codes)


def _behind(call: OpenCall, service: str) -> str:
    """Return the name of the service behind a program: the program and the service."""
    return f"{call.asked.program}@{service}" if service and "@" not in service else service


def text_of(raw: bytes, parsed: Any) -> str:
    """Text of the result of a failed call that has no error."""
    if raw[:1] == b'"':
        return text_of_result(json_of(msgspec.Raw(raw)))
    return text_of_result(parsed) or raw[:MAX_MESSAGE_CHARS].decode(errors="replace") if parsed else ""
