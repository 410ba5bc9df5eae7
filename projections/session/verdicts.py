"""Verdict on a finished call: success, failure with a severity, or neutral."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any, Literal

import msgspec
import orjson
from msgspec import UNSET, structs

from ...rules.rules import RuleSet
from ...schemas.events import ErrorInfo, ToolCallFinished, json_of
from ...schemas.result_sketch import ResultSketch
from ...schemas.vocabulary import CallStatus, FailureSeverity, ToolClass
from ..calls import fingerprints
from ..calls.classify import (
    ANSWER,
    MAX_MESSAGE_CHARS,
    RawFailure,
    Runs,
    classify,
    declared,
    exit_code_in,
    failure_in_result,
    is_exception,
    is_of_own_class,
    is_of_tool,
    is_plain_answer,
    reported_by_tool,
    speaks_of_security,
    text_of_result,
)
from ..calls.error_words import neutral_reason
from ..calls.masks import MAX_RESULT_BYTES, failure_text, mask, without_snapshots
from ..calls.programs import NOTHING, FailureReading, read, service_asked
from ..calls.tool_class import reads_by_sql
from .records import CallRecord
from .shown_lines import NO_LINES, Shown, ShownLines, SketchedLines

NO_ERROR = ErrorInfo()
# Statuses that tell more about a failure than that it is one
_TELLING_STATUS = frozenset({CallStatus.TIMEOUT, CallStatus.REJECTED})

# Classes of calls of whose results no line is looked for again
_UNREAD = frozenset({ToolClass.ACTION, ToolClass.PLANNING})

_STRUCTURED = frozenset({b"{", b"["})
NEUTRAL_STATUS = frozenset({CallStatus.CANCELLED, CallStatus.CIRCUIT_OPEN, CallStatus.LOST})


class FinishVerdict(msgspec.Struct, frozen=True, gc=False):
    """Verdict on a finished call."""

    word: Literal["success", "failure", "neutral"]  # success, failure, or neutral: neither, and detectors skip it
    severity: FailureSeverity | None = None  # of a failure
    http_status: int | None = None
    result: int = 0  # fingerprint of what it gave, or of how it failed
    expected: bool = False  # an informational failure that no rule counts
    denied: bool = False  # a user refused it
    failed: bool = False  # the word is failure
    neutral: bool = False  # the word is neutral
    risky: bool = False  # a security failure of the lesser level
    answered: bool = False  # a `validation` failure that names no fault: the tool said no
    reached: bool = False  # the tool of an MCP server reports the failure, so that the server itself has answered
    # a failure that is the answer of a search or comparison: nothing found, not equal, not yet. Of a program it is
    # expected, too.
    answer: bool = False
    rejected: bool = False  # the client refused the call before it ran
    kind: int = 0  # fingerprint of how it failed without the text: status, severity, codes and type
    text: int = 0  # fingerprint of the text of a failure without what moves and without the echo of the request
    message: str = ""  # the text of a failure, at most MAX_MESSAGE_CHARS characters
    # lines of the result, as they stand in its JSON; none if it is unknown, or none is looked for again
    shown: Shown = NO_LINES
    size: int = 0  # length of the result in bytes
    # service behind a program that is away or refuses: `curl@localhost:8080`, `gh@github.com`; of a success or an
    # answer, the service that has answered
    behind: str = ""
    refused: bool = False  # the service behind refuses the caller
    told: RawFailure | None = None  # the failure as the event or its result tells it; None if it tells none
    own_class: bool = False  # an exception of a class that the tool defines itself, which may be its answer
    # severity that it would have without the rules for the tool's failures; None if they change none
    reclassified: FailureSeverity | None = None
    rule: str = ""  # name by which these rules have the failure: its type, code, HTTP status or exit code


def failure_of(error: ErrorInfo) -> RawFailure:
    """Failure that an event's error describes."""
    return RawFailure(error.type or "", error.message or "", error.http_status, str(error.code or ""))


def judge(event: ToolCallFinished, call: CallRecord, rules: RuleSet) -> FinishVerdict:
    """Judge one finish: by its status first, then by its error, or its raw result or the sketch of it."""
    error = event.error if event.error is not None and event.error != NO_ERROR else None
    raw = raw_result(event)
    sketch = sketch_of(event)
    parsed = json_of(event.result) if raw[:1] in _STRUCTURED else None
    told: RawFailure | None = None
    if error is not None:
        told = failure_of(error)
    elif sketch is not None:
        told = failure_in_sketch(sketch)
    elif parsed is not None:
        told = failure_in_result(parsed)
    if event.status is not CallStatus.SUCCESS or told is not None:
        if told is None:
            failure = RawFailure(message=text_of(raw, parsed) if sketch is None else sketch.text)
        else:
            failure = reported_by_tool(told) if error is None and call.kind == "mcp" else told
        return _judge_failure(event, call, failure, told, rules)
    shown: Shown = NO_LINES
    looked_for = call.tool_class not in _UNREAD
    size = len(raw)
    if raw:
        result, lines = read_result(raw, parsed, looked_for=looked_for)
        shown = ShownLines.of(lines, size, call.request) if lines else NO_LINES
    elif sketch is not None:
        result, size = int(sketch.digest or "0", 16), sketch.size
        shown = SketchedLines(sketch) if looked_for else NO_LINES
    else:
        result = fingerprints.digest(event.result_digest.encode()) if event.result_digest else 0
    dangerous = (call.dangerous or call.risky) and rules.calls.security_on_attempt
    if not dangerous and not event.from_cache:
        behind = _behind(call, service_asked(call.asked)) if call.asked.program else ""
        return FinishVerdict("success", result=result, shown=shown, size=size, behind=behind)
    severity, risky = (FailureSeverity.SECURITY, not call.dangerous) if dangerous else (None, False)
    if event.from_cache:
        return FinishVerdict("neutral", severity, None, result, neutral=True, risky=risky)
    return FinishVerdict("success", severity, None, result, risky=risky, shown=shown, size=size)


def sketch_of(event: ToolCallFinished) -> ResultSketch | None:
    """The sketch of a result that is not there."""
    return event.result_sketch if event.result is UNSET else None


def failure_in_sketch(sketch: ResultSketch) -> RawFailure | None:
    """The failure that a result reports, from its sketch."""
    return None if sketch.failure is None else RawFailure(*structs.astuple(sketch.failure))


def raw_result(event: ToolCallFinished) -> bytes:
    """Raw bytes of a result; empty if there is none."""
    raw = b"" if event.result is UNSET else bytes(event.result)
    return b"" if raw == b"null" else raw


MAX_REMEMBERED_BYTES = 256


def read_result(raw: bytes, parsed: Any, *, looked_for: bool = True) -> tuple[int, Sequence[bytes]]:
    """Fingerprint of a result, and its lines if they are looked for again, without what moves where it is short.

    A text stays as it stands in its JSON, where a line break is two characters; of any other value without a text of
    its own, each field or item is a line.
    """
    if parsed is None:
        fingerprint, lines = (_read_text_before if len(raw) <= MAX_REMEMBERED_BYTES else _read_text)(raw)
        return fingerprint, lines if looked_for else ()
    content = text_of_result(parsed)
    whole = fingerprints.canonical(fingerprints.without_volatile_fields(parsed))
    masked = mask(whole)
    fingerprint = fingerprints.digest(masked)
    if not looked_for:
        return fingerprint, ()
    if content:
        return fingerprint, content.encode(errors="replace").split(b"\n")
    return fingerprint, (masked if len(whole) <= MAX_RESULT_BYTES else whole).split(b",")


def _read_text(raw: bytes) -> tuple[int, Sequence[bytes]]:
    """Fingerprint and lines of a result that is no object or list."""
    if b"\\u" in raw:
        with suppress(orjson.JSONDecodeError):
            raw = orjson.dumps(orjson.loads(raw))
    raw = without_snapshots(raw)
    masked = mask(raw)
    return fingerprints.digest(masked), (masked if len(raw) <= MAX_RESULT_BYTES else raw).strip(b'"').split(b"\\n")


# The same for short results, most of which have been given before
_read_text_before = lru_cache(maxsize=4096)(_read_text)


def _judge_failure(
    event: ToolCallFinished, call: CallRecord, failure: RawFailure, told: RawFailure | None, rules: RuleSet
) -> FinishVerdict:
    """Judge a finish that is no success."""
    status = event.status
    reason = "cancelled" if status in NEUTRAL_STATUS else neutral_reason(failure.type, failure.message)
    if reason or event.from_cache:
        return FinishVerdict("neutral", denied=reason == "denied", neutral=True)
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
    code = exit_code_in(failure, runs)
    failures = rules.tools.failures
    table = failures.get(call.command, failures.get(call.tool_name)) if failures else None
    rule = declared(failure, code, table) if table and severity is not FailureSeverity.SECURITY else ""
    said = table[rule] if table and rule else ""
    before = severity
    if said:
        severity = FailureSeverity.VALIDATION if said == ANSWER else FailureSeverity(said)
    how = f"{status if status in _TELLING_STATUS else 'error'}\0{severity}\0{failure.http_status or ''}\0{code}"
    kind = fingerprints.digest(f"{how}\0{failure.type}\0{failure.code}".encode(errors="replace"))
    text = fingerprints.digest(failure_text(failure.message, call.request.shown.decode(errors="replace")))
    reading = _read(failure, call, runs)
    if table is not None:
        reading = reading._replace(answer=said == ANSWER)
    expected = reading.answer or bool(event.expected_failure) or call.tool_name in rules.tools.expected_failures
    risky = override is None and severity is FailureSeverity.SECURITY and not dangerous
    judged = override is not None or bool(said)  # by somebody who knows the tool
    answered = said == ANSWER or (severity is FailureSeverity.VALIDATION and not judged and is_plain_answer(failure))
    own_class = severity is FailureSeverity.SERVER_ERROR and not judged and not code and is_of_own_class(failure)
    reached = call.kind == "mcp" and is_of_tool(failure.type)
    message = failure.message[:MAX_MESSAGE_CHARS]
    shown: Shown = NO_LINES
    if message and call.tool_class is ToolClass.READ:
        if (sketch := sketch_of(event)) is None:
            shown = ShownLines.of(failure_lines(message), len(message), call.request)
        else:
            shown = SketchedLines(sketch)
    return FinishVerdict(
        "failure",
        severity,
        failure.http_status,
        kind ^ text or 1,
        expected=expected,
        failed=True,
        risky=risky,
        answered=answered,
        reached=reached,
        answer=reading.answer or _finds_nothing(call, severity, runs),
        rejected=status is CallStatus.REJECTED,
        kind=kind,
        text=text,
        message=message,
        shown=shown,
        size=len(message),
        behind=_behind(call, service_asked(call.asked) if reading.answer else reading.service),
        refused=reading.kind == "refused",
        told=told,
        own_class=own_class,
        reclassified=before if before is not severity else None,
        rule=rule,
    )


def failure_lines(message: str) -> Sequence[bytes]:
    """Lines of the text of a failure; none without text."""
    return message[:MAX_MESSAGE_CHARS].encode(errors="replace").split(b"\n") if message else ()


def _finds_nothing(call: CallRecord, severity: FailureSeverity, runs: Runs) -> bool:
    """Whether a reading tool, not a program, has answered that there is no such thing."""
    reads = not runs and severity is FailureSeverity.NOT_FOUND and call.tool_class is ToolClass.READ
    return reads and not reads_by_sql(call.request.text())


def _read(failure: RawFailure, call: CallRecord, runs: Runs) -> FailureReading:
    """Read a failure by its program."""
    if not call.asked.answers and not call.asked.program:
        return NOTHING
    code = exit_code_in(failure, runs)
    return read(call.asked, int(code) if code else None, failure.message)


def _behind(call: CallRecord, service: str) -> str:
    """Return the name of the service behind a program: the program and the service."""
    return f"{call.asked.program}@{service}" if service and "@" not in service else service


def text_of(raw: bytes, parsed: Any) -> str:
    """Text of the result of a failed call that has no error."""
    if raw[:1] == b'"':
        return text_of_result(json_of(msgspec.Raw(raw)))
    return text_of_result(parsed) or raw[:MAX_MESSAGE_CHARS].decode(errors="replace") if parsed else ""
