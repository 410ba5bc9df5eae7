"""Classifies failures of tools: whether an exception or a result is a failure, its severity, and whether to retry.

See docs/design/guard.md#retries.

Severities are computed by the code of the folds. A failure is retriable by its own statement first, then its HTTP
status, then its severity; unknown errors are not retried.
"""

from __future__ import annotations

import asyncio
import errno
import inspect
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, NamedTuple

from ..projections.calls.classify import (
    ANSWER,
    RawFailure,
    Runs,
    by_type,
    classify,
    declared,
    exit_code_in,
    failure_in_result,
    is_exception,
    is_of_tool,
    reported_by_tool,
    speaks_of_security,
)
from ..projections.calls.error_words import neutral_reason
from ..schemas.tool_envelopes import ResultError
from ..schemas.vocabulary import BreakerState, FailureSeverity
from .json_view import kind_of, text_of

# Retriable HTTP statuses; every other one from 400 is final
RETRIABLE_STATUS = frozenset({408, 425, 429, 500, 502, 503, 504})

_RETRIABLE_SEVERITY = frozenset({FailureSeverity.TIMEOUT, FailureSeverity.TRANSIENT})
_HINTS = ("retriable", "retryable")
_MAX_RETRY_AFTER_MS = 86_400_000.0

# Failures by which a tool answers: exception classes, statuses and exit codes, functions of exception or result
Answers = tuple[type[BaseException] | int | Callable[[Any], Any], ...]

# Classes of exceptions of no certain severity, whose subclasses say that the tool broke
_OF_SURROUNDINGS = frozenset({"OSError", "ImportError"})

MAX_BLOCKS = 16  # Number of content blocks of a result that are inspected


class RanProgram(NamedTuple):
    """Program that a call ran; decides how its failure is read."""

    runs: Runs = ""  # `shell` for command lines, `code` for programs, or empty
    command: str = ""  # command word of a shell call
    dangerous: bool = False  # the shipped rules classify it as dangerous
    suspect: bool = False  # it counts as dangerous if its failure says so
    of_server: bool = False  # an MCP server runs it
    answers: Answers = ()  # what the tool's registration declares to be its answers
    failures: Mapping[str, str] = {}  # the rules for failures of the tool or its command


NO_PROGRAM = RanProgram()


class CallFailure(NamedTuple):
    """One failed attempt."""

    type: str  # exception class or error category
    message: str  # error text as given; stays in the process
    code: str  # failure code that is counted: HTTP status, error type, exit code or `timeout`
    http_status: int | None  # HTTP status; None without one
    severity: FailureSeverity  # severity as the folds classify it
    retriable: bool  # a retry may succeed
    timed_out: bool = False  # the attempt was cut off, or reports a timeout itself
    retry_after_ms: float = 0.0  # milliseconds to wait before a retry, as the answer asks
    exception: BaseException | None = None  # the raised exception; None without one
    neutral: str = ""  # `denied` or `cancelled` if the tool reports that it never ran
    answer: bool = False  # the tool has answered, by its registration or the rules
    # its severity follows from what only this process knows: the registration, the bases of its class
    told: bool = False
    # its severity without the rules and the registration; None if they do not change it
    reclassified: FailureSeverity | None = None
    rejected: bool = False  # its arguments do not fit the function, so nothing ran

    def error(self, breaker_state: BreakerState | None = None) -> ResultError:
        """Return the failure as the error of a result."""
        return ResultError(
            code=self.code,
            message=self.message or self.type or "the tool reported a failure",
            retriable=self.retriable,
            terminal=not self.retriable,
            breaker_state=breaker_state,
        )


def of_exception(error: BaseException, program: RanProgram = NO_PROGRAM, *, now_ms: int = 0) -> CallFailure:
    """Classify a raised exception; if reading the exception fails, only its type is used."""
    try:
        return _of_exception(error, program, now_ms)
    except Exception:  # noqa: BLE001 - its own properties, or a subclass of a number or text
        failure = RawFailure(type=kind_of(error), message=text_of(error))
        return _failure(failure, program, hint=None, retry_after_ms=0.0, exception=error)


def _of_exception(error: BaseException, program: RanProgram, now_ms: int) -> CallFailure:
    response = _get(error, "response")
    status = _status_of(error) or _status_of(response)
    kind = kind_of(error)
    raw_code = _get(error, "code") or _get(error, "errno")
    name = errno.errorcode.get(error.errno or 0, "") if isinstance(error, OSError) else ""
    code = name or (text_of(raw_code)[:120] if isinstance(raw_code, str | int) else "")
    # A class that names its status is read by that name, as the folds do.
    timed_out = isinstance(error, TimeoutError | asyncio.TimeoutError) and "timeout" not in kind.lower()
    failure = RawFailure(
        type=kind, message=text_of(error), http_status=status, code=code if code != str(status) else ""
    )
    hint = next((said for name in _HINTS if isinstance(said := _get(error, name), bool)), None)
    return _failure(
        failure,
        program,
        timed_out=timed_out and status is None,
        hint=hint,
        retry_after_ms=_retry_after(error, response, now_ms),
        exception=error,
        base=_base_of(error),
    )


def _base_of(error: BaseException) -> str:
    """Return the name of the class above an exception's own that tells its kind; empty if its own does, or none."""
    names = [kind.__name__ for kind in type(error).__mro__]
    known = next((name for name in names if by_type(name) is not None or name in _OF_SURROUNDINGS), names[0])
    return "" if known == names[0] else known


def of_result(result: Any, program: RanProgram = NO_PROGRAM, *, now_ms: int = 0) -> CallFailure | None:
    """Classify the failure that a returned value reports; None if it reports none or cannot be read.

    Understands objects in the shapes that the folds know, MCP results (`isError`), HTTP responses (`status_code`) and
    chat messages of tools (`status`).
    """
    try:
        return _of_result(result, program, now_ms)
    except Exception:  # noqa: BLE001 - its own properties, comparisons or truth
        return None


def _of_result(result: Any, program: RanProgram, now_ms: int) -> CallFailure | None:
    shape = result if isinstance(result, dict) else _shape_of(result)
    if shape is None:
        return None
    failure = failure_in_result(shape)
    if failure is None:
        return None
    if program.of_server:
        failure = reported_by_tool(failure)
    details = shape.get("error")
    hint = next(
        (
            value
            for place in (details, shape)
            if isinstance(place, Mapping)
            for name in _HINTS
            if isinstance(value := place.get(name), bool)
        ),
        None,
    )
    return _failure(failure, program, hint=hint, retry_after_ms=_retry_after(result, shape, now_ms), result=result)


def timeout_failure(limit_ms: float) -> CallFailure:
    """Return the failure of an attempt that exceeded its time limit."""
    return CallFailure(
        "TimeoutError", f"no answer within {limit_ms:.0f} ms", "timeout", None, FailureSeverity.TIMEOUT,
        retriable=True, timed_out=True,
    )  # fmt: skip


def _failure(
    failure: RawFailure,
    program: RanProgram,
    *,
    hint: bool | None,
    retry_after_ms: float,
    timed_out: bool = False,
    exception: BaseException | None = None,
    result: Any = None,
    base: str = "",
) -> CallFailure:
    runs = program.runs
    if runs == "code" and program.of_server and is_exception(failure.type) and not is_of_tool(failure.type):
        runs = ""  # the client reports it: the server failed, not the program it ran
    severity = classify(
        failure._replace(type=base) if base else failure,
        status="timeout" if timed_out else "error",
        dangerous=program.dangerous or (program.suspect and speaks_of_security(failure.message)),
        runs=runs,
        command=program.command,
    )
    before, code = severity, exit_code_in(failure, runs)
    said = program.failures.get(declared(failure, code, program.failures), "") if program.failures else ""
    answers = bool(program.answers) and _is_answer(program.answers, failure, code, exception or result)
    if severity is FailureSeverity.SECURITY:
        said, answers = "", False
    answer = answers or said == ANSWER
    if answer or said:
        severity, timed_out = FailureSeverity.VALIDATION if answer else FailureSeverity(said), False
    timed_out = timed_out or (severity is FailureSeverity.TIMEOUT and "timeout" in failure.type.lower())
    status = failure.http_status
    if hint is not None:
        retriable = hint
    elif status is not None and status >= 400 and not said:
        retriable = status in RETRIABLE_STATUS
    else:
        retriable = severity in _RETRIABLE_SEVERITY
    code = str(status) if status else "timeout" if timed_out else failure.code or failure.type or "error"
    return CallFailure(
        failure.type,
        failure.message,
        code,
        status,
        severity,
        retriable and severity is not FailureSeverity.SECURITY and not answer,
        timed_out or severity is FailureSeverity.TIMEOUT,
        retry_after_ms,
        exception,
        neutral_reason(failure.type, failure.message),
        answer,
        answers or bool(base),
        before if severity is not before else None,
    )


def _is_answer(answers: Answers, failure: RawFailure, exit_code: str, given: Any) -> bool:
    """Whether a failure is among the declared ones; a function that fails declares nothing."""
    for one in answers:
        if isinstance(one, int):
            found = one == failure.http_status or str(one) == exit_code
        elif isinstance(one, type):
            found = isinstance(given, one)
        else:
            try:
                found = bool(one(given))
            except Exception:  # noqa: BLE001 - the tool's own function
                found = False
        if found:
            return True
    return False


def fits(function: Callable[..., Any], args: Mapping[str, Any]) -> bool:
    """Whether a function takes these arguments; True if it does not say."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return True
    try:
        signature.bind(**args)
    except TypeError:
        return False
    return True


def _shape_of(result: Any) -> dict[str, Any] | None:
    """Return the fields of a non-dictionary result that report its outcome."""
    if isinstance(result, str | bytes | int | float | list | tuple) or result is None:
        return None
    message_failed = _get(result, "status") == "error" and isinstance(_get(result, "tool_call_id"), str)
    if _get(result, "isError") is True or _get(result, "is_error") is True or message_failed:
        structured = (_get(result, name) for name in ("structuredContent", "structured_content"))
        found = next((one for one in structured if isinstance(one, dict)), None)
        return {"isError": True, "content": _content_of(result), "structuredContent": found}
    status = _status_of(result)
    if status is not None and status >= 400:
        return {"status_code": status, "body": text_of(_get(result, "text") or "")[:500]}
    return None


def _content_of(result: Any) -> str | list[dict[str, str]]:
    """Return the content of an MCP result or a chat message, with blocks as plain dictionaries."""
    content = _get(result, "content")
    if isinstance(content, str):
        return content
    if isinstance(content, list | tuple):
        return [{"text": text_of(_field(block, "text") or "")} for block in content[:MAX_BLOCKS]]
    return ""


def _status_of(thing: Any) -> int | None:
    for name in ("status_code", "http_status", "status", "code"):
        value = _get(thing, name)
        if isinstance(value, int) and not isinstance(value, bool) and 100 <= value <= 599:
            return int(value)
    return None


def _retry_after(*places: Any) -> float:
    """Return the wait that an answer asks for in milliseconds: an attribute, a field or `Retry-After`.

    0 without one.
    """
    *sources, now_ms = places
    for source in sources:
        found = _field(source, "retry_after")
        if found is None:
            headers = _field(source, "headers")
            get = getattr(headers, "get", None)
            found = (get("Retry-After") or get("retry-after")) if callable(get) else None
        if found is not None and (wait := _wait_of(found, now_ms)) > 0:
            return min(wait, _MAX_RETRY_AFTER_MS)
    return 0.0


def _field(source: Any, name: str) -> Any:
    return source.get(name) if isinstance(source, Mapping) else _get(source, name)


def _get(thing: Any, name: str) -> Any:
    """Return an attribute; None if it is missing or reading it fails."""
    try:
        return getattr(thing, name, None)
    except Exception:  # noqa: BLE001 - a property or `__getattr__` of the tool's own
        return None


def _wait_of(value: Any, now_ms: int) -> float:
    """Convert a number of seconds or a date to milliseconds from now."""
    try:
        seconds = float(value)
    except (TypeError, ValueError):
        try:
            until = parsedate_to_datetime(str(value))
        except (TypeError, ValueError):
            return 0.0
        until = until if until.tzinfo is not None else until.replace(tzinfo=UTC)
        return max(0.0, (until - datetime.fromtimestamp(now_ms / 1000, UTC)).total_seconds() * 1000)
    return seconds * 1000 if 0 < seconds < _MAX_RETRY_AFTER_MS else 0.0
