"""Events as rows: what an analyst filters by in columns of its own, the rest as JSON, results never.

A result is digested and classified, then dropped. What stays in its place lets the folds come to the same decisions
when the recorded event is folded again (`whatif`): equal results have equal digests, and a result that reports a
failure leaves that failure. Severity, failure key and tool class are those that the folds see under the default rules.
"""

from __future__ import annotations

import re
from typing import Any, Generic, TypeVar, get_args

import msgspec
import orjson
from msgspec import UNSET, Raw

from ..projections.calls import fingerprints
from ..projections.calls.classify import MAX_MESSAGE_CHARS, Failure, classify, failure_in_result
from ..projections.session.calls import args_of, describe, is_our_timeout
from ..projections.session.state import OpenCall
from ..projections.session.verdicts import Verdict, judge
from ..schemas import events as ev
from ..schemas.codec import decode_event
from ..schemas.errors import EventRejected
from ..schemas.rules import Rules
from ..schemas.vocabulary import Severity
from .columns import Moment, Row

REMEMBERED = 65_536
"""Starts and ids of each partition kept in memory at least, to say more about the finishes and repeats that follow."""

SIGNATURE_CHARS = 160
_K = TypeVar("_K")
_V = TypeVar("_V")
_LETTERS = str.maketrans("0123456789abcdef", "abcdefghijklmnop")
_RULES = Rules()
_NO_ERROR = ev.ErrorInfo()
_encode = msgspec.json.Encoder().encode

_DIGEST = re.compile(r"[a-p]{16}")
_STAND_IN_KEYS = frozenset({"digest", "isError", "error", "http_status", "content"})
_QUOTED = re.compile(r"\"[^\"\n]{1,200}\"|'[^'\n]{1,200}'|`[^`\n]{1,200}`")
_URL = re.compile(r"\b[a-z][a-z0-9+.-]*://\S+", re.IGNORECASE)
_PATH = re.compile(r"(?<![\w<])(?:~|\.{1,2})?(?:/[\w.@%+~-]+)+/?|\b[\w.@-]+(?:/[\w.@%+~-]+)+/?")
_NUMBER = re.compile(r"\b[0-9a-f]{12,}\b|(?<![A-Za-z\d])(?:0x[0-9a-fA-F]+|\d+(?:[.,:-]\d+)*)")


class EventRow(Row, kw_only=True, omit_defaults=True):
    """One record of the `events` topic.

    Attributes:
        appended: the engine wrote it itself: a call that never finished, time that passed.
        repeated: an event of this id was recorded before; folds ignore it, and so do the views.
        service: MCP server or domain of the call.
        failure_key: trust key of the call, e.g. `bash|command=git`; on a finish, that of its start.
        tool_class: what the call does to the world.
        call_digest: equal for calls with equal tool and arguments.
        started: when the call of this finish started, where that was seen.
        verdict: success, failure or neutral.
        severity: of a failure.
        denied: the user refused the call.
        signature: the error with everything that varies taken out; groups failures across agents.
        result_digest: equal for equal results.
        same_result: how often this call has given this result in its session, this time included.
        about: `output_id` of a false alarm, `breaker_key` of a request for a probe.
        text_size: characters of a model's message.
    """

    turn_index: int | None = None
    tenant_id: str | None = None
    agent_id: str | None = None
    model: str | None = None
    model_tier: str | None = None
    correlation_id: str | None = None
    appended: bool | None = None
    repeated: bool | None = None
    call_id: str | None = None
    tool_name: str | None = None
    plugin_name: str | None = None
    service: str | None = None
    failure_key: str | None = None
    tool_class: str | None = None
    call_digest: str | None = None
    scenario: str | None = None
    recursion_depth: int | None = None
    deadline_ms: float | None = None
    started: Moment | None = None
    status: str | None = None
    verdict: str | None = None
    severity: str | None = None
    denied: bool | None = None
    expected: bool | None = None
    duration_ms: float | None = None
    attempts: int | None = None
    error_type: str | None = None
    error_code: str | None = None
    http_status: int | None = None
    signature: str | None = None
    result_digest: str | None = None
    same_result: int | None = None
    result_size: int | None = None
    from_cache: bool | None = None
    cost_usd: float | None = None
    granted: bool | None = None
    method: str | None = None
    domain: str | None = None
    about: str | None = None
    reason: str | None = None
    confidence: float | None = None
    stalled: bool | None = None
    text_size: int | None = None


class _Recent(Generic[_K, _V]):
    """The latest entries, one to two times `REMEMBERED`: two dictionaries, of which the older is dropped whole."""

    def __init__(self) -> None:
        self._young: dict[_K, _V] = {}
        self._old: dict[_K, _V] = {}

    def get(self, key: _K) -> _V | None:
        found = self._young.get(key)
        return found if found is not None else self._old.get(key)

    def keep(self, key: _K, value: _V) -> None:
        self._young[key] = value
        if len(self._young) > REMEMBERED:
            self._old, self._young = self._young, {}

    def pop(self, key: _K) -> _V | None:
        found = self._young.pop(key, None)
        return found if found is not None else self._old.pop(key, None)


class EventReader:
    """Makes rows of one partition's events, in order."""

    def __init__(self) -> None:
        """Start with nothing remembered."""
        self._starts: _Recent[tuple[str, str], OpenCall] = _Recent()
        self._seen: _Recent[str, bool] = _Recent()
        self._results: _Recent[tuple[str, str, str], int] = _Recent()

    def row(self, partition: int, offset: int, arrived_ms: int, key: str | None, value: bytes | None) -> EventRow:
        """The row of one record; never raises: what cannot be read keeps its place and the reason."""
        arrived = arrived_ms if arrived_ms > 0 else None
        size = len(value) if value is not None else 0
        try:
            event = decode_event(value)
        except EventRejected as rejected:
            return EventRow(
                partition=partition, offset=offset, arrived=arrived, key=key, fault=str(rejected.reason), size=size
            )
        row = EventRow(
            partition=partition,
            offset=offset,
            arrived=arrived,
            key=key,
            id=event.id,
            type=str(event.__struct_config__.tag),
            time=ev.epoch_ms(event.time),
            session_id=event.session_id,
            workspace_id=event.workspace_id,
            user_id=event.user_id,
            size=size,
            turn_index=event.turn_index,
            tenant_id=event.tenant_id,
            agent_id=event.agent_id,
            model=event.model,
            model_tier=event.model_tier,
            correlation_id=event.correlation_id,
        )
        row.repeated = self._seen.get(event.id)
        self._seen.keep(event.id, value=True)
        if isinstance(event, ev.ToolCallFinished):
            event = self._finished(row, event)
        elif isinstance(event, ev.ToolCallStarted):
            self._started(row, event)
        else:
            _other(row, event)
        if isinstance(event, ev.TimePassed):
            row.appended = True
        row.record = _encode(event).decode()
        return row

    def _started(self, row: EventRow, event: ev.ToolCallStarted) -> None:
        call = describe(event, args_of(event), row.time or 0, _RULES)
        _about_call(row, event, call)
        row.scenario, row.recursion_depth, row.deadline_ms = event.scenario, event.recursion_depth, event.deadline_ms
        self._starts.keep((event.session_id, event.call_id), call)

    def _finished(self, row: EventRow, event: ev.ToolCallFinished) -> ev.ToolCallFinished:
        known = self._starts.pop((event.session_id, event.call_id))
        call = known or describe(event, {}, row.time or 0, _RULES)
        _about_call(row, event, call)
        if known is not None:
            row.started = known.started_ms
        elif event.duration_ms is not None and row.time is not None:
            row.started = row.time - int(event.duration_ms)
        if known is None:
            row.call_digest = None  # without the arguments nothing says which call it was
        row.appended = True if is_our_timeout(event) else None
        raw = _raw(event)
        verdict = judge(event, call, _RULES)
        row.status, row.verdict, row.severity = str(event.status), verdict.word, verdict.severity
        row.denied, row.expected = verdict.denied or None, verdict.expected or None
        row.duration_ms, row.attempts, row.cost_usd = event.duration_ms, event.attempts, event.cost_usd
        row.from_cache = event.from_cache
        row.result_size = event.result_size if event.result_size is not None else len(raw) if raw else None
        event, stand_in = _without_result(event, raw, verdict)
        row.result_digest = stand_in.get("digest") or event.result_digest
        _about_error(row, event.error, _reported(stand_in), verdict.http_status)
        if known is not None and not verdict.neutral and not row.repeated:
            self._count_result(row)
        return event

    def _count_result(self, row: EventRow) -> None:
        """How often the call has given this result; failures without a result are told apart by their signature."""
        result = row.result_digest or row.signature
        if result:
            place = (row.session_id or "", row.call_digest or "", result)
            row.same_result = (self._results.get(place) or 0) + 1
            self._results.keep(place, row.same_result)


def _raw(event: ev.ToolCallFinished) -> bytes:
    raw = b"" if event.result is UNSET else bytes(event.result)
    return b"" if raw == b"null" else raw


def _without_result(
    event: ev.ToolCallFinished, raw: bytes, verdict: Verdict
) -> tuple[ev.ToolCallFinished, dict[str, Any]]:
    """The event as it is stored, and what stands in it in place of the result; empty where nothing does."""
    if not raw:
        return (event if event.result is UNSET else msgspec.structs.replace(event, result=UNSET)), {}
    parsed = ev.json_of(Raw(raw)) if raw[:1] in {b"{", b"["} else None
    if isinstance(parsed, dict) and _is_stand_in(parsed):
        return event, parsed
    told = event.error is not None and event.error != _NO_ERROR
    known = verdict.result if not (told or verdict.neutral) else fingerprints.result_fingerprint(raw, parsed)
    digest = f"{known:016x}".translate(_LETTERS)  # letters only: digits could be taken for a volatile part
    if told:
        return msgspec.structs.replace(event, result=UNSET, result_digest=digest), {}
    made = _stand_in(parsed, digest)
    return msgspec.structs.replace(event, result=Raw(orjson.dumps(made))), made


def _is_stand_in(result: dict[str, Any]) -> bool:
    """Whether this is no result but what was recorded in the place of one."""
    digest = result.get("digest")
    return isinstance(digest, str) and _DIGEST.fullmatch(digest) is not None and result.keys() <= _STAND_IN_KEYS


def _stand_in(result: Any, digest: str) -> dict[str, Any]:
    """What takes the place of a result: its digest and, where it tells of a failure, that failure as folds read it."""
    made: dict[str, Any] = {"digest": digest}
    failure = failure_in_result(result)
    if failure is None:
        return made
    told = {"type": failure.type, "message": _masked(failure.message), "code": failure.code}
    made["isError"] = True
    if any(told.values()):
        made["error"] = {name: text for name, text in told.items() if text}
    if failure.http_status is not None:
        made["http_status"] = failure.http_status
    content = result.get("content")
    first = content[0].get("text") if isinstance(content, list) and content and isinstance(content[0], dict) else None
    if isinstance(first, str) and not failure.message:
        made["content"] = [{"text": _masked(first)}]
    return made


def _masked(text: str) -> str:
    return fingerprints.mask(text[:MAX_MESSAGE_CHARS].encode(errors="replace")).decode(errors="replace")


def _reported(stand_in: dict[str, Any]) -> dict[str, Any]:
    """The failure that stands in for a result."""
    content = stand_in.get("content")
    return stand_in.get("error") or ({"message": content[0]["text"]} if content else {})


def _about_call(row: EventRow, event: ev.ToolCallStarted | ev.ToolCallFinished, call: OpenCall) -> None:
    row.call_id, row.tool_name = event.call_id, call.tool_name
    row.plugin_name, row.service = call.plugin_name or None, call.service or None
    row.failure_key, row.tool_class = call.fine_key, call.tool_class
    row.call_digest = f"{call.fingerprint:016x}"


def _about_error(row: EventRow, error: ev.ErrorInfo | None, told: dict[str, Any], http_status: int | None) -> None:
    kind = (error.type if error else None) or told.get("type")
    message = (error.message if error else None) or told.get("message")
    code = (error.code if error else None) or told.get("code")
    row.error_type, row.error_code = kind, None if code is None else str(code)
    row.http_status = http_status if http_status is not None else error.http_status if error else None
    if row.verdict == "failure":
        row.signature = signature(kind or "", row.error_code or "", message or "", row.status or "")


def signature(kind: str, code: str, message: str, status: str = "") -> str:
    """A failure in words that different agents share: names, numbers, paths and quotations taken out.

    `Timeout after 30s on /home/ann/x.py` and `Timeout after 45s on /srv/y.py` have one signature.
    """
    text = message.strip().partition("\n")[0][:600]
    for pattern, mark in ((_URL, "<url>"), (_QUOTED, "<text>"), (_PATH, "<path>"), (_NUMBER, "<n>")):
        text = pattern.sub(mark, text)
    head = " ".join(word for word in (kind, code) if word) or ("" if text else status)
    return f"{head}: {text}".strip(": ")[:SIGNATURE_CHARS]


_ABOUT = {"output_id": "about", "breaker_key": "about"}
_PLAIN: dict[type, list[tuple[str, str]]] = {
    kind: [
        (_ABOUT.get(name, name), name)
        for name in kind.__struct_fields__
        if name not in ev.EventBase.__struct_fields__
        and _ABOUT.get(name, name) in EventRow.__struct_fields__
        and name != "severity"
    ]
    for kind in get_args(ev.Event)
}
"""Columns that events other than starts and finishes fill as they are."""


def _other(row: EventRow, event: Any) -> None:
    """Columns of what is neither start nor finish."""
    for name, source in _PLAIN[type(event)]:
        setattr(row, name, getattr(event, source))
    if isinstance(event, ev.ModelText) and event.text is not None:
        row.text_size = len(event.text)
    if isinstance(event, ev.FailureReported):
        error = event.error or _NO_ERROR
        failure = Failure(error.type or "", error.message or "", error.http_status, str(error.code or ""))
        found = event.severity or error.severity or classify(failure, status="error", dangerous=False)
        row.verdict, row.severity = "failure", Severity(found)
        _about_error(row, error, {}, error.http_status)
    elif isinstance(event, ev.SuccessReported):
        row.verdict = "success"
